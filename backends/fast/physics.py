"""MuJoCo's tasks as Gymnasium's classes step them, many environments of one model at a time.

Episodes begin by Gymnasium's own code, on the data of one environment after another. Steps are MuJoCo's own functions,
called in a compiled loop, between which and the rows there are only copies.
"""

from __future__ import annotations

import ctypes
from math import inf
from typing import TYPE_CHECKING, Any

import gymnasium
import mujoco
import numpy as np
from gymnasium.utils import seeding

from vebench.backends.environments.suites import ALWAYS_DRAWN
from vebench.backends.fast.commons import HOOKS, Area, commons_for, is_running, mujoco_library, pointers_of
from vebench.backends.fast.native import needed
from vebench.backends.fast.physics_tasks import RULES, Seen
from vebench.backends.fast.share import episode_limit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from vebench.backends.fast.commons import Announced, Commons
    from vebench.backends.fast.physics_tasks import Bound, Rules, Slice
    from vebench.backends.interface import Task
    from vebench.backends.shared_memory.memory_layout import RowArrays


_NEVER = 1 << 62


class PhysicsTask:
    """A task, as the environments of one process share it: one model, and one environment of Gymnasium's own class.

    Raises ValueError if it may not be ``compiled``.
    """

    how = "physics compiled"
    uncompiled = ""
    fewest = 1
    refuses = frozenset[str]()

    def __init__(self, env_id: str, settings: Mapping[str, Any], *, compiled: bool = True) -> None:
        if not compiled:
            raise ValueError("it steps in compiled code only")
        mujoco_library()  # or an error
        environment = gymnasium.make(env_id, disable_env_checker=True, **settings)
        origin: Any = environment.unwrapped
        self.origin, self.model, self.data = origin, origin.model, origin.data
        self.frame_skip = int(origin.frame_skip)
        self.limit = episode_limit(environment)
        self.rules: Rules = RULES[env_id](origin)
        self.observation_space = environment.observation_space
        shown, declared = (sum(_view_of(self.data, part).size for part in self.rules.row), self.observation_space.shape)
        if declared != (shown,):
            raise ValueError(f"observations have {shown} numbers and their space {declared}: is a setting not a bool?")
        self.action_space = environment.action_space
        unread = () if self.rules.contacts else ("mj_rnePostConstraint is skipped, since no row depends on it",)
        self.leaves_out: tuple[str, ...] = ("no infos", *unread)

    @staticmethod
    def settings_of(task: Task) -> dict[str, Any]:
        """Return the settings with which a task is what every backend steps."""
        noise = {"reset_noise_scale": 0.0} if task.exact and task.id not in ALWAYS_DRAWN else {}
        return {"frame_skip": task.frame_skip, **noise}

    def commons(self, count: int) -> Commons | None:
        """Return memory in which all processes of a team can step each other's environments, None if they cannot."""
        return commons_for(self.model, count)

    def batch(self, rows: RowArrays, area: Area | None = None) -> PhysicsBatch:
        """Build as many environments as there are rows."""
        return PhysicsBatch(self, rows, area or Area())


