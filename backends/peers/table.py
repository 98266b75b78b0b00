"""The table of other projects' vectorisers: what each needs, and the entries of its adapters.

Another one takes an adapter beside this module, and an entry here. The parent reads this: standard library only.
"""

from __future__ import annotations

from vebench.backends import shapes
from vebench.backends.entry import BackendEntry
from vebench.backends.environments.suites import MIB
from vebench.backends.packages import Package
from vebench.backends.peers.installation import Installation, Step

TORCH = "torch==2.13.0"

_STABLE_BASELINES3 = Package("stable-baselines3", "stable_baselines3", places=2)
_TIANSHOU = Package("tianshou", "tianshou", places=2)
_RAY = Package("ray", "ray", places=2)

SB3 = Installation("sb3", "Stable-Baselines3", (Step((TORCH, "stable-baselines3==2.9.2")),))
TIANSHOU = Installation("tianshou", "tianshou", (Step((TORCH, "tianshou==2.0.1", "ray==2.60.0")),))

# Torch, once in the caller, and in each process that has not been forked from it.
_WITH_TORCH = 160 * MIB


ENTRIES: tuple[BackendEntry, ...] = (
    BackendEntry(
        "sb3-dummy",
        "vebench.backends.peers.stable_baselines3:Dummy",
        "Stable-Baselines3's DummyVecEnv",
        shapes.in_caller,
        packages=(_STABLE_BASELINES3,),
        by_default=False,
        installation=SB3,
        import_bytes=_WITH_TORCH,
    ),
    BackendEntry(
        "sb3-subproc",
        "vebench.backends.peers.stable_baselines3:Subproc",
        "Stable-Baselines3's SubprocVecEnv",
        shapes.process_each,
        packages=(_STABLE_BASELINES3,),
        process_per_environment=True,
        by_default=False,
        installation=SB3,
        import_bytes=_WITH_TORCH,
        process_bytes=lambda _options: _WITH_TORCH,
    ),
    BackendEntry(
        "tianshou-dummy",
        "vebench.backends.peers.tianshou:Dummy",
        "tianshou's DummyVectorEnv",
        shapes.in_caller,
        packages=(_TIANSHOU,),
        by_default=False,
        installation=TIANSHOU,
        import_bytes=_WITH_TORCH,
    ),
    BackendEntry(
        "tianshou-subproc",
        "vebench.backends.peers.tianshou:Subproc",
        "tianshou's SubprocVectorEnv",
        shapes.process_each,
        packages=(_TIANSHOU,),
        process_per_environment=True,
        by_default=False,
        installation=TIANSHOU,
        import_bytes=_WITH_TORCH,
    ),
    BackendEntry(
        "tianshou-shmem",
        "vebench.backends.peers.tianshou:Shmem",
        "tianshou's ShmemVectorEnv, observations in shared memory",
        shapes.process_each,
        packages=(_TIANSHOU,),
        process_per_environment=True,
        by_default=False,
        installation=TIANSHOU,
        import_bytes=_WITH_TORCH,
    ),
    BackendEntry(
        "tianshou-ray",
        "vebench.backends.peers.tianshou:Ray",
        "tianshou's RayVectorEnv, an actor for each environment",
        shapes.process_each,
        packages=(_TIANSHOU, _RAY),
        process_per_environment=True,
        by_default=False,
        installation=TIANSHOU,
        import_bytes=_WITH_TORCH,
        process_bytes=lambda _options: _WITH_TORCH,
    ),
)
