"""Two runs side by side: by how much one is faster, in each cell, on each task, and each at its best. Pure functions.

The ratios and their intervals are those of ``vebench check``: what two runs as a whole differ by is in the interval. A
check asks whether code became slower, so it takes no cells that own different numbers of CPUs. Here the machines
themselves are compared. Such a cell has a ratio, but does not count in the mean of a task.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vebench.analysis.answer import Doubt, doubt_of
from vebench.analysis.comparison import mean_ratio, prior_run_spread
from vebench.analysis.pairing import DECISIVE, CellComparison, Pair, Sides, doubts, was_skipped
from vebench.analysis.rules import WIDE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.comparison import RunSpread
    from vebench.analysis.pairing import Names
    from vebench.analysis.statistics import Estimate
    from vebench.plan.cells import CellKey

# What two cells must have in common if the machines may differ.
_WORK = tuple(name for name in DECISIVE if name != "cpus_owned")
# Reference rows run on every CPU that they own, whatever that makes of their environments.
FRAMES = ("frame_skip",)


@dataclass(frozen=True)
class Best:
    """The fastest cell of each run, which may be different backends of different sizes, and the ratio of their rates.

    Each is chosen for its rate, so each is a little too high; in the ratio, that mostly cancels.
    """

    one: CellSummary
    other: CellSummary
    ratio: Estimate


@dataclass(frozen=True)
class TaskBeside:
    """One task of both runs, the cells of the first run first, each with its ratio, or why it has none.

    ``mean`` is the geometric mean of the ratios of the cells ``counted``: those of the same backend, size and CPUs in
    both runs, without reference rows. ``lacking`` says in which runs no cell can stand for its best, by 0 and 1.
    """

    env: str
    places: tuple[CellComparison, ...]
    mean: Estimate | None = None
    counted: tuple[CellComparison, ...] = ()
    best: Best | None = None
    lacking: tuple[int, ...] = ()


def beside(
    first: Sequence[CellSummary], second: Sequence[CellSummary], names: Names, *, in_turn: bool
) -> tuple[TaskBeside, ...]:
    """Return the tasks that both runs have, in the order of the first.

    ``in_turn``: the runs are the two sides of one ``vebench compare``, so that what runs differ by as a whole cancels.
    ``names`` are what reasons call the two.
    """
    # What the measuring loop costs is no rate of a task.
    before, after = ({cell.key: cell for cell in cells if cell.loop_ns_per_batch is None} for cells in (first, second))
    spread = None if in_turn else prior_run_spread("fps")
    all_keys = dict.fromkeys((*before, *after))
    keys = [key for key in all_keys if not (was_skipped(before.get(key)) and was_skipped(after.get(key)))]
    places = {key: CellComparison(key, before.get(key), after.get(key), "missing") for key in keys}
    pairs: dict[CellKey, Pair] = {}
    for reference_row, decisive in ((False, _WORK), (True, FRAMES)):
        sides = Sides(before, after, "fps", in_turn, names, decisive)
        common = [key for key in keys if key in before and key in after]
        found = {key: sides.beside(key) for key in common if before[key].reference_row == reference_row}
        known = sides.pairs([key for key, one in found.items() if one.why is None])
        ratios = {key: mean_ratio([pair], spread).estimate for key, pair in known.items()}
        places |= {key: replace(one, ratio=ratios.get(key)) for key, one in found.items()}
        pairs |= {} if reference_row else known
    tasks = dict.fromkeys(cell.env for cell in before.values())
    common_tasks = [env for env in tasks if any(key.env == env for key in after)]
    return tuple(_task(env, [places[key] for key in keys if key.env == env], pairs, spread) for env in common_tasks)


def best_of(cells: Sequence[CellSummary], *, in_turn: bool = False) -> CellSummary | None:
    """Return the fastest of ``cells`` that a ratio can stand on, None if there is none.

    A cell whose interval says nothing is passed over, unless all are like that.
    """
    known = [
        cell
        for cell in cells
        if cell.sample.measurable and doubt_of(cell) in (None, Doubt.UNVERIFIED)
        if not cell.reference_row and not any(doubts(cell, in_turn))
    ]
    precise = [cell for cell in known if cell.half_width is not None and cell.half_width <= WIDE]
    return max(precise or known, key=lambda cell: cell.sample.level, default=None)


def _task(
    env: str, places: Sequence[CellComparison], pairs: Mapping[CellKey, Pair], spread: RunSpread | None
) -> TaskBeside:
    counted = tuple(
        place
        for place in places
        if place.key in pairs and len({cell.cpus_owned for cell in place.cells if cell is not None}) == 1
    )
    mean = mean_ratio([pairs[place.key] for place in counted], spread).estimate if counted else None
    of_runs = [[cell for place in places if (cell := place.cells[run]) is not None] for run in (0, 1)]
    one, other = (best_of(cells, in_turn=spread is None) for cells in of_runs)
    if one is not None and other is not None and one.label != other.label:
        # One that may do other work can be compared with itself, but with no other.
        sure = [[cell for cell in cells if doubt_of(cell) is None] for cells in of_runs]
        one, other = (best_of(cells, in_turn=spread is None) for cells in sure)
    lacking = tuple(run for run, cell in enumerate((one, other)) if cell is None)
    return TaskBeside(env, tuple(places), mean, counted, _best(one, other, pairs, spread), lacking)


def _best(
    one: CellSummary | None, other: CellSummary | None, pairs: Mapping[CellKey, Pair], spread: RunSpread | None
) -> Best | None:
    """Return the best cells with their ratio; if they are the same cell, it is the ratio of its place."""
    if one is None or other is None or one.frame_skip != other.frame_skip:
        return None
    if one.key == other.key:
        pair = pairs.get(one.key)
    else:
        pair = Pair(((1.0, other.sample), (-1.0, one.sample)), (one.sample.level, other.sample.level))
    return None if pair is None else Best(one, other, mean_ratio([pair], spread).estimate)
