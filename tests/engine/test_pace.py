"""The runner's clock beside that of a cell: what it accuses, and what noise it bears."""

from __future__ import annotations

import pytest

from vebench.engine.pace import OTHER_PACE, Pace

SECOND = 1_000_000_000


class Clock:
    """A clock that is set."""

    now = 0

    def __call__(self) -> int:
        return self.now


def fault(windows: list[tuple[float, float]], late: frozenset[int] = frozenset(), startup: float = 1.0) -> str | None:
    """Return the fault of a cell with windows of (seconds that pass here, seconds that it claims)."""
    clock = Clock()
    pace = Pace(clock)
    clock.now += int(startup * SECOND)
    for number, (passed, claimed) in enumerate(windows):
        pace.begins()
        clock.now += int(passed * SECOND)
        if number in late:
            pace.late()
        pace.ended(int(claimed * SECOND))
    return pace.fault


@pytest.mark.parametrize("windows", [[(2.0, 1.0)] * 3, [(2.0, 1.0)] * 2, [(2.2, 1.0)], [(1.3, 1.0)] * 6])
def test_a_clock_that_is_slower_than_the_runners_is_a_fault(windows: list[tuple[float, float]]) -> None:
    assert (fault(windows) or "").startswith(OTHER_PACE)


def test_a_clock_that_has_counted_more_than_there_was_is_a_fault() -> None:
    assert "has lived for 4.00 s" in (fault([(1.0, 2.0)] * 3) or "")


@pytest.mark.parametrize(
    "windows",
    [
        [(1.01, 1.0)] * 6,
        [(1.08, 1.0), (9.0, 1.0), (1.02, 1.0)],  # the runner was busy with something else
        [(0.0, 1.0), (2.1, 1.0)],  # and had both words at the same time
        [(0.08, 0.01)] * 4,
        [],
    ],
)
def test_a_runner_that_hears_of_windows_too_late_accuses_nobody(windows: list[tuple[float, float]]) -> None:
    assert fault(windows) is None


def test_a_window_in_which_the_runner_was_stopped_says_nothing() -> None:
    assert fault([(9.0, 1.0)], late=frozenset({0})) is None
    assert fault([(9.0, 1.0)]) is not None
