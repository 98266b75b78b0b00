"""The loop over the environments of a batch of MuJoCo's, compiled and in Python.

For each environment it writes the controls, calls MuJoCo's own functions, copies what is shown or rewarded, and sees
whether the environment is healthy.
"""

from __future__ import annotations

import ctypes
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import mujoco
import numpy as np

from vebench.backends.fast.commons import HOOKS, is_running, mujoco_library, pointers_of
from vebench.backends.fast.native import library

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from vebench.backends.fast.commons import Announced, Area
    from vebench.backends.fast.physics_tasks import Bound, Rules, Seen, Slice


class _Copy(NamedTuple):
    """Numbers of MuJoCo's, where they are to be written, and between which limits."""

    source: NDArray[np.float64]
    target: NDArray[np.float64]
    part: Slice

    @property
    def limited(self) -> bool:
        return self.part.low > -inf or self.part.high < inf


class _Copies(NamedTuple):
    """What is copied before and after one environment is stepped, and the numbers that say whether it is healthy."""

    before: tuple[_Copy, ...]
    after: tuple[_Copy, ...]
    healthy: tuple[tuple[NDArray[np.float64], Bound], ...]


def view_of(data: Any, part: Slice) -> NDArray[np.float64]:  # noqa: ANN401 - MuJoCo has no types
    """Return a part of MuJoCo's data, as a view."""
    numbers: NDArray[np.float64] = getattr(data, part.field).reshape(-1)[part.start : part.stop]
    return numbers


def _copies_of(rules: Rules, data: Any, index: int, seen: Seen) -> _Copies:  # noqa: ANN401
    start, end = (_Copy(view_of(data, rules.around), numbers[index], rules.around) for numbers in seen.around)
    after = [_Copy(view_of(data, part), seen.after[name][index], part) for name, part in rules.after.items()]
    row = seen.observations[index]
    shown, at = [], 0
    for part in rules.row:
        source = view_of(data, part)
        shown.append(_Copy(source, row[at : at + source.size], part))
        at += source.size
    healthy = tuple((view_of(data, bound.part), bound) for bound in rules.healthy)
    return _Copies((start,), (*shown, end, *after), healthy)


class PythonLoop:
    """The loop in Python: the methods of ``CompiledLoop``, for one process by itself."""

    def __init__(self, model: Any, substeps: int, rules: Rules, data: Sequence[Any], seen: Seen) -> None:  # noqa: ANN401
        self.current = 0
        self._model, self._substeps, self._contacts = model, substeps, rules.contacts
        copies = [_copies_of(rules, one, index, seen) for index, one in enumerate(data)]
        self._environments = list(zip(data, seen.actions, copies, strict=True))
        self._healthy = seen.healthy
        self._resting: Sequence[int] = ()

    def offer(self, resting: Sequence[int]) -> None:
        """Note which environments rest."""
        self._resting = resting

    def withdraw(self) -> None:
        """Do nothing: no other process can step these environments."""

    def advance(self) -> int:
        """Step the environments, each by MuJoCo's Python package."""
        unhealthy = 0
        for index, (data, action, copies) in enumerate(self._environments):
            if index in self._resting:
                continue
            self.current = index
            _copy(copies.before)
            data.ctrl[:] = action
            mujoco.mj_step(self._model, data, self._substeps)
            if self._contacts:
                mujoco.mj_rnePostConstraint(self._model, data)
            _copy(copies.after)
            healthy = all(_within(numbers, bound) for numbers, bound in copies.healthy)
            self._healthy[index] = healthy
            unhealthy += not healthy
        return unhealthy

    def close(self) -> None:
        """Let go of the environments' data."""
        self._environments = []


def _copy(copies: Iterable[_Copy]) -> None:
    for copy in copies:
        if copy.limited:
            np.clip(copy.source, copy.part.low, copy.part.high, out=copy.target)
        else:
            copy.target[:] = copy.source


def _within(numbers: NDArray[np.float64], bound: Bound) -> bool:
    _, low, high, closed, outside = bound
    return all((low <= x <= high if closed else low < x < high) != outside for x in numbers.tolist())


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
        *(
            (name, ctypes.c_int64)
            for name in ("environments", "substeps", "controls", "parts_before", "parts_after", "bounds")
        ),
        *(
            (name, ctypes.c_void_p)
            for name in ("actions", "data", "control", "before", "after", "healthy", "is_healthy", "resting")
        ),
        ("current", ctypes.c_int64),
        ("failed", ctypes.c_int64),
        ("error", ctypes.c_char * 1024),
        ("apart", ctypes.c_char * 128),
        ("untaken", ctypes.c_uint64),
        ("apart_too", ctypes.c_char * 120),
        ("finished", ctypes.c_int64),
    )


_WITH_OTHERS = -2


class CompiledLoop:
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
        native, theirs = library(), mujoco_library()
        if native is None or theirs is None:
            raise RuntimeError("the compiled loop needs its library and MuJoCo's")
        copies = [_copies_of(rules, one, index, seen) for index, one in enumerate(data)]
        # MuJoCo's controls are of float64. Others are converted, for all environments at a time.
        self._actions = seen.actions
        self._controls = seen.actions if seen.actions.dtype == np.float64 else area.zeros(seen.actions.shape)
        self._resting = area.zeros((len(data),))
        their_model, pointers = pointers_of(model, data)
        tables: tuple[ctypes.Array[Any], ...] = (
            (ctypes.c_void_p * len(data))(*pointers),
            (ctypes.c_void_p * len(data))(*(one.ctrl.ctypes.data for one in data)),
            _c_parts([copy for one in copies for copy in one.before]),
            _c_parts([copy for one in copies for copy in one.after]),
            _c_bounds([pair for one in copies for pair in one.healthy]),
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
        self._kept: tuple[object, ...] = (model, data, copies, tables, seen)
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
                raise RuntimeError("a process died that was stepping environments of this one")

    def close(self) -> None:
        """Let go of the environments' data."""
        if self._offered:
            self._native.vebench_physics_withdraw(self._reference)
        self._loop.environments = 0
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
        *(_CBound(numbers.ctypes.data, numbers.size, *bound[1:]) for numbers, bound in bounds)
    )
