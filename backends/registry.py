"""The table of backends. A new backend takes an adapter, and an entry here. Entries of peers are in ``peers/table.py``.

An entry is all that the rest of vebench knows about a backend. Code outside this folder does not ask for a backend by
name. Simulators and vectorisers are imported when a cell builds its adapter, not here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from vebench.backends import pools
from vebench.backends.bracketed import OptionValue
from vebench.backends.entry import BackendEntry, Built, Library, Option, Scope, alive_per_row, whole_number
from vebench.backends.environments.suites import SUITES, Suite, call, fast_settings, full_id, literal, quoted
from vebench.backends.fast import classes
from vebench.backends.interface import OwnClasses, Task
from vebench.backends.packages import BASE, RECORDED_BESIDES, TORCH, Installation, Package, importable
from vebench.backends.peers import table

_TIME = re.compile(r"(\d+\.?\d*|\.\d+)(us|ms|s|m|)", re.ASCII)
_UNITS = {"": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
_MOST_SECONDS = 3600.0


def _one_of(values: Mapping[str, OptionValue], meaning: str) -> Callable[[str], OptionValue]:
    """Return an option's ``parse`` that accepts the texts in ``values``."""

    def parse(text: str) -> OptionValue:
        if text not in values:
            raise ValueError(meaning)
        return values[text]

    return parse


def _seconds(text: str) -> float:
    match = _TIME.fullmatch(text)
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not 0 < seconds <= _MOST_SECONDS:
        raise ValueError("a time above 0, such as 1ms")
    return seconds


_START_METHOD = _one_of({name: name for name in ("fork", "forkserver", "spawn")}, "fork, forkserver or spawn")
_FLAG = _one_of({"true": True, "false": False}, "true or false")
_OF_THREADS: Mapping[str, Option] = {
    "spin": Option(
        lambda text: 0 if text == "0" else whole_number(text),
        None,
        "most microseconds to poll before sleeping (default: 400; in threads 50)",
    ),
    "caller_steps": Option(_FLAG, True, "whether the calling process steps environments, too: true or false"),
}
_OF_PROCESSES = {**_OF_THREADS, "context": Option(_START_METHOD, "fork", "fork, forkserver or spawn")}
_WHEN_ASYNC: Mapping[str, Option] = {
    **alive_per_row(2),
    "recv_timeout": Option(_seconds, None, "time to wait for a whole batch before returning a partial one: 1ms"),
    "recv_min": Option(whole_number, 1, "fewest rows of a partial batch"),
}

_OVERWRITTEN = "# copy=False: each step overwrites the last observations"


def _gym_lines(name: str, built: Built) -> tuple[str, ...]:
    arguments = (f"[make_env] * {built.num_envs}", "copy=False", *built.given("max_concurrency", "context"))
    lines = built.guarded((_OVERWRITTEN, *call(f"envs = {name}", arguments)))
    return built.script((f"from gymnasium.vector import {name}",), lines)


def _our_lines(style: str, fast: bool, built: Built) -> tuple[str, ...]:
    """Return lines that create our own vector environment. Return none if batches may have fewer rows."""
    if "recv_timeout" in built.options:
        return ()
    if style == "async":
        setting = f"batch_size={built.batch_size}"
        note = "# reset(), send() to all, then recv() and send() in turn"
    else:
        setting = "copy=False"
        note = "# copy=False: read-only, and each step overwrites the last" if fast else _OVERWRITTEN
    settings = (setting, f"num_processes={max(built.processes, built.threads)}")
    if fast:
        arguments = (
            quoted(full_id(built.task)),
            str(built.num_envs),
            *settings,
            *built.given("spin", "caller_steps"),
            *(f"{name}={literal(value)}" for name, value in fast_settings(built.task).items()),
        )
        lines = built.guarded((note, *call("envs = make_vec", arguments)))
        return ("from vebench.backends.fast import make_vec", "", *lines)
    arguments = (
        f"[make_env] * {built.num_envs}",
        *settings,
        f"caller_steps={literal(built.options.get('caller_steps', True))}",
        "infos=False",
        *built.given("spin", "context"),
    )
    notes = (note, "# infos=False, as it was measured: drop it if you need infos")
    lines = built.guarded((*notes, *call("envs = shared_memory.SharedMemoryVectorEnv", arguments)))
    return built.script(("from vebench.backends import shared_memory",), lines)


def _ours(style: str, *, fast: bool) -> BackendEntry:
    """Return the entry of ``shm-STYLE``, or with our own environment classes of ``fast-STYLE``."""
    is_async = style == "async"
    own_classes = Scope(
        name_of=lambda task: None if classes.class_of(task.id) is None else task.id,
        own_classes=classes.expected_classes,
        without_own=f"shm-{style}",
    )
    summary = (
        "our own, more environments than a batch takes"
        if is_async
        else "our own: one process per CPU owned, shared memory"
    )
    return BackendEntry(
        f"{'fast' if fast else 'shm'}-{style}",
        f"vebench.backends.{'fast.backend:Fast' if fast else 'shared_memory.backend:Shm'}{style.title()}",
        summary,
        "threads" if fast else "processes",
        scope=own_classes if fast else Scope(),
        options={**(_WHEN_ASYNC if is_async else {}), **(_OF_THREADS if fast else _OF_PROCESSES)},
        asynchronous=is_async,
        gymnasium_api=True,
        worth_trying=({"ratio": 3},) if is_async else ({"caller_steps": False},),
        lines=partial(_our_lines, style, fast),
    )


