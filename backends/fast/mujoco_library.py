"""MuJoCo's C library, as its Python package has loaded it, and where its structures are: by documented ways only."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any

import mujoco

if TYPE_CHECKING:
    from collections.abc import Callable


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


def pointers_of(model: Any, data: Any) -> tuple[int, int]:  # noqa: ANN401 - MuJoCo has no types
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
