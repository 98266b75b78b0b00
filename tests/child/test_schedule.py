"""When windows are measured, when one counts, and when it is measured again: with counters of our own."""

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain, count, repeat
from random import Random

import pytest

from vebench.backends.interface import Setup, Task
from vebench.child import cell as module
from vebench.child.answers import Answer, ReplicaWindow, Watched, Window
from vebench.child.cell import PAUSE_NS, Warmup, Windows, valid
from vebench.child.loop import Stretch
from vebench.child.request import Mode, Request, Settings


def throttles(throttled: Iterable[bool], windows: int, *, time_left: bool = True) -> list[int | None]:
    """Return how often each window was throttled, where whether a try is held back follows from ``throttled``."""
    fate = iter(throttled)
    measured = valid(lambda: Window(10, 5, 0, throttles=int(next(fate))), windows, 1, lambda: time_left)
    return [window.throttles for window in measured]


def test_a_window_that_was_held_back_is_measured_again_and_both_are_reported() -> None:
    assert throttles(chain([False, True], repeat(False)), 3) == [0, 1, 0, 0]


def test_a_window_is_measured_again_twice_at_most_and_then_no_other_is() -> None:
    assert throttles(repeat(True), 3) == [1, 1, 1, 1, 1]


CALM, DISTURBED = Window(10**9, 5, 0, others_ns=0), Window(10**9, 5, 0, others_ns=5 * 10**8)


def test_whether_others_disturbed_a_window_depends_on_how_many_cpus_the_cell_has() -> None:
    window = Window(10**9, 5, 0, others_ns=3 * 10**8)
    assert [len(list(valid(lambda: window, 1, cpus, lambda: True))) for cpus in (1, 2, 8)] == [3, 3, 1]


