"""The command line as a user meets it: real processes, real environments, small cells."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from support.places import ADAPTERS
from support.records import make_header

if TYPE_CHECKING:
    from collections.abc import Callable


BRIEF = ("--duration", "0.05", "--warmup", "0.02", "--rounds", "3")


class Result:
    """What a command printed, and its exit status."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr


@pytest.fixture
def vebench(tmp_path: Path) -> Callable[..., Result]:
    """Return the command, run in an empty folder beside which the third parties' adapters can be imported."""
    return command_in(tmp_path)


def command_in(folder: Path) -> Callable[..., Result]:
    environment = {**os.environ, "PYTHONPATH": str(ADAPTERS), "COLUMNS": "100"}

    def call(*arguments: str | Path, timeout: float = 120) -> Result:
        command = [sys.executable, "-m", "vebench.cli", *map(str, arguments)]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )
        return Result(done)

    return call


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run file of a small run, measured once."""
    folder = tmp_path_factory.mktemp("small")
    result = command_in(folder)("run", "-e", "CartPole", "-w", "1,2", "-b", "for-loop,null", *BRIEF, "-o", "run.jsonl")
    assert (result.status, result.err.count("\n")) == (0, 4)
    return folder / "run.jsonl"


@pytest.fixture
def measured(small_run: Path, tmp_path: Path) -> Path:
    """Return a small run's file, in the folder of the test."""
    return Path(shutil.copy(small_run, tmp_path))


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_main_job_measures_every_backend_that_can_step_a_task_and_prints_a_table(
    vebench: Callable[..., Result], tmp_path: Path
) -> None:
    result = vebench("run", "--env", "CartPole", "--workers", "2", *BRIEF)
    assert result.status == 0
    for backend in ("for-loop", "gym-sync", "gym-async", "shm-sync", "null"):
        assert backend in result.out
    (path,) = (tmp_path / ".vebench").iterdir()
    header, *cells = lines(path)
    assert (header["type"], header["schema"]) == ("run", 1)
    assert header["command"] == "vebench run --env CartPole --workers 2 " + " ".join(BRIEF)
    assert {cell["status"] for cell in cells} <= {"ok", "skipped"}
    assert all(len(cell["windows"]) == 3 for cell in cells if cell["status"] == "ok")  # type: ignore[arg-type]


def test_a_report_of_the_newest_run_needs_no_name(vebench: Callable[..., Result]) -> None:
    vebench("run", "-e", "CartPole", "-w", "1", "-b", "for-loop", *BRIEF, "--quiet")
    result = vebench("report", "-f", "json")
    (cell,) = json.loads(result.out)
    assert (cell["env"], cell["backend"], cell["status"]) == ("CartPole-v1", "for-loop", "ok")
    speed = cell["frames_per_second"]
    assert speed["low"] <= speed["median"] <= speed["high"]


def test_quiet_prints_nothing(vebench: Callable[..., Result]) -> None:
    result = vebench("run", "-e", "CartPole", "-w", "1", "-b", "null", *BRIEF, "-q")
    assert (result.status, result.out, result.err) == (0, "", "")


def test_a_reports_format_follows_from_its_files_suffix(
    vebench: Callable[..., Result], measured: Path, tmp_path: Path
) -> None:
    for name in ("report.md", "report.csv", "report.json", "report.txt"):
        assert vebench("report", measured, "-o", tmp_path / name).status == 0
    assert (tmp_path / "report.md").read_text().startswith("# ")
    assert len(list(csv.DictReader(io.StringIO((tmp_path / "report.csv").read_text())))) == 4
    assert len(json.loads((tmp_path / "report.json").read_text())) == 4
    assert "\x1b" not in (tmp_path / "report.txt").read_text()


