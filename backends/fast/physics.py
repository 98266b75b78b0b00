"""MuJoCo's tasks as Gymnasium's classes step them, many environments of one model at a time.

Episodes begin by Gymnasium's own code, on the data of one environment after another. Steps are MuJoCo's own functions,
called by ``physics.c``, between which and the rows there are only copies. Rewards are computed for many at a time.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from functools import cache
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import mujoco
import numpy as np
from gymnasium.utils import seeding

from vebench.backends.environments.suites import ALWAYS_DRAWN
from vebench.backends.fast.native import needed
from vebench.backends.fast.physics_tasks import RULES, Seen
from vebench.backends.fast.share import episode_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from vebench.backends.fast.physics_tasks import Bound, Rules, Slice
    from vebench.backends.interface import Task
    from vebench.backends.shared_memory.memory_layout import RowArrays


_NO_LIMIT = 1 << 62  # of the steps of an episode
_ERROR = 1024  # bytes of an error's words, as in ``physics.c``


@cache
def mujoco_library() -> ctypes.CDLL:
    """Return the library of MuJoCo that its Python package has loaded. Raises ValueError if it is not found."""
    for path in sorted(Path(mujoco.__file__).parent.glob("libmujoco*")):
        with suppress(OSError):
            return ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD)
    raise ValueError("MuJoCo's library was not found: reinstall mujoco")


class PhysicsTask:
    """A task: one model, and one environment of Gymnasium's own class. Steps of one environment take 20 us or more."""

    how = "physics compiled"
    leaves_out: tuple[str, ...] = ("no infos",)
    chunk = 1
    refuses = frozenset[str]()

    def __init__(self, env_id: str, settings: Mapping[str, Any]) -> None:
        self.library = mujoco_library()
        environment = gymnasium.make(env_id, disable_env_checker=True, **settings)
        origin: Any = environment.unwrapped
        self.origin, self.model, self.data = origin, origin.model, origin.data
        self.frame_skip = int(origin.frame_skip)
        limit = episode_limit(environment)
        self.limit = _NO_LIMIT if limit is None else min(limit, _NO_LIMIT)
        self.rules: Rules = RULES[env_id](origin)
        self.observation_space = environment.observation_space
        shown, declared = (sum(_view_of(self.data, part).size for part in self.rules.row), self.observation_space.shape)
        if declared != (shown,):
            raise ValueError(f"observations have {shown} numbers and their space {declared}: is a setting not a bool?")
        self.action_space = environment.action_space

    @staticmethod
    def settings_of(task: Task) -> dict[str, Any]:
        """Return the settings with which a task is what every backend steps."""
        noise = {"reset_noise_scale": 0.0} if task.exact and task.id not in ALWAYS_DRAWN else {}
        return {"frame_skip": task.frame_skip, **noise}

    def batch(self, rows: RowArrays, *, infos: bool = False) -> PhysicsBatch:
        """Build as many environments as there are rows."""
        return PhysicsBatch(self, rows, infos=infos)


