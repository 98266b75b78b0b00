"""How far another clock is ahead: what is found is never wrong by more than it says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vebench.hosts.clocks import Offset, RoundTrips, too_uncertain, with_drift

TRIPS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=20)


class FarClock:
    """A clock that is ``ahead``, read over ways that take so long there and back."""

    def __init__(self, ahead: int, trips: list[tuple[int, int]]) -> None:
        self.now, self._ahead, self._trips = 0, ahead, iter(trips)

    def near(self) -> int:
        return self.now

    def far(self) -> int:
        there, back = next(self._trips)
        self.now += there
        read = self.now + self._ahead
        self.now += back
        return read


def measured(clock: FarClock, trips: int = 200) -> Offset:
    """Return what is found by so many round trips."""
    asking = RoundTrips(clock.near, trips)
    found = None
    while found is None:
        asking.begin()
        found = asking.end(clock.far())
    return found


@given(st.integers(-(10**15), 10**15), TRIPS)
def test_an_offset_is_within_what_it_may_be_wrong_by(ahead: int, trips: list[tuple[int, int]]) -> None:
    clock = FarClock(ahead, trips)
    found = measured(clock, len(trips))
    assert abs(found.ns - ahead) <= found.error_ns
    assert found.error_ns == min((there + back + 1) // 2 for there, back in trips)


def test_a_clock_far_away_is_not_asked_for_longer_than_a_second() -> None:
    clock = FarClock(5, [(40_000_000, 60_000_000)] * 200)
    assert measured(clock).error_ns == 50_000_000
    assert 1_000_000_000 < clock.now <= 1_100_000_000


@given(st.integers(-(10**15), 10**15), st.integers(-(10**15), 10**15))
def test_times_of_one_clock_are_those_of_the_other_and_back(ahead: int, when: int) -> None:
    offset = Offset(ahead, 0)
    assert offset.here(offset.there(when)) == when


@given(st.integers(-(10**9), 10**9), st.integers(-(10**6), 10**6), st.integers(0, 1000), st.floats(0, 1))
def test_a_clock_that_runs_at_another_pace_is_known_as_well_as_it_moved(
    ahead: int, moved: int, error: int, when: float
) -> None:
    known = with_drift(Offset(ahead, error), Offset(ahead + moved, error))
    assert abs(known.ns - (ahead + when * moved)) <= known.error_ns + 1


@pytest.mark.parametrize(("error", "refused"), [(9_000_000, False), (11_000_000, True)])
def test_a_window_that_might_be_moved_by_more_than_a_hundredth_is_refused(error: int, refused: bool) -> None:
    assert too_uncertain(Offset(0, error), 10**9) is refused
