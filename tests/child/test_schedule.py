"""When a cell is warm, and when its windows are measured, count, and are measured again: with a clock of our own."""

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain, count, repeat

import numpy as np
import pytest
from numpy.typing import NDArray

from vebench.backends.interface import ActionSpace, BackendInfo, Batch, Setup, Task
from vebench.child import cell as module
from vebench.child.actions import Tape
from vebench.child.answers import Answer, ReplicaWindow, Watched, Window
from vebench.child.cell import Schedule
from vebench.child.loop import Loop, Stretch
from vebench.child.request import Mode, Request, Settings

MS = 1_000_000
PAUSE_NS = 20 * MS  # between two windows of a replica
NONE = np.zeros(2, np.bool_)
SETTINGS = Settings(duration=0.01, windows=2, warmup=1.0, longest_warmup=5.0, timeout=300.0, memory="local")
REQUEST = Request(Setup(Task("CartPole-v1", "classic", 1), 2), "for-loop", {}, SETTINGS, "/")


class Backend:
    """Two environments whose step takes as long as ``step_ns`` says of the time that has passed, on its own clock."""

    def __init__(self, step_ns: Callable[[int], int]) -> None:
        self.info = BackendInfo(num_envs=2, batch_size=2, action_space=ActionSpace.discrete(2), frame_skip=1)
        self.now = 0
        self._step_ns = step_ns

    def send(self, actions: NDArray[np.generic]) -> None:
        pass

    def recv(self) -> Batch:
        self.now += self._step_ns(self.now)
        return Batch(NONE, NONE, NONE, NONE, np.arange(2))


def warmed(step_ns: Callable[[int], int], least: float = 1.0, most: float = 5.0) -> tuple[int, bool | None, int]:
    """Return how long a warm-up took, whether the rate had settled, and batches between two clock readings."""
    backend = Backend(step_ns)
    settings = replace(SETTINGS, duration=1.0, windows=0, warmup=least, longest_warmup=most)
    loop = Loop(backend, Tape([NONE]), lambda: backend.now)
    schedule = Schedule(replace(REQUEST, settings=settings), loop, None, lambda _: None, lambda: backend.now, 0)
    return *schedule.warm_up(), schedule._pace


