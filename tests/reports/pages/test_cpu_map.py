"""The machine of a run as parts within parts."""

from __future__ import annotations

import msgspec
from support.records import make_cell, make_header

from vebench.analysis.summary import summarise
from vebench.reports.pages.cpu_map import MarkedCpu, Part, cpu_map
from vebench.results.records import CacheRecord, CellRecord, HostRecord, Run, TopologyRecord

CACHES = (CacheRecord(1, 2**15, 8), CacheRecord(3, 2**24, 2))


def map_of(host: HostRecord, *cells: CellRecord) -> Part:
    return cpu_map(host, summarise(Run(make_header(), cells)))


def host_with(topology: TopologyRecord, allowed: tuple[int, ...]) -> HostRecord:
    return msgspec.structs.replace(make_header().host, topology=topology, cpus_allowed=allowed)


def numbers(part: Part) -> list[int]:
    return [cpu.number for cpu in part.cpus]


def test_smaller_parts_are_inside_larger_ones() -> None:
    topology = TopologyRecord(
        8,
        1,
        {"0": "0-3", "1": "4-7"},
        {"0": "0-3", "1": "4-7", "2": ""},
        CACHES,
        ("0-1", "2-3", "4-7"),
        ("0-7",),
        tuple("01234567"),
    )
    whole = map_of(host_with(topology, tuple(range(8))))
    assert (whole.title, whole.cpus) == ("", ())
    assert [part.title for part in whole.parts] == ["package 0, node 0", "package 1, node 1, L3 16 MiB"]
    assert [(part.title, numbers(part)) for part in whole.parts[0].parts] == [
        ("L3 16 MiB", [0, 1]),
        ("L3 16 MiB", [2, 3]),
    ]
    assert numbers(whole.parts[1]) == [4, 5, 6, 7]


def test_a_cpu_says_from_how_many_workers_on_it_is_owned_and_whether_it_may_be_used() -> None:
    topology = TopologyRecord(4, 1, {"0": "0-3"}, {"0": "0-3"}, (), (), ("0-3",), tuple("0123"))
    cells = [make_cell(backend, workers, (100,) * 3) for backend in ("for-loop", "gym-sync") for workers in (2, 1)]
    whole = map_of(host_with(topology, (0, 1, 2)), *cells)
    assert whole.cpus == (
        MarkedCpu(0, 1, barred=False),
        MarkedCpu(1, 2, barred=False),
        MarkedCpu(2, None, barred=False),
        MarkedCpu(3, None, barred=True),
    )


def test_kinds_of_core_are_apart_the_fastest_first() -> None:
    topology = TopologyRecord(4, 1, {"0": "0-3"}, {"0": "0-3"}, (), (), ("2-3", "0-1"), tuple("0123"))
    whole = map_of(host_with(topology, (0, 1, 2, 3)))
    assert [(part.title, numbers(part)) for part in whole.parts] == [("fastest kind", [0, 1]), ("slowest kind", [2, 3])]


def test_a_cache_of_one_core_is_left_out() -> None:
    topology = TopologyRecord(2, 2, {"0": "0-3"}, {"0": "0-3"}, CACHES, ("0,2", "1,3"), ("0-3",), ("0,2", "1,3"))
    assert map_of(host_with(topology, (0, 1, 2, 3))).parts == ()