def test_a_dry_run_prints_the_plan_and_measures_nothing(vebench: Callable[..., Result], tmp_path: Path) -> None:
    result = vebench("run", "--env", "Pong", "--env", "Ant", "--workers", "1..4", "--dry-run")
    assert result.status == 0
    assert "ALE/Pong-v5" in result.out
    assert "Ant-v5" in result.out
    assert "--pin compact, --smt last" in result.out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ["--env", "Pong"]),
        (("pong",), ["pong", "--env pong"]),
        (("-e", "Pong", "Ant"), ["Ant", "--env Ant"]),
        (("-e", "Pong,,Ant"), ["--env", "missing"]),
        (("-e", "CartPole", "-b", "faulty:Sound[lenght=3]"), ["lenght", "length"]),
        (("-e", "CartPole", "-b", b"faulty:Sound[length=\xff]"), ["--backend", "UTF-8"]),
        (("-e", b"Pong\xff"), ["--env", "UTF-8"]),
        (("-e", "Pong", "-o", "-"), ["-o", "run file", "vebench report"]),
        (("-e", "Pong", "-o", "run.csv"), ["-o", "run file", "vebench report -o report.csv"]),
        (("-e", "Pong", "-o", ""), ["-o ''", "name a file"]),
        (("-e", "Pong", "-o", "."), ["-o .", "folder"]),
        (("-e", "Pong", "-w", "1", "-w", ""), ["--workers"]),
        (("-e", "Pnog"), ["Pnog", "Pong"]),
        (("-e", "Pong", "-b", "envpol-sync"), ["envpol-sync", "envpool-sync"]),
        (("-e", "Pong", "-b", "envpool-async[ration=2]"), ["ration", "ratio"]),
        (("-e", "Pong", "-w", ""), ["--workers"]),
        (("-e", "Pong", "-w", "0"), ["--workers", "0"]),
        (("-e", "Pong", "-w", "-3"), ["--workers", "-3"]),
        (("-e", "Pong", "-w", "8..2"), ["--workers", "8..2"]),
        (("-e", "Pong", "-w", "1..99999999999"), ["--workers", "65536"]),
        (("-e", "Pong", "--duration", "0"), ["--duration"]),
        (("-e", "Pong", "--duration", "nan"), ["--duration"]),
        (("-e", "Pong", "--duration", "soon"), ["--duration"]),
        (("-e", "Pong", "--rounds", "-1"), ["--rounds"]),
        (("-e", "Pong", "--timeout", "3"), ["--timeout"]),
        (("-e", "Pong", "-o", "nowhere/run.jsonl"), ["nowhere/run.jsonl"]),
        (("-e", "Pong", "--pin", "0-4095"), ["--pin", "allowed"]),
        (("-e", "Pong", "--pin", "everywhere"), ["--pin", "compact", "scatter"]),
        (("-e", "Pong", "--smt", "never"), ["--smt never", "last, off, close"]),
        (("-e", "Taxi", "-b", "envpool-sync"), ["envpool-sync", "Taxi"]),
        (("--resume", "nowhere.jsonl"), ["nowhere.jsonl"]),
        (("--resume", "nowhere.jsonl", "--rounds", "9"), ["--resume", "--rounds"]),
        (("-e", "CartPole", "-b", "nowhere:Adapter"), ["nowhere"]),
        (("-e", "CartPole", "-b", "faulty:Adaptor"), ["faulty", "Adaptor"]),
        (("--unheard-of",), ["--unheard-of"]),
    ],
)
def test_what_cannot_be_measured_is_one_line_and_status_2_and_leaves_no_file(
    vebench: Callable[..., Result], tmp_path: Path, arguments: tuple[str | bytes, ...], words: list[str]
) -> None:
    result = vebench("run", *map(os.fsdecode, arguments))
    assert (result.status, result.out, result.err.count("\n")) == (2, "", 1), result.err
    assert result.err.startswith("vebench: ")
    for word in words:
        assert word in result.err
    assert [path for path in tmp_path.iterdir() if path.name != ".vebench"] == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["empty"]),
        (b"\x00\xff\x00", ["line 1"]),
        (b'{"benchmarks": []}\n', ["line 1"]),
        (b'{"type": "run", "schema": 99}\n', ["line 1", "later version"]),
    ],
)
def test_a_file_that_is_no_run_is_one_line_and_status_2(
    vebench: Callable[..., Result], tmp_path: Path, content: bytes, words: list[str]
) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_bytes(content)
    for result in (vebench("report", path), vebench("run", "--resume", path)):
        assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)
        for word in ("odd.jsonl", *words):
            assert word in result.err
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ["no run", "vebench run"]),
        (("nowhere.jsonl",), ["nowhere.jsonl"]),
        (("-f", "pdf"), ["pdf", "markdown"]),
        (("-o", "report.pdf"), [".md"]),
    ],
)
def test_a_report_that_cannot_be_made_is_one_line_and_status_2(
    vebench: Callable[..., Result], arguments: tuple[str, ...], words: list[str]
) -> None:
    result = vebench("report", *arguments)
    assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)
    for word in words:
        assert word in result.err


