"""Measures our own classes beside EnvPool: ``python tools/fast_figures.py FOLDER --env Pong,Hopper``.

For each task and size it runs ``vebench run`` with ``fast-sync`` and ``envpool-sync`` on two CPUs, keeps
the run file in the folder, and prints a row in Markdown: the median over repeats of the ratio of windows that were
measured in turn, and the lowest and highest repeat. What is in the folder already is not measured again. About 3
minutes for a MuJoCo task, 6 for a game, whose 256 environments take 20 s to start.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

# Environments: workers, environments of each.
SIZES = {1: (1, 1), 2: (2, 1), 8: (2, 4), 64: (2, 32), 256: (2, 128)}
OURS, THEIRS = "fast-sync", "envpool-sync"
SETTINGS = "--set base=false --rounds 4 --duration 0.4 --set warmup=0.3 --timeout 240 --quiet"


def main() -> int:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--env", default="Pong,Breakout,Seaquest,HalfCheetah,Ant,Walker2d,Humanoid,Hopper")
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    asked.folder.mkdir(exist_ok=True)
    print(f"| task | {' | '.join(map(str, SIZES))} |\n| --- |{' ---: |' * len(SIZES)}", flush=True)
    for env in asked.env.split(","):
        cells = [ratio(measured(asked.folder / f"{env}-{size}.jsonl", env, size, asked.repeats)) for size in SIZES]
        print(f"| {env} | {' | '.join(cells)} |", flush=True)
    return 0


def measured(path: Path, env: str, size: int, repeats: int) -> list[dict[str, Any]]:
    """Return the cells of a run file, after the run if there is none."""
    if not path.exists():
        workers, each = SIZES[size]
        command = f"-m vebench run --env {env} --workers {workers} --envs-per-worker {each} -b {OURS},{THEIRS}"
        command += f" --repeats {repeats} {SETTINGS} -o {path}"
        subprocess.run([sys.executable, *command.split()], stdout=subprocess.DEVNULL, check=False)
    lines = map(json.loads, path.read_text().splitlines())
    return [line for line in lines if line["type"] == "cell" and line["status"] == "ok"]


def ratio(cells: list[dict[str, Any]]) -> str:
    """Return how many times as fast ours is, with the lowest and the highest repeat."""
    ours, theirs = (
        {cell["repeat"]: rates(cell) for cell in cells if cell["backend"] == name} for name in (OURS, THEIRS)
    )
    found = [
        median(one / other for one, other in zip(ours[repeat], theirs[repeat], strict=False))
        for repeat in ours.keys() & theirs.keys()
    ]
    return f"{median(found):.2f} ({min(found):.2f} to {max(found):.2f})" if found else "-"


def rates(cell: dict[str, Any]) -> list[float]:
    """Return the transitions of each window in a nanosecond."""
    return [(window["rows"] - window["resets"]) / window["ns"] for window in cell["windows"]]


if __name__ == "__main__":
    sys.exit(main())
