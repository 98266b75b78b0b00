"""Pictures by the compiled part against those that OpenCV makes, of screens that a made-up emulator shows."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

cv2 = pytest.importorskip("cv2")
pytest.importorskip("ale_py")

from vebench.backends.fast import native, picture  # noqa: E402 - they need OpenCV
from vebench.backends.fast.picture import BY_OPENCV, COMPILED, PictureMaker  # noqa: E402 - likewise

WIDTH = 160
HEIGHTS = (210, 214, 220, 230, 250)
needs_the_library = pytest.mark.skipif(native.library() is None, reason=native.NOT_BUILT)


class Emulator:
    """Shows a screen that can be drawn on; any raw value has a grey."""

    def __init__(self, height: int, seed: int = 0) -> None:
        self.greys = np.random.default_rng(seed).integers(256, size=256).astype(np.uint8)
        self.screen = np.zeros((height, WIDTH), np.uint8)

    def getScreenDims(self) -> tuple[int, int]:  # noqa: N802 - its name there
        return self.screen.shape[0], WIDTH

    def getScreen(self, into: NDArray[np.uint8]) -> None:  # noqa: N802 - its name there
        into[:] = self.screen

    def getScreenGrayscale(self, into: NDArray[np.uint8]) -> None:  # noqa: N802 - its name there
        into[:] = self.greys[self.screen]

    def change(self, seed: int, boxes: int) -> None:
        """Fill a few boxes with one value or many; now and then the whole screen."""
        random = np.random.default_rng(seed)
        for _ in range(boxes):
            height, width = random.integers(1, 40, size=2) if random.random() < 0.9 else self.screen.shape
            top, left = random.integers(self.screen.shape[0]), random.integers(WIDTH)
            box = self.screen[top : top + height, left : left + width]
            box[:] = random.integers(256, size=box.shape if random.random() < 0.3 else ())


def pictures(maker: PictureMaker, emulator: Emulator, size: tuple[int, int]) -> tuple[Any, NDArray[np.uint8]]:
    into = np.zeros((size[1], size[0]), np.uint8)
    return maker.picture(emulator, into), into  # type: ignore[arg-type]


@needs_the_library
@given(
    height=st.sampled_from(HEIGHTS),
    size=st.sampled_from([(84, 84), (84, 84), (96, 72), (160, 200), (41, 13), (3, 1)]),
    changes=st.lists(
        st.tuples(
            st.sampled_from(["both", "both", "both", "alone", "stale", "first only"]), st.integers(0), st.integers(0, 3)
        ),
        max_size=12,
    ),
)
@settings(max_examples=40, deadline=None, derandomize=True, database=None)
def test_whatever_changes_between_screens_the_pictures_are_opencvs(
    height: int, size: tuple[int, int], changes: list[tuple[str, int, int]]
) -> None:
    emulator = Emulator(height)
    makers = [PictureMaker(emulator, size, grey=True, compiled=compiled) for compiled in (True, False)]  # type: ignore[arg-type]
    assert [maker.how for maker in makers] == [COMPILED, BY_OPENCV]
    (ours, ours_into), (opencv, opencv_into) = [pictures(maker, emulator, size) for maker in makers]
    both = (ours, opencv)

    for kind, seed, boxes in [("alone", 0, 1), *changes]:
        emulator.change(seed, boxes)
        if kind in {"both", "stale", "first only"}:
            for one in both:
                one.first()
            emulator.change(seed + 1, boxes)
        for one in both:
            if kind == "both":
                one.second()
            elif kind == "alone":
                one.alone()
            elif kind == "stale":
                one.stale()
        np.testing.assert_array_equal(ours_into, opencv_into)
        if kind == "stale":
            for one in both:
                one.alone()
            np.testing.assert_array_equal(ours_into, opencv_into)


@needs_the_library
def test_pictures_of_several_games_do_not_meet() -> None:
    emulators = [Emulator(210, seed=1) for _ in range(2)]
    maker = PictureMaker(emulators[0], (84, 84), grey=True, compiled=True)  # type: ignore[arg-type]
    games = [(emulator, *pictures(maker, emulator, (84, 84))) for emulator in emulators]
    for step in range(6):
        for number, (emulator, game, into) in enumerate(games):
            emulator.change(10 * step + number, 2)
            first = emulator.greys[emulator.screen]
            game.first()
            emulator.change(100 * step + number, 2)
            game.second()
            larger = np.maximum(first, emulator.greys[emulator.screen])
            np.testing.assert_array_equal(into, cv2.resize(larger, (84, 84), interpolation=cv2.INTER_AREA))


def test_where_the_compiled_part_is_not_used_it_is_said_why(monkeypatch: pytest.MonkeyPatch) -> None:
    emulator: Any = Emulator(210)

    def how(size: tuple[int, int] = (84, 84), *, grey: bool = True) -> str:
        return PictureMaker(emulator, size, grey=grey, compiled=True).how

    if native.library() is not None:
        assert how((200, 300)) == "pictures by OpenCV (not compiled: 200 x 300 from 160 x 210)"
        # For these OpenCV adds in integers: a few pixels in a thousand pictures differ.
        for columns, rows in ((80, 70), (10, 70), (20, 14), (40, 5), (2, 105), (1, 1), (160, 210)):
            why = f"not compiled: {columns} x {rows} goes a whole number of times into 160 x 210"
            assert how((columns, rows)) == f"pictures by OpenCV ({why})"
        assert how(grey=False) == "pictures by OpenCV (not compiled: colour)"
        with monkeypatch.context() as patch:
            patch.setattr(picture, "_same_as_opencv", lambda _drawing: False)
            assert how() == f"pictures by OpenCV ({picture.DIFFERS})"
    monkeypatch.setattr(picture, "library", lambda: None)
    assert how() == f"pictures by OpenCV ({native.NOT_BUILT})"


def test_opencvs_threads_are_the_users_unless_it_resizes_to_pictures_that_would_take_several() -> None:
    before = cv2.getNumThreads()
    try:
        cv2.setNumThreads(3)
        for size, expected in (((84, 84), 3), ((300, 300), 1)):
            for compiled in (True, False):
                pictures(PictureMaker(Emulator(210), size, grey=True, compiled=compiled), Emulator(210), size)  # type: ignore[arg-type]
            assert cv2.getNumThreads() == expected
    finally:
        cv2.setNumThreads(before)


@needs_the_library
def test_a_value_whose_grey_has_changed_is_an_error_and_no_wrong_picture() -> None:
    emulator: Any = Emulator(210)
    game, _ = pictures(PictureMaker(emulator, (84, 84), grey=True, compiled=True), emulator, (84, 84))
    game.alone()
    emulator.greys += 1
    with pytest.raises(RuntimeError, match="in two greys"):
        game.alone()
