"""Kill, stop or interrupt the processes of a run at random, and see what is left.

    python tools/kills.py --trials 100

Each trial starts a run of four cells, interleaved or not, waits for a random time, sends a signal to some of
its processes, and waits until it has ended. It counts as a fault if the run does not end in time, if a process, a
scratch folder or shared memory of it is left (after the next run, where the guardian was killed with the runner), or
if its run file cannot be read. A trial takes about 3 seconds.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path[:0] = [str(TESTS)]  # as pytest has it

from support.leaks import runs, segments
from support.waiting import eventually

from vebench.errors import RunFileError
from vebench.process_guard import sweep
from vebench.results import store

ADAPTERS = TESTS / "adapters"
BACKENDS = "gym-async,shm-sync,faulty:HasWorkers,faulty:HoldsSharedMemory"
RUN = ("-e", "CartPole", "-w", "2", "-b", BACKENDS, "--no-base")
SHORT = ("--duration", "0.1", "--warmup", "0.05", "--windows", "4", "--passes", "1", "--timeout", "60", "-q")
LONGEST_S = 6.0  # a run has ended by then, on a machine that is not too busy
PATIENCE_S = 60.0
KILL, STOP, TERM, HUP, INT = signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGHUP, signal.SIGINT
# What is done to whom: the names of processes, in the order in which they get the signal.
HARM = {
    "runner killed": (KILL, ("runner",)),
    "runner terminated": (TERM, ("runner",)),
    "runner hung up": (HUP, ("runner",)),
    "runner interrupted": (INT, ("runner",)),
    "runner interrupted twice": (INT, ("runner", "runner")),
    "guardian killed": (KILL, ("guardian",)),
    "guardian stopped": (STOP, ("guardian",)),
    "runner, then guardian killed": (KILL, ("runner", "guardian")),
    "guardian, then runner killed": (KILL, ("guardian", "runner")),
    "a cell killed": (KILL, ("cell",)),
    "runner and all cells killed": (KILL, ("runner", "cells")),
}


def main() -> int:
    """Try ``--trials`` times, and print how each kind of harm ended. Returns 1 if anything was left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--harm", choices=HARM, action="append", help="default: all, one after another")
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    faults: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    for number in range(asked.trials):
        kinds = asked.harm or [*HARM]
        harm = kinds[number % len(kinds)]
        tried[harm] += 1
        with tempfile.TemporaryDirectory(prefix="kills-") as folder:
            if found := trial(Path(folder), harm, rng):
                faults[harm] += 1
                print(f"trial {number}: {harm}: {found}", flush=True)
    for harm, count in tried.items():
        print(f"{harm:36} {count:4} tried, {faults[harm]:3} with something left")
    return 1 if faults else 0


def trial(folder: Path, harm: str, rng: random.Random) -> str:
    """Do harm to a run, and return what was wrong afterwards; empty if nothing was."""
    turns = rng.choice(((), ("--no-interleave",)))
    before = segments()
    runner = subprocess.Popen(
        [sys.executable, "-m", "vebench", "run", *RUN, *SHORT, *turns, "-o", "run.jsonl"],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(ADAPTERS)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    time.sleep(rng.uniform(0, LONGEST_S))
    number, whom = HARM[harm]
    victims = [process for name in whom for process in named(name, runner.pid, folder)]
    unguarded = "runner" in whom and {*named("guardian", runner.pid, folder)} <= {*victims}
    for process in victims:
        with suppress(ProcessLookupError):
            os.kill(process, number)
    try:
        runner.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        runner.kill()
        return "it does not end"
    if unguarded:
        eventually(lambda: not [process for process in of_run(folder) if in_a_cell(process)])
        tempfile.tempdir = str(folder)
        eventually(lambda: sweep() or not [*folder.glob("vebench-*")])
        tempfile.tempdir = None
    if not eventually(lambda: not of_run(folder)):
        left = [command(process) for process in of_run(folder)]
        for process in of_run(folder):
            os.kill(process, KILL)
        return f"processes are left: {left}"
    if files := [*folder.glob("vebench-*"), *folder.glob("vebench-*/**/*")]:
        return f"folders are left: {files}"
    if not eventually(lambda: segments() <= before):
        return f"shared memory is left: {segments() - before}"
    try:
        if (folder / "run.jsonl").exists():
            store.read(folder / "run.jsonl")
    except RunFileError as error:
        return str(error)
    return ""


def named(name: str, runner: int, folder: Path) -> list[int]:
    """Return the processes of a run that a kind of harm means."""
    if name == "runner":
        return [runner]
    mark = b"guardian.py" if name == "guardian" else b"vebench.child.main"
    found = [process for process in of_run(folder) if mark in command(process)]
    return found if name.endswith("s") else found[:1]


def of_run(folder: Path) -> list[int]:
    """Return the living processes of the run in ``folder``: all have it in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if runs(int(process.name)) and f"TMPDIR={folder}".encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
    return sorted(found)


def in_a_cell(process: int) -> bool:
    """Return whether a process is in the group of a cell or lookup, and not in one of its own."""
    with suppress(ProcessLookupError):
        return os.getpgid(process) != process
    return False


def command(process: int) -> bytes:
    """Return the command line of a process, after its state, parent, group and session."""
    with suppress(OSError):
        state = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[:4]
        return b" ".join([*state, *Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")])
    return b""


if __name__ == "__main__":
    sys.exit(main())