class PhysicsBatch:
    """Environments, each with MuJoCo's data of its own."""

    restarts = False

    def __init__(self, task: PhysicsTask, rows: RowArrays, *, infos: bool) -> None:
        self._task, self._rows, self.current = task, rows, 0
        (observations,), rewards, _, _, (actions,) = rows
        count, rules = len(rewards), task.rules
        self._data = [mujoco.MjData(task.model) for _ in range(count)]
        self._random: list[np.random.Generator | None] = [None] * count
        around = np.zeros((2, count, _view_of(task.data, rules.around).size))
        self._told = rules.infos if infos else {}
        self._parts = {**rules.after, **{name: info.part for name, info in self._told.items()}}
        after = {name: np.zeros((count, _view_of(task.data, part).size)) for name, part in self._parts.items()}
        self._seen = Seen(actions, around, after, np.ones(count), observations, rewards, {})
        self._reward = rules.rewarding(self._seen)
        self._cameras: dict[int, Any] = {}
        self._some: tuple[Seen, Callable[[], None]] | None = None
        # Infos of what was finished since all were at once. Otherwise they are made when they are asked for.
        self._kept = {name: told() for name, told in self._seen.told.items()} if infos else {}
        self._at_once = False
        # First observations of episodes that have begun since the last ``finish``: it computes on their rows, too.
        self._begun: dict[int, NDArray[np.float64]] = {}
        self._ages = np.zeros(count, np.int64)
        self._errors = np.zeros((count, _ERROR), np.uint8)
        self._all, self._tables = self._in_c()
        self.context = ctypes.addressof(self._all)
        self.work = _address(needed().vebench_physics)

    def _in_c(self) -> tuple[_CPhysics, tuple[object, ...]]:
        """Return ``struct physics``, and the tables of which it has the addresses only."""
        task, seen, rules = self._task, self._seen, self._task.rules
        before: list[_CPart] = []
        after: list[_CPart] = []
        for index, one in enumerate(self._data):
            start, end = (_part(one, rules.around, numbers[index]) for numbers in seen.around)
            before.append(start)
            at = 0
            for part in rules.row:
                after.append(_part(one, part, seen.observations[index, at:]))
                at += after[-1].count
            after += [end, *(_part(one, part, seen.after[name][index]) for name, part in self._parts.items())]
        healthy = [_bound(one, bound) for one in self._data for bound in rules.healthy]
        tables: tuple[ctypes.Array[Any], ...] = (
            (ctypes.c_void_p * len(self._data))(*(one._address for one in self._data)),  # noqa: SLF001 - it is public
            (ctypes.c_void_p * len(self._data))(*(one.ctrl.ctypes.data for one in self._data)),
            (_CPart * len(before))(*before),
            (_CPart * len(after))(*after),
            (_CBound * len(healthy))(*healthy),
        )
        theirs = task.library
        rows = self._rows
        arrays = (seen.healthy, rows.terminated, rows.truncated, self._ages, self._errors)
        return _CPhysics(
            _address(theirs.mj_step),
            _address(theirs.mj_rnePostConstraint),
            task.model._address,  # noqa: SLF001 - it is public
            ctypes.addressof(ctypes.c_void_p.in_dll(theirs, "mju_user_error")),
            task.frame_skip,
            int(task.model.nu),
            1,  # around
            len(rules.row) + 1 + len(self._parts),
            len(rules.healthy),
            task.limit,
            seen.actions.dtype == np.float32,
            rules.ends,
            seen.actions.ctypes.data,
            *map(ctypes.addressof, tables),
            *(array.ctypes.data for array in arrays),
        ), tables

    def begin(self, index: int, seed: int | None) -> None:
        """Start a new episode in one environment, by Gymnasium's own code on its data."""
        self.current = index
        origin, data = self._task.origin, self._data[index]
        if seed is not None or self._random[index] is None:
            self._random[index], _ = seeding.np_random(seed)
        origin.data, origin.np_random = data, self._random[index]
        mujoco.mj_resetData(self._task.model, data)
        self._begun[index] = origin.reset_model()
        for name, info in self._told.items():
            self._seen.after[name][index] = _view_of(data, info.part)
        self._ages[index], self._errors[index] = -1, 0

    def finish(self, indices: Sequence[int] | None) -> None:
        """Write rewards and what has begun. Raises ``mujoco.FatalError``, as MuJoCo does.

        That is for one environment, which counts as finished then, and the others do not.
        """
        if self._all.failed:
            self._raise_error(indices)
        if indices is None:
            self._reward()
            self._at_once = True
        elif self._kept or not self._begun.keys() >= set(indices):
            self._reward_some(np.array(indices))
        if self._begun:
            for index in [*self._begun] if indices is None else self._begun.keys() & indices:
                self._seen.observations[index], self._seen.rewards[index] = self._begun.pop(index), 0.0

    def _raise_error(self, indices: Sequence[int] | None) -> None:
        failed = [index for index in indices or range(len(self._errors)) if self._errors[index, 0]]
        if not failed:
            return
        self.current = failed[0]
        error = self._errors[failed[0]].tobytes().rstrip(b"\0").decode(errors="replace")
        if indices is None:
            # All are finished at once, so the error of one is that of all.
            self._errors[failed] = 0
            self._begun.clear()
        else:
            self._errors[failed[0]] = 0
        raise mujoco.FatalError(error)

    def infos(self, rows: Sequence[int] | NDArray[np.int64] | None, *, first: bool) -> dict[str, NDArray[Any]]:
        """Return infos of a step, or of the ``first`` row of an episode, as new arrays. ``rows``: None for all."""
        told = self._seen.told if self._at_once else {name: array.copy for name, array in self._kept.items()}
        infos = {name: told[name]() for name in (self._told if first else self._kept)}
        return infos if rows is None else {name: values[rows] for name, values in infos.items()}

    def _reward_some(self, indices: NDArray[np.int64]) -> None:
        """Write the rewards of some environments, by way of copies of what they are made of."""
        seen, count = self._seen, len(indices)
        if self._some is None or len(self._some[0].rewards) < count:
            copies = seen.empty(count)
            self._some = copies, self._task.rules.rewarding(copies)
        some, reward = self._some
        for whole, part in zip(seen.arrays(), some.arrays(), strict=True):
            whole.take(indices, -2, part[..., :count, :], "clip")  # what "raise" does by way of one more copy
        reward()
        seen.observations[indices], seen.rewards[indices] = some.observations[:count], some.rewards[:count]
        for name, array in self._kept.items():
            if self._at_once:
                array[...] = seen.told[name]()
            array[indices] = some.told[name]()[:count]
        self._at_once = False

    def frames(self, index: int) -> int:
        """Return the sub-steps of one environment's episode."""
        return int(round(self._data[index].time / self._task.model.opt.timestep))  # noqa: RUF046 - MuJoCo has no types

    def render(self, index: int) -> NDArray[np.uint8]:
        """Return a picture of one environment, ``(height, width, 3)``, as the renderer of Gymnasium's class makes it.

        All share one viewer. Each has a camera of its own, which keeps what it looked at first, as there.
        """
        renderer = self._task.origin.mujoco_renderer
        renderer.data = self._data[index]
        viewer = renderer._get_viewer("rgb_array")  # noqa: SLF001 - Gymnasium's own
        viewer.data = renderer.data
        if index not in self._cameras:
            self._cameras[index] = viewer.cam = mujoco.MjvCamera()
            viewer._init_camera()  # noqa: SLF001 - likewise
            renderer._set_cam_config()  # noqa: SLF001 - likewise
        viewer.cam = self._cameras[index]
        viewer.make_context_current()
        picture: NDArray[np.uint8] = renderer.render("rgb_array")
        return picture

    def close(self) -> None:
        """Free the environments' data, and what pictures are made with."""
        renderer = self._task.origin.mujoco_renderer
        if renderer.viewer is not None:
            # In its context: elsewhere that would free what another viewer draws with.
            renderer.viewer.make_context_current()
            renderer.viewer.con.free()
            renderer.close()
        # The class's own, or it would keep one of these.
        self._task.origin.data = self._task.data
        self._data, self._tables = [], ()