@pytest.mark.parametrize(
    ("step_ns", "settles", "earliest", "latest"),
    [
        (lambda _: MS, True, 1000, 1200),
        (lambda now: max(MS, 4 * MS - now // 700), True, 2300, 4500),  # as fast as it gets after 2.1 s
        (lambda now: MS + now // 500, False, 5000, 5300),  # never
    ],
)
def test_a_warm_up_waits_for_the_rate_to_settle_within_bounds(
    step_ns: Callable[[int], int], settles: bool, earliest: int, latest: int
) -> None:
    ns, settled, pace = warmed(step_ns)
    assert settled is settles
    assert earliest * MS <= ns <= latest * MS
    assert not settles or pace == pytest.approx(10, abs=1)


def test_no_warm_up_steps_once_to_find_the_pace() -> None:
    assert warmed(lambda _: MS, 0, 0) == (0, None, 10)


class FakeLoop:
    """A loop whose every batch takes 7 microseconds of a clock of its own. ``log`` is what was asked of it."""

    BATCH = 7_000
    num_envs, batch_size = 8, 2

    def __init__(self) -> None:
        self.now = self.batches = 0
        self.log: list[str] = []

    def run_for(self, span: int, _batches_per_reading: int = 1) -> Stretch:
        batches = max(0, -(-span // self.BATCH))
        self.now += batches * self.BATCH
        self.batches += batches
        self.log.append(f"{round(span / 1e6)} ms")
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
        schedule = Schedule(replace(asked, go_ahead=reading), loop, None, answer, loop.clock, 0)
        schedule._draw = schedule._draw if isinstance(loop, SlowResets) else lambda: 0.5
        schedule.measure(Watched([], cpus, ()))
        assert os.read(reading, 1) == b""
    finally:
        os.close(reading)
    return answers


def windows_of(answers: Iterable[Answer]) -> list[Window]:
    return [answer for answer in answers if isinstance(answer, Window)]


@pytest.mark.parametrize(("fate", "expected"), [(chain([False, True], repeat(False)), 4), (repeat(True), 5)])
def test_a_throttled_window_is_measured_again_at_most_twice_and_then_none(
    fate: Iterable[bool], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    throttled, held, counted = iter(fate), 0, []

    def read(_watched: Watched) -> dict[str, int]:
        nonlocal held
        counted.append(None)
        held += len(counted) % 2 == 0 and next(throttled)
        return {"throttles": held}

    monkeypatch.setattr(module.answers, "read_counters", read)
    asked = replace(REQUEST, settings=replace(SETTINGS, windows=3))
    assert len(windows_of(answers_of(FakeLoop(), asked))) == expected


class SlowResets(FakeLoop):
    """A loop of one environment whose steps take 1 ms. After ``episode`` steps, a reset takes ``reset_ms``."""

    num_envs = batch_size = 1

    def __init__(self, episode: int, reset_ms: int) -> None:
        super().__init__()
        self.episode, self.reset_ms = episode, reset_ms

    def run_for(self, span: int, _batches_per_reading: int = 1) -> Stretch:
        start, rows, resets = self.now, 0, 0
        while self.now - start < span:
            rows += 1
            self.batches += 1
            is_reset = self.batches % (self.episode + 1) == 0
            self.now += MS * (self.reset_ms if is_reset else 1)
            resets += is_reset
        return Stretch(self.now - start, rows, resets)


@pytest.mark.parametrize(("episode", "reset_ms"), [(5, 1000), (50, 300), (50, 20), (200, 200), (1000, 300)])
@pytest.mark.parametrize("window_s", [0.05, 0.2])
def test_windows_hold_as_many_slow_resets_as_all_of_the_time(episode: int, reset_ms: int, window_s: float) -> None:
    asked = replace(REQUEST, mode="in_turn", settings=replace(SETTINGS, duration=window_s, windows=2000, timeout=1e6))
    windows = windows_of(answers_of(SlowResets(episode, reset_ms), asked, b"\n" * 2001))
    rate = sum(window.transitions for window in windows) / sum(window.ns for window in windows) * 1e9
    assert rate == pytest.approx(1000 * episode / (episode + reset_ms), rel=0.03)


def test_a_cell_that_takes_turns_measures_a_disturbed_window_again_in_its_next_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Two readings for each window: others have the CPU in the first window only.
    readings = iter((0, 50 * MS, *repeat(50 * MS, 9)))
    monkeypatch.setattr(module.answers, "read_counters", lambda _watched: {"others_ns": next(readings)})
    words = b"\n" * 4  # of two windows, three tries, and the end
    answers = answers_of(FakeLoop(), replace(REQUEST, mode="in_turn"), words, cpus=(0,))
    assert [window.others_ns for window in windows_of(answers)] == [50 * MS, 0, 0]


def test_the_turns_of_others_take_none_of_the_time_that_a_cell_has(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, throttles = FakeLoop(), count()

    def read(descriptor: int, most: int, wait: Callable[[int, int], bytes] = os.read) -> bytes:
        loop.now += 200 * 10**9
        return wait(descriptor, most)

    monkeypatch.setattr(module.os, "read", read)
    monkeypatch.setattr(module.answers, "read_counters", lambda _watched: {"throttles": next(throttles)})
    answers = answers_of(loop, replace(REQUEST, mode="in_turn"), b"\n" * 5)
    assert len(windows_of(answers)) == 4, "the first is measured three times"


@pytest.mark.parametrize("mode", ["in_turn", "in_step"])
def test_a_cell_ends_with_who_tells_it_to_go_on(mode: Mode) -> None:
    with pytest.raises(EOFError):
        answers_of(FakeLoop(), replace(REQUEST, mode=mode))


def test_a_replica_steps_on_until_the_windows_begin_and_keeps_to_their_times() -> None:
    loop = FakeLoop()
    asked = replace(REQUEST, mode="in_step", settings=replace(SETTINGS, windows=3))
    found = [one for one in answers_of(loop, asked, b"90000000\n") if isinstance(one, ReplicaWindow)]
    due = [90 * MS + number * (10 * MS + PAUSE_NS) for number in range(3)]
    for one, begin in zip(found, due, strict=True):
        assert 0 <= one.start_ns - begin < 2 * FakeLoop.BATCH
        assert 0 <= one.start_ns + one.window.ns - begin - 10 * MS < FakeLoop.BATCH
    assert loop.now >= found[-1].start_ns + found[-1].window.ns + PAUSE_NS
