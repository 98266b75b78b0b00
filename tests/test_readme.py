"""What the documents tell users to type, to write and to click works."""

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

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
PAGES = (README, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md")))
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
WIDEST, LONGEST_README = 100, 150


TABLE = re.findall(r"^\| .* \| `vebench ([^`]+)` \|", README.read_text(encoding="utf-8"), re.MULTILINE)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def commands() -> list[str]:
    found = [one or other for page in PAGES for one, other in COMMAND.findall(text_of(page).replace("\\\n", " "))]
    pages = (EXAMPLES / "gitlab.yml", ROOT / "docs" / "ci.md")
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
    if "--help" in words:
        return
    context = command.make_context(name, words, obj=None)
    assert not context.args
    column_names("--columns", context.params.get("columns") or ())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_names_exists(page: Path) -> None:
    text = text_of(page)
    options = {name for command in registered().values() for option in command.params for name in option.opts}
    options |= {"--help"} | {name for script in SCRIPTS for name in re.findall(r"\"(--[a-z-]+)\"", text_of(script))}
    spans = [span for span in SPAN.findall(text) if span.startswith(("--", "vebench "))]
    assert {option for span in spans for option in OPTION.findall(span)} <= options
    column_names("--columns", re.findall(r"--columns ([a-z_,]+)", text))
    files = filter(FILE.fullmatch, SPAN.findall(text))
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
def test_a_page_is_narrow_and_the_readme_short(page: Path) -> None:
    lines = text_of(page).splitlines()
    assert [line for line in lines if len(line) > WIDEST and (page == README or not line.startswith("|"))] == []
    assert page != README or len(lines) <= LONGEST_README


def test_its_commands_work_as_they_stand_in_a_folder_that_has_nothing_else(vebench: Command, tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", text_of(README), re.DOTALL)
    assert block in text_of(ROVER)
    shutil.copy(ROVER, tmp_path)
    lines = [line for line in commands() if "rover:" in line]
    look, compare, _, measure = (shlex.split(line, comments=True) for line in lines)
    assert vebench(*look).status == 0
    brief = (*ONE_PASS[:-1], "full", "--duration", "0.02", "--warmup", "0.01", "--windows", "2", "-q")
    compared = vebench(*compare, "--steps", "20", "-f", "json", world=world_here(layouts=1))
    assert {each["verdict"] for each in json.loads(compared.out) if not each["reason"]} == {"identical"}
    assert vebench(*measure, *brief, world=world_here()).status == 0
    assert vebench("report", "-o", "report.md").status == 0
    assert "rover:make_env[pixels=64,steps=500]" in text_of(tmp_path / "report.md")


@pytest.mark.parametrize(
    "line", [line for line in TABLE if line.startswith(("list", "report", "history", "run", "bis"))]
)
def test_a_command_of_the_readmes_table_works_after_its_own_run(vebench: Command, line: str) -> None:
    assert vebench("run", "--env", "Pong", "--workers", "1..4", "-q", world=fake_world()).status == 0
    name, *words = line.split()
    done = vebench(name, *words, *(["--dry-run"] if name == "run" else []), world=fake_world())
    assert done.status == {"history": 3, "run -e Pong --hosts a,b": 2}.get(
        line, 0
    )  # six runs, and hosts that ssh reaches
    assert done.out or "ssh" in done.err


def test_the_readmes_chart_is_of_a_run_by_todays_plan(vebench: Command) -> None:
    assert vebench("run", "--env", "Pong", "--workers", "1..4", "-o", "a.jsonl", "-q", world=fake_world()).status == 0
    assert store.read(CHARTED).header.spec == store.read(Path("a.jsonl")).header.spec


def test_the_readmes_rates_are_those_of_its_chart(vebench: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    printed = [line.split() for line in vebench("report", CHARTED).out.splitlines()]
    shown = re.search(r"    backend +1 worker.*\n((?:    .*\n)+)", text_of(README))
    assert shown is not None
    assert [row for row in map(str.split, shown[1].splitlines()) if row not in printed] == []


def test_the_adapter_of_the_examples_does_the_loops_work(vebench: Command) -> None:
    done = vebench(
        "verify", "-e", "CartPole", "-b", "threads:Threads", "--steps", "99", "-f", "json", world=world_here()
    )
    assert [each["verdict"] for each in json.loads(done.out)] == ["identical"]


@pytest.mark.parametrize("place", ["action.yml", "vebench/pytest_plugin.py", "docs/ci.md"])
def test_all_gates_have_the_same_tolerance_by_default(place: str) -> None:
    defaults = {one.absent for command in registered().values() for one in command.params if one.name == "tolerance"}
    assert defaults == {grammar.Tolerance(TOLERANCE)}
    pattern = r"default: (10%)$|tolerance: float \| str = (0\.1),|2 workers, (10%),"
    (found,) = re.findall(pattern, text_of(ROOT / place), re.MULTILINE)
    assert grammar.share().read("".join(found)) == TOLERANCE
