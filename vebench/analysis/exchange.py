"""What handing a batch over to other processes or threads takes, and from which step time on that pays. Pure functions.

The share of a plain loop's time that a step takes with a backend is what handing over takes for each step, over the
step time, plus 1 / the environments that step at the same time: a line over 1 / step time. Where it is 1, both are as
fast: that step time is the break-even.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench.analysis.contrasts import contrast
from vebench.analysis.statistics import Error, Estimate
from vebench.backends.registry import REFERENCE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vebench.analysis.cell import CellSummary


@dataclass(frozen=True)
class Exchange:
    """What ``cell`` takes beside the steps of a plain ``loop``, if ``at_once`` of its environments step at a time.

    ``step``: seconds of a step in the loop. ``hand_over``: seconds of a batch, beside steps. ``break_even``: the step
    time in seconds below which the loop is faster. Both may begin at nothing.
    """

    cell: CellSummary
    loop: CellSummary
    at_once: int
    step: float
    hand_over: Estimate
    break_even: Estimate


def exchange(cell: CellSummary, loops: Iterable[CellSummary]) -> Exchange | None:
    """Return what handing over takes a cell, beside that of the ``loops`` which is nearest to it in size.

    One run has one step time, so that the environments that step at a time are taken from the cell's own counts: all
    that its processes and threads lose by waiting for each other counts as handing over. None where nothing is handed
    over, and where environments are not those of the loop.
    """
    at_once = _at_once(cell)
    near = [loop for loop in loops if loop.label == REFERENCE and loop.workers == 1 and loop.steps_per_second]
    if at_once < 2 or not near or not _steps_the_same(cell):  # noqa: PLR2004 - one at a time is a loop
        return None
    loop = min(near, key=lambda loop: abs(loop.num_envs - cell.batch_size))
    share = _share(cell, loop)
    if share is None:
        return None
    step, (value, error) = _step_seconds(loop), share
    taken, half = (value - 1 / at_once) * step, error.half_width() * step  # by handing over, for each step
    per_step = Estimate(max(0.0, taken), max(0.0, taken - half), max(0.0, taken + half))
    return Exchange(
        cell,
        loop,
        at_once,
        step,
        per_step.scaled(cell.batch_size),
        # Where the line crosses 1. It begins at a number that is known, so that the slope alone makes the interval.
        per_step.scaled(1 / (1 - 1 / at_once)),
    )


def _step_seconds(loop: CellSummary) -> float:
    """Return what a step takes in a loop, which is what its user can measure."""
    rate = loop.steps_per_second
    return 1 / rate.median if rate is not None and rate.median > 0 else 0.0


def _share(cell: CellSummary, loop: CellSummary) -> tuple[float, Error] | None:
    """Return the share of the loop's time that a step takes, with its error; None if either has no interval.

    An error of the step time counts as well: by the slope, it becomes one of the share (the effective variance of
    J. Orear, American Journal of Physics 50, 1982).
    """
    share, level = contrast([(1.0, loop.sample), (-1.0, cell.sample)]), contrast([(1.0, loop.sample)])
    if share is None or level is None:
        return None
    value = share.estimate.median
    # The share is a constant plus the part that falls with the step time; of that, all above 1 / CPUs at most.
    falling = max(0.0, value - 1 / max(1, cell.cpus_owned))
    variance = value**2 * share.error.variance + falling**2 * level.error.variance
    return value, Error(variance, share.error.freedom)


def _at_once(cell: CellSummary) -> int:
    at_work = cell.entry.at_work(cell.processes, cell.threads, cell.options)
    return min(at_work, cell.cpus_owned, cell.batch_size)


def _steps_the_same(cell: CellSummary) -> bool:
    return cell.entry.steps_gymnasium and not cell.steps_own_classes
