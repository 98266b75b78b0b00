"""Machines of 16 to 256 CPUs, simulated, and real machines' topologies: placement, race, answer and display."""

import re
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pytest
from support.commands import Command, lines
from support.places import DUMPS
from support.simulated import COSTS, GIB, Costs, Machine, topology_of

from vebench.backends.registry import find
from vebench.machine.host import Host, Topology, read_host
from vebench.machine.kernel import Cpus
from vebench.plan.cells import Cell

pytestmark = pytest.mark.usefixtures("everything_installed")
REAL = sorted(path.name.removesuffix(".tar.gz") for path in DUMPS.glob("*.tar.gz"))
SIMULATED = {
    "16 CPUs": topology_of(nodes=2, cores=4, threads=2),
    "64 CPUs": topology_of(packages=2, nodes=2, cores=16),
    "256 CPUs": topology_of(packages=2, nodes=4, cores=16, threads=2, interleaved=True),
}
# Threads are fast, and hand over rows slowly: they win on few CPUs, and processes on many.
SATURATING = {
    **COSTS,
    "fast-sync": Costs(250e-6, row=8e-6, batch=20e-6, make=0.09),
    "fast-async": Costs(250e-6, row=9e-6, batch=20e-6, make=0.09),
    "envpool-sync": Costs(380e-6, row=7e-6, batch=30e-6, make=0.09),
    "envpool-async": Costs(380e-6, row=7e-6, batch=30e-6, make=0.09),
}


@pytest.fixture(scope="module", params=[*SIMULATED, *REAL])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Host:
    """Return the facts of a machine, simulated or real."""
    if request.param in SIMULATED:
        return Machine(SIMULATED[request.param]).host
    root = tmp_path_factory.mktemp("trees")
    with tarfile.open(DUMPS / f"{request.param}.tar.gz") as archive:
        archive.extractall(root, filter="tar")
    return read_host(root / request.param)


@pytest.fixture
def machine(host: Host) -> Machine:
    return Machine(host.topology, host)


def started(vebench: Command, machine: Machine, *options: str) -> list[Cell]:
    """Return the cells of a pass with several numbers of workers, up to more than the machine has CPUs."""
    cpus = len(machine.host.cpus_allowed)
    counts = f"1..{cpus + 5}:+{cpus // 6 + 1}"
    backends = ("-b", "shm-sync,fast-sync", "-w", counts, "--passes", "1", "--no-base", "--proof", "off")
    assert vebench("run", "-e", "Pong", *backends, *options, "-q", world=machine.world()).status == 0
    assert len(machine.started) >= 12
    return machine.started


def cores_of(cpus: Cpus, topology: Topology) -> Counter[int]:
    """Return how many of these CPUs each core has, by the number of the core."""
    core = {cpu: number for number, cpus in enumerate(topology.cores) for cpu in cpus}
    return Counter(core[cpu] for cpu in cpus)


def free_and_taken(cpus: Cpus, machine: Machine) -> dict[int | None, tuple[int, int]]:
    """Return how many cores of each memory node have none of these CPUs, and how many have some."""
    home = {cpu: node.id for node in machine.topology.nodes for cpu in node.cpus}
    allowed = [{*core}.intersection(machine.host.cpus_allowed) for core in machine.topology.cores]
    found: dict[int | None, tuple[int, int]] = {}
    for core in filter(None, allowed):
        node = home.get(min(core))
        free, taken = found.get(node, (0, 0))
        found[node] = (free, taken + 1) if core.intersection(cpus) else (free + 1, taken)
    return found


@pytest.mark.parametrize("pin", ["compact", "scatter"])
def test_cells_own_cpus_of_the_machine_spread_as_asked(vebench: Command, machine: Machine, pin: str) -> None:
    allowed = machine.host.cpus_allowed
    cores = sum(not {*core}.isdisjoint(allowed) for core in machine.topology.cores)
    for cell in started(vebench, machine, "--pin", pin):
        assert len(set(cell.cpus)) == len(cell.cpus) == min(cell.workers, len(allowed))
        assert set(cell.cpus) <= set(allowed)
        assert len(cores_of(cell.cpus, machine.topology)) == min(cores, len(cell.cpus))
        nodes = free_and_taken(cell.cpus, machine).values()
        if pin == "compact":
            assert sum(free > 0 and taken > 0 for free, taken in nodes) <= 1
        else:
            assert all(taken >= max(most for _, most in nodes) - 1 for free, taken in nodes if free)


