"""The table of backends: a name, where its adapter stands, and what can be said of it without loading it.

Nothing here imports a simulator or a vectoriser; that happens when a cell builds its adapter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vebench.backends.interface import OptionValue, Suite, Task


@dataclass(frozen=True)
class Option:
    """A setting of a backend that ``-b NAME[KEY=VALUE]`` can change.

    ``parse`` raises ValueError on a bad value; the error's text says what a good one is, after the words "must be".
    """

    parse: Callable[[str], OptionValue]
    default: OptionValue | None
    meaning: str


@dataclass(frozen=True)
class Shape:
    """How a backend lays out a cell: counts that the plan shows before anything is built."""

    num_envs: int
    batch_size: int
    processes: int
    threads: int


@dataclass(frozen=True)
class Entry:
    """One backend. ``shape`` maps (workers, environments per worker, CPUs owned, options) to its layout.

    ``suites`` are the tasks it can step, None for all. ``steps_gymnasium``: it steps environments that Gymnasium makes.
    ``reference``: it is no contestant, but a row to hold the others against. ``builds_environments``: there are
    environments behind its rows, which take memory.
    """

    name: str
    target: str
    summary: str
    packages: tuple[str, ...]
    shape: Callable[[int, int, int, Mapping[str, OptionValue]], Shape]
    suites: frozenset[Suite] | None = None
    options: Mapping[str, Option] = field(default_factory=dict)
    steps_gymnasium: bool = True
    reference: bool = False
    builds_environments: bool = True

    def why_not(self, task: Task, has: Callable[[str], bool] | None = None) -> str | None:
        """Return why this backend cannot step ``task`` on this machine, or None if it can.

        ``has`` says whether a module can be imported; by default, whether it can be here.
        """
        has = has or _here
        if self.suites is not None and task.suite not in self.suites:
            return f"{self.name} has no {task.id}: it steps {', '.join(sorted(self.suites))} tasks only"
        if self.name.startswith("envpool") and task.pool_id is None:
            return f"EnvPool has no {task.id}"
        needed = (*self.packages, *(SUITE_PACKAGES[task.suite] if self.steps_gymnasium else ()))
        missing = [PIP_NAMES.get(name, name) for name in dict.fromkeys(needed) if not has(name)]
        return f"not installed: {', '.join(missing)} (pip install {' '.join(missing)})" if missing else None


# What building an environment of each suite through Gymnasium needs besides Gymnasium itself.
SUITE_PACKAGES: Mapping[Suite, tuple[str, ...]] = {
    "atari": ("gymnasium", "ale_py", "cv2"),
    # Gymnasium imports its renderer, and with it imageio, with any MuJoCo task.
    "mujoco": ("gymnasium", "mujoco", "imageio", "packaging"),
    "classic": ("gymnasium",),
    "gymnasium": ("gymnasium",),
}
MODULES = frozenset({"envpool", *(name for names in SUITE_PACKAGES.values() for name in names)})
PIP_NAMES = {"ale_py": "ale-py", "cv2": "opencv-python-headless"}


MAX_COUNT = 1 << 16  # beyond any machine: a typing error


def _here(module: str) -> bool:
    return find_spec(module) is not None


def _whole(text: str) -> int:
    # int() would also take other scripts' digits, underscores, and thousands of digits only to fail later.
    if text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_COUNT)) and 1 <= int(text) <= MAX_COUNT:
        return int(text)
    raise ValueError(f"a whole number from 1 to {MAX_COUNT}")


def _start_method(text: str) -> str:
    if text not in ("fork", "forkserver", "spawn"):
        raise ValueError("fork, forkserver or spawn")
    return text


def _count(text: str) -> int:
    return 0 if text == "0" else _whole(text)


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return text == "true"


def _in_caller(workers: int, envs: int, _cpus: int, _options: Mapping[str, OptionValue]) -> Shape:
    return Shape(workers * envs, workers * envs, processes=1, threads=1)


def _process_each(workers: int, envs: int, _cpus: int, _options: Mapping[str, OptionValue]) -> Shape:
    return Shape(workers * envs, workers * envs, processes=workers * envs, threads=1)


def _process_per_cpu(workers: int, envs: int, cpus: int, _options: Mapping[str, OptionValue]) -> Shape:
    return Shape(workers * envs, workers * envs, processes=min(workers, cpus), threads=1)


def _free_running(workers: int, _envs: int, cpus: int, _options: Mapping[str, OptionValue]) -> Shape:
    processes = min(workers, cpus)
    return Shape(processes, 64 * processes, processes, threads=1)


def _thread_per_cpu(workers: int, envs: int, cpus: int, _options: Mapping[str, OptionValue]) -> Shape:
    return Shape(workers * envs, workers * envs, processes=1, threads=min(workers, cpus))


def _pool_ahead(workers: int, envs: int, cpus: int, options: Mapping[str, OptionValue]) -> Shape:
    batch = workers * envs
    return Shape(batch * int(options["ratio"]), batch, processes=1, threads=min(workers, cpus))


def _processes_ahead(workers: int, envs: int, cpus: int, options: Mapping[str, OptionValue]) -> Shape:
    batch = workers * envs
    return Shape(batch * int(options["ratio"]), batch, processes=min(workers, cpus), threads=1)


_SHARED_MEMORY_OPTIONS: Mapping[str, Option] = {
    "spin": Option(_count, None, "microseconds that one who waits polls at most before it sleeps (default: 400)"),
    "caller_steps": Option(_flag, True, "whether the calling process steps a share itself, true or false"),
    "context": Option(_start_method, "fork", "fork, forkserver or spawn"),
}

_POOL_SUITES: frozenset[Suite] = frozenset({"atari", "mujoco", "classic"})

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "for-loop", "vebench.backends.for_loop:ForLoop", "a Python loop in one process: the reference", (), _in_caller
    ),
    Entry("gym-sync", "vebench.backends.gym_sync:GymSync", "Gymnasium's SyncVectorEnv", (), _in_caller),
    Entry(
        "gym-async",
        "vebench.backends.gym_async:GymAsync",
        "Gymnasium's AsyncVectorEnv, shared memory on",
        (),
        _process_each,
        options={
            "max_concurrency": Option(_whole, None, "environments stepping at any one time (default: all)"),
            "context": Option(_start_method, None, "fork, forkserver or spawn (default: Python's)"),
        },
    ),
    Entry(
        "shm-sync",
        "vebench.backends.shared_memory.backend:ShmSync",
        "our own: one process per CPU owned, shared memory",
        (),
        _process_per_cpu,
        options=_SHARED_MEMORY_OPTIONS,
    ),
    Entry(
        "shm-async",
        "vebench.backends.shared_memory.backend:ShmAsync",
        "our own, more environments than a batch takes",
        (),
        _processes_ahead,
        options={"ratio": Option(_whole, 2, "environments alive for each row of a batch"), **_SHARED_MEMORY_OPTIONS},
    ),
    Entry(
        "envpool-sync",
        "vebench.backends.env_pool:EnvPoolSync",
        "EnvPool, every environment in each batch",
        ("envpool",),
        _thread_per_cpu,
        suites=_POOL_SUITES,
        steps_gymnasium=False,
    ),
    Entry(
        "envpool-async",
        "vebench.backends.env_pool:EnvPoolAsync",
        "EnvPool, more environments than a batch takes",
        ("envpool",),
        _pool_ahead,
        suites=_POOL_SUITES,
        options={"ratio": Option(_whole, 3, "environments alive for each row of a batch")},
        steps_gymnasium=False,
    ),
    Entry(
        "ceiling",
        "vebench.backends.ceiling:Ceiling",
        "the bare simulator on every CPU owned: what no backend can beat",
        (),
        _free_running,
        suites=frozenset({"atari", "mujoco"}),
        reference=True,
    ),
    Entry(
        "null",
        "vebench.backends.null:Null",
        "returns at once: what the measuring loop itself costs",
        (),
        _in_caller,
        steps_gymnasium=False,
        reference=True,
        builds_environments=False,
    ),
)

BY_NAME: Mapping[str, Entry] = {entry.name: entry for entry in ENTRIES}


def third_party(target: str) -> Entry:
    """Return an entry for the adapter ``module:Class``: it takes any option, and may run any task."""
    return Entry(target, target, "a third party's adapter", (), _in_caller, steps_gymnasium=False)


def find(name: str) -> Entry:
    """Return the entry of a backend by its name in the table, or by ``module:Class``. Raises KeyError for others."""
    return third_party(name) if ":" in name else BY_NAME[name]


def missing_packages() -> tuple[str, ...]:
    """Return the packages, by the names that pip knows, without which some backend of the table cannot step a task."""
    needed = [name for entry in ENTRIES for name in entry.packages]
    needed += [name for names in SUITE_PACKAGES.values() for name in names]
    return tuple(PIP_NAMES.get(name, name) for name in dict.fromkeys(needed) if find_spec(name) is None)
