"""The contents of a run file, as records that are checked when they are read, and in what two runs differ.

There are no rates here: ``vebench.analysis`` derives them from the raw counts when they are needed.
"""

from __future__ import annotations

import json
import platform
import shlex
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from vebench.backends.entry import BackendEntry
from vebench.backends.packages import TORCH
from vebench.backends.registry import ENTRIES, find
from vebench.child.answers import OF_LOOP, Cause, CellProof, Done, Layout, Window, WorkVerdict, check_counts
from vebench.engine.interface import Outcome
from vebench.errors import NotComparableError, one_line
from vebench.files import T, with_texts
from vebench.interpreters.interpreter import Interpreter, packages_here
from vebench.machine import pinning
from vebench.machine.host import Cache, Host, Node, Topology
from vebench.machine.kernel import parse_list
from vebench.machine.placement import Placement, format_cpu_list
from vebench.plan.cells import Cell, CellKey, Plan, placement_of
from vebench.plan.grammar import BackendChoice
from vebench.plan.spec import OF_LENGTH, RunSpec
from vebench.plan.tasks import ALLOW, asked_as, not_ours, recorded_task
from vebench.plan.verdicts import UNKNOWN, Knowledge, KnownVerdict, as_stepped

if TYPE_CHECKING:
    from vebench.hosts import HostFacts  # only runs on hosts load it

SCHEMA = 2

NonNegative = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, Meta(gt=0, le=2**63 - 1)]


if TYPE_CHECKING:
    WindowRecord = Window
else:
    # Most of a run file is windows: msgspec reads and checks a Struct in a quarter of the time of a dataclass.
    WindowRecord = msgspec.defstruct(
        "WindowRecord",
        [
            ("ns", Positive),
            ("rows", NonNegative),
            ("resets", NonNegative),
            *((item.name, NonNegative | None, None) for item in fields(Window) if item.default is None),
        ],
        namespace={"__post_init__": Window.check_resets},
        frozen=True,
        gc=False,
    )


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Which cell a line is about."""

    env: str
    backend: str
    options: dict[str, bool | int | float | str]
    python: str = ""  # the interpreter that the user named for the backend
    workers: Positive
    envs_per_worker: Positive
    repeat: NonNegative
    run: str = ""  # the ``digest`` of the run that it was measured in

    @property
    def label(self) -> str:
        """The backend as a user writes it, options included: ``envpool-async[ratio=2]``."""
        return self.choice.label

    @cached_property
    def choice(self) -> BackendChoice:
        """The backend with its options, in the interpreter that was named for it."""
        return BackendChoice(self.backend, self.options, self.python)

    @property
    def entry(self) -> BackendEntry:
        """The entry of its backend in the registry."""
        return find(self.backend)

    @cached_property
    def key(self) -> CellKey:
        """The cell's identity within its run, equal to the planned cell's."""
        return CellKey(self.env, self.label, self.workers, self.envs_per_worker, self.repeat)


@dataclass(frozen=True, kw_only=True)
class CellRecord(Done, Layout, Identity):
    """One cell in one pass. A cell that was never ready has the planned counts."""

    status: Literal["ok", "failed", "skipped"]
    reason: str | None = None
    cause: Cause | None = None
    startup_ns: NonNegative | None = None
    reset_ns: NonNegative | None = None
    cpus: tuple[NonNegative, ...]  # planned
    replicas: tuple[tuple[NonNegative, ...], ...] = ()  # the CPUs of each replica; empty if there is only one
    replica_hosts: tuple[str, ...] = ()  # empty if replicas ran on this machine
    verdict: WorkVerdict | None = None  # known before the cell was measured; None for a reference row
    verdict_reason: str = ""
    windows: tuple[WindowRecord, ...] = ()
    proof: CellProof | None = None  # from its own rows, None if nothing was compared; a line of its own in a run file
    took_ns: NonNegative | None = None  # from its start to its end, without its proof and other cells' turns
    type: Literal["cell"] = "cell"

    def __post_init__(self) -> None:
        Done.__post_init__(self)
        check_counts(self, Layout, positive=("frame_skip",))

    @property
    def interrupted(self) -> bool:
        """Whether the user ended the cell, which is not a fault of the cell."""
        return self.cause is Cause.INTERRUPTED


@dataclass(frozen=True, kw_only=True)
class ProofRecord(Identity):
    """The proof of a cell: a line of its own, after the cell's line."""

    proof: CellProof
    type: Literal["proof"] = "proof"

    @classmethod
    def of(cls, cell: CellRecord) -> ProofRecord:
        """Return the line of a cell's proof."""
        return cls(**{item.name: getattr(cell, item.name) for item in fields(cls) if item.name != "type"})


