"""The plan: an explicit list of cells, each with the CPUs that it owns or the reason why it cannot run here."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, count, product
from operator import attrgetter
from random import Random
from types import MappingProxyType
from typing import Literal, NamedTuple

from vebench.backends import registry
from vebench.backends.entry import BackendEntry, Shape
from vebench.backends.environments.suites import KIB, MIB, SUITES, short_name
from vebench.backends.interface import Engine, Task
from vebench.backends.packages import TORCH, how_to_install, importable
from vebench.child.request import Job, Mode
from vebench.errors import UsageError
from vebench.interpreters import Interpreter
from vebench.machine.host import Host, Placement, apart, grouped, place
from vebench.plan.grammar import BackendChoice, doubled
from vebench.plan.spec import FORK, MAX_PASSES, PASSES_OF_ALL, PER_NODE, RunSpec, check_spec
from vebench.plan.tasks import asked_as, engines_in
from vebench.plan.verdicts import Knowledge, KnownVerdict

# A replay takes a third of the time that the cell has stepped. That time is clipped to these bounds, in seconds.
LEAST_STEPPED, MOST_STEPPED = 0.6, 2.5
MOST_PROCESSES = 256  # limit for the living processes of a group; only one cell's processes work at a time
# Runs of Pong and CartPole on two idle CPUs took these times.
LOAD_S = 1.0  # seconds to load the libraries of the process that cells are forked from
FORK_S = 0.05  # seconds to fork a cell
END_S = 0.05  # seconds to end a cell
AROUND_S = 0.02  # seconds to step before a window, and to read counters


class CellKey(NamedTuple):
    """The identity of a cell. ``backend`` is a label. ``repeat`` is None for a cell over all repeats."""

    env: str
    backend: str
    workers: int
    envs_per_worker: int
    repeat: int | None = None

    @property
    def size(self) -> str:
        """The number of workers with their environments, in words: ``2 workers``, ``2 workers x 4 envs``."""
        envs = f" x {self.envs_per_worker} envs" if self.envs_per_worker > 1 else ""
        return f"{self.workers} {'worker' if self.workers == 1 else 'workers'}{envs}"

    @property
    def place(self) -> str:
        """The backend and its size, in the format of ``RunSpec.only``: ``shm-sync:2x8``."""
        return f"{self.backend}:{self.workers}x{self.envs_per_worker}"

    @property
    def without_repeat(self) -> CellKey:
        """The key of the cell over all its repeats."""
        return self._replace(repeat=None)


@dataclass(frozen=True)
class Replica:
    """One of the copies of a backend that make up a cell."""

    workers: int
    shape: Shape
    cpus: tuple[int, ...]
    nodes: tuple[int, ...] = ()
    first_env: int = 0  # the index of its first environment within the cell
    host: str = ""  # empty for this machine


class CellPython(NamedTuple):
    """The interpreter that a cell runs in."""

    side: str = ""  # the interpreter's name, if the cells of a run use several interpreters
    path: str = ""  # the path of the backend's or the task's own interpreter, empty if it is vebench's
    engines: tuple[Engine, ...] = ()  # simulators whose versions differ between that interpreter and this one
    home: str = ""  # the path of the interpreter in which the reference steps the task, empty if it is vebench's


_HERE = CellPython()


@dataclass(frozen=True)
class Cell:
    """One planned measurement."""

    task: Task
    backend: BackendChoice
    workers: int
    envs_per_worker: int
    shape: Shape
    cpus: tuple[int, ...]  # the CPUs that the cell owns, in the order of placement
    repeat: int = 0  # the number of its pass
    skip: str | None = None  # why the cell cannot run, None if it can
    job: Job | None = None  # None: only measure
    known: KnownVerdict | None = None  # the known verdict on the backend's work, None for a reference row
    nodes: tuple[int, ...] = ()
    replicas: tuple[Replica, ...] = ()  # empty if there is only one, on this machine
    interpreter: CellPython = _HERE
    group: int | None = None  # consecutive cells with the same number take turns, window by window
    patience: float | None = None  # time limit in seconds, in addition to --timeout; rests are not counted

    @property
    def entry(self) -> BackendEntry:
        """The backend's entry in the registry."""
        return self.backend.entry

    @property
    def all_replicas(self) -> tuple[Replica, ...]:
        """The replicas of the cell, even if there is only one."""
        return self.replicas or (Replica(self.workers, self.shape, self.cpus, self.nodes),)

    @property
    def is_reference(self) -> bool:
        """Whether the cell's backend is the reference, in the task's own interpreter."""
        return self.backend.name == registry.REFERENCE and self.interpreter.path == self.interpreter.home

    @property
    def of_reference(self) -> Cell:
        """The cell of the reference instead of this backend."""
        home = self.interpreter.home
        return replace(self, backend=BackendChoice(registry.REFERENCE), interpreter=CellPython(path=home, home=home))

    @property
    def is_base(self) -> bool:
        """Whether the cell is the reference with one worker. If it cannot step a task, no backend can."""
        return self.is_reference and self.workers == 1

    @property
    def in_every_pass(self) -> bool:
        """Whether each pass has the cell, because other cells are compared with it."""
        return self.is_base or self.backend.name == registry.YARDSTICK

    @property
    def bytes(self) -> int:
        """The memory that the cell needs, roughly."""
        return memory_of(self.task, self.backend, self.shape)

    @property
    def mode(self) -> Mode:
        """How the cell is measured."""
        if self.replicas:
            return "in_step"
        return "alone" if self.group is None else "in_turn"

    @property
    def key(self) -> CellKey:
        """The cell's identity within its run."""
        return CellKey(self.task.id, self.backend.label, self.workers, self.envs_per_worker, self.repeat)


