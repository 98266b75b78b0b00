"""EnvPool, through its documented ``send`` and ``recv``, of which its ``step`` is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends.environments import (
    ATARI_FRAME_LIMIT,
    ATARI_FRAME_SKIP,
    ATARI_NOOP_MAX,
    ATARI_SCREEN_SIZE,
    ATARI_STACK,
    action_space,
)
from vebench.backends.interface import BackendInfo, Batch, NothingToReceiveError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vebench.backends.interface import Setup, Task

# The games whose first action is not NOOP. Gymnasium resets them without no-ops; EnvPool always makes one at least.
WITHOUT_NOOP = frozenset({"Backgammon-v5", "VideoCheckers-v5"})


def _settings(task: Task) -> dict[str, Any]:
    if task.suite != "atari":
        return {}
    return {
        "frame_skip": ATARI_FRAME_SKIP,
        "stack_num": ATARI_STACK,
        "img_height": ATARI_SCREEN_SIZE,
        "img_width": ATARI_SCREEN_SIZE,
        "gray_scale": True,
        "use_inter_area_resize": True,
        "noop_max": 1 if task.pool_id in WITHOUT_NOOP else ATARI_NOOP_MAX,
        "use_fire_reset": False,
        "repeat_action_probability": 0.0,
        "full_action_space": False,
        "episodic_life": False,
        "reward_clip": False,
        "max_episode_steps": ATARI_FRAME_LIMIT // ATARI_FRAME_SKIP,
    }


def _differences(task: Task) -> tuple[str, ...]:
    found = ["rewards are float32"]
    if task.suite == "atari":
        found.append("the observation of an episode's end shows its last frame")
    if task.pool_id in WITHOUT_NOOP:
        found.append("a reset makes one no-op")
    return tuple(found)


class _Pool:
    """What both ways of use share: the pool, how it is seeded and reset, how it ends. Rewards are float32."""

    def __init__(self, setup: Setup, num_envs: int) -> None:
        self._setup = setup
        self._num_envs = num_envs
        self._pool = self._make(setup.seed)
        self._seed = setup.seed
        self._fresh = True
        self._waiting = False
        self.info = BackendInfo(
            num_envs=num_envs,
            batch_size=setup.batch_size,
            action_space=action_space(setup.task, self._pool.action_space),
            frame_skip=setup.task.frame_skip,
            threads=self._threads,
            differences=_differences(setup.task),
        )

    @property
    def _threads(self) -> int:
        return min(self._setup.workers, len(self._setup.cpus))

    def _make(self, seed: int) -> Any:  # noqa: ANN401 - EnvPool's classes are made at run time
        import envpool  # noqa: PLC0415 - imported on use

        pool_id = self._setup.task.pool_id
        if pool_id is None:
            raise ValueError(f"EnvPool has no {self._setup.task.id}")
        return envpool.make(
            pool_id,
            env_type="gymnasium",
            num_envs=self._num_envs,
            batch_size=self._setup.batch_size,
            num_threads=self._threads,
            thread_affinity_offset=-1,  # a pool that pins its threads leaves the CPUs that the cell owns
            seed=seed,
            **_settings(self._setup.task),
        )

    def reset(self, seed: int) -> None:
        """Start a new episode in every environment, environment ``i`` seeded with ``seed + i``.

        EnvPool takes seeds at construction only, so every call builds the pool anew, but for the first one if its seed
        is that of the setup.
        """
        if not (self._fresh and seed == self._seed):
            self._pool = None  # the old pool's threads end before the new one's start
            self._pool = self._make(seed)
        self._seed, self._fresh = seed, False
        self._pool.async_reset()
        self._waiting = True

    def close(self) -> None:
        """End the pool's threads. EnvPool's own ``close`` leaves them to its destructor."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        self._waiting = False


class EnvPoolSync(_Pool):
    """A pool in which every environment is in each batch, in the order of ids."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup, setup.batch_size)
        self._env_ids = np.arange(setup.batch_size)

    def send(self, actions: NDArray[np.generic]) -> None:
        """Queue an action for every environment. EnvPool converts them to the type that it wants."""
        self._pool.send(actions)
        self._waiting = True

    def recv(self) -> Batch:
        """Wait for every environment and return all rows."""
        if not self._waiting:
            raise NothingToReceiveError
        self._waiting = False
        observations, rewards, terminated, truncated, _ = self._pool.recv()
        return Batch(observations, rewards, terminated, truncated, self._env_ids)


class EnvPoolAsync(_Pool):
    """A pool with ``ratio`` environments for each row of a batch: a batch holds those that finished first."""

    def __init__(self, setup: Setup, *, ratio: int = 3) -> None:
        super().__init__(setup, ratio * setup.batch_size)
        self._env_ids: NDArray[np.int32] = np.empty(0, np.int32)

    def send(self, actions: NDArray[np.generic]) -> None:
        """Queue an action for each environment of the last batch. EnvPool converts them to the type that it wants."""
        self._pool.send(actions, self._env_ids)
        self._waiting = True

    def recv(self) -> Batch:
        """Wait until a batch of environments has finished and return their rows."""
        if not self._waiting:
            raise NothingToReceiveError
        self._waiting = False
        observations, rewards, terminated, truncated, info = self._pool.recv()
        self._env_ids = info["env_id"]
        return Batch(observations, rewards, terminated, truncated, self._env_ids)
