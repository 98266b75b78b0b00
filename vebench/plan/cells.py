"""The plan: an explicit list of cells, each with the CPUs it owns or the reason why it cannot run here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from vebench.backends import registry
from vebench.backends.entry import Shape
from vebench.errors import UsageError
from vebench.machine.placement import place
from vebench.plan import memory
from vebench.plan.replicas import divided
from vebench.plan.spec import BackendChoice, check

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    from vebench.backends.entry import BackendEntry
    from vebench.backends.interface import Task
    from vebench.child.request import Mode, Proving
    from vebench.machine.host import Host
    from vebench.machine.placement import Placement
    from vebench.plan.known_work import Knowledge, Known
    from vebench.plan.spec import RunSpec

MAX_CELLS = 100_000  # a day at one cell a second: a typing error


@dataclass(frozen=True)
class CellKey:
    """What tells one cell of a run from another: to be compared as a whole, or read field by field, by name.

    ``backend`` is the label, options included. ``repeat`` is None for a cell over all its repeats. Another dimension is
    one more field, with a default.
    """

    env: str
    backend: str
    workers: int
    envs_per_worker: int
    repeat: int | None = None

    @property
    def without_repeat(self) -> CellKey:
        """The key of the cell over all its repeats."""
        return replace(self, repeat=None)


@dataclass(frozen=True)
class Replica:
    """One of several copies of a backend that make up a cell, each in its own interpreter, measured at the same time.

    ``nodes`` are the memory nodes of its CPUs, ``first_env`` the number of its first environment within the cell.
    """

    workers: int
    shape: Shape
    cpus: tuple[int, ...]
    nodes: tuple[int, ...] = ()
    first_env: int = 0


@dataclass(frozen=True)
class Cell:
    """One measurement to be made. ``skip`` is why it will not be, None if it will.

    ``target`` is ``module:Class`` of the adapter; ``cpus`` are the CPUs owned, in the order of placement, ``nodes``
    their memory nodes. ``known`` is what is known of the backend's work, None for a reference row. With ``proving`` the
    cell is not timed but compared with the reference. ``replicas`` are those it consists of, none if it is a single
    one. ``side`` names the interpreter, where cells of one run do not all run in the same. Cells that follow each other
    with the same ``group`` number take turns, window by window; one without is measured alone.
    """

    task: Task
    backend: BackendChoice
    target: str
    workers: int
    envs_per_worker: int
    shape: Shape
    cpus: tuple[int, ...]
    repeat: int = 0
    skip: str | None = None
    proving: Proving | None = None
    known: Known | None = None
    nodes: tuple[int, ...] = ()
    replicas: tuple[Replica, ...] = ()
    side: str = ""
    group: int | None = None

    @property
    def all_replicas(self) -> tuple[Replica, ...]:
        """The replicas of the cell, even if there is only one."""
        return self.replicas or (Replica(self.workers, self.shape, self.cpus, self.nodes),)

    @property
    def mode(self) -> Mode:
        """How the cell is measured."""
        if self.replicas:
            return "in_step"
        return "alone" if self.group is None else "in_turn"

    @property
    def key(self) -> CellKey:
        """The cell's identity within its run; the backend by its label, options included."""
        return CellKey(
            env=self.task.id,
            backend=self.backend.label,
            workers=self.workers,
            envs_per_worker=self.envs_per_worker,
            repeat=self.repeat,
        )


class Where(NamedTuple):
    """Where cells will run: on which CPUs, with how much memory in bytes, and with which modules."""

    placement: Placement
    memory_available: int | None
    has: Callable[[str], bool] | None


@dataclass(frozen=True)
class Plan:
    """The cells of a run in the order in which they will be measured."""

    spec: RunSpec
    cells: tuple[Cell, ...]


def expand(
    spec: RunSpec,
    tasks: Sequence[Task],
    placement: Placement,
    memory_available: int | None,
    has: Callable[[str], bool] | None = None,
) -> Plan:
    """Return every cell that ``spec`` asks for: each pass over tasks, backends and workers in a shuffled order.

    Orders follow from the seed alone. If no backend is named, all of them are planned, those that cannot step a task
    as cells with a reason; only reference rows that mean nothing for a task are left out. ``memory_available`` is in
    bytes, None if unknown; ``has`` says whether a module can be imported where cells will run. Raises UsageError if
    ``spec`` makes no sense or names no end of cells.
    """
    check(spec)
    pairs = [(task, choice) for task in tasks for choice in spec.backends or _everything(task)]
    count = len(pairs) * len(spec.workers) * spec.repeats
    if count > MAX_CELLS:
        raise UsageError(f"{count} cells are too many, at most {MAX_CELLS}: fewer --workers, --backend or --repeats")
    where = Where(placement, memory_available, has)
    once = [cell for pair in pairs for cell in _cells(spec, *pair, where)]
    passes = [
        shuffled((replace(cell, repeat=repeat) for cell in once), spec.seed, repeat) for repeat in range(spec.repeats)
    ]
    return Plan(spec, tuple(cell for one_pass in passes for cell in one_pass))


