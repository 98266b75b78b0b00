"""A window: bounds on what it holds, and how counters and replicas make one."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from various import MuteError

from vebench.child.answers import MOST, Done, Window, describe, difference, joined


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        *((value, None) for value in (None, MOST, -1.5, "-1", True, (), (1, (2, 3)))),
        *((-1, -1), (MOST + 1, MOST + 1), ((1, (2, -3)), -3)),
    ],
)
def test_an_integer_that_is_no_count_is_named_with_its_field(value: Any, wrong: int | None) -> None:
    if wrong is None:
        Done(0, value)
        return
    with pytest.raises(ValueError, match=rf"^seats must be a whole number from 0 to {MOST}, not {wrong}$"):
        Done(0, value)


@pytest.mark.parametrize(("before", "after", "gone"), [(3, 5, 2), (None, 5, None), (3, None, None), (5, 3, 0)])
def test_a_counter_goes_forwards_or_is_unknown(before: int | None, after: int | None, gone: int | None) -> None:
    assert difference({"steal_ns": before}, {"steal_ns": after}, {}) == {"steal_ns": gone}


def test_what_seems_negative_in_one_window_is_taken_from_the_next() -> None:
    owed: dict[str, int] = {}
    readings = [0, -6, 4, 9, 5, 12]
    grown = [difference({"others_ns": one}, {"others_ns": two}, owed) for one, two in pairwise(readings)]
    assert [each["others_ns"] for each in grown] == [0, 4, 5, 0, 3]


@pytest.mark.parametrize(
    ("counts", "cpus", "disturbed"),
    [
        ({"others_ns": 80 * 10**6}, 1, False),  # a twentieth, and three ticks
        ({"steal_ns": 81 * 10**6}, 1, True),
        ({"steal_ns": 41 * 10**6, "others_ns": 40 * 10**6}, 1, True),
        ({"others_ns": 81 * 10**6}, 2, False),
        ({"others_ns": 260 * 10**6}, 4, False),
        ({"others_ns": 261 * 10**6}, 4, True),
        ({}, 1, False),
    ],
)
def test_a_window_is_disturbed_above_a_share_and_the_error_of_ticks(
    counts: dict[str, int], cpus: int, disturbed: bool
) -> None:
    assert Window(10**9, 5, 0, **counts).undisturbed(cpus) is not disturbed


counted = st.builds(
    Window,
    ns=st.integers(1, 10**12),
    rows=st.integers(10, 10**9),
    resets=st.integers(0, 10),
    steal_ns=st.none() | st.integers(0, 10**12),
    throttles=st.integers(0, 100),
)


@given(st.lists(counted, min_size=1, max_size=5))
def test_replicas_that_ran_at_the_same_time_throughout_are_added_up(windows: list[Window]) -> None:
    found = joined(windows, [1.0] * len(windows), 7)
    steals = [window.steal_ns for window in windows]
    sums = sum(window.rows for window in windows), sum(window.resets for window in windows)
    assert (found.ns, found.rows, found.resets) == (7, *sums)
    assert found.steal_ns == (None if None in steals else sum(filter(None, steals)))
    assert found.throttles == max(window.throttles or 0 for window in windows)


def test_an_exception_without_a_text_is_named_by_its_class() -> None:
    assert describe(MuteError()).startswith("MuteError: ")
