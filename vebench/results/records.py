"""The records in a run file, which are checked when they are read, and the differences between two runs.

Records have no rates. ``vebench.analysis`` derives rates from the raw counts.
"""

from __future__ import annotations

import json
import platform
import re
import shlex
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
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
from vebench.backends.environments.suites import SUITES, VECTORS
from vebench.backends.interface import Task
from vebench.backends.packages import TORCH
from vebench.backends.registry import ENTRIES, find
from vebench.child.answers import RARE, Cause, CellProof, Done, Layout, Window, WorkVerdict
from vebench.engine.runner import Outcome
from vebench.errors import NotComparableError, one_line
from vebench.files import T, with_texts
from vebench.interpreters import Interpreter, packages_here
from vebench.machine import kernel
from vebench.machine.host import Cache, Host, Node, Placement, Topology, format_cpu_list
from vebench.machine.kernel import parse_list
from vebench.plan.cells import Cell, CellKey, Plan, placement_of, python_name
from vebench.plan.grammar import BackendChoice
from vebench.plan.spec import OF_LENGTH, RunSpec
from vebench.plan.tasks import ALLOW, asked_as, not_ours, recorded_task
from vebench.plan.verdicts import UNKNOWN, Knowledge, KnownVerdict, as_stepped, other_implementations

if TYPE_CHECKING:
    from vebench.hosts import HostFacts  # only runs on hosts load it

SCHEMA = 2

NonNegative = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, Meta(gt=0, le=2**63 - 1)]

if TYPE_CHECKING:
    WindowRecord = Window
else:
    # Most of a run file is windows, and msgspec reads and checks a Struct four times as fast as a dataclass.
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
    """The cell that a line is about."""

    env: str
    backend: str
    options: dict[str, bool | int | float | str]
    python: str = ""  # the interpreter that the user named for the backend
    workers: Positive
    envs_per_worker: Positive
    repeat: NonNegative
    run: str = ""  # the ``digest`` of the run in which the cell was measured

    @property
    def label(self) -> str:
        """The backend as a user writes it, options included: ``envpool-async[ratio=2]``."""
        return self.choice.label

    @cached_property
    def choice(self) -> BackendChoice:
        """The backend with its options and the interpreter that the user named."""
        return BackendChoice(self.backend, self.options, self.python)

    @property
    def entry(self) -> BackendEntry:
        """The backend's entry in the registry."""
        return find(self.backend, self.options)

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
    imports_ns: NonNegative | None = None
    making_ns: NonNegative | None = None
    cpus: tuple[NonNegative, ...]  # the planned CPUs
    batched: bool = False  # whether a user's callable makes its environments in batches
    replicas: tuple[tuple[NonNegative, ...], ...] = ()  # the CPUs of each replica; empty if there is only one
    replica_hosts: tuple[str, ...] = ()  # empty if replicas ran on this machine
    verdict: WorkVerdict | None = None  # the verdict known before the measurement; None for a reference row
    verdict_reason: str = ""
    windows: tuple[WindowRecord, ...] = ()
    proof: CellProof | None = None  # None if no rows were compared; a separate line in a run file
    took_ns: NonNegative | None = None  # time from the cell's start to its end, without its proof and others' turns
    type: Literal["cell"] = "cell"

    @property
    def broken_off(self) -> bool:
        """Whether the user or the end of the budget broke the cell off, so that its failure is not a fault."""
        return self.cause is not None


@dataclass(frozen=True, kw_only=True)
class ProofRecord(Identity):
    """The proof of a cell. In a run file, its line comes after the cell's line."""

    proof: CellProof
    type: Literal["proof"] = "proof"

    @classmethod
    def of(cls, cell: CellRecord) -> ProofRecord:
        """Return the line of a cell's proof."""
        return cls(**{item.name: getattr(cell, item.name) for item in fields(cls) if item.name != "type"})


class TopologyRecord(Struct, frozen=True):
    """A ``vebench.machine.host.Topology``, with CPU sets as Linux lists."""

    cores: Positive
    threads_per_core: Positive
    packages: dict[str, str]
    nodes: dict[str, str]
    last_level: tuple[str, ...]
    kinds: tuple[str, ...]
    core_cpus: tuple[str, ...]


