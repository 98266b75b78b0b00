"""The page of a run: every number with its interval, every cell accounted for."""

import csv
import io
import json
from dataclasses import replace

import msgspec
import pytest
from support.pages import document_of, on_terminal, page_of, table_of
from support.records import make_cell, make_header

from vebench.analysis.statistics import Estimate
from vebench.backends.interface import OwnClasses
from vebench.backends.registry import AHEAD
from vebench.child.answers import CellProof, Timed, Window
from vebench.reports import columns
from vebench.reports.document import Document, View
from vebench.reports.formats import data, markdown
from vebench.reports.run import RunPage
from vebench.results.records import Run

ALL = View(every_finding=True)


@pytest.fixture
def everything(sweep: Run) -> RunPage:
    """Return the page of a run with every outcome that a cell can have, with nothing left out."""
    return RunPage.of([("pong.jsonl", sweep)], ALL)


def test_rows_are_in_the_order_of_the_registry_with_references_last(everything: RunPage) -> None:
    table = table_of(everything)
    assert table.columns == ("1 worker", "2 workers", "4 workers !")
    assert "! more workers than their 2 CPUs: they only enlarge batches" in table.notes
    assert [row.label for row in table.rows] == [
        "for-loop", "gym-async", "envpool-sync", "mine.adapters:Fast[mode=a|b]", "ceiling", "null",
    ]  # fmt: skip
    assert [row.reference_row for row in table.rows] == [False, False, False, False, True, True]


def test_no_cell_is_blank(everything: RunPage) -> None:
    table = table_of(everything)
    places = ((row.label, zip("124", row.texts, strict=True)) for row in table.rows)
    texts = {(label, column): text.lines for label, row in places for column, text in row}
    assert all(line for lines in texts.values() for line in lines)
    assert texts["gym-async", "4"] == ("failed",)
    assert texts["envpool-sync", "4"] == ("skipped",)
    assert texts["null", "4"] == ("not run",)


def test_without_the_reference_one_note_says_that_there_are_no_speedups() -> None:
    table = table_of(page_of(make_cell("for-loop", 2, (900,) * 4), make_cell("gym-sync", 1, (900,) * 4)))
    assert table.notes[0] == "no speedups: for-loop with one worker has no rate"
    assert [text.lines[1:] for text in table.rows[1].texts if text.tone != "missing"] == [()]


def test_a_place_for_which_no_cell_was_asked_is_marked_as_such() -> None:
    cells = (make_cell("for-loop", 1, (900,) * 4), make_cell("gym-sync", 2, (900,) * 4))
    header = make_header(workers=[2, 4], backends=[{"name": "gym-sync"}, {"name": "shm-sync"}], base=True)
    table = table_of(RunPage.of([("a", Run(header, (*cells, make_cell("shm-sync", 4, (900,) * 4))))]))
    assert {row.label: [text.lines[0] for text in row.texts] for row in table.rows} == {
        "for-loop": ["3,600 ±11%", "-", "-"],
        "gym-sync": ["-", "3,600 ±11%", "not run"],
        "shm-sync": ["-", "not run", "3,600 ±11%"],
    }


def swept(*sizes: tuple[int, int]) -> RunPage:
    """Return the page of a run of two backends at these numbers of workers and of environments per worker."""
    return page_of(
        *(
            make_cell(backend, workers, (speed * workers,) * 4, envs_per_worker=envs, differences=("rewards are odd",))
            for backend, speed in (("for-loop", 500), ("gym-sync", 900))
            for workers, envs in sizes
        )
    )


def test_workers_and_environments_swept_together_are_several_tables() -> None:
    first, second = document_of(swept((1, 1), (2, 1), (4, 1), (1, 4), (2, 4))).tables
    assert [table.title for table in (first, second)] == [
        "ALE/Pong-v5, 1 environment per worker: frames/s (4 frames per step)",
        "ALE/Pong-v5, 4 environments per worker: frames/s (4 frames per step)",
    ]
    assert first.columns == ("1 worker", "2 workers", "4 workers !")
    assert second.columns == ("1 worker x 4 envs", "2 workers x 4 envs")
    best = [text.tone for table in (first, second) for row in table.rows for text in row.texts].count("best")
    assert best == 1
    # What holds for the task is said once, below the last table.
    assert (first.notes, first.details) == ((), ())
    assert second.notes == (
        "! more workers than their 2 CPUs: they only enlarge batches",
        "Same work: identical; gym-sync: identical (before)",
    )
    assert second.details == ("for-loop, gym-sync differ from for-loop: rewards are odd",)


