"""Names and reasons that somebody chose to break a format, a terminal or a CI log, in every format of every page."""

import csv
import html
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

import html5lib
import msgspec
import pytest
from markdown_it import MarkdownIt
from rich.console import Console
from support.pages import scaled
from support.records import make_cell, make_header, make_repeated, make_runs

from vebench.analysis.comparison import compare_runs
from vebench.analysis.summary import summarise
from vebench.backends.environments.suites import OTHER
from vebench.backends.interface import Engine, Task
from vebench.child.answers import Mismatch, Proof
from vebench.equality.verify import VerifyPage
from vebench.gates.gate import CheckPage
from vebench.gates.history import history_of
from vebench.machine.host import place
from vebench.plan.cells import expand
from vebench.plan.grammar import BackendChoice
from vebench.plan.spec import RunSpec
from vebench.reports.console import save
from vebench.reports.document import Page, View
from vebench.reports.formats import FORMATS, Format, terminal
from vebench.reports.overview import plan_page
from vebench.reports.run import RunPage
from vebench.results.records import Run, TopologyRecord

pytestmark = [pytest.mark.usefixtures("each_figure_once"), pytest.mark.xdist_group("figures")]
# Each on its own would be a command, markup or an escape sequence somewhere. The first is a CSI in one character, the
# last turns the direction of text around; of the formulas one cannot be parsed.
PIECES = (
    *("<script>alert(1)</script>", "|", "::error::x", "\n::error file=a::y", "\r\n::warning::z", "##[error]w"),
    *("\x1b[31m", "\x1b]0;title\x07", "\x9b31m", "\x9d0;title\x9c", "\u202e", "\u2028", "$x^2$", "$\\frac{1$"),
    *("\\", "`tick`", "``` \n", "**bold**", "[link](http://x)", "&amp;", "%0A::error::v", '"', "'", "{{ 7 * 7 }}", "#"),
)
EVIL = "".join(PIECES)
EVIL_ENV, EVIL_BACKEND = f"ALE/{EVIL}-v5", f"evil{EVIL}:Class"
# A line that begins so is a command for GitHub's runner, wherever it comes from; it ignores blanks before it.
COMMAND = re.compile(r"^\s*::(error|warning|notice|debug|group|add-mask|set-output|stop-commands)\b", re.MULTILINE)
OLD_COMMAND = "##["
STYLE = re.compile(r"\x1b\[[0-9;]*m")  # what Rich writes to set colours
BINARY = (b"\x89PNG", b"%PDF")
# What is HTML of ours in Markdown.
OUR_HTML = {"<br>", "<details>", "</details>", "<span>", "</span>", "<!-- -->"}


def evil_run() -> Run:
    """Return a run in which all that a user, a library or a machine can name is hostile."""
    head = make_header(envs=[EVIL_ENV], workers=[1, 2], backends=[{"name": EVIL_BACKEND, "options": {"mode": EVIL}}])
    host = msgspec.structs.replace(
        head.host,
        cpu_model=EVIL,
        kernel=EVIL,
        system=EVIL,
        governor=EVIL,
        thp=EVIL,
        microcode=EVIL,
        python=f"3.11{EVIL}",
        topology=TopologyRecord(2, 1, {EVIL: "0-1"}, {EVIL: "0-1"}, (EVIL,), ("0-1",), ("0", "1")),
    )
    header = msgspec.structs.replace(
        head, host=host, packages={"numpy": EVIL, EVIL: "1.0"}, command=f"vebench run {EVIL}", started=EVIL
    )
    rates = {("for-loop", 1): 1000.0, ("for-loop", 2): 1100.0}
    said = {"env": EVIL_ENV, "verdict_reason": EVIL, "differences": (EVIL,), "engines": (Engine(*(EVIL,) * 5),)}
    third = [
        make_cell(EVIL_BACKEND, workers, (2000 + repeat, 2010), options={"mode": EVIL}, repeat=repeat, **said)
        for workers in (1, 2)
        for repeat in range(3)
    ]
    other = make_cell("gym-sync", 1, (900, 910), verdict="different", **said)
    unverified = make_cell("gym-sync", 2, (900, 910), verdict="unverified", **said)
    failed = make_cell("gym-async", 2, status="failed", reason=EVIL, **said)
    run = make_repeated(rates, header, env=EVIL_ENV)
    return Run(header, (*run.cells, *third, other, unverified, failed), (f"line 3: {EVIL}",))


