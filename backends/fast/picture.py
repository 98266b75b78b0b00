"""Pictures as ``AtariPreprocessing`` makes them: the larger of two screens, made smaller by OpenCV's ``INTER_AREA``.

Grey pictures are made by ``picture.c`` from the emulator's raw screens, where that was compiled and gives the same
bytes as the OpenCV that is installed: this is looked at whenever a ``PictureMaker`` is built. What grey a raw value has
is learned from the emulator itself, when the value is first seen. All other pictures are made by OpenCV.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import cv2
import numpy as np

from vebench.backends.fast.native import NOT_BUILT, library, needed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ale_py import ALEInterface
    from numpy.typing import NDArray

COMPILED = "pictures compiled"
BY_OPENCV = "pictures by OpenCV"
DIFFERS = "the compiled part differs from this OpenCV"
_TRIALS = 10
# For fewer pixels than these OpenCV never starts its threads.
_PIXELS_FOR_THREADS = 1 << 16


class PictureMaker:
    """What the pictures of all games of one process share.

    ``size``: columns and rows of a picture. ``grey``: whether it is grey, and not in colour. ``how``: how pictures are
    made, in words. ``uncompiled``: why they are not compiled though those of this kind are elsewhere, empty if they are
    or none of this kind is.
    """

    def __init__(self, example: ALEInterface, size: tuple[int, int], *, grey: bool, compiled: bool) -> None:
        height, width = example.getScreenDims()
        self.size, self.grey = size, grey
        self.first = np.zeros((height, width) if grey else (height, width, 3), np.uint8)
        self._drawing: _Drawing | None = None
        self.uncompiled = ""
        if not compiled:
            self.how = BY_OPENCV
        elif not grey:
            self.how = f"{BY_OPENCV} (not compiled: colour)"
        else:
            self._compile((height, width))

    def _compile(self, screen: tuple[int, int]) -> None:
        try:
            if library() is None:
                self.uncompiled = NOT_BUILT
            elif not _same_as_opencv(_Drawing(screen, self.size)):
                self.uncompiled = DIFFERS
            else:
                self._drawing = _Drawing(screen, self.size)
            self.how = f"{BY_OPENCV} ({self.uncompiled})" if self.uncompiled else COMPILED
        except ValueError as error:
            self.how = f"{BY_OPENCV} (not compiled: {error})"

    def picture(self, ale: ALEInterface, into: NDArray[np.uint8]) -> _ByOpenCV | _Compiled:
        """Return the picture of one game, written into ``(rows, columns)``, in colour ``(rows, columns, 3)``.

        Only what has changed is written: what was written before must still be there.
        """
        if self._drawing is None:
            if into.shape[0] * into.shape[1] > _PIXELS_FOR_THREADS:
                # Other processes have the other CPUs. It holds for all of this process: it is set here and no sooner.
                cv2.setNumThreads(1)
            return _ByOpenCV(self, ale, into)
        return _Compiled(self._drawing, ale, into)


def _resize(screen: NDArray[np.uint8], size: tuple[int, int], into: NDArray[np.uint8]) -> None:
    cv2.resize(screen, size, into, 0, 0, cv2.INTER_AREA)


class _ByOpenCV:
    """The picture of one game.

    ``first`` takes the first of two screens, ``second`` the second, and writes the picture of both. ``alone`` takes a
    screen, and writes the picture of it alone. ``stale`` writes the picture of the first screen and of what the last
    picture was made of, as Gymnasium does at an end; only ``alone`` can come after it.
    """

    def __init__(self, maker: PictureMaker, ale: ALEInterface, into: NDArray[np.uint8]) -> None:
        self._get = ale.getScreenGrayscale if maker.grey else ale.getScreenRGB
        self._size, self._into = maker.size, into
        self._first = maker.first
        self._larger = np.zeros_like(maker.first)

    def first(self) -> None:
        self._get(self._first)

    def second(self) -> None:
        self._get(self._larger)
        self.stale()

    def alone(self) -> None:
        self._get(self._larger)
        _resize(self._larger, self._size, self._into)

    def stale(self) -> None:
        np.maximum(self._first, self._larger, out=self._larger)
        _resize(self._larger, self._size, self._into)


_INT = ctypes.c_int32
_POINTER = ctypes.c_void_p


def _function(name: str, result: type[ctypes._SimpleCData[int]] | None, *arguments: type) -> Callable[..., int]:
    """Return a function of the library, which is called without letting go of the interpreter's lock: it is short."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, needed()))


def _address(array: NDArray[np.uint8]) -> int:
    return int(array.ctypes.data)


