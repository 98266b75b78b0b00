"""What the README and the how-tos tell users to type and to write works."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer.main
from support.commands import ONE_PASS
from support.in_this_process import world_here

from vebench import cli

if TYPE_CHECKING:
    from support.commands import Command

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "docs" / "examples" / "threads.py"
ROVER = EXAMPLE.with_name("rover.py")
PAGES = ("README.md", "docs/how-to.md")
COMMAND = re.compile(r"^ {4}vebench (.+)$", re.MULTILINE)


def commands() -> list[str]:
    return [line for page in PAGES for line in COMMAND.findall((ROOT / page).read_text(encoding="utf-8"))]


@pytest.mark.parametrize("line", commands())
def test_a_command_line_of_the_documents_has_only_options_that_there_are(line: str) -> None:
    name, *words = shlex.split(line, comments=True)
    group = typer.main.get_command(cli.app)
    command = group.get_command(typer.Context(group), name)  # type: ignore[attr-defined]
    assert command is not None
    command.make_context(name, words, obj=None)


def test_the_adapter_in_the_readme_is_the_one_among_the_examples() -> None:
    (block,) = re.findall(
        r"```python\n(\"\"\"A backend of your own.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert block == EXAMPLE.read_text(encoding="utf-8")


def test_the_environment_in_the_readme_is_the_one_among_the_examples() -> None:
    (block,) = re.findall(
        r"```python\n(\"\"\"An environment of your own.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert block == ROVER.read_text(encoding="utf-8")


def test_its_commands_work_as_they_stand_in_a_folder_that_has_nothing_else(vebench: Command, tmp_path: Path) -> None:
    shutil.copy(ROVER, tmp_path)
    lines = [line for line in commands() if "rover:" in line]
    look, compare, _, measure = (shlex.split(line, comments=True) for line in lines)
    assert vebench(*look).status == 0
    brief = (*ONE_PASS[:-1], "full", "--duration", "0.02", "--warmup", "0.01", "--rounds", "2", "-q")
    compared = vebench(*compare, "--steps", "20", "-f", "json", world=world_here())
    assert {each["verdict"] for each in json.loads(compared.out) if not each["reason"]} == {"identical"}
    assert vebench(*measure, *brief, world=world_here()).status == 0
    assert vebench("report", "-o", "report.md").status == 0
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "rover:make_env[pixels=64,steps=500]" in report


def test_the_adapter_of_the_examples_does_the_same_work_as_the_loop(
    vebench: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLE.parent))
    done = vebench("verify", "--env", "CartPole", "-b", "threads:Threads", "--steps", "200", "-f", "json")
    (proof,) = json.loads(done.out)
    assert (proof["verdict"], proof["ends"] > 0) == ("identical", True)
