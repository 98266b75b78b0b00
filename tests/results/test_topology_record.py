"""The machine's parts in a run file: what is written is read again."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from vebench.machine.host import read_host
from vebench.machine.placement import order_of, place
from vebench.machine.topology import Cache, Node, Topology
from vebench.results.header import host_record, topology_of
from vebench.results.records import TopologyRecord

ONLINE = tuple(range(8))
CORES = ((0, 4), (1, 5), (2, 6), (3, 7))
HALVES = ((0, 1, 4, 5), (2, 3, 6, 7))
MACHINE = Topology(
    online=ONLINE,
    cores=CORES,
    packages={"0": HALVES[0], "36": HALVES[1]},
    nodes=tuple(Node(3 * index, cpus) for index, cpus in enumerate(HALVES)),
    caches=tuple(Cache(3, 1 << 20, cpus) for cpus in HALVES),
    kinds=(HALVES[1], HALVES[0]),
)


@pytest.fixture
def record() -> TopologyRecord:
    return host_record(replace(read_host(), topology=MACHINE), place("0", frozenset({0}))).topology


def test_a_run_file_says_which_cpus_share_a_core(record: TopologyRecord) -> None:
    assert record.core_cpus == ("0,4", "1,5", "2,6", "3,7")
    assert msgspec.convert(msgspec.to_builtins(record), TopologyRecord) == record


@pytest.mark.parametrize("policy", ["compact", "scatter"])
def test_workers_are_placed_on_it_as_on_the_machine(record: TopologyRecord, policy: str) -> None:
    again = topology_of(record)
    assert (again.online, again.cores, again.kinds) == (ONLINE, CORES, MACHINE.kinds)
    assert order_of(again, ONLINE, policy) == order_of(MACHINE, ONLINE, policy)