class Where(NamedTuple):
    """The machine, the interpreters and the hosts that cells run on."""

    placement: Placement
    memory_available: int | None = None  # bytes; None if unknown
    has: Callable[[str], bool] | None = None  # whether cells can import a module; None to look on this machine
    interpreters: Mapping[str, Interpreter] = MappingProxyType({})  # by ``python_name``; others run in vebench's own
    hosts: Mapping[str, Placement] = MappingProxyType({})  # by name; empty if cells run on this machine


@dataclass(frozen=True)
class Plan:
    """The cells of a run, in order. ``interpreters``: all but vebench's own, by ``python_name``."""

    spec: RunSpec
    cells: tuple[Cell, ...]
    interpreters: Mapping[str, Interpreter] = field(default_factory=dict)

    @property
    def race_passes(self) -> int:
        """The number of passes, as long as the pass of all cells, that a race adds."""
        return 0 if self.spec.until or not self.spec.races else max(0, self.spec.passes - PASSES_OF_ALL)

    @property
    def seconds(self) -> float:
        """The expected seconds of all cells, the race included."""
        return time_planned(self.cells, self.spec).total * (1 + self.race_passes / PASSES_OF_ALL)

    @property
    def fits(self) -> bool:
        """Whether the budget is enough for all cells. Otherwise, results decide which cells are measured."""
        return not self.spec.budget or self.seconds <= self.spec.budget

    def informed(self, knowledge: Knowledge, versions: Mapping[str, str] | None = None) -> Plan:
        """Return the plan with the known verdicts. ``versions`` of packages are by default the versions here."""
        cells = list(self.cells)
        for index, cell in enumerate(cells):
            if not cell.entry.reference_row:
                own = self.interpreters.get(python_name(cell.task, cell.backend))
                known = knowledge.of(cell.task, cell.backend, versions if own is None else own.packages)
                cells[index] = replace(cell, known=known)
        return replace(self, cells=tuple(cells))


def python_name(task: Task, choice: BackendChoice) -> str:
    """Return the name of the interpreter of a task's cells: the suite's installation, or else the backend's label."""
    return choice.label if choice.python else SUITES[task.suite].installation or choice.label


