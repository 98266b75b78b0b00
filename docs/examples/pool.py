"""An adapter for a library that owns its environments. Here the library is tinypool.py."""

from __future__ import annotations

from typing import Any

import tinypool

from vebench.backends.interface import ActionSpace, BackendInfo, Batch, Difference, Setup, Task


def name_of(task: Task) -> str | None:
    """Return the library's name for a task, None if it has none."""
    known = task.name == "CartPole-v1" and set(task.arguments) <= {"max_episode_steps"}
    return "Cart" if known else None


class Pool:
    """The library's pool, with ``ratio`` environments for each row of a batch."""

    def __init__(self, setup: Setup, *, ratio: int = 1) -> None:
        name, arguments = name_of(setup.task), setup.task.arguments
        if name is None:
            raise ValueError(f"tinypool has no {setup.task.id}")
        counts = {"num_envs": ratio * setup.batch_size, "batch_size": setup.batch_size}
        limit = int(arguments.get("max_episode_steps", 500))
        self._pool = tinypool.TinyPool(name, **counts, num_threads=setup.at_once, max_steps=limit)
        self.info = BackendInfo(
            **counts,
            action_space=ActionSpace.discrete(2),
            frame_skip=setup.task.frame_skip,
            threads=setup.at_once,
            autoreset="next_step",
            in_order=ratio == 1,
            differences=(Difference("rewards are float32"),),
        )

    def reset(self, seed: int) -> None:
        self._pool.reset(seed)  # environment i gets seed + i, in the pool

    def send(self, actions: Any) -> None:
        self._pool.send(actions, self._ids)

    def recv(self) -> Batch:
        *rows, self._ids = self._pool.recv()
        return Batch(*rows, self._ids)

    def close(self) -> None:
        self._pool.close()
