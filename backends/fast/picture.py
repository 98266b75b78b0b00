"""Pictures as ``AtariPreprocessing`` makes them: the larger of two screens, made smaller by OpenCV's ``INTER_AREA``.

``picture.c`` draws them. ``check_pictures`` compares them with the pictures of the installed OpenCV.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from vebench.backends.fast.native import needed

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TRIALS = 10


class PictureMaker:
    """Shared by the pictures of all games of one kind. Raises ValueError for sizes that ``picture.c`` does not make.

    ``screen``: rows and columns of the emulator's screen. ``size``: columns and rows of a picture. ``greys``: the grey
    of each of the 256 raw values.
    """

    def __init__(self, screen: tuple[int, int], size: tuple[int, int], greys: NDArray[np.uint8]) -> None:
        (height, width), (columns, rows) = screen, size
        self._height = ctypes.c_int32(height)
        self._maker = np.zeros(needed().vebench_picture_maker_size(), np.uint8)
        numbers = map(ctypes.c_int32, (height, width, rows, columns))
        refused = needed().vebench_picture_maker_prepare(pointer(self._maker), *numbers, pointer(greys))
        if refused:
            relation = "from" if refused == -1 else "goes a whole number of times into"
            raise ValueError(f"no compiled pictures: {columns} x {rows} {relation} {width} x {height}")

    def pictures(self, into: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the memory of pictures that are written into ``(count, rows, columns)``.

        Only changes are written: earlier contents must still be there.
        """
        memory = np.zeros((len(into), needed().vebench_picture_size(self._height)), np.uint8)
        for picture, shown in zip(memory, into, strict=True):
            assert shown.flags.c_contiguous  # noqa: S101 - in a row it is
            needed().vebench_picture_prepare(pointer(picture), pointer(self._maker), pointer(shown))
        return memory


def check_pictures(screen: tuple[int, int], size: tuple[int, int]) -> None:
    """Raise ValueError unless a few pictures are OpenCV's, of screens that are new and that change in places."""
    random = np.random.default_rng(0)
    greys = random.integers(256, size=256).astype(np.uint8)
    drawn = np.zeros((1, *reversed(size)), np.uint8)
    maker = PictureMaker(screen, size, greys)
    picture = maker.pictures(drawn)
    values = np.arange(screen[0] * screen[1]) % 256
    screens = [random.permutation(values).astype(np.uint8).reshape(screen) for _ in range(2)]
    for trial in range(_TRIALS):
        needed().vebench_picture_first(pointer(picture), pointer(screens[0]))
        needed().vebench_picture_second(pointer(picture), pointer(screens[1]))
        if not np.array_equal(drawn[0], by_opencv(np.maximum(greys[screens[0]], greys[screens[1]]), size)):
            raise ValueError("compiled pictures differ from the pictures of this OpenCV")
        for each in screens[trial % 2 :]:
            (top, left), (height, width) = random.integers([length // 2 for length in screen]), screen
            box = each[top : top + height // 3, left : left + width // 3]
            box[:] = random.integers(256) if trial % 4 else random.integers(256, size=box.shape)


def by_opencv(grey: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Return a screen as Gymnasium's wrapper shows it."""
    return np.asarray(cv2.resize(grey, size, interpolation=cv2.INTER_AREA), np.uint8)


def pointer(array: NDArray[Any]) -> ctypes.c_void_p:
    """Return the address of an array, as C takes it."""
    return ctypes.c_void_p(array.ctypes.data)