@pytest.mark.parametrize("change", [False, True])
def test_a_report_never_overwrites_a_run(
    vebench: Callable[..., Result], measured: Path, tmp_path: Path, *, change: bool
) -> None:
    target = measured
    if change:  # another run than its input
        target = tmp_path / "other.csv"
        target.write_bytes(measured.read_bytes())
    before = target.read_bytes()
    result = vebench("report", measured, "-f", "csv", "-o", target)
    assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)
    assert "would be overwritten" in result.err
    assert target.read_bytes() == before


def test_a_report_may_be_written_again(vebench: Callable[..., Result], measured: Path, tmp_path: Path) -> None:
    for name in ("report.md", "report.csv"):
        target = tmp_path / name
        assert [vebench("report", measured, "-o", target).status for _ in range(2)] == [0, 0]


def test_all_runs_of_a_folder_are_reported_with_their_logs_left_out(
    vebench: Callable[..., Result], measured: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    for age, name in enumerate(("b.jsonl", "a.jsonl")):
        (folder / name).write_bytes(measured.read_bytes())
        os.utime(folder / name, (age, age))
    (folder / "a.jsonl.log").write_text("== CartPole-v1, null\nboom\n")
    for arguments, names in (([folder], ["b", "a"]), (sorted(folder.iterdir()), ["a", "b"])):
        result = vebench("report", *arguments, "-f", "json")
        files = list(dict.fromkeys(cell["file"] for cell in json.loads(result.out)))
        assert files == [str(folder / f"{name}.jsonl") for name in names]


def test_worker_counts_and_environments_may_be_repeated_or_joined(vebench: Callable[..., Result]) -> None:
    result = vebench("run", "-e", "Pong,Ant", "-e", "CartPole", "-w", "1", "-w", "2,4", "-b", "for-loop", "--dry-run")
    assert [line.split()[1] for line in result.out.splitlines() if line.startswith(" for-loop")] == ["1", "2", "4"] * 3


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
        ("rounds", 0),
    ],
)
def test_a_run_that_nobody_can_have_asked_for_is_not_resumed(
    vebench: Callable[..., Result], tmp_path: Path, key: str, value: object
) -> None:
    path = tmp_path / "odd.jsonl"
    first = json.loads(msgspec.json.encode(make_header()))
    first["spec"][key] = value
    path.write_text(json.dumps(first) + "\n")
    result = vebench("run", "--resume", path)
    assert (result.status, result.out, result.err.count("\n")) == (2, "", 1), result.err
    assert result.err.startswith(f"vebench: {path}, line 1: ")


def test_a_run_is_never_overwritten(vebench: Callable[..., Result], measured: Path) -> None:
    before = measured.read_bytes()
    result = vebench("run", "-e", "CartPole", "-w", "1", "-b", "null", "-o", measured)
    assert (result.status, result.err.count("\n")) == (2, 1)
    assert "--resume" in result.err
    assert measured.read_bytes() == before