def _pairs(spec: RunSpec, tasks: Sequence[Task]) -> Iterator[tuple[Task, BackendChoice]]:
    """Yield each task with its backends. One that means nothing for a task is left out if it steps another one."""
    for task in tasks:
        usual = [BackendChoice(one.name) for one in registry.ENTRIES if one.by_default and one.is_usual_for(task)]
        meant = [one for one in spec.backends or usual if not one.entry.means_nothing_for(task)]
        for choice in spec.backends or usual:
            elsewhere = any(choice.entry.has(other) for other in tasks)
            if choice in meant or not (meant and elsewhere):
                yield task, choice


def expand(spec: RunSpec, tasks: Sequence[Task], where: Where) -> Plan:
    """Return every cell that ``spec`` asks for: passes over tasks, backends and sizes, each in a shuffled order.

    For a race, these are only the passes that all cells have. Raises UsageError if ``spec`` is invalid, or asks for too
    many cells.
    """
    check_spec(spec)
    if not spec.workers:
        spec = replace(spec, workers=doubled(where.placement.usable))
    pairs = [*_pairs(spec, tasks)]
    number = len(pairs) * len(spec.workers) * len(spec.envs_per_worker) * spec.passes
    most = 100_000  # they take a day at one cell per second: more is a typing error
    if number > most:
        raise UsageError(f"{number} cells are too many, at most {most}: use fewer --workers or --passes")
    on_device = [choice.label for choice in spec.backends if choice.entry.role == "device"]
    if on_device and spec.policy.in_words:
        raise UsageError(f"--policy {spec.policy.label}: needs rows on the host, unlike {on_device[0]}: leave it out")
    if spec.policy.is_network and not (where.has or importable)(TORCH.module):
        how = how_to_install([TORCH], beside_vebench=where.has is None)
        raise UsageError(f"--policy {spec.policy.label}: needs torch ({how})")
    once = [cell for pair in pairs for cell in _cells(spec, *pair, where)]
    if spec.only:
        once = [cell for cell in once if cell.key.place in spec.only]
    if spec.base:
        once += _bases(spec, tasks, once, where)
    of_all = min(spec.passes, PASSES_OF_ALL) if spec.races else spec.passes
    passes = (shuffled((replace(cell, repeat=repeat) for cell in once), spec.seed, repeat) for repeat in range(of_all))
    return Plan(spec, tuple(chain.from_iterable(passes)), where.interpreters)


def placement_of(spec: RunSpec, host: Host) -> Placement:
    """Return the CPUs and memory nodes that cells may use. Raises UsageError if ``spec`` names CPUs not in ``host``."""
    allowed = frozenset(host.cpus_allowed)
    return place(
        spec.pin.cpus,
        apart(spec.policy.cpus, allowed, spec.pin.cpus) if spec.policy.cpus else allowed,
        host.quota_cpus,
        topology=host.topology,
        smt=spec.pin.smt,
        nodes=host.nodes_allowed,
        reserve=spec.pin.reserve,
    )


def needs_proof(cell: Cell, spec: RunSpec) -> bool:
    """Return whether to compare the cell's rows with the reference's rows."""
    return spec.proof != "off" and cell.skip is None and not cell.entry.reference_row and not cell.is_reference


def _bases(spec: RunSpec, tasks: Sequence[Task], cells: Sequence[Cell], where: Where) -> Iterator[Cell]:
    """Yield the cells for comparison that ``cells`` lack: the reference with one worker, and each task's yardstick."""
    planned = {cell.key for cell in cells}
    backends = [cell for cell in cells if not cell.entry.reference_row]
    alone = replace(spec, workers=(1,))
    if spec.hosts is not None:  # on the first host only
        alone = replace(alone, hosts=replace(spec.hosts, names=spec.hosts.names[:1], counts=()))
    for task in tasks:
        of_task = [cell for cell in backends if cell.task == task]
        sizes = tuple(sorted({cell.envs_per_worker for cell in of_task}))
        added = [*_cells(replace(alone, envs_per_worker=sizes), task, BackendChoice(registry.REFERENCE), where)]
        if sizes and not where.hosts:
            added += _cells(replace(alone, envs_per_worker=(1,)), task, BackendChoice(registry.YARDSTICK), where)
        lacking = [cell for cell in added if cell.key not in planned]
        if not any(cell.skip is None for cell in of_task):
            lacking = [replace(cell, skip=cell.skip or "no requested backend can run here") for cell in lacking]
        yield from lacking


