"""A backend of your own: environments stepped by a pool of threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from vebench.backends.environments.making import make, read_spaces
from vebench.backends.interface import BackendInfo, Batch, Setup

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np


class Threads:
    def __init__(self, setup: Setup) -> None:
        self.envs = [make(setup.task) for _ in range(setup.batch_size)]  # as all backends have them
        spaces = read_spaces(setup.task, self.envs[0].observation_space, self.envs[0].action_space)
        threads = setup.at_once
        self.pool = ThreadPoolExecutor(threads)
        self.rows = spaces.rows(setup.batch_size)  # a Batch with a row for each environment
        self.ended = [False] * setup.batch_size
        self.answers: Iterator[None]  # of environments that are at work
        self.info = BackendInfo(
            num_envs=setup.batch_size,
            batch_size=setup.batch_size,
            action_space=spaces.actions,
            frame_skip=setup.task.frame_skip,
            threads=threads,
            in_order=True,
            reuses_buffers=True,
        )

    def reset(self, seed: int) -> None:
        count = len(self.envs)
        self.answers = self.pool.map(self.start, range(count), range(seed, seed + count))

    def send(self, actions: np.ndarray) -> None:
        self.answers = self.pool.map(self.step, range(len(actions)), actions)

    def recv(self) -> Batch:
        for _ in self.answers:  # waits for all, and raises what an environment raised
            pass
        return self.rows

    def close(self) -> None:
        self.pool.shutdown()
        while self.envs:
            self.envs.pop().close()

    def start(self, index: int, seed: int | None = None) -> None:
        observations, rewards, terminated, truncated, _ = self.rows
        observations[index], _ = self.envs[index].reset(seed=seed)
        rewards[index] = 0.0
        terminated[index] = truncated[index] = self.ended[index] = False

    def step(self, index: int, action: np.generic) -> None:
        if self.ended[index]:  # the row after an end reports the reset; its action is dropped
            self.start(index)
            return
        observations, rewards, terminated, truncated, _ = self.rows
        observations[index], rewards[index], terminated[index], truncated[index], _ = self.envs[index].step(action)
        self.ended[index] = bool(terminated[index] or truncated[index])
