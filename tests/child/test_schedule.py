"""When windows are measured, when one counts, and when it is measured again: with counters of our own."""

from __future__ import annotations

import os
import time
from itertools import chain, count, repeat
from typing import TYPE_CHECKING

import pytest

from vebench.backends.setup import Setup, Task
from vebench.child import schedule
from vebench.child.cell import Around
from vebench.child.cell import windows as windows_of
from vebench.child.loop import Stretch
from vebench.child.request import Request, Settings
from vebench.child.schedule import LEAD_NS, PAUSE_NS, Meter, Turns, in_step, valid
from vebench.child.window import Watched, Window

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vebench.child.request import Mode

NOTHING_WATCHED = Watched([], (), ())


def throttles(throttled: Iterable[bool], rounds: int, *, time_left: bool = True) -> list[int | None]:
    """Return how often each window was throttled, where whether a try is held back follows from ``throttled``."""
    fate = iter(throttled)
    measured = valid(lambda: Window(10, 5, 0, throttles=int(next(fate))), rounds, 1, lambda: time_left)
    return [window.throttles for window in measured]


def test_windows_that_nothing_holds_back_are_measured_once() -> None:
    assert throttles(repeat(False), 3) == [0, 0, 0]


def test_a_window_that_was_held_back_is_measured_again_and_both_are_reported() -> None:
    assert throttles(chain([False, True], repeat(False)), 3) == [0, 1, 0, 0]


def test_a_window_is_measured_again_twice_at_most_and_then_no_other_is() -> None:
    assert throttles(repeat(True), 3) == [1, 1, 1, 1, 1]


def test_a_quota_that_bites_now_and_then_does_not_end_the_tries() -> None:
    assert throttles([True, True, False, False, True, False], 3) == [1, 1, 0, 0, 1, 0]


def test_without_time_for_it_nothing_is_measured_again() -> None:
    assert throttles(repeat(True), 2, time_left=False) == [1, 1]


def test_a_quota_is_noticed_by_the_time_that_it_took_where_it_is_not_counted() -> None:
    assert len(list(valid(lambda: Window(10, 5, 0, throttled_ns=10), 1, 1, lambda: True))) == 3


CALM, DISTURBED = Window(10**9, 5, 0, others_ns=0), Window(10**9, 5, 0, others_ns=5 * 10**8)


@pytest.mark.parametrize(
    ("tries", "rounds", "measured"),
    [
        ([DISTURBED, CALM, CALM], 2, 3),
        ([DISTURBED, DISTURBED, CALM, DISTURBED, CALM], 2, 5),
        ([DISTURBED] * 5, 3, 5),
        ([DISTURBED, Window(10, 5, 0, throttles=1), DISTURBED, CALM], 2, 4),
    ],
)
def test_a_window_that_others_disturbed_is_measured_again_as_one_that_a_quota_held_back(
    tries: list[Window], rounds: int, measured: int
) -> None:
    fate = iter(tries)
    assert list(valid(lambda: next(fate), rounds, 1, lambda: True)) == tries[:measured]


def test_whether_others_disturbed_a_window_depends_on_how_many_cpus_the_cell_has() -> None:
    window = Window(10**9, 5, 0, others_ns=3 * 10**8)
    assert [len(list(valid(lambda: window, 1, cpus, lambda: True))) for cpus in (1, 2, 8)] == [3, 3, 1]


def test_a_cell_waits_for_its_turn_and_ends_with_who_gives_turns() -> None:
    clock = iter((0, 30, 100, 200, 210, 215)).__next__
    reading, writing = os.pipe()
    ran: list[tuple[int, int]] = []
    turns = Turns(reading, lambda span, batches: ran.append((span, batches)), clock)
    os.write(writing, b"\n\n")
    turns.begin(20 * LEAD_NS + 40, 7)
    assert turns.waited_ns == 30
    turns.leave()
    turns.begin(1000, 1)
    assert turns.waited_ns == 30 + 100
    assert ran == [(LEAD_NS + 2, 7), (LEAD_NS, 1)]
    os.close(writing)
    with pytest.raises(EOFError):
        turns.take()
    os.close(reading)


