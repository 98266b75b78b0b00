"""Every format of a run's page: each cell's rate is in it, and what it writes of a real run is as it was approved.

``pytest tests/reports/formats --renew`` writes the approved texts anew: look at their diff before you commit them.
"""

import csv
import html
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pages import on_terminal, page_of
from support.records import make_cell, make_header, on_machine

from vebench.analysis.cell import CellSummary
from vebench.reports import figures, plots
from vebench.reports.document import View
from vebench.reports.formats.registry import FORMATS, TERMINAL, Format
from vebench.reports.pages.run import RunPage
from vebench.results import store
from vebench.results.records import CellRecord, Run

Shows = Callable[[str, CellSummary], bool]


pytestmark = [pytest.mark.usefixtures("each_figure_once"), pytest.mark.xdist_group("figures")]
SNAPSHOTS = Path(__file__).parent / "snapshots"
WIDE = 400  # columns: no table is split
# Formats whose files are pictures, which differ from one version of the library that draws them to the next.
PICTURES = ("svg", "png", "pdf")
TEXTS = [form for form in FORMATS if "run" in form.kinds and form.name not in PICTURES]
READ = [form for form in TEXTS if form.name in ("terminal", "markdown", "html", "latex")]
# What of a page in HTML is no text: pictures, and what they and the page look like.
DRAWN = re.compile(r"<(svg|style|script)\b.*?</\1>", re.DOTALL)
NONCE = re.compile(r"(?<='nonce-)[^']*")  # it follows from all of them
LAYOUT = str.maketrans(dict.fromkeys("|*&{}\\", " "))
FLOAT = re.compile(r"\d+\.\d{7,}(?:e[+-]?\d+)?")  # Python 3.12 adds floats more exactly than 3.11
POINT = re.compile(r"<title>(.*?)</title>")  # what a figure shows where somebody points at it
BACKENDS = ("for-loop", "gym-async", "shm-sync", "mine.adapters:Fast")


def written(form: Format, page: RunPage, width: int = WIDE) -> str:
    """Return what a format makes of a page, on a terminal of this width if it is for one."""
    rendered = form.render(page)
    if form is TERMINAL:
        return on_terminal(page, width)
    assert isinstance(rendered, str), f"if {form.name} is a picture, name it above"
    return rendered


def median_of(cell: CellSummary) -> float:
    return cell.frames_per_second.median


def rows_of(text: str, label: str) -> Iterator[str]:
    """Yield the rows of tables that begin with this backend, each with the lines that belong to it."""
    row = None
    for line in [*text.translate(LAYOUT).splitlines(), ""]:
        begins = next((name for name in BACKENDS if line.split()[:1] == [name]), None)
        if row is not None and (begins or not line.strip()):
            yield row
            row = None
        if begins == label:
            row = f"{line} "
        elif row is not None:
            row += f" {line} "


def in_row(text: str, cell: CellSummary) -> bool:
    return any(f" {figures.number(median_of(cell))} " in row for row in rows_of(text, cell.label))


def in_json(text: str, cell: CellSummary) -> bool:
    return any(
        (entry["backend"], entry["workers"], entry["frames_per_second"]["median"])
        == (cell.label, cell.workers, median_of(cell))
        for entry in json.loads(text)
    )


def in_csv(text: str, cell: CellSummary) -> bool:
    return any(
        (line["backend"], int(line["workers"]), float(line["frames_per_second"]))
        == (cell.label, cell.workers, median_of(cell))
        for line in csv.DictReader(io.StringIO(text))
    )


def name_of(cell: CellSummary) -> str:
    return f"{cell.env} / {cell.label} / {cell.key.size}"


def in_github(text: str, cell: CellSummary) -> bool:
    return {entry["name"]: entry["value"] for entry in json.loads(text)}[name_of(cell)] == median_of(cell)


def in_bmf(text: str, cell: CellSummary) -> bool:
    return bool(json.loads(text)[name_of(cell)]["throughput"]["value"] == median_of(cell))


def in_html(text: str, cell: CellSummary) -> bool:
    """Return whether a row of a table has both the backend's name and the rate."""
    rows = (html.unescape(re.sub(r"<[^>]*>", " ", row)) for row in DRAWN.sub("", text).split("<tr")[1:])
    return any({cell.label, figures.number(median_of(cell))} <= set(row.split()) for row in rows)