class CacheRecord(Struct, frozen=True):
    """How many data or unified caches of one level and size the machine has."""

    level: NonNegative
    size_bytes: NonNegative | None
    count: Positive


class TopologyRecord(Struct, frozen=True):
    """The parts of the machine, CPU sets as Linux lists; see ``vebench.machine.host.Topology``."""

    cores: Positive
    threads_per_core: Positive
    packages: dict[str, str]
    nodes: dict[str, str]
    caches: tuple[CacheRecord, ...]
    last_level: tuple[str, ...]
    kinds: tuple[str, ...]
    core_cpus: tuple[str, ...]


class HostRecord(Struct, frozen=True):
    """The machine that a run ran on, as ``vebench.machine.host.Host``. None means unknown, or no quota."""

    system: str
    kernel: str
    machine: str
    cpu_model: str
    cpus_online: Positive
    cpus_allowed: tuple[NonNegative, ...]
    usable_cpus: Positive
    topology: TopologyRecord
    memory_bytes: NonNegative | None = None
    python: str = ""
    container: bool | None = None
    virtual: bool | None = None
    pinning: bool = True
    nodes_allowed: tuple[NonNegative, ...] | None = None
    quota_cpus: Annotated[float, Meta(gt=0)] | None = None
    quota_source: str | None = None
    smt: bool | None = None
    governor: str | None = None
    boost: bool | None = None
    thp: str | None = None
    microcode: str | None = None
    isolated: tuple[NonNegative, ...] = ()


class InterpreterRecord(Struct, frozen=True):
    """A Python in which one backend's cells ran: its path, its version, and the packages in it."""

    path: str
    python: str
    packages: dict[str, str]


class HostFactsRecord(Struct, frozen=True):
    """A host that replicas ran on, as it was before the run."""

    name: str  # that it has for itself
    machine: HostRecord
    packages: dict[str, str]
    load: float = 0.0  # processes that wanted a CPU
    interpreter: str = ""
    memory_available_bytes: NonNegative | None = None  # for new processes


