"""The figures of a run: the same numbers as its tables, as lines over workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.pages import document_of, page_of
from support.records import make_cell

from vebench.reports.chart import Chart, Mark, Series

if TYPE_CHECKING:
    from vebench.reports.pages.run import RunPage


def chart_of(page: RunPage, kind: str) -> Chart:
    (chart,) = (chart for chart in document_of(page).charts if chart.kind == kind)
    return chart


def points(series: Series) -> dict[int, int]:
    return {round(x): round(estimate.median) for x, estimate in series.points}


def test_a_task_is_drawn_with_a_line_for_each_backend_the_ceiling_and_the_ideal_apart(page: RunPage) -> None:
    chart = chart_of(page, "scaling")
    assert {series.name: series.role for series in chart.series} == {
        "for-loop": "measured",
        "gym-async": "measured",
        "envpool-sync": "measured",
        "mine.adapters:Fast[mode=a|b]": "measured",
        "ceiling": "bound",
        "ideal": "ideal",
    }
    assert points(chart.series[2]) == {1: 10_002, 2: 14_402}


def test_the_ideal_gains_by_workers_that_have_a_cpu_and_by_no_others(page: RunPage) -> None:
    ideal = chart_of(page, "scaling").series[-1]
    loop = points(chart_of(page, "scaling").series[0])[1]
    assert points(ideal) == {1: loop, 2: 2 * loop, 4: 2 * loop}


def test_a_mark_shows_where_workers_begin_to_share_cpus(page: RunPage) -> None:
    assert chart_of(page, "scaling").marks == (Mark(2.0, "CPUs end"),)


def test_a_run_of_one_number_of_workers_has_no_curve_to_draw() -> None:
    cells = (make_cell("for-loop", 1, (900,) * 4), make_cell("gym-sync", 1, (900,) * 4))
    assert document_of(page_of(*cells)).charts == ()


def test_a_cell_of_other_work_is_no_point() -> None:
    cells = [make_cell("for-loop", workers, (900,) * 4) for workers in (1, 2)]
    other = [make_cell("gym-sync", workers, (9000,) * 4, verdict="different") for workers in (1, 2)]
    assert points(chart_of(page_of(*cells, *other), "scaling").series[1]) == {}
