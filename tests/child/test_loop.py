"""The timed loop on a fake clock: its counts, and how often it reads the clock. Also ``time_steps``."""

import itertools
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from vebench.backends.environments.suites import OTHER
from vebench.backends.for_loop import ForLoop
from vebench.backends.interface import ActionSpace, BackendInfo, Batch, Setup, Task
from vebench.child.actions import Tape, action_tape
from vebench.child.cell import time_steps
from vebench.child.loop import Loop

# Environments that answer, and which of them have ended, batch by batch.
Script = list[tuple[list[int], list[int]]]
Autoreset = Literal["next_step", "same_step"]


class Clock:
    """Time that passes only when a backend steps: ``ns`` each step."""

    def __init__(self) -> None:
        self.now = 0
        self.readings = 0

    def __call__(self) -> int:
        self.readings += 1
        return self.now


class Scripted:
    """Answers with rows from a script of (env_ids, ended), over and over; each step takes 1,000 ns of the clock."""

    def __init__(self, num_envs: int, script: Script, clock: Clock, autoreset: Autoreset = "next_step") -> None:
        self.info = BackendInfo(num_envs, len(script[0][0]), ActionSpace.discrete(2), 1, autoreset=autoreset)
        self._script = itertools.cycle(script)
        self._clock = clock
        self.sent = []

    def send(self, actions: NDArray[np.generic]) -> None:
        self.sent.append(actions)

    def recv(self) -> Batch:
        self._clock.now += 1000
        ids, ended = next(self._script)
        none = np.zeros(len(ids), np.bool_)
        return Batch(none, none, np.array(ended, np.bool_), none, np.array(ids))


def driven(num_envs: int, script: Script, autoreset: Autoreset = "next_step") -> tuple[Loop, Scripted, Clock]:
    """Return a loop over a backend with this script and three actions, the backend and its clock."""
    clock = Clock()
    backend = Scripted(num_envs, script, clock, autoreset)
    return Loop(backend, Tape([np.array([value]) for value in range(3)]), clock), backend, clock


def test_a_backend_that_resets_within_the_row_of_the_end_has_no_reset_rows() -> None:
    loop, _, _ = driven(2, [([0, 1], [0, 1]), ([0, 1], [0, 0])], "same_step")
    assert loop.run_for(10_000, 1).resets == 0


@given(
    st.lists(
        st.permutations(range(5)).flatmap(
            lambda ids: st.lists(st.booleans(), min_size=2, max_size=2).map(lambda ended: (ids[:2], ended))
        ),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 7),
)
def test_resets_of_an_asynchronous_backend_are_those_that_each_environment_had(script: Script, stretch: int) -> None:
    loop, _, _ = driven(5, script)
    ended_before = [False] * 5
    for start in range(0, len(script), stretch):
        part = script[start : start + stretch]
        expected = 0
        for ids, ended in part:
            for env, end in zip(ids, ended, strict=True):
                expected += ended_before[env]
                ended_before[env] = end
        assert loop.run_for(len(part) * 1000, 1).resets == expected


def test_the_clock_is_read_at_batch_boundaries_only_and_seldom() -> None:
    loop, _, clock = driven(1, [([0], [0])])
    assert loop.run_for(100_000_000, 1000).rows == pytest.approx(100_000, rel=0.02)
    assert clock.readings <= 105


class Dispatching:
    """A device that takes 1 ms of its clock to compute a batch of four rows. ``recv`` returns at once."""

    info = BackendInfo(4, 4, ActionSpace.discrete(2), 1, autoreset="same_step", in_order=True, on_device=True)
    now = busy_until = 0

    def send(self, _actions: object) -> None:
        self.now += 1000
        self.busy_until = max(self.busy_until, self.now) + 1_000_000

    def recv(self) -> Batch:
        done = self.busy_until

        def compute() -> None:
            self.now = max(self.now, done)

        every: Any = SimpleNamespace(block_until_ready=compute)
        return Batch(every, every, every, every, np.arange(4))


@pytest.mark.parametrize("batches_per_reading", [1, 10])
def test_a_device_that_returns_before_it_has_computed_is_no_faster(batches_per_reading: int) -> None:
    backend: Any = Dispatching()
    loop = Loop(backend, Tape([np.zeros(4)]), lambda: backend.now)
    found = loop.run_for(100_000_000, batches_per_reading)
    assert 4 * 0.999 <= found.rows * 1_000_000 / found.ns <= 4
    assert found.resets == 0


def test_every_batch_size_gets_the_same_tape_from_the_same_seed() -> None:
    spaces = {
        "bounded": ActionSpace(np.full(3, -2.0), np.full(3, 2.0)),
        "free": ActionSpace(-np.ones(2), np.full(2, np.inf)),
    }
    tapes: Any = [action_tape(spaces, seed, number) for seed, number in ((7, 4), (7, 4), (8, 4), (7, 2))]
    for leaf in spaces:
        first, again, other, fewer = (np.stack([batch[leaf] for batch in tape]) for tape in tapes)
        assert first.tobytes() == again.tobytes()
        assert first.tobytes() != other.tobytes()
        assert np.array_equal(first[:, :2], fewer), "more environments change nothing"
    first = np.stack([batch["bounded"] for batch in tapes[0]])
    assert first.dtype == np.float64
    assert first.shape[1:] == (4, 3)
    assert np.abs(first).max() <= 2.0


@pytest.mark.parametrize("limit", [7, 500])
def test_ends_of_episodes_are_counted_apart_from_resets_that_were_made_on_purpose(limit: int) -> None:
    clock = itertools.count(0, 1_000_000)
    task = Task(f"CartPole-v1[max_episode_steps={limit}]", "classic", 1)
    found = time_steps(Setup(task, workers=1, envs_per_worker=1, cpus=(0,), pinned=False), 0.06, lambda: next(clock))
    assert found.resets == max(found.ends + 1, 5)
    assert (found.ends >= found.steps // 7) == (limit == 7)
    assert (found.step_p50_ns, found.reset_p50_ns, found.reset_p99_ns) == (1_000_000, 1_000_000, 1_000_000)
    assert set(found.step_ns) == set(found.reset_ns) == {1_000_000}
    assert set(found.lengths) == ({7} if limit == 7 else set(found.lengths))
    assert len(found.lengths) == found.ends


def test_of_a_plain_loop_the_first_environment_is_timed_and_goes_on() -> None:
    setup, clock = Setup(Task("CartPole-v1", "classic", 1), workers=2, cpus=(0,)), itertools.count(0, 1_000_000)
    backend = ForLoop(setup)
    found = time_steps(setup, 0.06, lambda: next(clock), backend)
    assert (found.make_ns, found.resets) == (1_000_000, max(found.ends + 1, 5))
    assert [environment.reset()[0].shape for environment in backend.environments] == [(4,), (4,)]
    backend.close()


@pytest.mark.parametrize(("kind", "waits"), [("Sleep-20000us", True), ("Busy-2000us", False)])
def test_an_environment_that_leaves_its_cpu_idle_waits(kind: str, waits: bool) -> None:
    task = Task(f"vebench/{kind}-v0", OTHER.name, 1, module="timed")
    assert time_steps(Setup(task, workers=1), 0.1, perf_counter_ns).waits is waits