class PhysicsBatch:
    """Environments whose physics are stepped one after another."""

    def __init__(self, task: PhysicsTask, rows: RowArrays, area: Area) -> None:
        self._task = task
        (self._observations,), self._rewards, self._terminated, self._truncated, (actions,) = rows
        count = len(self._rewards)
        self._data = area.data(task.model, count)
        self._random: list[np.random.Generator | None] = [None] * count
        rules = task.rules
        around = area.zeros((2, count, _view_of(task.data, rules.around).size))
        after = {name: area.zeros((count, _view_of(task.data, part).size)) for name, part in rules.after.items()}
        self._healthy = area.zeros((count,))
        self._healthy[:] = 1.0
        seen = Seen(actions, around, after, self._healthy, self._observations, self._rewards)
        self._loop = _CompiledLoop(task.model, task.frame_skip, rules, self._data, seen, area)
        self._offer, self._advance, self._reward = self._loop.offer, self._loop.advance, rules.reward(seen)
        self._ends = rules.ends
        # Whether any flag may still be set from the step before.
        self._flagged = False
        # First observations of episodes that have begun in a step, until they are shown: it may be broken off.
        self._begun: dict[int, NDArray[np.float64]] = {}
        # Steps of the batch, and at which of them each environment's episode is cut off; none is before the next.
        self._clock = 0
        self._limit = _NEVER if task.limit is None else task.limit
        self._cut_offs = [_NEVER] * count
        self._next_cut_off = 0

    @property
    def current(self) -> int:
        """Index of the environment in use now, or last."""
        return self._loop.current

    @current.setter
    def current(self, index: int) -> None:
        self._loop.current = index

    def reset(self, index: int, seed: int | None) -> None:
        """Start a new episode in one environment, by Gymnasium's own code on its data."""
        self._loop.withdraw()
        self._begun.pop(index, None)
        self._observations[index] = self._begin(index, seed, self._clock)

    def _begin(self, index: int, seed: int | None, clock: int) -> NDArray[np.float64]:
        """Start a new episode, whose first step will be the next after ``clock``; return its first observation."""
        self._loop.current = index
        origin, data = self._task.origin, self._data[index]
        if seed is not None or self._random[index] is None:
            self._random[index], _ = seeding.np_random(seed)
        origin.data, origin.np_random = data, self._random[index]
        mujoco.mj_resetData(self._task.model, data)
        shown: NDArray[np.float64] = origin.reset_model()
        self._cut_offs[index] = clock + self._limit
        self._next_cut_off = min(self._next_cut_off, self._cut_offs[index])
        return shown

    def step(self, resting: Sequence[int]) -> Sequence[int]:
        """Step the environments; return those that have ended their episodes. Those that rest begin a new one."""
        self._offer(resting)
        # Meanwhile another process that is free steps the others.
        for index in resting:
            if index not in self._begun:
                self._begun[index] = self._begin(index, None, self._clock + 1)
        unhealthy = self._advance()
        self._clock += 1
        self._reward()
        while self._begun:
            index, shown = self._begun.popitem()
            self._observations[index], self._rewards[index] = shown, 0.0
        if self._flagged:
            self._terminated[:] = self._truncated[:] = self._flagged = False
        ended = self._end_unhealthy(resting) if unhealthy and self._ends else []
        return ended if self._clock < self._next_cut_off else self._cut_off(resting, ended)

    def _end_unhealthy(self, resting: Sequence[int]) -> list[int]:
        ended = [index for index, healthy in enumerate(self._healthy.tolist()) if not healthy and index not in resting]
        self._terminated[ended] = self._flagged = True
        return ended

    def _cut_off(self, resting: Sequence[int], ended: list[int]) -> list[int]:
        """Cut off the episodes that have reached the limit; return these and those that ``ended`` otherwise."""
        due = [index for index, at in enumerate(self._cut_offs) if at == self._clock and index not in resting]
        self._next_cut_off = min((at for at in self._cut_offs if at > self._clock), default=_NEVER)
        if due:
            self._truncated[due] = self._flagged = True
        return sorted({*ended, *due})

    def frames(self, index: int) -> int:
        """Return the sub-steps of one environment's episode."""
        return int(round(self._data[index].time / self._task.model.opt.timestep))  # noqa: RUF046 - MuJoCo has no types

    def close(self) -> None:
        """Free the environments' data."""
        self._loop.close()
        # The class's own, or it would keep one of these.
        self._task.origin.data = self._task.data
        self._data = []


# The loop over the environments of a batch: for each it writes the controls, calls MuJoCo's own functions, copies what
# is shown or rewarded, and sees whether the environment is healthy.


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
        *((name, ctypes.c_int64) for name in ("environments", "substeps", "controls")),
        *((name, ctypes.c_int64) for name in ("parts_before", "parts_after", "bounds")),
        *((name, ctypes.c_void_p) for name in ("actions", "data", "control", "before")),
        *((name, ctypes.c_void_p) for name in ("after", "healthy", "is_healthy", "resting")),
        ("current", ctypes.c_int64),
        ("failed", ctypes.c_int64),
        ("error", ctypes.c_char * 1024),
        ("apart", ctypes.c_char * 128),
        ("untaken", ctypes.c_uint64),
        ("apart_too", ctypes.c_char * 120),
        ("finished", ctypes.c_int64),
    )


_WITH_OTHERS = -2


