"""Environments stepped in a few processes that share memory: ``SharedMemoryVectorEnv``, ``shm-sync`` and ``shm-async``.

Start reading with ``team``: the caller and its workers. docs/shared-memory.md explains how processes wait for each
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


def __getattr__(name: str) -> object:
    if name in {"BrokenOffError", "OverdueError", "WorkerError"}:
        return getattr(import_module(f"{__name__}.team"), name)
    if name in {"SharedMemoryVectorEnv", "shared_memory_spec"}:
        return getattr(import_module(f"{__name__}.vector_env"), name)
    if name in {"ResetAhead", "StableBaselinesVecEnv"}:
        return getattr(import_module(f"{__name__}.{'spares' if name == 'ResetAhead' else 'sb3'}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
