"""From which step time on processes are faster than a loop, although they take time to hand batches over.

    python docs/examples/exchange.py
    python docs/examples/exchange.py workers=4 envs_per_worker=1,16 passes=5

Each KEY=VALUE is an argument of vebench.measure. The environments work in Python for a stated time in each step.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import vebench

TIMED = "timed:vebench/Busy-{}us-v0"  # timed.py, next to this file
PLAN = {
    "envs": [TIMED.format(microseconds) for microseconds in (5, 20, 50, 200, 1000)],
    "backends": "for-loop,gym-sync,gym-async,shm-sync,torch-mp,queue,threads",
    "workers": 2,
    "envs_per_worker": [1, 8],
    "duration": 0.3,
    "warmup": 0.3,
    "base": False,
    "passes": 3,  # of all alike
}


def microseconds(ratio: vebench.Ratio) -> float:
    """Return what a step of one environment takes in a plain loop."""
    return 1e6 / ratio.base.figures.steps_per_second.median


def break_even(ratios: list[vebench.Ratio]) -> str:
    """Return from which step time on a backend is faster than the loop, given its ratios by step time."""
    slower = [microseconds(ratio) for ratio in ratios if ratio.verdict != "faster"]
    faster = [microseconds(ratio) for ratio in ratios if not slower or microseconds(ratio) > max(slower)]
    if not faster:
        return f"not faster at any step time up to {max(slower):.0f} µs"
    above = f"above {max(slower):.0f} µs and " if slower else ""
    return f"faster {above}at {min(faster):.0f} µs and more"


def main() -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    run = vebench.measure(**{**PLAN, **dict(word.split("=", 1) for word in sys.argv[1:])})
    loops = {(cell.env, cell.built.num_envs): cell for cell in run.cells if cell.label == "for-loop"}
    others = [cell for cell in run.cells if cell.label != "for-loop"]
    # Each backend relative to a loop over as many environments, on as many CPUs.
    found = run.ratios((cell, loops[cell.env, cell.built.num_envs]) for cell in others)
    for label, size in dict.fromkeys((cell.label, cell.key.size) for cell in others):
        ratios = [ratio for ratio in found if (ratio.cell.label, ratio.cell.key.size) == (label, size)]
        known = sorted((ratio for ratio in ratios if ratio.ratio is not None), key=microseconds)
        print(f"{label}, {size}: {break_even(known) if known else ratios[0]}")
        for ratio in known:
            print(f"    {microseconds(ratio):.0f} µs: {ratio}")


if __name__ == "__main__":
    main()
