"""MuJoCo's tasks as Gymnasium's classes step them, many environments of one model at a time.

Gymnasium's own code begins episodes, in one environment at a time. ``physics.c`` steps environments with MuJoCo's own
functions, and copies the results into the rows. numpy computes the rewards of many environments at a time.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium.utils import seeding
from numpy.typing import NDArray

from vebench.backends.fast.backend import NO_LIMIT, FastBatch, FastTask
from vebench.backends.fast.classes import address, needed
from vebench.backends.fast.physics_tasks import RULES, Rules, Seen, Slice
from vebench.backends.shared_memory.memory_layout import RowArrays

_ERROR = 1024  # bytes of an error's text: ``ERROR_BYTES`` of ``physics.c``
# ``struct part`` and ``struct bound`` of ``physics.c``: 8 bytes for each field, also for an address.
_PART = np.dtype([("from", "i8"), ("to", "i8"), ("count", "i8"), ("low", "f8"), ("high", "f8"), ("limited", "i8")])
_BOUND = np.dtype([("at", "i8"), ("count", "i8"), ("low", "f8"), ("high", "f8"), ("closed", "i8"), ("outside", "i8")])


@cache
def mujoco_library() -> ctypes.CDLL:
    """Return the library of MuJoCo that its Python package has loaded. Raises ValueError if it is not found."""
    for path in sorted(Path(mujoco.__file__).parent.glob("libmujoco*")):
        with suppress(OSError):
            return ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD)
    raise ValueError("MuJoCo's library was not found: reinstall mujoco")


def _view_of(data: Any, part: Slice) -> NDArray[np.float64]:
    """Return a part of MuJoCo's data, as a view."""
    numbers: NDArray[np.float64] = getattr(data, part.field).reshape(-1)[part.start : part.stop]
    return numbers


class PhysicsTask(FastTask):
    """A task: one model, and one environment of Gymnasium's own class."""

    how = "physics compiled"

    def __init__(self, env_id: str, settings: Mapping[str, Any]) -> None:
        self.library = mujoco_library()
        environment = gymnasium.make(env_id, disable_env_checker=True, **settings)
        origin: Any = environment.unwrapped
        self.origin, self.model, self.data = origin, origin.model, origin.data
        self.frame_skip = int(origin.frame_skip)
        self.limit = (environment.spec and environment.spec.max_episode_steps) or NO_LIMIT
        self.rules: Rules = RULES[env_id](origin)
        self.observation_space, self.action_space = environment.observation_space, environment.action_space
        shown, declared = sum(_view_of(self.data, part).size for part in self.rules.row), self.observation_space.shape
        if declared != (shown,):
            why = f"observations have {shown} numbers, but their space has the shape {declared}"
            raise ValueError(f"{why}: is a setting not a bool?")

    def batch(self, rows: RowArrays) -> PhysicsBatch:
        """Build an environment for each row."""
        return PhysicsBatch(self, rows)


