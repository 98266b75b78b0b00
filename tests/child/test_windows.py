"""When a window counts, and when it is measured again: with counters of our own."""

from __future__ import annotations

import os
from itertools import chain, repeat
from typing import TYPE_CHECKING

import pytest

from vebench.child.loop import Count
from vebench.child.windows import LEAD_NS, Turns, difference, measured

if TYPE_CHECKING:
    from collections.abc import Iterable


def windows(throttled: Iterable[bool], rounds: int, *, time_left: bool = True) -> list[int | None]:
    """Return how often each window was throttled, where whether a try is held back follows from ``throttled``."""
    fate = iter(throttled)
    held = 0

    def run() -> Count:
        nonlocal held
        held += next(fate)
        return Count(10, 5, 0)

    def read() -> dict[str, int | None]:
        return {"throttles": held, "throttled_ns": None, "cpu_ns": None}

    return [window["throttles"] for window in measured(run, read, rounds, lambda: time_left)]


def test_windows_that_nothing_holds_back_are_measured_once() -> None:
    assert windows(repeat(False), 3) == [0, 0, 0]


def test_a_window_that_was_held_back_is_measured_again_and_both_are_told() -> None:
    assert windows(chain([False, True], repeat(False)), 3) == [0, 1, 0, 0]


def test_a_window_is_measured_again_twice_at_most_and_then_no_other_is() -> None:
    assert windows(repeat(True), 3) == [1, 1, 1, 1, 1]


def test_a_quota_that_bites_now_and_then_does_not_end_the_tries() -> None:
    assert windows([True, True, False, False, True, False], 3) == [1, 1, 0, 0, 1, 0]


def test_without_time_for_it_nothing_is_measured_again() -> None:
    assert windows(repeat(True), 2, time_left=False) == [1, 1]


def test_a_quota_is_noticed_by_the_time_that_it_took_where_it_is_not_counted() -> None:
    spent = iter(range(0, 60, 10))

    def read() -> dict[str, int | None]:
        return {"throttles": None, "throttled_ns": next(spent)}

    assert len(list(measured(lambda: Count(10, 5, 0), read, 1, lambda: True))) == 3


def test_every_try_is_prepared_before_its_counters_are_read() -> None:
    told: list[str] = []
    held = iter((0, 1, 1, 1))

    def read() -> dict[str, int | None]:
        told.append("read")
        return {"throttles": next(held), "throttled_ns": None}

    def run() -> Count:
        told.append("run")
        return Count(10, 5, 0)

    tries = list(measured(run, read, 1, lambda: True, lambda: told.append("prepare")))
    assert len(tries) == 2
    assert told == ["prepare", "read", "run", "read"] * 2


def test_a_cell_waits_for_its_turn_and_ends_with_who_gives_turns() -> None:
    clock = iter((0, 30, 100, 200, 210, 215)).__next__
    reading, writing = os.pipe()
    ran: list[tuple[int, int]] = []
    turns = Turns(reading, lambda span, batches: ran.append((span, batches)), clock)
    os.write(writing, b"\n\n")
    turns.begin(20 * LEAD_NS + 40, 7)
    assert turns.rested_ns == 30
    turns.leave()
    turns.begin(1000, 1)
    assert turns.rested_ns == 30 + 100
    assert ran == [(LEAD_NS + 2, 7), (LEAD_NS, 1)]
    os.close(writing)
    with pytest.raises(EOFError):
        turns.take()
    os.close(reading)


@pytest.mark.parametrize(("before", "after", "gone"), [(3, 5, 2), (None, 5, None), (3, None, None), (5, 3, 0)])
def test_a_counter_goes_forwards_or_is_unknown(before: int | None, after: int | None, gone: int | None) -> None:
    assert difference({"steal_ns": before}, {"steal_ns": after}) == {"steal_ns": gone}


def test_the_turn_of_a_cell_that_is_measured_alone_never_ends() -> None:
    ran: list[tuple[int, int]] = []
    turns = Turns(None, lambda span, batches: ran.append((span, batches)), lambda: 7)
    turns.begin(1000, 1)
    turns.leave()
    turns.take()
    assert (turns.rested_ns, ran) == (0, [])
