"""The contents of a run file, as immutable records that are checked when they are read.

There are no rates here: ``vebench.analysis`` derives them from the raw counts when they are needed.

History of the schema. Files of all versions are read; a file of a later one is refused at its first line.
    1  first version
    2  a line of type ``proof`` may follow that of a cell
"""

from __future__ import annotations

import re
import shlex
from dataclasses import astuple, dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from vebench.backends.environments.engine_copies import Engine
from vebench.child.answers import CellProof, Done, Layout, WorkVerdict
from vebench.child.bounds import check_counts
from vebench.child.schedule import MOST_TRIES
from vebench.child.window import OF_LOOP, Window
from vebench.errors import one_line, shown
from vebench.plan.cells import CellKey
from vebench.plan.known_work import UNKNOWN, as_stepped
from vebench.plan.spec import BackendChoice, RunSpec
from vebench.plan.tasks import asked_as
from vebench.plan.trust import ALLOW, not_ours

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vebench.backends.entry import Shape
    from vebench.backends.own_classes import OwnClasses
    from vebench.engine.events import Outcome
    from vebench.plan.cells import Cell
    from vebench.plan.known_work import Known

SCHEMA = 2
PROVEN_FROM = 2  # the first schema with lines of type ``proof``
# The most bytes of a cell's line, for each window, for the CPUs of each thread, and for the rest of the line. A number
# of a window has at most 19 digits; its name comes with two quotes, a colon and a comma.
BYTES_PER_WINDOW = len("{},") + sum(len(item.name) + 19 + 4 for item in fields(Window))
BYTES_PER_THREAD, BYTES_PER_CELL = 64, 8192
MOST_PROOF_BYTES = 8192
INTERRUPTED = "interrupted"  # the engine's reason for a cell that the user ended

NonNegative = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, Meta(gt=0, le=2**63 - 1)]


@dataclass(frozen=True, kw_only=True)
class CellRecord(Done, Layout):
    """One cell: what was planned, what was built (``Layout``), its windows, and what its end reported (``Done``).

    A cell that never got ready has its planned counts. ``cpus`` are the planned CPUs; worker ``i`` is on the
    ``i``-th. ``replicas`` are the CPUs of each replica, empty if there is only one; the windows count all replicas
    together; ``replica_hosts`` are the hosts that they ran on, empty if that was the runner's. ``verdict`` is what
    was known about the backend's work when the cell was measured, None for a reference row and in files of versions
    without verdicts. ``proof`` is what was found in the cell itself, None if it recorded nothing or that was not
    compared; in a run file, it has a line of its own. ``python`` is the interpreter that the user named for the
    backend.
    """

    env: str
    backend: str
    options: dict[str, bool | int | float | str]
    workers: Positive
    envs_per_worker: Positive
    repeat: NonNegative
    status: Literal["ok", "failed", "skipped"]
    reason: str | None = None
    startup_ns: NonNegative | None = None
    cpus: tuple[NonNegative, ...]
    replicas: tuple[tuple[NonNegative, ...], ...] = ()
    replica_hosts: tuple[str, ...] = ()
    verdict: WorkVerdict | None = None
    verdict_reason: str = ""
    windows: tuple[Window, ...] = ()
    proof: CellProof | None = None
    python: str = ""
    type: Literal["cell"] = "cell"

    def __post_init__(self) -> None:
        Done.__post_init__(self)
        check_counts(self, Layout, positive=("frame_skip",))

    @property
    def label(self) -> str:
        """The backend as a user writes it, options included: ``envpool-async[ratio=2]``."""
        return self.choice.label

    @property
    def choice(self) -> BackendChoice:
        """The backend with its options, in the interpreter that was named for it."""
        return BackendChoice(self.backend, self.options, self.python)

    @property
    def key(self) -> CellKey:
        """The cell's identity within its run, equal to ``vebench.plan.cells.Cell.key`` of the planned cell."""
        return CellKey(
            env=self.env,
            backend=self.label,
            workers=self.workers,
            envs_per_worker=self.envs_per_worker,
            repeat=self.repeat,
        )

    @property
    def interrupted(self) -> bool:
        """Whether the user ended the cell, which is not a fault of the cell."""
        return self.status == "failed" and self.reason == INTERRUPTED


