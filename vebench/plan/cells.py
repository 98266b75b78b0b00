"""The plan: an explicit list of cells, each with the CPUs that it owns or the reason why it cannot run here."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain, count, product
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from vebench.backends import registry
from vebench.backends.entry import Shape
from vebench.backends.environments.suites import KIB, MIB, SUITES, short_name
from vebench.backends.packages import TORCH, how_to_install, importable
from vebench.errors import UsageError, shown
from vebench.machine.placement import apart, place
from vebench.plan.pythons import engines_in
from vebench.plan.spec import MAX_REPEATS, PER_NODE, BackendChoice, check

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    from vebench.backends.entry import BackendEntry, Options
    from vebench.backends.interface import Task
    from vebench.backends.setup import Engine
    from vebench.child.request import Job, Mode
    from vebench.interpreters.interpreter import Interpreter
    from vebench.machine.host import Host
    from vebench.machine.placement import Placement
    from vebench.plan.known_work import Knowledge, Known
    from vebench.plan.spec import RunSpec

_MAX_CELLS = 100_000  # would take a day at one cell per second: more is a typing error
# Why a cell is skipped that speedups would be relative to. It is planned all the same, so that a run has the same cells
# if it goes on later, with more memory for example.
_NOTHING_BESIDE = "no backend that was asked for can run here"
MOST_PROCESSES = 256  # alive at the same time in a group, though those of only one cell work
GIB = 1 << 30

_INTERPRETER = 96 * MIB
# A row without an environment: the row itself, and its actions on a tape of a few hundred batches.
_ROW = 32 * KIB
# Reference rows are listed last, wherever they are in the registry, and third parties' backends before them.
_RANKS = {entry.name: (entry.reference_row, rank) for rank, entry in enumerate(registry.ENTRIES)}
_THIRD_PARTY = (False, len(_RANKS))


@dataclass(frozen=True)
class CellKey:
    """The identity of a cell within its run. Compare it as a whole, or read its fields by name.

    ``backend`` is the label, options included. ``repeat`` is None for a cell over all its repeats. A new dimension is
    a new field with a default.
    """

    env: str
    backend: str
    workers: int
    envs_per_worker: int
    repeat: int | None = None

    @property
    def size(self) -> str:
        """The number of workers with their environments, in words: ``2 workers``, ``2 workers x 4 envs``."""
        envs = f" x {self.envs_per_worker} envs" if self.envs_per_worker > 1 else ""
        return f"{self.workers} worker{'s' * (self.workers != 1)}{envs}"

    @property
    def place(self) -> str:
        """The backend with its size, as ``RunSpec.only`` has it: ``shm-sync:2x8``."""
        return f"{self.backend}:{self.workers}x{self.envs_per_worker}"

    @property
    def without_repeat(self) -> CellKey:
        """The key of the cell over all its repeats."""
        return replace(self, repeat=None)


@dataclass(frozen=True)
class Replica:
    """One of the copies of a backend that make up a cell. Each has its own interpreter; all are measured together.

    ``nodes`` are the memory nodes of its CPUs. ``first_env`` is the index of its first environment within the cell.
    ``host`` is the one that it runs on, empty if that is this machine.
    """

    workers: int
    shape: Shape
    cpus: tuple[int, ...]
    nodes: tuple[int, ...] = ()
    first_env: int = 0
    host: str = ""


@dataclass(frozen=True)
class Cell:
    """One planned measurement. ``skip`` is the reason why the cell cannot run, None if it can.

    ``cpus`` are the CPUs that the cell owns, in the order of placement;
    ``nodes`` are their memory nodes. ``known`` is what is known about the backend's work, None for a reference row.
    ``job`` is what the cell is started for, None to measure it. ``python`` is the path of the backend's own
    interpreter, empty if it has none, and ``engines`` are the simulators in it that are not those here. ``replicas`` is
    empty if there is only one. ``side`` names the interpreter if the cells of a run use different ones. Consecutive
    cells with the same ``group`` number take turns, window by window; a cell without a number is measured alone. After
    ``patience`` seconds, rests not counted, it is given up.
    """

    task: Task
    backend: BackendChoice
    workers: int
    envs_per_worker: int
    shape: Shape
    cpus: tuple[int, ...]
    repeat: int = 0
    skip: str | None = None
    job: Job | None = None
    known: Known | None = None
    nodes: tuple[int, ...] = ()
    replicas: tuple[Replica, ...] = ()
    side: str = ""
    python: str = ""
    engines: tuple[Engine, ...] = ()
    group: int | None = None
    patience: float | None = None

    @property
    def entry(self) -> BackendEntry:
        """What is known of its backend."""
        return self.backend.entry

    @property
    def all_replicas(self) -> tuple[Replica, ...]:
        """The replicas of the cell, even if there is only one."""
        return self.replicas or (Replica(self.workers, self.shape, self.cpus, self.nodes),)

    @property
    def is_reference(self) -> bool:
        """Whether it is the reference itself, and not what it is in another interpreter."""
        return self.backend.name == registry.REFERENCE and not self.python

    @property
    def is_base(self) -> bool:
        """Whether it is the plain loop with one worker: what it cannot step, no backend can."""
        return self.is_reference and self.workers == 1

    @property
    def mode(self) -> Mode:
        """How the cell is measured."""
        if self.replicas:
            return "in_step"
        return "alone" if self.group is None else "in_turn"

    @property
    def key(self) -> CellKey:
        """The cell's identity within its run."""
        return CellKey(
            env=self.task.id,
            backend=self.backend.label,
            workers=self.workers,
            envs_per_worker=self.envs_per_worker,
            repeat=self.repeat,
        )


