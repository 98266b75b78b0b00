"""MuJoCo's C library, as its Python package has loaded it, and where its structures are: by documented ways only."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any

import mujoco

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# MuJoCo has one place in each process where it looks up whom to call for controls, and one for what to do at an error.
# Who sets either of them and puts back what was there holds this lock until then.
HOOKS = Lock()
if hasattr(os, "register_at_fork"):
    # So no process begins its life with what another thread had set, or with a lock that nobody will release.
    os.register_at_fork(before=HOOKS.acquire, after_in_parent=HOOKS.release, after_in_child=HOOKS.release)


@cache
def mujoco_library() -> ctypes.CDLL | None:
    """Return the library of MuJoCo that its Python package has loaded, None if that cannot be told."""
    for path in sorted(Path(mujoco.__file__).parent.glob("libmujoco*")):
        with suppress(OSError, AttributeError, ValueError):
            found = ctypes.CDLL(str(path))
            if _is_loaded(found) and all(hasattr(found, name) for name in _NEEDED):
                return found
    return None


# What the compiled loop calls, and where MuJoCo looks up what to do at an error.
_NEEDED = ("mj_step", "mj_rnePostConstraint", "mju_user_error")
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def _is_loaded(found: ctypes.CDLL) -> bool:
    """Return whether it is the one that the package has loaded: what is set through that is seen in this."""
    callback = _CALLBACK(lambda _model, _data: None)
    seen = ctypes.c_void_p.in_dll(found, "mjcb_control")
    return bool(_with_control(callback, lambda: seen.value) == ctypes.cast(callback, ctypes.c_void_p).value)


def pointers_of(model: Any, batch: Sequence[Any]) -> tuple[int, list[int]]:  # noqa: ANN401 - MuJoCo has no types
    """Return where MuJoCo has the model, and each of these data of it: it tells those that it calls for controls.

    Raises RuntimeError if it does not call.
    """
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
        raise RuntimeError(
            "MuJoCo did not ask for controls: the model disables actuation, or another thread has set mjcb_control"
        )
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
