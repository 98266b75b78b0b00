"""The command beside a shell: signals from a terminal, readers who go away, and disks that are full.

Each is a process of its own, because that is what a terminal sends signals to.
"""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import ONE_PASS, Command
from support.fakes import fake_world
from support.records import write_run
from support.waiting import eventually

from vebench.results.records import Run

BRIEF = ("--duration", "0.05", "--warmup", "0.02", "--windows", "3", "--no-base", *ONE_PASS)
pipe = subprocess.PIPE


def statuses(path: Path) -> list[str]:
    return [json.loads(line)["status"] for line in path.read_text().splitlines()[1:]]


def test_an_interrupted_run_keeps_what_it_has_and_says_how_to_go_on(vebench: Command) -> None:
    path = Path("run.jsonl")
    cells = ("-e", "CartPole", "-w", "1..8", "-b", "null", *BRIEF, "--duration", "0.1")
    with vebench.start("run", *cells, "-o", path, stdout=pipe, stderr=pipe) as process:
        process.stderr.readline()  # the first cell is done
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == 130
    last = err.splitlines()[-1]
    told = rf"vebench: interrupted: [1-3] of 4 cells are in {path}; to continue: vebench run --resume {path}"
    assert re.fullmatch(told, last)
    assert not [line for line in err.splitlines()[:-1] if not line.startswith("[")]
    assert statuses(path)[:1] == ["ok"]


def test_an_interrupt_that_the_parent_ignores_is_ignored(vebench: Command, tmp_path: Path) -> None:
    cells = ("-e", "CartPole", "-w", "1,2", "-b", "null", *BRIEF)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a script's shell does for what it starts with &
    try:
        process = vebench.start("run", *cells, "-o", tmp_path / "run.jsonl", stdout=pipe, stderr=pipe)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        process.stderr.readline()  # the first cell is done
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode in (0, 3)  # 3 where others take the CPU
    assert statuses(tmp_path / "run.jsonl") == ["ok", "ok"]


# One process, since it is its standard output that matters.
EVERY_FORMAT = """
from vebench import __main__, cli
invoke = cli.invoke
formats = ("terminal", "markdown", "json", "html", "csv", "latex")
cli.invoke = lambda _: max(invoke(["report", "a.jsonl", "-f", name]) for name in formats)
__main__.main()
"""


def test_what_has_no_code_is_ascii_everywhere(sweep: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    write_run(tmp_path / "a.jsonl", sweep)
    done = subprocess.run([sys.executable, "-c", EVERY_FORMAT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, done.stdout.isascii()) == (0, "", True)
    assert "+-" in done.stdout.partition("# Throughput")[0]


# In short sleeps: a signal that comes right before a sleep, or to another thread, does not end it.
WAITS = "import pathlib, time; pathlib.Path('here').touch()\nfor _ in range(6000): time.sleep(0.1)"


LOADED = {
    "the command line": ("click", WAITS),
    "what a command needs": ("msgspec", WAITS),
    "a class with generated methods": ("msgspec", f"exec({WAITS!r})"),
    "a callback": (
        "msgspec",
        f"import weakref\nclass A: ...\na = A()\nr = weakref.ref(a, lambda _: exec({WAITS!r}))\ndel a\n{WAITS}",
    ),
}


@pytest.mark.parametrize("what", LOADED)
def test_an_interrupt_while_modules_are_loaded_leaves_no_traceback(
    vebench: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    name, does = LOADED[what]
    (tmp_path / f"{name}.py").write_text(does)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with vebench.start("list", stdout=pipe, stderr=pipe) as process:
        assert eventually(Path("here").exists)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, out, err) == (130, "", "" if name == "click" else "vebench: interrupted\n")


def test_a_reader_that_has_seen_enough_is_no_error(vebench: Command) -> None:
    vebench("run", "-e", "CartPole", "-w", "1", "-b", "null", "-o", "run.jsonl", "-q", world=fake_world())
    result = vebench.shell("vebench report run.jsonl -f json | head -n 1")
    assert (result.out, result.err) == ("[\n", "")


def test_a_reader_that_goes_away_does_not_end_a_run(vebench: Command, tmp_path: Path) -> None:
    run = f"vebench run -e CartPole -w 1,2 -b null {' '.join(BRIEF)} -o run.jsonl"
    result = vebench.shell(f"{{ {run} 2>&1; echo $? > status; }} | head -n 1")
    assert (result.out.count("\n"), result.err) == (1, "")
    assert (tmp_path / "status").read_text() in {"0\n", "3\n"}  # 3 if others had the CPUs meanwhile
    assert statuses(tmp_path / "run.jsonl") == ["ok"] * 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_output_that_cannot_be_written_is_one_line_and_status_2(vebench: Command) -> None:
    with Path("/dev/full").open("w") as full, vebench.start("list", stdout=full, stderr=pipe) as process:
        _, err = process.communicate()
    assert (process.returncode, err) == (2, "vebench: standard output: No space left on device\n")