class Where(NamedTuple):
    """Where cells will run: their CPUs, the available memory in bytes, and the modules that can be imported.

    ``interpreters`` are those of backends that have one of their own, by label. ``hosts`` are the placements on other
    hosts, by name, if that is where cells run.
    """

    placement: Placement
    memory_available: int | None
    has: Callable[[str], bool] | None
    interpreters: Mapping[str, Interpreter]
    hosts: Mapping[str, Placement] = MappingProxyType({})


@dataclass(frozen=True)
class Plan:
    """The cells of a run in the order in which they will be measured.

    ``interpreters`` are those of backends that have one of their own, by label.
    """

    spec: RunSpec
    cells: tuple[Cell, ...]
    interpreters: Mapping[str, Interpreter] = field(default_factory=dict)

    def versions_of(self, cell: Cell, otherwise: Mapping[str, str] | None = None) -> Mapping[str, str] | None:
        """Return the versions of the packages that a cell runs with, by name; those given if it has none of its own."""
        own = self.interpreters.get(cell.backend.label)
        return otherwise if own is None else own.packages


def expand(  # noqa: PLR0913, PLR0917 - what is asked for, and where it will run
    spec: RunSpec,
    tasks: Sequence[Task],
    placement: Placement,
    memory_available: int | None,
    has: Callable[[str], bool] | None = None,
    interpreters: Mapping[str, Interpreter] = MappingProxyType({}),
    hosts: Mapping[str, Placement] = MappingProxyType({}),
) -> Plan:
    """Return every cell that ``spec`` asks for: passes over tasks, backends and sizes, each in a shuffled order.

    The first pass begins with the plain loop of each task.
    The orders depend only on the seed. If ``spec`` names no backend, all backends are planned. A backend that cannot
    step a task becomes a cell with a reason; only reference rows that mean nothing for a task are left out.
    With ``spec.base``, what rates are compared with is among them. ``memory_available`` is in bytes, None if unknown.
    ``has`` returns whether a module can be imported where cells will run; ``interpreters`` are those of backends that
    have one of their own, by label. ``hosts`` are the placements on the hosts that cells run on, by name, none if that
    is this machine. Raises UsageError if ``spec`` is invalid or asks for more than ``_MAX_CELLS`` cells.
    """
    check(spec)
    pairs = [(task, choice) for task in tasks for choice in spec.backends or _everything(task)]
    count = len(pairs) * len(spec.workers) * len(spec.envs_per_worker) * spec.repeats
    if count > _MAX_CELLS:
        swept = "--workers, --envs-per-worker" if len(spec.envs_per_worker) > 1 else "--workers"
        raise UsageError(
            f"{count} cells are too many, at most {_MAX_CELLS}: give fewer {swept}, --backend or --repeats"
        )
    if spec.policy.is_network and not (has or importable)(TORCH.module):
        how = how_to_install([TORCH], beside_vebench=has is None)
        raise UsageError(f"--policy {spec.policy.label}: needs torch: {how}")
    where = Where(placement, memory_available, has, interpreters, hosts)
    once = [cell for pair in pairs for cell in _cells(spec, *pair, where)]
    if spec.only:
        once = _only(spec, once)
    if spec.base:
        once += _bases(spec, tasks, once, where)
    passes = [
        shuffled((replace(cell, repeat=repeat) for cell in once), spec.seed, repeat) for repeat in range(spec.repeats)
    ]
    passes[0].sort(key=lambda cell: not cell.is_base)  # they show whether their tasks can be stepped at all
    return Plan(spec, tuple(cell for one_pass in passes for cell in one_pass), interpreters)


