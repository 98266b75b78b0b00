"""Asking an interpreter: one answer, or one clear line, and nothing left behind."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import vebench
from vebench.backends.registry import PACKAGES, RECORDED
from vebench.errors import StorageError, UsageError
from vebench.interpreters.asking import ask
from vebench.interpreters.interpreter import examine, packages_here
from vebench.interpreters.lookup import look_up

if TYPE_CHECKING:
    from pathlib import Path

LONG = 20.0  # seconds after which a test that waits gives up


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_an_interpreter_answers_for_its_version_its_packages_and_its_modules() -> None:
    request = {"packages": ["numpy", "no-such-package"], "modules": ["numpy", "no_such_module"]}
    facts = ask("--a python", sys.executable, request, LONG)
    assert facts["version"] == [*sys.version_info[:3]]
    assert list(facts["packages"]) == facts["modules"] == ["numpy"]


def test_a_file_in_the_users_folder_is_no_installed_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shadow.py").touch()
    monkeypatch.chdir(tmp_path)
    assert ask("--a python", sys.executable, {"modules": ["shadow"]}, LONG)["modules"] == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo hello", "ended with status 0, without an answer"),
        ("echo first >&2; echo last >&2; exit 3", "ended with status 3: last"),
        ("kill -KILL $$", "ended with signal 9, without an answer"),
    ],
)
def test_an_interpreter_that_does_not_answer_is_one_line_that_says_how_it_ended(
    tmp_path: Path, text: str, reason: str
) -> None:
    with pytest.raises(UsageError) as raised:
        ask("--a python", script(tmp_path / "python", text), {}, LONG)
    assert str(raised.value) == f"--a python: Python {reason}"
    with pytest.raises(UsageError) as raised:
        ask("--a python", str(tmp_path / "python"), {}, LONG, examined=False)
    assert str(raised.value) == f"--a python: is no Python that runs: it {reason}"


def test_a_lookup_finds_the_part_of_vebench_that_a_cell_finds_in_a_python_that_has_none_or_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("import vebench.errors, vebench.machine.pinning\ndef build(setup): ...\n")
    bare = script(tmp_path / "python", f'exec "{sys.executable}" -S "$@"')  # without what is installed in it
    monkeypatch.chdir(tmp_path)
    assert look_up([], [("mine:build", [])], bare, LONG)["adapters"] == [{}]
    (tmp_path / "other" / "vebench").mkdir(parents=True)
    (tmp_path / "other" / "vebench" / "__init__.py").write_text("1 / 0")
    (tmp_path / "mine.py").rename(tmp_path / "other" / "mine.py")
    monkeypatch.setenv("PYTHONPATH", "other")
    assert look_up([], [("mine:build", [])], bare, LONG)["adapters"] == [{}]


@pytest.mark.parametrize("text", ["echo 1", "exit 3"])
def test_an_interpreter_leaves_nothing_of_what_it_wrote_where_it_worked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    python = script(tmp_path / "python", f"touch $(dirname ${{PYTHONPATH%%:*}})/written; {text}")
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    with suppress(UsageError):
        ask("--a python", python, {}, LONG)
    assert list((tmp_path / "scratch").iterdir()) == []


def test_without_a_folder_to_work_in_nothing_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(StorageError) as raised:
        ask("--a python", sys.executable, {}, LONG)
    assert str(raised.value) == f"cannot make a scratch folder in {tmp_path}/gone: No such file or directory"


def test_what_a_silent_interpreter_started_is_ended_with_it(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    silent = script(tmp_path / "python", f"sleep 600 & echo $! > {pid_file}.new; mv {pid_file}.new {pid_file}; wait")
    with pytest.raises(UsageError, match="--a python: no answer within 1 s"):
        ask("--a python", silent, {}, 1.0)
    started = int(pid_file.read_text())
    deadline = time.monotonic() + LONG
    while _runs(started):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123 - one line of the kernel's
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_vebenchs_own_version_is_recorded_in_every_interpreter_since_its_code_runs_there(tmp_path: Path) -> None:
    answer = '{"version": [3, 12, 1], "packages": {"numpy": "2.4.6"}, "modules": ["numpy"]}'
    elsewhere = examine("--a", script(tmp_path / "python", f"echo '{answer}'"))
    assert elsewhere.packages == {"vebench": vebench.__version__, "numpy": "2.4.6"}
    assert packages_here()["vebench"] == vebench.__version__


def test_an_interpreter_is_asked_for_all_that_a_backend_needs_and_a_run_file_records() -> None:
    found = examine("--a", sys.executable)
    assert found.modules <= {package.module for package in PACKAGES}
    assert found.packages.keys() <= {"vebench", *RECORDED}
    assert found.has("gymnasium")
    assert os.sep in found.path