def test_a_failed_cell_is_recorded_with_its_reason_and_the_run_goes_on(
    vebench: Callable[..., Result], tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    result = vebench("run", "-e", "CartPole", "-w", "1", "-b", "faulty:Raises", "-b", "for-loop", *BRIEF, "-o", path)
    assert result.status == 1
    cells = {cell["backend"]: cell for cell in lines(path)[1:]}
    assert cells["for-loop"]["status"] == "ok"
    assert (cells["faulty:Raises"]["status"], cells["faulty:Raises"]["reason"]) == (
        "failed",
        "ValueError: the simulator exploded",
    )
    assert "the simulator exploded" in result.out
    assert "Traceback" in (tmp_path / "run.jsonl.log").read_text()
    assert "Traceback" not in result.out + result.err


def test_a_third_partys_adapter_gets_its_options(vebench: Callable[..., Result], tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    arguments = ("-e", "CartPole", "-w", "2", "-b", "faulty:Sound[length=3]", *BRIEF, "-o", path)
    assert vebench("run", *arguments).status == 0
    (cell,) = lines(path)[1:]
    assert (cell["backend"], cell["options"]) == ("faulty:Sound", {"length": 3})
    for window in cell["windows"]:  # type: ignore[attr-defined]
        assert window["resets"] == pytest.approx(window["rows"] / 4, abs=2)


def test_repeats_visit_every_cell_again_in_an_order_of_their_own(
    vebench: Callable[..., Result], tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    vebench("run", "-e", "CartPole", "-w", "1..8", "-b", "null", "--repeats", "3", *BRIEF, "-o", path)
    cells = lines(path)[1:]
    assert [cell["repeat"] for cell in cells] == [0] * 4 + [1] * 4 + [2] * 4
    orders = {tuple(cell["workers"] for cell in cells if cell["repeat"] == repeat) for repeat in range(3)}
    assert all(sorted(order) == [1, 2, 4, 8] for order in orders)  # type: ignore[type-var]
    assert len(orders) > 1


def test_a_run_that_lost_its_last_cells_is_finished_by_resume(vebench: Callable[..., Result], measured: Path) -> None:
    whole = measured.read_bytes()
    kept = whole.splitlines(keepends=True)[:3]
    measured.write_bytes(b"".join(kept) + b'{"type": "cell", "env": "Cart')
    assert vebench("report", measured).status == 0
    result = vebench("run", "--resume", measured)
    assert result.status == 0
    after = measured.read_bytes().splitlines(keepends=True)
    assert after[:3] == kept
    assert {(cell["backend"], cell["workers"]) for cell in lines(measured)[1:]} == {
        (backend, workers) for backend in ("for-loop", "null") for workers in (1, 2)
    }
    assert len(after) == 5


def test_a_run_measured_elsewhere_is_not_resumed_here(vebench: Callable[..., Result], measured: Path) -> None:
    first, *rest = measured.read_text().splitlines()
    header = json.loads(first)
    header["host"]["cpu_model"] = "Another 9000"
    measured.write_text("\n".join([json.dumps(header), *rest[:1]]) + "\n")
    result = vebench("run", "--resume", measured)
    assert (result.status, result.err.count("\n")) == (3, 1)
    assert "Another 9000" in result.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_what_it_has_and_says_how_to_go_on(tmp_path: Path, number: int) -> None:
    path = tmp_path / "run.jsonl"
    arguments = ["run", "-e", "CartPole", "-w", "1..8", "-b", "null", "--duration", "0.2", "--rounds", "3", "-o", path]
    with subprocess.Popen(
        [sys.executable, "-m", "vebench.cli", *map(str, arguments)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        process.stderr.readline()  # the first cell is done
        process.send_signal(number)
        _, err = process.communicate()
    assert process.returncode == 130
    last = err.splitlines()[-1]
    assert re.fullmatch(
        rf"vebench: interrupted: [1-3] of 4 cells are in {path}; to go on: vebench run --resume {path}", last
    )
    assert not [line for line in err.splitlines()[:-1] if not line.startswith("[")]
    assert [cell["status"] for cell in lines(path)[1:]][:1] == ["ok"]


def test_an_interrupt_before_anything_is_measured_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import pathlib, time\npathlib.Path('here').touch()\ntime.sleep(600)\n")
    with subprocess.Popen(
        [sys.executable, "-m", "vebench.cli", "run", "-e", "slow:Env-v0"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not list(tmp_path.glob("**/here")):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert (process.returncode, err) == (130, "vebench: interrupted\n")


def test_what_looks_like_markup_in_a_files_name_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a[" / "b].jsonl"
    path.parent.mkdir()
    arguments = ["run", "-e", "CartPole", "-w", "1..8", "-b", "null", "--duration", "0.2", "-o", path]
    with subprocess.Popen(
        [sys.executable, "-m", "vebench.cli", *map(str, arguments)], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert f"cells are in {path}; to go on: vebench run --resume '{path}'" in err


def test_list_shows_backends_and_tasks(vebench: Callable[..., Result]) -> None:
    result = vebench("list")
    assert result.status == 0
    for word in ("shm-sync", "envpool-async", "Pong", "HalfCheetah", "CartPole"):
        assert word in result.out


def test_version_and_help_are_there(vebench: Callable[..., Result]) -> None:
    assert vebench("--version").out.startswith("vebench ")
    for arguments in (("--help",), ("run", "--help"), ("report", "-h")):
        result = vebench(*arguments)
        assert (result.status, result.err) == (0, "")
        assert "Usage: vebench" in result.out


def test_help_has_examples_and_names_values_as_users_do(vebench: Callable[..., Result]) -> None:
    text = " ".join(vebench("run", "--help").out.split())
    for words in ("vebench run -e Pong -w 1..8", "--env ENV", "--workers COUNTS", "--duration SECONDS", "1..81:*3"):
        assert words in text
    assert "TEXT" not in text
    assert "FLOAT" not in text
    assert "newest run in .vebench/" in " ".join(vebench("report", "--help").out.split())


def test_a_reader_that_has_seen_enough_is_no_error(measured: Path) -> None:
    command = f"{sys.executable} -m vebench.cli report {measured} -f json | head -n 1"
    result = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert (result.stdout, result.stderr) == ("[\n", "")


def test_a_reader_that_goes_away_does_not_end_a_run(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    run = f"{sys.executable} -m vebench.cli run -e CartPole -w 1,2,4 -b null {' '.join(BRIEF)} -o {path}"
    command = f"{{ {run} 2>&1; echo $? > {tmp_path / 'status'}; }} | head -n 1"
    result = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert (result.stdout.count("\n"), result.stderr) == (1, "")
    assert (tmp_path / "status").read_text() == "0\n"
    assert [cell["status"] for cell in lines(path)[1:]] == ["ok"] * 3


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("arguments", [("report", "run.jsonl"), ("report", "run.jsonl", "-f", "csv"), ("list",)])
@pytest.mark.usefixtures("measured")
def test_output_that_cannot_be_written_is_one_line_and_status_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "vebench.cli", *arguments],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (result.returncode, result.stderr) == (2, "vebench: standard output: No space left on device\n")


def test_a_run_that_verifies_first_strikes_a_liar_and_says_why(vebench: Callable[..., Result], tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    result = vebench("run", "-e", "CartPole", "-w", "1", "-b", "for-loop,liars:Deaf", *BRIEF, "--verify", "-o", path)
    assert result.status == 0
    assert "CartPole-v1 liars:Deaf different (actions are ignored)" in result.err
    loop, liar = sorted(lines(path)[1:], key=lambda line: str(line["backend"]))
    assert (loop["verdict"], liar["verdict"], liar["verdict_reason"]) == (
        "identical",
        "different",
        "actions are ignored",
    )
    reported = {cell["backend"]: cell for cell in json.loads(vebench("report", path, "-f", "json").out)}
    assert reported["liars:Deaf"]["speedup"] is None
    assert reported["liars:Deaf"]["frames_per_second"] is not None
    assert "other work" in result.out


SETTING = "gym-async[max_concurrency=1]"  # of which no survey knows


def test_what_verify_finds_is_shown_by_runs_from_then_on(vebench: Callable[..., Result], tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    sweep = ("run", "-e", "Acrobot", "-w", "1", "-b", SETTING, *BRIEF)
    vebench(*sweep, "-o", path)
    vebench("verify", "-e", "Acrobot", "-b", SETTING, "--steps", "600", "--num-envs", "1")
    (cell,) = json.loads(vebench("report", path, "-f", "json").out)
    assert cell["verdict"] == "identical"
    assert "identical" in vebench(*sweep, "--dry-run").out


def test_a_folder_for_frames_that_cannot_be_made_is_refused_before_anything_is_compared(
    vebench: Callable[..., Result], tmp_path: Path
) -> None:
    (tmp_path / "frames").write_text("")
    result = vebench("verify", "-e", "CartPole", "-b", "gym-sync", "--save-frames", "frames")
    assert (result.status, result.err) == (
        2,
        "vebench: --save-frames frames: File exists: name a folder that can be written\n",
    )
