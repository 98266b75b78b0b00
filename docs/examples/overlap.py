"""Whether environments should step while the policy acts: none of them, or all that are not ready.

    python docs/examples/overlap.py policy=sleep:1ms
    python docs/examples/overlap.py policy=mlp:64x64 workers=4 passes=4
    python docs/examples/overlap.py envs=Pong policy=nature-cnn

Each KEY=VALUE is an argument of vebench.measure.
"""

from __future__ import annotations

import sys

import vebench

# With twice as many environments for each worker, those that wait for all have as many alive as the others.
WAITING = ("shm-sync", "envpool-sync")
PLAN = {
    "envs": "HalfCheetah",
    "backends": [*WAITING, "shm-async", "envpool-async[ratio=2]"],
    "workers": 2,
    "envs_per_worker": [8, 16],
    "policy": "sleep:1ms",
    "base": False,
    "passes": 3,  # of all alike
}


def main() -> None:
    run = vebench.measure(**{**PLAN, **dict(word.split("=", 1) for word in sys.argv[1:])})
    pairs = [
        (cell, base)
        for cell in run.cells
        for base in run.cells
        if cell.label not in WAITING
        and base.label in WAITING
        and (base.env, base.built.num_envs) == (cell.env, cell.built.num_envs)
        and base.backend.partition("-")[0] == cell.backend.partition("-")[0]  # of the same library
    ]
    for ratio in run.ratios(pairs):
        cell, base = ratio.cell, ratio.base
        print(f"{cell.env}, {cell.built.num_envs} alive, {cell.label} over {base.label}: {ratio}")
        if cell.figures.acting and base.figures.acting:
            before, after = base.figures.acting.waiting, cell.figures.acting.waiting
            print(
                f"    the policy waits {after:.0%} of the time, before {before:.0%}: if neither waited for the other, "
                f"it would be {1 / max(before, 1 - before):.2f}x; rows are {cell.figures.acting.age:.1f} actions old"
            )


if __name__ == "__main__":
    main()
