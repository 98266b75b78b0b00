"""EnvPool's pools as vector environments, whose episodes ``vebench verify A B --within distribution`` compares.

``vebench verify CartPole-v1 'pools:sync[task_id=CartPole-v1]' --within distribution``, in this folder.
"""

from __future__ import annotations

from typing import Any

import envpool
import numpy as np


def sync(task_id: str, num_envs: int, seed: int) -> Any:  # noqa: ANN401 - EnvPool's classes are made at run time
    """Return a pool in which every environment is in each batch."""
    return envpool.make_gymnasium(task_id, num_envs=num_envs, seed=seed)


class Gathered:
    """A pool with batches of half of its environments, which get their next actions once all have answered."""

    def __init__(self, task_id: str, num_envs: int, seed: int) -> None:
        self._pool = envpool.make_gymnasium(task_id, num_envs=num_envs, batch_size=max(1, num_envs // 2), seed=seed)
        self.num_envs = num_envs
        self.single_action_space = self.action_space = self._pool.action_space
        self.single_observation_space = self.observation_space = self._pool.observation_space

    def reset(self) -> tuple[Any, dict[str, Any]]:
        """Start all; the seed was that of the constructor."""
        self._pool.async_reset()
        return self._rows()[0], {}

    def step(self, actions: Any) -> tuple[Any, ...]:  # noqa: ANN401 - of any kind
        """Step all."""
        self._pool.send(actions, np.arange(self.num_envs, dtype=np.int32))
        return (*self._rows(), {})

    def _rows(self) -> list[Any]:
        batches = [self._pool.recv()]
        while sum(len(batch[0]) for batch in batches) < self.num_envs:
            batches.append(self._pool.recv())
        order = np.argsort(np.concatenate([infos["env_id"] for *_, infos in batches]))
        parts = zip(*(batch[:4] for batch in batches), strict=True)
        return [np.concatenate(part)[order] for part in parts]

    def close(self) -> None:
        """End the pool's threads."""
        self._pool.close()


def gathered(task_id: str, num_envs: int, seed: int) -> Gathered:
    """Return a pool whose environments answer in any order."""
    return Gathered(task_id, num_envs, seed)
