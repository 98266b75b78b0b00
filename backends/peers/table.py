"""Other projects' backends. ``installations.json`` has the packages that pip installs for each library, pinned."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from vebench.backends.entry import TORCH_BYTES, BackendEntry, Library, Option, Scope, alive_per_row, whole
from vebench.backends.environments.suites import MIB
from vebench.backends.packages import RAY, TORCH, Installation, Package, Step

_RAY_BYTES = 512 * MIB  # of Ray's own processes
_TIANSHOU_BYTES = 300 * MIB  # with pandas and the rest of its imports
# Tasks whose rows depend on mj_step only: contact forces would need mj_rnePostConstraint after it.
_BY_PHYSICS_ALONE = (
    *("HalfCheetah-v5", "Hopper-v5", "InvertedDoublePendulum-v5", "InvertedPendulum-v5"),
    *("Pusher-v5", "Reacher-v5", "Swimmer-v5", "Walker2d-v5"),
)


def _installation(name: str, title: str, steps: list[dict[str, Any]], **facts: Any) -> Installation:
    made = tuple(
        Step(tuple(step["requirements"]), tuple(step.get("options", ())), step.get("variables", {})) for step in steps
    )
    return Installation(name, title, made, **{**facts, "without": tuple(facts.get("without", ()))})


_DATA = json.loads(Path(__file__).with_name("installations.json").read_text(encoding="utf-8"))
_INSTALLATIONS = {name: _installation(name, **facts) for name, facts in _DATA.items()}
COLLECTORS = (_INSTALLATIONS["rllib"],)  # libraries that carry a policy of their own, and so have no backend

_MJBATCH = Library("mjbatch, which steps physics alone,", (Package("mjbatch", "mjbatch"),), _INSTALLATIONS["mjbatch"])
_PUFFERLIB = Library(
    installation=_INSTALLATIONS["pufferlib"],
    packages=(Package("pufferlib", "pufferlib"),),
    import_bytes=TORCH_BYTES,
    spins=True,
)
_PUFFERLIB_CORE = replace(
    _PUFFERLIB, installation=_INSTALLATIONS["pufferlib-core"], packages=(Package("pufferlib-core", "pufferlib"),)
)
_OF_RAY = Library(installation=_INSTALLATIONS["ray"], packages=(RAY,), import_bytes=_RAY_BYTES, worker_bytes=128 * MIB)
_FOR_RLPYT = (TORCH, Package("psutil", "psutil", places=0), Package("PyPrind", "pyprind", places=0))
_RLPYT = Library(installation=_INSTALLATIONS["rlpyt"], packages=_FOR_RLPYT, import_bytes=TORCH_BYTES)
_SAMPLE_FACTORY = Library(
    installation=_INSTALLATIONS["sample-factory"],
    packages=(Package("sample-factory", "sample_factory"), TORCH),
    import_bytes=TORCH_BYTES,
    worker_bytes=TORCH_BYTES,
)
_SB3 = Library(
    installation=_INSTALLATIONS["sb3"],
    packages=(Package("stable-baselines3", "stable_baselines3", places=2),),
    import_bytes=TORCH_BYTES,
)
_SB3_SUBPROC = replace(_SB3, worker_bytes=TORCH_BYTES)
_TIANSHOU = Library(
    installation=_INSTALLATIONS["tianshou"],
    packages=(Package("tianshou", "tianshou", places=2),),
    import_bytes=_TIANSHOU_BYTES,
)
_TIANSHOU_RAY = Library(
    installation=_INSTALLATIONS["tianshou"],
    packages=(*_TIANSHOU.packages, RAY),
    import_bytes=_TIANSHOU_BYTES + _RAY_BYTES,
    worker_bytes=_TIANSHOU_BYTES,
)
_FOR_TORCHRL = (Package("torchrl", "torchrl", places=2), Package("tensordict", "tensordict", places=2))
_TORCHRL = Library(installation=_INSTALLATIONS["torchrl"], packages=_FOR_TORCHRL, import_bytes=TORCH_BYTES)
_TORCHRL_PARALLEL = replace(_TORCHRL, spins=True)  # the caller polls


def _peer(name: str, adapter: str, summary: str, library: Library, **facts: Any) -> BackendEntry:
    target = f"vebench.backends.peers.{adapter}"
    return BackendEntry(name, target, summary, library=library, by_default=False, **facts)


_SB3_MODULE = "stable_baselines3.common.vec_env"
_MUJOCO = Scope(frozenset({"mujoco"}), lambda task: task.id if task.id in _BY_PHYSICS_ALONE else None)
ENTRIES = (
    _peer(
        "mjbatch",
        "mjbatch:MjBatch",
        "mjbatch: MuJoCo's physics on a pool of threads, with our own observations and rewards",
        _MJBATCH,
        steppers="threads",
        scope=_MUJOCO,
    ),
    _peer(
        "pufferlib",
        "pufferlib:Multiprocessing",
        "PufferLib's Multiprocessing, several environments for each worker",
        _PUFFERLIB,
        steppers="process per worker",
    ),
    _peer(
        "pufferlib-core",
        "pufferlib:Multiprocessing",
        "pufferlib-core's Multiprocessing: another package, of the same origin",
        _PUFFERLIB_CORE,
        steppers="process per worker",
    ),
    _peer(
        "ray",
        "ray:RayActors",
        "Ray's actors, one for each worker, rows through the object store",
        _OF_RAY,
        steppers="process per worker",
    ),
    _peer(
        "rlpyt",
        "rlpyt:GpuSampler",
        "rlpyt's GpuSampler, from a checkout; the adapter serves the actions",
        _RLPYT,
        steppers="process per worker",
        options={"steps_per_batch": Option(whole, 64, "steps after which all workers meet at barriers")},
    ),
    _peer(
        "sample-factory",
        "sample_factory:SampleFactory",
        "Sample Factory's rollout workers; the adapter is their inference worker",
        _SAMPLE_FACTORY,
        steppers="process per worker",
        options={"rollout": Option(whole, 32, "steps after which a worker hands its trajectories over")},
    ),
    _peer(
        "sb3-dummy",
        "stable_baselines3:SB3Dummy",
        "Stable-Baselines3's DummyVecEnv",
        _SB3,
        lines=lambda built: built.listed(_SB3_MODULE, "DummyVecEnv"),
    ),
    _peer(
        "sb3-subproc",
        "stable_baselines3:SB3Subproc",
        "Stable-Baselines3's SubprocVecEnv",
        _SB3_SUBPROC,
        steppers="process each",
        lines=lambda built: built.listed(_SB3_MODULE, "SubprocVecEnv", forks=False),
    ),
    _peer(
        "tianshou-dummy",
        "tianshou:TianshouDummy",
        "tianshou's DummyVectorEnv",
        _TIANSHOU,
        lines=lambda built: built.listed("tianshou.env", "DummyVectorEnv"),
    ),
    _peer(
        "tianshou-subproc",
        "tianshou:TianshouSubproc",
        "tianshou's SubprocVectorEnv",
        _TIANSHOU,
        steppers="process each",
        lines=lambda built: built.listed("tianshou.env", "SubprocVectorEnv"),
    ),
    _peer(
        "tianshou-shmem",
        "tianshou:TianshouShmem",
        "tianshou's ShmemVectorEnv, observations in shared memory",
        _TIANSHOU,
        steppers="process each",
        lines=lambda built: built.listed("tianshou.env", "ShmemVectorEnv"),
    ),
    _peer(
        "tianshou-ray",
        "tianshou:TianshouRay",
        "tianshou's RayVectorEnv, an actor for each environment",
        _TIANSHOU_RAY,
        steppers="process each",
    ),
    _peer(
        "torchrl-parallel",
        "torchrl:TorchRLParallel",
        "TorchRL's ParallelEnv, shared buffers",
        _TORCHRL_PARALLEL,
        steppers="process each",
    ),
    _peer(
        "torchrl-async",
        "torchrl:TorchRLAsync",
        "TorchRL's AsyncEnvPool, shared slots, more environments than a batch takes",
        _TORCHRL,
        steppers="process each",
        options=alive_per_row(2),
        asynchronous=True,
    ),
)