def placement_of(spec: RunSpec, host: Host) -> Placement:
    """Return the CPUs and memory nodes that cells may use. Raises UsageError if ``host`` lacks what ``spec`` names."""
    allowed = frozenset(host.cpus_allowed)
    return place(
        spec.pin.cpus,
        apart(spec.policy.cpus, allowed, spec.pin.cpus) if spec.policy.cpus else allowed,
        host.quota_cpus,
        topology=host.topology,
        smt=spec.pin.smt,
        nodes=host.allowance.nodes,
        reserve=spec.pin.reserve,
    )


def without(plan: Plan, done: Container[CellKey]) -> Plan:
    """Return ``plan`` without the cells with these keys, in the same order."""
    return replace(plan, cells=tuple(cell for cell in plan.cells if cell.key not in done))


def informed(plan: Plan, knowledge: Knowledge, versions: Mapping[str, str] | None = None) -> Plan:
    """Return ``plan`` with what is known about the work of each backend, except in reference rows.

    ``versions`` are package versions by name, by default those of this interpreter. A backend with an interpreter of
    its own has other ones.
    """
    return replace(
        plan,
        cells=tuple(
            cell
            if cell.entry.reference_row
            else replace(cell, known=knowledge.of(cell.task, cell.backend, plan.versions_of(cell, versions)))
            for cell in plan.cells
        ),
    )


def is_proven(cell: Cell, spec: RunSpec) -> bool:
    """Return whether what the cell returns is compared with the reference, once it is measured.

    The reference need not be, nor rows that are no backends.
    """
    return spec.proof != "off" and cell.skip is None and not cell.entry.reference_row and not cell.is_reference


def seconds(plan: Plan) -> float:
    """Return how long the plan's cells warm up and measure, in seconds, without starting and ending them."""
    return plan.spec.cell_seconds * sum(cell.skip is None for cell in plan.cells)


