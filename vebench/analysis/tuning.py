"""What a race between settings answers: which to use, which do as well, and what training gains. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench.analysis.acting import learning
from vebench.analysis.answer import doubt_of
from vebench.analysis.contrasts import contrast, ratio
from vebench.analysis.racing import FEWEST_PASSES
from vebench.analysis.statistics import FEWEST_FOR_INTERVAL
from vebench.backends.registry import ENTRIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vebench.analysis.answer import Doubt
    from vebench.analysis.cell import CellSummary
    from vebench.analysis.statistics import Estimate
    from vebench.child.answers import Timed
    from vebench.plan.spec import LearnerStep

# Resets are met as often as in the long run in windows that hold so many episodes of each environment.
EPISODES = 2
# What a user has already comes before what he would have to add: the registry begins with Gymnasium's own.
SIMPLEST_FIRST = {entry.name: rank for rank, entry in enumerate(ENTRIES)}


@dataclass(frozen=True)
class Rival:
    """A cell beside the one that is chosen: its rate over that one's, None if it has none, and why it is in doubt.

    ``too_large``: it takes more memory than it may.
    """

    cell: CellSummary
    ratio: Estimate | None
    doubt: Doubt | None
    too_large: bool = False


@dataclass(frozen=True)
class Choice:
    """What to use: ``chosen``, None if nothing can be offered. ``fastest`` has the highest rate of those not in doubt.

    They differ where something simpler cannot be told from the fastest, and cannot be slower by more than the
    tolerance. ``decided``: nothing that was tried is faster than the fastest by more than the tolerance, beyond doubt.
    ``rivals``: the best cell of each other backend, the fastest first. ``tied``: those that do as well as the fastest,
    as far as is known, without the one that is chosen, the simplest first.
    """

    chosen: CellSummary | None
    fastest: CellSummary | None
    decided: bool
    rivals: tuple[Rival, ...]
    tied: tuple[CellSummary, ...] = ()


@dataclass(frozen=True)
class Latency:
    """How long a batch is waited for by a caller that acts at once: the median, and what 99 of 100 do not exceed."""

    p50_ns: int
    p99_ns: int


@dataclass(frozen=True)
class Bend:
    """A cell like the one that is chosen but for one number: ``share`` is its rate over that one's."""

    cell: CellSummary
    share: float


def choose(cells: Sequence[CellSummary], tolerance: float, *, decided: bool, memory: int | None = None) -> Choice:
    """Return what to use of the cells of one task. ``decided``: see ``Choice``; a race says so.

    What was seen to take more than ``memory`` bytes is not chosen, whatever was planned.
    """
    rated = sorted((cell for cell in cells if not cell.reference_row and _rate(cell)), key=_rate, reverse=True)
    sure = [cell for cell in rated if doubt_of(cell) is None and not too_large(cell, memory)]
    if not sure:
        return Choice(None, None, decided=False, rivals=tuple(_rivals(rated, None, memory)))
    enough = min(FEWEST_PASSES, max(cell.repeats for cell in sure))  # a race may be decided before that
    fastest = next(cell for cell in sure if cell.repeats >= enough)
    known = [cell for cell in sure if cell.repeats >= max(enough, FEWEST_FOR_INTERVAL) or cell is fastest]
    chosen, *tied = sorted(
        (cell for cell in known if cell is fastest or _as_good(cell, fastest, tolerance)),
        key=lambda cell: (SIMPLEST_FIRST.get(cell.backend, len(SIMPLEST_FIRST)), bool(cell.options), -_rate(cell)),
    )
    return Choice(chosen, fastest, decided, tuple(_rivals(rated, chosen, memory)), tuple(tied))


def bends(cells: Iterable[CellSummary], chosen: CellSummary) -> tuple[list[Bend], list[Bend]]:
    """Return what other numbers of workers reach, and other numbers of environments for each, the most first.

    Point estimates: they show where a curve bends, and decide nothing.
    """
    rest = [cell for cell in cells if cell.label == chosen.label and cell.key != chosen.key and _rate(cell)]
    workers = [cell for cell in rest if cell.envs_per_worker == chosen.envs_per_worker]
    envs = [cell for cell in rest if cell.workers == chosen.workers]
    return (
        [_bend(cell, chosen) for cell in sorted(workers, key=lambda cell: -cell.workers)],
        [_bend(cell, chosen) for cell in sorted(envs, key=lambda cell: -cell.envs_per_worker)],
    )


@dataclass(frozen=True)
class MissedResets:
    """What windows that are shorter than episodes leave out: the resets.

    ``share``: how much of an environment's time its resets take in the long run, at the most. ``seconds``: how long a
    window would have to be to hold ``EPISODES`` of each environment, at the least if no episode's end was seen.
    """

    share: float
    seconds: float


def missed_resets(steps: Timed, cell: CellSummary, tolerance: float) -> MissedResets | None:
    """Return what the windows of a cell miss of the resets; None if those are met, or take less than the tolerance."""
    length = steps.steps / max(1, steps.ends)
    share = steps.reset_p50_ns / (steps.reset_p50_ns + length * steps.step_p50_ns)
    seen = cell.rows / cell.num_envs / max(1, cell.repeats)  # of each environment: every pass begins anew
    if share <= tolerance or seen >= EPISODES * length or cell.steps_per_second is None:
        return None
    return MissedResets(share, EPISODES * length * cell.num_envs / cell.steps_per_second.median)


def _bend(cell: CellSummary, chosen: CellSummary) -> Bend:
    return Bend(cell, _rate(cell) / _rate(chosen))


def training_gain(chosen: CellSummary, loop: CellSummary, learner: LearnerStep | None) -> float | None:
    """Return how many times as fast training is as it would be with a plain loop; None without a learner."""
    one = learning(learner, chosen.steps_per_second, chosen.batch_size)
    other = learning(learner, loop.steps_per_second, chosen.batch_size)
    return None if one is None or other is None else one.steps_per_second / other.steps_per_second


def _as_good(cell: CellSummary, fastest: CellSummary, tolerance: float) -> bool:
    """Return whether a cell's rate is within the tolerance of the fastest's, and not beyond doubt lower."""
    found = contrast([(1.0, cell.sample), (-1.0, fastest.sample)])
    if found is None:
        return False
    estimate = found.estimate
    return estimate.median >= 1 - tolerance and estimate.high is not None and estimate.high >= 1


def too_large(cell: CellSummary, memory: int | None) -> bool:
    """Return whether a cell was seen to take more than ``memory`` bytes."""
    return memory is not None and cell.peak_rss_bytes is not None and cell.peak_rss_bytes > memory


def _rivals(cells: Iterable[CellSummary], chosen: CellSummary | None, memory: int | None) -> Iterable[Rival]:
    seen = set() if chosen is None else {chosen.label}
    for cell in cells:
        if cell.label not in seen:
            seen.add(cell.label)
            beside = None if chosen is None else ratio(cell.sample, chosen.sample)
            yield Rival(cell, beside, doubt_of(cell), too_large(cell, memory))


def _rate(cell: CellSummary) -> float:
    return cell.frames_per_second.median if cell.frames_per_second else 0.0
