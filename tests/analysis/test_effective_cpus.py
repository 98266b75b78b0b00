"""The CPUs that workers take, by the topology in a run file: whole cores, second threads, packages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs
from support.sweeps import header_of, sweep_of

from vebench.analysis.scaling import UNPINNED, CpuOrder, Kink, cpu_order
from vebench.analysis.summary import summarise
from vebench.results.records import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.results.records import RunRecord


def order_in(header: RunRecord, *workers: int, cpus: Sequence[int] = range(64)) -> CpuOrder:
    run = Run(header, tuple(sweep_of(dict.fromkeys(workers or (1,), 1000.0), cpus=cpus)))
    order = cpu_order(header, summarise(run))
    assert order is not None
    return order


def test_cores_are_taken_before_second_threads_which_are_counted_apart() -> None:
    order = order_in(header_of(4, threads=2))
    assert [order.cores(workers, 0.5) for workers in (1, 4, 6, 8, 99)] == [1, 4, 5, 6, 6]


def test_kinks_are_where_packages_and_second_threads_begin() -> None:
    assert order_in(header_of(4, threads=2, packages=2)).kinks == (
        Kink(2, "another package begins"),
        Kink(4, "second threads begin"),
    )


def test_the_order_is_that_of_pin_and_smt() -> None:
    close = order_in(header_of(4, threads=2, pin="compact[smt=close]"))
    assert close.cores(2, 0.5) == 1.5
    scattered = order_in(header_of(4, packages=2, pin="scatter"))
    assert scattered.kinks == (Kink(1, "another package begins"),)
    assert len(order_in(header_of(4, threads=2, pin="compact[smt=off]")).cpus) == 4


def test_the_largest_cell_shows_the_order_better_than_the_plan() -> None:
    header = header_of(4, threads=2)
    order = cpu_order(header, summarise(Run(header, tuple(sweep_of({2: 1000.0}, cpus=(0, 4))))))
    assert order is not None
    assert [order.cores(workers, 0.5) for workers in (2, 3)] == [1.5, 2.5]


def test_a_quota_leaves_fewer_cpus() -> None:
    header = header_of(8)
    limited = structs.replace(header, host=structs.replace(header.host, usable_cpus=3, quota_cpus=3.5))
    assert order_in(limited).cores(8, 0.5) == 3


def test_without_pinning_cores_are_assumed_to_come_first() -> None:
    order = order_in(header_of(4, threads=2, pin="none"))
    assert order.assumed == (UNPINNED,)
    assert order.cores(4, 0.5) == 4


def test_slower_cores_come_last() -> None:
    header = header_of(4)
    hybrid = structs.replace(header.host.topology, kinds=("0-1", "2-3"))
    order = order_in(structs.replace(header, host=structs.replace(header.host, topology=hybrid)), 1, cpus=())
    assert [cpu.slower for cpu in order.cpus] == [0, 0, 1, 1]
    assert order.kinks == (Kink(2, "another kind of core begins"),)


def test_a_list_of_cpus_that_the_file_does_not_have_is_left_to_its_cells() -> None:
    order = order_in(header_of(4, pin="90-93"), 1, 2)
    assert order.cores(4, 0.5) == 2
