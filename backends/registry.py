"""The table of backends. A new backend takes an adapter and an entry, here or as a row of ``peers/peers.json``.

An entry is all that the rest of vebench knows about a backend. Code outside this folder does not ask for a backend by
name. Simulators and vectorisers are imported when a cell builds its adapter, not here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from vebench.backends import pools
from vebench.backends.bracketed import OptionValue, value_of
from vebench.backends.entry import BackendEntry, Built, Library, Option, Options, Scope, alive_per_row, whole_number
from vebench.backends.environments.suites import (
    MIB,
    SUITES,
    Suite,
    arguments_of,
    call,
    called,
    fast_settings,
    full_id,
    literal,
    quoted,
)
from vebench.backends.fast import classes
from vebench.backends.interface import OwnClasses, Task
from vebench.backends.packages import BASE, JAX, RAY, TORCH, Installation, Package, Step, importable

REFERENCE, CEILING, NULL, YARDSTICK = "for-loop", "ceiling", "null", "yardstick"
MEASURED = "for-loop, gym-*, shm-*, fast-*, envpool-*"  # the backends that a run measures by default, for help
USUAL = "gym-async"  # the backend that training usually begins with; ``tune`` compares others with it
PARTIAL, AHEAD = "shm-async", "shm-sync[spares=1]"  # named by reports for uneven steps, and for slow resets


def _one_of(*texts: str) -> Callable[[str], OptionValue]:
    """Return an option's ``parse`` that accepts these texts only."""

    def parse(text: str) -> OptionValue:
        if text not in texts:
            raise ValueError(f"{', '.join(texts[:-1])} or {texts[-1]}")
        return value_of(text)

    return parse


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)(us|ms|s|m|)", text, re.ASCII)
    units = {"": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
    seconds = float(match[1]) * units[match[2]] if match else 0.0
    if not 0 < seconds <= 3600:  # noqa: PLR2004 - an hour: more is a typing error
        raise ValueError("a time above 0, such as 1ms")
    return seconds


_START_METHOD = _one_of("fork", "forkserver", "spawn")
_DELIVER = Option(_one_of("host", "device"), "host", "rows as NumPy arrays, or left on the device")
_ROUNDING = "XLA rounds differently in batches of other sizes, and contacts amplify the difference"
_OVERWRITES = "# copy=False: each step overwrites the last observations", "copy=False"
_READ_ONLY = "# copy=False: read-only, and each step overwrites the last", "copy=False"
_RESETS = "# SameStep: a step that ends an episode shows the next one", 'autoreset_mode="SameStep"'


def _gym_lines(name: str, built: Built) -> tuple[str, ...]:
    note, setting = _RESETS if built.of_library else _OVERWRITES
    arguments = (f"[make_env] * {built.num_envs}", setting, *built.given("max_concurrency", "context"))
    lines = built.guarded((note, *call(f"envs = {name}", arguments)))
    return built.script((f"from gymnasium.vector import {name}",), lines)


def _native_lines(built: Built) -> tuple[str, ...]:
    target = called(built.task)
    if built.task.suite != "vectors" or not target:
        return ()
    arguments = (f"num_envs={built.num_envs}", *arguments_of(built.task))
    return (f"import {built.task.name.partition(':')[0]}", "", *built.guarded(call(f"envs = {target}", arguments)))


def _gym_vector_lines(built: Built) -> tuple[str, ...]:
    named = quoted(full_id(built.task)), f"num_envs={built.num_envs}"
    arguments = (*named, 'vectorization_mode="vector_entry_point"', *arguments_of(built.task))
    return ("import gymnasium", "", *built.guarded(call("envs = gymnasium.make_vec", arguments)))


def _our_lines(is_async: bool, fast: bool, built: Built) -> tuple[str, ...]:
    """Return lines that create our own vector environment. Return none if batches may have fewer rows."""
    if "recv_timeout" in built.options:
        return ()
    note, setting = _RESETS if built.of_library else _READ_ONLY if fast else _OVERWRITES
    if is_async:
        setting, note = f"batch_size={built.batch_size}", "# reset(), send() to all, then repeat recv() and send()"
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
    spares = built.options.get("spares")
    made = f"lambda: shared_memory.ResetAhead(make_env, {spares})" if spares else "make_env"
    arguments = (
        f"[{made}] * {built.num_envs}",
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
    options: dict[str, Option] = {}
    if is_async:
        options |= alive_per_row(2)
        options["recv_timeout"] = Option(
            _seconds, None, "time to wait for a whole batch before returning a partial one: 1ms"
        )
        options["recv_min"] = Option(whole_number, 1, "fewest rows of a partial batch")
    options["spin"] = Option(
        lambda text: 0 if text == "0" else whole_number(text),
        None,
        "most microseconds to poll before sleeping (default: 400; in threads 50)",
    )
    options["caller_steps"] = Option(
        _one_of("true", "false"), True, "whether the calling process steps environments, too: true or false"
    )
    if not fast:
        options["context"] = Option(_START_METHOD, "fork", "fork, forkserver or spawn")
        options["spares"] = Option(whole_number, None, "spares of each environment, reset ahead (default: none)")
    own_classes = Scope(
        name_of=lambda task: None if classes.class_of(task.id) is None else task.id,
        own_classes=classes.expected_classes,
        without_own=f"shm-{style}",
    )
    how = "vebench's own classes in native threads" if fast else "vebench's own: processes with shared memory"
    layout = "more environments than a batch takes" if is_async else "every environment in each batch"
    return BackendEntry(
        f"{'fast' if fast else 'shm'}-{style}",
        f"vebench.backends.{'fast.backend:Fast' if fast else 'shared_memory.backend:Shm'}{style.title()}",
        f"{how}, {layout}",
        "threads" if fast else "processes",
        scope=own_classes if fast else Scope(),
        environment_seconds={"atari": 0.09, "mujoco": 0.0004} if fast else {},
        options=options,
        asynchronous=is_async,
        gymnasium_api=True,
        worth_trying=({"ratio": 3},) if is_async else ({"caller_steps": False},),
        lines=partial(_our_lines, is_async, fast),
    )


def _installation(name: str, facts: dict[str, Any]) -> Installation:
    return Installation(name, **{**facts, "steps": tuple(Step(**step) for step in facts["steps"])})


def _peer(row: dict[str, Any]) -> BackendEntry:
    """Return the entry of another project's backend. Facts in its row override facts of its library."""
    facts = {**_PEERS["libraries"][row["library"]], **row}
    known = {package.name: package for package in (RAY, TORCH)}
    worker = facts.get("worker_mib")
    library = Library(
        facts.get("title", ""),
        tuple(known.get(package["name"]) or Package(**package) for package in facts["packages"]),
        _installation(row["library"], facts["installation"]),
        import_bytes=facts.get("import_mib", 0) * MIB,
        worker_bytes=None if worker is None else worker * MIB,
        spins=facts.get("spins", False),
    )
    suites = frozenset(facts["suites"]) if "suites" in facts else None
    tasks = facts.get("tasks")
    return BackendEntry(
        row["name"],
        f"vebench.backends.peers.{row['adapter']}",
        row["summary"],
        row.get("steppers", "caller"),
        library=library,
        scope=Scope(suites, lambda task: task.id if tasks is None or task.id in tasks else None),
        options=alive_per_row(row["ratio"]) if "ratio" in row else {},
        asynchronous="ratio" in row,
        by_default=False,
        competes=row.get("competes", True),
    )


# Other projects' libraries, with their pinned installations, and backends that use them.
_PEERS = json.loads(Path(__file__).with_name("peers").joinpath("peers.json").read_text(encoding="utf-8"))

ENTRIES: tuple[BackendEntry, ...] = (
    BackendEntry(
        REFERENCE,
        "vebench.backends.for_loop:ForLoop",
        "a Python loop in one process: the reference",
        role="reference",
        gymnasium_api=True,
        lines=lambda built: built.script((), built.guarded((f"envs = [make_env() for _ in range({built.num_envs})]",))),
    ),
    BackendEntry(
        "gym-sync",
        "vebench.backends.one_in_flight:GymSync",
        "Gymnasium's SyncVectorEnv",
        gymnasium_api=True,
        lines=partial(_gym_lines, "SyncVectorEnv"),
    ),
    BackendEntry(
        "gym-async",
        "vebench.backends.one_in_flight:GymAsync",
        "Gymnasium's AsyncVectorEnv, shared memory on",
        "process each",
        options={
            "max_concurrency": Option(whole_number, None, "environments stepping at any one time (default: all)"),
            "context": Option(_START_METHOD, None, "fork, forkserver or spawn (default: Python's)"),
        },
        gymnasium_api=True,
        lines=partial(_gym_lines, "AsyncVectorEnv"),
    ),
    BackendEntry(
        "gym-vector",
        "vebench.backends.batched.vectors:GymVector",
        "the vector environment that Gymnasium registers for an id (vector_entry_point)",
        scope=Scope(
            frozenset({"classic", "gymnasium"}),
            name_of=lambda task: task.id if task.vectorised or task.name == "CartPole-v1" else None,
            chance=lambda _: "one generator draws the starts of all environments",
        ),
        steps_gymnasium=False,
        by_default=False,
        gymnasium_api=True,
        lines=_gym_vector_lines,
    ),
    BackendEntry(
        "native",
        "vebench.backends.batched.vectors:Native",
        "the batch that a vector environment, or a simulator, steps by itself",
        scope=Scope(
            frozenset(one.name for one in SUITES.values() if one.make_vec and JAX not in one.packages),
            chance=lambda task: "one generator draws the starts of all environments" if task.drawn_together else None,
        ),
        roles={"deliver": "device"},
        options={"deliver": _DELIVER},
        gymnasium_api=True,
        lines=_native_lines,
    ),
    BackendEntry(
        "jax",
        "vebench.backends.batched.jax_env:Jax",
        "a JAX library's batch: compiled, vmapped steps with automatic resets",
        "threads",
        scope=Scope(
            frozenset(one.name for one in SUITES.values() if JAX in one.packages),
            chance=lambda task: _ROUNDING if task.suite in ("brax", "playground") else None,
        ),
        roles={"rollout": "rollout", "deliver": "device"},
        library=Library(import_bytes=300 * MIB),
        options={
            "deliver": _DELIVER,
            "rollout": Option(whole_number, None, "steps of one compiled loop with random actions, rows on the device"),
        },
    ),
    *(_ours(style, fast=fast) for fast in (False, True) for style in ("sync", "async")),
    *pools.POOLS,
    BackendEntry(
        "threads",
        "vebench.backends.workers:Threads",
        "a pool of Python threads in one process",
        "threads",
        by_default=False,
    ),
    BackendEntry(
        "queue",
        "vebench.backends.workers:QueueBackend",
        "processes, coordinated through multiprocessing.Queue",
        "processes",
        by_default=False,
    ),
    BackendEntry(
        "torch-mp",
        "vebench.backends.workers:TorchMultiprocessing",
        "processes, with torch's shared tensors and semaphores",
        "processes",
        library=Library(packages=(TORCH,)),
        by_default=False,
    ),
    BackendEntry(
        CEILING,
        "vebench.backends.reference_rows:Ceiling",
        "the bare simulator on the same CPUs, without observations: a rough upper bound",
        role="ceiling",
        environment_seconds={"atari": 0.09},
        scope=Scope(
            frozenset(suite.name for suite in SUITES.values() if suite.simulator is not None),
            name_of=lambda task: None if task.arguments else task.id,  # there is no environment that takes arguments
        ),
    ),
    BackendEntry(
        NULL,
        "vebench.backends.reference_rows:Null",
        "returns at once: shows the cost of the measuring loop itself",
        role="null",
        steps_gymnasium=False,
        environment_seconds=dict.fromkeys(SUITES, 0.0),
    ),
    BackendEntry(
        YARDSTICK,
        "vebench.backends.reference_rows:Yardstick",
        "a fixed amount of work: shows how fast the machine is",
        role="yardstick",
        steps_gymnasium=False,
        environment_seconds=dict.fromkeys(SUITES, 0.0),
        by_default=False,
    ),
    *map(_peer, _PEERS["backends"]),
)


BY_NAME: Mapping[str, BackendEntry] = {entry.name: entry for entry in ENTRIES}

# The packages of each suite and backend.
_NEEDED = (*(suite.packages for suite in SUITES.values()), *(entry.library.packages for entry in ENTRIES))
PACKAGES: tuple[Package, ...] = tuple(dict.fromkeys(chain(BASE, *_NEEDED)))

# The names of packages whose versions a run file records, since they affect a cell's work or speed. Policies need
# torch, and users' environments and adapters may.
RECORDED: tuple[str, ...] = tuple(
    sorted((TORCH.name, *chain.from_iterable(package.deciding_names for package in PACKAGES)))
)

# How to make interpreters for other projects' backends.
INSTALLATIONS: tuple[Installation, ...] = tuple(
    _installation(name, facts["installation"]) for name, facts in _PEERS["libraries"].items()
)


def find(name: str, options: Options = MappingProxyType({})) -> BackendEntry:
    """Return the entry of a backend. An unknown name is a third party's ``module:Class``, for any option and task."""
    if (known := BY_NAME.get(name)) is not None:
        role = next((role for option, role in known.roles.items() if option in options), known.role)
        return known if role == known.role else replace(known, role=role)
    library = Library(preloads=None)
    return BackendEntry(name, name, "a third party's adapter", steps_gymnasium=False, library=library)


class Standing(NamedTuple):
    """How ``backends`` with own environment classes step ``tasks`` of a suite on this machine."""

    backends: tuple[str, ...]
    suite: Suite
    tasks: tuple[str, ...]
    own: OwnClasses


def standings() -> tuple[Standing, ...]:
    """Return the standings of suites that can be stepped here. All tasks of a suite have the same standing."""
    entries = [entry for entry in ENTRIES if entry.scope.own_classes is not None and entry.by_default]
    names = tuple(entry.name for entry in entries)
    found = []
    for suite in SUITES.values():
        tasks = [Task(name, suite.name, frame_skip) for name, frame_skip in suite.tasks.items()]
        stepped = [task for task in tasks if entries[0].has(task)]
        own = classes.expected_classes(stepped[0]) if stepped else None
        if own is not None and not entries[0].missing(stepped[0]):
            found.append(Standing(names, suite, tuple(task.id for task in stepped), own))
    return tuple(found)


def missing_packages() -> tuple[Package, ...]:
    """Return the missing packages that backends measured by default need for some task of a usual suite."""
    needed = [suite.packages for suite in SUITES.values() if suite.usual]
    needed += [entry.library.packages for entry in ENTRIES if entry.by_default]
    return tuple(package for package in dict.fromkeys(chain(BASE, *needed)) if not importable(package.module))