# People read run files, too: the type comes first, then the cell's own fields, then the inherited ones.
_INHERITED = {item.name for kind in (Layout, Done) for item in fields(kind)}
_CELL_FIELDS = sorted(
    (item.name for item in fields(CellRecord) if item.name != "proof"),
    key=lambda name: (name != "type", name in _INHERITED),
)


class ProofRecord(Struct, frozen=True, kw_only=True, tag_field="type", tag="proof", omit_defaults=True):
    """The proof of a cell: a line of its own, after that of the cell which it names."""

    env: str
    backend: str
    options: dict[str, bool | int | float | str]
    workers: Positive
    envs_per_worker: Positive
    repeat: NonNegative
    proof: CellProof
    python: str = ""

    @property
    def key(self) -> CellKey:
        """The key of the cell."""
        label = BackendChoice(self.backend, self.options, self.python).label
        return CellKey(self.env, label, self.workers, self.envs_per_worker, self.repeat)


class CacheRecord(Struct, frozen=True):
    """How many data or unified caches of one level and size the machine has."""

    level: NonNegative
    size_bytes: NonNegative | None
    count: Positive


class TopologyRecord(Struct, frozen=True):
    """The parts of the machine, CPU sets as Linux lists; see ``vebench.machine.topology.Topology``.

    ``core_cpus`` has the CPUs of each core. It is empty in files of earlier versions.
    """

    cores: Positive
    threads_per_core: Positive
    packages: dict[str, str]
    nodes: dict[str, str]
    caches: tuple[CacheRecord, ...]
    last_level: tuple[str, ...]
    kinds: tuple[str, ...]
    core_cpus: tuple[str, ...] = ()


class HostRecord(Struct, frozen=True):
    """The machine that a run ran on: enough to decide whether two runs are comparable.

    Files of the first versions do not contain the fields with a default. See ``vebench.machine.host.Host``.
    """

    system: str
    kernel: str
    machine: str
    cpu_model: str
    cpus_online: Positive
    cpus_allowed: tuple[NonNegative, ...]
    usable_cpus: Positive
    memory_bytes: NonNegative | None = None
    python: str = ""
    container: bool | None = None
    virtual: bool | None = None
    pinning: bool = True
    topology: TopologyRecord | None = None
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
    """A host that replicas ran on, as it was before: the name that it has for itself, the machine, and the packages.

    ``boot`` names the time since it was started; ``load`` is how many processes wanted a CPU; ``interpreter`` is the
    Python that the cells ran in; ``memory_available_bytes`` is what new processes could use, None if unknown.
    """

    name: str
    machine: HostRecord
    packages: dict[str, str]
    boot: str = ""
    load: float = 0.0
    interpreter: str = ""
    memory_available_bytes: NonNegative | None = None