class RunRecord(Struct, frozen=True, tag_field="type", tag="run"):
    """The first line of a run file."""

    schema: int
    spec: RunSpec
    host: HostRecord  # the first host if replicas ran on several
    packages: dict[str, str]
    command: str  # that repeats the run
    started: str = ""
    cells: NonNegative | None = None  # planned; None for a tuning, which decides on the way
    interpreter: str | None = None  # the Python that cells ran in, None if it was vebench's own
    interpreters: dict[str, InterpreterRecord] = {}  # of backends with a Python of their own, by label
    hosts: dict[str, HostFactsRecord] = {}  # that replicas ran on, by the name that the user gave

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits of the plan, the machine, the packages and the start, which decide the rates."""
        facts = msgspec.json.encode((self.spec, self.host, self.packages, self.started), order="sorted")
        return sha256(facts).hexdigest()[:12]

    @property
    def usable_cpus(self) -> int:
        """The number of CPUs that cells could have, on all hosts together."""
        return sum(one.machine.usable_cpus for one in self.hosts.values()) or self.host.usable_cpus

    def resume_command(self, file: str) -> str:
        """Return the command that finishes the run in ``file``, or that repeats a comparison."""
        if self.interpreter is not None:
            return self.command
        command = "tune" if self.spec.only else "run"  # only a tuning names its cells
        return shlex.join(["vebench", command, "--resume", file, *([ALLOW] if any(not_ours(self.spec)) else [])])

    def verify_command(self, env: str, labels: Iterable[str], *options: str) -> str:
        """Return the command that compares the work of these backends on a task; of all, if none is named."""
        backends = ",".join(labels)
        words = ("--env", asked_as(env, self.spec.envs), *(("-b", backends) if backends else ()), *options)
        return one_line(f"vebench verify {shlex.join(words)}")


class Run(Struct, frozen=True):
    """A whole run file."""

    header: RunRecord
    cells: tuple[CellRecord, ...]
    notes: tuple[str, ...] = ()  # on lines that are lost


def record(cell: Cell, outcome: Outcome, took_ns: int | None = None) -> CellRecord:
    """Return the record of ``cell``, with the counts of its layout, or the planned ones if it never got ready."""
    layout = outcome.layout or Layout(**vars(cell.shape), frame_skip=cell.task.frame_skip)
    # The known verdict is about other code if an own class was expected and fell back to Gymnasium's.
    expected, stepped = (as_stepped(cell.task, cell.backend, own) for own in (None, layout.own_classes))
    known = cell.known if stepped == expected or not cell.known else UNKNOWN
    return CellRecord(
        **vars(_on_one_line(replace(layout, engines=(*layout.engines, *cell.interpreter.engines)))),
        **vars(_on_one_line(outcome.done)),
        env=cell.task.id,
        backend=cell.backend.name,
        options=dict(cell.backend.options),
        python=cell.backend.python,
        workers=cell.workers,
        envs_per_worker=cell.envs_per_worker,
        cpus=cell.cpus,
        repeat=cell.repeat,
        status=outcome.status,
        reason=None if outcome.reason is None else one_line(outcome.reason),
        cause=outcome.cause,
        startup_ns=outcome.startup_ns,
        reset_ns=outcome.reset_ns,
        took_ns=took_ns,
        windows=msgspec.convert(outcome.windows, tuple[WindowRecord, ...], from_attributes=True),
        verdict=known.verdict if known else None,
        verdict_reason=one_line(known.reason) if known else "",
        replicas=tuple(replica.cpus for replica in cell.replicas),
        replica_hosts=tuple(replica.host for replica in cell.replicas if replica.host),
    )


def _on_one_line(value: T) -> T:
    """Return a record that has texts of a library, with each of them on one line."""
    return msgspec.convert(with_texts(msgspec.to_builtins(value), one_line), type(value))


def encode(line: CellRecord | ProofRecord | RunRecord) -> bytes:
    """Return the line as JSON, with its checksum. Counts that only some loops have are left out if this has none."""
    body = msgspec.to_builtins(line)
    if isinstance(line, CellRecord):
        body.pop("proof", None)
        body["windows"] = [
            {name: value for name, value in window.items() if value is not None or name not in OF_LOOP}
            for window in body["windows"]
        ]
    return sealed(msgspec.json.encode({"type": body.pop("type"), **body}))


def sealed(line: bytes) -> bytes:
    """Return an encoded line with its checksum and its end."""
    body = line.removesuffix(b"}")
    return body + ending(body)


def ending(body: bytes) -> bytes:
    """Return the end of a line that begins with ``body``: its checksum, a brace and a newline."""
    return b',"crc32":"%08x"}\n' % zlib.crc32(body)


def with_current_verdicts(run: Run, knowledge: Knowledge) -> Run:
    """Return ``run`` with the verdicts that are known now for its tasks, backends and packages."""
    found: dict[tuple[object, ...], KnownVerdict] = {}  # mostly shared by all sizes and passes

    def now(cell: CellRecord) -> KnownVerdict:
        known = KnownVerdict(cell.verdict or "unverified", cell.verdict_reason)
        # Verdicts on a user's own environment are valid within the command that found them.
        task = recorded_task(cell.env, cell.frame_skip, run.header.spec.envs)
        own = run.header.interpreters.get(cell.label, run.header)
        current = knowledge.of(task, cell.choice, own.packages, cell.own_classes)
        replaces = current != UNKNOWN and current.outweighs(known) and known.verdict != "different"
        return current if replaces else known

    def current(cell: CellRecord) -> CellRecord:
        about = cell.env, cell.frame_skip, cell.label, cell.own_classes, cell.verdict, cell.verdict_reason
        known = found.get(about) or found.setdefault(about, now(cell))
        same = (known.verdict, known.reason) == (cell.verdict, cell.verdict_reason)
        return cell if same else replace(cell, verdict=known.verdict, verdict_reason=known.reason)

    cells = tuple(cell if cell.entry.reference_row else current(cell) for cell in run.cells)
    return msgspec.structs.replace(run, cells=cells)


# Facts that decide if both runs know them: not every system or container reports them.
DECISIVE_IF_KNOWN = ("smt", "governor", "boost", "thp", "quota_cpus", "virtual")
# The backends that alone use a package.
_USED_BY = {
    name: {user.name for user in ENTRIES if package in user.library.packages}
    for entry in ENTRIES
    if entry.library.installation is not None
    for package in entry.library.packages
    for name in package.deciding_names
}
# The measured work does not depend on these.
OUR_PACKAGES = frozenset({"vebench", TORCH.name})


def gather(
    plan: Plan,
    host: Host,
    placement: Placement,
    command: str,
    now: datetime,
    *,
    interpreter: Interpreter | None = None,
    hosts: Mapping[str, HostFacts] = MappingProxyType({}),
) -> RunRecord:
    """Return the header of a run that starts ``now``, on ``host`` or ``hosts``, in this Python or ``interpreter``."""
    return RunRecord(
        schema=SCHEMA,
        spec=plan.spec,
        host=host_record(host, placement, None if interpreter is None else interpreter.version),
        packages=packages_here() if interpreter is None else interpreter.packages,
        command=command,
        started=now.isoformat(timespec="seconds"),
        cells=len(plan.cells),
        interpreter=None if interpreter is None or hosts else interpreter.path,
        interpreters={
            name: InterpreterRecord(it.path, it.version, it.packages) for name, it in plan.interpreters.items()
        },
        hosts={
            name: HostFactsRecord(
                name=one.name,
                machine=host_record(one.host, placement_of(plan.spec, one.host), one.python),
                packages=one.packages,
                load=one.load,
                interpreter=one.path,
                memory_available_bytes=one.memory_available,
            )
            for name, one in hosts.items()
        },
    )


def host_record(host: Host, placement: Placement, python: str | None = None) -> HostRecord:
    """Return the facts about ``host`` for a run file, with the version of the Python there, by default this one's."""
    as_read = {name: getattr(host, name) for name in HostRecord.__struct_fields__ if hasattr(host, name)}
    own = {
        "usable_cpus": placement.usable,
        "python": python or platform.python_version(),
        "pinning": placement.pinned and pinning.SUPPORTED,
        "topology": topology_record(host.topology),
        "quota_source": host.quota.source if host.quota else None,
    }
    return HostRecord(**{**as_read, **own})


