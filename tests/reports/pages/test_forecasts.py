"""The table of what was predicted and not measured: a row for each backend, and what stands behind it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import Command
from support.pages import document_of
from support.records import on_hosts
from support.sweeps import header_of, sweep_of

from vebench.reports.document import Table, View
from vebench.reports.pages.run import RunPage
from vebench.results.records import Run, RunRecord
from vebench.results.store import RunWriter

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
        "gym-sync: not predicted: not all of its 2 workers work at the same time",
        "shm-async: assumed: a second thread adds 20% of a core",
        "mine:<b>|Few: not predicted: 2 numbers of workers measured: 4 are needed",
    )


def test_what_needs_no_prediction_is_said_even_of_curves_that_would_bear_none() -> None:
    for workers, reason in ((2, "2 workers were measured"), (17, "there are 16 CPUs to work on: workers beyond")):
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