class FakeLoop:
    """A loop whose every batch takes 7 microseconds of a clock of its own. ``log`` is what was asked of it."""

    BATCH = 7_000

    def __init__(self) -> None:
        self.now = 0
        self.log: list[str] = []

    def run_for(self, span: int, batches_per_reading: int = 1) -> Stretch:
        batches = max(0, -(-span // self.BATCH))
        self.now += batches * self.BATCH
        self.log.append(f"{span // 1_000_000} ms, {batches_per_reading} batches")
        return Stretch(batches * self.BATCH, batches, 0)

    def clock(self) -> int:
        return self.now


@pytest.mark.parametrize(
    ("mode", "log"),
    [
        ("alone", ["read", "begins", "10 ms, 3 batches", "read", "ends"] * 2),
        ("in_turn", ["50 ms, 8 batches", "read", "begins", "10 ms, 3 batches", "read", "ends"] * 2),
    ],
)
def test_the_words_of_a_window_leave_out_the_counters_and_before_a_turn_comes_what_does_not_count(
    mode: Mode, log: list[str], monkeypatch: pytest.MonkeyPatch, request_of: Request
) -> None:
    loop = FakeLoop()
    monkeypatch.setattr(schedule, "read_counters", lambda _watched: loop.log.append("read") or {"throttles": 0})
    reading, writing = os.pipe()
    os.write(writing, b"\n" * 3)
    asked = Request(**{**vars(request_of), "mode": mode, "go_ahead": reading})
    around = Around(loop, None, 0, 0, lambda word: loop.log.append(type(word).__name__.lower()))
    measured = list(windows_of(asked, loop, 3, 8, NOTHING_WATCHED, 0, time.perf_counter_ns, around))
    os.close(reading)
    os.close(writing)
    assert [window.ns for window in measured] == [1429 * FakeLoop.BATCH] * 2
    assert loop.log == log


def test_a_cell_that_takes_turns_measures_a_disturbed_window_again_in_its_next_turn(
    monkeypatch: pytest.MonkeyPatch, request_of: Request
) -> None:
    loop = FakeLoop()
    # Two readings for each window: others have the CPU in the first window only.
    readings = iter((0, 5 * 10**7, 5 * 10**7, *repeat(5 * 10**7, 9)))
    monkeypatch.setattr(schedule, "read_counters", lambda _watched: {"others_ns": next(readings)})
    reading, writing = os.pipe()
    os.write(writing, b"\n" * 4)  # of two windows, three tries, and the end
    asked = Request(**{**vars(request_of), "mode": "in_turn", "go_ahead": reading})
    around, clock = Around(loop, None, 0, 0, lambda _: None), time.perf_counter_ns
    measured = list(windows_of(asked, loop, 3, 8, Watched([], (0,), ()), clock(), clock, around))
    os.close(writing)
    assert (os.read(reading, 1), [window.others_ns for window in measured]) == (b"", [5 * 10**7, 0, 0])
    os.close(reading)


def test_a_replica_steps_on_until_the_windows_begin_and_keeps_to_their_times() -> None:
    loop, looks = FakeLoop(), count()
    meter = Meter(loop.run_for, NOTHING_WATCHED, lambda _: None, loop.clock, 0)
    start = lambda: 90_000_000 if next(looks) == 3 else None  # noqa: E731 - the shortest way to say it
    found = list(in_step(meter, 3, 10_000_000, start, loop.clock))
    due = [90_000_000 + number * (10_000_000 + PAUSE_NS) for number in range(3)]
    assert [0 <= one.start_ns - begin < 2 * FakeLoop.BATCH for one, begin in zip(found, due, strict=True)] == [True] * 3
    assert all(one.window.ns >= 10_000_000 for one in found)
    assert loop.now >= found[-1].start_ns + found[-1].window.ns + PAUSE_NS


@pytest.fixture
def request_of() -> Request:
    settings = Settings(duration=0.01, rounds=2, warmup=1.0, longest_warmup=5.0, timeout=300.0, memory="local")
    return Request(Setup(Task("CartPole-v1", "classic", 1), 2), "for-loop", "module:Class", {}, settings, "/")
