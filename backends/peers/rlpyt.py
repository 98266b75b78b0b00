"""rlpyt's ``GpuSampler``. The adapter takes the place of its action server.

rlpyt is on no registry. The environment variable ``RLPYT`` names its checkout, which runs unmodified.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vebench.backends.environments.making import make, sample, spaces_of
from vebench.backends.interface import Setup, Task
from vebench.backends.one_in_flight import FLOAT32_REWARDS, LOOK_S, OneInFlight, RowsOfAll, kill_all, raise_if_dead
from vebench.backends.trees import Tree

_CHECKOUT = Path(os.environ.get("RLPYT", ""))
if not (_CHECKOUT / "rlpyt").is_dir():
    raise ValueError("rlpyt is not on PyPI: set the variable RLPYT to the path of a checkout")
sys.path.append(str(_CHECKOUT))
from rlpyt.samplers.parallel.gpu.sampler import GpuSampler as Sampler  # noqa: E402 - needs the path above
from rlpyt.utils.collections import namedarraytuple  # noqa: E402
from rlpyt.utils.synchronize import drain_queue  # noqa: E402

_STEPS = 64  # steps in one batch of rlpyt
AgentInfo = namedarraytuple("AgentInfo", ["nothing"])
EnvInfo = namedarraytuple("EnvInfo", ["timeout"])


class GpuSampler(OneInFlight):
    """``workers`` processes with several environments each, and a pair of semaphores for each process.

    After every 64 steps, all processes wait at rlpyt's barriers, which is a part of its cost. Rewards are float32. The
    sampler cannot be reset, so each ``reset`` starts new processes.
    """

    def __init__(self, setup: Setup) -> None:
        self._spaces = spaces_of(setup.task)
        self._setup = setup
        self._sampler: Any = None
        self._step = 0  # the step within rlpyt's batch that the next actions belong to
        reported = {"processes": setup.workers, "reuses_buffers": True, "differences": (FLOAT32_REWARDS,)}
        self._report(setup, self._spaces, autoreset="same_step", **reported)

    def _reset(self, seed: int) -> Tree:
        self._end()
        setup = self._setup
        actions: Any = self._spaces.actions
        torch.set_num_threads(1)
        environment = {"EnvCls": _Environment, "env_kwargs": {"task": setup.task, "actions": actions}}
        self._sampler = _Seeded(**environment, batch_T=_STEPS, batch_B=setup.batch_size, max_decorrelation_steps=0)
        cpus = [setup.cpus[worker % len(setup.cpus)] for worker in range(setup.workers)]
        affinity = {"workers_cpus": cpus, "set_affinity": setup.pinned, "worker_torch_threads": 1}
        # The agent only gives rlpyt an example of an action.
        example = torch.from_numpy(np.zeros_like(actions.low)), AgentInfo(nothing=torch.zeros(1))
        agent = SimpleNamespace(initialize=_do_nothing, reset=_do_nothing, step=lambda *_: example)
        self._sampler.initialize(agent, affinity, seed)
        self._step = 0
        self._begin()
        return np.asarray(self._sampler.step_buffer_np.observation)

    def _send(self, actions: Tree) -> None:
        self._sampler.step_buffer_np.action[:] = actions
        for worker in self._sampler.sync.act_ready:
            worker.release()

    def _receive(self) -> RowsOfAll:
        self._wait()
        buffer, infos = self._sampler.step_buffer_np, self._sampler.samples_np.env.env_info
        ended = np.asarray(buffer.done, np.bool_)
        truncated = np.asarray(infos.timeout[self._step], np.bool_) & ended
        self._step += 1
        if self._step == _STEPS:
            self._step = 0
            self._sampler.ctrl.barrier_out.wait()
            drain_queue(self._sampler.traj_infos_queue)  # as rlpyt does after each batch
            self._begin()
        return buffer.observation, buffer.reward, ended & ~truncated, truncated

    def _begin(self) -> None:
        self._sampler.ctrl.barrier_in.wait()
        self._wait()

    def _wait(self) -> None:
        """Wait until every worker has written its rows. Raises RuntimeError if one has died."""
        for ready in self._sampler.sync.obs_ready:
            while not ready.acquire(timeout=LOOK_S):
                raise_if_dead(self._sampler.workers, "rlpyt's worker")

    def _end(self) -> None:
        sampler, self._sampler = self._sampler, None
        if sampler is None:
            return
        kill_all(sampler.workers)  # they may wait for actions, or at a barrier
        for queue in (sampler.traj_infos_queue, sampler.eval_traj_infos_queue):
            queue.close()


def _do_nothing(*_: object, **__: object) -> None: ...


class _Seeded(Sampler):
    """The sampler, with a separate seed for each environment. rlpyt's own seeds repeat."""

    def _assemble_workers_kwargs(self, affinity: Any, seed: Any, n_envs_list: Any) -> Any:
        kwargs = super()._assemble_workers_kwargs(affinity, seed, n_envs_list)
        each = self.batch_spec.B // len(kwargs)
        return [{**one, "seed": seed + rank * each} for rank, one in enumerate(kwargs)]


class _Environment:
    """A Gymnasium environment in rlpyt's form. The first reset after ``seed`` uses that seed."""

    spaces = observation_space = None

    def __init__(self, task: Task, actions: Any) -> None:
        self._environment = make(task)
        self._seed: int | None = None
        # The parts of a space that rlpyt uses: a sample, and zeros.
        self.action_space = SimpleNamespace(
            sample=lambda: sample(actions, 0), null_value=lambda: np.zeros_like(actions.low)
        )

    def seed(self, seed: int) -> None:
        self._seed = seed

    def reset(self) -> NDArray[np.generic]:
        seed, self._seed = self._seed, None
        observation, _ = self._environment.reset(seed=seed)
        return np.asarray(observation)

    def step(self, action: Any) -> tuple[Any, Any, bool, Any]:
        observation, reward, terminated, truncated, _ = self._environment.step(action)
        return observation, np.float32(reward), terminated or truncated, EnvInfo(timeout=truncated)

    def close(self) -> None:
        self._environment.close()
