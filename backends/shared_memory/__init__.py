"""Environments stepped in a few processes that share memory: ``SharedMemoryVectorEnv``, ``shm-sync`` and ``shm-async``.

Begin reading with ``team``: the caller and its workers, which step environments of any kind. What it is built from:

- ``share``: what one process steps, as the users of a team define it; ``errors``: what a team raises;
- ``division``: how environments are divided among processes; ``memory_layout``: where everything is in memory;
- ``handshake``: how two processes wait for each other, and why no wake-up is lost;
- ``worker``: the worker's side, a loop in its own process; ``worker_handle``: the caller's side of one worker;
- ``interrupts``: how signal handlers are kept from raising where that cannot be borne; ``forgotten``: what is done
  about an object that nobody holds any more, without such a place.

What is built on it:

- ``in_flight``: a team whose environments are asked for one by one;
- ``backend``: ``shm-sync``, ``shm-async`` and ``shm-half``;
- ``vector_env``: ``SharedMemoryVectorEnv``, with ``gymnasium_share``, ``spaces``, ``arguments`` and ``results``;
- ``make_vec_spec``: with it ``gymnasium.make_vec`` makes one; ``sb3``: it as a ``VecEnv`` of Stable-Baselines3.

What is exported is loaded on use, since the vector environment needs Gymnasium, and a process that measures loads that
only if its backend does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vebench.backends.shared_memory.errors import BrokenOffError, OverdueError, WorkerError
    from vebench.backends.shared_memory.make_vec_spec import shared_memory_spec
    from vebench.backends.shared_memory.sb3 import StableBaselinesVecEnv as StableBaselinesVecEnv
    from vebench.backends.shared_memory.vector_env import SharedMemoryVectorEnv

# Without StableBaselinesVecEnv, which needs a library that few have.
__all__ = ["BrokenOffError", "OverdueError", "SharedMemoryVectorEnv", "WorkerError", "shared_memory_spec"]

_MODULES = {
    "BrokenOffError": "errors",
    "OverdueError": "errors",
    "SharedMemoryVectorEnv": "vector_env",
    "StableBaselinesVecEnv": "sb3",
    "WorkerError": "errors",
    "shared_memory_spec": "make_vec_spec",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
