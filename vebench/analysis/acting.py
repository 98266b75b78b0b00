"""What a policy in the loop changes: where the time goes, how long a batch is waited for, and whether sampling matters.

Pure functions of raw counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.analysis.statistics import Estimate
    from vebench.child.window import Window
    from vebench.plan.spec import LearnerStep


@dataclass(frozen=True)
class Acting:
    """Where the time of a loop with a policy went, over the windows that count.

    ``waiting``, ``inference`` and ``copies`` are shares of the wall time, 0 to 1; ``counting`` is what they leave out.
    ``latency_p50_ns`` and ``latency_p99_ns``: from the actions of a batch to the next batch, the median over windows.
    ``age``: how often the policy acted between choosing an action and getting its row, the mean over rows; 0 if every
    action is answered by the next batch.
    """

    waiting: float
    inference: float
    copies: float
    latency_p50_ns: float
    latency_p99_ns: float
    age: float

    @property
    def counting(self) -> float:
        """The share of the time in which the loop counts rows, and notes what is compared later."""
        return max(0.0, 1 - self.waiting - self.inference - self.copies)


@dataclass(frozen=True)
class BatchSizes:
    """How many rows batches had, where they may have fewer than others: the mean, and those of most batches.

    ``few`` and ``many``: 5 % of batches have fewer, or more; the medians over windows.
    """

    mean: float
    few: float
    median: float
    many: float


@dataclass(frozen=True)
class Learning:
    """A learner that takes a stated time, after each batch or some number of steps, while nothing is sampled.

    ``sampling``: the share of the whole that sampling takes, 0 to 1. ``steps_per_second``: of the whole. ``at_most``:
    how many times faster the whole would be if sampling took no time at all (Amdahl's law).
    """

    sampling: float
    steps_per_second: float
    at_most: float


def acting(windows: Sequence[Window]) -> Acting | None:
    """Return where the time went, None if no policy acted."""
    known = [window for window in windows if window.waited_ns is not None]
    if not known:
        return None
    span = sum(window.ns for window in known)
    rows = sum(window.rows for window in known)
    return Acting(
        waiting=sum(window.waited_ns or 0 for window in known) / span,
        inference=sum(window.inferred_ns or 0 for window in known) / span,
        copies=sum(window.copied_ns or 0 for window in known) / span,
        latency_p50_ns=median(window.latency_p50_ns or 0 for window in known),
        latency_p99_ns=median(window.latency_p99_ns or 0 for window in known),
        age=sum(window.aged or 0 for window in known) / max(1, rows),
    )


def batch_sizes(windows: Sequence[Window]) -> BatchSizes | None:
    """Return how many rows batches had, None if all have the same."""
    known = [window for window in windows if window.batches]
    if not known:
        return None
    return BatchSizes(
        mean=sum(window.rows for window in known) / sum(window.batches or 0 for window in known),
        few=median(window.rows_p5 or 0 for window in known),
        median=median(window.rows_p50 or 0 for window in known),
        many=median(window.rows_p95 or 0 for window in known),
    )


def learning(learner: LearnerStep | None, rate: Estimate | None, batch_size: int) -> Learning | None:
    """Return what a learner makes of sampling at ``rate``, in steps per second; None if there is no learner or rate."""
    if learner is None or rate is None or rate.median <= 0:
        return None
    steps = learner.steps or batch_size
    sampled = steps / rate.median
    whole = sampled + learner.seconds
    return Learning(sampled / whole, steps / whole, whole / learner.seconds)