def _only(spec: RunSpec, cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells that ``spec.only`` names. Raises UsageError if it names one that the plan does not have."""
    known = {cell.key.place for cell in cells}
    if unknown := [place for place in spec.only if place not in known]:
        raise UsageError(f"{shown(unknown[0])}: not in the plan: see --backend, --workers and --envs-per-worker")
    return [cell for cell in cells if cell.key.place in spec.only]


def _bases(spec: RunSpec, tasks: Sequence[Task], cells: Sequence[Cell], where: Where) -> Iterator[Cell]:
    """Yield what ``cells`` are judged by and lack: the reference with one worker, and one yardstick for each task.

    They run if a backend can.
    """
    planned = {cell.key for cell in cells}
    contestants = [cell for cell in cells if not cell.entry.reference_row]
    asked = {(cell.task, cell.envs_per_worker) for cell in contestants}
    runnable = {(cell.task, cell.envs_per_worker) for cell in contestants if cell.skip is None}
    alone = replace(spec, workers=(1,))
    if spec.hosts is not None:  # on the first of them
        alone = replace(alone, hosts=replace(spec.hosts, names=spec.hosts.names[:1], counts=()))
    reference = BackendChoice(registry.REFERENCE)
    for task in tasks:
        for cell in _cells(alone, task, reference, where):
            size = (task, cell.envs_per_worker)
            if size in asked and cell.key not in planned:
                yield cell if size in runnable else replace(cell, skip=cell.skip or _NOTHING_BESIDE)
        if where.hosts or not any(cell.task == task for cell in contestants):
            continue
        for cell in _cells(replace(alone, envs_per_worker=(1,)), task, BackendChoice(registry.YARDSTICK), where):
            if cell.key not in planned:
                yield cell if any(one == task for one, _ in runnable) else replace(cell, skip=_NOTHING_BESIDE)


def _everything(task: Task) -> list[BackendChoice]:
    """Return the backends of the registry that are measured by default, without rows that mean nothing for the task."""
    entries = (entry for entry in registry.ENTRIES if entry.by_default and not entry.means_nothing_for(task))
    return [BackendChoice(entry.name) for entry in entries]


def _cells(spec: RunSpec, task: Task, choice: BackendChoice, where: Where) -> Iterator[Cell]:
    """Yield the cells of one task on one backend in the first pass, one for each size."""
    entry = choice.entry
    own = where.interpreters.get(choice.label)
    why_not = entry.why_not(task, where.has if own is None else own.has)
    least = memory_needed(task.suite, entry, entry.shape_of(1, 1, 1, choice.options), choice.options)
    if own is not None and where.hosts:
        why_not = f"{choice.label} runs in an interpreter of this machine, which --hosts do not have"
    for workers, envs_per_worker in product(spec.workers, spec.envs_per_worker):
        cpus = () if where.hosts else where.placement.owned(workers)
        for shares in _shares(spec, workers, where):
            replicas = _replicas(entry, choice, envs_per_worker, shares)
            shape = _together([replica.shape for replica in replicas])
            # Each host has a memory of its own.
            largest = max((replica.shape for replica in replicas), key=lambda one: one.num_envs)
            needed = memory_needed(task.suite, entry, largest if where.hosts else shape, choice.options)
            skip = why_not or _too_much(needed, least, where.memory_available) or _above(needed, spec.memory)
            yield Cell(
                task,
                choice,
                sum(replica.workers for replica in replicas),
                envs_per_worker,
                shape,
                cpus or tuple(cpu for share in shares for cpu in share.of.cpus),
                skip=skip,
                nodes=where.placement.nodes(cpus),
                replicas=replicas if len(replicas) > 1 or where.hosts else (),
                python="" if own is None else own.path,
                engines=() if own is None else engines_in(own.packages, task.suite, choice.label),
            )


class Share(NamedTuple):
    """What one replica of a cell gets: workers and CPUs of a placement, and the name of the host if that is another."""

    of: ReplicaCpus
    placement: Placement
    host: str = ""


def _shares(spec: RunSpec, workers: int, where: Where) -> Iterator[list[Share]]:
    """Yield what the replicas of a cell get: on hosts, of a cell for each count of them, each with so many workers."""
    if spec.hosts is None:
        yield [Share(one, where.placement) for one in divided(spec.replicas, workers, where.placement)]
        return
    for number in spec.hosts.numbers:
        yield [
            Share(ReplicaCpus(workers, where.hosts[name].owned(workers)), where.hosts[name], name)
            for name in spec.hosts.names[:number]
        ]


def _replicas(
    entry: BackendEntry, choice: BackendChoice, envs_per_worker: int, shares: Sequence[Share]
) -> tuple[Replica, ...]:
    """Return the replicas of a cell, even if there is only one. Their environments are numbered consecutively."""
    replicas: list[Replica] = []
    first_env = 0
    for one, placement, host in shares:
        shape = entry.shape_of(one.workers, envs_per_worker, len(one.cpus), choice.options)
        replicas.append(Replica(one.workers, shape, one.cpus, placement.nodes(one.cpus), first_env, host))
        first_env += shape.num_envs
    return tuple(replicas)


def _together(shapes: Sequence[Shape]) -> Shape:
    return Shape(
        sum(shape.num_envs for shape in shapes),
        sum(shape.batch_size for shape in shapes),
        sum(shape.processes for shape in shapes),
        max(shape.threads for shape in shapes),
    )


def shuffled(cells: Iterable[Cell], seed: int, repeat: int) -> list[Cell]:
    """Return the cells of pass number ``repeat`` in an order that depends only on the seed and this number.

    In the first pass the plain loop comes first: if that hangs, nothing else is tried.
    """
    order = list(cells)
    # The same string seeds the same way in every version of Python, and different pairs give different strings.
    Random(f"{seed} {repeat}").shuffle(order)  # noqa: S311 - a reproducible order, not a secret
    if repeat == 0:
        order.sort(key=lambda cell: cell.key.backend != registry.REFERENCE or cell.workers > 1)
    return order


class ReplicaCpus(NamedTuple):
    """How many workers of a cell one replica gets, and which CPUs."""

    workers: int
    cpus: tuple[int, ...]


def divided(wanted: int | Literal["node"], workers: int, placement: Placement) -> tuple[ReplicaCpus, ...]:
    """Return what each replica of a cell with this number of workers gets: ``wanted`` replicas, or one for each node.

    Each CPU of the cell belongs to exactly one replica, and each replica has at least one CPU and one worker; so there
    may be fewer replicas than ``wanted``. Workers are divided in proportion to CPUs. A node is a memory node.
    """
    cpus = placement.owned(workers)
    cpu_sets = _by_node(cpus, placement) if wanted == PER_NODE else _evenly(cpus, min(wanted, workers, len(cpus)))
    shares = shared_out(workers, [len(owned) for owned in cpu_sets])
    return tuple(map(ReplicaCpus, shares, cpu_sets))


def _by_node(cpus: tuple[int, ...], placement: Placement) -> list[tuple[int, ...]]:
    """Return the CPUs grouped by their nearest memory node, in the order in which the nodes first appear."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for cpu in cpus:
        groups.setdefault(placement.nodes((cpu,)), []).append(cpu)
    return [tuple(group) for group in groups.values()]


def _evenly(cpus: tuple[int, ...], count: int) -> list[tuple[int, ...]]:
    bounds = [index * len(cpus) // count for index in range(count + 1)]
    return [cpus[start:stop] for start, stop in zip(bounds, bounds[1:], strict=False)]  # noqa: RUF007 - no clearer


def shared_out(workers: int, weights: Sequence[int]) -> list[int]:
    """Return ``workers`` divided in proportion to ``weights``, to within one (largest remainders, Hamilton's method).

    If the weights are numbers of CPUs, no share is smaller than its weight, because a cell owns at most as many CPUs as
    it has workers.
    """
    total = sum(weights)
    shares = [workers * weight // total for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda index: (-(workers * weights[index] % total), index))
    for index in by_remainder[: workers - sum(shares)]:
        shares[index] += 1
    return shares


def memory_needed(suite: str, entry: BackendEntry, shape: Shape, options: Options) -> int:
    """Return the most memory that a cell of this shape should take, in bytes, estimated before it is built."""
    environment = SUITES[suite].environment_bytes if entry.builds_environments else _ROW
    workers = (shape.processes - 1) * entry.process_bytes(options)
    return _INTERPRETER + entry.import_bytes + workers + shape.num_envs * environment


def _too_much(needed: int, least: int, available: int | None) -> str | None:
    """Return why a cell that needs ``needed`` bytes cannot run with ``available`` bytes, or None if it can.

    ``least`` is what the cell would need with one worker and one environment. ``available`` is None if unknown.
    """
    if available is None or needed <= available:
        return None
    reason = f"needs about {format_bytes(needed)} of memory, {format_bytes(available)} are available"
    return f"{reason}; fewer workers or --envs-per-worker would fit" if least <= available else reason


def _above(needed: int, most: int | None) -> str | None:
    """Return why a cell that needs ``needed`` bytes is not wanted if it may have ``most``, None if it is."""
    if most is None or needed <= most:
        return None
    return f"needs about {format_bytes(needed)} of memory, more than the {format_bytes(most)} allowed"


def format_bytes(count: int) -> str:
    """Return a number of bytes in a suitable binary unit: ``512 MiB``, ``1.8 GiB``, ``21 GiB``."""
    if count < GIB:
        return f"{count / MIB:.0f} MiB"
    return f"{count / GIB:.1f} GiB" if count < 10 * GIB else f"{count / GIB:.0f} GiB"


def interleaved(plan: Plan, memory_available: int | None) -> Plan:
    """Return the plan with its cells in groups that take turns: the cells of one pass on one task, if there is room.

    If there is no room for all of them, they make several groups. Within a pass, tasks come one after another.
    ``memory_available`` is in bytes, None if unknown.
    """
    by_pass: dict[tuple[int, str], list[Cell]] = {}
    for cell in plan.cells:
        by_pass.setdefault((cell.repeat, cell.task.id), []).append(cell)
    return replace(plan, cells=in_groups(by_pass.values(), memory_available))


def in_groups(groups: Iterable[Sequence[Cell]], memory_available: int | None) -> tuple[Cell, ...]:
    """Return the cells of all ``groups``. The cells of a group take turns; a group that is too large is split.

    Cells that cannot run and cells with replicas come first and are in no group: replicas run in step with each other.
    """
    numbers = count()
    return tuple(cell for cells in groups for cell in _in_groups(cells, numbers, memory_available))


def _in_groups(cells: Sequence[Cell], numbers: Iterator[int], memory_available: int | None) -> Iterator[Cell]:
    yield from (cell for cell in cells if not _takes_turns(cell))
    number, bytes_left, processes_left = next(numbers), memory_available, MOST_PROCESSES
    for cell in filter(_takes_turns, cells):
        needed = memory_needed(cell.task.suite, cell.entry, cell.shape, cell.backend.options)
        if processes_left < cell.shape.processes or (bytes_left is not None and bytes_left < needed):
            number, bytes_left, processes_left = next(numbers), memory_available, MOST_PROCESSES
        yield replace(cell, group=number)
        processes_left -= cell.shape.processes
        bytes_left = None if bytes_left is None else bytes_left - needed


def _takes_turns(cell: Cell) -> bool:
    return cell.skip is None and not cell.replicas


def next_pass(plan: Plan, wanted: Container[CellKey], repeats: Mapping[CellKey, int]) -> Plan:
    """Return the ``wanted`` cells of ``plan`` for one more pass, in a shuffled order.

    ``repeats`` maps every cell that can be measured again to the number of its next repeat. Other cells are left out,
    and so are cells with ``MAX_REPEATS`` repeats. Keys are without repeats. If one cell of a group that takes turns is
    wanted, the whole group is measured again.
    """
    repeatable = list(_repeatable(plan, repeats))
    chosen = [cell for cell in repeatable if cell.key.without_repeat in wanted]
    keys = {cell.key for cell in chosen}
    groups = {cell.group for cell in chosen} - {None}
    cells = [cell for cell in repeatable if cell.key in keys or cell.group in groups]
    repeat = max((cell.repeat for cell in cells), default=0)
    together: dict[object, list[Cell]] = {}
    for cell in shuffled(cells, plan.spec.seed, repeat):
        together.setdefault(cell.key if cell.group is None else cell.group, []).append(cell)
    return replace(plan, cells=tuple(chain.from_iterable(together.values())))


def _repeatable(plan: Plan, repeats: Mapping[CellKey, int]) -> Iterator[Cell]:
    """Yield, with the number of its next repeat, each cell that can be measured again."""
    once = {cell.key.without_repeat: cell for cell in plan.cells if cell.skip is None}
    number = max(repeats.values(), default=0)  # one for all: what one pass did to its cells is taken out of their rates
    for key, cell in once.items():
        if key in repeats and number < MAX_REPEATS:
            yield replace(cell, repeat=number)


def report_order(env: str, backend: BackendChoice, spec: RunSpec) -> tuple[object, ...]:
    """Return a sort key: tasks as ``spec`` names them, then backends as in the registry.

    Third parties' backends follow the registry's, and reference rows come last. If a backend appears with several
    choices of options, these follow the order in ``spec``.
    """
    asked = [short_name(name) for name in spec.envs]
    task = asked.index(short_name(env)) if short_name(env) in asked else len(asked)
    chosen = spec.backends.index(backend) if backend in spec.backends else len(spec.backends)
    return task, env, _RANKS.get(backend.name, _THIRD_PARTY), chosen, backend.label
