"""Sample Factory's rollout workers. The adapter takes the place of the inference worker.

The library's own processes request actions over a queue, and write rows into shared trajectories.
"""

from __future__ import annotations

import gc
import logging
from contextlib import suppress
from functools import partial
from queue import Empty
from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium import spaces as gymnasium_spaces
from gymnasium import wrappers
from numpy.typing import NDArray
from sample_factory.algo.sampling.sampler import EventLoop, ParallelSampler
from sample_factory.algo.utils.env_info import extract_env_info
from sample_factory.algo.utils.make_env import make_env_func_non_batched
from sample_factory.algo.utils.shared_buffers import BufferMgr
from sample_factory.algo.utils.tensor_dict import to_numpy
from sample_factory.cfg.arguments import parse_sf_args
from sample_factory.envs.env_utils import register_env

from vebench.backends.interface import Difference, Setup
from vebench.backends.one_in_flight import (
    CLOSE_S,
    FLOAT32_REWARDS,
    LOOK_S,
    OneInFlight,
    RowsOfAll,
    kill_all,
    makers,
    raise_if_dead,
    reseed,
    spaces_for,
)
from vebench.backends.trees import Tree

NAME = "vebench"  # the environment's name in the library
POLICY = 0
_ONE_FLAG = Difference("an end that is also a time limit is reported as truncated only", "terminated", "end")


class SampleFactory(OneInFlight):
    """``workers`` processes with several environments each, in two groups (``worker_num_splits``) for an even number.

    The adapter sends actions to both groups at once, and a batch has the rows of both. The sampler cannot be reset, so
    each ``reset`` starts new processes.
    """

    def __init__(self, setup: Setup) -> None:
        spaces: Any = spaces_for(setup, "Sample Factory")
        self._setup, self._action_size = setup, spaces.actions.low.size
        self._groups = 2 if setup.envs_per_worker % 2 == 0 else 1
        self._sampler: Any = None
        differences = (FLOAT32_REWARDS, _ONE_FLAG)
        self._report(setup, spaces, processes=setup.workers, autoreset="same_step", differences=differences)

    def _reset(self, seed: int) -> Tree:
        self._end()
        setup = self._setup
        logging.getLogger("rl").setLevel(logging.ERROR)
        register_env(NAME, partial(_environment, makers(setup), seed))
        chosen = {
            "num_workers": setup.workers,
            "num_envs_per_worker": setup.envs_per_worker,
            "worker_num_splits": self._groups,
            # No policy.
            "policy_workers_per_policy": 0,
            "use_rnn": False,
            "device": "cpu",
            "env_gpu_observations": False,
            # Settings that would change the environments' work.
            "reward_clip": "inf",
            "decorrelate_envs_on_one_worker": False,
            # Few buffers.
            "rollout": 32,
            "batch_size": 32,
            "env": NAME,
            "log_to_file": False,
            # In a pinned cell, vebench pins the processes.
            "set_workers_cpu_affinity": False,
        }
        cfg = parse_sf_args([f"--{key}={value}" for key, value in chosen.items()])[1]
        example = make_env_func_non_batched(cfg, SimpleNamespace(worker_index=0))
        env_info = extract_env_info(example, cfg)
        example.close()
        self._loop = EventLoop(NAME)
        self._buffers = BufferMgr(cfg, env_info)
        self._trajectories = to_numpy(self._buffers.traj_tensors_torch["cpu"])
        self._actions_of = to_numpy(self._buffers.policy_output_tensors_torch["cpu"])[..., : self._action_size]
        self._sampler = ParallelSampler(self._loop, self._buffers, {}, cfg, env_info)
        for index, worker in enumerate(self._sampler.rollout_workers):
            self._sampler.connect("begin", worker.init)
            self._sampler.connect(f"advance{index}", worker.advance_rollouts)
            self._sampler.connect("stop", worker.on_stop)
        self._sampler.connect_on_new_trajectories(POLICY, self._loop.broadcast)
        self._sampler.init()
        self._sampler.emit("begin")
        return self._wait()

    def _send(self, actions: Tree) -> None:
        self._actions_of[:] = np.asarray(actions).reshape(self._actions_of.shape)
        for worker in range(self._setup.workers):
            self._sampler.emit_many(f"advance{worker}", [(group, POLICY) for group in range(self._groups)])

    def _receive(self) -> RowsOfAll:
        acted = self._places, self._step
        observations = self._wait()
        rewards, ended, truncated = (self._trajectories[name][acted] for name in ("rewards", "dones", "time_outs"))
        if self._step == 0:
            # Take full trajectories and free their buffers, as the library's learner does.
            with suppress(Empty):
                while True:
                    for _, _, (full, device) in self._loop.signal_queue.get_many(block=False):
                        self._buffers.traj_buffer_queues[device].put_many([one["traj_buffer_idx"] for one in full])
        return observations, rewards, ended & ~truncated, truncated

    def _wait(self) -> NDArray[np.generic]:
        """Wait until all workers request actions. Return the observations. Raises RuntimeError if a worker has died."""
        self._places = np.empty(self._setup.batch_size, np.intp)  # each environment's trajectory
        missing = self._setup.workers * self._groups
        while missing:
            try:
                requests = self._sampler.inference_queues[POLICY].get_many(timeout=LOOK_S)
            except Empty:
                raise_if_dead(self._sampler.processes, "Sample Factory's worker")
                continue
            for worker, group, asked, _ in requests:
                first = (worker * self._groups + group) * len(asked)
                self._places[first : first + len(asked)] = [trajectory for _, _, trajectory, _ in asked]
                self._step = asked[0][-1]
            missing -= len(requests)
        observations: NDArray[np.generic] = self._trajectories["obs"]["obs"][self._places, self._step]
        return observations

    def _end(self) -> None:
        if self._sampler is None:
            return
        self._sampler.emit("stop")
        kill_all(self._sampler.processes, CLOSE_S)
        self._sampler = self._loop = self._buffers = self._trajectories = self._actions_of = None
        gc.collect()  # the library's objects refer to each other, and keep shared memory


def _environment(made: list[Any], base: int, _name: str, _cfg: object, place: Any, _mode: object) -> Any:
    """Return an environment with spaces that the library supports. ``base`` is added to the library's seeds."""
    logging.getLogger("rl").setLevel(logging.ERROR)
    environment = made[int(place.worker_index)]()
    reseed(environment, lambda seed: None if seed is None else seed + base)
    observed, taken = environment.observation_space, environment.action_space
    if isinstance(observed, gymnasium_spaces.Discrete):
        environment = wrappers.TransformObservation(environment, np.asarray, observed)
    if not isinstance(taken, gymnasium_spaces.Discrete) and (taken.dtype != np.float32 or len(taken.shape or ()) != 1):
        flat = gymnasium_spaces.Box(-np.inf, np.inf, (int(np.prod(taken.shape or ())),), np.float32)
        environment = wrappers.TransformAction(
            environment, lambda action: action.reshape(taken.shape).astype(taken.dtype), flat
        )
    return environment