def placement_of(spec: RunSpec, host: Host) -> Placement:
    """Return where the cells of ``spec`` may lie on ``host``. Raises UsageError if it asks for what is not there."""
    return place(
        spec.pin,
        frozenset(host.cpus_allowed),
        host.quota_cpus,
        topology=host.topology,
        smt=spec.smt,
        nodes=host.allowance.nodes,
    )


def without(plan: Plan, done: Container[CellKey]) -> Plan:
    """Return what is left of ``plan`` when the cells with these keys are done, in the same order."""
    return replace(plan, cells=tuple(cell for cell in plan.cells if cell.key not in done))


def informed(plan: Plan, knowledge: Knowledge, versions: Mapping[str, str] | None = None) -> Plan:
    """Return ``plan`` with what is known of each contestant's work, with these package versions or those here."""
    return replace(
        plan,
        cells=tuple(
            cell
            if registry.find(cell.backend.name).reference_row
            else replace(cell, known=knowledge.of(cell.task, cell.backend, versions))
            for cell in plan.cells
        ),
    )


def seconds(plan: Plan) -> float:
    """Return how long the plan's cells warm up and measure, in seconds; starting and ending them comes on top."""
    return plan.spec.cell_seconds * sum(cell.skip is None for cell in plan.cells)


def _everything(task: Task) -> list[BackendChoice]:
    """Return all backends of the table, without reference rows that have no meaning for the task."""
    return [BackendChoice(entry.name) for entry in registry.ENTRIES if not entry.means_nothing_for(task)]


def _cells(spec: RunSpec, task: Task, choice: BackendChoice, where: Where) -> Iterator[Cell]:
    """Yield the first pass's cells of one task on one backend, one for each number of workers."""
    entry = registry.find(choice.name)
    why_not = entry.why_not(task, where.has)
    least = memory.estimate(task.suite, entry, _shape(entry, choice, 1, 1, 1), choice.options)
    for workers in spec.workers:
        cpus = where.placement.owned(workers)
        replicas = _replicas(entry, choice, spec, workers, where.placement)
        shape = _together([replica.shape for replica in replicas])
        needed = memory.estimate(task.suite, entry, shape, choice.options)
        skip = why_not or memory.too_much(needed, least, where.memory_available)
        yield Cell(
            task,
            choice,
            entry.target,
            workers,
            spec.envs_per_worker,
            shape,
            cpus,
            skip=skip,
            nodes=where.placement.nodes(cpus),
            replicas=replicas if len(replicas) > 1 else (),
        )


def _replicas(
    entry: BackendEntry, choice: BackendChoice, spec: RunSpec, workers: int, placement: Placement
) -> tuple[Replica, ...]:
    """Return the replicas of a cell, even if there is only one. They number their environments one after another."""
    replicas: list[Replica] = []
    first_env = 0
    for part in divided(spec.replicas, workers, placement):
        shape = _shape(entry, choice, part.workers, spec.envs_per_worker, len(part.cpus))
        replicas.append(Replica(part.workers, shape, part.cpus, placement.nodes(part.cpus), first_env))
        first_env += shape.num_envs
    return tuple(replicas)


def _together(shapes: Sequence[Shape]) -> Shape:
    return Shape(
        sum(shape.num_envs for shape in shapes),
        sum(shape.batch_size for shape in shapes),
        sum(shape.processes for shape in shapes),
        max(shape.threads for shape in shapes),
    )


def _shape(entry: BackendEntry, choice: BackendChoice, workers: int, envs_per_worker: int, cpus: int) -> Shape:
    """Return the shape of a replica, the backend's own defaults standing in for options that were not given."""
    defaults = {key: option.default for key, option in entry.options.items() if option.default is not None}
    return entry.shape(workers, envs_per_worker, cpus, {**defaults, **choice.options})


def shuffled(cells: Iterable[Cell], seed: int, repeat: int) -> list[Cell]:
    """Return the cells of a pass, whose number is ``repeat``, in the order that follows from the seed."""
    order = list(cells)
    # A string seeds alike in every version of Python, and no two pairs of numbers are one string.
    Random(f"{seed} {repeat}").shuffle(order)  # noqa: S311 - an order to repeat, no secret
    return order
