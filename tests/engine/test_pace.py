"""The runner's clock beside that of a cell: what it accuses, and what noise it bears."""

from collections.abc import Callable
from itertools import cycle
from random import Random

import pytest

from vebench.child.answers import Begins, Ends
from vebench.child.window import Window
from vebench.engine.cell_process import OTHER_PACE, Pace
from vebench.interpreters.waiting import Wakeful

SECOND = 1_000_000_000
START = 0.1  # seconds until a process looks at its clock
CELLS = 100  # simulated in each world


class Clock:
    """A clock that is set."""

    now = 0

    def __call__(self) -> int:
        return self.now


def fault(  # noqa: PLR0913 - what a cell and its machine are like
    seconds: float = 1.0,
    windows: int = 6,
    *,
    rate: float = 1.0,
    counters: float = 0.001,
    latency: Callable[[], float] = lambda: 0.0,
    taken: float = 0.0,
    late: frozenset[int] = frozenset(),
    startup: float = 1.0,
) -> str | None:
    """Return the fault of a cell with windows of so many seconds, by its own clock.

    That runs at ``rate``, to read the counters takes ``counters`` seconds, a word is heard ``latency()`` seconds
    after it was said, and others take the share ``taken`` of its CPU. In windows of the numbers ``late`` the runner is
    stopped for seconds, and knows it.
    """
    clock, waiting = Clock(), Wakeful()
    pace = Pace(clock, waiting)
    now, lasts = startup, seconds / rate

    def hear(word: Begins | Ends, *, stopped: bool) -> None:
        waiting.waits += 1
        waiting.lapses += stopped
        clock.now = int((now + latency() + 4 * stopped) * SECOND)
        pace.heard(word)

    for number in range(windows):
        hear(Begins(), stopped=number in late)
        now += lasts + counters
        lived = int(rate * (now - START) * SECOND)
        hear(Ends(int(rate * counters * SECOND), lived), stopped=number in late)
        pace.heard(Window(int(seconds * SECOND), 1, 0, others_ns=int(taken * lasts * SECOND)))
    return pace.fault


@pytest.mark.parametrize(
    ("rate", "seconds", "windows"),
    [
        # From this total time of windows on, it is found in 3 windows and in 6.
        *((0.5, 0.27 / 3, 3), (0.5, 0.38 / 6, 6)),
        *((0.75, 0.83 / 3, 3), (0.75, 1.18 / 6, 6)),
        *((0.9, 2.86 / 3, 3), (0.9, 4.04 / 6, 6)),
        *((0.75, 2.4, 1), (0.9, 8.0, 1), (1.2, 0.1, 1), (1.2, 0.1, 6)),
        (0.9, 0.5, 25),
    ],
)
def test_a_clock_of_another_pace_is_a_fault(rate: float, seconds: float, windows: int) -> None:
    assert (fault(seconds, windows, rate=rate, counters=0.3) or "").startswith(OTHER_PACE)


def test_windows_that_add_up_to_more_time_than_there_was_are_a_fault() -> None:
    pace = Pace(Clock(), Wakeful())
    pace.heard(Window(SECOND, 1, 0))
    assert "counts 1.00 s after running for 0.00 s" in (pace.fault or "")


@pytest.mark.parametrize("seconds", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("windows", [1, 2, 3, 6, 12])
@pytest.mark.parametrize("world", ["slow counters", "busy", "stops", "starved at begin"])
def test_no_honest_cell_is_accused(world: str, windows: int, seconds: float) -> None:
    chance = Random(repr((world, windows, seconds)))  # noqa: S311 - noise to repeat, no secret
    means = cycle([1.0, 0.002] if world == "starved at begin" else [0.02 if world == "busy" else 0.002])
    latency = lambda: chance.expovariate(1 / next(means))  # noqa: E731 - seconds until the runner gets a CPU
    for _ in range(CELLS):
        stopped = frozenset(number for number in range(windows) if chance.random() < 0.3 and world == "stops")
        counters = 3 * chance.random() if world == "slow counters" else 0.001
        assert fault(seconds, windows, counters=counters, latency=latency, late=stopped) is None


def test_what_others_took_of_the_cpu_widens_what_is_borne() -> None:
    uneven = iter([0.0, 0.5] * 6)
    latency = lambda: next(uneven)  # noqa: E731 - a word of the end comes half a second late
    assert fault(1.0, 3, latency=latency) is not None
    assert fault(1.0, 3, latency=latency, taken=0.9) is None


def test_a_window_in_which_the_runner_was_stopped_says_nothing() -> None:
    assert fault(9.0, 1, rate=0.5, late=frozenset({0})) is None
    assert fault(9.0, 1, rate=0.5) is not None
