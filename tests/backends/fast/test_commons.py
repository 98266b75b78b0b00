"""Environments in memory that several processes have: whoever is free steps them, with the same bytes."""

# ruff: noqa: SLF001 - a step is looked at, and stopped, half-way

import ctypes
import errno
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

from vebench.backends.fast.commons import Commons, commons_for, is_running
from vebench.backends.fast.native import library
from vebench.backends.fast.physics import PhysicsTask
from vebench.backends.fast.physics_tasks import RULES
from vebench.backends.fast.share import FastShare
from vebench.backends.fast.vector_env import make_vec
from vebench.backends.shared_memory.memory_layout import RowArrays

pytestmark = [
    pytest.mark.skipif(library() is None, reason="the C library was not built"),
    pytest.mark.skipif(sys.platform != "linux", reason="no memory in common elsewhere"),
]

COUNT, STEPS = 5, 60


class Team:
    """Two shares that stand for two processes: each has a model of its own. ``first`` and ``second`` are theirs."""

    def __init__(self, env_id: str, commons: Commons | None) -> None:
        self.first, self.second = (PhysicsTask(env_id, {}) for _ in range(2))
        space, actions = self.first.observation_space.shape or (), self.first.action_space.shape or ()
        flags = np.zeros((2, COUNT), np.bool_)
        self.rows = RowArrays((np.zeros((COUNT, *space)),), np.zeros(COUNT), *flags, (np.zeros((COUNT, *actions)),))
        self.shares = [
            FastShare(made(task), False, "NextStep", self.rows.rows(start, stop), start, stop, commons)
            for task, start, stop in ((self.first, 0, 2), (self.second, 2, COUNT))
        ]
        for share in self.shares:
            share.open()
            share.answer("reset", 3)

    @property
    def loops(self) -> list[Any]:
        return [share._batches[0]._loop for share in self.shares]  # type: ignore[attr-defined]

    def step(self, actions: np.ndarray[Any, Any]) -> tuple[bytes, ...]:
        self.rows.actions[0][:] = actions
        for share in self.shares:
            share.step()
        return tuple(array.tobytes() for array in (*self.rows.observations, *self.rows[1:4]))

    def close(self) -> None:
        for share in self.shares:
            share.close()


def made(task: PhysicsTask) -> Any:  # noqa: ANN401 - what makes a task
    return lambda: task


def in_common(env_id: str) -> Team:
    return Team(env_id, commons_for(PhysicsTask(env_id, {}).model, COUNT))


def drawn(team: Team) -> list[np.ndarray[Any, Any]]:
    shape = team.rows.actions[0].shape
    return list(np.random.default_rng(0).uniform(-1, 1, (STEPS, *shape)))


def offered_early(share: FastShare) -> Callable[[], object]:
    """Offer a share's next step, and let the offer that the step itself makes do nothing."""
    batch: Any = share._batches[0]
    offer = batch._offer
    offer(share._ended[0])
    batch._offer = lambda _resting: None

    def step() -> None:
        share.step()
        batch._offer = offer

    return step


@pytest.mark.parametrize("env_id", ["Hopper-v5", "Ant-v5"])
def test_a_process_that_is_done_steps_what_another_has_offered_with_the_same_bytes(env_id: str) -> None:
    alone, together = Team(env_id, None), in_common(env_id)
    steps_by_others = 0
    for actions in drawn(alone):
        together.rows.actions[0][:] = actions
        late = offered_early(together.shares[1])
        together.shares[0].step()
        steps_by_others += together.loops[1]._loop.finished
        late()
        seen = tuple(array.tobytes() for array in (*together.rows.observations, *together.rows[1:4]))
        assert seen == alone.step(actions)
    assert steps_by_others == STEPS * 3


@pytest.mark.parametrize("env_id", RULES)
def test_no_step_reads_what_another_has_left_in_the_scratch(env_id: str) -> None:
    alone, together = Team(env_id, None), in_common(env_id)
    scratch = together.loops[0]._area._commons.scratch_at
    for actions in drawn(alone)[:20]:
        ctypes.memset(scratch, 0xA5, together.first.model.narena)
        assert together.step(actions) == alone.step(actions)


def test_a_step_that_is_broken_off_ends_no_episode_late_and_begins_none_twice() -> None:
    def ends(broken_off: int) -> tuple[list[int], bytes]:
        team = Team("Hopper-v5", None)
        share, seen = team.shares[0], []
        batch: Any = share._batches[0]
        advance = batch._advance
        batch._limit = 7
        share.answer("reset", 3)
        for step, actions in enumerate(drawn(team), 1):
            team.rows.actions[0][:] = actions
            if step == broken_off:
                batch._advance = interrupted
                with pytest.raises(KeyboardInterrupt):
                    share.step()
                batch._advance = advance
            share.step()
            seen.append(int(team.rows.truncated[:2].sum()))
        return seen, team.rows.observations[0][:2].tobytes()

    def interrupted() -> int:
        raise KeyboardInterrupt

    assert any(ends(0)[0])
    assert all(ends(step) == ends(0) for step in (7, 8))


def test_an_error_in_an_environment_is_raised_by_its_own_process_whoever_steps_it() -> None:
    team = in_common("HalfCheetah-v5")
    team.step(drawn(team)[0])
    team.first.model.opt.integrator = 99
    late = offered_early(team.shares[1])
    with pytest.raises(mujoco.FatalError, match="integrator"):
        team.shares[0].step()
    with pytest.raises(mujoco.FatalError, match="integrator"):
        late()
    assert team.shares[1].current in range(3)


def test_a_reset_takes_back_what_was_offered() -> None:
    alone, together = Team("Hopper-v5", None), in_common("Hopper-v5")
    offered_early(together.shares[1])
    for team in (alone, together):
        team.shares[1].answer("reset", 8)
    together.shares[0].step()
    alone.shares[0].step()
    assert together.rows.observations[0].tobytes() == alone.rows.observations[0].tobytes()


def test_no_memory_in_common_is_left_once_nothing_of_it_is_used() -> None:
    def mapped() -> int:
        gc.collect()
        return Path("/proc/self/maps").read_text(encoding="ascii").count("/dev/zero (deleted)")

    before = mapped()
    team = in_common("Hopper-v5")
    rows = team.loops[0]._resting
    assert mapped() == before + 1
    team.close()
    del team
    assert rows.tolist() == [0.0, 0.0]
    del rows
    assert mapped() == before


def test_environments_of_processes_that_help_each_other_are_those_of_one_process() -> None:
    def steps(processes: int) -> list[bytes]:
        envs = make_vec("Walker2d-v5", 7, num_processes=processes, seed=5)
        try:
            envs.reset()
            actions = np.random.default_rng(0).uniform(-1, 1, (40, 7, 6)).astype(np.float32)
            return [b"".join(part.tobytes() for part in envs.step(action)[:4]) for action in actions]
        finally:
            envs.close()

    assert steps(3) == steps(1)


def test_a_process_that_has_ended_is_not_running_even_if_nobody_has_waited_for_it() -> None:
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not is_running(child.pid)
    assert not is_running(child.pid)
    assert is_running(os.getpid())


@pytest.mark.parametrize("reason", [errno.EMFILE, errno.ENOENT], ids=["no descriptor", "no /proc"])
def test_a_process_that_cannot_be_seen_is_taken_to_be_running(monkeypatch: pytest.MonkeyPatch, reason: int) -> None:
    def refused(*_: object, **__: object) -> str:
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(Path, "read_text", refused)
    assert is_running(os.getpid())
