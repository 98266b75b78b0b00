"""Environments stepped in a few processes that share memory: Gymnasium's kind of vector environment, and two backends.

``SharedMemoryVectorEnv`` is loaded on use, since it needs Gymnasium, which the backends load only where tasks need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vebench.backends.shared_memory.vector_env import SharedMemoryVectorEnv

__all__ = ["SharedMemoryVectorEnv"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from vebench.backends.shared_memory import vector_env  # noqa: PLC0415 - imported on use

        return getattr(vector_env, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
