"""The figures of a run, the same numbers as its tables as lines over workers, and what was predicted of them."""

import json
from pathlib import Path

import pytest
from msgspec import structs
from support.commands import Command
from support.pages import document_of, page_of
from support.records import make_cell, on_hosts
from support.sweeps import header_of, sweep_of

from vebench.reports.document import Chart, ChartLine, Mark, Table, View
from vebench.reports.pages.run import RunPage
from vebench.results.records import Run, RunRecord
from vebench.results.store import RunWriter


def chart_of(page: RunPage, kind: str) -> Chart:
    (chart,) = (chart for chart in document_of(page).charts if chart.kind == kind)
    return chart


def points(series: ChartLine) -> dict[int, int]:
    return {round(x): round(estimate.median) for x, estimate in series.points}


def test_a_task_is_drawn_with_a_line_for_each_backend_the_ceiling_and_the_ideal_apart(page: RunPage) -> None:
    chart = chart_of(page, "rate")
    assert {series.name: series.role for series in chart.series} == {
        "for-loop": "measured",
        "gym-async": "measured",
        "envpool-sync": "measured",
        "mine.adapters:Fast[mode=a|b]": "measured",
        "ceiling": "bound",
        "ideal": "ideal",
    }
    assert points(chart.series[2]) == {1: 10_003, 2: 14_403}


def test_the_ideal_gains_by_workers_that_have_a_cpu_and_by_no_others(page: RunPage) -> None:
    ideal = chart_of(page, "rate").series[-1]
    loop = points(chart_of(page, "rate").series[0])[1]
    assert points(ideal) == pytest.approx({1: loop, 2: 2 * loop, 4: 2 * loop}, abs=1)


def test_the_ideal_of_several_hosts_gains_by_the_cpus_of_all_of_them(sweep: Run) -> None:
    there = RunPage.of([("a.jsonl", Run(on_hosts(sweep.header, 2, 1), sweep.cells))])
    loop = points(chart_of(there, "rate").series[0])[1]
    assert points(chart_of(there, "rate").series[-1]) == pytest.approx({1: loop, 3: 3 * loop, 4: 3 * loop}, abs=2)
    assert chart_of(there, "rate").marks == (Mark(3.0, "CPUs end"),)


def test_a_figure_has_two_cells_at_least_and_says_who_wins_on_which_machine() -> None:
    cells = (make_cell("for-loop", 1, (900,) * 4), make_cell("gym-sync", 1, (1900,) * 4))
    assert document_of(page_of(*cells[:1])).charts == ()
    chart = chart_of(page_of(*cells), "rate")
    assert chart.title == "Pong on Test, 2 CPUs: frames/s"
    loop, wins = chart.series[:2]
    assert (loop.banded, loop.mark, wins.banded, wins.mark) == (True, None, True, Mark(1.0, "winner", wins=True))


def test_a_cell_of_other_work_is_no_point() -> None:
    cells = [make_cell("for-loop", workers, (900,) * 4) for workers in (1, 2)]
    other = [make_cell("gym-sync", workers, (9000,) * 4, verdict="different") for workers in (1, 2)]
    assert points(chart_of(page_of(*cells, *other), "rate").series[1]) == {}


def swept(header: RunRecord, *workers: int, forecast: int | None = None) -> RunPage:
    rates = {count: 5000.0 * count for count in workers}
    cells = [*sweep_of(dict.fromkeys(workers, 5000.0), "gym-sync", processes=1), *sweep_of(rates, "shm-async")]
    return RunPage.of([("a.jsonl", Run(header, tuple(cells)))], View(forecast=forecast))


def test_marks_show_where_packages_second_threads_and_the_end_of_cpus_begin() -> None:
    machine = header_of(4, threads=2, packages=2)
    assert chart_of(swept(machine, 1, 2, 4, 8, 16), "rate").marks == (
        Mark(2.0, "another package begins"),
        Mark(4.0, "second threads begin"),
        Mark(8.0, "CPUs end"),
    )
    assert chart_of(swept(machine, 1, 2, 4), "rate").marks == (Mark(2.0, "another package begins"),)


def test_marks_at_one_place_are_one() -> None:
    header = header_of(4, packages=2)
    hybrid = structs.replace(header.host.topology, kinds=("2-3", "0-1"))
    header = structs.replace(header, host=structs.replace(header.host, topology=hybrid))
    assert chart_of(swept(header, 1, 2, 4), "rate").marks == (
        Mark(2.0, "another package begins, another kind of core begins"),
    )


