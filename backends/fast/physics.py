"""MuJoCo's tasks as Gymnasium's classes step them, many environments of one model at a time.

Episodes begin by Gymnasium's own code, on the data of one environment after another. Steps are MuJoCo's own functions,
called in a compiled loop or in one of Python, between which and the rows there are only copies.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache
from math import inf
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import gymnasium
import mujoco
import numpy as np
from gymnasium.utils import seeding
from gymnasium.wrappers import TimeLimit

from vebench.backends.environments.physics import ALWAYS_DRAWN
from vebench.backends.fast.native import NOT_BUILT, library
from vebench.backends.fast.rewards import RULES, Part, Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from vebench.backends.fast.rewards import Bound, Rules
    from vebench.backends.setup import Task
    from vebench.backends.shared_memory.memory_layout import Arrays

_NEVER = 1 << 62


class PhysicsTask:
    """A task, as the environments of one process share it: one model, and one environment of Gymnasium's own class."""

    def __init__(self, env_id: str, settings: Mapping[str, Any], *, compiled: bool = True) -> None:
        environment = gymnasium.make(env_id, disable_env_checker=True, **settings)
        self.origin: Any = environment.unwrapped
        self.model = self.origin.model
        self.frame_skip = int(self.origin.frame_skip)
        self.limit = _limit(environment)
        self.rules: Rules = RULES[env_id](self.origin)
        self.observation_space = environment.observation_space
        self.action_space = environment.action_space
        self.compiled = compiled and library() is not None and _mujoco() is not None
        self.how = "physics compiled" if self.compiled else f"physics in Python ({_why_in_python(compiled)})"
        unread = () if self.rules.contacts else ("no mj_rnePostConstraint, of which no row shows anything",)
        self.leaves_out: tuple[str, ...] = ("no infos", *unread)

    @staticmethod
    def settings_of(task: Task) -> dict[str, Any]:
        """Return the settings with which a task is what every backend steps."""
        noise = {"reset_noise_scale": 0.0} if task.exact and task.id not in ALWAYS_DRAWN else {}
        return {"frame_skip": task.frame_skip, **noise}

    def batch(self, rows: Arrays) -> PhysicsBatch:
        """Build as many environments as there are rows."""
        return PhysicsBatch(self, rows)


def _limit(environment: gymnasium.Env[Any, Any]) -> int | None:
    """Return the steps after which an episode is cut off, None if it is not."""
    while isinstance(environment, gymnasium.Wrapper):
        if isinstance(environment, TimeLimit) and environment.spec is not None:
            return environment.spec.max_episode_steps
        environment = environment.env
    return None


def _why_in_python(compiled: bool) -> str:
    if not compiled:
        return "as asked for"
    return NOT_BUILT if library() is None else "MuJoCo's library was not found"


class PhysicsBatch:
    """Environments whose physics are stepped one after another."""

    def __init__(self, task: PhysicsTask, rows: Arrays) -> None:
        self._task = task
        (self._observations,), rewards, self._terminated, self._truncated, (actions,) = rows
        count = len(rewards)
        self._data = [mujoco.MjData(task.model) for _ in range(count)]
        self._random: list[np.random.Generator | None] = [None] * count
        rules = task.rules
        before, after = (_room(part, self._data) for part in (rules.before, rules.after))
        copies = [
            _Copies(
                [_Copy(flat(data, part), before[name][index], part) for name, part in rules.before.items()],
                [
                    *_row(rules.row, data, self._observations[index]),
                    *(_Copy(flat(data, part), after[name][index], part) for name, part in rules.after.items()),
                ],
                [(flat(data, bound.part), bound) for bound in rules.healthy],
            )
            for index, data in enumerate(self._data)
        ]
        healthy = np.ones(count)
        self._loop: _Loop = (_CompiledLoop if task.compiled else _PythonLoop)(
            task, self._data, actions, copies, healthy
        )
        self._advance = self._loop.advance
        self._healthy = healthy
        self._reward = rules.reward(Seen(actions, before, after, healthy, rewards))
        self._ends = rules.ends
        # Whether any flag may still be set from the step before.
        self._flagged = False
        # Steps of the batch, and at which of them each environment's episode is cut off; none is before the next.
        self._clock = 0
        self._limit = _NEVER if task.limit is None else task.limit
        self._cut_offs = [_NEVER] * count
        self._next_cut_off = 0

    @property
    def current(self) -> int:
        """Index of the environment in use now, or last."""
        return self._loop.current

    def reset(self, index: int, seed: int | None) -> None:
        """Start a new episode in one environment, by Gymnasium's own code on its data."""
        self._loop.current = index
        origin, data = self._task.origin, self._data[index]
        if seed is not None or self._random[index] is None:
            self._random[index], _ = seeding.np_random(seed)
        origin.data, origin.np_random = data, self._random[index]
        mujoco.mj_resetData(self._task.model, data)
        self._observations[index] = origin.reset_model()
        self._cut_offs[index] = self._clock + self._limit
        self._next_cut_off = min(self._next_cut_off, self._cut_offs[index])

    def step(self, resting: Sequence[int]) -> Sequence[int]:
        """Step the environments that are not resting; return those that have ended their episodes."""
        unhealthy = self._advance(resting)
        self._reward()
        self._clock += 1
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
        self._data = []