class _Drawing:
    """``picture.c`` for screens and pictures of one size, with the greys that are known.

    ``screens``: where the emulator puts its two screens. ``grey``: a screen in grey, where one is needed. Raises
    ValueError if the C part is not made for these sizes.
    """

    def __init__(self, screen: tuple[int, int], size: tuple[int, int]) -> None:
        height, width = screen
        columns, rows = size
        self.size = size
        self.screens = [np.zeros(screen, np.uint8) for _ in range(2)]
        self.grey = np.zeros(screen, np.uint8)
        self.first = _function("vebench_picture_first", _INT, _POINTER)
        self.second = _function("vebench_picture_second", _INT, _POINTER)
        self.alone = _function("vebench_picture_alone", _INT, _POINTER)
        self._join = _function("vebench_picture_join", None, _POINTER, _POINTER)
        self._learn = _function("vebench_maker_learn", _INT, *[_POINTER] * 3)
        self._prepare_game = _function("vebench_game_prepare", None, *[_POINTER] * 3)
        maker_size = _function("vebench_maker_size", ctypes.c_int64)
        game_size = _function("vebench_game_size", ctypes.c_int64, _INT)
        self._game_size = game_size(height)
        self._maker = np.zeros(maker_size(), np.uint8)
        prepare = _function("vebench_maker_prepare", _INT, _POINTER, *[_INT] * 4, *[_POINTER] * 2)
        refused = prepare(_address(self._maker), height, width, rows, columns, *map(_address, self.screens))
        if refused:
            relation = "from" if refused == -1 else "goes a whole number of times into"
            raise ValueError(f"{columns} x {rows} {relation} {width} x {height}")

    def game(self, into: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the memory of a game whose picture is written into an array."""
        memory = np.zeros(self._game_size, np.uint8)
        self._prepare_game(_address(memory), _address(self._maker), _address(into))
        return memory

    def learn(self, raw: NDArray[np.uint8], grey: NDArray[np.uint8]) -> None:
        """Take the greys of raw values from a screen in both. Raises RuntimeError if they are not what they were."""
        if self._learn(_address(self._maker), _address(raw), _address(grey)):
            raise RuntimeError("the emulator shows the same colour in two greys: use the option compiled=false")

    def join(self, game: int) -> None:
        """Put the larger of a game's last picture and of the first screen into ``grey``."""
        self._join(game, _address(self.grey))


class _Compiled:
    """The same by ``picture.c``."""

    def __init__(self, drawing: _Drawing, ale: ALEInterface, into: NDArray[np.uint8]) -> None:
        assert into.flags.c_contiguous  # noqa: S101 - a row of the shared arrays is
        self._drawing, self._ale, self._into = drawing, ale, into
        self._memory = drawing.game(into)
        self._game = _address(self._memory)
        self._get = ale.getScreen
        self._first_screen, self._second_screen = drawing.screens
        self._draw_first, self._draw_second, self._draw_alone = drawing.first, drawing.second, drawing.alone

    def first(self) -> None:
        self._get(self._first_screen)
        if self._draw_first(self._game):
            self._learn(self._first_screen)

    def second(self) -> None:
        self._get(self._second_screen)
        if self._draw_second(self._game):
            self._learn(self._second_screen)
            self._draw_second(self._game)

    def alone(self) -> None:
        # Once an episode it is looked at whether greys are still what they were, with another seed for example.
        self._get(self._second_screen)
        self._learn(self._second_screen)
        self._draw_alone(self._game)

    def stale(self) -> None:
        self._drawing.join(self._game)
        _resize(self._drawing.grey, self._drawing.size, self._into)

    def _learn(self, raw: NDArray[np.uint8]) -> None:
        self._ale.getScreenGrayscale(self._drawing.grey)
        self._drawing.learn(raw, self._drawing.grey)


def _same_as_opencv(drawing: _Drawing) -> bool:
    """Return whether a few pictures are the same as OpenCV's, whole ones and such as change in places."""
    random = np.random.default_rng(0)
    greys = random.integers(256, size=256).astype(np.uint8)
    columns, rows = drawing.size
    picture, by_opencv = np.zeros((2, rows, columns), np.uint8)
    memory = drawing.game(picture)
    first, second = drawing.screens
    height, width = first.shape
    for screen in drawing.screens:
        screen[:] = random.permutation(np.arange(height * width) % 256).reshape(height, width)
        drawing.learn(screen, greys[screen])
    for trial in range(_TRIALS):
        drawing.first(_address(memory))
        drawing.second(_address(memory))
        _resize(np.maximum(greys[first], greys[second]), drawing.size, by_opencv)
        if not np.array_equal(picture, by_opencv):
            return False
        for screen in drawing.screens[trial % 2 :]:
            top, left = random.integers(height // 2), random.integers(width // 2)
            box = screen[top : top + height // 3, left : left + width // 3]
            box[:] = random.integers(256) if trial % 4 else random.integers(256, size=box.shape)
    return True
