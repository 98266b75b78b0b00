"""Warm-up: over when the rate has settled, within bounds, on a fake clock."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from vebench.backends.interface import ActionSpace, BackendInfo, Batch
from vebench.child.actions import Tape
from vebench.child.cell import Warmup, warm_up
from vebench.child.loop import Loop
from vebench.plan.spec import RunSpec

MS = 1_000_000
NONE = np.zeros(2, np.bool_)


class Backend:
    """Two environments whose step takes as long as ``step_ns`` says of the time that has passed, on its own clock."""

    def __init__(self, step_ns: Callable[[int], int]) -> None:
        self.info = BackendInfo(num_envs=2, batch_size=2, action_space=ActionSpace.discrete(2), frame_skip=1)
        self.now = 0
        self._step_ns = step_ns

    def send(self, actions: NDArray[np.generic]) -> None:
        pass

    def recv(self) -> Batch:
        self.now += self._step_ns(self.now)
        return Batch(NONE, NONE, NONE, NONE, np.arange(2))


def warmed(step_ns: Callable[[int], int], least: int = 1000 * MS, most: int = 5000 * MS) -> Warmup:
    backend = Backend(step_ns)
    return warm_up(Loop(backend, Tape([NONE]), lambda: backend.now), least, most, 1000 * MS, 2)


def test_a_steady_rate_takes_the_time_that_was_asked_for() -> None:
    found = warmed(lambda _: MS)
    assert (found.settled, found.pace) == (True, 10)
    assert 1000 * MS <= found.ns <= 1200 * MS


def test_a_rate_that_takes_longer_to_settle_is_waited_for_and_its_last_pace_is_kept() -> None:
    found = warmed(lambda now: max(MS, 4 * MS - now // 700))
    assert found.settled
    assert 2300 * MS <= found.ns <= 4500 * MS
    assert found.pace == pytest.approx(10, abs=1)


def test_a_rate_that_never_settles_is_waited_for_no_longer_than_the_bound_and_told() -> None:
    found = warmed(lambda now: MS + now // 500)
    assert found.settled is False
    assert 5000 * MS <= found.ns <= 5300 * MS


def test_no_warm_up_steps_once_to_find_the_pace() -> None:
    assert warmed(lambda _: MS, least=0, most=0) == Warmup(0, None, 10)


def test_a_warm_up_that_does_not_settle_leaves_time_for_the_windows() -> None:
    spec = RunSpec(("Pong",), (1,), duration=1.0, windows=6, warmup=1.0, timeout=300.0)
    assert spec.longest_warmup == 5.0
    tight = RunSpec(("Pong",), (1,), duration=1.0, windows=6, warmup=1.0, timeout=9.0)
    assert tight.longest_warmup == 2.0
    assert tight.longest_warmup + tight.windows * tight.duration < tight.timeout
    assert [RunSpec(("Pong",), warmup=least).longest_warmup for least in (0.0, 0.1)] == [2.5, 2.5]
