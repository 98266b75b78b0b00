"""The charts of a run, and what is predicted of its curves."""

import json
from pathlib import Path

import pytest
from support.commands import Command
from support.pages import document_of, page_of
from support.records import make_cell, on_hosts, write_run
from support.sweeps import header_of, sweep_of

from vebench.reports.document import Chart, ChartLine, Table, View
from vebench.reports.run import RunPage
from vebench.results.records import Run, RunRecord


def chart_of(page: RunPage) -> Chart:
    (chart,) = document_of(page).charts
    return chart


def points(series: ChartLine) -> dict[int, int]:
    return {round(x): round(estimate.median) for x, estimate in series.points}


def test_a_task_has_a_line_for_each_backend_the_ceiling_and_the_ideal(page: RunPage) -> None:
    chart = chart_of(page)
    assert {series.name: series.role for series in chart.series} == {
        "for-loop": "measured",
        "gym-async": "measured",
        "envpool-sync": "measured",
        "mine.adapters:Fast[mode=a|b]": "measured",
        "ceiling": "bound",
        "ideal": "ideal",
    }
    assert points(chart.series[2]) == {1: 10_003, 2: 14_403}


def test_the_ideal_gains_by_workers_that_have_a_cpu(page: RunPage, sweep: Run) -> None:
    loop = points(chart_of(page).series[0])[1]
    assert points(chart_of(page).series[-1]) == pytest.approx({1: loop, 2: 2 * loop, 4: 2 * loop}, abs=1)
    there = chart_of(RunPage.of([("a.jsonl", Run(on_hosts(sweep.header, 2, 1), sweep.cells))]))
    loop = points(there.series[0])[1]
    assert points(there.series[-1]) == pytest.approx({1: loop, 3: 3 * loop, 4: 3 * loop}, abs=2)
    assert there.marks == ((3.0, "CPUs end"),)


def test_a_chart_has_two_cells_at_least_and_says_who_wins_on_which_machine() -> None:
    cells = (make_cell("for-loop", 1, (900,) * 4), make_cell("gym-sync", 1, (1900,) * 4))
    assert document_of(page_of(*cells[:1])).charts == ()
    chart = chart_of(page_of(*cells))
    assert chart.title == "Pong on Test, 2 CPUs: frames/s"
    loop, wins = chart.series[:2]
    assert (loop.winner, wins.winner) == (None, 1.0)


def swept(header: RunRecord, *workers: int, forecast: int | None = None) -> RunPage:
    """Return a run of a backend of one thread, one that scales, and one that was measured with few workers."""
    rates = {count: 5000.0 * count for count in workers}
    cells = [*sweep_of(dict.fromkeys(workers, 5000.0), "gym-sync", processes=1), *sweep_of(rates, "shm-async")]
    cells += sweep_of({1: 3000.0, 2: 6000.0}, "mine:<b>|Few")
    return RunPage.of([("a.jsonl", Run(header, tuple(cells)))], View(forecast=forecast))


def test_marks_show_where_second_threads_and_the_end_of_cpus_begin() -> None:
    machine = header_of(4, threads=2)
    assert chart_of(swept(machine, 1, 2, 4, 8, 16)).marks == ((4.0, "second threads begin"), (8.0, "CPUs end"))
    assert chart_of(swept(machine, 1, 2, 4)).marks == ()


MACHINE = header_of(8, threads=2)


def predicted(header: RunRecord, workers: int) -> Table:
    return document_of(swept(header, 1, 2, 4, 8, forecast=workers)).tables[-1]


def test_a_table_has_predictions_with_a_band_or_why_there_is_none() -> None:
    table = predicted(MACHINE, 16)
    rows = {row.label: [text.lines[0] for text in row.texts] for row in table.rows}
    assert rows == {
        "gym-sync": ["not predicted", "-"],
        "shm-async": ["48,000", "34,400 to 56,400"],
        "mine:<b>|Few": ["not predicted", "-"],
    }
    assert table.notes[2:] == (
        "gym-sync: not predicted: its 8 workers do not all step at the same time",
        "mine:<b>|Few: not predicted: no undisturbed rate of 8 or more workers was measured",
    )


def test_report_predicts_on_demand_and_adds_nothing_to_the_data(vebench: Command) -> None:
    (section,) = swept(MACHINE, 1, 2, 4, 8).sections
    write_run(Path("a.jsonl"), section.run)
    title = "Predicted frames/s, not measured"
    assert title in vebench("report", "a.jsonl", "--forecast", "16", "-f", "markdown").out
    assert title not in vebench("report", "a.jsonl", "-f", "markdown").out
    data = [json.loads(vebench("report", "a.jsonl", "-f", "json", *more).out) for more in ((), ("--forecast", "16"))]
    assert data[0] == data[1]
