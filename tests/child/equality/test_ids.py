"""An environment is left behind if it answers neither in thousands of batches nor for long: not for one of these."""

import re
from itertools import count

import numpy as np
import pytest

from vebench.child.equality.ids import MOST_BETWEEN_S, PATIENCE_S, Silence

OTHERS, ALL = np.array([1, 2]), np.array([0, 1])
FEW, MANY = 1000, 30_000


def stepped(batches: int, seconds: float, *, every: int | None = None, pause: float = 0.0) -> str | None:
    """Return the fault after so many batches in so many seconds, with environment 0 in one of ``every`` of them.

    ``pause``: seconds between two of them in the middle.
    """
    times = iter([0.0, *(seconds * n / batches + (pause if n > batches // 2 else 0.0) for n in range(batches))])
    silence = Silence(3, lambda: next(times))
    numbers = count(1)
    found = (silence.note(ALL if every is not None and next(numbers) % every == 0 else OTHERS) for _ in range(batches))
    return next((fault for fault in found if fault is not None), None)


def test_an_environment_that_never_answers_in_many_batches_and_a_long_time_is_left_behind() -> None:
    fault = stepped(MANY, 1.5 * PATIENCE_S)
    assert fault is not None
    assert re.fullmatch(r"environment 0 is left behind: no answer in the last [\d,]+ batches and 20 s", fault)


@pytest.mark.parametrize(
    ("batches", "seconds", "every"),
    [
        (MANY, 0.9 * PATIENCE_S, None),  # it may still load
        (FEW, 10 * PATIENCE_S, None),  # each batch takes long
        (MANY, 5 * PATIENCE_S, 900),  # seldom, but it answers
    ],
)
def test_a_slow_or_seldom_environment_is_not_left_behind(batches: int, seconds: float, every: int | None) -> None:
    assert stepped(batches, seconds, every=every) is None


def test_a_pause_of_whoever_takes_the_batches_is_no_time_in_which_an_environment_could_have_answered() -> None:
    assert stepped(MANY, PATIENCE_S - 2 * MOST_BETWEEN_S, pause=10 * PATIENCE_S) is None