class _CompiledLoop:
    """The loop in ``physics.c``, built in an area that other processes may have too.

    They step what this one has offered and not begun, and this one steps what they have.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a loop steps, and where it is built
        self,
        model: Any,  # noqa: ANN401 - MuJoCo has no types
        substeps: int,
        rules: Rules,
        data: Sequence[Any],
        seen: Seen,
        area: Area,
    ) -> None:
        native, theirs = needed(), mujoco_library()
        before: list[_CPart] = []
        after: list[_CPart] = []
        for index, one in enumerate(data):
            start, end = (_part(one, rules.around, numbers[index]) for numbers in seen.around)
            before.append(start)
            at = 0
            for part in rules.row:
                after.append(_part(one, part, seen.observations[index, at:]))
                at += after[-1].count
            after += [end, *(_part(one, part, seen.after[name][index]) for name, part in rules.after.items())]
        healthy = [_bound(one, bound) for one in data for bound in rules.healthy]
        # MuJoCo's controls are of float64. Others are converted, for all environments at a time.
        self._actions = seen.actions
        self._controls = seen.actions if seen.actions.dtype == np.float64 else area.zeros(seen.actions.shape)
        self._resting = area.zeros((len(data),))
        their_model, pointers = pointers_of(model, data)
        tables: tuple[ctypes.Array[Any], ...] = (
            (ctypes.c_void_p * len(data))(*pointers),
            (ctypes.c_void_p * len(data))(*(one.ctrl.ctypes.data for one in data)),
            (_CPart * len(before))(*before),
            (_CPart * len(after))(*after),
            (_CBound * len(healthy))(*healthy),
        )
        tables = tuple(map(area.keep, tables))
        self._loop = area.keep(
            _CPhysics(
                _address(theirs.mj_step),
                _address(theirs.mj_rnePostConstraint) if rules.contacts else None,
                their_model,
                ctypes.addressof(ctypes.c_void_p.in_dll(theirs, "mju_user_error")),
                len(data),
                substeps,
                int(model.nu),
                1,  # around
                len(rules.row) + 1 + len(rules.after),
                len(rules.healthy),
                self._controls.ctypes.data,
                *(ctypes.addressof(table) for table in tables),
                seen.healthy.ctypes.data,
                self._resting.ctypes.data,
                failed=-1,
                finished=len(data),
            )
        )
        # The structure has their addresses only.
        self._kept: tuple[object, ...] = (model, data, tables, seen)
        self._native = native
        self._step = native.vebench_physics
        self._step.restype = ctypes.c_int64
        self._reference = ctypes.byref(self._loop)
        self._rested: Sequence[int] = ()
        self._offered = False
        self._area = area
        # Known at the first offer: by then all have built theirs.
        self._others: Sequence[Announced] | None = None
        self._loops: Any = None
        area.announce(ctypes.addressof(self._loop))

    @property
    def current(self) -> int:
        """The index of the environment in use now, or last."""
        return int(self._loop.current)

    @current.setter
    def current(self, index: int) -> None:
        self._loop.current = index

    def offer(self, resting: Sequence[int]) -> None:
        """Let all environments but those that rest be stepped, by other processes too. The actions are there."""
        if self._others is None:
            self._others = others = self._area.others()
            self._loops = (ctypes.c_void_p * len(others))(*(other.address for other in others))
        self.withdraw()
        if self._controls is not self._actions:
            self._controls[...] = self._actions
        if self._rested:
            self._resting[self._rested] = 0
        if resting:
            self._resting[resting] = 1
        self._rested = resting
        self._offered = True
        self._native.vebench_physics_offer(self._reference)

    def withdraw(self) -> None:
        """See to it that no other process steps these environments, if a step was offered and broken off."""
        while self._offered and not self._native.vebench_physics_withdraw(self._reference):
            self._check_others()
        self._offered = False

    def advance(self) -> int:
        """Step the environments that were offered and copy what is seen of them; return how many are not healthy.

        Other threads can run Python meanwhile, but no such call. Raises ``mujoco.FatalError`` for an error of MuJoCo's,
        and RuntimeError if a process has died that had begun to step one of them.
        """
        while True:
            with HOOKS:
                unhealthy: int = self._step(self._reference, self._loops, len(self._others or ()))
            if unhealthy != _WITH_OTHERS:
                break
            self._check_others()
        self._offered = False
        if unhealthy < 0:
            self._loop.current = self._loop.failed
            raise mujoco.FatalError(self._loop.error.decode(errors="replace"))
        return unhealthy

    def _check_others(self) -> None:
        for other in self._others or ():
            if not is_running(other.process):
                raise RuntimeError("a process died while it was stepping environments of this one")

    def close(self) -> None:
        """Let go of the environments' data."""
        if self._offered:
            self._native.vebench_physics_withdraw(self._reference)
        self._loop.environments = 0
        self._kept = ()


def _address(function: Any) -> int | None:  # noqa: ANN401 - a function of a library
    return ctypes.cast(function, ctypes.c_void_p).value


def _part(data: Any, part: Slice, target: NDArray[np.float64]) -> _CPart:  # noqa: ANN401 - MuJoCo has no types
    """Return what copies a part of MuJoCo's data to where it is wanted."""
    source, limited = _view_of(data, part), part.low > -inf or part.high < inf
    return _CPart(source.ctypes.data, target.ctypes.data, source.size, part.low, part.high, limited)


def _bound(data: Any, bound: Bound) -> _CBound:  # noqa: ANN401 - likewise
    numbers = _view_of(data, bound.part)
    return _CBound(numbers.ctypes.data, numbers.size, *bound[1:])
