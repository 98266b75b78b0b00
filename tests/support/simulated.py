"""A simulated machine: CPUs, memory, backends that scale and saturate, and a clock that only its cells move.

    machine = Machine(topology_of(packages=2, nodes=2, cores=16), memory=64 * GIB)
    vebench("run", "-e", "Pong", "-w", "1..64", world=machine.world())
    assert machine.clock.now < 630

Nothing is real but the code of vebench: a run takes the time of its starts, warm-ups, windows, comparisons and ends.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import ceil, exp
from random import Random

from support.fakes import IDENTICAL, SECOND, FakeCell, FakeClock, fake_world, steady

from vebench.child.answers import Answer, CellProof, Done, Layout, Ready, Timed, Warm, Window
from vebench.child.request import Recording, Replaying, Timing
from vebench.commands.session import World
from vebench.engine.runner import CellError
from vebench.machine.host import Cache, Host, Node, Topology, read_host
from vebench.plan.cells import Cell
from vebench.plan.spec import FORK, RunSpec
from vebench.process_guard import Interrupts

MIB, GIB = 1 << 20, 1 << 30
SECOND_THREAD = 0.2  # of a core's speed, if its first thread works too
NOISE, LUCK = 0.01, 0.005  # standard deviations of windows and of processes, as shares


def topology_of(
    packages: int = 1, nodes: int = 1, cores: int = 1, threads: int = 1, *, interleaved: bool = False
) -> Topology:
    """Return a machine of so many packages, nodes in each, cores in each, threads in each; caches as nodes are.

    Second threads are numbered after all first ones. ``interleaved``: neighbouring numbers are in different nodes.
    """
    count = packages * nodes * cores
    groups = packages * nodes
    node_of = [core % groups if interleaved else core // cores for core in range(count)]
    of_node = [
        tuple(core + turn * count for turn in range(threads) for core in range(count) if node_of[core] == node)
        for node in range(groups)
    ]
    of_package = {
        str(10 * package): tuple(sorted(sum(of_node[package * nodes : (package + 1) * nodes], ())))
        for package in range(packages)
    }
    online = tuple(range(count * threads))
    return Topology(
        online=online,
        cores=tuple(tuple(core + turn * count for turn in range(threads)) for core in range(count)),
        packages=of_package,
        nodes=tuple(Node(3 * node, cpus) for node, cpus in enumerate(of_node)),
        caches=tuple(Cache(3, None, cpus) for cpus in of_node),
        kinds=(online,),
    )


@dataclass(frozen=True)
class Costs:
    """The costs of a backend, in seconds of one CPU and in bytes.

    A batch takes ``batch + rows x (row + step / CPUs)``, and the steps that each process makes wait one after another.
    So the rate grows with CPUs, and is below 1 / ``row``.
    """

    step: float = 100e-6  # of one environment, by a worker
    row: float = 0.0  # by the caller alone
    batch: float = 0.0
    make: float = 0.18  # to make and reset an environment, by a worker
    environment: int = 7 * MIB
    process: int = 4 * MIB  # of one more process
    wait: float = 0.0  # of a step, without a CPU

    def bytes(self, cell: Cell) -> int:
        """Return the memory of a cell."""
        shape = cell.shape
        return 60 * MIB + shape.num_envs * self.environment + (shape.processes - 1) * self.process


# Pong's, roughly, of two CPUs of a virtual machine.
COSTS: Mapping[str, Costs] = {
    "for-loop": Costs(450e-6),
    "gym-sync": Costs(450e-6, row=15e-6),
    "gym-async": Costs(450e-6, row=20e-6, batch=200e-6),
    "shm-sync": Costs(440e-6, row=2e-6, batch=40e-6),
    "shm-async": Costs(440e-6, row=2e-6, batch=60e-6),
    "fast-sync": Costs(250e-6, row=1e-6, batch=20e-6, make=0.09),
    "fast-async": Costs(250e-6, row=1.5e-6, batch=15e-6, make=0.09),
    "envpool-sync": Costs(380e-6, row=1e-6, batch=30e-6, make=0.09),
    "envpool-async": Costs(380e-6, row=1e-6, batch=30e-6, make=0.09),
    "ceiling": Costs(200e-6, make=0.09),
    "null": Costs(0.0, batch=5e-6, make=0.0, environment=0),
    "yardstick": Costs(0.0, batch=50e-6, make=0.0, environment=0),
}

OTHER = Costs(500e-6, row=30e-6, batch=300e-6)  # of any other backend


@dataclass
class Machine:
    """The machine, and a record of its use. All times are in seconds, all sizes in bytes.

    A cell that needs more than the ``memory`` that is left is killed, as the kernel would do.
    """

    topology: Topology
    host: Host | None = None  # None: this system, with all CPUs of the topology
    memory: int = 64 * GIB
    costs: Mapping[str, Costs] = field(default_factory=lambda: COSTS)
    clock: FakeClock = field(default_factory=lambda: FakeClock(step=0.0))
    load: float = 1.0  # to load the libraries of an interpreter that cells are forked from, or of a fresh cell
    fork: float = 0.05
    end: float = 0.05
    around: float = 0.02  # to step before a window, and to read counters
    settling: float = 1.6  # of a warm-up, as a share of its least time
    episode_steps: int = 900
    replay: float = 0.2  # of the comparison of a cell, as a share of the time that it has stepped
    started: list[Cell] = field(default_factory=list)  # the measured cells
    alive: list[int] = field(default_factory=list)  # the memory of each living cell
    most_bytes: int = 0  # of all cells that were alive together
    most_processes: int = 0  # of one cell

    def __post_init__(self) -> None:
        if self.host is None:
            limits = {"cpus_allowed": self.topology.online, "nodes_allowed": None, "quota_cpus": None, "isolated": ()}
            self.host = replace(read_host(), topology=self.topology, memory_bytes=self.memory, **limits)

    def world(self) -> World:
        """Return access to this machine, for commands."""
        return replace(
            fake_world(),
            start=self.start,
            read_host=lambda: self.host,
            memory_available=lambda: self.memory - sum(self.alive),
            clock=self.clock,
        )

    def cost(self, cell: Cell) -> Costs:
        """Return the costs of a cell's backend."""
        return self.costs.get(cell.backend.name, OTHER)

    def batch_seconds(self, cell: Cell) -> float:
        """Return the mean time of a batch of a cell. Its true rate is the size of the batch over this time."""
        cost, shape = self.cost(cell), cell.shape
        working = min(cell.entry.at_work(shape.processes, shape.threads, cell.backend.options), shape.num_envs)
        first = {core[0] for core in self.topology.cores}
        speeds = [1.0 if cpu in first else SECOND_THREAD for cpu in cell.cpus[:working]]
        waits = cost.wait * ceil(shape.batch_size / working)
        return cost.batch + shape.batch_size * (cost.row + cost.step / sum(speeds)) + waits

    def fastest(self, cells: Sequence[Cell]) -> Cell:
        """Return the cell with the highest true rate, without reference rows."""
        found = [cell for cell in cells if cell.skip is None and not cell.entry.reference_row]
        return max(found, key=self.true_rate)

    def true_rate(self, cell: Cell) -> float:
        """Return the steps per second of a cell."""
        return cell.shape.batch_size / self.batch_seconds(cell)

    @contextmanager
    def start(
        self, spec: RunSpec, interrupts: Interrupts, python: str = sys.executable
    ) -> Iterator[Callable[[Cell], object]]:
        """Start cells, as ``World.start`` says."""
        loaded: set[object] = set()

        @contextmanager
        def launch(cell: Cell) -> Iterator[FakeCell]:
            if isinstance(cell.job, Replaying):
                yield FakeCell(self._replayed(cell.job, spec))
                return
            if not (cell.job is None or isinstance(cell.job, Recording)):
                self.clock.now += self.load
                yield FakeCell(self._other(cell, spec))
                return
            self.started.append(cell)
            own = self.cost(cell).bytes(cell)
            self.alive.append(own)
            self.most_bytes = max(self.most_bytes, sum(self.alive))
            self.most_processes = max(self.most_processes, cell.shape.processes)
            try:
                yield FakeCell(self._measured(cell, spec, loaded))
            finally:
                self.alive.remove(own)
                self.clock.now += self.end

        assert not interrupts.requested
        yield launch

    def _begin(self, cell: Cell, spec: RunSpec, loaded: set[object]) -> float:
        """Return the time until the process of a cell has its libraries."""
        modules = cell.entry.preloaded(cell.task) if spec.isolation == FORK else None
        libraries = cell.repeat, cell.interpreter.path, modules
        if modules is None:
            return self.load
        begin = self.fork if libraries in loaded else self.load + self.fork
        loaded.add(libraries)
        return begin

    def _measured(self, cell: Cell, spec: RunSpec, loaded: set[object]) -> Iterator[Answer]:
        """Yield the answers of a cell, each when the clock has reached its time."""
        began, noise, cost = self.clock.now, Random(f"{spec.seed} {cell.key}"), self.cost(cell)
        shape = cell.shape
        making = min(shape.processes * shape.threads, len(cell.cpus))
        self.clock.now += self._begin(cell, spec, loaded) + cost.make * shape.num_envs / making
        if sum(self.alive) > self.memory:
            raise CellError("killed by signal 9")
        each = self.batch_seconds(cell) * exp(noise.gauss(0, LUCK))
        built = Layout(**vars(shape), frame_skip=cell.task.frame_skip, affinity=cell.cpus)
        yield Ready(round((self.clock.now - began) * SECOND), built)
        drawn = Random(f"{spec.seed} {cell.repeat}").random()
        warm = spec.warmup * self.settling + drawn * min(self.episode_steps * each, spec.windows * spec.duration / 2)
        self.clock.now += max(warm, each)
        if cell.mode != "alone":
            yield Warm()
        stepped = warm
        for _ in range(spec.windows):
            batches = max(1, ceil(spec.duration / each))
            span = batches * each * exp(noise.gauss(0, NOISE))
            before = round(stepped / each)
            stepped += span
            self.clock.now += span + self.around
            worked = round(batches * shape.batch_size * cost.step * SECOND) if cost.wait else None
            yield Window(round(span * SECOND), batches * shape.batch_size, 0, cpu_ns=worked, steps_before=before)
        timed = self._timed(cell) if cell.is_base and cost.wait else None
        yield Done(cost.bytes(cell), warmup_ns=round(warm * SECOND), settled=True, timed=timed)

    def _replayed(self, job: Replaying, spec: RunSpec) -> Iterator[CellProof]:
        """Yield the result of each comparison."""
        self.clock.now += self.fork
        for recording in job.recordings:
            self.clock.now += min(self.replay * spec.cell_seconds, recording.seconds)
            yield IDENTICAL

    def _other(self, cell: Cell, spec: RunSpec) -> Iterator[Answer]:
        """Yield the answers of a process that measures no throughput: times of one environment, or a comparison."""
        for answer in steady(cell, spec):
            self.clock.now += 1.0
            yield self._timed(cell) if isinstance(cell.job, Timing) else answer

    def _timed(self, cell: Cell) -> Timed:
        """Return the times of one environment."""
        cost = self.cost(cell)
        step, make, idle = (round(time * SECOND) for time in (cost.step + cost.wait, cost.make, cost.wait))
        return Timed(1000, step, 2 * step, 5, make // 2, make_ns=make // 2, mean_ns=step, idle_ns=idle)
