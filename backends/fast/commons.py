"""MuJoCo's C library, and memory that all processes of a team have at the same addresses.

By that memory each process can step the environments of the others. Who makes a ``Commons`` makes it before the other
processes are forked. Each of them then builds in its own ``Area`` of it, and announces where. Processes that are not
forked have nothing of it, and step their own environments only.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any, TypeVar, cast

import mujoco
import numpy as np

from vebench.backends.fast.native import needed
from vebench.backends.shared_memory.errors import IfForgotten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray


# MuJoCo has one callback for controls and one error handler in each process. Code that replaces and restores either of
# them holds this lock meanwhile.
HOOKS = Lock()
if hasattr(os, "register_at_fork"):
    # A forked process must not begin with what another thread had set, nor with a lock that is never released.
    os.register_at_fork(before=HOOKS.acquire, after_in_parent=HOOKS.release, after_in_child=HOOKS.release)


@cache
def mujoco_library() -> ctypes.CDLL:
    """Return the library of MuJoCo that its Python package has loaded. Raises ValueError if it is not found."""
    for path in sorted(Path(mujoco.__file__).parent.glob("libmujoco*")):
        with suppress(OSError, AttributeError, ValueError):
            found = ctypes.CDLL(str(path))
            if _is_loaded(found) and all(hasattr(found, name) for name in _NEEDED):
                return found
    raise ValueError("MuJoCo's library was not found: reinstall mujoco")


# What the compiled loop calls, and where MuJoCo looks up what to do at an error.
_NEEDED = ("mj_step", "mj_rnePostConstraint", "mju_user_error")
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def _is_loaded(found: ctypes.CDLL) -> bool:
    """Return whether it is the one that the package has loaded: what is set through that is seen in this."""
    callback = _CALLBACK(lambda _model, _data: None)
    seen = ctypes.c_void_p.in_dll(found, "mjcb_control")
    return bool(_with_control(callback, lambda: seen.value) == ctypes.cast(callback, ctypes.c_void_p).value)


def pointers_of(model: Any, batch: Sequence[Any]) -> tuple[int, list[int]]:  # noqa: ANN401 - MuJoCo has no types
    """Return the addresses of MuJoCo's model and these data, from its callback for controls. Raises RuntimeError."""
    told: list[tuple[int, int]] = []
    here = get_ident()

    def tell(their_model: int, their_data: int) -> None:
        # Other threads may be stepping environments of their own.
        if get_ident() == here:
            told.append((their_model, their_data))

    def ask() -> None:
        for data in batch:
            mujoco.mj_forward(model, data)
            mujoco.mj_resetData(model, data)

    _with_control(_CALLBACK(tell), ask)
    if len(told) != len(batch):
        raise RuntimeError("MuJoCo did not ask for controls: the model has none, or another thread set mjcb_control")
    return (told[0][0] if told else 0), [data for _, data in told]


