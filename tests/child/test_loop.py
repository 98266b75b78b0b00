"""The timed loop, with a fake clock and fake backends: what it counts, and how often it looks at the clock."""

import itertools
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from vebench.backends.interface import ActionSpace, BackendInfo, Batch
from vebench.child.actions import Tape, action_tape
from vebench.child.loop import Loop, Stretch

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
    """Answers with rows from a script of (env_ids, ended), over and over; each step takes ``step_ns`` on the clock."""

    def __init__(
        self, num_envs: int, script: Script, clock: Clock, step_ns: int = 1000, autoreset: Autoreset = "next_step"
    ) -> None:
        self.info = BackendInfo(
            num_envs=num_envs,
            batch_size=len(script[0][0]),
            action_space=ActionSpace.discrete(2),
            frame_skip=1,
            autoreset=autoreset,
        )
        self._script = itertools.cycle(script)
        self._clock, self._step_ns = clock, step_ns
        self.sent = []

    def send(self, actions: NDArray[np.generic]) -> None:
        self.sent.append(actions)

    def recv(self) -> Batch:
        self._clock.now += self._step_ns
        ids, ended = next(self._script)
        none = np.zeros(len(ids), np.bool_)
        return Batch(none, none, np.array(ended, np.bool_), none, np.array(ids))


def drive(num_envs: int, script: Script, batches: int, autoreset: Autoreset = "next_step") -> Stretch:
    clock = Clock()
    loop = Loop(Scripted(num_envs, script, clock, autoreset=autoreset), Tape([np.zeros(1)]), clock)
    return loop.run_for(batches * 1000, 1)


def test_an_end_in_the_last_batch_has_its_reset_counted_in_the_next_window() -> None:
    clock = Clock()
    script = [([0], [0]), ([0], [1]), ([0], [0]), ([0], [0])]
    loop = Loop(Scripted(1, script, clock), Tape([np.zeros(1)]), clock)
    assert [loop.run_for(2000, 1).resets for _ in range(4)] == [0, 1, 0, 1]


def test_a_backend_that_resets_within_the_row_of_the_end_has_no_reset_rows() -> None:
    script = [([0, 1], [0, 1]), ([0, 1], [0, 0])]
    assert drive(2, script, batches=10, autoreset="same_step").resets == 0


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
    clock = Clock()
    loop = Loop(Scripted(5, script, clock), Tape([np.zeros(1)]), clock)
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
    clock = Clock()
    loop = Loop(Scripted(1, [([0], [0])], clock, step_ns=1000), Tape([np.zeros(1)]), clock)
    pace = loop.warm_up(duration_ns=10_000_000, window_ns=100_000_000)
    assert pace == pytest.approx(1000, rel=0.01)
    clock.readings = 0
    assert loop.run_for(100_000_000, pace).rows == pytest.approx(100_000, rel=0.02)
    assert clock.readings <= 105


def test_every_batch_size_gets_the_same_tape_from_the_same_seed() -> None:
    space = ActionSpace(np.full(3, -2.0), np.full(3, 2.0))
    first, again, other = (np.stack(action_tape(space, seed, 4)) for seed in (7, 7, 8))
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()
    assert np.array_equal(first[:, :2], np.stack(action_tape(space, 7, 2))), "more environments change nothing"
    assert first.dtype == np.float64
    assert first.shape[1:] == (4, 3)
    assert np.abs(first).max() <= 2.0


def test_the_tape_is_played_in_order_and_from_the_start_again() -> None:
    clock = Clock()
    backend = Scripted(1, [([0], [0])], clock)
    tape = [np.array([value]) for value in range(3)]
    Loop(backend, Tape(tape), clock).run_for(7000, 2)
    assert [int(actions[0]) for actions in backend.sent] == [0, 1, 2, 0, 1, 2, 0, 1]