def _cells(spec: RunSpec, task: Task, choice: BackendChoice, where: Where) -> Iterator[Cell]:
    entry, own = choice.entry, where.interpreters.get(python_name(task, choice))
    home = where.interpreters.get(SUITES[task.suite].installation)
    interpreter = _HERE if home is None else CellPython(path=home.path, home=home.path)
    if own is not None and own is not home:
        interpreter = interpreter._replace(path=own.path, engines=engines_in(own.packages, task.suite, choice.label))
    why_not = entry.why_not(task, where.has if own is None else own.has)
    if own is not None and where.hosts:
        why_not = f"{python_name(task, choice)} runs in an interpreter of this machine, which the --hosts do not have"
    least = memory_of(task, choice, entry.shape_of(1, 1, 1, choice.options))  # for one worker with one environment
    room = min((most for most in (where.memory_available, spec.memory) if most is not None), default=None)
    for workers, envs in product(spec.workers, spec.envs_per_worker):
        for replicas in _replicas(spec, choice, workers, envs, where, waits=task.id in spec.waiting):
            shapes = [replica.shape for replica in replicas]
            together = Shape(
                sum(shape.num_envs for shape in shapes),
                sum(shape.batch_size for shape in shapes),
                sum(shape.processes for shape in shapes),
                max(shape.threads for shape in shapes),
            )
            # Each host has its own memory.
            largest = max(shapes, key=lambda shape: shape.num_envs) if where.hosts else together
            needed, skip = memory_of(task, choice, largest), why_not
            if skip is None and room is not None and needed > room:
                remedy = "; fewer workers or --envs-per-worker would fit" if least <= room else ""
                skip = too_much_memory(needed, room) + remedy
            cpus = tuple(cpu for replica in replicas for cpu in replica.cpus)
            yield Cell(
                task,
                choice,
                sum(replica.workers for replica in replicas),
                envs,
                together,
                cpus,
                skip=skip,
                nodes=where.placement.nodes(cpus),
                replicas=replicas if len(replicas) > 1 or where.hosts else (),
                interpreter=interpreter,
            )


def _replicas(
    spec: RunSpec, choice: BackendChoice, workers: int, envs: int, where: Where, *, waits: bool
) -> Iterator[tuple[Replica, ...]]:
    """Yield the replicas of each cell with this size. There is one cell, or one for each count of hosts."""
    if spec.hosts is None:
        parts = [("", where.placement, *part) for part in divided(spec.replicas, workers, where.placement)]
    else:
        there = [(name, where.hosts[name]) for name in spec.hosts.names]
        parts = [(name, placement, workers, placement.owned(workers)) for name, placement in there]
    replicas: list[Replica] = []
    first = 0
    for host, placement, share, cpus in parts:
        shape = choice.entry.shape_of(share, envs, len(cpus), choice.options, waits=waits)
        replicas.append(Replica(share, shape, cpus, placement.nodes(cpus), first, host))
        first += shape.num_envs
    for number in (len(parts),) if spec.hosts is None else spec.hosts.numbers:
        yield tuple(replicas[:number])


