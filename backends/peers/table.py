"""The table of other projects' vectorisers: what each needs, and the entries of its adapters.

Another one takes an adapter beside this module, and an entry here. The parent reads this: standard library only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.backends import shapes
from vebench.backends.entry import BackendEntry, Option, whole
from vebench.backends.environments.suites import MIB
from vebench.backends.packages import Package
from vebench.backends.peers.installation import Installation, Step

if TYPE_CHECKING:
    from vebench.backends.setup import Task

TORCH = "torch==2.13.0"

_MJBATCH = Package("mjbatch", "mjbatch")
_RAY = Package("ray", "ray", places=2)
_TORCHRL = Package("torchrl", "torchrl", places=2)
_TENSORDICT = Package("tensordict", "tensordict", places=2)
# Torch, once in the caller, and in each process that has not been forked from it.
_WITH_TORCH = 160 * MIB

# Ray's own processes, and each of its actors.
_RAY_BYTES = 512 * MIB
_RAY_ACTOR = 128 * MIB

TORCHRL = Installation("torchrl", "TorchRL", (Step((TORCH, "torchrl==0.14.1", "tensordict==0.14.3")),))
RAY = Installation("ray", "Ray", (Step(("ray==2.60.0",)),))
MJBATCH = Installation(
    "mjbatch",
    "mjbatch",
    (Step(("mujoco==3.11.0", "mjbatch==0.1.0")),),
    without=("mujoco",),
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
        "torchrl-parallel",
        "vebench.backends.peers.torchrl:TorchRLParallel",
        "TorchRL's ParallelEnv, shared buffers",
        shapes.process_each,
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
        shapes.process_each_ahead,
        packages=(_TORCHRL, _TENSORDICT),
        options={"ratio": Option(whole, 2, "environments alive for each row of a batch")},
        process_per_environment=True,
        overlap="any",
        by_default=False,
        installation=TORCHRL,
        import_bytes=_WITH_TORCH,
    ),
    BackendEntry(
        "ray",
        "vebench.backends.peers.ray:RayActors",
        "Ray's actors, one for each worker, rows through the object store",
        shapes.process_per_worker,
        packages=(_RAY,),
        by_default=False,
        installation=RAY,
        import_bytes=_RAY_BYTES,
        process_bytes=lambda _options: _RAY_ACTOR,
    ),
    BackendEntry(
        "mjbatch",
        "vebench.backends.peers.mjbatch:MjBatch",
        "mjbatch: MuJoCo's physics on a pool of threads, with our own observations and rewards",
        shapes.thread_per_cpu,
        packages=(_MJBATCH,),
        installation=MJBATCH,
        suites=frozenset({"mujoco"}),
        library="mjbatch, which steps physics alone,",
        name_of=_by_physics_alone,
        by_default=False,
    ),
)
