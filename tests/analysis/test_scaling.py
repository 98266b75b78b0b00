"""Curves beyond what was measured: what is predicted, with which band, and where nothing is."""

from collections.abc import Callable, Sequence
from math import exp

import pytest
from msgspec import structs
from support.sweeps import header_of, sweep_of

from vebench.analysis import scaling
from vebench.analysis.cell import curves
from vebench.analysis.scaling import BAND, BOOST, UNPINNED, CpuOrder, Forecast, cpu_order
from vebench.analysis.statistics import Estimate
from vebench.analysis.summary import summarise
from vebench.child.window import Window
from vebench.results.records import CellRecord, Run, RunRecord

COUNTS = (1, 2, 4, 8, 16)
WIDE = (600, 1000, 1500, 900)  # steps in the windows of a cell that varies


def forecast(header: RunRecord, workers: int, *cells: CellRecord) -> Forecast:
    """Return the forecast of the only curve of a run."""
    summaries = summarise(Run(header, cells))
    order = cpu_order(header, summaries)
    (curve,) = curves(summaries)
    return scaling.forecast(curve, order, workers)


def predicted(header: RunRecord, workers: int, *cells: CellRecord) -> Estimate:
    return forecast(header, workers, *cells).rate


def by_law(rate: Callable[[int], float], counts: tuple[int, ...] = COUNTS) -> dict[int, float]:
    """Return the rates of a law without noise, where one core has 5,000 frames/s."""
    return {workers: 5000 * rate(workers) for workers in counts}


def linear(workers: int) -> float:
    return workers


@pytest.mark.parametrize("serial", [0.0, 0.03, 0.5, 1.0])
def test_amdahls_law_is_found_again(serial: float) -> None:
    found = forecast(header_of(64), 32, *sweep_of(by_law(lambda n: n / (1 + serial * (n - 1)))))
    assert found.rate.median == pytest.approx(5000 * 32 / (1 + serial * 31), rel=0.01)
    assert found.back_test == pytest.approx(0, abs=0.01)


def test_rates_that_fall_are_continued_as_level() -> None:
    rates = {1: 5000.0, 2: 4500.0, 4: 4000.0, 8: 3500.0}
    assert 3500 < predicted(header_of(64), 16, *sweep_of(rates)).median < 5000


def test_the_band_is_wider_farther_away() -> None:
    near, far = (predicted(header_of(64), count, *sweep_of(by_law(linear))) for count in (17, 32))
    assert exp(BAND) < near.high / near.median < far.high / far.median == pytest.approx(exp(BAND * 2**0.5))


def test_a_second_thread_counts_as_a_fifth_of_a_core() -> None:
    found = forecast(header_of(16, threads=2), 32, *sweep_of(by_law(linear)))
    assert found.rate.median == pytest.approx(5000 * 16 * 1.2, rel=0.01)
    assert found.assumed == ("a second thread adds 20% of a core",)


def test_workers_on_slower_cores_are_refused() -> None:
    header = header_of(20)
    hybrid = structs.replace(header.host.topology, kinds=("16-19", "0-15"))
    header = structs.replace(header, host=structs.replace(header.host, topology=hybrid))
    assert forecast(header, 12, *sweep_of(by_law(linear))).refused == ""
    assert "slower cores" in forecast(header, 18, *sweep_of(by_law(linear))).refused


@pytest.mark.parametrize(
    ("cores", "workers", "counts", "reason"),
    [
        (64, 32, COUNTS, ""),
        (64, 33, COUNTS, "more than 2 times the largest measured count, 16"),
        (64, 12, COUNTS, ""),
        (64, 8, COUNTS, "8 workers were measured"),
        (64, 2, (4, 8, 16, 32), "below the smallest measured count, 4"),
        (64, 8, (1, 2, 4), "3 worker counts measured: 4 are needed"),
        (16, 32, COUNTS, "only 16 CPUs are usable: more workers add nothing"),
        (4, 3, COUNTS, "3 worker counts measured, without 8, 16 (more workers than CPUs): 4 are needed"),
    ],
)
def test_too_many_more_workers_are_refused(cores: int, workers: int, counts: tuple[int, ...], reason: str) -> None:
    found = forecast(header_of(cores), workers, *sweep_of(by_law(linear, counts)))
    assert (found.refused, found.rate is None) == (reason, bool(reason))


