"""Rates of more workers than were measured: what is predicted, with which band, and where nothing is."""

from collections.abc import Sequence

import pytest
from msgspec import structs
from support.sweeps import header_of, sweep_of

from vebench.analysis import answer
from vebench.analysis.answer import BAND, cores_of_workers
from vebench.analysis.cell import curves
from vebench.analysis.statistics import Estimate
from vebench.analysis.summary import summarise
from vebench.results.records import CellRecord, Run, RunRecord

COUNTS = (1, 2, 4, 8, 16)
LINEAR = {workers: 5000.0 * workers for workers in COUNTS}


def forecast(header: RunRecord, workers: int, *cells: CellRecord) -> Estimate | str:
    """Return the forecast of the only curve of a run."""
    summaries = summarise(Run(header, cells))
    (curve,) = curves(summaries)
    return answer.forecast(curve, cores_of_workers(header, summaries), workers)


@pytest.mark.parametrize(
    ("cores", "threads", "workers", "rate"),
    [(64, 1, 32, 160_000), (64, 1, 12, 60_000), (16, 2, 32, 16 * 1.2 * 5000), (10, 2, 16, 0)],
)
def test_the_last_rate_is_continued_by_cores(cores: int, threads: int, workers: int, rate: float) -> None:
    found = forecast(header_of(cores, threads), workers, *sweep_of(LINEAR))
    if not rate:
        assert found == "16 workers were measured"
        return
    assert found.median == pytest.approx(rate, rel=0.01)
    assert found.low / found.median < BAND[0] < 1 < BAND[1] < found.high / found.median


def test_workers_on_slower_cores_are_refused() -> None:
    header = header_of(20)
    hybrid = structs.replace(header.host.topology, kinds=("16-19", "0-15"))
    header = structs.replace(header, host=structs.replace(header.host, topology=hybrid))
    assert isinstance(forecast(header, 12, *sweep_of(LINEAR)), Estimate)
    assert forecast(header, 18, *sweep_of(LINEAR)) == "only 16 CPUs are usable and of one kind"


@pytest.mark.parametrize(
    ("cores", "workers", "counts", "reason"),
    [
        (64, 33, COUNTS, "no undisturbed rate of 17 or more workers was measured"),
        (64, 2, (4, 8), "no undisturbed rate of 1 or more workers was measured"),
        (64, 8, COUNTS, "8 workers were measured"),
        (16, 32, COUNTS, "only 16 CPUs are usable and of one kind"),
    ],
)
def test_other_numbers_of_workers_are_refused(cores: int, workers: int, counts: tuple[int, ...], reason: str) -> None:
    cells = sweep_of({count: LINEAR[count] for count in counts})
    assert forecast(header_of(cores), workers, *cells) == reason


@pytest.mark.parametrize(
    "fields", [{"verdict": "different"}, {"status": "failed", "reason": "boom", "windows": ()}, {"processes": 1}]
)
def test_cells_whose_rate_says_nothing_are_left_out(fields: dict[str, object]) -> None:
    found = forecast(header_of(64), 16, *sweep_of({1: 5000.0, 2: 10_000.0}), *sweep_of({8: 40_000.0}, **fields))
    assert isinstance(found, str)


def cores_in(header: RunRecord, *workers: int, cpus: Sequence[int] = range(64)) -> tuple[float, ...]:
    run = Run(header, tuple(sweep_of(dict.fromkeys(workers or (1,), 1000.0), cpus=cpus)))
    return cores_of_workers(header, summarise(run))


@pytest.mark.parametrize(
    ("pin", "cores"),
    [
        ("compact", (1, 2, 3, 4, 4.2, 4.4, 4.6, 4.8)),
        ("compact[smt=close]", (1, 1.2)),
        ("compact[smt=off]", (1, 2, 3, 4)),
        ("none", (1, 2, 3, 4)),
        ("90-93", (1,)),
    ],
)
def test_the_order_is_that_of_pin_and_smt(pin: str, cores: tuple[float, ...]) -> None:
    found = cores_in(header_of(4, threads=2, pin=pin))
    assert found[: len(cores)] == pytest.approx(cores)


def test_the_largest_cell_shows_the_order_better_than_the_plan() -> None:
    assert cores_in(header_of(4, threads=2), 2, cpus=(0, 4))[:3] == pytest.approx((1, 1.2, 2.2))