class _Copy(NamedTuple):
    """Numbers of MuJoCo's, where they are to be written, and between which limits."""

    source: NDArray[np.float64]
    target: NDArray[np.float64]
    part: Part

    @property
    def limited(self) -> bool:
        return self.part.low > -inf or self.part.high < inf


class _Copies(NamedTuple):
    """What is copied before and after one environment is stepped, and the numbers that tell whether it is healthy."""

    before: list[_Copy]
    after: list[_Copy]
    healthy: list[tuple[NDArray[np.float64], Bound]]


def flat(data: Any, part: Part) -> NDArray[np.float64]:  # noqa: ANN401 - MuJoCo has no types
    """Return a part of MuJoCo's data, as a view."""
    numbers: NDArray[np.float64] = getattr(data, part.field).reshape(-1)[part.start : part.stop]
    return numbers


def _room(parts: Mapping[str, Part], data: Sequence[Any]) -> dict[str, NDArray[np.float64]]:
    return {name: np.zeros((len(data), flat(data[0], part).size)) for name, part in parts.items()} if data else {}


def _row(parts: Iterable[Part], data: Any, row: NDArray[np.float64]) -> list[_Copy]:  # noqa: ANN401
    """Return what writes an observation."""
    copies, at = [], 0
    for part in parts:
        source = flat(data, part)
        copies.append(_Copy(source, row[at : at + source.size], part))
        at += source.size
    if at != len(row):
        raise ValueError(
            f"the observation space has {len(row)} numbers, but observations {at}: a setting is not a bool"
        )
    return copies


class _Loop(Protocol):
    current: int

    def advance(self, resting: Sequence[int]) -> int:
        """Step all environments but those that rest, and copy what is seen of them; return how many are not healthy."""

    def close(self) -> None:
        """Let go of the environments' data."""


class _PythonLoop:
    """The loop over the environments in Python."""

    def __init__(
        self,
        task: PhysicsTask,
        data: Sequence[Any],
        actions: NDArray[Any],
        copies: Sequence[_Copies],
        healthy: NDArray[np.float64],
    ) -> None:
        self.current = 0
        self._task = task
        self._environments = list(zip(data, actions, copies, strict=True))
        self._healthy = healthy

    def advance(self, resting: Sequence[int]) -> int:
        model, frame_skip, contacts = self._task.model, self._task.frame_skip, self._task.rules.contacts
        unhealthy = 0
        for index, (data, action, copies) in enumerate(self._environments):
            if index in resting:
                continue
            self.current = index
            _copy(copies.before)
            data.ctrl[:] = action
            mujoco.mj_step(model, data, frame_skip)
            if contacts:
                mujoco.mj_rnePostConstraint(model, data)
            _copy(copies.after)
            healthy = all(_within(numbers, bound) for numbers, bound in copies.healthy)
            self._healthy[index] = healthy
            unhealthy += not healthy
        return unhealthy

    def close(self) -> None:
        self._environments = []


def _copy(copies: Iterable[_Copy]) -> None:
    for copy in copies:
        if copy.limited:
            np.clip(copy.source, copy.part.low, copy.part.high, out=copy.target)
        else:
            copy.target[:] = copy.source


def _within(numbers: NDArray[np.float64], bound: Bound) -> bool:
    _, low, high, closed = bound
    return all(low <= x <= high if closed else low < x < high for x in numbers.tolist())


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
    )


