"""``vebench run --resume``: a run goes on where it ended, on the same machine and with nothing made up."""

import json
import shlex
from pathlib import Path

import msgspec
import pytest
from support.commands import ONE_PASS, Command, lines
from support.fakes import FakeStart, Script, fake_world, interrupted, steady
from support.records import make_header, write_lines

from vebench.backends.entry import BackendEntry
from vebench.plan.cells import Cell
from vebench.plan.spec import RunSpec

PONG = ("-e", "Pong", "-b", "for-loop,shm-sync", *ONE_PASS)


@pytest.fixture
def measured(vebench: Command, tmp_path: Path) -> Path:
    """Return the file of a run of four cells."""
    assert vebench("run", *PONG, "-w", "1,2", "-o", "run.jsonl", "-q", world=fake_world()).status == 0
    return tmp_path / "run.jsonl"


def test_an_interrupted_run_is_resumed_where_it_ended_and_its_report_written(vebench: Command) -> None:
    start = FakeStart()

    def interrupted_in_the_second(cell: Cell, spec: RunSpec) -> Script:
        return steady(cell, spec) if len(start.started) == 1 else interrupted(cell, spec)

    start.scripts = dict.fromkeys(("for-loop", "shm-sync", "yardstick"), interrupted_in_the_second)
    first = vebench("run", *PONG, "-w", "1", "-o", "a b.md", world=fake_world(start))
    (path,) = Path(".vebench").glob("*.jsonl")
    command = f"vebench run --resume {path} -o 'a b.md'"
    assert (first.status, Path("a b.md").exists(), first.out.count("frames/s (4 frames per step)")) == (130, True, 1)
    assert first.err.endswith(f"1 of 3 cells are in {path}; to continue: {command}\n")
    again = FakeStart()
    assert vebench(*shlex.split(command)[1:], world=fake_world(again)).status == 0
    assert Path("a b.md").exists()
    assert len(again.started) == 2
    assert again.started[0][0] == start.started[1][0]
    assert [cell["status"] for cell in lines(path, "cell")] == ["ok"] * 3


def test_a_check_interrupted_in_a_pass_that_it_added_says_how_to_go_on(vebench: Command, measured: Path) -> None:
    start = FakeStart()

    def interrupted_in_the_second_pass(cell: Cell, spec: RunSpec) -> Script:
        return interrupted(cell, spec) if cell.repeat else steady(cell, spec)

    start.scripts = dict.fromkeys(("for-loop", "shm-sync"), interrupted_in_the_second_pass)
    more = ("--tolerance", "10%")
    stopped = vebench("check", measured, "-o", "new.jsonl", *more, world=fake_world(start))
    assert (stopped.status, any(cell.repeat for cell, _ in start.started)) == (130, True)
    again = f"vebench run --resume new.jsonl, then vebench check {measured} new.jsonl with the same options\n"
    assert stopped.err.endswith(again)


def test_a_run_that_lost_its_last_cells_is_finished(vebench: Command, measured: Path) -> None:
    kept = measured.read_bytes().splitlines(keepends=True)[:3]
    measured.write_bytes(b"".join(kept) + b'{"type": "cell", "env": "Cart')
    assert vebench("report", measured).status == 0
    shown = vebench("run", "--resume", measured, "--dry-run")
    left = [line for line in shown.out.splitlines() if line.startswith(("for-loop ", "shm-sync", "yardstick"))]
    assert (shown.status, len(left)) == (0, 3)
    start = FakeStart()
    assert vebench("run", "--resume", measured, world=fake_world(start)).status == 0
    after = measured.read_bytes().splitlines(keepends=True)
    assert (after[:3], len(after), len(start.started)) == (kept, 6, 3)
    assert {(cell["backend"], cell["workers"]) for cell in lines(measured, "cell")} == {
        ("yardstick", 1),
        *((backend, workers) for backend in ("for-loop", "shm-sync") for workers in (1, 2)),
    }
    assert vebench("run", "--resume", measured, world=fake_world(start)).status == 0
    assert len(start.started) == 3  # a whole run has nothing left