def _view_of(data: Any, part: Slice) -> NDArray[np.float64]:  # noqa: ANN401 - MuJoCo has no types
    """Return a part of MuJoCo's data, as a view."""
    numbers: NDArray[np.float64] = getattr(data, part.field).reshape(-1)[part.start : part.stop]
    return numbers


class _CPart(ctypes.Structure):
    """``struct part`` of ``physics.c``."""

    _fields_ = (
        ("source", ctypes.c_void_p),
        ("target", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("low", ctypes.c_double),
        ("high", ctypes.c_double),
        ("limited", ctypes.c_int64),
    )


class _CBound(ctypes.Structure):
    """``struct bound`` of ``physics.c``."""

    _fields_ = (
        ("at", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("low", ctypes.c_double),
        ("high", ctypes.c_double),
        ("closed", ctypes.c_int64),
        ("outside", ctypes.c_int64),
    )


class _CPhysics(ctypes.Structure):
    """``struct physics`` of ``physics.c``."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("step", "finish", "model", "user_error")),
        *((name, ctypes.c_int64) for name in ("substeps", "controls", "parts_before", "parts_after", "bounds")),
        *((name, ctypes.c_int64) for name in ("limit", "single", "ends")),
        *((name, ctypes.c_void_p) for name in ("actions", "data", "control", "before", "after", "healthy")),
        *((name, ctypes.c_void_p) for name in ("is_healthy", "terminated", "truncated", "ages", "errors")),
        ("failed", ctypes.c_int64),
    )


def _address(function: Any) -> int | None:  # noqa: ANN401 - a function of a library
    return ctypes.cast(function, ctypes.c_void_p).value


def _part(data: Any, part: Slice, target: NDArray[np.float64]) -> _CPart:  # noqa: ANN401 - MuJoCo has no types
    """Return what copies a part of MuJoCo's data to where it is wanted."""
    source, limited = _view_of(data, part), part.low > -inf or part.high < inf
    return _CPart(source.ctypes.data, target.ctypes.data, source.size, part.low, part.high, limited)


def _bound(data: Any, bound: Bound) -> _CBound:  # noqa: ANN401 - likewise
    numbers = _view_of(data, bound.part)
    return _CBound(numbers.ctypes.data, numbers.size, *bound[1:])
