"""The page of a check: what a chart can be drawn from, and what is no finding."""

from dataclasses import replace

from support.pages import document_of, scaled, table_of
from support.records import make_cell, make_header

from vebench.analysis.cell import CellSummary
from vebench.analysis.comparison import compare_runs
from vebench.analysis.summary import summarise
from vebench.gates.check_page import CheckPage
from vebench.results.records import Run

STEPS = (1000, 1001, 999, 1000)
CELLS = summarise(Run(make_header(), (make_cell(steps=STEPS), make_cell("gym-sync", 2, STEPS, envs_per_worker=3))))


def page_of(candidate: tuple[CellSummary, ...]) -> CheckPage:
    """Return the page of a check of ``CELLS`` against ``candidate``."""
    return CheckPage("a.jsonl", "b.jsonl", compare_runs(CELLS, candidate, metric="fps", tolerance=0.05), (), 1)


def test_each_place_of_a_check_keeps_the_numbers_that_it_shows() -> None:
    one, several = table_of(page_of(CELLS)).rows
    assert [(row.texts[0].lines, row.texts[0].value) for row in (one, several)] == [(("1",), 1), (("2 x 3 envs",), 2)]
    assert all(text.value is not None for row in (one, several) for text in row.texts)


def test_reasons_of_verdicts_are_explanations_and_no_findings() -> None:
    halved = replace(CELLS[0], sample=scaled(CELLS[0].sample, 0.5))
    document = document_of(page_of((halved,)))
    assert [item.label for item in document.explanations] == ["machine", "missing"]
    assert document.findings == ()
    assert all(item.gravity is None for item in document.remarks)
