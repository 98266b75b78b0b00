"""Does vebench measure what each library's own loop measures? Both in turn, on the same CPUs; prints the ratios.

``python tests/peers/agree.py [ROUNDS]``. A check to be run on a quiet machine, no part of the tests. Rows that only
report a reset are counted as steps on both sides here, as the loops have no way to tell.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LOOPS = Path(__file__).with_name("loops.py")
WORKERS, WINDOWS, SECONDS = "2", "3", "1"


def by_loop(library: str, task: str) -> float:
    """Return the median rate that the library's own loop gives, in rows/s."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENCV_FOR_THREADS_NUM": "1"}
    command = [sys.executable, str(LOOPS), library, task, WORKERS, WINDOWS, SECONDS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return statistics.median(float(line) for line in done.stdout.splitlines())


def by_vebench(library: str, task: str) -> float:
    """Return the median rate that vebench gives, in rows/s."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        arguments = ["-e", task, "-b", library, "-w", WORKERS, "--rounds", WINDOWS, "--duration", SECONDS]
        subprocess.run(
            [sys.executable, "-m", "vebench", "run", *arguments, "--no-base", "-q", "-o", str(path)], check=True
        )
        windows = json.loads(path.read_text().splitlines()[1])["windows"]
    return statistics.median(window["rows"] / window["ns"] * 1e9 for window in windows)


def main(rounds: int = 5) -> None:
    """Print, for each library and task, both medians over ``rounds`` and their ratio."""
    print(f"{'task':16} {'library':14} {'own loop':>10} {'vebench':>10} {'ratio':>6}   steps/s, median of {rounds}")
    for task in ("Pong", "HalfCheetah-v5"):
        for library in ("gym-sync", "gym-async", "envpool-sync", "envpool-async"):
            pairs = []
            for turn in range(rounds):
                sides = (by_loop, by_vebench) if turn % 2 == 0 else (by_vebench, by_loop)
                rates = {side: side(library, task) for side in sides}
                pairs.append((rates[by_loop], rates[by_vebench]))
            loop, ours = (statistics.median(side) for side in zip(*pairs, strict=True))
            print(f"{task:16} {library:14} {loop:10,.0f} {ours:10,.0f} {ours / loop:6.3f}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