class FakeLoop:
    """A loop whose every batch takes 7 microseconds of a clock of its own. ``log`` is what was asked of it."""

    BATCH = 7_000

    def __init__(self) -> None:
        self.now = self.batches = 0
        self.log: list[str] = []

    def run_for(self, span: int, batches_per_reading: int = 1) -> Stretch:
        batches = max(0, -(-span // self.BATCH))
        self.now += batches * self.BATCH
        self.batches += batches
        self.log.append(f"{round(span / 1e6)} ms, {batches_per_reading} batches")
        return Stretch(batches * self.BATCH, batches, 0)

    def step(self, batches: int) -> int:
        self.log.append(f"{batches} batches")
        return 0

    def clock(self) -> int:
        return self.now


def answers_of(loop: FakeLoop, asked: Request, words: bytes = b"", cpus: tuple[int, ...] = ()) -> list[Answer]:
    """Return what a cell answers while its windows are measured, whose parent has said these words, and then exits."""
    reading, writing = os.pipe()
    os.write(writing, words)
    os.close(writing)
    answers: list[Answer] = []

    def answer(one: Answer) -> None:
        loop.log.append(type(one).__name__.lower())
        answers.append(one)

    try:
        told, watched = replace(asked, go_ahead=reading), Watched([], cpus, ())
        Windows(told, loop, None, watched, answer, loop.clock, 0, warmup=WARM, ahead=8, moments=1).measure()
        assert os.read(reading, 1) == b""
    finally:
        os.close(reading)
    return answers


WARM = Warmup(0, None, pace=3)
WINDOW = ["read", "begins", "10 ms, 3 batches", "ends", "read", "window"]


@pytest.mark.parametrize(
    ("mode", "log"), [("alone", WINDOW * 2), ("in_turn", ["warm", *["8 batches", "10 ms, 3 batches", *WINDOW] * 2])]
)
def test_a_window_is_announced_without_its_counters_and_lead(
    mode: Mode, log: list[str], monkeypatch: pytest.MonkeyPatch, request_of: Request
) -> None:
    loop = FakeLoop()
    monkeypatch.setattr(module, "read_counters", lambda _watched: loop.log.append("read") or {"throttles": 0})
    answers = answers_of(loop, replace(request_of, mode=mode), b"\n" * 3 * (mode == "in_turn"))
    assert [answer.ns for answer in answers if isinstance(answer, Window)] == [1429 * FakeLoop.BATCH] * 2
    assert loop.log == log


class SlowResets(FakeLoop):
    """A loop of one environment whose steps take 1 ms. After ``episode`` steps, a reset takes ``reset_ms``."""

    def __init__(self, episode: int, reset_ms: int) -> None:
        super().__init__()
        self.episode, self.reset_ms = episode, reset_ms
        self.batches = 0

    def run_for(self, span: int, batches_per_reading: int = 1) -> Stretch:
        start, rows, resets = self.now, 0, 0
        while self.now - start < span:
            rows += 1
            resets += self.step(1)
        return Stretch(self.now - start, rows, resets)

    def step(self, batches: int) -> int:
        resets = 0
        for _ in range(batches):
            self.batches += 1
            is_reset = self.batches % (self.episode + 1) == 0
            self.now += 1_000_000 * (self.reset_ms if is_reset else 1)
            resets += is_reset
        return resets


@pytest.mark.parametrize(("episode", "reset_ms"), [(5, 1000), (50, 300), (50, 20), (200, 200), (1000, 300)])
@pytest.mark.parametrize("window_s", [0.05, 0.2])
def test_windows_hold_as_many_slow_resets_as_all_of_the_time(
    episode: int, reset_ms: int, window_s: float, request_of: Request
) -> None:
    asked = replace(request_of, mode="in_turn", settings=replace(request_of.settings, duration=window_s, windows=2000))
    draw = Random(0).random
    reading, writing = os.pipe()
    os.write(writing, b"\n" * 2001)
    loop, windows = SlowResets(episode, reset_ms), list[Window]()
    Windows(
        replace(asked, go_ahead=reading),
        loop,
        None,
        Watched([], (), ()),
        lambda one: windows.append(one) if isinstance(one, Window) else None,
        loop.clock,
        0,
        warmup=WARM,
        ahead=0,
        moments=1,
        draw=draw,
    ).measure()
    os.close(reading)
    os.close(writing)
    steps = sum(window.rows - window.resets for window in windows)
    rate = steps / sum(window.ns for window in windows) * 1e9
    assert rate == pytest.approx(1000 * episode / (episode + reset_ms), rel=0.03)


def test_a_cell_that_takes_turns_measures_a_disturbed_window_again_in_its_next_turn(
    monkeypatch: pytest.MonkeyPatch, request_of: Request
) -> None:
    # Two readings for each window: others have the CPU in the first window only.
    readings = iter((0, 5 * 10**7, 5 * 10**7, *repeat(5 * 10**7, 9)))
    monkeypatch.setattr(module, "read_counters", lambda _watched: {"others_ns": next(readings)})
    words = b"\n" * 4  # of two windows, three tries, and the end
    answers = answers_of(FakeLoop(), replace(request_of, mode="in_turn"), words, cpus=(0,))
    windows = [answer for answer in answers if isinstance(answer, Window)]
    assert [window.others_ns for window in windows] == [5 * 10**7, 0, 0]


def test_the_turns_of_others_take_none_of_the_time_that_a_cell_has(
    monkeypatch: pytest.MonkeyPatch, request_of: Request
) -> None:
    loop, throttles = FakeLoop(), count()

    def read(descriptor: int, most: int, wait: Callable[[int, int], bytes] = os.read) -> bytes:
        loop.now += 200 * 10**9
        return wait(descriptor, most)

    monkeypatch.setattr(module.os, "read", read)
    monkeypatch.setattr(module, "read_counters", lambda _watched: {"throttles": next(throttles)})
    answers = answers_of(loop, replace(request_of, mode="in_turn"), b"\n" * 5)
    assert sum(isinstance(answer, Window) for answer in answers) == 4, "the first is measured three times"


@pytest.mark.parametrize("mode", ["in_turn", "in_step"])
def test_a_cell_ends_with_who_tells_it_to_go_on(mode: Mode, request_of: Request) -> None:
    with pytest.raises(EOFError):
        answers_of(FakeLoop(), replace(request_of, mode=mode))


def test_a_replica_steps_on_until_the_windows_begin_and_keeps_to_their_times(request_of: Request) -> None:
    loop = FakeLoop()
    asked = replace(request_of, mode="in_step", settings=replace(request_of.settings, windows=3))
    found = [one for one in answers_of(loop, asked, b"90000000\n") if isinstance(one, ReplicaWindow)]
    due = [90_000_000 + number * (10_000_000 + PAUSE_NS) for number in range(3)]
    assert [0 <= one.start_ns - begin < 2 * FakeLoop.BATCH for one, begin in zip(found, due, strict=True)] == [True] * 3
    ends = [one.start_ns + one.window.ns - begin - 10_000_000 for one, begin in zip(found, due, strict=True)]
    assert [0 <= end < FakeLoop.BATCH for end in ends] == [True] * 3
    assert loop.now >= found[-1].start_ns + found[-1].window.ns + PAUSE_NS


@pytest.fixture
def request_of() -> Request:
    settings = Settings(duration=0.01, windows=2, warmup=1.0, longest_warmup=5.0, timeout=300.0, memory="local")
    return Request(Setup(Task("CartPole-v1", "classic", 1), 2), "for-loop", "module:Class", {}, settings, "/")