def divided(wanted: int | Literal["node"], workers: int, placement: Placement) -> list[tuple[int, tuple[int, ...]]]:
    """Return the number of workers and the CPUs of each replica. Each replica has at least one worker and one CPU.

    There are ``wanted`` replicas, or fewer if workers or CPUs are few. With ``node``, each memory node has one replica.
    """
    cpus = placement.owned(workers)
    sets: dict[object, list[int]] = {}
    number = 1 if wanted == PER_NODE else min(wanted, workers, len(cpus))
    for index, cpu in enumerate(cpus):
        # With n replicas and c CPUs, replica i gets the CPUs from i * c // n.
        place_of = placement.nodes((cpu,)) if wanted == PER_NODE else ((index + 1) * number - 1) // len(cpus)
        sets.setdefault(place_of, []).append(cpu)
    shares: list[int] = []
    taken = 0
    for owned in sets.values():  # workers in proportion to CPUs, rounded
        taken += len(owned)
        shares.append(workers * taken // len(cpus) - sum(shares))
    return [(share, tuple(owned)) for share, owned in zip(shares, sets.values(), strict=True)]


def too_much_memory(needed: int, room: int) -> str:
    """Return why a cell is skipped that needs more memory than may be used, both in bytes."""
    gib = 1024 * MIB
    return f"needs about {needed / gib:.2g} GiB of memory, {room / gib:.2g} GiB may be used"


def memory_of(task: Task, choice: BackendChoice, shape: Shape) -> int:
    """Return roughly the bytes that a cell needs, from the measured sizes in the tables of backends and suites."""
    entry = choice.entry
    row = 32 * KIB  # a row without an environment, and its actions on a tape of a few hundred batches
    environment = SUITES[task.suite].environment_bytes if entry.builds_environments else row
    workers = (shape.processes - 1) * entry.process_bytes(choice.options)
    environments = shape.num_envs * (1 + int(choice.options.get("spares", 0)))
    return 96 * MIB + entry.library.import_bytes + workers + environments * environment


def shuffled(cells: Iterable[Cell], seed: int, repeat: int) -> list[Cell]:
    """Return the cells in a random order that depends only on the seed and the number of the pass."""
    order = list(cells)
    # The same string seeds the same way in every version of Python, and different pairs give different strings.
    Random(f"{seed} {repeat}").shuffle(order)
    if repeat == 0:
        # Plain loops come first: they show whether their tasks can be stepped at all. One cell of each backend is next,
        # so that users soon see a first rate of each backend.
        firsts = {(cell.task.id, cell.backend.label): cell for cell in reversed(order) if cell.skip is None}
        order.sort(key=lambda cell: (not cell.is_base, firsts.get((cell.task.id, cell.backend.label)) is not cell))
    return order


def interleaved(
    plan: Plan, memory_available: int | None, bytes_of: Callable[[Cell], int] = attrgetter("bytes")
) -> Plan:
    """Return the plan with interleaved groups. A group has all cells of one pass on one task, if they fit in memory."""
    groups = grouped(plan.cells, lambda cell: (cell.repeat, cell.task.id))
    return replace(plan, cells=in_groups(groups, memory_available, bytes_of))


def in_groups(
    groups: Iterable[Sequence[Cell]],
    memory_available: int | None,
    bytes_of: Callable[[Cell], int] = attrgetter("bytes"),
) -> tuple[Cell, ...]:
    """Return the cells of all ``groups``, numbered by group. A group with too many processes or bytes is split."""
    numbers, found = count(), []
    for cells in groups:
        found += [cell for cell in cells if cell.skip is not None or cell.replicas]  # replicas run in step
        number, bytes_left, processes_left = next(numbers), memory_available, MOST_PROCESSES
        for cell in (cell for cell in cells if cell.skip is None and not cell.replicas):
            needed = bytes_of(cell)
            if processes_left < cell.shape.processes or (bytes_left is not None and bytes_left < needed):
                number, bytes_left, processes_left = next(numbers), memory_available, MOST_PROCESSES
            found.append(replace(cell, group=number))
            processes_left -= cell.shape.processes
            bytes_left = None if bytes_left is None else bytes_left - needed
    return tuple(found)


def next_pass(plan: Plan, wanted: Container[CellKey], repeats: Mapping[CellKey, int]) -> Plan:
    """Return ``plan`` with the cells of one more pass: the ``wanted`` cells, and all others of their groups.

    The plan has no cells after ``MAX_PASSES``. ``repeats`` maps every cell that can be measured again to the number of
    its next repeat. All keys are without repeats.
    """
    # All cells get one number: the analysis removes the effect of a pass from the rates of its cells.
    number = max(repeats.values(), default=0)
    once = {cell.key.without_repeat: cell for cell in plan.cells if cell.skip is None}
    again = {key: replace(cell, repeat=number) for key, cell in once.items() if key in repeats and number < MAX_PASSES}
    groups = {cell.group for key, cell in again.items() if key in wanted} - {None}
    cells = [cell for key, cell in again.items() if key in wanted or cell.group in groups]
    order = shuffled(cells, plan.spec.seed, number)
    together = grouped(order, lambda cell: cell.key if cell.group is None else cell.group)
    return replace(plan, cells=tuple(chain.from_iterable(together)))


@cache
def rank(backend: str) -> tuple[bool, int]:
    """Return a sort key: backends in the order of the registry, then third parties' backends, then reference rows."""
    names = [entry.name for entry in registry.ENTRIES]
    return registry.find(backend).reference_row, names.index(backend) if backend in names else len(names)


def report_order(env: str, backend: BackendChoice, spec: RunSpec) -> tuple[object, ...]:
    """Return a sort key: tasks in the order of ``spec``, then backends by ``rank``, then choices in its order."""
    asked = [short_name(name) for name in spec.envs]
    name = short_name(asked_as(env, spec.envs))
    task = asked.index(name) if name in asked else len(asked)
    chosen = spec.backends.index(backend) if backend in spec.backends else len(spec.backends)
    return task, env, backend.entry.reference_row, rank(backend.name), chosen, backend.label


class PlannedTime(NamedTuple):
    """The expected seconds of a plan."""

    starts: float  # to start cells
    proofs: float  # to compare rows
    total: float


def time_planned(cells: Iterable[Cell], spec: RunSpec) -> PlannedTime:
    """Return the time of cells, without further passes of a race.

    A comparison of rows starts a process of its own, unless cells take turns.
    """
    loaded: set[object] = set()
    starts = proofs = rest = 0.0
    for cell in (cell for cell in cells if cell.skip is None):
        shape = cell.shape
        modules = cell.entry.preloaded(cell.task) if spec.isolation == FORK else None
        libraries = cell.repeat, cell.interpreter.path, modules
        begin = LOAD_S if modules is None or libraries not in loaded else FORK_S
        loaded.add(libraries)
        at_once = max(1, min(shape.processes * shape.threads, len(cell.cpus)))
        each = cell.entry.environment_seconds.get(cell.task.suite, SUITES[cell.task.suite].environment_seconds)
        start = begin + each * shape.num_envs / at_once
        starts += start
        if needs_proof(cell, spec):
            # A comparison takes a fifth of the stepping time.
            proofs += 0.2 * min(max(LEAST_STEPPED, spec.cell_seconds), MOST_STEPPED)
            proofs += 0.0 if spec.takes_turns else start
        # Because of noise, a warm-up takes more than its shortest length. If episodes are long, cells then step for a
        # random time, on average a quarter of the time of all windows.
        warm_up = 1.6 * spec.warmup + spec.windows * spec.duration / 4
        rest += warm_up + spec.windows * (spec.duration + AROUND_S) + END_S
    return PlannedTime(starts, proofs, starts + proofs + rest)


def most_at_once(plan: Plan) -> tuple[int, int]:
    """Return the most processes and bytes that the plan's cells, taking turns in groups, need at the same time."""
    able = [cell for cell in plan.cells if cell.skip is None]
    groups = grouped(able, lambda cell: (cell.repeat, cell.key if cell.group is None else cell.group))
    processes = (sum(cell.shape.processes for cell in group) for group in groups)
    memory = (sum(cell.bytes for cell in group) for group in groups)
    return max(processes, default=0), max(memory, default=0)