def test_compared_rows_are_counted_but_not_before_any_comparison() -> None:
    def notes(*proofs: CellProof) -> list[str]:
        cells = [make_cell("gym-sync", workers, (900,) * 4, proof=proof) for workers, proof in enumerate(proofs, 1)]
        return [note for note in table_of(page_of(*cells)).notes if "compared" in note]

    none, some = CellProof("unverified", reason="was not started"), CellProof("identical", rows=40)
    assert notes(none, none) == []
    assert notes(some, none) == ["40 rows of 1 of 2 cells compared, none different"]


UNEVEN = Timed(100, 10, 10, 5, 100, ends=9, mean_ns=20, idle_ns=10, step_ns=(10,), lengths=(10,))


@pytest.mark.parametrize("reset_ns", [100, 1])
def test_resets_that_cost_much_have_a_note(reset_ns: int) -> None:
    timed = replace(UNEVEN, reset_ns=(reset_ns,))
    cells = make_cell("for-loop", 1, (900,) * 4, timed=timed), make_cell("shm-async", 2, (900,) * 4)
    table = table_of(page_of(*cells))
    (times,) = table.details
    assert f"{reset_ns / (100 + reset_ns):.0%}" in times
    assert [AHEAD in note for note in table.notes if "Predicted" in note] == ([True] if reset_ns == 100 else [])


def test_the_null_backend_shows_the_cost_of_the_loop_to_those_who_want_all(everything: RunPage, page: RunPage) -> None:
    table = table_of(everything)
    assert table.rows[-1].texts[0].lines == ("0.40 µs ±11%", "a batch")
    assert "null" not in {row.label for row in table_of(page).rows}


def test_a_rate_that_cannot_be_is_not_called_the_best() -> None:
    cells = (
        make_cell("for-loop", 1, (100,) * 4),
        make_cell("gym-sync", 1, (80,) * 4),
        make_cell("shm-sync", 1, (900,) * 4),
        make_cell("ceiling", 1, (500,) * 4),
    )
    table = table_of(page_of(*cells))
    assert [row.texts[0].tone for row in table.rows] == ["best", "plain", "struck", "reference_row"]
    assert table.rows[2].texts[0].lines == ("3,600 ±11%", "above ceiling")


def test_classes_of_their_own_are_among_the_known_differences() -> None:
    for own, words in (
        (OwnClasses("games compiled"), "own classes for this task, games compiled"),
        (OwnClasses(refused="gymnasium is newer"), "Gymnasium's class: gymnasium is newer"),
    ):
        cell = make_cell("fast-sync", 1, (2000,) * 4, own_classes=own, differences=("no infos",))
        begin = "fast-sync differs from for-loop"
        assert table_of(page_of(cell)).details == (f"{begin}: {words}", f"{begin}: no infos")


def test_several_files_are_sections_in_the_order_given(sweep: Run, wide: RunPage) -> None:
    both = RunPage.of([("b.jsonl", sweep), ("a.jsonl", wide.sections[0].run)])
    assert [document.file for document in both.documents[-2:]] == ["b.jsonl", "a.jsonl"]
    assert [cell["file"] for cell in json.loads(data.json_of(both))] == ["b.jsonl"] * 14 + ["a.jsonl"] * 18
    assert len(data.csv_of(both).splitlines()) == 1 + 14 + 18


def test_a_run_without_a_cell_is_rendered() -> None:
    empty = page_of()
    assert "No cell has been measured yet." in on_terminal(empty, 80)
    assert "No cell has been measured yet." in markdown.markdown_text(empty)
    assert data.json_of(empty) == "[]\n"
    assert list(csv.DictReader(io.StringIO(data.csv_of(empty)))) == []
    assert data.csv_of(empty).startswith("file,env,backend,workers,")


def test_an_unusable_run_says_so_first_and_recommends_nothing() -> None:
    taken = (Window(10**9, 1000, 0, others_ns=5 * 10**8),) * 4
    disturbed = (make_cell(name, 1, windows=taken) for name in ("gym-sync", "null"))
    cells = (make_cell("for-loop", 1, (900,) * 4), *disturbed)
    page = page_of(*cells)
    notice = "unusable: other processes disturbed 2 of 3 cells; measure on an idle machine"
    document = document_of(page)
    assert (document.notice, document.best) == (notice, "")
    assert "best" not in {text.tone for row in table_of(page).rows for text in row.texts}
    assert on_terminal(page, 80).splitlines()[:2] == ["Pong on Test, 2 CPUs", notice]
    assert (
        f"## Pong on Test, 2 CPUs\n\n**{notice}**\n\n**No winner: this run is unusable.** Measure on an idle machine."
        in markdown.markdown_text(page)
    )
    assert on_terminal(page, 80).count("unusable") == 2  # the notice and the answer, and no finding
    assert document_of(page_of(cells[0])).notice == ""


