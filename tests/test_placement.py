"""From a pin policy to CPUs: a pure function."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vebench.errors import UsageError
from vebench.machine.placement import format_cpu_list, parse_cpu_list, place

CPUS = st.frozensets(st.integers(0, 300), min_size=1, max_size=40)


@given(CPUS)
def test_a_cpu_list_reads_back_as_what_was_written(cpus: frozenset[int]) -> None:
    assert parse_cpu_list(format_cpu_list(cpus)) == tuple(sorted(cpus))


def test_a_cpu_list_is_written_as_linux_writes_it() -> None:
    assert format_cpu_list((9, 0, 1, 2, 7)) == "0-2,7,9"


@given(CPUS, st.integers(1, 50))
def test_one_worker_more_owns_the_same_cpus_plus_at_most_one(cpus: frozenset[int], workers: int) -> None:
    placement = place("compact", cpus)
    fewer, more = placement.owned(workers), placement.owned(workers + 1)
    assert more[: len(fewer)] == fewer
    assert len(more) == min(workers + 1, len(cpus))
    assert set(more) <= cpus


def test_a_list_is_taken_in_its_own_order() -> None:
    assert place("3,0-1", frozenset(range(4))).owned(2) == (3, 0)


def test_a_quota_limits_how_many_cpus_a_cell_owns() -> None:
    placement = place("compact", frozenset(range(8)), quota=2.7)
    assert placement.usable == 2
    assert placement.owned(8) == (0, 1)


def test_a_quota_below_one_cpu_leaves_one() -> None:
    assert place("compact", frozenset(range(8)), quota=0.5).owned(8) == (0,)


def test_without_pinning_every_cell_may_use_all_allowed_cpus() -> None:
    placement = place("none", frozenset({1, 3}))
    assert not placement.pinned
    assert placement.owned(1) == (1, 3)


def test_cpus_that_are_not_allowed_are_named() -> None:
    with pytest.raises(UsageError, match=r"--pin 0-3: CPU 2-3 is not allowed here \(allowed: 0-1\)"):
        place("0-3", frozenset({0, 1}))


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "0,,1", "1,1", "0-99999999", "²", "compakt"])
def test_what_is_no_cpu_list_is_one_clear_error(text: str) -> None:
    with pytest.raises(UsageError, match="--pin"):
        place(text, frozenset(range(128)))
