"""Pages on a terminal: within its width, and readable without colour."""

import io
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.pages import SIZES, on_terminal, page_of
from support.records import make_cell, make_header

from vebench.reports.console import show
from vebench.reports.document import View
from vebench.reports.formats import TERMINAL
from vebench.reports.run import RunPage
from vebench.results import store
from vebench.results.records import Run

REAL = Path(__file__).parents[3] / "docs" / "images" / "pong.jsonl"


@pytest.mark.parametrize("width", range(60, 260, 7))
def test_a_table_too_wide_is_split_and_loses_no_column(wide: RunPage, page: RunPage, width: int) -> None:
    text = on_terminal(wide, width)
    assert max(map(len, f"{text}\n{on_terminal(page, width)}".splitlines())) <= width
    assert [text.count(f" {size} worker") >= 1 for size in SIZES] == [True] * len(SIZES)
    assert len(re.findall(r"9,2\d\d ±11%", text)) == 2 * len(SIZES)
    assert len(re.findall(r"1\.00x", text)) == 2 * len(SIZES)


BACKENDS = ("for-loop", "gym-async", "shm-async", "envpool-sync", "envpool-async")


@pytest.fixture
def typical() -> RunPage:
    """Return the page of a run as people make it: 5 backends and the reference rows, with 1, 2 and 4 workers."""
    speeds = dict(zip(BACKENDS, (1, 2, 10, 14.9, 15.1), strict=True)) | {"ceiling": 30, "null": 3000}
    cells = [
        make_cell(
            name,
            size,
            tuple(round(rows * speed * (0.9 + 0.1 * min(size, 2))) for rows in (1234, 1240, 1230, 1235)),
            differences=() if name == "for-loop" else ("rewards are float32",),
        )
        for name, speed in speeds.items()
        for size in (1, 2, 4)
    ]
    return RunPage.of([("pong.jsonl", Run(make_header(workers=[1, 2, 4]), tuple(cells)))])


def test_a_run_leaves_its_table_and_answer_on_80x24(typical: RunPage) -> None:
    (answer,) = typical.documents[0].answers
    text = on_terminal(typical, 80)
    table = text[text.rindex("\nALE/Pong-v5: frames/s (4 frames per step)\nbackend ") :]
    labels = [line.split(" ")[0] for line in table.splitlines()[4:11]]
    assert labels == [*BACKENDS, "", "ceiling"]
    assert " ".join(table.split()).endswith(" ".join(answer.sentences))
    assert len(table.splitlines()) < 24
    code = "\n".join(answer.code)
    assert f"\n{code}\n\nIn each cell: " in text
    assert f"\n{code}\n" in on_terminal(typical, 50)


def test_further_tables_come_before_the_rates_each_with_its_notes(typical: RunPage) -> None:
    page = replace(typical, view=View(forecast=16, columns=("efficiency",), every_finding=True))
    (document,) = page.documents
    text = " ".join(on_terminal(page, 200).split())
    measured, *further = document.tables
    places = [text.index(title) for table in further for title in (table.title, *table.notes)]
    places += [text.index(words) for words in ("In each cell: ", measured.title, *measured.notes, *measured.details)]
    assert places == sorted(places)
    assert places[-1] < text.index(document.answers[0].sentences[0][:60])


@pytest.mark.parametrize(
    ("width", "everything", "spreads", "lines"),
    [(50, False, 17, 2), (60, False, 0, 1), (63, True, 17, 2), (80, True, 17, 1)],
)
def test_speedups_have_intervals_for_who_wants_all_or_where_they_need_their_own_line(
    width: int, spreads: int, lines: int, *, everything: bool
) -> None:
    text = on_terminal(RunPage.of([("a", store.read(REAL))], View(every_finding=everything)), width)
    table = text[text.rindex("\nbackend ") : text.rindex("\n\n")]
    assert len(re.findall(r"[\d.]+x ±\d", table)) == spreads
    assert bool(re.search(r"\nfor-loop [^x]+\n +1\.00x", table)) == (lines > 1)
    assert ("a batch" in table) == everything


@pytest.mark.parametrize(
    ("environment", "terminal", "colour"),
    [({}, True, True), ({"NO_COLOR": "1"}, True, False), ({"TERM": "dumb"}, True, False), ({}, False, False)],
)
def test_control_characters_are_for_terminals_that_want_them(
    page: RunPage, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], *, terminal: bool, colour: bool
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stdout", stream)
    show(page, TERMINAL)
    assert ("\x1b" in stream.getvalue()) == colour


def test_findings_come_before_the_table_with_what_they_mean_and_their_remedies(page: RunPage) -> None:
    text = on_terminal(page, 200)
    assert text.index("failed: ") < text.index("In each cell: ") < text.index("frames/s (4 frames per step)")
    assert (
        "fault failed: timed out after 300 s in recv | see log (ALE/Pong-v5: gym-async at 4 workers) -> see "
        "pong.jsonl.log for its output, if any; after fixing the problem, measure it again with: "
        "vebench run --resume pong.jsonl"
    ) in " ".join(text.split())
    assert "\nvebench run --resume pong.jsonl\n" in on_terminal(page, 40)


def test_a_remedy_of_several_findings_is_written_once() -> None:
    reasons = {"gym-sync": "boom", "gym-async": "bang"}
    cells = [make_cell(name, 1, status="failed", reason=reason) for name, reason in reasons.items()]
    lines = [line.strip() for line in on_terminal(page_of(*cells), 200).splitlines()]
    start = lines.index("fault  failed: boom (ALE/Pong-v5: gym-sync at 1 worker)")
    assert lines[start + 1].startswith("fault  failed: bang (ALE/Pong-v5: gym-async at 1 worker) -> see a.jsonl.log")


def test_file_names_are_whole_and_in_a_command_to_paste_quoted(sweep: Run) -> None:
    name = f"{'deep/' * 20}my;ls.jsonl"
    text = on_terminal(RunPage.of([(name, sweep)]), 80)
    assert re.search(rf"^file +{name}$", text, re.MULTILINE)
    assert f"vebench report --all '{name}'\n" in text
