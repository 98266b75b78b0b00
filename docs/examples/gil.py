"""Whether threads can replace processes, which depends on how long steps hold Python's lock (the GIL).

    python docs/examples/gil.py passes=5
    python docs/examples/gil.py envs=mymodule:MyEnv-v0 workers=4

Each KEY=VALUE is an argument of vebench.measure.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import vebench

TIMED = "timed:vebench"  # timed.py, next to this file
PLAN = {
    # Steps that hold the lock, steps that work as long without it, and two simulators.
    "envs": [f"{TIMED}/Busy-200us-v0", f"{TIMED}/Native-200us-v0", "HalfCheetah", "Pong"],
    "backends": "for-loop,threads,shm-sync",
    "workers": 2,
    "envs_per_worker": 8,
    "base": False,
    "passes": 3,  # of all alike
}


def main() -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    run = vebench.measure(**{**PLAN, **dict(word.split("=", 1) for word in sys.argv[1:])})
    pairs = []
    for place in dict.fromkeys((cell.env, cell.key.size) for cell in run.cells):
        cells = {cell.label: cell for cell in run.cells if (cell.env, cell.key.size) == place}
        loop, threads, processes = (cells[label] for label in ("for-loop", "threads", "shm-sync"))
        pairs += [(threads, loop), (processes, loop), (threads, processes)]
    for ratio in run.ratios(pairs):
        print(f"{ratio.cell.env}, {ratio.cell.key.size}: {ratio.cell.label} over {ratio.base.label}: {ratio}")
        if ratio.verdict == "faster" and (ratio.cell.label, ratio.base.label) == ("threads", "for-loop"):
            # While one thread holds the lock, all others wait: with a share g of a step under it, threads reach no
            # more than 1 / g times the loop's rate.
            print(f"    at least {1 - 1 / ratio.ratio.low:.0%} of a step is done without the lock")


if __name__ == "__main__":
    main()
