"""Curves beyond what was measured: what is predicted, with which band, and where nothing is."""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING

import pytest
from msgspec import structs
from support.sweeps import header_of, sweep_of

from vebench.analysis import scaling
from vebench.analysis.cell import curves
from vebench.analysis.scaling import BAND, BOOST, UNPINNED, Forecast, cpu_order
from vebench.analysis.summary import summarise
from vebench.child.window import Window
from vebench.results.records import Run

if TYPE_CHECKING:
    from collections.abc import Callable

    from vebench.analysis.statistics import Estimate
    from vebench.results.records import CellRecord, RunRecord

COUNTS = (1, 2, 4, 8, 16)
WIDE = (600, 1000, 1500, 900)  # steps in the windows of a cell that varies


def forecast(header: RunRecord, workers: int, *cells: CellRecord) -> Forecast:
    """Return the forecast of the only curve of a run."""
    summaries = summarise(Run(header, cells))
    order = cpu_order(header, summaries)
    assert order is not None
    (curve,) = curves(summaries)
    return scaling.forecast(curve, order, workers)


def predicted(header: RunRecord, workers: int, *cells: CellRecord) -> Estimate:
    rate = forecast(header, workers, *cells).rate
    assert rate is not None
    return rate


def by_law(rate: Callable[[int], float], counts: tuple[int, ...] = COUNTS) -> dict[int, float]:
    """Return the rates of a law without noise, where one core has 5,000 frames/s."""
    return {workers: 5000 * rate(workers) for workers in counts}


def linear(workers: int) -> float:
    return workers


@pytest.mark.parametrize("serial", [0.0, 0.03, 0.5, 1.0])
def test_amdahls_law_is_found_again(serial: float) -> None:
    found = forecast(header_of(64), 32, *sweep_of(by_law(lambda n: n / (1 + serial * (n - 1)))))
    assert found.rate is not None
    assert found.rate.median == pytest.approx(5000 * 32 / (1 + serial * 31), rel=0.01)
    assert found.back_test == pytest.approx(0, abs=0.01)


def test_rates_that_fall_are_continued_as_level() -> None:
    rates = {1: 5000.0, 2: 4500.0, 4: 4000.0, 8: 3500.0}
    assert 3500 < predicted(header_of(64), 16, *sweep_of(rates)).median < 5000


def test_the_band_is_wider_farther_away() -> None:
    near, far = (predicted(header_of(64), count, *sweep_of(by_law(linear))) for count in (17, 32))
    assert near.high is not None
    assert far.high is not None
    assert exp(BAND) < near.high / near.median < far.high / far.median == pytest.approx(exp(BAND * 2**0.5))


def test_a_second_thread_counts_as_a_fifth_of_a_core() -> None:
    found = forecast(header_of(16, threads=2), 32, *sweep_of(by_law(linear)))
    assert found.rate is not None
    assert found.rate.median == pytest.approx(5000 * 16 * 1.2, rel=0.01)
    assert found.assumed == ("a second thread adds 20% of a core",)


def test_workers_on_slower_cores_are_refused() -> None:
    header = header_of(20)
    hybrid = structs.replace(header.host.topology, kinds=("16-19", "0-15"))
    header = structs.replace(header, host=structs.replace(header.host, topology=hybrid))
    assert forecast(header, 12, *sweep_of(by_law(linear))).refused == ""
    assert "slower cores" in forecast(header, 18, *sweep_of(by_law(linear))).refused


def test_more_workers_than_the_machine_can_use_are_refused() -> None:
    reason = forecast(header_of(16), 32, *sweep_of(by_law(linear))).refused
    assert reason == "there are 16 CPUs to work on: workers beyond them add nothing"


def test_more_than_twice_the_workers_measured_are_refused() -> None:
    assert forecast(header_of(64), 32, *sweep_of(by_law(linear))).refused == ""
    reason = forecast(header_of(64), 33, *sweep_of(by_law(linear))).refused
    assert reason == "more than 2 times the 16 workers measured"


def test_what_was_measured_is_not_predicted() -> None:
    assert forecast(header_of(64), 8, *sweep_of(by_law(linear))).refused == "8 workers were measured"
    assert forecast(header_of(64), 12, *sweep_of(by_law(linear))).rate is not None


def test_fewer_workers_than_were_measured_are_refused() -> None:
    cells = sweep_of(by_law(linear, (4, 8, 16, 32)))
    assert forecast(header_of(64), 2, *cells).refused == "fewer than the 4 workers measured"


def test_fewer_than_four_numbers_of_workers_are_refused() -> None:
    reason = forecast(header_of(64), 8, *sweep_of(by_law(linear, (1, 2, 4)))).refused
    assert reason == "3 numbers of workers measured: 4 are needed"


def test_a_rate_that_is_hardly_known_is_refused() -> None:
    others = sweep_of(by_law(linear, (1, 2, 4, 8)))
    varying = sweep_of({16: 1.0}, windows=tuple(Window(10**9, steps, 0) for steps in WIDE))
    reason = forecast(header_of(64), 32, *others, *varying).refused
    assert reason.startswith("the rate of 16 workers is known to ±")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"verdict": "different"}, "other work"),
        ({"status": "failed", "reason": "boom", "windows": ()}, "failed"),
    ],
)
def test_cells_whose_rate_says_nothing_are_left_out(fields: dict[str, object], why: str) -> None:
    *others, _ = sweep_of(by_law(linear, (1, 2, 4, 8)))
    reason = forecast(header_of(64), 16, *others, *sweep_of({8: 40_000.0}, **fields)).refused
    assert reason == f"3 numbers of workers measured, without 8 ({why}): 4 are needed"


def test_workers_beyond_the_cpus_are_no_points() -> None:
    reason = forecast(header_of(4), 3, *sweep_of(by_law(linear))).refused
    assert reason == ("3 numbers of workers measured, without 8, 16 (more than the CPUs): 4 are needed")


def test_a_backend_of_one_thread_is_not_extrapolated() -> None:
    cells = sweep_of(dict.fromkeys(COUNTS, 5000.0), "for-loop", processes=1)
    assert forecast(header_of(64), 32, *cells).refused == "not all of its 2 workers work at the same time"


def test_what_the_machine_is_assumed_to_do_is_named() -> None:
    header = header_of(16, pin="none")
    limited = structs.replace(header, host=structs.replace(header.host, boost=True, quota_cpus=12.0, usable_cpus=12))
    found = forecast(limited, 12, *sweep_of(by_law(linear, (1, 2, 4, 8))))
    assert found.assumed == (UNPINNED, BOOST, "the quota remains 12 CPUs")