def test_a_pool_per_node_has_the_cpus_of_its_node_and_no_other_pools(vebench: Command, machine: Machine) -> None:
    for cell in started(vebench, machine, "--replicas", "node"):
        pools = [replica.cpus for replica in cell.all_replicas]
        assert sorted(cpu for pool in pools for cpu in pool) == sorted(set(cell.cpus))
        assert sum(replica.workers for replica in cell.all_replicas) == cell.workers
        for pool in pools:
            assert sum(taken > 0 for _, taken in free_and_taken(pool, machine).values()) == 1


def test_without_second_threads_no_core_has_two_workers(vebench: Command, machine: Machine) -> None:
    for cell in started(vebench, machine, "--pin", "compact[smt=off]"):
        assert set(cores_of(cell.cpus, machine.topology).values()) == {1}


def test_a_run_names_the_fastest_and_its_display_fits_a_terminal(
    vebench: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(SIMULATED["256 CPUs"], costs=SATURATING, memory=32 * GIB)
    for key, value in {"COLUMNS": "80", "LINES": "24", "TERM": "xterm"}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    asked = ("run", "-e", "Pong", "-w", f"1..{len(machine.topology.online)}")
    plan = vebench(*asked, "--dry-run", world=machine.world())
    shown = vebench(*asked, "-o", "run.jsonl", world=machine.world())
    assert (plan.status, shown.status) == (0, 0)
    assert machine.most_bytes <= machine.memory

    drawn = re.split(r"[\r\n]", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", plan.out + shown.out + shown.err))
    assert max(map(len, drawn)) <= 80
    assert any("best so far" in line for line in drawn)

    winner = re.search(r"this machine: (\S+) with (\d+) workers", shown.out)
    assert winner is not None
    best = machine.fastest(machine.started)
    named = next(cell for cell in machine.started if (cell.backend.name, str(cell.workers)) == winner.groups())
    assert find(named.backend.name).family == "shm" == best.entry.family
    assert machine.true_rate(named) >= 0.97 * machine.true_rate(best)

    passes = Counter((cell["backend"], cell["workers"]) for cell in lines(Path("run.jsonl"), "cell"))
    assert passes[named.backend.name, named.workers] > 2
    assert passes["gym-sync", 1] == 2

    assert "Time: 10 min 00 s (--budget)" in plan.out
    assert 0.85 * 600 < machine.clock.now < 630


@pytest.mark.parametrize("name", SIMULATED)
def test_the_planned_time_is_the_time_that_all_cells_take(vebench: Command, name: str) -> None:
    machine = Machine(SIMULATED[name], memory=256 * GIB)
    # With this seed, the random part of the warm-ups has about its mean length, as in the plan.
    length = ("--budget", "none", "--passes", "2", "--seed", "14")
    asked = ("run", "-e", "Pong", "-w", f"1..{len(machine.topology.online)}", *length)
    plan = vebench(*asked, "--dry-run", world=machine.world())
    (minutes, seconds), *_ = re.findall(r"Time: about (\d+) min (\d+) s", plan.out)
    assert vebench(*asked, "-q", world=machine.world()).status == 0
    assert 60 * int(minutes) + int(seconds) == pytest.approx(machine.clock.now, rel=0.15)


def test_a_cell_above_memory_is_killed(vebench: Command) -> None:
    machine = Machine(topology_of(cores=4), memory=GIB, costs={"for-loop": Costs(environment=2 * GIB)})
    asked = ("-b", "for-loop", "-w", "1", "--no-base", "--proof", "off")
    assert vebench("run", "-e", "Pong", *asked, "-q", world=machine.world()).status == 1
    assert machine.clock.now < 10