def test_a_forecast_continues_the_line_that_it_is_made_from() -> None:
    chart = chart_of(swept(header_of(8, threads=2), 1, 2, 4, 8, forecast=16), "rate")
    (line,) = (series for series in chart.series if series.role == "forecast")
    assert line.name == "shm-async"
    assert [x for x, _ in line.points] == [8.0, 16.0]
    first, last = (estimate for _, estimate in line.points)
    assert first.median == 40_000
    assert 40_000 < last.low < last.median < last.high
    assert chart.marks == (Mark(8.0, "second threads begin"),)


def test_the_ideal_goes_as_far_as_the_forecast() -> None:
    loop = sweep_of({1: 4000.0}, "for-loop", processes=1)
    run = Run(header_of(8), (*loop, *sweep_of({1: 5000.0, 2: 9000.0, 3: 13_000.0, 4: 17_000.0})))
    chart = chart_of(RunPage.of([("a.jsonl", run)], View(forecast=8)), "rate")
    (ideal,) = (series for series in chart.series if series.role == "ideal")
    assert points(ideal) == {1: 4000, 8: 32_000}


COUNTS = (1, 2, 4, 8)
MACHINE = header_of(8, threads=2)


def run_on(header: RunRecord) -> Run:
    """Return a run of a backend of one thread, one that scales, and one that was measured with few workers."""
    loop = sweep_of(dict.fromkeys(COUNTS, 4000.0), "gym-sync", processes=1)
    scales = sweep_of({workers: 5000.0 * workers for workers in COUNTS})
    few = sweep_of({1: 3000.0, 2: 6000.0}, "mine:<b>|Few")
    return Run(header, (*loop, *scales, *few))


def table_of(header: RunRecord, workers: int) -> Table:
    page = RunPage.of([("a.jsonl", run_on(header))], View(forecast=workers))
    return document_of(page).tables[-1]


def test_it_says_that_nothing_of_it_was_measured_and_has_a_row_for_each_backend() -> None:
    table = table_of(MACHINE, 16)
    assert table.title == "ALE/Pong-v5: Predicted frames/s, not measured"
    assert table.columns == ("16 workers", "90 % band", "back-test")
    rows = {row.label: [text.lines[0] for text in row.texts] for row in table.rows}
    assert rows.keys() == {"gym-sync", "shm-async", "mine:<b>|Few"}
    assert rows["gym-sync"] == rows["mine:<b>|Few"] == ["not predicted", "-", "-"]
    rate, band, back_test = rows["shm-async"]
    low, high = (float(end.replace(",", "")) for end in band.split(" to "))
    assert 40_000 < low < float(rate.replace(",", "")) < high < 80_000
    assert back_test.startswith("±")


def test_below_it_stands_why_there_is_no_prediction_and_what_one_assumes() -> None:
    listing = table_of(MACHINE, 16).listing
    assert listing.lines == (
        "gym-sync: not predicted: its 2 workers do not all step at the same time",
        "shm-async: assumed: a second thread adds 20% of a core",
        "mine:<b>|Few: not predicted: 2 worker counts measured: 4 are needed",
    )


def test_what_needs_no_prediction_is_said_even_of_curves_that_would_bear_none() -> None:
    for workers, reason in ((2, "2 workers were measured"), (17, "only 16 CPUs are usable: more workers")):
        listing = table_of(MACHINE, workers).listing
        (line,) = listing.lines
        assert line.startswith(f"every backend: not predicted: {reason}")


def test_what_more_hosts_would_add_is_not_predicted_from_one_hosts_cpus() -> None:
    listing = table_of(on_hosts(MACHINE, 16, 16), 64).listing
    (line,) = listing.lines
    assert line.startswith("every backend: not predicted: replicas on hosts add up: measure with more hosts")


def test_report_has_it_on_demand(tmp_path: Path, vebench: Command) -> None:
    with RunWriter.create(tmp_path / "a.jsonl", MACHINE) as writer:
        for cell in run_on(MACHINE).cells:
            writer.append(cell)
    asked = vebench("report", "a.jsonl", "--forecast", "16", "-f", "markdown")
    assert asked.status == 0
    assert "Predicted frames/s, not measured" in asked.out
    assert "Predicted" not in vebench("report", "a.jsonl", "-f", "markdown").out
    data = (vebench("report", "a.jsonl", "-f", "json", *more).out for more in ((), ("--forecast", "16")))
    assert json.loads(next(data)) == json.loads(next(data))


@pytest.mark.parametrize("count", ["0", "-4", "many"])
def test_a_forecast_is_for_a_whole_number_of_workers(vebench: Command, count: str) -> None:
    refused = vebench("report", "--forecast", count)
    assert (refused.status, "--forecast" in refused.refusal) == (2, True)
