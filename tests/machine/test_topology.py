"""What is made of a machine's sysfs: small trees of our own, one for each oddity that real machines have."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

import pytest

from vebench.machine.host import Cache, Topology, format_cpu_list, read_host, read_topology
from vebench.machine.kernel import cpu_quota, parse_list

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"


class Tree:
    """A tree below ``root``, with these CPUs online. Each method adds what a kernel shows, and returns it."""

    def __init__(self, root: Path, online: str | None = None) -> None:
        self.root = root
        (root / CPU).mkdir(parents=True)
        if online is not None:
            self.file(f"{CPU}/online", online)

    def file(self, name: str, text: object) -> Self:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
        return self

    def topology(self, cpus: Iterable[int], **texts: object) -> Self:
        for cpu in cpus:
            for name, text in texts.items():
                self.file(f"{CPU}/cpu{cpu}/topology/{name}", text)
        return self

    def core(self, *cpus: int, package: int = 0) -> Self:
        return self.topology(cpus, core_cpus_list=format_cpu_list(cpus), physical_package_id=package)

    def cache(self, cpus: str, level: int = 3, kind: str = "Unified", size: str = "32768K", index: int = 3) -> Self:
        for cpu in parse_list(cpus):
            folder = f"{CPU}/cpu{cpu}/cache/index{index}"
            self.file(f"{folder}/level", level).file(f"{folder}/type", kind)
            self.file(f"{folder}/size", size).file(f"{folder}/shared_cpu_list", cpus)
        return self

    def node(self, number: int, **texts: object) -> Self:
        for name, text in texts.items():
            self.file(f"{NODE}/node{number}/{name}", text)
        return self

    def read(self) -> Topology:
        topology = read_topology(self.root)
        assert topology is not None
        return topology


Grow = Callable[..., Tree]


@pytest.fixture
def grow(tmp_path: Path) -> Grow:
    """Return a function that begins a tree."""
    return lambda online=None: Tree(tmp_path / "machine", online)


def test_offline_cpus_are_left_out_of_everything(grow: Grow) -> None:
    tree = grow("1,4-5").topology((1, 4, 5), physical_package_id=0)
    tree.topology((0, 4), core_cpus_list="0,4").topology((1, 5), core_cpus_list="1,5").cache("0-7")
    topology = tree.node(0, cpulist="0-7").read()
    assert topology.cores == ((1, 5), (4,))
    assert topology.packages == {"0": (1, 4, 5)}
    assert topology.nodes[0].cpus == (1, 4, 5)
    assert topology.caches == (Cache(3, 32 << 20, (1, 4, 5)),)


def test_the_last_level_is_the_highest_that_each_cpu_has(grow: Grow) -> None:
    tree = grow("0-5").cache("0-3").cache("0-1", 2, index=2).cache("4-5", 2, size="2M", index=2)
    tree.cache("0", 1, "Data", "48K", index=0).cache("5", 4, "Instruction", index=1)
    topology = tree.read()
    assert topology.last_level == (Cache(2, 2 << 20, (4, 5)), Cache(3, 32 << 20, (0, 1, 2, 3)))
    assert [cache.level for cache in topology.caches] == [1, 2, 2, 3]


def test_node_ids_may_have_gaps_and_nodes_no_cpus(grow: Grow) -> None:
    tree = grow("0-3").node(0, cpulist="0-1", distance="10 40 80").node(8, cpulist="2-3", distance="40 10 80")
    tree.node(255, cpulist="", meminfo="Node 255 MemTotal:  1024 kB", distance="80 80 10")
    small, big, memory = tree.file(f"{NODE}/online", "0,8,255").read().nodes
    assert [(node.id, node.cpus) for node in (small, big, memory)] == [(0, (0, 1)), (8, (2, 3)), (255, ())]
    assert memory.memory_bytes == 1 << 20
    assert big.distances == {0: 40, 8: 10, 255: 80}


def test_kinds_of_hybrid_x86_come_from_their_counters_before_all_else(grow: Grow) -> None:
    tree = grow("0-5").file("sys/devices/cpu_core/cpus", "0-1").file("sys/devices/cpu_atom/cpus", "2-3")
    tree.file("sys/devices/cpu_lowpower/cpus", "4-5")
    for cpu in range(6):
        tree.file(f"{CPU}/cpu{cpu}/cpu_capacity", 1024)
    assert tree.read().kinds == ((4, 5), (2, 3), (0, 1))


def test_kinds_of_arm_come_from_their_capacities(grow: Grow) -> None:
    tree = grow("0-3")
    for cpu, capacity in enumerate((446, 446, 1024, 871)):
        tree.file(f"{CPU}/cpu{cpu}/cpu_capacity", capacity)
    assert tree.read().kinds == ((0, 1), (3,), (2,))


def test_of_another_machine_the_affinity_in_its_tree_counts(grow: Grow) -> None:
    tree = grow("0-3").file("proc/self/status", "Name:\tpython\nCpus_allowed_list:\t2-9\nMems_allowed_list:\t0\n")
    tree.node(0, cpulist="0-1").node(1, cpulist="2-3")
    host = read_host(tree.root)
    assert (host.cpus_allowed, host.nodes_allowed) == ((2, 3), (0,))


@pytest.mark.parametrize("path", ["/docker/abc", "/../x", "/"])
@pytest.mark.parametrize("mount", ["sys/fs/cgroup", "sys/fs/cgroup/unified"])
def test_in_a_container_the_mount_is_the_own_group_whatever_its_path_says(grow: Grow, path: str, mount: str) -> None:
    tree = grow("0-7").file("proc/self/cgroup", f"5:cpu:/x\n0::{path}").file(f"{mount}/cpu.max", "50000 100000")
    tree.file("proc/mounts", f"none /{mount} cgroup2 rw 0 0\n")
    assert cpu_quota(tree.root) == (0.5, f"/{mount}/cpu.max")
