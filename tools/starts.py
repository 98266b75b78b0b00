"""Do forked cells measure what cells in fresh interpreters measure? Ten passes of each in turn; prints their ratios.

``python tools/starts.py [--pairs N] [--envs TASK,...] [BACKEND ...]``. The ratio of a backend's rates, forked to fresh,
is the geometric mean over pairs of passes, with its 95 % t interval; beside it the standard deviations over passes of
the logarithm of the rate, forked and fresh. A check to be run on a quiet machine, no part of the tests.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from vebench.analysis.statistics import student_quantile

BACKENDS = ("for-loop", "gym-sync", "gym-async", "shm-sync", "fast-sync", "fast-async", "envpool-sync", "null")
PLAIN = (
    "--windows",
    "4",
    "--duration",
    "0.3",
    "--passes",
    "1",
    "--proof",
    "off",
    "--set",
    "base=false",
    "-w",
    "1,2",
    "-q",
)


def one_pass(task: str, backends: list[str], isolation: str) -> dict[str, float]:
    """Return the logarithm of each cell's median rate in a pass."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        named = ["-e", task, "-b", ",".join(backends), "--isolation", isolation, "-o", str(path)]
        subprocess.run([sys.executable, "-m", "vebench", "run", *named, *PLAIN], check=False)
        cells = [cell for cell in map(json.loads, path.read_text().splitlines()) if cell["type"] == "cell"]
    return {
        f"{cell['backend']} {cell['workers']}": math.log(
            statistics.median(window["rows"] / window["ns"] for window in cell["windows"])
        )
        for cell in cells
        if cell["windows"]
    }


def main() -> None:
    """Print a line for each cell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--envs", default="CartPole,Pong")
    parser.add_argument("backends", nargs="*")
    asked = parser.parse_args()
    print("| task | backend, workers | forked / fresh | spread forked | spread fresh |")
    print("| --- | --- | ---: | ---: | ---: |")
    for task in asked.envs.split(","):
        rates: dict[str, dict[str, list[float]]] = defaultdict(lambda: {"fork": [], "fresh": []})
        for turn in range(asked.pairs):
            for isolation in ("fork", "fresh") if turn % 2 else ("fresh", "fork"):
                for name, rate in one_pass(task, asked.backends or [*BACKENDS], isolation).items():
                    rates[name][isolation].append(rate)
        for name, sides in rates.items():
            ratios = [forked - fresh for forked, fresh in zip(sides["fork"], sides["fresh"], strict=True)]
            mean, spread = statistics.mean(ratios), statistics.stdev(ratios)
            half = student_quantile(0.975, len(ratios) - 1) * spread / math.sqrt(len(ratios))
            interval = f"{math.exp(mean):.3f} [{math.exp(mean - half):.3f}, {math.exp(mean + half):.3f}]"
            forked, fresh = (f"{statistics.stdev(sides[side]):.1%}" for side in ("fork", "fresh"))
            print(f"| {task} | {name} | {interval} | {forked} | {fresh} |", flush=True)


if __name__ == "__main__":
    main()