class PhysicsBatch(FastBatch):
    """Environments, each with its own ``mujoco.MjData``."""

    def __init__(self, task: PhysicsTask, rows: RowArrays) -> None:
        self._task, self._rows = task, rows
        count, rules = len(rows.rewards), task.rules
        self._data = [mujoco.MjData(task.model) for _ in range(count)]
        self._random: list[np.random.Generator | None] = [None] * count
        parts = {name: np.zeros((count, _view_of(task.data, part).size)) for name, part in rules.after.items()}
        around = np.zeros((2, count, _view_of(task.data, rules.around).size))
        (observations,), rewards, _, _, (actions,) = rows
        self._seen = Seen(actions, around, parts, np.ones(count), observations, rewards)
        # First observations of episodes begun since the last ``finish``, which writes them after it computes rewards.
        self._begun: dict[int, NDArray[np.float64]] = {}
        self._ages = np.zeros(count, np.int64)
        self._errors = np.zeros((count, _ERROR), np.uint8)
        self._arrays = self._tables()
        # ``struct physics``: 8 bytes for each field, ``failed`` last.
        values = (
            address(task.library.mj_step),
            address(task.library.mj_rnePostConstraint),
            task.model._address,
            ctypes.addressof(ctypes.c_void_p.in_dll(task.library, "mju_user_error")),
            task.frame_skip,
            task.model.nu,
            len(rules.row) + 1 + len(rules.after),
            len(rules.healthy),
            task.limit,
            actions.dtype == np.float32,
            rules.ends,
            *(array.ctypes.data for array in self._arrays),
            0,
        )
        self._all = np.array(values, np.int64)
        self.context = self._all.ctypes.data
        self.work = address(needed().vebench_physics)

    def _tables(self) -> tuple[NDArray[Any], ...]:
        """Return the arrays whose addresses are in ``struct physics``, in the order of its fields."""
        seen, rules, rows = self._seen, self._task.rules, self._rows
        before: list[tuple[object, ...]] = []
        after: list[tuple[object, ...]] = []
        bounds: list[tuple[object, ...]] = []

        def copied(part: Slice, target: NDArray[np.float64]) -> tuple[object, ...]:
            source, limited = _view_of(data, part), part.low > -inf or part.high < inf
            return source.ctypes.data, target.ctypes.data, source.size, part.low, part.high, limited

        for index, data in enumerate(self._data):
            before.append(copied(rules.around, seen.around[0, index]))
            at = 0
            for part in rules.row:
                after.append(copied(part, seen.observations[index, at:]))
                at += _view_of(data, part).size
            after.append(copied(rules.around, seen.around[1, index]))
            after += [copied(part, seen.parts[name][index]) for name, part in rules.after.items()]
            for bound in rules.healthy:
                numbers = _view_of(data, bound.part)
                bounds.append((numbers.ctypes.data, numbers.size, bound.low, bound.high, bound.closed, bound.outside))
        return (
            seen.actions,
            np.array([data._address for data in self._data], np.intp),
            np.array([data.ctrl.ctypes.data for data in self._data], np.intp),
            np.array(before, _PART),
            np.array(after, _PART),
            np.array(bounds, _BOUND),
            seen.healthy,
            rows.terminated,
            rows.truncated,
            self._ages,
            self._errors,
        )

    def begin(self, index: int, seed: int | None) -> None:
        """Start a new episode in one environment: run Gymnasium's own code on the environment's data."""
        self.current = index
        origin, data = self._task.origin, self._data[index]
        if seed is not None or self._random[index] is None:
            self._random[index], _ = seeding.np_random(seed)
        origin.data, origin.np_random = data, self._random[index]
        mujoco.mj_resetData(self._task.model, data)
        self._begun[index] = origin.reset_model()
        self._ages[index] = -1
        self._errors[index] = 0

    def finish(self, indices: Sequence[int] | None) -> None:
        """Write rewards and first observations. Raises ``mujoco.FatalError``, as MuJoCo does.

        The error is about the environment ``current``, which then counts as finished. Without indices, all do.
        """
        failed: list[int] = []
        if self._all[-1]:  # there ever was an error
            failed = [index for index in indices or range(len(self._errors)) if self._errors[index, 0]]
        if failed:
            self.current = failed[0]
            error = self._errors[failed[0]].tobytes().rstrip(b"\0").decode(errors="replace")
            if indices is None:  # all count as finished, so report only the first error
                self._begun.clear()
            else:
                del failed[1:]
            self._errors[failed] = 0
            raise mujoco.FatalError(error)
        if indices is None:
            self._task.rules.reward(self._seen)
        elif not self._begun.keys() >= set(indices):
            some = self._seen.rows(np.array(indices))  # other threads may write to the other rows meanwhile
            self._task.rules.reward(some)
            self._seen.observations[indices], self._seen.rewards[indices] = some.observations, some.rewards
        if self._begun:
            begun = [*self._begun] if indices is None else self._begun.keys() & indices
            for index in begun:
                self._seen.observations[index], self._seen.rewards[index] = self._begun.pop(index), 0.0

    def frames(self, index: int) -> int:
        """Return the sub-steps of one environment's episode."""
        return int(round(self._data[index].time / self._task.model.opt.timestep))  # noqa: RUF046 - MuJoCo has no types

    def close(self) -> None:
        """Free the environments' data."""
        self._task.origin.data = self._task.data  # the task must not refer to the data of this batch
        self._data, self._arrays = [], ()
