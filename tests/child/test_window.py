"""A window: bounds on what it holds, and how counters and replicas make one."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vebench.child.window import Watched, Window, difference, joined, read_counters


@pytest.mark.parametrize(("before", "after", "gone"), [(3, 5, 2), (None, 5, None), (3, None, None), (5, 3, 0)])
def test_a_counter_goes_forwards_or_is_unknown(before: int | None, after: int | None, gone: int | None) -> None:
    assert difference({"steal_ns": before}, {"steal_ns": after}) == {"steal_ns": gone}


def test_every_field_but_those_of_the_loop_is_a_counter_that_is_read() -> None:
    names = [item.name for item in fields(Window)]
    assert names[:3] == ["ns", "rows", "resets"]
    assert list(read_counters(Watched([], (), ()))) == names[3:]


@pytest.mark.parametrize(
    ("counts", "problem"),
    [
        ({"ns": 0}, "ns must be a whole number from 1 to 9223372036854775807, not 0"),
        ({"rows": -1}, "rows must be a whole number from 0 to"),
        ({"steal_ns": 2**63}, "steal_ns must be a whole number from 0 to 9223372036854775807, not 9223372036854775808"),
        ({"resets": 6}, "6 resets among 5 rows"),
    ],
)
def test_a_window_that_cannot_be_is_refused(counts: dict[str, int], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Window(**{"ns": 10, "rows": 5, "resets": 0, **counts})


@given(
    st.lists(
        st.builds(
            Window,
            ns=st.integers(1, 10**12),
            rows=st.integers(10, 10**9),
            resets=st.integers(0, 10),
            steal_ns=st.none() | st.integers(0, 10**12),
            throttles=st.integers(0, 100),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_replicas_that_ran_at_the_same_time_throughout_are_added_up(windows: list[Window]) -> None:
    found = joined(windows, [1.0] * len(windows), 7)
    steals = [window.steal_ns for window in windows]
    assert (found.ns, found.rows) == (7, sum(window.rows for window in windows))
    assert found.resets == sum(window.resets for window in windows)
    assert found.steal_ns == (None if None in steals else sum(filter(None, steals)))
    assert found.throttles == max(window.throttles or 0 for window in windows)