class RunRecord(Struct, frozen=True, tag_field="type", tag="run"):
    """The first line of a run file: the spec, the machine, the packages, and the command that repeats the run.

    ``cells`` is the number of planned cells, None in files of earlier versions. Runs with the same ``fingerprint`` are
    comparable (see ``vebench.results.header``); the facts behind it are in ``host`` and ``packages``. ``interpreter``
    is the Python that cells ran in, None if it was vebench's own; ``interpreters`` those of backends that had one of
    their own, by the backend's label. ``hosts`` are those that replicas ran on, by the name that the user gave; then
    ``host`` is the first of them.
    """

    schema: int
    spec: RunSpec
    host: HostRecord
    packages: dict[str, str]
    command: str
    started: str = ""
    cells: NonNegative | None = None
    interpreter: str | None = None
    fingerprint: str = ""
    interpreters: dict[str, InterpreterRecord] = {}
    hosts: dict[str, HostFactsRecord] = {}

    @property
    def usable_cpus(self) -> int:
        """How many CPUs cells could have: those of all hosts together, if replicas ran on hosts."""
        return sum(one.machine.usable_cpus for one in self.hosts.values()) or self.host.usable_cpus

    def packages_of(self, label: str) -> dict[str, str]:
        """Return the versions of the packages that the cells of a backend ran with, by name."""
        return self.interpreters[label].packages if label in self.interpreters else self.packages

    @property
    def proves(self) -> bool:
        """Whether a proof is to be found for each cell that needs one."""
        return self.schema >= PROVEN_FROM and self.spec.proof != "off"

    @property
    def spec_to_go_on(self) -> RunSpec:
        """The spec of what is still to be measured into the file: one of the first schema takes no proofs."""
        return self.spec if self.schema >= PROVEN_FROM else replace(self.spec, proof="off")

    def resume_command(self, file: str) -> str:
        """Return the command that finishes the run in ``file``; of a comparison, the one that measures it again.

        It allows the file to name what it would be refused for otherwise.
        """
        if self.interpreter is not None:
            return self.command
        command = "tune" if self.spec.only else "run"  # only a race names its cells
        return shlex.join(["vebench", command, "--resume", file, *([ALLOW] if any(not_ours(self.spec)) else [])])

    def verify_command(self, env: str, labels: Iterable[str], *options: str) -> str:
        """Return the command that compares the work of these backends on a task of the run, of all if none is named."""
        backends = ",".join(labels)
        words = ("--env", asked_as(env, self.spec.envs), *(("-b", backends) if backends else ()), *options)
        return one_line(f"vebench verify {shlex.join(words)}")


class Run(Struct, frozen=True):
    """A whole run file. ``notes`` say which lines of it are lost, ``mended`` which were damaged without loss."""

    header: RunRecord
    cells: tuple[CellRecord, ...]
    notes: tuple[str, ...] = ()
    mended: tuple[str, ...] = ()


def record(cell: Cell, outcome: Outcome) -> CellRecord:
    """Return the record of ``cell``, with the counts of its layout, or the planned ones if it never got ready."""
    layout = outcome.layout or Layout(**vars(cell.shape), frame_skip=cell.task.frame_skip)
    known = _still_known(cell, layout)
    built = {
        **vars(layout),
        "differences": tuple(map(one_line, layout.differences)),
        "own_classes": _on_one_line(layout.own_classes),
        "engines": tuple(map(_engine_on_one_line, (*layout.engines, *cell.engines))),
    }
    return CellRecord(
        **built,
        **vars(outcome.done),
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
        startup_ns=outcome.startup_ns,
        windows=outcome.windows,
        verdict=known.verdict if known else None,
        verdict_reason=one_line(known.reason) if known else "",
        replicas=tuple(replica.cpus for replica in cell.replicas),
        replica_hosts=tuple(replica.host for replica in cell.replicas if replica.host),
    )


def proof_record(cell: Cell, proof: CellProof) -> ProofRecord:
    """Return the line of a cell's proof."""
    mismatch = proof.mismatch and replace(
        proof.mismatch, expected=one_line(proof.mismatch.expected), found=one_line(proof.mismatch.found)
    )
    return ProofRecord(
        env=cell.task.id,
        backend=cell.backend.name,
        options=dict(cell.backend.options),
        python=cell.backend.python,
        workers=cell.workers,
        envs_per_worker=cell.envs_per_worker,
        repeat=cell.repeat,
        proof=replace(
            proof,
            fault=None if proof.fault is None else one_line(proof.fault),
            reason=None if proof.reason is None else one_line(proof.reason),
            mismatch=mismatch,
            allowed=tuple(map(one_line, proof.allowed)),
        ),
    )


def _still_known(cell: Cell, layout: Layout) -> Known | None:
    """Return what was known of a cell's work, unless it was of other parts than have stepped."""
    expected, stepped = (as_stepped(cell.task, cell.backend, own) for own in (None, layout.own_classes))
    return cell.known if stepped == expected or not cell.known else UNKNOWN