def test_a_rate_that_is_hardly_known_is_refused() -> None:
    others = sweep_of(by_law(linear, (1, 2, 4, 8)))
    varying = sweep_of({16: 1.0}, windows=tuple(Window(10**9, steps, 0) for steps in WIDE))
    reason = forecast(header_of(64), 32, *others, *varying).refused
    assert reason.startswith("the interval of 16 workers is ±")


@pytest.mark.parametrize(
    ("fields", "why"),
    [({"verdict": "different"}, "other work"), ({"status": "failed", "reason": "boom", "windows": ()}, "failed")],
)
def test_cells_whose_rate_says_nothing_are_left_out(fields: dict[str, object], why: str) -> None:
    *others, _ = sweep_of(by_law(linear, (1, 2, 4, 8)))
    reason = forecast(header_of(64), 16, *others, *sweep_of({8: 40_000.0}, **fields)).refused
    assert reason == f"3 worker counts measured, without 8 ({why}): 4 are needed"


def test_a_backend_of_one_thread_is_not_extrapolated() -> None:
    cells = sweep_of(dict.fromkeys(COUNTS, 5000.0), "for-loop", processes=1)
    assert forecast(header_of(64), 32, *cells).refused == "its 2 workers do not all step at the same time"


def test_what_the_machine_is_assumed_to_do_is_named() -> None:
    header = header_of(16, pin="none")
    limited = structs.replace(header, host=structs.replace(header.host, boost=True, quota_cpus=12.0, usable_cpus=12))
    found = forecast(limited, 12, *sweep_of(by_law(linear, (1, 2, 4, 8))))
    assert found.assumed == (UNPINNED, BOOST, "the quota remains 12 CPUs")


def order_in(header: RunRecord, *workers: int, cpus: Sequence[int] = range(64)) -> CpuOrder:
    run = Run(header, tuple(sweep_of(dict.fromkeys(workers or (1,), 1000.0), cpus=cpus)))
    return cpu_order(header, summarise(run))


def test_cores_are_taken_before_second_threads_which_are_counted_apart() -> None:
    order = order_in(header_of(4, threads=2))
    assert [order.cores(workers, 0.5) for workers in (1, 4, 6, 8, 99)] == [1, 4, 5, 6, 6]


def test_kinks_are_where_packages_and_second_threads_begin() -> None:
    kinks = order_in(header_of(4, threads=2, packages=2)).kinks
    assert kinks == ((2, "another package begins"), (4, "second threads begin"))


def test_the_order_is_that_of_pin_and_smt() -> None:
    close = order_in(header_of(4, threads=2, pin="compact[smt=close]"))
    assert close.cores(2, 0.5) == 1.5
    scattered = order_in(header_of(4, packages=2, pin="scatter"))
    assert scattered.kinks == ((1, "another package begins"),)
    assert len(order_in(header_of(4, threads=2, pin="compact[smt=off]")).cpus) == 4


def test_the_largest_cell_shows_the_order_better_than_the_plan() -> None:
    header = header_of(4, threads=2)
    order = cpu_order(header, summarise(Run(header, tuple(sweep_of({2: 1000.0}, cpus=(0, 4))))))
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
    assert order.kinks == ((2, "another kind of core begins"),)


def test_a_list_of_cpus_that_the_file_does_not_have_is_left_to_its_cells() -> None:
    order = order_in(header_of(4, pin="90-93"), 1, 2)
    assert order.cores(4, 0.5) == 2
