"""Pictures as ``AtariPreprocessing`` makes them: grey, the larger of two screens, made smaller by ``INTER_AREA``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import cv2
import numpy as np

from vebench.backends.fast.native import NOT_BUILT

if TYPE_CHECKING:
    from ale_py import ALEInterface
    from numpy.typing import NDArray


class Picture(Protocol):
    """The picture of one game: it is made of one screen or two, and written where it was told to be."""

    def first(self) -> None:
        """Take the first of two screens."""

    def second(self) -> None:
        """Take the second, and write the picture of both."""

    def alone(self) -> None:
        """Take a screen, and write the picture of it alone."""


class PictureMaker:
    """What the pictures of all games of one process share."""

    def __init__(self, example: ALEInterface, size: int, *, compiled: bool) -> None:
        self.height, self.width = example.getScreenDims()
        self.size = size
        self.how = f"pictures by OpenCV ({NOT_BUILT})" if compiled else "pictures by OpenCV"
        self.buffers = [np.empty((self.height, self.width), np.uint8) for _ in range(2)]

    def picture(self, ale: ALEInterface, into: NDArray[np.uint8]) -> Picture:
        """Return the picture of one game, which is written into an array."""
        return _ByOpenCV(self, ale, into)


class _ByOpenCV:
    def __init__(self, maker: PictureMaker, ale: ALEInterface, into: NDArray[np.uint8]) -> None:
        self._ale, self._into = ale, into
        self._first, self._second = maker.buffers
        self._shape = (maker.size, maker.size)

    def first(self) -> None:
        self._ale.getScreenGrayscale(self._first)

    def second(self) -> None:
        self._ale.getScreenGrayscale(self._second)
        np.maximum(self._first, self._second, out=self._second)
        cv2.resize(self._second, self._shape, self._into, 0, 0, cv2.INTER_AREA)

    def alone(self) -> None:
        self._ale.getScreenGrayscale(self._second)
        cv2.resize(self._second, self._shape, self._into, 0, 0, cv2.INTER_AREA)
