"""Whether it pays to receive a partial batch after a short time, instead of waiting for all environments.

    python docs/examples/timeout.py policy=sleep:1ms
    python docs/examples/timeout.py policy=mlp:1024x1024x1024 passes=5
    python docs/examples/timeout.py envs=Pong policy=nature-cnn

Each KEY=VALUE is an argument of vebench.measure.
"""

from __future__ import annotations

import sys

import vebench

TIMEOUT = "recv_timeout"
SECONDS = ("0.0001", "0.001", "0.1")
PLAN = {
    "envs": "HalfCheetah",
    # All environments are in a whole batch, so that as many are alive with a timeout as without.
    "backends": [
        "shm-async[ratio=1]",
        *(f"shm-async[ratio=1,{TIMEOUT}={seconds}]" for seconds in SECONDS),
    ],
    "workers": 2,
    "envs_per_worker": [20, 400],
    "policy": "sleep:1ms",
    "base": False,
    "passes": 3,  # of all alike
}


def main() -> None:
    run = vebench.measure(**{**PLAN, **dict(word.split("=", 1) for word in sys.argv[1:])})
    whole = {
        (cell.backend, cell.env, cell.built.num_envs): cell
        for cell in run.cells
        if TIMEOUT not in cell.built.choice.options
    }
    hasty = [cell for cell in run.cells if TIMEOUT in cell.built.choice.options]
    for ratio in run.ratios((cell, whole[cell.backend, cell.env, cell.built.num_envs]) for cell in hasty):
        cell, base = ratio.cell, ratio.base
        print(f"{cell.env}, {cell.key.size}, {cell.label}: {ratio}")
        if cell.figures.acting and base.figures.acting:
            rows = cell.figures.rows_per_batch or cell.built.batch_size
            print(
                f"    the policy waits {cell.figures.acting.waiting:.0%} of the time, without the timeout "
                f"{base.figures.acting.waiting:.0%}; it acts on {rows:.0f} of {cell.built.num_envs} rows at a time"
            )


if __name__ == "__main__":
    main()
