"""Does vebench measure what each library's own loop measures? Both in turn, on the same CPUs; prints the ratios.

``python tools/agree.py [--rounds N] [--envs TASK,...] [--workers N] [BACKEND ...]``, by default every library in
``loops.py`` that is installed here or was set up by ``vebench peers setup``: its loop runs in that interpreter, as its
cells do. A check to be run on a quiet machine, no part of the tests. Rows that only report a reset are counted as steps
on both sides here, as the loops have no way to tell.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from loops import LIBRARIES

from vebench.errors import UsageError
from vebench.plan.pythons import path_of
from vebench.plan.spec import BackendChoice

LOOPS = Path(__file__).with_name("loops.py")
WINDOWS, SECONDS = "3", "1"


def python_for(library: str) -> str:
    """Return the interpreter that has a library. Raises UsageError if none is known by its name."""
    return path_of(BackendChoice(library), {}) or sys.executable


def by_loop(library: str, task: str, workers: int) -> float:
    """Return the median rate that the library's own loop gives, in rows/s."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENCV_FOR_THREADS_NUM": "1"}
    command = [python_for(library), str(LOOPS), library, task, str(workers), WINDOWS, SECONDS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return statistics.median(float(line) for line in done.stdout.splitlines())


def by_vebench(library: str, task: str, workers: int) -> float:
    """Return the median rate that vebench gives, in rows/s."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        arguments = ["-e", task, "-b", library, "-w", str(workers), "--windows", WINDOWS, "--duration", SECONDS]
        plain = ["--set", "base=false", "--passes", "1", "--proof", "off", "--pin", "none", "-q", "-o", str(path)]
        subprocess.run([sys.executable, "-m", "vebench", "run", *arguments, *plain], check=True)
        windows = json.loads(path.read_text().splitlines()[1])["windows"]
    return statistics.median(window["rows"] / window["ns"] * 1e9 for window in windows)


def main() -> None:
    """Print, for each library and task, both medians over the rounds and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--envs", default="Pong,HalfCheetah-v5")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("backends", nargs="*")
    asked = parser.parse_args()
    print(f"steps/s, medians of {asked.rounds} rounds; ratios: of the medians, and the least and greatest of a round")
    print(f"{'task':16} {'library':18} {'own loop':>10} {'vebench':>10} {'ratio':>6}")
    for task in asked.envs.split(","):
        for library in asked.backends or LIBRARIES:
            try:
                rates = both(library, task, asked.workers, asked.rounds)
            except (subprocess.CalledProcessError, UsageError) as error:
                print(f"{task:16} {library:18} not measured: {_why(error)}", flush=True)
                continue
            loop, ours = (statistics.median(side) for side in zip(*rates, strict=True))
            ratios = [ours / loop for loop, ours in rates]
            spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
            print(f"{task:16} {library:18} {loop:10,.0f} {ours:10,.0f} {ours / loop:6.3f}   {spread}", flush=True)


def both(library: str, task: str, workers: int, rounds: int) -> list[tuple[float, float]]:
    """Return the rates of the library's own loop and of vebench in each round; they take turns at being first."""
    pairs = []
    for turn in range(rounds):
        sides = (by_loop, by_vebench) if turn % 2 == 0 else (by_vebench, by_loop)
        rates = {side: side(library, task, workers) for side in sides}
        pairs.append((rates[by_loop], rates[by_vebench]))
    return pairs


def _why(error: Exception) -> str:
    printed = getattr(error, "stderr", None) or str(error)
    return str(printed).strip().rpartition("\n")[2]


if __name__ == "__main__":
    main()