class HostRecord(Struct, frozen=True):
    """The machine of a run, with fields of ``vebench.machine.host.Host``. None means unknown, or no quota."""

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
    gpus: tuple[str, ...] | None = None


class InterpreterRecord(Struct, frozen=True):
    """The Python in which one backend's cells ran: its path, version and packages."""

    path: str
    python: str
    packages: dict[str, str]


class HostFactsRecord(Struct, frozen=True):
    """A host of replicas."""

    machine: HostRecord
    packages: dict[str, str]


class RunRecord(Struct, frozen=True, tag_field="type", tag="run"):
    """The first line of a run file."""

    schema: int
    spec: RunSpec
    host: HostRecord  # the first host if replicas ran on several
    packages: dict[str, str]
    command: str  # the command that repeats the run
    started: str = ""
    cells: NonNegative | None = None  # the number of planned cells; None if results decide which cells are measured
    interpreter: str | None = None  # the Python that cells ran in, None if it was vebench's own
    interpreters: dict[str, InterpreterRecord] = {}  # not vebench's own, by ``python_name``
    hosts: dict[str, HostFactsRecord] = {}  # the hosts of replicas, by the name that the user gave
    # For a task, the known verdict on the episodes of each other implementation in the run, by its id.
    implementations: dict[str, dict[str, WorkVerdict]] = {}
    code: str = ""  # the commit or release that ``vebench history --backfill`` measured: ``numpy 2.0.2``
    code_order: str = ""  # a history sorts the run by this text, not by its start

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits of the plan, the machine, the packages and the start, which decide the rates."""
        facts = msgspec.json.encode((self.spec, self.host, self.packages, self.started), order="sorted")
        return sha256(facts).hexdigest()[:12]

    @property
    def chose_cells(self) -> bool:
        """Whether the budget was too short for all cells, so that results decided which cells were measured."""
        return self.cells is None and self.spec.budget > 0

    @property
    def usable_cpus(self) -> int:
        """The number of CPUs that cells could use, on all hosts together."""
        return sum(one.machine.usable_cpus for one in self.hosts.values()) or self.host.usable_cpus

    def resume_command(self, file: str) -> str:
        """Return the command that finishes the run in ``file``, or that repeats it if ``vebench compare`` ran it."""
        if self.interpreter is not None:
            return self.command
        command = "tune" if self.spec.only else "run"  # only a tuning names its cells
        return shlex.join(["vebench", command, "--resume", file, *([ALLOW] if any(not_ours(self.spec)) else [])])

    def verify_command(self, env: str, labels: Iterable[str], *options: str) -> str:
        """Return the command that verifies these backends on a task; without ``labels``, its default backends."""
        backends = ",".join(labels)
        words = ["--env", asked_as(env, self.spec.envs), *(("-b", backends) if backends else ()), *options]
        if self.spec.policy.target:
            words += ["--policy", self.spec.policy.label]
        return one_line(f"vebench verify {shlex.join(words)}")


class Run(Struct, frozen=True):
    """A whole run file."""

    header: RunRecord
    cells: tuple[CellRecord, ...]
    notes: tuple[str, ...] = ()  # notes on lost lines


def record(cell: Cell, outcome: Outcome, took_ns: int | None = None) -> CellRecord:
    """Return the record of ``cell``, with the counts of its layout, or the planned counts if it was never ready."""
    ready = outcome.ready
    layout = Layout(**vars(cell.shape), frame_skip=cell.task.frame_skip) if ready is None else ready.layout
    times = {} if ready is None else {name: value for name, value in vars(ready).items() if name != "layout"}
    # If the backend fell back from its own class to Gymnasium's, the known verdict is about other code.
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
        batched=cell.task.suite == VECTORS.name,
        repeat=cell.repeat,
        status=outcome.status,
        reason=None if outcome.reason is None else one_line(outcome.reason),
        cause=outcome.cause,
        **times,
        took_ns=took_ns,
        windows=msgspec.convert(outcome.windows, tuple[WindowRecord, ...], from_attributes=True),
        verdict=known.verdict if known else None,
        verdict_reason=one_line(known.reason) if known else "",
        replicas=tuple(replica.cpus for replica in cell.replicas),
        replica_hosts=tuple(replica.host for replica in cell.replicas if replica.host),
    )


def _on_one_line(value: T) -> T:
    """Return ``value`` with each text on one line, because libraries wrote some of its texts."""
    return msgspec.convert(with_texts(msgspec.to_builtins(value), one_line), type(value))


def encode(line: CellRecord | ProofRecord | RunRecord) -> bytes:
    """Return the line as JSON, with its checksum. Unknown counts that only some cells have are left out."""
    body = msgspec.to_builtins(line)
    if isinstance(line, CellRecord):
        body.pop("proof", None)
        body["windows"] = [
            {name: value for name, value in window.items() if value is not None or name not in RARE}
            for window in body["windows"]
        ]
    return sealed(msgspec.json.encode({"type": body.pop("type"), **body}))


def sealed(line: bytes) -> bytes:
    """Return an encoded line with its checksum and a newline."""
    body = line.removesuffix(b"}")
    return b'%s,"crc32":"%08x"}\n' % (body, zlib.crc32(body))


def with_current_verdicts(run: Run, knowledge: Knowledge) -> Run:
    """Return ``run`` with the verdicts that are known now for its tasks, backends and packages."""
    tasks = {cell.env: recorded_task(cell.env, cell.frame_skip, run.header.spec.envs) for cell in run.cells}
    cells = []
    for cell in run.cells:
        known = KnownVerdict(cell.verdict or "unverified", cell.verdict_reason)
        if known.verdict != "different":
            # A verdict on a user's environment counts only in the command that found it.
            task = tasks[cell.env]
            own = run.header.interpreters.get(python_name(task, cell.choice), run.header)
            now = knowledge.of(task, cell.choice, own.packages, cell.own_classes)
            known = now if now != UNKNOWN and now.outweighs(known) else known
        same = cell.entry.reference_row or (known.verdict, known.reason) == (cell.verdict, cell.verdict_reason)
        cells.append(cell if same else replace(cell, verdict=known.verdict, verdict_reason=known.reason))
    header = with_implementations(run.header, tasks.values(), knowledge)
    return msgspec.structs.replace(run, header=header, cells=tuple(cells))


def with_implementations(head: RunRecord, tasks: Iterable[Task], knowledge: Knowledge) -> RunRecord:
    """Return the header with the verdicts that are known now on pairs of ``tasks``. Verdicts of the run stay."""
    found: dict[str, dict[str, WorkVerdict]] = {}
    for one, other in other_implementations(tasks):
        owners = [head.interpreters.get(SUITES[task.suite].installation, head) for task in (one, other)]
        now = knowledge.between((one, other), [owner.packages for owner in owners])
        before = head.implementations.get(one.id, {}).get(other.id, "unverified")
        found.setdefault(one.id, {})[other.id] = before if now == "unverified" else now
    return msgspec.structs.replace(head, implementations=found)


# Facts that are compared only if both runs know them, because some systems and containers do not report them.
DECISIVE_IF_KNOWN = ("smt", "governor", "boost", "thp", "quota_cpus", "virtual", "gpus")
# For each package of an installable backend: the only backends that use the package.
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
    """Return the header of a run that starts ``now``. It runs in ``interpreter`` if given, and on ``hosts`` if any."""
    return RunRecord(
        schema=SCHEMA,
        spec=plan.spec,
        host=host_record(host, placement, None if interpreter is None else interpreter.version),
        packages=packages_here() if interpreter is None else interpreter.packages,
        command=command,
        started=now.isoformat(timespec="seconds"),
        cells=len(plan.cells) if plan.fits else None,
        interpreter=None if interpreter is None or hosts else interpreter.path,
        interpreters={
            name: InterpreterRecord(it.path, it.version, it.packages) for name, it in plan.interpreters.items()
        },
        hosts={
            name: HostFactsRecord(host_record(one.host, placement_of(plan.spec, one.host), one.python), one.packages)
            for name, one in hosts.items()
        },
    )


def host_record(host: Host, placement: Placement, python: str | None = None) -> HostRecord:
    """Return the facts about ``host`` for a run file. ``python`` is a version, by default this Python's."""
    facts = {name: getattr(host, name) for name in HostRecord.__struct_fields__ if hasattr(host, name)}
    facts |= {"usable_cpus": placement.usable, "pinning": placement.pinned and kernel.SUPPORTED}
    facts |= {"python": python or platform.python_version(), "topology": topology_record(host.topology)}
    return HostRecord(**facts)


