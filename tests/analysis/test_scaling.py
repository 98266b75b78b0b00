"""Curves beyond what was measured: what is predicted, with which band, and where nothing is."""

from __future__ import annotations

import subprocess
import sys
from math import log
from statistics import median
from typing import TYPE_CHECKING

import pytest
from msgspec import structs
from support.sweeps import header_of, sweep_of

from vebench.analysis.curves import curves
from vebench.analysis.effective_cpus import BOOST, UNPINNED, cpu_order
from vebench.analysis.scaling import Forecast, Scaling, scaling
from vebench.analysis.scaling_family import CROSSTALK, draws, expected_maximum
from vebench.analysis.summary import summarise
from vebench.child.window import Window
from vebench.results.records import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vebench.results.records import CellRecord, RunRecord

COUNTS = (1, 2, 4, 8, 16)
WIDE = (600, 1000, 1500, 900)  # steps in the windows of a cell that varies


def model_of(header: RunRecord, *cells: CellRecord) -> Scaling | str:
    """Return what can be said of the first curve of a run, beside that of the ceiling if it is there."""
    summaries = summarise(Run(header, cells))
    order = cpu_order(header, summaries)
    assert order is not None
    found = curves(summaries)
    bare = next((curve for curve in found if curve.cells[0].backend == "ceiling"), None)
    return scaling(found[0], bare, order)


def forecast(header: RunRecord, workers: int, *cells: CellRecord) -> Forecast:
    """Return a forecast, also one that is refused."""
    model = model_of(header, *cells)
    return Forecast(workers, refused=model) if isinstance(model, str) else model.forecast(workers)


def by_law(rate: Callable[[int], float], counts: tuple[int, ...] = COUNTS) -> dict[int, float]:
    """Return the rates of a law without noise, where one core has 5,000 frames/s."""
    return {workers: 5000 * rate(workers) for workers in counts}


def linear(workers: int) -> float:
    return workers


def amdahl(workers: int) -> float:
    return workers / (1 + 0.03 * (workers - 1))


def retrograde(workers: int) -> float:
    return workers / (1 + 0.02 * (workers - 1) + 0.004 * workers * (workers - 1))


def waiting(workers: int) -> float:
    return workers / (1 + 0.15 * expected_maximum(workers))


LAWS = {"linear": linear, "Amdahl": amdahl, "crosstalk": retrograde, "straggler": waiting}


@pytest.mark.parametrize("law", LAWS)
def test_each_law_of_the_family_is_continued_and_its_band_holds_it(law: str) -> None:
    rate = LAWS[law]
    fields = {"num_envs": 16, "batch_size": 16} if law == "straggler" else {}
    found = forecast(header_of(64), 32, *sweep_of(by_law(rate), **fields))
    assert found.rate is not None
    assert found.rate.low is not None
    assert found.rate.high is not None
    assert found.rate.low < 5000 * rate(32) < found.rate.high
    assert found.rate.median == pytest.approx(5000 * rate(32), rel=0.2)
    assert found.back_test is not None
    assert found.back_test < 0.15


@pytest.mark.parametrize(
    ("law", "parameter", "value"),
    [("Amdahl", "serial", 0.03), ("crosstalk", "crosstalk", 0.004), ("straggler", "straggler", 0.15)],
)
def test_the_parameters_of_a_law_are_found_again(law: str, parameter: str, value: float) -> None:
    fields = {"num_envs": 64, "batch_size": 64} if law == "straggler" else {}
    model = model_of(header_of(64), *sweep_of(by_law(LAWS[law], (*COUNTS, 32, 64)), **fields))
    assert isinstance(model, Scaling)
    (part,) = model.parts
    assert median(getattr(draws(), parameter)[part.chosen]) == pytest.approx(value, rel=0.2)


def test_beside_the_bare_simulator_only_the_ratio_to_it_is_extrapolated() -> None:
    machine = {1: 1.0, 2: 2.0, 4: 3.9, 8: 7.0, 16: 8.0, 32: 8.2}
    bare = {workers: 9000 * value for workers, value in machine.items()}
    backend = {workers: 5000 * value for workers, value in machine.items() if workers <= 16}
    beside = forecast(header_of(64), 32, *sweep_of(backend), *sweep_of(bare, "ceiling"))
    alone = forecast(header_of(64), 32, *sweep_of(backend))
    assert beside.rate is not None
    assert alone.rate is not None
    truth = 5000 * machine[32]
    assert beside.rate.median == pytest.approx(truth, rel=0.05)
    assert abs(log(beside.rate.median / truth)) < abs(log(alone.rate.median / truth))