def _with_control(callback: Any, act: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever it returns
    """Act while MuJoCo calls ``callback`` for controls; afterwards it calls again whatever it called before."""
    with HOOKS:
        before = mujoco.get_mjcb_control()
        mujoco.set_mjcb_control(callback)
        try:
            return act()
        finally:
            mujoco.set_mjcb_control(before)


_ALIGNMENT = 64
# Beside what MuJoCo allocates: tables and numbers of one environment, and what there is once for each process.
_TABLES = 16384

_Structure = TypeVar("_Structure", bound="ctypes.Array[Any] | ctypes.Structure")


class Announced(ctypes.Structure):
    """What a process has announced: an address, 0 before that, and the id of that process."""

    _fields_ = (("address", ctypes.c_uint64), ("process", ctypes.c_uint64))


class Commons:
    """Memory in common for ``count`` environments of one model, each of which takes ``size`` bytes.

    The ``scratch`` bytes that each MjData has for a single step, its arena, are the same for all: those of the process
    that steps, at ``scratch_at``. It is pickled as None: a process that is not forked has no part in it.
    """

    def __init__(self, count: int, size: int, scratch: int) -> None:
        native = needed()
        directory = _whole(count * ctypes.sizeof(Announced))
        handle = native.vebench_commons(ctypes.c_size_t(directory + count * size), ctypes.c_size_t(scratch))
        if not handle:
            raise MemoryError(f"no address space for {count} environments of {size} bytes")
        self.handle, self.scratch = ctypes.c_void_p(handle), scratch
        self._base = native.vebench_commons_base(self.handle)
        self._first, self._size = self._base + directory, size
        self.scratch_at = int(native.vebench_commons_scratch(self.handle))
        self.entries = (Announced * count).from_address(self._base)
        _mapped[:] = [other for other in _mapped if other() is not None]
        _mapped.append(IfForgotten(self, partial(native.vebench_commons_leave, self.handle)))

    def area(self, start: int, stop: int) -> Area:
        """Return the area of the process that has the environments from ``start`` up to ``stop``."""
        return Area(self, start, self._first + start * self._size, self._first + stop * self._size)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


_mapped: list[IfForgotten[Commons]] = []
atexit.register(_mapped.clear)  # what is still in use of it when Python ends must not be gone by then


class Area:
    """Where the environments of one process are built: its part of the memory in common, or memory of its own."""

    def __init__(self, commons: Commons | None = None, number: int = 0, start: int = 0, stop: int = 0) -> None:
        self._commons, self._number = commons, number
        self._next, self._stop = start, stop

    def _take(self, size: int) -> int:
        taken, self._next = self._next, self._next + _whole(size)
        if self._next > self._stop:
            raise MemoryError("the shared memory is too small for what is built in it")
        return taken

    def zeros(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Return an array of zeros. The memory stays for as long as it does."""
        if self._commons is None:
            return np.zeros(shape)
        count = int(np.prod(shape, dtype=np.int64))
        numbers: Any = (ctypes.c_double * count).from_address(self._take(8 * count))
        numbers.area = self  # which nothing else keeps
        return np.ctypeslib.as_array(numbers).reshape(shape)

    def keep(self, structure: _Structure) -> _Structure:
        """Return the structure, or a copy in this area to be used instead. The memory stays for as long as it does."""
        if self._commons is None:
            return structure
        size = ctypes.sizeof(structure)
        address = self._take(size)
        ctypes.memmove(address, ctypes.addressof(structure), size)
        copy: Any = type(structure).from_address(address)
        copy.area = self  # see zeros
        return cast("_Structure", copy)

    def data(self, model: Any, count: int) -> list[Any]:  # noqa: ANN401 - MuJoCo has no types
        """Return ``count`` ``mujoco.MjData`` in this area. The memory stays for as long as they do."""
        if self._commons is None:
            return [mujoco.MjData(model) for _ in range(count)]
        native = needed()
        with _hooks():
            try:
                native.vebench_area_begin(
                    self._commons.handle,
                    ctypes.c_void_p(self._next),
                    ctypes.c_void_p(self._stop),
                    ctypes.c_size_t(self._commons.scratch),
                )
                made = [mujoco.MjData(model) for _ in range(count)]
            finally:
                self._take(native.vebench_area_end())
        return made

    def announce(self, address: int) -> None:
        """Let the others know the address of what steps these environments."""
        if self._commons is not None:
            self._commons.entries[self._number] = Announced(address, os.getpid())

    def others(self) -> list[Announced]:
        """Return what the others have announced, first those that come next in the order of environments."""
        if self._commons is None:
            return []
        entries, own = self._commons.entries, self._number
        around = (*entries[own + 1 :], *entries[:own])
        return [entry for entry in around if entry.address]


def commons_for(model: Any, count: int) -> Commons | None:  # noqa: ANN401 - MuJoCo has no types
    """Return memory in common for ``count`` environments of a model, None if there can be none here."""
    if sys.platform != "linux":
        return None
    native = needed()
    for function in (native.vebench_commons, native.vebench_commons_base, native.vebench_commons_scratch):
        function.restype = ctypes.c_void_p
    native.vebench_area_end.restype = ctypes.c_size_t
    scratch = int(model.narena)
    try:
        with _hooks():
            try:
                native.vebench_area_begin(None, None, None, ctypes.c_size_t(scratch))
                mujoco.MjData(model)
            finally:
                size = native.vebench_area_end()
        # If other memory of an environment had the arena's very size, it would be taken for that.
        return None if native.vebench_area_scratches() != 1 else Commons(count, _whole(size + _TABLES, 4096), scratch)
    except (MemoryError, RuntimeError):
        return None


@contextmanager
def _hooks() -> Iterator[None]:
    """Let MuJoCo allocate and free by our functions, from now on. Raises RuntimeError if others are set already."""
    native, theirs = needed(), mujoco_library()
    with HOOKS:
        for name, function in (("mju_user_malloc", native.vebench_malloc), ("mju_user_free", native.vebench_free)):
            hook = ctypes.c_void_p.in_dll(theirs, name)
            ours = ctypes.cast(function, ctypes.c_void_p).value
            if hook.value not in {None, ours}:
                raise RuntimeError(f"{name} is set already")
            hook.value = ours
        yield


def is_running(process: int) -> bool:
    """Return whether a process exists and has not ended. A zombie has ended.

    One that cannot be looked at, for want of a descriptor or of ``/proc``, counts as running: who is taken for dead
    ends a team.
    """
    try:
        os.kill(process, 0)
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return status.rpartition(")")[2].split()[0] not in {"Z", "X"}


def _whole(size: int, unit: int = _ALIGNMENT) -> int:
    return -(-size // unit) * unit