def topology_record(topology: Topology) -> TopologyRecord:
    """Return the machine's parts for a run file."""
    counts = Counter((cache.level, cache.size_bytes) for cache in topology.caches)
    return TopologyRecord(
        cores=len(topology.cores),
        threads_per_core=topology.threads_per_core,
        packages={label: format_cpu_list(cpus) for label, cpus in topology.packages.items()},
        nodes={str(node.id): format_cpu_list(node.cpus) for node in topology.nodes},
        caches=tuple(CacheRecord(level, size, count) for (level, size), count in counts.items()),
        last_level=tuple(format_cpu_list(cache.cpus) for cache in topology.last_level),
        kinds=tuple(map(format_cpu_list, topology.kinds)),
        core_cpus=tuple(map(format_cpu_list, topology.cores)),
    )


def topology_of(record: TopologyRecord) -> Topology:
    """Return the machine's parts from a run file: caches of the last level only, nodes numbered in their order."""
    cores = tuple(map(parse_list, record.core_cpus))
    return Topology(
        online=tuple(sorted(cpu for core in cores for cpu in core)),
        cores=cores,
        packages={label: parse_list(cpus) for label, cpus in record.packages.items()},
        nodes=tuple(Node(index, parse_list(cpus)) for index, cpus in enumerate(record.nodes.values())),
        caches=tuple(Cache(3, None, parse_list(cpus)) for cpus in record.last_level),
        kinds=tuple(map(parse_list, record.kinds)),
    )


