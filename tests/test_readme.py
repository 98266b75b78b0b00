"""What the documents tell users to type, to write and to click works."""

import json
import re
import shlex
import shutil
from pathlib import Path
from textwrap import indent
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from support.commands import ONE_PASS, Command, registered
from support.fakes import fake_world
from support.in_this_process import world_here

from vebench.plan import grammar
from vebench.plan.spec import TOLERANCE
from vebench.reports.columns import column_names
from vebench.results import store

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = (README, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")))
GENERATED = {f"reference/{name}.md" for name in ("commands", "findings", "backends", "columns", "interface")}
EXAMPLES = ROOT / "docs" / "examples"
ROVER = EXAMPLES / "rover.py"
CHARTED = ROOT / "docs" / "images" / "pong.jsonl"
SCRIPTS = (*EXAMPLES.glob("*.py"), *(ROOT / "tools").glob("*.py"), ROOT / "vebench" / "pytest_plugin.py")
COMMAND = re.compile(r"^ {4}vebench (.+)$|\| `vebench ([^`]+)` \|", re.MULTILINE)  # in a block, or alone in a table
IN_TURN = re.compile(r"action/compare\.sh \S+ \S+ \S+\s+(--.+)")
LINK = re.compile(r"\]\(([^)#\s]*)#?([^)\s]*)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
SPAN = re.compile(r"`([^`\n]+)`")
OPTION = re.compile(r"(?<!\S)--[a-z][a-z-]+")
FILE = re.compile(r"[\w./-]+/[\w-]+\.(?:py|c|json|md|yml)")
WIDEST, WIDEST_CELL, LONGEST_README, MOST_WORDS = 100, 160, 130, 1200


TABLE = re.findall(r"^\| .* \| `vebench ([^`]+)` \|", README.read_text(encoding="utf-8"), re.MULTILINE)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def commands_of(page: Path) -> list[str]:
    text = re.sub(r"(?s)```bash\n(.*?)```", lambda block: indent(block[1], " " * 4), text_of(page))
    return [one or other for one, other in COMMAND.findall(text.replace("\\\n", " "))]


def commands() -> list[str]:
    found = [line for page in PAGES for line in commands_of(page)]
    pages = (EXAMPLES / "gitlab.yml", ROOT / "docs" / "guides" / "ci.md")
    found += [f"compare base head {plan}" for page in pages for plan in IN_TURN.findall(text_of(page))]
    return [*dict.fromkeys(found)]


@pytest.mark.parametrize("line", commands())
def test_a_command_line_of_the_documents_can_be_typed(line: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("machines").write_text("\n".join("abcdefgh"))
    name, *words = shlex.split(line, comments=True)
    if name not in registered():
        name = f"{name} {words.pop(0)}"
    command = registered()[name]
    if "--help" in words or "tinypool" in words:  # a backend that the reader writes
        return
    context = command.make_context(name, words, obj=None)
    assert not context.args
    column_names("--columns", context.params.get("columns") or ())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_names_exists(page: Path) -> None:
    text = text_of(page)
    options = {name for command in registered().values() for option in command.params for name in option.opts}
    options |= {"--help"} | {name for script in SCRIPTS for name in re.findall(r"\"(--[a-z-]+)\"", text_of(script))}
    ours = ("vebench ",) if page.stem in ("faq", "other-tools") else ("--", "vebench ")
    spans = [span for span in SPAN.findall(text) if span.startswith(ours)]
    assert {option for span in spans for option in OPTION.findall(span)} <= options
    column_names("--columns", re.findall(r"--columns ([a-z_,]+)", text))
    files = [span for span in SPAN.findall(text) if FILE.fullmatch(span) and not span.startswith(".vebench/")]
    folders = (ROOT, ROOT / "vebench", ROOT / "reports", ROOT / "docs")
    assert [file for file in files if not any((folder / file).exists() for folder in folders)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(text_of(page)):
        if "://" not in target:
            there = page.parent / target if target else page
            assert there.exists(), target
            assert not anchor or anchor in {
                re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text_of(there))
            }, f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_narrow_and_short(page: Path) -> None:
    text, folder = text_of(page), page.parent.name
    lines = text.splitlines()
    assert [line for line in lines if len(line) > WIDEST and not line.startswith("|")] == []
    assert page != README or len(lines) <= LONGEST_README
    assert (folder not in ("guides", "concepts") and page.stem != "start") or len(text.split()) <= MOST_WORDS
    if folder != "evidence" and f"{folder}/{page.name}" not in GENERATED:
        cells = [cell for line in lines if line.startswith("|") for cell in re.split(r"(?<!\\)\|", line)]
        assert [cell for cell in cells if len(cell.strip()) > WIDEST_CELL] == []


def test_its_commands_work_as_they_stand_in_a_folder_that_has_nothing_else(vebench: Command, tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", text_of(README), re.DOTALL)
    assert block in text_of(ROVER)
    shutil.copy(ROVER, tmp_path)
    lines = [line for line in commands_of(README) if "rover:" in line]
    look, compare, _, measure = (shlex.split(line, comments=True) for line in lines)
    assert vebench(*look).status == 0
    brief = (*ONE_PASS[:-1], "full", "--duration", "0.02", "--warmup", "0.01", "--windows", "2", "-q")
    compared = vebench(*compare, "--steps", "20", "-f", "json", world=world_here(layouts=1))
    assert {each["verdict"] for each in json.loads(compared.out) if not each["reason"]} == {"identical"}
    assert vebench(*measure, *brief, world=world_here(layouts=1)).status == 0
    assert vebench("report", "-o", "report.md").status == 0
    assert "rover:make_env[pixels=64,steps=500]" in text_of(tmp_path / "report.md")


@pytest.mark.parametrize("line", TABLE)
def test_a_command_of_the_readmes_table_works_after_its_first_run(vebench: Command, line: str) -> None:
    assert vebench("run", "Pong", "-o", "pong.jsonl", "-q", world=fake_world()).status == 0
    done = vebench(*line.split(), world=None if line.startswith("verify") else fake_world())
    assert done.status == ("-v4" in line), done  # two versions of Ant differ


def test_the_transcript_and_the_first_page_quote_a_run_by_todays_plan(
    vebench: Command, monkeypatch: Any, *, renew: bool
) -> None:
    assert vebench("run", "Pong", "-w", "1,2", "-o", "a.jsonl", "-q", world=fake_world()).status == 0
    assert store.read(CHARTED).header.spec == store.read(Path("a.jsonl")).header.spec
    monkeypatch.chdir(CHARTED.parent)
    monkeypatch.setenv("COLUMNS", "80")
    drawn, committed = vebench("report", CHARTED.name, "-f", "transcript").out, CHARTED.with_name("transcript.svg")
    if renew:
        committed.write_text(drawn, encoding="utf-8")
    assert drawn == text_of(committed)
    assert "prefers-color-scheme:dark" in drawn
    words = " ".join(" ".join(ET.fromstring(drawn).itertext()).split())
    assert "$ vebench run Pong -o pong.jsonl" in words
    printed = vebench("report", CHARTED.name).out.splitlines()
    blocks = re.findall(r"```text\n(.*?)```", text_of(ROOT / "docs" / "start.md"), re.DOTALL)
    assert [line for block in blocks for line in block.splitlines() if line not in printed] == []
    legend = re.findall(r"^\| `([^`]+)` \| (?!`)", text_of(README), re.MULTILINE)
    assert [mark for mark in legend if mark not in words] == []


def test_the_adapter_of_the_examples_does_the_loops_work(vebench: Command) -> None:
    done = vebench(
        "verify", "-e", "CartPole", "-b", "threads:Threads", "--steps", "99", "-f", "json", world=world_here()
    )
    assert [each["verdict"] for each in json.loads(done.out)] == ["identical"]


@pytest.mark.parametrize("place", ["action.yml", "vebench/pytest_plugin.py", "docs/guides/ci.md"])
def test_all_gates_have_the_same_tolerance_by_default(place: str) -> None:
    defaults = {one.absent for command in registered().values() for one in command.params if one.name == "tolerance"}
    assert defaults == {grammar.Tolerance(TOLERANCE)}
    pattern = r"default: (10%)$|tolerance: float \| str = (0\.1),|2 workers, (10%),"
    (found,) = re.findall(pattern, text_of(ROOT / place), re.MULTILINE)
    assert grammar.share().read("".join(found)) == TOLERANCE