def evil_pages() -> dict[str, Page]:
    """Return a page of every kind that shows something from outside, and runs in more ways than one."""
    run, name = evil_run(), f"{EVIL}.jsonl"
    elsewhere = Run(make_header(), (*make_repeated({("for-loop", 1): 500.0}, env=EVIL_ENV).cells, *run.cells[-3:]))
    cells = summarise(run, name)
    slower = [replace(cell, sample=scaled(cell.sample, 0.1)) for cell in cells]
    failing = [replace(cell, status="failed", faulty_repeats=1, reason=EVIL) for cell in cells]
    task = Task(EVIL_ENV, OTHER.name, 4)
    spec = RunSpec(("Pong",), (1, 2), (BackendChoice("for-loop"), BackendChoice("gym-sync")))
    plan = expand(spec, (task,), place("compact", frozenset({0, 1}), None), None)
    first = replace(plan.cells[0], backend=BackendChoice("for-loop", {"mode": EVIL}))
    skipped = replace(plan, cells=(first, *(replace(cell, skip=EVIL) for cell in plan.cells[1:])))
    proof = Proof(
        "different", rows=9, ends=1, mismatch=Mismatch(1, 7, EVIL, EVIL, EVIL, 0.5), fault=EVIL, reason=EVIL,
        allowed=(EVIL,), engines=(Engine(*(EVIL,) * 5),), frames_from=EVIL,
    )  # fmt: skip
    found, failures = (compare_runs(cells, other, metric="fps", tolerance=0.05) for other in (slower, failing))
    runs = [
        (f"{EVIL}{name}", Run(old.header, tuple(replace(cell, env=EVIL_ENV) for cell in old.cells)))
        for name, old in make_runs({(EVIL_BACKEND, 2): [100.0 + run % 3 - 20 * (run >= 8) for run in range(12)]})
    ]
    return {
        "run": RunPage.of([(name, run)], View(("startup_seconds", "verdict_reason"), every_finding=True)),
        "runs side by side": RunPage.of([(name, run), (f"b{name}", elsewhere)], View(every_finding=True)),
        "check": CheckPage(name, f"b{name}", found, (EVIL,), 1),
        "check of failures": CheckPage(name, f"b{name}", failures, (EVIL,), 1),
        "history": history_of(runs),
        "verify": VerifyPage(((first, proof),), 20, plan.spec),
        "plan": plan_page(skipped),
    }


PAGES = evil_pages()
# Pictures are slow to draw, and the page of two runs has all that the page of one has.
CASES = [
    (form, name)
    for form in FORMATS
    for name, page in PAGES.items()
    if page.kind in form.kinds and not (form.binary and name == "run")
]


class Written(NamedTuple):
    """A file that a format wrote: its name, its bytes, and its text, empty if it is a picture."""

    name: str
    data: bytes

    @property
    def text(self) -> str:
        return "" if self.data.startswith(BINARY) else self.data.decode()


def strange(text: str) -> set[str]:
    """Return the characters that a terminal could take for more than a letter, a sign or the end of a line."""
    return {character for character in text if character != "\n" and not character.isprintable()}


def acts(text: str) -> bool:
    """Return whether a terminal or the log of a CI service would act on a text."""
    return bool(strange(text)) or COMMAND.search(text) is not None or OLD_COMMAND in text


