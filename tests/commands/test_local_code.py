"""Run files name modules and Pythons: what lies in the current folder is not run because a file says so."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec
import pytest
from support.commands import ONE_PASS
from support.fakes import FakeStart, fake_world, interrupted
from support.places import ADAPTERS
from support.records import make_cell, make_header, write_run

from vebench.results.records import Run

if TYPE_CHECKING:
    from pathlib import Path

    from support.commands import Command

ALLOWED = "--allow-local-code"
REMEDY = f"if you trust the file that names it, add {ALLOWED}"
MODULE = f"""
import pathlib, sys
pathlib.Path({{imported!r}}).touch()
sys.path.append({str(ADAPTERS)!r})
from faulty import Sound
import gymnasium
gymnasium.register("Own-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv")
def make(title):
    return gymnasium.make("Own-v0")
"""
# What the file names, and how the refusal begins.
NAMED = {
    "adapter": ({"backends": [{"name": "mine:Sound"}]}, "--backend mine:Sound: module mine"),
    "adapter in a package": ({"backends": [{"name": "box.mine:Sound"}]}, "--backend box.mine:Sound: module box.mine"),
    "callable": (
        {"envs": ["mine:make[title=a:b]"], "backends": [{"name": "gym-sync"}]},
        "--env mine:make[title=a:b]: module mine",
    ),
    "environment": ({"envs": ["mine:Own-v0"], "backends": [{"name": "gym-sync"}]}, "--env mine:Own-v0: module mine"),
}


@pytest.fixture
def imported(tmp_path: Path) -> Path:
    """Return the file that a module of the current folder makes when it is imported, in which it also is a package."""
    mark = tmp_path / "imported"
    (tmp_path / "box").mkdir()
    for path in (tmp_path / "mine.py", tmp_path / "box" / "mine.py"):
        path.write_text(MODULE.format(imported=str(mark)))
    return mark


def naming(path: Path, named: dict[str, object], **fields: object) -> Path:
    """Write a run of CartPole, or of the environment that is named, with what else is named."""
    header = make_header(**{"envs": ["CartPole"], "workers": [1], "rounds": 1, **named})
    env = "Own-v0" if "envs" in named else "CartPole-v1"
    cell = make_cell(header.spec.backends[0].name, 1, (2300,), env=env)
    return write_run(path, Run(msgspec.structs.replace(header, **fields), (cell,)))


@pytest.mark.parametrize(
    ("command", "what"),
    [
        *((("run", "--resume", "theirs.jsonl", "--dry-run"), what) for what in NAMED),
        (("run", "--resume", "theirs.jsonl"), "adapter"),
        (("check", "theirs.jsonl"), "adapter"),
        (("check", "theirs.jsonl"), "environment"),
    ],
)
def test_a_module_that_only_a_file_names_is_not_imported_from_the_current_folder(
    vebench: Command, imported: Path, tmp_path: Path, command: tuple[str, ...], what: str
) -> None:
    named, begins = NAMED[what]
    naming(tmp_path / "theirs.jsonl", named)
    refused = vebench(*command)
    why = f"{begins} is in the current folder and not installed: {REMEDY}"
    assert (refused.status, refused.refusal) == (2, f"vebench: theirs.jsonl, line 1: {why}\n")
    assert not imported.exists()


@pytest.mark.parametrize("what", NAMED)
def test_it_is_imported_if_the_user_says_so(vebench: Command, imported: Path, tmp_path: Path, what: str) -> None:
    naming(tmp_path / "theirs.jsonl", NAMED[what][0])
    shown = vebench("run", "--resume", "theirs.jsonl", "--dry-run", ALLOWED)
    assert imported.exists()
    assert (shown.status, "theirs.jsonl was measured elsewhere" in shown.err) == (3, True)  # and so it goes no further


def test_what_the_user_types_is_imported_and_its_run_is_resumed_with_a_word_more(
    vebench: Command, imported: Path
) -> None:
    plan = ("-e", "CartPole", "-w", "1", "-b", "mine:Sound", "--no-base", *ONE_PASS)
    brief = ("--rounds", "1", "--duration", "0.01", "--warmup", "0")
    assert vebench("run", *plan, *brief, "-o", "ours.jsonl", "-q").status == 0
    assert imported.exists()
    imported.unlink()
    assert vebench("run", "--resume", "ours.jsonl", "-q").status == 2
    assert not imported.exists()
    assert vebench("run", "--resume", "ours.jsonl", "-q", ALLOWED).status == 0


def test_the_command_that_goes_on_with_a_run_of_local_code_can_be_pasted(vebench: Command, imported: Path) -> None:
    start = FakeStart({"mine:Sound": interrupted})
    plan = ("-e", "CartPole", "-w", "1", "-b", "mine:Sound,gym-sync", "--no-base", *ONE_PASS)
    stopped = vebench("run", *plan, "-o", "ours.jsonl", "-q", world=fake_world(start))
    _, _, again = stopped.refusal.strip().partition("to go on: vebench ")
    assert again == f"run --resume ours.jsonl {ALLOWED}"
    start.scripts = {}
    assert vebench(*again.split(), world=fake_world(start)).status == 0
    imported.with_name("mine.py").unlink()
    assert ALLOWED not in vebench("report", "ours.jsonl").out


@pytest.mark.parametrize("command", ["report", "history", "check"])
def test_what_only_shows_runs_imports_nothing_that_they_name(
    vebench: Command, imported: Path, tmp_path: Path, command: str
) -> None:
    (tmp_path / "runs").mkdir()
    files = [naming(tmp_path / "runs" / f"{name}.jsonl", NAMED["environment"][0]) for name in "ab"]
    vebench(command, *([tmp_path / "runs"] if command == "history" else files))
    assert not imported.exists()


def test_a_module_that_is_installed_is_imported_for_any_file_even_if_the_current_folder_has_one_of_that_name(
    vebench: Command, imported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "mine.py").write_text(MODULE.format(imported=str(tmp_path / "installed")))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    naming(tmp_path / "theirs.jsonl", NAMED["adapter"][0])
    assert vebench("run", "--resume", "theirs.jsonl", "--dry-run").status == 3  # measured elsewhere
    assert ((tmp_path / "installed").exists(), imported.exists()) == (True, False)


@pytest.mark.parametrize(
    ("python", "why"),
    [
        ("{here}/python", "is in the current folder"),
        ("./venv/bin/python", "is in the current folder"),
        ("/proc/self/cwd/python", "is in the current folder"),
        ("/bin/rm", "is not called as a Python is"),
        ("rm", "is not called as a Python is"),
    ],
)
def test_a_program_that_only_a_file_names_is_not_started_from_the_current_folder_or_for_a_python(
    vebench: Command, tmp_path: Path, python: str, why: str
) -> None:
    program = python.format(here=tmp_path)
    started = tmp_path / "started"
    for path in (tmp_path / "python", tmp_path / "venv" / "bin" / "python"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\ntouch {started}\n")
        path.chmod(0o755)
    for side in "ab":
        naming(tmp_path / f"pair-{side}.jsonl", {"backends": [{"name": "gym-sync"}]}, interpreter=program)
    refused = vebench("compare", "--resume", "pair.jsonl")
    line = f"vebench: pair-a.jsonl, line 1: --a {program}: {why}: {REMEDY}\n"
    assert (refused.status, refused.refusal) == (2, line)
    assert not started.exists()
    if "python" in python:
        vebench("compare", "--resume", "pair.jsonl", ALLOWED)
        assert started.exists()


def test_a_module_of_the_current_folder_is_imported_for_neither_side_of_a_comparison(
    vebench: Command, imported: Path, tmp_path: Path
) -> None:
    for side in "ab":
        naming(tmp_path / f"pair-{side}.jsonl", NAMED["adapter"][0], interpreter=sys.executable)
    refused = vebench("compare", "--resume", "pair.jsonl")
    assert (refused.status, ALLOWED in refused.refusal) == (2, True)
    assert not imported.exists()


@pytest.mark.parametrize(
    "arguments",
    [("run", "-e", "CartPole"), ("compare", "--a", "x", "--b", "y"), ("check", "a.jsonl", "b.jsonl")],
    ids=lambda arguments: arguments[0],
)
def test_where_no_file_names_what_is_run_the_option_is_refused(vebench: Command, arguments: tuple[str, ...]) -> None:
    refused = vebench(*arguments, ALLOWED)
    assert (refused.status, ALLOWED in refused.refusal) == (2, True)
