"""Environments stepped in a few processes that share memory: ``SharedMemoryVectorEnv``, ``shm-sync`` and ``shm-async``.

Start reading with ``team``: the caller and its workers. docs/reference/vector-envs.md explains how they wait for each
other, and why no row is torn and no wake-up lost. Exports are loaded on use, since ``vector_env`` imports Gymnasium.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vebench.backends.shared_memory.sb3 import StableBaselinesVecEnv as StableBaselinesVecEnv
    from vebench.backends.shared_memory.spares import ResetAhead
    from vebench.backends.shared_memory.team import BrokenOffError, OverdueError
    from vebench.backends.shared_memory.vector_env import SharedMemoryVectorEnv, shared_memory_spec
    from vebench.backends.shared_memory.worker import WorkerError

# Without StableBaselinesVecEnv, which needs Stable-Baselines3.
__all__ = ["BrokenOffError", "OverdueError", "ResetAhead", "SharedMemoryVectorEnv", "WorkerError", "shared_memory_spec"]


_MODULES = {
    "BrokenOffError": "team",
    "OverdueError": "team",
    "ResetAhead": "spares",
    "SharedMemoryVectorEnv": "vector_env",
    "StableBaselinesVecEnv": "sb3",
    "WorkerError": "worker",
    "shared_memory_spec": "vector_env",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
