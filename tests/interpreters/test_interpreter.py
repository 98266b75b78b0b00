"""Asking an interpreter: one answer, or one clear line, and nothing left behind."""

import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from support.commands import Command
from support.leaks import are_gone

import vebench
from vebench.errors import StorageError, UsageError
from vebench.interpreters import ask, examine_python, look_up, packages_here

LONG = 20.0  # seconds after which a test that waits gives up


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo hello", "exited with status 0, without an answer"),
        ("echo first >&2; echo last >&2; exit 3", "exited with status 3: last"),
        ("kill -KILL $$", "was ended by SIGKILL (out of memory, or killed from outside), without an answer"),
    ],
)
def test_an_interpreter_that_does_not_answer_is_one_line_with_its_end(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(UsageError) as raised:
        ask("Python A python", script(tmp_path / "python", text), {}, LONG)
    assert str(raised.value) == f"Python A python: Python {reason}"


@pytest.mark.parametrize(
    "answer",
    [b"[1, 2]", b'{"version": [3, 12], "packages": {}, "modules": []}', b"", b"{", b'"\xff', b"[" * 100_000],
    ids=["list", "short", "empty", "cut off", "no UTF-8", "deep"],
)
def test_a_program_with_other_answers_is_one_line_and_status_2(vebench: Command, tmp_path: Path, answer: bytes) -> None:
    (tmp_path / "answer").write_bytes(answer)
    odd = script(tmp_path / "odd", f"cat {tmp_path}/answer")
    refused = vebench("compare", odd, sys.executable, "-e", "Pong")
    assert refused.status == 2
    assert refused.refusal.startswith(f"vebench: Python A {odd}: Python ")


def test_a_lookup_finds_this_vebench_in_any_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("import vebench.errors, vebench.machine.kernel\ndef build(setup): ...\n")
    bare = script(tmp_path / "python", f'exec "{sys.executable}" -S "$@"')  # without what is installed in it
    monkeypatch.chdir(tmp_path)
    assert look_up(bare, adapters=[("mine:build", [])])["adapters"] == [{}]
    (tmp_path / "other" / "vebench").mkdir(parents=True)
    (tmp_path / "other" / "vebench" / "__init__.py").write_text("1 / 0")
    (tmp_path / "mine.py").rename(tmp_path / "other" / "mine.py")
    monkeypatch.setenv("PYTHONPATH", "other")
    assert look_up(bare, adapters=[("mine:build", [])])["adapters"] == [{}]


@pytest.mark.parametrize("text", ["echo 1", "exit 3"])
def test_an_interpreter_leaves_nothing_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    python = script(tmp_path / "python", f"touch $(dirname ${{PYTHONPATH%%:*}})/written; {text}")
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    with suppress(UsageError):
        ask("Python A python", python, {}, LONG)
    assert list((tmp_path / "scratch").iterdir()) == []


def test_without_a_folder_to_work_in_nothing_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(StorageError) as raised:
        ask("Python A python", sys.executable, {}, LONG)
    assert str(raised.value) == f"cannot prepare a scratch folder in {tmp_path}/gone: No such file or directory"


def test_what_a_silent_interpreter_started_is_ended_with_it(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    silent = script(tmp_path / "python", f"sleep 600 & echo $! > {pid_file}.new; mv {pid_file}.new {pid_file}; wait")
    with pytest.raises(UsageError, match="Python A python: no answer within 1 s"):
        ask("Python A python", silent, {}, 1.0)
    assert are_gone([int(pid_file.read_text())])
    # An answer counts even if what was started meanwhile keeps its output open.
    talking = script(tmp_path / "python", 'sleep 600 & echo \'{"version": [3, 12, 1], "packages": {}, "modules": []}\'')
    assert ask("Python A python", talking, {}, LONG)["version"] == (3, 12, 1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("""echo '{"version": [3, 9, 1], "packages": {}, "modules": ["numpy"]}'""", "Python 3.9 is too old"),
        ("""echo '{"version": [3, 12, 1], "packages": {}, "modules": []}'""", "has no numpy"),
    ],
)
def test_an_interpreter_that_cannot_run_cells_is_refused_with_reason(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        examine_python("A", script(tmp_path / "python", text))


def test_vebenchs_own_version_is_recorded_in_every_interpreter(tmp_path: Path) -> None:
    answer = '{"version": [3, 12, 1], "packages": {"numpy": "2.4.6"}, "modules": ["numpy"]}'
    elsewhere = examine_python("Python A", script(tmp_path / "python", f"echo '{answer}'"))
    assert elsewhere.packages == {"vebench": vebench.__version__, "numpy": "2.4.6"}
    assert packages_here()["vebench"] == vebench.__version__