def strings(data: object) -> Iterator[str]:
    """Yield all texts in what was read from JSON, keys too."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield key
            yield from strings(value)
    elif isinstance(data, list):
        for value in data:
            yield from strings(value)
    elif isinstance(data, str):
        yield data


def check_json(text: str) -> None:
    assert any("<script>alert(1)</script>|" in found for found in strings(json.loads(text)))


def check_csv(text: str) -> None:
    lines = list(csv.reader(io.StringIO(text)))
    assert len(lines) > 1
    assert {len(line) for line in lines} == {len(lines[0])}


def check_xml(text: str) -> None:
    assert list(ET.fromstring(text).iter())
    assert "<script>alert" not in text


def check_html(text: str) -> None:
    """The standard calls nothing in it an error, and nothing in it acts but our script."""
    elements = [*html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(text).iter()]
    attributes = [(str(name), value) for element in elements for name, value in element.attrib.items()]
    assert [element.tag for element in elements].count("script") <= 1
    assert not [name for name, value in attributes if name.startswith("on") or value.startswith("http://x")]
    assert "<script>alert" not in text
    assert "{{ 7 * 7 }}" in html.unescape(text)


def check_markdown(text: str) -> None:
    """Each table has as many columns in every line, and nothing is markup but what we wrote."""
    tokens = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)
    inside = [child for token in tokens for child in token.children or ()]
    blocks = [line for token in tokens if token.type == "html_block" for line in token.content.splitlines() if line]
    assert {token.content for token in inside if token.type == "html_inline"} <= OUR_HTML
    assert {line for line in blocks if not line.startswith("<summary>")} <= OUR_HTML
    summaries = [re.sub("</?span>|<!-- -->", "", line) for line in blocks if "<summary>" in line]
    assert all(line.count("<") == 2 and line.endswith("</summary>") for line in summaries)
    assert [token for token in inside if token.type == "link_open"] == []
    assert {token.tag for token in tokens if token.type == "heading_open"} <= {"h1", "h2", "h3"}
    tables: list[list[str]] = [[]]
    for line in text.splitlines():
        tables[-1].append(line) if line.startswith("|") else tables.append([])
    counts = [{len(re.findall(r"(?<!\\)\|", line.replace("\\\\", ""))) for line in lines} for lines in tables if lines]
    assert counts
    assert all(len(columns) == 1 for columns in counts)


def check_latex(text: str) -> None:
    """No sign that LaTeX takes for a command is one that came from outside."""
    assert re.search(r"(?<!\\)\$x", text) is None
    assert "\\frac" not in text


WELL_FORMED = {
    "json": check_json,
    "github": check_json,
    "bmf": check_json,
    "csv": check_csv,
    "junit": check_xml,
    "svg": check_xml,
    "html": check_html,
    "markdown": check_markdown,
    "latex": check_latex,
}


@pytest.mark.parametrize(("form", "name"), CASES, ids=[f"{form.name}: {name}" for form, name in CASES])
def test_no_format_has_characters_that_act_and_all_are_well_formed(form: Format, name: str, tmp_path: Path) -> None:
    target = tmp_path / f"report{(form.suffixes or ('.txt',))[0]}"
    save(PAGES[name], form, target)
    for path in tmp_path.iterdir():
        written = Written(path.name, path.read_bytes())
        assert written.data
        assert written.name.isprintable()
        assert not acts(written.text)
    if form.name in WELL_FORMED:
        WELL_FORMED[form.name](target.read_text())


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("width", "colour"), [(40, None), (80, "truecolor")])
def test_a_terminal_gets_no_sequence_but_for_colours(name: str, width: int, colour: str | None) -> None:
    console = Console(file=io.StringIO(), width=width, force_terminal=colour is not None, color_system=colour)  # type: ignore[arg-type]
    console.print(terminal.on_terminal(PAGES[name]))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert (STYLE.search(shown) is not None) == (colour is not None)
    assert strange(STYLE.sub("", shown)) == set()
    assert COMMAND.search(STYLE.sub("", shown)) is None