# How a format shows a cell's rate. A new format has to be here.
SHOWS: dict[str, Shows] = {
    "terminal": in_row,
    "markdown": in_row,
    "json": in_json,
    "csv": in_csv,
    "github": in_github,
    "bmf": in_bmf,
    "html": in_html,
    "latex": in_row,
}


def cells() -> st.SearchStrategy[tuple[CellRecord, ...]]:
    """Return small runs: a few backends with a few sizes, each with two processes of two windows."""
    levels = st.integers(2, 10**7)
    places = st.tuples(st.sampled_from(BACKENDS), st.sampled_from((1, 2, 3, 16)))
    return st.dictionaries(places, st.tuples(levels, levels), min_size=1, max_size=6).map(
        lambda rates: tuple(records(rates))
    )


def records(rates: dict[tuple[str, int], tuple[int, int]]) -> Iterator[CellRecord]:
    for (backend, workers), levels in rates.items():
        for repeat, steps in enumerate(levels):
            yield make_cell(backend, workers, (steps, steps), repeat=repeat)


@pytest.mark.parametrize("form", TEXTS, ids=[form.name for form in TEXTS])
@settings(max_examples=6)
@given(records=cells())
def test_every_format_has_the_rate_of_every_cell(form: Format, records: tuple[CellRecord, ...]) -> None:
    page = page_of(*records)
    text = written(form, page)
    (section,) = page.sections
    assert len(section.cells) == len({record.key.without_repeat for record in records})
    assert [cell.key for cell in section.cells if not SHOWS[form.name](text, cell)] == []


@pytest.mark.parametrize("form", TEXTS, ids=[form.name for form in TEXTS])
def test_a_format_writes_a_real_run_as_it_was_approved(form: Format, *, renew: bool) -> None:
    """The run is a real one, reduced to some of its cells."""
    page = RunPage.of([("pong.jsonl", store.read(SNAPSHOTS / "pong.jsonl"))])
    drawn = NONCE.sub("", DRAWN.sub(r"<\1/>", written(form, page, 80)))
    text = FLOAT.sub(lambda found: f"{float(found[0]):.12g}", "\n".join(line.rstrip() for line in drawn.split("\n")))
    approved = SNAPSHOTS / f"pong.{form.name}.txt"
    if renew:
        approved.write_text(text, encoding="utf-8")
    assert text.splitlines() == approved.read_text(encoding="utf-8").splitlines()


def test_the_points_of_a_figure_are_as_they_were_approved(*, renew: bool) -> None:
    page = RunPage.of([("pong.jsonl", store.read(SNAPSHOTS / "pong.jsonl"))], View(every_finding=True))
    (document,) = page.documents
    text = "\n".join(POINT.findall(plots.svg(document.charts)))
    approved = SNAPSHOTS / "pong.svg.txt"
    if renew:
        approved.write_text(text, encoding="utf-8")
    assert text.splitlines() == approved.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("form", READ, ids=[form.name for form in READ])
def test_what_differs_between_runs_comes_before_what_it_makes_of_their_rates(form: Format) -> None:
    one = page_of(make_cell("for-loop", 1, (900, 910)), make_cell("for-loop", 2, (900, 910))).sections[0].run
    other = Run(on_machine(one.header, cpu_model="Another 9000"), one.cells)
    text = DRAWN.sub("", written(form, RunPage.of([("a.jsonl", one), ("b.jsonl", other)])))
    assert text.index("Another 9000") < text.index("ALE/Pong-v5: B over A")


@pytest.mark.parametrize("name", ["markdown", "html", "latex"])
def test_no_folder_of_the_machine_is_in_what_others_read(name: str) -> None:
    (form,) = (form for form in READ if form.name == name)
    header = msgspec.structs.replace(make_header(), command="vebench run -e Pong -o /home/ada/a.jsonl", cells=30)
    rated = [make_cell("mine:/home/ada/secret.py", workers, (100, 101, 99, 100)) for workers in (1, 2)]
    failed = make_cell("mine", 4, status="failed", reason='File "/home/ada/mine.py", line 3: no /home/ada/x y')
    runs = [(f"/home/ada/my runs/{number}.jsonl", Run(header, (*rated, failed))) for number in ("one", "two")]
    for page in (RunPage.of(runs), RunPage.of(runs[:1])):
        text = written(form, page)
        assert "/home" not in text
        assert "mine:secret.py" in text
        assert name != "markdown" or "`vebench run -e Pong -o a.jsonl`" in text
