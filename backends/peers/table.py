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


def _library(name: str, *packages: Package, import_bytes: int = TORCH_BYTES, **facts: Any) -> Library:
    return Library(installation=_INSTALLATIONS[name], packages=packages, import_bytes=import_bytes, **facts)


_MJBATCH = Library("mjbatch, which steps physics alone,", (Package("mjbatch", "mjbatch"),), _INSTALLATIONS["mjbatch"])
_PUFFERLIB = _library("pufferlib", Package("pufferlib", "pufferlib"), spins=True)
_PUFFERLIB_CORE = _library("pufferlib-core", Package("pufferlib-core", "pufferlib"), spins=True)
_OF_RAY = _library("ray", RAY, import_bytes=_RAY_BYTES, worker_bytes=128 * MIB)
_RLPYT = _library("rlpyt", TORCH, Package("psutil", "psutil", places=0), Package("PyPrind", "pyprind", places=0))
_SAMPLE_FACTORY = _library(
    "sample-factory", Package("sample-factory", "sample_factory"), TORCH, worker_bytes=TORCH_BYTES
)
_SB3 = _library("sb3", Package("stable-baselines3", "stable_baselines3", places=2))
_TIANSHOU = _library("tianshou", Package("tianshou", "tianshou", places=2), import_bytes=_TIANSHOU_BYTES)
_TIANSHOU_RAY = replace(
    _TIANSHOU,
    packages=(*_TIANSHOU.packages, RAY),
    import_bytes=_TIANSHOU_BYTES + _RAY_BYTES,
    worker_bytes=_TIANSHOU_BYTES,
)
_TORCHRL = _library("torchrl", Package("torchrl", "torchrl", places=2), Package("tensordict", "tensordict", places=2))
_MUJOCO = Scope(frozenset({"mujoco"}), lambda task: task.id if task.id in _BY_PHYSICS_ALONE else None)


def _peer(
    name: str, adapter: str, summary: str, library: Library, steppers: Any = "caller", **facts: Any
) -> BackendEntry:
    target = f"vebench.backends.peers.{adapter}"
    return BackendEntry(name, target, summary, steppers, library=library, by_default=False, **facts)


_EACH, _PER_WORKER = "process each", "process per worker"
ENTRIES: tuple[BackendEntry, ...] = (
    _peer(
        "mjbatch",
        "mjbatch:MjBatch",
        "mjbatch: MuJoCo's physics on a pool of threads, with our own observations and rewards",
        _MJBATCH,
        "threads",
        scope=_MUJOCO,
    ),
    _peer(
        "pufferlib",
        "vectorisers:PufferMultiprocessing",
        "PufferLib's Multiprocessing, several environments for each worker",
        _PUFFERLIB,
        _PER_WORKER,
    ),
    _peer(
        "pufferlib-core",
        "vectorisers:PufferMultiprocessing",
        "pufferlib-core's Multiprocessing: another package, of the same origin",
        _PUFFERLIB_CORE,
        _PER_WORKER,
    ),
    _peer(
        "ray",
        "ray:RayActors",
        "Ray's actors, one for each worker, rows through the object store",
        _OF_RAY,
        _PER_WORKER,
    ),
    _peer(
        "rlpyt",
        "rlpyt:GpuSampler",
        "rlpyt's GpuSampler, from a checkout; the adapter serves the actions",
        _RLPYT,
        _PER_WORKER,
        options={"steps_per_batch": Option(whole, 64, "steps after which all workers meet at barriers")},
    ),
    _peer(
        "sample-factory",
        "sample_factory:SampleFactory",
        "Sample Factory's rollout workers; the adapter is their inference worker",
        _SAMPLE_FACTORY,
        _PER_WORKER,
        options={"rollout": Option(whole, 32, "steps after which a worker hands its trajectories over")},
    ),
    _peer("sb3-dummy", "vectorisers:SB3Dummy", "Stable-Baselines3's DummyVecEnv", _SB3),
    _peer(
        "sb3-subproc",
        "vectorisers:SB3Subproc",
        "Stable-Baselines3's SubprocVecEnv",
        replace(_SB3, worker_bytes=TORCH_BYTES),
        _EACH,
    ),
    _peer("tianshou-dummy", "vectorisers:TianshouDummy", "tianshou's DummyVectorEnv", _TIANSHOU),
    _peer("tianshou-subproc", "vectorisers:TianshouSubproc", "tianshou's SubprocVectorEnv", _TIANSHOU, _EACH),
    _peer(
        "tianshou-shmem",
        "vectorisers:TianshouShmem",
        "tianshou's ShmemVectorEnv, observations in shared memory",
        _TIANSHOU,
        _EACH,
    ),
    _peer(
        "tianshou-ray",
        "vectorisers:TianshouRay",
        "tianshou's RayVectorEnv, an actor for each environment",
        _TIANSHOU_RAY,
        _EACH,
    ),
    _peer(
        "torchrl-parallel",
        "torchrl:TorchRLParallel",
        "TorchRL's ParallelEnv, shared buffers",
        replace(_TORCHRL, spins=True),  # the caller polls
        _EACH,
    ),
    _peer(
        "torchrl-async",
        "torchrl:TorchRLAsync",
        "TorchRL's AsyncEnvPool, shared slots, more environments than a batch takes",
        _TORCHRL,
        _EACH,
        options=alive_per_row(2),
        asynchronous=True,
    ),
)