def _engine_on_one_line(engine: Engine) -> Engine:
    name, inside, installed, matching, within, elsewhere = astuple(engine)
    return Engine(
        one_line(name), one_line(inside), one_line(installed), one_line(matching), one_line(within), elsewhere
    )


def _on_one_line(own: OwnClasses | None) -> OwnClasses | None:
    if own is None:
        return None
    return replace(own, how=one_line(own.how), refused=one_line(own.refused), remedy=one_line(own.remedy))


def most_bytes(shape: Shape, rounds: int) -> int:
    """Return the most bytes that a cell's line takes, even if every window is tried ``MOST_TRIES`` times."""
    threads = shape.processes * shape.threads
    return BYTES_PER_CELL + BYTES_PER_WINDOW * MOST_TRIES * rounds + BYTES_PER_THREAD * threads


def encode(line: CellRecord | ProofRecord | RunRecord) -> bytes:
    """Return the line as bytes for a run file. Raises ValueError, which says why, if it could not be read again."""
    try:
        body = msgspec.to_builtins(line)
        if isinstance(line, CellRecord):
            body = {name: body[name] for name in _CELL_FIELDS if name != "python" or line.python}
            body["windows"] = [_as_counted(window) for window in body["windows"]]
        data = msgspec.json.encode(_as_first_written(body) if isinstance(line, RunRecord) else body)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"a value that cannot be written: {error}") from None
    try:
        if isinstance(line, RunRecord):
            decode_run(data)
        else:
            msgspec.json.decode(data, type=type(line))
    except msgspec.DecodeError as error:
        what, _, path = str(error).replace("`", "").partition(" - at $.")
        value = f"{path} = {shown(str(_at(line, path)))}: " if path else ""
        raise ValueError(f"{value}{what}") from None
    return data


def _as_counted(window: dict[str, Any]) -> dict[str, Any]:
    """Return a window's fields, without those that only some loops count if this one did not."""
    return {name: value for name, value in window.items() if value is not None or name not in OF_LOOP}


def decode_run(line: bytes) -> RunRecord:
    """Return the run of a first line. Raises a subclass of ``msgspec.DecodeError`` if it is not one."""
    body = msgspec.json.decode(line)
    spec = body.get("spec") if isinstance(body, dict) else None
    if isinstance(spec, dict) and type(spec.get("envs_per_worker")) is int:
        spec["envs_per_worker"] = [spec["envs_per_worker"]]
    return msgspec.convert(body, RunRecord)


def _as_first_written(body: dict[str, Any]) -> dict[str, Any]:
    """Return a run's line as the first files have it, if it has nothing that those lack.

    A single ``envs_per_worker`` is a number there, and no backend has an interpreter of its own.
    """
    match body:
        case {"spec": {"envs_per_worker": (count,)} as spec}:
            body = {**body, "spec": {**spec, "envs_per_worker": count}}
    match body:
        case {"spec": {"backends": (*choices,)} as spec}:
            plain = [{name: value for name, value in one.items() if name != "python" or value} for one in choices]
            body = {**body, "spec": {**spec, "backends": plain}}
    return {name: value for name, value in body.items() if name != "interpreters" or value}


def _at(line: object, path: str) -> object:
    """Return the value at a path in msgspec's notation: ``windows[0].rows``."""
    value: Any = line
    for step in re.findall(r"\w+", path):
        value = value[int(step)] if step.isdecimal() else getattr(value, step)
    return value


def unreadable(cell: CellRecord, reason: str) -> CellRecord:
    """Return ``cell`` as failed for this reason, without anything that its adapter reported."""
    return CellRecord(
        env=cell.env,
        backend=cell.backend,
        options=cell.options,
        python=cell.python,
        workers=cell.workers,
        envs_per_worker=cell.envs_per_worker,
        num_envs=0,
        batch_size=0,
        processes=0,
        threads=0,
        cpus=cell.cpus,
        frame_skip=1,
        repeat=cell.repeat,
        status="failed",
        reason=one_line(reason),
        verdict=cell.verdict,
        verdict_reason=cell.verdict_reason,
    )