@pytest.fixture
def begun(vebench: Command, tmp_path: Path) -> Path:
    """Return the file of a run that ended after its first line."""
    path = tmp_path / "begun.jsonl"
    asked = ("run", "-e", "Pong", "-b", "null,shm-sync", "-w", "1", "-o", path, "-q")
    assert vebench(*asked, world=fake_world()).status == 0
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    return path


def with_a_reason_against(monkeypatch: pytest.MonkeyPatch, *backends: str) -> None:
    """Let these backends be skipped, on a machine that is the same otherwise."""
    why_not = BackendEntry.why_not
    monkeypatch.setattr(
        BackendEntry,
        "why_not",
        lambda entry, *task: "it is too large" if entry.name in backends else why_not(entry, *task),
    )


def test_a_lack_of_reference_rows_is_resumed(vebench: Command, begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_a_reason_against(monkeypatch, "shm-sync")
    assert vebench("run", "--resume", begun, world=fake_world()).status == 0
    statuses = {cell["backend"]: cell["status"] for cell in lines(begun, "cell")}
    assert statuses == {"null": "ok", "shm-sync": "skipped", "for-loop": "skipped", "yardstick": "skipped"}


def test_a_run_of_which_nothing_can_run_any_more_is_not_resumed_but_shown(
    vebench: Command, begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_a_reason_against(monkeypatch, "null", "shm-sync")
    result = vebench("run", "--resume", begun, world=fake_world())
    assert result.status == 2
    assert result.refusal == f"vebench: {begun}: no cell of this plan can run here: it is too large\n"
    shown = vebench("run", "--resume", begun, "--dry-run", world=fake_world())
    assert (shown.status, shown.err) == (2, result.err)
    assert "4 skipped" in shown.out


def test_a_run_measured_elsewhere_is_not_resumed_here(vebench: Command, measured: Path) -> None:
    first, *rest = measured.read_text().splitlines()
    header = json.loads(first)
    header["host"]["cpu_model"] = "Another 9000"
    write_lines(measured, (json.dumps(header), *rest[:1]))
    result = vebench("run", "--resume", measured)
    assert result.status == 3
    assert "Another 9000" in result.refusal


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "empty"), (b'{"a": 1}\nsome notes', "line 1: not a vebench run file"), (None, "No such file")],
)
@pytest.mark.parametrize("line", ["report odd.jsonl", "run --resume odd.jsonl", "check odd.jsonl run.jsonl"])
@pytest.mark.usefixtures("measured")
def test_a_file_that_is_no_run_is_one_line_and_status_2(
    vebench: Command, tmp_path: Path, line: str, content: bytes | None, words: str
) -> None:
    path = tmp_path / "odd.jsonl"
    if content is not None:
        path.write_bytes(content)
    first, *files = line.split()
    for given in (files, files[::-1]) if first == "check" else (files,):
        result = vebench(first, *given)
        assert result.status == 2
        assert "odd.jsonl" in result.refusal
        assert words in result.refusal
    assert (path.read_bytes() if path.exists() else None) == content


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("workers", [0]),
        ("workers", [-3]),
        ("workers", [1, 1]),
        ("backends", [{"name": "nothing"}]),
        ("backends", [{"name": "envpool-async", "options": {"ratio": "abc"}}]),
        ("envs", ["Pnog"]),
        ("pin", "everywhere"),
        ("windows", 0),
    ],
)
def test_a_run_that_no_command_asks_for_is_refused(vebench: Command, tmp_path: Path, key: str, value: object) -> None:
    path = tmp_path / "odd.jsonl"
    first = json.loads(msgspec.json.encode(make_header()))
    first["spec"][key] = value
    write_lines(path, [json.dumps(first)])
    result = vebench("run", "--resume", path)
    assert result.status == 2
    assert result.refusal.startswith(f"vebench: {path}, line 1: ")
