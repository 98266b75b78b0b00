"""What it costs a measured cell that batches of it are recorded: pairs of windows, with a recorder and without one.

    python tools/recording_cost.py --env Pong -b fast-sync --envs 8 --pairs 30

Both windows of a pair are of one process and one backend, in random order, so that whatever slows the machine slows
both. It prints the loss of rate as the median over pairs with a 95 % interval (of a sign test), and how much of the
windows was spent in keeping, as counted by a clock around it.
"""

from __future__ import annotations

import argparse
import os
import time
from functools import partial
from random import Random
from statistics import median
from typing import Any

import numpy as np

from vebench.backends import registry
from vebench.backends.interface import Setup
from vebench.child.actions import Tape, action_tape
from vebench.child.cell import build
from vebench.child.equality.recorder import MOMENTS_PER_SECOND, Recorder
from vebench.child.loop import Loop
from vebench.child.main import load
from vebench.child.request import Recording, Request, Settings
from vebench.plan.tasks import resolve

SIGMAS = 0.98  # half the width of the interval of a median, in square roots of the number of pairs


class Timed(Recorder):
    """A recorder that counts the time of what it does at moments."""

    spent = 0

    def keep(self, number: int, arrays: tuple[Any, ...], *, counts: bool = False) -> None:
        """Keep a batch."""
        before = time.perf_counter_ns()
        super().keep(number, arrays, counts=counts)
        self.spent += time.perf_counter_ns() - before


def main() -> None:
    """Measure what the command line asks for, and print a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="Pong")
    parser.add_argument("-b", "--backend", default="fast-sync")
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=0.5)
    asked = parser.parse_args()
    workers = min(asked.workers, asked.envs)
    cpus = tuple(sorted(os.sched_getaffinity(0)))[:workers]
    (task,) = resolve((asked.env,))
    setup = Setup(task, workers, asked.envs // workers, cpus)
    settings = Settings(asked.seconds, 1, 0.0, 0.0, 300.0, "local")
    target = registry.find(asked.backend).target
    backend, first, _ = build(Request(setup, asked.backend, target, {}, settings, "/"), load(target))
    tape = action_tape(backend.info.action_space, 0, backend.info.batch_size)
    recorder = Timed(backend, first, (0, 0), Recording("", int.from_bytes(os.urandom(7), "big")))
    loop = Loop(backend, Tape(tape), time.perf_counter_ns, recorder)
    span = int(asked.seconds * 1e9)
    pace = loop.warm_up(span, span)
    window = partial(measured, loop, recorder, span, pace, max(1, round(MOMENTS_PER_SECOND * min(1.0, asked.seconds))))
    order, losses, spent = Random(1), [], []  # noqa: S311 - any order will do
    for _ in range(asked.pairs):
        rates = {}
        for recording in order.sample((True, False), 2):
            rates[recording], share = window(recording=recording)
            if recording:
                spent.append(share)
        losses.append(1 - rates[True] / rates[False])
    backend.close()
    ordered, half = sorted(losses), round(SIGMAS * len(losses) ** 0.5)
    middle = len(ordered) // 2
    low, high = ordered[max(0, middle - half)], ordered[min(len(ordered) - 1, middle + half)]
    print(
        f"{asked.env:12} {asked.backend:14} {asked.envs:4} envs  loss {median(losses):+.3%} [{low:+.3%}, {high:+.3%}]  "
        f"keeping takes {np.mean(spent):.3%} of a window"
    )


def measured(  # noqa: PLR0913 - what a window depends on
    loop: Loop, recorder: Timed, span: int, pace: int, moments: int, *, recording: bool
) -> tuple[float, float]:
    """Return rows per second of a window, and the share of it that keeping took."""
    loop._recorder = recorder if recording else None  # noqa: SLF001 - it is what is compared
    recorder._moments, recorder.copies.nbytes = 0, 0  # noqa: SLF001 - as at the start
    recorder._kept.clear()  # noqa: SLF001
    recorder.expect(moments)
    recorder.spent = 0
    loop.run_for(span // 10, pace)
    stretch = loop.run_for(span, pace)
    return stretch.rows / stretch.ns, recorder.spent / stretch.ns


if __name__ == "__main__":
    main()
