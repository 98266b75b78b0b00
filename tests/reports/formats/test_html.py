"""Pages as HTML: what is on them, that nothing on them acts, and what a browser makes of them."""

import re
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import html5lib
import pytest
from support.browser import ENTER, Browser
from support.commands import Command
from support.pages import make_pages, page_of
from support.records import make_cell, make_sweep, write_run

from vebench.reports.document import AnswerText
from vebench.reports.formats import html
from vebench.reports.run import RunPage

pytestmark = [pytest.mark.usefixtures("each_figure_once"), pytest.mark.xdist_group("figures")]


def parsed(text: str) -> ET.Element:
    """Return the page's tree. Raises html5lib's ParseError for whatever the standard calls an error."""
    root: ET.Element = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(text)
    return root


def words(element: ET.Element) -> str:
    """Return the text of an element on one line, without scripts and styles, also those in figures."""
    tag = str(element.tag).rpartition("}")[2]
    parts = [element.text or ""] if tag not in ("script", "style") else []
    parts += [part for child in element for part in (words(child), child.tail or "")]
    return " ".join(" ".join(parts).split())


@pytest.fixture(scope="module")
def of_sweep() -> RunPage:
    """Return the page of a run with every outcome that a cell can have."""
    return RunPage.of([("a.jsonl", make_sweep())])


@pytest.fixture(scope="module")
def answer(of_sweep: RunPage) -> AnswerText:
    """Return what that page has to say first."""
    (document,) = of_sweep.documents
    (found,) = document.answers
    assert found.code
    return found


@pytest.fixture(scope="module")
def text(of_sweep: RunPage) -> str:
    return html.html_page(of_sweep)


@pytest.fixture(scope="module")
def root(text: str) -> ET.Element:
    return parsed(text)


def test_a_page_needs_nothing_from_elsewhere(text: str, root: ET.Element) -> None:
    targets = [value for element in root.iter() for name, value in element.attrib.items() if name in ("src", "href")]
    assert [target for target in targets if not target.startswith(("#", "data:,"))] == []
    assert re.findall(r"url\((?!#)|@import|<img|<iframe|<object", text) == []


@pytest.mark.parametrize("kind", sorted(make_pages()))
def test_every_kind_of_page_is_html_without_an_error(kind: str) -> None:
    root = parsed(html.html_page(make_pages()[kind]))  # type: ignore[index]
    assert root.attrib["lang"] == "en"
    assert len([*root.iter("h1")]) == 1


def test_a_page_can_be_read_by_its_headings_and_its_tables() -> None:
    page = RunPage.of([("a.jsonl", make_sweep()), ("b.jsonl", make_sweep())])
    root = parsed(html.html_page(page))
    titles = ["2 runs side by side", *(f"{letter}: Pong on Test, 2 CPUs" for letter in "AB")]
    assert [words(head) for head in root.iter("h2")] == titles
    assert len([table for table in root.iter("table") if table.attrib.get("class") == "sortable"]) == 2
    levels = [int(element.tag[1]) for element in root.iter() if re.fullmatch("h[1-6]", str(element.tag))]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    assert len(ids) == len({*ids})
    for table in root.iter("table"):
        assert words(table).strip()
        assert table[0].tag == "caption"
        assert {head.attrib.get("scope") for head in table.iter("th")} == {"col", "row"}


def test_findings_are_ranked_and_notes_are_folded(root: ET.Element) -> None:
    lists = [element.attrib["class"] for element in root.iter("ul") if "findings" in element.attrib.get("class", "")]
    assert lists == ["findings fault", "findings warning", "findings note"]
    notes, cells = (words(one) for one in root.iter("details"))
    assert cells.startswith("All columns of 14 cells")
    assert "slower" in notes


@pytest.mark.parametrize("module", ["jinja2", "matplotlib"])
def test_without_a_package_one_line_says_what_to_install(
    vebench: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: str
) -> None:
    write_run(tmp_path / "a.jsonl", make_sweep())
    monkeypatch.setitem(sys.modules, module, None)
    result = vebench("report", "a.jsonl", "-o", "report.html")
    needs = f"vebench: -o report.html: needs {module} (in vebench's clone: pip install '.[report]')\n"
    assert (result.status, result.refusal) == (2, needs)
    assert not (tmp_path / "report.html").exists()
    assert vebench("history", ".", "-f", "html").status == (3 if module == "matplotlib" else 2)  # it has no figures


def show(browser: Browser, text: str, folder: Path) -> None:
    file = folder / "report.html"
    file.write_text(text, encoding="utf-8")
    browser.open(file)
    browser.script('for (const one of document.querySelectorAll("details")) one.open = true')


SORTED = """
const [column] = arguments;
const table = document.querySelector("table.sortable");
const head = [...table.tHead.rows[0].cells].find((cell) => cell.textContent === column);
const at = head.cellIndex;
return [head.ariaSort, [...table.tBodies[0].rows].map((row) => row.cells[at].dataset.value)];
"""
FOCUS = """
const [column] = arguments;
const heads = [...document.querySelectorAll("table.sortable thead th")];
heads.find((cell) => cell.textContent === column).querySelector("button").focus();
"""


def test_a_browser_sorts_the_table_by_keyboard_and_shows_the_verdict(
    browser: Browser, text: str, answer: AnswerText, tmp_path: Path
) -> None:
    show(browser, text, tmp_path)
    assert browser.script('return document.querySelector(".answer .lead").innerText') == answer.sentences[0]
    assert browser.script(SORTED, "frames/s")[0] is None
    browser.script(FOCUS, "frames/s")
    for direction, falling in (("descending", True), ("ascending", False)):
        browser.keys(ENTER)
        found, values = browser.script(SORTED, "frames/s")
        rates = [float(value) for value in values if value]
        assert found == direction
        assert rates == sorted(rates, reverse=falling)
        assert values == [*map(str, values[: len(rates)]), *[""] * (len(values) - len(rates))]  # what has none is last
        assert len(rates) == 11
    assert browser.script('return document.getElementById("status").textContent') == "Sorted by frames/s, ascending"


def test_nothing_hostile_acts_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    name = '<script>document.title=`acted`</script>|" onclick="x</pre></style>'
    cells = [make_cell(name, workers, (2300, 2310, 2900), env=name, differences=(name,)) for workers in (1, 2)]
    show(browser, html.html_page(page_of(*cells, file=name)), tmp_path)
    assert browser.script("return document.title") != "acted"
    inserted = "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"document.title=`acted`\">')"
    browser.script(inserted)  # the page's policy holds even for what would get past the escaping
    assert browser.script("return new Promise((done) => setTimeout(() => done(document.title), 50))") != "acted"