ENTRIES: tuple[BackendEntry, ...] = (
    BackendEntry(
        "for-loop",
        "vebench.backends.for_loop:ForLoop",
        "a Python loop in one process: the reference",
        role="reference",
        gymnasium_api=True,
        lines=lambda built: built.script((), (f"envs = [make_env() for _ in range({built.num_envs})]",)),
    ),
    BackendEntry(
        "gym-sync",
        "vebench.backends.gym_vector:GymSync",
        "Gymnasium's SyncVectorEnv",
        gymnasium_api=True,
        lines=partial(_gym_lines, "SyncVectorEnv"),
    ),
    BackendEntry(
        "gym-async",
        "vebench.backends.gym_vector:GymAsync",
        "Gymnasium's AsyncVectorEnv, shared memory on",
        "process each",
        options={
            "max_concurrency": Option(whole_number, None, "environments stepping at any one time (default: all)"),
            "context": Option(_START_METHOD, None, "fork, forkserver or spawn (default: Python's)"),
        },
        gymnasium_api=True,
        lines=partial(_gym_lines, "AsyncVectorEnv"),
    ),
    *(_ours(style, fast=fast) for fast in (False, True) for style in ("sync", "async")),
    *pools.POOLS,
    BackendEntry(
        "threads",
        "vebench.backends.workers:Threads",
        "a thread for each CPU owned, from a pool, in one process",
        "threads",
        by_default=False,
    ),
    BackendEntry(
        "queue",
        "vebench.backends.workers:QueueBackend",
        "a process for each CPU owned, coordinated through multiprocessing.Queue",
        "processes",
        by_default=False,
    ),
    BackendEntry(
        "torch-mp",
        "vebench.backends.workers:TorchMultiprocessing",
        "a process for each CPU owned, with torch's shared tensors and semaphores",
        "processes",
        library=Library(packages=(TORCH,)),
        by_default=False,
    ),
    BackendEntry(
        "ceiling",
        "vebench.backends.ceiling:Ceiling",
        "the bare simulator on every CPU owned: the bound to expect",
        role="ceiling",
        scope=Scope(
            frozenset(suite.name for suite in SUITES.values() if suite.simulator is not None),
            name_of=lambda task: None if task.arguments else task.id,  # there is no environment that takes arguments
        ),
    ),
    BackendEntry(
        "null",
        "vebench.backends.null:Null",
        "returns at once: shows the cost of the measuring loop itself",
        role="null",
        steps_gymnasium=False,
    ),
    BackendEntry(
        "yardstick",
        "vebench.backends.null:Yardstick",
        "a fixed amount of work: shows how fast the machine is",
        role="yardstick",
        steps_gymnasium=False,
        by_default=False,
    ),
    *table.PEERS,
)


BY_NAME: Mapping[str, BackendEntry] = {entry.name: entry for entry in ENTRIES}
_BY_ROLE = {entry.role: entry.name for entry in ENTRIES}
REFERENCE, CEILING, NULL, YARDSTICK = (_BY_ROLE[role] for role in ("reference", "ceiling", "null", "yardstick"))

# Everything that some backend needs for some suite.
_OF_SUITES = (package for suite in SUITES.values() for package in suite.packages)
_OF_LIBRARIES = (package for entry in ENTRIES for package in entry.library.packages)
PACKAGES: tuple[Package, ...] = tuple(dict.fromkeys((*BASE, *_OF_SUITES, *_OF_LIBRARIES)))

# How to make interpreters for other projects' backends and collectors. Each interpreter is listed once.
_INSTALLED = (entry.library.installation for entry in ENTRIES if entry.library.installation)
INSTALLATIONS: tuple[Installation, ...] = tuple({one.name: one for one in (*_INSTALLED, *table.COLLECTORS)}.values())

# The names of packages whose versions a run file records, since they affect a cell's work or speed.
RECORDED: tuple[str, ...] = tuple(
    sorted((*(name for package in PACKAGES for name in package.deciding_names), *RECORDED_BESIDES))
)


def find(name: str) -> BackendEntry:
    """Return the entry of a backend by its name.

    A third party's ``module:Class`` takes any option, and may run any task.
    """
    theirs = Library(preloads=None)
    return BY_NAME.get(name) or BackendEntry(
        name, name, "a third party's adapter", steps_gymnasium=False, library=theirs
    )


class Standing(NamedTuple):
    """How ``backends`` with own environment classes step ``tasks`` of a suite on this machine."""

    backends: tuple[str, ...]
    suite: Suite
    tasks: tuple[str, ...]
    own: OwnClasses


def standings() -> tuple[Standing, ...]:
    """Return the standings of suites that can be stepped here. Tasks of a suite with the same ``own`` share one."""
    entries = [entry for entry in ENTRIES if entry.scope.own_classes is not None and entry.by_default]
    names = tuple(entry.name for entry in entries)
    found = []
    for suite in SUITES.values():
        alike: dict[OwnClasses, list[str]] = {}
        for name, frame_skip in suite.tasks.items():
            task = Task(name, suite.name, frame_skip)
            own = classes.expected_classes(task)
            if own is not None and not entries[0].missing(task):
                alike.setdefault(own, []).append(name)
        found += [Standing(names, suite, tuple(tasks), own) for own, tasks in alike.items()]
    return tuple(found)


def missing_packages() -> tuple[Package, ...]:
    """Return the missing packages that backends measured by default need for some task of a usual suite."""
    usual = {package for suite in SUITES.values() if suite.usual for package in suite.packages}
    seldom = {package for suite in SUITES.values() if not suite.usual for package in suite.packages} - usual
    seldom |= {package for entry in ENTRIES if not entry.by_default for package in entry.library.packages}
    return tuple(package for package in PACKAGES if package not in seldom and not importable(package.module))