def test_second_threads_add_what_is_assumed_until_some_were_measured() -> None:
    header = header_of(16, threads=2)
    cells = sweep_of(by_law(linear))
    found = forecast(header, 32, *cells)
    assert found.rate is not None
    assert found.rate.median == pytest.approx(5000 * 16 * 1.3, rel=0.05)
    assert found.assumed == ("a second thread adds 30% ± 15% of a core",)
    beyond = sweep_of({20: 5000 * 16.4, 24: 5000 * 16.8})
    measured = forecast(header, 32, *cells, *beyond)
    assert measured.rate is not None
    assert measured.rate.median == pytest.approx(5000 * 17.6, rel=0.05)
    assert measured.assumed == ()


def test_another_package_costs_what_is_assumed_and_this_is_named() -> None:
    found = forecast(header_of(32, packages=2), 32, *sweep_of(by_law(linear)))
    one = forecast(header_of(32), 32, *sweep_of(by_law(linear)))
    assert found.rate is not None
    assert one.rate is not None
    assert found.rate.median < one.rate.median
    assert [text.split(" costs")[0] for text in found.assumed] == ["another package"]
    assert one.assumed == ()


def test_points_that_the_laws_do_not_foresee_widen_the_band() -> None:
    def width(rates: Mapping[int, float]) -> float:
        rate = forecast(header_of(64), 32, *sweep_of(rates)).rate
        assert rate is not None
        assert rate.low is not None
        assert rate.high is not None
        return log(rate.high / rate.low)

    rough = {1: 5000.0, 2: 12_000.0, 4: 16_000.0, 8: 44_000.0, 16: 60_000.0}
    assert width(rough) > 2 * width(by_law(amdahl))


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
    assert forecast(header_of(64), 32, *cells).refused == "only 1 of its 2 workers works at a time"


def test_a_peak_is_named_only_where_rates_certainly_fall_within_what_was_measured() -> None:
    def peak(rates: Mapping[int, float]) -> int | None:
        model = model_of(header_of(64), *sweep_of(rates))
        assert isinstance(model, Scaling)
        return model.peak

    counts = (1, 2, 4, 8, 16, 32, 64)
    assert peak(by_law(lambda w: w / (1 + 0.02 * (w - 1) + 0.01 * w * (w - 1)), counts)) == 8
    assert peak(by_law(retrograde, (1, 2, 4, 8))) is None, "its peak is beyond"
    assert peak(by_law(amdahl, counts)) is None


def test_the_draws_are_of_nested_laws_and_always_the_same() -> None:
    serial, crosstalk = draws().serial, draws().crosstalk
    assert {(bool(s), bool(k)) for s, k in zip(serial, crosstalk, strict=True)} == {
        (False, False),
        (True, False),
        (True, True),
    }
    assert crosstalk.max() <= CROSSTALK[1]
    draws.cache_clear()
    assert (draws().serial == serial).all()


def test_laws_are_averaged_and_none_is_chosen() -> None:
    model = model_of(header_of(64), *sweep_of(by_law(amdahl)))
    assert isinstance(model, Scaling)
    (part,) = model.parts
    shares = (part.share(draws().crosstalk > 0), part.share(draws().serial == 0))
    assert 0.1 < shares[0] < 0.9
    assert shares[1] < 0.1


def test_the_path_to_a_forecast_passes_doublings_and_kinks() -> None:
    model = model_of(header_of(24, threads=2), *sweep_of(by_law(linear)))
    assert isinstance(model, Scaling)
    assert [step.workers for step in model.path(32)] == [24, 32]
    assert model.path(64) == ()


def test_nothing_heavy_is_loaded_before_a_curve_is_extrapolated() -> None:
    script = "import sys, vebench.analysis.scaling; print({'numpy', 'scipy'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_what_the_machine_is_assumed_to_do_is_named() -> None:
    header = header_of(16, pin="none")
    limited = structs.replace(header, host=structs.replace(header.host, boost=True, quota_cpus=12.0, usable_cpus=12))
    found = forecast(limited, 12, *sweep_of(by_law(linear, (1, 2, 4, 8))))
    assert found.assumed == (UNPINNED, BOOST, "the quota remains 12 CPUs")