def of_host(**host: object) -> Document:
    """Return the document of a small run on a machine that is so."""
    header = msgspec.structs.replace(make_header(), host=msgspec.structs.replace(make_header().host, **host))
    run = Run(header, (make_cell("for-loop", 1, (2300, 2310, 2305, 2290)),))
    return document_of(RunPage.of([("pong.jsonl", run)]))


def test_what_a_whole_run_was_measured_under_is_one_line() -> None:
    document = of_host(quota_cpus=0.5, quota_source="/sys/fs/cgroup/cpu.max", virtual=True, pinning=False)
    words = "virtual machine; a quota of 0.5 CPUs; cells not held to CPUs of their own"
    assert dict(document.facts)["condition"] == words
    assert document.remarks == ()
    assert "condition" not in dict(of_host().facts)


def test_findings_have_the_gravest_first_and_notes_only_for_who_wants_all(page: RunPage, everything: RunPage) -> None:
    few, every = document_of(page), document_of(everything)
    assert [finding.label for finding in few.remarks] == ["failed", "imprecise"]
    notes = ["slower", "oversubscribed", "skipped"]
    assert list(dict.fromkeys(finding.label for finding in every.remarks)) == ["failed", "imprecise", *notes]
    assert (bool(few.all_notes), bool(every.all_notes)) == (True, False)


def test_a_column_that_was_asked_for_is_a_table_of_the_same_layout(sweep: Run) -> None:
    view = View(columns=("efficiency", "peak_rss_bytes", "startup_seconds", "verdict", "oversubscribed", "findings"))
    rates, *others = document_of(RunPage.of([("a.jsonl", sweep)], view)).tables
    assert [table.title for table in others] == [f"ALE/Pong-v5: {name}" for name in view.columns]
    efficiency, memory, startup, verdict, crowded, findings = others
    for table in others:
        assert [row.label for row in table.rows] == [row.label for row in rates.rows]
        assert (table.columns, table.group) == (rates.columns, rates.group)
    assert efficiency.notes == ("efficiency: speedup over the number of CPUs owned (ratio)",)
    pool = [table.rows[2].texts[1].lines[0] for table in others]
    assert pool == ["0.78 ±5.7%", "100 MiB", "0.50 s", "identical", "no", "-"]
    value = efficiency.rows[2].texts[1].value
    assert isinstance(value, Estimate)
    assert value.median == pytest.approx(14403 / 9209.5 / 2, rel=1e-4)
    assert crowded.rows[0].texts[2].lines == ("yes",)
    assert findings.rows[0].texts[2].lines == ("oversubscribed",)
    assert [row.texts[0].lines[0] for row in memory.rows if row.label == "ceiling"] == ["100 MiB"]
    assert [row.texts[0].lines[0] for row in verdict.rows if row.label == "ceiling"] == ["-"]
    assert [text.lines for text in startup.rows[3].texts] == [("not run",), ("0.50 s",), ("not run",)]


def test_where_the_time_of_a_run_went_is_one_line_if_it_is_known_of_each_cell() -> None:
    cells = [
        replace(make_cell(name, windows=(Window(6 * 10**9, 1000, 0),)), startup_ns=10**9, warmup_ns=10**9, took_ns=took)
        for name, took in (("for-loop", 10 * 10**9), ("gym-sync", 9 * 10**9))
    ]
    proven = replace(cells[1], proof=CellProof("identical", seconds=1.0))
    words = "20 s"
    assert dict(document_of(page_of(cells[0], proven)).facts)["time"] == words
    assert "time" not in dict(document_of(page_of(cells[0], replace(proven, took_ns=None))).facts)


def test_the_table_of_all_cells_has_every_column_that_is_not_empty(everything: RunPage) -> None:
    cells = everything.sections[0].cells
    table = columns.all_cells(cells)
    lines = {head: [row.texts[at].lines[0] for row in table.rows] for at, head in enumerate(table.columns)}
    ceiling = [cell.label for cell in cells].index("ceiling")
    heads = {column.head for column in columns.COLUMNS if column.head} - {"rows compared"}
    assert heads == lines.keys() - {"workers", "envs per worker"}
    assert (lines["speedup"][0], lines["efficiency"][0]) == ("1.00x", "1.00")
    assert [lines[head][ceiling] for head in ("speedup", "of ceiling", "memory")] == ["-", "-", "100 MiB"]
