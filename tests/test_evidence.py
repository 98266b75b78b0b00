"""``tools/evidence.py``: the pages of results are what the data says."""

import importlib.util
import io
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.places import TOOLS

FOLDER = TOOLS.parent / "docs" / "evidence"
SPEC = importlib.util.spec_from_file_location("evidence", TOOLS / "evidence.py")
assert SPEC is not None
assert SPEC.loader is not None
evidence = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(evidence)

NAMES = [*evidence.pages()]
SECTIONS = [section for name in evidence.read("index") for section in evidence.read(name)]


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the tool, with a page of one simulated section in an empty folder."""
    monkeypatch.setattr(evidence, "DATA", tmp_path / "data")
    monkeypatch.setattr(evidence, "this_machine", lambda: {"machine": "2 CPUs", "versions": "Python 3.14"})
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "index.json").write_text('{"races": ["Races", "Who is fast?"]}')
    told = {"title": "Snails", "question": "Are they?", "command": "`race`", "notes": ["Yes."]}
    when = {"date": "2020-01-01", "machine": "", "versions": ""}
    evidence.write("races", [told | when | {"columns": ["a", "b"], "rows": [["x", "1"]]}])
    return evidence


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_what_the_tool_renders(name: str) -> None:
    assert (FOLDER / f"{name}.md").read_text(encoding="utf-8") == evidence.pages()[name]


def test_there_is_no_other_page() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.md")) == sorted(NAMES)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section["title"])
def test_a_section_says_when_and_how_and_its_rows_are_full(section: dict[str, Any]) -> None:
    keys = {"title", "question", "date", "machine", "versions", "command", "columns", "rows", "notes"}
    assert keys <= section.keys() <= keys | {"verb"}
    assert re.fullmatch(r"20\d\d(-\d\d){0,2}", section["date"])
    assert section["title"]
    assert section["question"]
    assert {len(row) for row in section["rows"]} <= {len(section["columns"])}


def test_a_result_replaces_the_section_of_its_title_and_keeps_its_text(scratch: ModuleType) -> None:
    scratch.record("races", "Snails", ("a", "b"), [("y", 2)])
    scratch.record("races", "Hares", ("c",), [(3,)], question="And they?")
    snails, hares = scratch.read("races")
    assert (snails["rows"], snails["notes"], snails["machine"]) == ([["y", "2"]], ["Yes."], "")
    assert (hares["rows"], hares["question"], hares["machine"]) == ([["3"]], "And they?", "2 CPUs")
    page = (scratch.DATA.parent / "races.md").read_text()
    assert page == scratch.pages()["races"]
    assert "| y | 2 |" in page
    assert f"Simulated {snails['date']} by `race`." in page


def test_columns_of_numbers_are_aligned_to_the_right_except_the_first() -> None:
    rows = [("1", "±3 %", "fast", "-"), ("2", "0.9 (0.8 to 1.0)", "2 CPUs", "")]
    assert evidence.table("abcd", rows).splitlines()[1] == "| --- | ---: | --- | ---: |"


def test_tables_that_a_command_prints_can_be_filed(scratch: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = "first\n\n| a | b |\n| --- | ---: |\n| z | 4 |\n\n| c |\n| --- |\n| 5 |\nlast\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(printed))
    scratch.render("races", "Snails", "Hares")
    assert [section["rows"] for section in scratch.read("races")] == [[["z", "4"]], [["5"]]]
