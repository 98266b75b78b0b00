"""A small pool that owns its environments. It stands for a library in C++ such as EnvPool, and has one task, Cart."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np

FORCE, TOTAL, POLE, LENGTH, GRAVITY, TAU = 10.0, 1.1, 0.1, 0.5, 9.8, 0.02
FARTHEST, STEEPEST = 2.4, 12 * 2 * math.pi / 360


class TinyPool:
    def __init__(self, name: str, num_envs: int, batch_size: int, num_threads: int, max_steps: int = 500) -> None:
        if name != "Cart":
            raise ValueError(f"no task {name}")
        self._batch_size, self._max_steps, self._parts = batch_size, max_steps, min(num_threads, batch_size)
        self._threads = ThreadPoolExecutor(num_threads)
        self._states = np.zeros((num_envs, 4))
        self._ages = np.zeros(num_envs, int)
        self._ended = np.ones(num_envs, bool)
        self._ids, self._actions = np.empty((2, 0), int)  # of environments that wait for a step

    def reset(self, seed: int) -> None:
        """Let each environment begin an episode. Environment ``i`` gets the seed ``seed + i``."""
        count = len(self._states)
        self._random = [np.random.default_rng(seed + i) for i in range(count)]
        self._ended[:] = True
        self._ids, self._actions = np.arange(count), np.zeros(count, int)

    def send(self, actions: np.ndarray, ids: np.ndarray) -> None:
        self._ids, self._actions = np.append(self._ids, ids), np.append(self._actions, actions)

    def recv(self) -> tuple[np.ndarray, ...]:
        """Return observations, rewards, terminated, truncated and ids of the environments that are ready first."""
        size = self._batch_size
        (ids, self._ids), (actions, self._actions) = np.split(self._ids, [size]), np.split(self._actions, [size])
        began = self._ended[ids]  # the row after an end reports the reset; its action is dropped
        parts = (np.array_split(array, self._parts) for array in (ids, actions, began))
        list(self._threads.map(self._step, *parts))
        x, _, angle, _ = states = self._states[ids].T
        terminated = (abs(x) > FARTHEST) | (abs(angle) > STEEPEST)
        truncated = self._ages[ids] >= self._max_steps
        self._ended[ids] = terminated | truncated
        return states.T.astype(np.float32), (~began).astype(np.float32), terminated, truncated, ids

    def close(self) -> None:
        self._threads.shutdown()

    def _step(self, ids: np.ndarray, actions: np.ndarray, began: np.ndarray) -> None:
        x, speed, angle, turn = self._states[ids].T
        cos, sin = np.cos(angle), np.sin(angle)
        push = (np.where(actions == 1, FORCE, -FORCE) + POLE * LENGTH * np.square(turn) * sin) / TOTAL
        turning = (GRAVITY * sin - cos * push) / (LENGTH * (4.0 / 3.0 - POLE * np.square(cos) / TOTAL))
        moving = push - POLE * LENGTH * turning * cos / TOTAL
        stepped = x + TAU * speed, speed + TAU * moving, angle + TAU * turn, turn + TAU * turning
        self._states[ids], self._ages[ids] = np.transpose(stepped), self._ages[ids] + 1
        for i in ids[began]:
            self._states[i], self._ages[i] = self._random[i].uniform(-0.05, 0.05, 4), 0
