"""Pictures by the compiled part against those that OpenCV makes, of screens that are made up."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

cv2 = pytest.importorskip("cv2")
pytest.importorskip("ale_py")

from vebench.backends.fast import classes  # noqa: E402 - they need both
from vebench.backends.fast.atari import PictureMaker, by_opencv, pointer  # noqa: E402 - cv2 may be missing

WIDTH = 160
GREYS = np.random.default_rng(0).integers(256, size=256).astype(np.uint8)
pytestmark = pytest.mark.skipif(classes.library() is None, reason=classes.NOT_BUILT)


class Game:
    """Screens that change, their picture by the compiled part, and what ``AtariPreprocessing`` makes of them."""

    def __init__(self, maker: PictureMaker, height: int, size: tuple[int, int]) -> None:
        self._size, self.maker = size, maker
        self.screen = np.zeros((height, WIDTH), np.uint8)
        self.into = np.zeros((1, size[1], size[0]), np.uint8)
        self._memory = maker.pictures(self.into)
        # As there: the screen shown last, the larger one, if it was made of two; and the first of two.
        self._larger = self._first = GREYS[self.screen]

    def change(self, seed: int, boxes: int) -> None:
        """Fill a few boxes with one value or many; now and then the whole screen."""
        random = np.random.default_rng(seed)
        for _ in range(boxes):
            height, width = random.integers(1, 40, size=2) if random.random() < 0.9 else self.screen.shape
            top, left = random.integers(self.screen.shape[0]), random.integers(WIDTH)
            box = self.screen[top : top + height, left : left + width]
            box[:] = random.integers(256, size=box.shape if random.random() < 0.3 else ())

    def draw(self, name: str) -> None:
        """Take the screen as it is, as the first of two, the second, alone, or draw the stale picture without it."""
        screen = [] if name == "stale" else [pointer(self.screen)]
        classes.needed()[f"vebench_picture_{name}"](pointer(self._memory), *screen)
        if name == "first":
            self._first = GREYS[self.screen]
            return
        if name != "stale":
            self._larger = GREYS[self.screen]
        if name != "alone":
            self._larger = np.maximum(self._larger, self._first)
        self.expected = by_opencv(self._larger, self._size)


@given(
    height=st.sampled_from((210, 214, 220, 230, 250)),
    size=st.sampled_from([(84, 84), (84, 84), (96, 72), (160, 200), (41, 13), (3, 1)]),
    changes=st.lists(
        st.tuples(st.sampled_from(["second", "second", "second", "alone", "stale"]), st.integers(0), st.integers(0, 3)),
        max_size=12,
    ),
)
@settings(max_examples=40, deadline=None, derandomize=True, database=None)
def test_whatever_changes_between_screens_the_pictures_are_opencvs(
    height: int, size: tuple[int, int], changes: list[tuple[str, int, int]]
) -> None:
    maker = PictureMaker((height, WIDTH), size, GREYS)
    games = [Game(maker, height, size) for _ in range(2)]
    for kind, seed, boxes in [("alone", 0, 1), *changes]:
        for number, game in enumerate(games):
            game.change(seed + number, boxes)
            if kind != "alone":
                game.draw("first")
                game.change(seed + number + 2, boxes)
            game.draw(kind)
        for game in games:
            np.testing.assert_array_equal(game.into[0], game.expected)


@pytest.mark.parametrize(("columns", "rows"), [(200, 300), (80, 70), (2, 105), (1, 1), (160, 210)])
def test_sizes_that_opencv_makes_otherwise_are_refused(columns: int, rows: int) -> None:
    # Where the screen is a multiple, OpenCV adds in integers: a few pixels in a thousand pictures differ.
    with pytest.raises(ValueError, match=f"^no compiled pictures: {columns} x {rows} "):
        PictureMaker((210, WIDTH), (columns, rows), GREYS)
