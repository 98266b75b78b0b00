"""The table of backends. A new backend takes an adapter, and an entry here.

An entry is all that the rest of vebench knows of a backend: nothing outside this folder asks for one by its name.
Nothing here imports a simulator or a vectoriser; that happens when a cell builds its adapter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vebench.backends import ale_vector_tasks, env_pool_tasks, lines
from vebench.backends.entry import (
    BackendEntry,
    Option,
    free_running,
    in_caller,
    process_each,
    process_per_cpu,
    processes_ahead,
    processes_in_turn,
    thread_per_cpu,
    threads_ahead,
    whole,
    without_arguments,
)
from vebench.backends.environments.suites import MIB, SUITES
from vebench.backends.fast import classes
from vebench.backends.packages import ALE_PY, BASE, ENVPOOL, RECORDED_BESIDES, TORCH, importable
from vebench.backends.peers import table as peers
from vebench.backends.setup import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vebench.backends.entry import Options, Role
    from vebench.backends.environments.suites import Suite
    from vebench.backends.interface import OptionValue
    from vebench.backends.packages import Installation, Package
    from vebench.backends.setup import OwnClasses

_MOST_SECONDS = 3600.0


def _start_method(text: str) -> str:
    if text not in ("fork", "forkserver", "spawn"):
        raise ValueError("fork, forkserver or spawn")
    return text


def _whole_or_zero(text: str) -> int:
    return 0 if text == "0" else whole(text)


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return text == "true"


def _half_of_all(processes: int, threads: int, _options: Options) -> int:
    return processes * threads // 2


def _seconds(text: str) -> float:
    try:
        seconds = float(text) if text.isascii() and "_" not in text else 0.0
    except ValueError:
        seconds = 0.0
    if 0 < seconds <= _MOST_SECONDS:
        return seconds
    raise ValueError("a number of seconds above 0, such as 0.001")


def _max_concurrency(processes: int, threads: int, options: Options) -> int:
    limit = options.get("max_concurrency")
    return (min(processes, limit) if isinstance(limit, int) else processes) * threads


_SHARED_MEMORY_OPTIONS: Mapping[str, Option] = {
    "spin": Option(_whole_or_zero, None, "microseconds that a process polls at most before it sleeps (default: 400)"),
    "caller_steps": Option(_flag, True, "whether the calling process steps a share itself, true or false"),
    "context": Option(_start_method, "fork", "fork, forkserver or spawn"),
}

_FAST_OPTIONS: Mapping[str, Option] = {
    "compiled": Option(_flag, True, "whether compiled parts are used where there are any, true or false"),
    **_SHARED_MEMORY_OPTIONS,
}
_WAITING_OPTIONS: Mapping[str, Option] = {
    "recv_timeout": Option(_seconds, None, "seconds that it waits for a whole batch before it returns what is there"),
    "recv_min": Option(whole, 1, "rows that it then returns at the least"),
}
_HALF_OPTIONS: Mapping[str, Option] = {
    "spin": Option(_whole_or_zero, 0, "microseconds that a process polls at most before it sleeps"),
    "context": _SHARED_MEMORY_OPTIONS["context"],
}
_FAST_UNCOMPILED: Mapping[str, OptionValue] = {"compiled": False}

# Its library is mapped and its threads are started even for one environment: 150 MiB instead of 61 with Atari.
_ENVPOOL_BYTES = 96 * MIB

ENTRIES: tuple[BackendEntry, ...] = (
    BackendEntry(
        "for-loop",
        "vebench.backends.for_loop:ForLoop",
        "a Python loop in one process: the reference",
        in_caller,
        role="reference",
        gymnasium_api=True,
        lines=lines.for_loop,
    ),
    BackendEntry(
        "gym-sync",
        "vebench.backends.gym_vector:GymSync",
        "Gymnasium's SyncVectorEnv",
        in_caller,
        gymnasium_api=True,
        lines=lines.gym_sync,
    ),
    BackendEntry(
        "gym-async",
        "vebench.backends.gym_vector:GymAsync",
        "Gymnasium's AsyncVectorEnv, shared memory on",
        process_each,
        options={
            "max_concurrency": Option(whole, None, "environments stepping at any one time (default: all)"),
            "context": Option(_start_method, None, "fork, forkserver or spawn (default: Python's)"),
        },
        process_per_environment=True,
        at_work=_max_concurrency,
        gymnasium_api=True,
        lines=lines.gym_async,
    ),
    BackendEntry(
        "shm-sync",
        "vebench.backends.shared_memory.backend:ShmSync",
        "our own: one process per CPU owned, shared memory",
        process_per_cpu,
        options=_SHARED_MEMORY_OPTIONS,
        gymnasium_api=True,
        worth_trying=({"caller_steps": False},),
        lines=lines.shm_sync,
    ),
    BackendEntry(
        "shm-async",
        "vebench.backends.shared_memory.backend:ShmAsync",
        "our own, more environments than a batch takes",
        processes_ahead,
        options={
            "ratio": Option(whole, 2, "environments alive for each row of a batch"),
            **_WAITING_OPTIONS,
            **_SHARED_MEMORY_OPTIONS,
        },
        overlap="any",
        gymnasium_api=True,
        worth_trying=({"ratio": 3},),
        lines=lines.shm_async,
    ),
    BackendEntry(
        "shm-half",
        "vebench.backends.shared_memory.backend:ShmHalf",
        "our own, two halves in turn: one steps while the other gets its actions",
        processes_in_turn,
        options=_HALF_OPTIONS,
        overlap="half",
        at_work=_half_of_all,
        by_default=False,
        gymnasium_api=True,
        lines=lines.shm_half,
    ),
    BackendEntry(
        "fast-sync",
        "vebench.backends.fast.backend:FastSync",
        "shm-sync with environment classes of our own",
        process_per_cpu,
        name_of=classes.id_with_class,
        own_classes=classes.expected_classes,
        uncompiled=_FAST_UNCOMPILED,
        options=_FAST_OPTIONS,
        gymnasium_api=True,
        worth_trying=({"caller_steps": False},),
        lines=lines.fast_sync,
    ),
    BackendEntry(
        "fast-async",
        "vebench.backends.fast.backend:FastAsync",
        "shm-async with environment classes of our own",
        processes_ahead,
        name_of=classes.id_with_class,
        own_classes=classes.expected_classes,
        uncompiled=_FAST_UNCOMPILED,
        options={
            "ratio": Option(whole, 2, "environments alive for each row of a batch"),
            **_WAITING_OPTIONS,
            **_FAST_OPTIONS,
        },
        overlap="any",
        gymnasium_api=True,
        worth_trying=({"ratio": 3},),
        lines=lines.fast_async,
    ),
    BackendEntry(
        "fast-half",
        "vebench.backends.fast.backend:FastHalf",
        "shm-half with environment classes of our own",
        processes_in_turn,
        name_of=classes.id_with_class,
        own_classes=classes.expected_classes,
        uncompiled=_FAST_UNCOMPILED,
        options={"compiled": _FAST_OPTIONS["compiled"], **_HALF_OPTIONS},
        overlap="half",
        at_work=_half_of_all,
        by_default=False,
        gymnasium_api=True,
        lines=lines.fast_half,
    ),
    BackendEntry(
        "envpool-sync",
        "vebench.backends.env_pool:EnvPoolSync",
        "EnvPool, every environment in each batch",
        thread_per_cpu,
        packages=(ENVPOOL,),
        steps_gymnasium=False,
        suites=env_pool_tasks.STEPPED,
        library="EnvPool",
        name_of=env_pool_tasks.name_of,
        chance=env_pool_tasks.chance,
        lines=lines.envpool_sync,
        import_bytes=_ENVPOOL_BYTES,
    ),
    BackendEntry(
        "envpool-async",
        "vebench.backends.env_pool:EnvPoolAsync",
        "EnvPool, more environments than a batch takes",
        threads_ahead,
        packages=(ENVPOOL,),
        steps_gymnasium=False,
        suites=env_pool_tasks.STEPPED,
        library="EnvPool",
        name_of=env_pool_tasks.name_of,
        chance=env_pool_tasks.chance,
        options={"ratio": Option(whole, 3, "environments alive for each row of a batch")},
        overlap="any",
        worth_trying=({"ratio": 2},),
        lines=lines.envpool_async,
        import_bytes=_ENVPOOL_BYTES,
    ),
    BackendEntry(
        "ale-vector-sync",
        "vebench.backends.ale_vector:AleVectorSync",
        "ale-py's own vector environment in C++, every environment in each batch",
        thread_per_cpu,
        packages=(ALE_PY,),
        steps_gymnasium=False,
        suites=ale_vector_tasks.STEPPED,
        library="ale-py's vector environment",
        name_of=ale_vector_tasks.name_of,
        chance=ale_vector_tasks.chance,
        no_ops=ale_vector_tasks.NO_OPS,
        by_default=False,
        gymnasium_api=True,
        lines=lines.ale_vector_sync,
    ),
    BackendEntry(
        "ale-vector-async",
        "vebench.backends.ale_vector:AleVectorAsync",
        "ale-py's own vector environment in C++, more environments than a batch takes",
        threads_ahead,
        packages=(ALE_PY,),
        steps_gymnasium=False,
        suites=ale_vector_tasks.STEPPED,
        library="ale-py's vector environment",
        name_of=ale_vector_tasks.name_of,
        chance=ale_vector_tasks.chance,
        no_ops=ale_vector_tasks.NO_OPS,
        options={"ratio": Option(whole, 3, "environments alive for each row of a batch")},
        overlap="any",
        by_default=False,
        gymnasium_api=True,
        lines=lines.ale_vector_async,
    ),
    BackendEntry(
        "threads",
        "vebench.backends.threads:Threads",
        "a thread for each CPU owned, from a pool, in one process",
        thread_per_cpu,
        by_default=False,
    ),
    BackendEntry(
        "queue",
        "vebench.backends.processes:QueueBackend",
        "a process for each CPU owned, told by multiprocessing.Queue",
        process_per_cpu,
        options=_WAITING_OPTIONS,
        by_default=False,
    ),
    BackendEntry(
        "torch-mp",
        "vebench.backends.processes:TorchMultiprocessing",
        "a process for each CPU owned, with torch's shared tensors and semaphores",
        process_per_cpu,
        packages=(TORCH,),
        by_default=False,
    ),
    BackendEntry(
        "free-loop",
        "vebench.backends.ceiling:FreeLoop",
        "loops on every CPU owned that exchange nothing: what no vectoriser of them can beat",
        free_running,
        role="limit",
        by_default=False,
    ),
    BackendEntry(
        "ceiling",
        "vebench.backends.ceiling:Ceiling",
        "the bare simulator on every CPU owned: what no backend can beat",
        free_running,
        role="ceiling",
        name_of=without_arguments,
        suites=frozenset(suite.name for suite in SUITES.values() if suite.simulator is not None),
    ),
    BackendEntry(
        "null",
        "vebench.backends.null:Null",
        "returns at once: what the measuring loop itself costs",
        in_caller,
        role="null",
        steps_gymnasium=False,
    ),
    BackendEntry(
        "yardstick",
        "vebench.backends.null:Yardstick",
        "fixed work of vebench's own: what shows how fast the machine is",
        in_caller,
        role="yardstick",
        steps_gymnasium=False,
        by_default=False,
    ),
    *peers.ENTRIES,
)


class Standing(NamedTuple):
    """With what ``backends``, which have environment classes of their own, step ``tasks`` of a suite here.

    Those that are only measured if they are named step the same.
    """

    backends: tuple[str, ...]
    suite: Suite
    tasks: tuple[str, ...]
    own: OwnClasses


BY_NAME: Mapping[str, BackendEntry] = {entry.name: entry for entry in ENTRIES}


def _name_with(role: Role) -> str:
    (name,) = (entry.name for entry in ENTRIES if entry.role == role)
    return name


REFERENCE = _name_with("reference")
CEILING = _name_with("ceiling")
NULL = _name_with("null")
YARDSTICK = _name_with("yardstick")

# Everything that some backend needs for some suite.
PACKAGES: tuple[Package, ...] = tuple(
    dict.fromkeys(
        (
            *BASE,
            *(package for suite in SUITES.values() for package in suite.packages),
            *(package for entry in ENTRIES for package in entry.packages),
        )
    )
)

# How interpreters are made for other projects' backends and collectors, each once.
INSTALLATIONS: tuple[Installation, ...] = tuple(
    {
        **{entry.installation.name: entry.installation for entry in ENTRIES if entry.installation is not None},
        **{one.name: one for one in peers.COLLECTORS},
    }.values()
)

# The names of packages whose versions a run file records, since they decide what a cell does and how fast.
RECORDED: tuple[str, ...] = tuple(
    sorted((*(name for package in PACKAGES for name in package.deciding_names), *RECORDED_BESIDES))
)


def _third_party(target: str) -> BackendEntry:
    """Return an entry for the adapter ``module:Class``: it takes any option, and may run any task."""
    return BackendEntry(target, target, "a third party's adapter", in_caller, steps_gymnasium=False)


def find(name: str) -> BackendEntry:
    """Return the entry of a backend by its name.

    Of one that is not in the table, such as a third party's ``module:Class``, as little as possible is assumed.
    """
    return BY_NAME.get(name) or _third_party(name)


def standings() -> tuple[Standing, ...]:
    """Return with what backends that have classes of their own step the tasks of every suite that can be stepped here.

    Tasks of a suite that are stepped alike are in one.
    """
    by_function: dict[Callable[[Task], OwnClasses | None], list[BackendEntry]] = {}
    for entry in ENTRIES:
        if entry.own_classes is not None and entry.by_default:
            by_function.setdefault(entry.own_classes, []).append(entry)
    found = []
    for own_classes, entries in by_function.items():
        for suite in SUITES.values():
            alike: dict[OwnClasses, list[str]] = {}
            for name, frame_skip in suite.tasks.items():
                task = Task(name, suite.name, frame_skip)
                own = own_classes(task)
                if own is not None and not entries[0].missing(task):
                    alike.setdefault(own, []).append(name)
            backends = tuple(entry.name for entry in entries)
            found += [Standing(backends, suite, tuple(tasks), own) for own, tasks in alike.items()]
    return tuple(found)


def _usual() -> set[Package]:
    return {package for suite in SUITES.values() if suite.usual for package in suite.packages}


def missing_packages() -> tuple[Package, ...]:
    """Return the packages without which some backend that is measured by default cannot step some task here."""
    seldom = {package for entry in ENTRIES if not entry.by_default for package in entry.packages}
    seldom |= {package for suite in SUITES.values() if not suite.usual for package in suite.packages} - _usual()
    return tuple(package for package in PACKAGES if package not in seldom and not importable(package.module))
