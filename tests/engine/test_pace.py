"""The runner's clock compared with a cell's: faults that it finds, and noise that it tolerates."""

from collections.abc import Callable
from itertools import cycle
from random import Random

import pytest

from vebench.child.answers import Begins, Ends, Window
from vebench.engine.cell_process import Pace

SECOND = 1_000_000_000
CELLS = 100  # simulated in each world


class Clock:
    """A clock that is set."""

    now = 0

    def __call__(self) -> int:
        return self.now


def fault(
    seconds: float = 1.0, windows: int = 6, *, rate: float = 1.0, latency: Callable[[], float] = lambda: 0.0
) -> str | None:
    """Return the fault of a cell with windows of so many seconds by its own clock, which runs at ``rate``.

    Each message comes ``latency()`` seconds late.
    """
    clock, now = Clock(), 1.0
    pace = Pace(clock)

    def hear(message: Begins | Ends) -> None:
        clock.now = int((now + latency()) * SECOND)
        pace.heard(message)

    for _ in range(windows):
        hear(Begins())
        now += seconds / rate
        hear(Ends())
        pace.heard(Window(int(seconds * SECOND), 1, 0))
    return pace.fault


@pytest.mark.parametrize("seconds", [0.3, 1.0, 9.0])
@pytest.mark.parametrize("windows", [3, 12])
def test_a_clock_at_half_the_pace_is_found(windows: int, seconds: float) -> None:
    assert (fault(seconds, windows, rate=0.5) or "").startswith("its clock is too slow")


@pytest.mark.parametrize("seconds", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("windows", [1, 3, 12])
@pytest.mark.parametrize("world", ["busy", "starved at begin"])
def test_no_honest_cell_is_accused(world: str, windows: int, seconds: float) -> None:
    chance = Random(repr((world, windows, seconds)))
    means = cycle([1.0, 0.002] if world == "starved at begin" else [0.02])
    for _ in range(CELLS):
        assert fault(seconds, windows, latency=lambda: chance.expovariate(1 / next(means))) is None


def test_two_windows_say_nothing_of_a_slow_clock() -> None:
    assert fault(9.0, 2, rate=0.5) is None