def topology_record(topology: Topology) -> TopologyRecord:
    """Return the machine's parts for a run file."""
    return TopologyRecord(
        cores=len(topology.cores),
        threads_per_core=topology.threads_per_core,
        packages={label: format_cpu_list(cpus) for label, cpus in topology.packages.items()},
        nodes={str(node.id): format_cpu_list(node.cpus) for node in topology.nodes},
        last_level=tuple(format_cpu_list(cache.cpus) for cache in topology.last_level),
        kinds=tuple(map(format_cpu_list, topology.kinds)),
        core_cpus=tuple(map(format_cpu_list, topology.cores)),
    )


def topology_of(record: TopologyRecord) -> Topology:
    """Return the topology from a run file, with only the last-level caches, and nodes numbered from 0."""
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


def what_differs(one: RunRecord, other: RunRecord, ignoring: Collection[str] = ()) -> list[str]:
    """Return the facts in which two runs differ so that their cells are not comparable, each with both values."""
    ours, theirs = _decisive(one), _decisive(other)
    # A backend with its own Python in only one of the runs is not compared.
    both = one.interpreters.keys() & other.interpreters.keys()
    alone = [name for run in (one, other) for label in run.interpreters.keys() - both for name in _own(run, label)]
    differences = []
    for name in dict.fromkeys((*ours, *theirs)):
        first, second = ours.get(name, "none"), theirs.get(name, "none")
        unknown = "none" in (first, second) and (name in DECISIVE_IF_KNOWN or name in alone)
        if first != second and not unknown and name not in ignoring:
            differences.append(f"{name} {first} against {second}")
    return differences


