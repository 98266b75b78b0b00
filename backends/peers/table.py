"""The table of other projects' vectorisers: what each needs, and the entries of its adapters.

Another one takes an adapter beside this module, and an entry here. The parent reads this: standard library only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.backends import lines, packages
from vebench.backends.entry import (
    BackendEntry,
    Option,
    in_caller,
    process_each,
    process_each_ahead,
    process_per_worker,
    thread_per_cpu,
    whole,
)
from vebench.backends.environments.suites import MIB
from vebench.backends.packages import Installation, Package, Step

if TYPE_CHECKING:
    from vebench.backends.setup import Task

TORCH = "torch==2.13.0"

_MJBATCH = Package("mjbatch", "mjbatch")
_STABLE_BASELINES3 = Package("stable-baselines3", "stable_baselines3", places=2)
_TIANSHOU = Package("tianshou", "tianshou", places=2)
_PUFFERLIB = Package("pufferlib", "pufferlib")
_PUFFERLIB_CORE = Package("pufferlib-core", "pufferlib")
_TORCH = Package("torch", "torch", places=0)
_PSUTIL = Package("psutil", "psutil", places=0)
_PYPRIND = Package("PyPrind", "pyprind", places=0)
_SAMPLE_FACTORY = Package("sample-factory", "sample_factory")
_TORCHRL = Package("torchrl", "torchrl", places=2)
_TENSORDICT = Package("tensordict", "tensordict", places=2)
# Torch, once in the caller, and in each process that has not been forked from it.
_WITH_TORCH = 160 * MIB

# With pandas and what else tianshou imports.
_WITH_TIANSHOU = 300 * MIB

# Ray's own processes, and each of its actors.
_RAY_BYTES = 512 * MIB
_RAY_ACTOR = 128 * MIB

_SB3 = Installation("sb3", "Stable-Baselines3", (Step((TORCH, "stable-baselines3==2.9.2")),))
TIANSHOU = Installation("tianshou", "tianshou", (Step((TORCH, "tianshou==2.0.1", "ray==2.60.0")),))
TORCHRL = Installation("torchrl", "TorchRL", (Step((TORCH, "torchrl==0.14.1", "tensordict==0.14.3")),))
RAY = Installation("ray", "Ray", (Step(("ray==2.60.0",)),))
# Its setup.py names a variable that it has not set where its own environments are left out.
_WITHOUT_OCEAN = {"sitecustomize.py": "import builtins\n\nbuiltins.c_extension_paths = []\n"}
PUFFERLIB = Installation(
    "pufferlib",
    "PufferLib 3.0.0, without its own environments",
    (
        Step(
            (
                TORCH,
                "setuptools",
                "wheel",
                "Cython",
                "psutil",
                "pettingzoo==1.25.0",
                "gym==0.26.2",
                "rich",
                "cloudpickle",
            )
        ),
        Step(
            ("pufferlib==3.0.0",),
            ("--no-deps", "--no-build-isolation"),
            {"NO_OCEAN": "1", "NO_TRAIN": "1", "PYTHONPATH": "{folder}/build"},
        ),
    ),
    files={f"build/{name}": text for name, text in _WITHOUT_OCEAN.items()},
    note="built from source; its wheels have no part for CPUs alone",
)
PUFFERLIB_CORE = Installation(
    "pufferlib-core", "pufferlib-core 3.0.19, which is not PufferLib", (Step((TORCH, "pufferlib-core==3.0.19")),)
)
RLPYT = Installation(
    "rlpyt",
    "what rlpyt needs",
    (Step((TORCH, "psutil==7.1.3", "PyPrind==2.11.3")),),
    note="clone github.com/astooke/rlpyt, and name the folder by the variable RLPYT",
)
# Its metadata wants a gymnasium and a numpy of years ago; with numpy 2.4 its workers fail.
SAMPLE_FACTORY = Installation(
    "sample-factory",
    "Sample Factory 2.1.1, with newer versions of Gymnasium and NumPy than it asks for",
    (
        Step(
            (
                TORCH,
                "numpy==2.3.5",
                "signal-slot-mp==1.0.5",
                "faster-fifo==1.5.2",
                "psutil==7.1.3",
                "threadpoolctl==3.6.0",
                "colorlog==6.10.1",
            )
        ),
        Step(("sample-factory==2.1.1",), ("--no-deps",)),
    ),
    without=("numpy",),
)
MJBATCH = Installation(
    "mjbatch",
    "mjbatch",
    (Step(("mujoco==3.11.0", "mjbatch==0.1.0")),),
    without=("mujoco",),
)
# What carries a policy of its own, and so has no backend.
COLLECTORS = (
    Installation(
        "rllib",
        "RLlib 2.60.0, whose environment runners carry a policy of their own",
        (Step((TORCH, "ray[rllib]==2.60.0", "gymnasium==1.2.2")),),
        without=("gymnasium",),
    ),
)

# Tasks whose rows show nothing but what mj_step computes: forces of contacts would need mj_rnePostConstraint after it.
_MJBATCH_TASKS = frozenset(
    {
        "HalfCheetah-v5",
        "Hopper-v5",
        "InvertedDoublePendulum-v5",
        "InvertedPendulum-v5",
        "Pusher-v5",
        "Reacher-v5",
        "Swimmer-v5",
        "Walker2d-v5",
    }
)


def _by_physics_alone(task: Task) -> str | None:
    return task.id if task.id in _MJBATCH_TASKS else None


ENTRIES: tuple[BackendEntry, ...] = (
    BackendEntry(
        "sb3-dummy",
        "vebench.backends.peers.stable_baselines3:Dummy",
        "Stable-Baselines3's DummyVecEnv",
        in_caller,
        packages=(_STABLE_BASELINES3,),
        by_default=False,
        lines=lines.sb3_dummy,
        installation=_SB3,
        import_bytes=_WITH_TORCH,
    ),
    BackendEntry(
        "sb3-subproc",
        "vebench.backends.peers.stable_baselines3:Subproc",
        "Stable-Baselines3's SubprocVecEnv",
        process_each,
        packages=(_STABLE_BASELINES3,),
        process_per_environment=True,
        by_default=False,
        lines=lines.sb3_subproc,
        installation=_SB3,
        import_bytes=_WITH_TORCH,
        process_bytes=lambda _options: _WITH_TORCH,
    ),
    BackendEntry(
        "tianshou-dummy",
        "vebench.backends.peers.tianshou:Dummy",
        "tianshou's DummyVectorEnv",
        in_caller,
        packages=(_TIANSHOU,),
        by_default=False,
        lines=lines.tianshou_dummy,
        installation=TIANSHOU,
        import_bytes=_WITH_TIANSHOU,
    ),
    BackendEntry(
        "tianshou-subproc",
        "vebench.backends.peers.tianshou:Subproc",
        "tianshou's SubprocVectorEnv",
        process_each,
        packages=(_TIANSHOU,),
        process_per_environment=True,
        by_default=False,
        lines=lines.tianshou_subproc,
        installation=TIANSHOU,
        import_bytes=_WITH_TIANSHOU,
    ),
    BackendEntry(
        "tianshou-shmem",
        "vebench.backends.peers.tianshou:Shmem",
        "tianshou's ShmemVectorEnv, observations in shared memory",
        process_each,
        packages=(_TIANSHOU,),
        process_per_environment=True,
        by_default=False,
        lines=lines.tianshou_shmem,
        installation=TIANSHOU,
        import_bytes=_WITH_TIANSHOU,
    ),
    BackendEntry(
        "tianshou-ray",
        "vebench.backends.peers.tianshou:Ray",
        "tianshou's RayVectorEnv, an actor for each environment",
        process_each,
        packages=(_TIANSHOU, packages.RAY),
        process_per_environment=True,
        by_default=False,
        installation=TIANSHOU,
        import_bytes=_WITH_TIANSHOU + _RAY_BYTES,
        process_bytes=lambda _options: _WITH_TIANSHOU,
    ),
    BackendEntry(
        "torchrl-parallel",
        "vebench.backends.peers.torchrl:TorchRLParallel",
        "TorchRL's ParallelEnv, shared buffers",
        process_each,
        packages=(_TORCHRL, _TENSORDICT),
        process_per_environment=True,
        by_default=False,
        installation=TORCHRL,
        spins=True,  # the caller, while it waits
        import_bytes=_WITH_TORCH,
    ),
    BackendEntry(
        "torchrl-async",
        "vebench.backends.peers.torchrl:TorchRLAsync",
        "TorchRL's AsyncEnvPool, shared slots, more environments than a batch takes",
        process_each_ahead,
        packages=(_TORCHRL, _TENSORDICT),
        options={"ratio": Option(whole, 2, "environments alive for each row of a batch")},
        process_per_environment=True,
        overlap="any",
        by_default=False,
        installation=TORCHRL,
        import_bytes=_WITH_TORCH,
    ),
    BackendEntry(
        "pufferlib",
        "vebench.backends.peers.pufferlib:Multiprocessing",
        "PufferLib's Multiprocessing, several environments for each worker",
        process_per_worker,
        packages=(_PUFFERLIB,),
        by_default=False,
        installation=PUFFERLIB,
        spins=True,
        import_bytes=_WITH_TORCH,
    ),
    BackendEntry(
        "pufferlib-core",
        "vebench.backends.peers.pufferlib:Multiprocessing",
        "pufferlib-core's Multiprocessing: another package, of the same origin",
        process_per_worker,
        packages=(_PUFFERLIB_CORE,),
        by_default=False,
        installation=PUFFERLIB_CORE,
        spins=True,
        import_bytes=_WITH_TORCH,
    ),
    BackendEntry(
        "rlpyt",
        "vebench.backends.peers.rlpyt:GpuSampler",
        "rlpyt's GpuSampler, from a checkout that you name; the adapter serves the actions",
        process_per_worker,
        packages=(_TORCH, _PSUTIL, _PYPRIND),
        options={
            "steps_per_batch": Option(whole, 64, "steps after which all workers meet at barriers"),
        },
        by_default=False,
        installation=RLPYT,
        import_bytes=_WITH_TORCH,
    ),
    BackendEntry(
        "sample-factory",
        "vebench.backends.peers.sample_factory:SampleFactory",
        "Sample Factory's rollout workers; the adapter is their inference worker",
        process_per_worker,
        packages=(_SAMPLE_FACTORY, _TORCH),
        options={"rollout": Option(whole, 32, "steps after which a worker hands its trajectories over")},
        by_default=False,
        installation=SAMPLE_FACTORY,
        import_bytes=_WITH_TORCH,
        process_bytes=lambda _options: _WITH_TORCH,
    ),
    BackendEntry(
        "ray",
        "vebench.backends.peers.ray:RayActors",
        "Ray's actors, one for each worker, rows through the object store",
        process_per_worker,
        packages=(packages.RAY,),
        by_default=False,
        installation=RAY,
        import_bytes=_RAY_BYTES,
        process_bytes=lambda _options: _RAY_ACTOR,
    ),
    BackendEntry(
        "mjbatch",
        "vebench.backends.peers.mjbatch:MjBatch",
        "mjbatch: MuJoCo's physics on a pool of threads, with our own observations and rewards",
        thread_per_cpu,
        packages=(_MJBATCH,),
        installation=MJBATCH,
        suites=frozenset({"mujoco"}),
        library="mjbatch, which steps physics alone,",
        name_of=_by_physics_alone,
        by_default=False,
    ),
)