def refuse_foreign(run: RunRecord, path: Path, instead: str) -> None:
    """Raise NotComparableError if ``vebench compare`` ran the cells in another Python than vebench's own."""
    if run.interpreter is not None:
        raise NotComparableError(f"{path} was measured in {run.interpreter} by vebench compare: {instead}")


def what_differs(one: RunRecord, other: RunRecord) -> list[str]:
    """Return the facts in which two runs differ so that their cells are not comparable, each with both values."""
    ours, theirs = _decisive(one), _decisive(other)
    # A backend that only one of them has is not compared.
    both = one.interpreters.keys() & other.interpreters.keys()
    alone = [name for run in (one, other) for label in run.interpreters.keys() - both for name in _own(run, label)]
    differences = []
    for name in dict.fromkeys((*ours, *theirs)):
        first, second = ours.get(name, "none"), theirs.get(name, "none")
        unknown = "none" in (first, second) and (name in DECISIVE_IF_KNOWN or name in alone)
        if first != second and not unknown:
            differences.append(f"{name} {first} against {second}")
    return differences


def how_plans_differ(one: RunRecord, other: RunRecord) -> dict[str, str]:
    """Return the fields of the plan in which two runs differ, each with both options, without the options of length."""
    ours, theirs = (run.spec.conditions(OF_LENGTH) for run in (one, other))
    return {name: f"--{name} {value} against {theirs[name]}" for name, value in ours.items() if value != theirs[name]}


def measured_in_turn(one: RunRecord, other: RunRecord) -> bool:
    """Return whether two runs are the interleaved sides of one ``vebench compare``."""
    sides = one.interpreter is not None and other.interpreter is not None
    return sides and (one.command, one.spec, one.started) == (other.command, other.spec, other.started)


def fingerprint(run: RunRecord, part: Literal["all", "machine", "work"] = "all") -> str:
    """Return twelve hexadecimal digits, the same for runs that are comparable, if all know the same facts.

    Of ``machine`` or ``work``, they are the same for all runs on one machine, or with the same packages at work.
    """
    if part == "work":
        return _digits({name: fact for name, fact in _software(run).items() if name not in OUR_PACKAGES})
    return _digits(_machine(run) if part == "machine" else _decisive(run))


def _digits(facts: Mapping[str, str]) -> str:
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


def _decisive(run: RunRecord) -> dict[str, str]:
    """Return the facts that decide whether runs are comparable, by name, without unknown facts."""
    facts = _machine(run) | _software(run)
    if run.hosts:
        hosts = [(one.machine, _digits(one.packages)) for one in run.hosts.values()]
        counts = Counter(f"{host.cpu_model} with {host.usable_cpus} CPUs, {packages}" for host, packages in hosts)
        facts["hosts"] = "; ".join(f"{count} x {machine}" for machine, count in sorted(counts.items()))
    return facts


def _machine(run: RunRecord) -> dict[str, str]:
    always = ("system", "machine", "cpu_model", "cpus_online", "usable_cpus")
    facts = {name: getattr(run.host, name) for name in (*always, *DECISIVE_IF_KNOWN)}
    facts |= {"cores": run.host.topology.cores, "nodes": len(run.host.topology.nodes)}
    return {name: str(value) for name, value in facts.items() if value is not None}


def _software(run: RunRecord) -> dict[str, str]:
    chosen = {choice.name for choice in run.spec.backends if not choice.python}
    # The package of another project is used by its own backends only.
    used = (name for name in sorted(run.packages) if name not in _USED_BY or _USED_BY[name] & chosen)
    facts = {"Python": _minor(run.host.python), **{name: run.packages[name] for name in used}}
    if run.spec.policy.in_words:  # it is part of the work: the rate is of the whole loop
        facts["policy"] = run.spec.policy.in_words
    for label in sorted(run.interpreters):
        facts |= _own(run, label)
    return facts


def _own(run: RunRecord, label: str) -> dict[str, str]:
    """Return the software of a backend with an interpreter of its own, by names that begin with its label."""
    own = run.interpreters[label]
    return {f"{label}: {name}": version for name, version in {"Python": _minor(own.python), **own.packages}.items()}


def _minor(version: str) -> str:
    """Return ``3.11`` for ``3.11.9``: within a minor version, Python keeps its behaviour, and so its speed."""
    return ".".join(version.split(".")[:2])