def how_plans_differ(one: RunRecord, other: RunRecord) -> dict[str, str]:
    """Return the fields in which the plans of two runs differ: field to both values. Fields of length are left out."""
    ours, theirs = (run.spec.conditions(OF_LENGTH) for run in (one, other))
    return {name: f"--{name} {value} against {theirs[name]}" for name, value in ours.items() if value != theirs[name]}


def measured_in_turn(one: RunRecord, other: RunRecord) -> bool:
    """Return whether two runs are the interleaved sides of one ``vebench compare``."""
    sides = one.interpreter is not None and other.interpreter is not None
    return sides and (one.command, one.spec, one.started) == (other.command, other.spec, other.started)


def fingerprint(run: RunRecord, part: Literal["all", "machine", "work"] = "all") -> str:
    """Return twelve hexadecimal digits. They are equal for comparable runs that know the same facts.

    With ``machine``, they are equal for all runs on one machine. With ``work``, they are equal for all runs with the
    same packages in use, except vebench and torch.
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
    # Leave out packages of backends that the run did not choose, and the package whose releases were measured.
    used = (name for name in sorted(run.packages) if name not in _USED_BY or _USED_BY[name] & chosen)
    varied = re.sub(r"[-_.]+", "-", run.code.partition(" ")[0]).lower()  # pip takes any spelling of a name
    facts = {"Python": _minor(run.host.python), **{name: run.packages[name] for name in used if name != varied}}
    if run.spec.policy.in_words:  # rates are of the whole loop, so the policy is part of the work
        facts["policy"] = run.spec.policy.in_words
    for label in sorted(run.interpreters):
        facts |= _own(run, label)
    return facts


def _own(run: RunRecord, label: str) -> dict[str, str]:
    """Return the software in a backend's own interpreter. Names begin with the backend's label."""
    own = run.interpreters[label]
    return {f"{label}: {name}": version for name, version in {"Python": _minor(own.python), **own.packages}.items()}


def _minor(version: str) -> str:
    """Return ``3.11`` for ``3.11.9``, because Python keeps its speed within a minor version."""
    return ".".join(version.split(".")[:2])