class _CPhysics(ctypes.Structure):
    """``struct physics`` of ``physics.c``."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("step", "finish", "model", "user_error")),
        *(
            (name, ctypes.c_int64)
            for name in ("environments", "substeps", "controls", "parts_before", "parts_after", "bounds")
        ),
        *(
            (name, ctypes.c_void_p)
            for name in ("actions", "data", "control", "before", "after", "healthy", "is_healthy")
        ),
        ("current", ctypes.c_int64),
        ("error", ctypes.c_char * 1024),
    )


class _CompiledLoop:
    """The loop over the environments in ``physics.c``."""

    def __init__(
        self,
        task: PhysicsTask,
        data: Sequence[Any],
        actions: NDArray[Any],
        copies: Sequence[_Copies],
        healthy: NDArray[np.float64],
    ) -> None:
        native, theirs = library(), _mujoco()
        if native is None or theirs is None:
            raise RuntimeError("the compiled loop needs its library and MuJoCo's")
        # MuJoCo's controls are of float64. Others are converted, for all environments at a time.
        self._actions = actions
        self._controls = actions if actions.dtype == np.float64 else np.empty(actions.shape)
        self._resting = np.zeros(len(data), np.uint8)
        pointers = [_pointers(task.model, one) for one in data]
        tables = (
            (ctypes.c_void_p * len(data))(*(pointer for _, pointer in pointers)),
            (ctypes.c_void_p * len(data))(*(one.ctrl.ctypes.data for one in data)),
            _c_parts([copy for one in copies for copy in one.before]),
            _c_parts([copy for one in copies for copy in one.after]),
            _c_bounds([pair for one in copies for pair in one.healthy]),
        )
        self._physics = _CPhysics(
            _address(theirs.mj_step),
            _address(theirs.mj_rnePostConstraint) if task.rules.contacts else None,
            pointers[0][0] if pointers else None,
            ctypes.addressof(ctypes.c_void_p.in_dll(theirs, "mju_user_error")),
            len(data),
            task.frame_skip,
            int(task.model.nu),
            len(task.rules.before),
            len(task.rules.row) + len(task.rules.after),
            len(task.rules.healthy),
            self._controls.ctypes.data,
            *(ctypes.addressof(table) for table in tables),
            healthy.ctypes.data,
        )
        # The structure has their addresses only.
        self._kept = (task.model, data, copies, tables, healthy)
        self._step = native.vebench_physics
        self._step.restype = ctypes.c_int64
        self._reference = ctypes.byref(self._physics)
        self._marks = ctypes.c_void_p(self._resting.ctypes.data)

    @property
    def current(self) -> int:
        return int(self._physics.current)

    @current.setter
    def current(self, index: int) -> None:
        self._physics.current = index

    def advance(self, resting: Sequence[int]) -> int:
        if self._controls is not self._actions:
            self._controls[...] = self._actions
        if resting:
            self._resting[resting] = 1
            unhealthy: int = self._step(self._reference, self._marks)
            self._resting[resting] = 0
        else:
            unhealthy = self._step(self._reference, None)
        if unhealthy < 0:
            raise mujoco.FatalError(self._physics.error.decode(errors="replace"))
        return unhealthy

    def close(self) -> None:
        self._physics.environments = 0
        self._kept = ()


def _address(function: Any) -> int | None:  # noqa: ANN401 - a function of a library
    return ctypes.cast(function, ctypes.c_void_p).value


def _c_parts(copies: Sequence[_Copy]) -> ctypes.Array[_CPart]:
    return (_CPart * len(copies))(
        *(
            _CPart(
                copy.source.ctypes.data,
                copy.target.ctypes.data,
                copy.source.size,
                copy.part.low,
                copy.part.high,
                copy.limited,
            )
            for copy in copies
        )
    )


def _c_bounds(bounds: Sequence[tuple[NDArray[np.float64], Bound]]) -> ctypes.Array[_CBound]:
    return (_CBound * len(bounds))(
        *(_CBound(numbers.ctypes.data, numbers.size, bound.low, bound.high, bound.closed) for numbers, bound in bounds)
    )


@cache
def _mujoco() -> ctypes.CDLL | None:
    """Return the library of MuJoCo that its Python package has loaded, None if it cannot be told."""
    for path in sorted(Path(mujoco.__file__).parent.glob("libmujoco*")):
        with suppress(OSError, AttributeError, ValueError):
            found = ctypes.CDLL(str(path))
            if _is_loaded(found):
                return found
    return None


_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def _is_loaded(found: ctypes.CDLL) -> bool:
    """Return whether it is the one that the package has loaded: what is set through that is seen in this."""
    callback = _CALLBACK(lambda _model, _data: None)
    seen = ctypes.c_void_p.in_dll(found, "mjcb_control")
    return _with_control(callback, lambda: seen.value) == ctypes.cast(callback, ctypes.c_void_p).value


def _pointers(model: Any, data: Any) -> tuple[int, int]:  # noqa: ANN401 - MuJoCo has no types
    """Return where MuJoCo has the model and these data, as it tells those that it calls for controls."""
    told: list[tuple[int, int]] = []
    here = get_ident()

    def tell(their_model: int, their_data: int) -> None:
        # Other threads may be stepping environments of their own.
        if get_ident() == here:
            told.append((their_model, their_data))

    _with_control(_CALLBACK(tell), lambda: mujoco.mj_forward(model, data))
    mujoco.mj_resetData(model, data)
    if not told:
        raise RuntimeError("MuJoCo asked for no controls: are actuators disabled?")
    return told[-1]


def _with_control(callback: Any, act: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever it returns
    """Act while MuJoCo calls ``callback`` for controls; afterwards it calls again whatever it called before."""
    before = mujoco.get_mjcb_control()
    mujoco.set_mjcb_control(callback)
    try:
        return act()
    finally:
        mujoco.set_mjcb_control(before)
