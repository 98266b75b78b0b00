"""The next pass of a run whose plan does not fit its budget: the cells that decide most come first. Pure functions.

The first pass has all backends with up to twice as many workers as CPUs. More workers of a backend follow while the
backend may be the fastest, or while its rate still rises. Passes go on until the best rates are settled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import log

from vebench.analysis.answer import may_win
from vebench.analysis.cell import CellSummary, Curve, curves, of_key
from vebench.analysis.summary import next_repeats, rated, wide_cells
from vebench.backends.registry import YARDSTICK
from vebench.plan.cells import Cell, CellKey, Plan, shuffled, time_planned, too_much_memory
from vebench.plan.spec import PASSES_OF_ALL
from vebench.results.records import CellRecord, Run

_NANO = 1e-9
_SETTLED = 6  # passes of the best cells, so that the intervals of their rates are useful
_RISING = 1.03  # a rate rises if it exceeds the rates of fewer workers by this factor
_SIZES = 2  # the number of sizes of a backend that later passes repeat


def next_cells(plan: Plan, run: Run, left: float, memory: int | None) -> tuple[Cell, ...]:
    """Return the cells of the next pass of ``plan``, empty if no useful cell fits into ``left`` seconds.

    Cells that need more than ``memory`` bytes, as far as smaller cells show, are skipped. None: memory is unknown.
    """
    if left <= 0:
        return ()
    planned = {cell.key.without_repeat: cell for cell in plan.cells}
    tried = {record.key.without_repeat for record in run.cells if not record.broken_off}
    chosen = [cell for key, cell in _early(planned, run).items() if key not in tried]
    if not chosen:
        chosen = _chosen(planned, run, left, memory)
    number = 1 + max((record.repeat for record in run.cells), default=-1)
    return tuple(shuffled([replace(cell, repeat=number) for cell in chosen], plan.spec.seed, number))


def _early(planned: Mapping[CellKey, Cell], run: Run) -> dict[CellKey, Cell]:
    """Return the cells of the first pass, which has one count of workers, and more within half of the budget.

    The counts are those nearest to the CPUs, then one worker, then the others up to twice the CPUs.
    """
    spec, cpus = run.header.spec, run.header.usable_cpus
    counts = sorted({key.workers for key in planned})
    nearest = min(counts, key=lambda count: abs(log(count / cpus)))
    usual = (count for count in reversed(counts) if count <= 2 * cpus)
    chosen: dict[CellKey, Cell] = {}
    for count in dict.fromkeys((nearest, counts[0], *usual)):
        # Cells that cannot run take no time.
        more = {key: cell for key, cell in planned.items() if key.workers == count or cell.skip is not None}
        if chosen and time_planned((chosen | more).values(), spec).total > spec.budget / 2:
            break
        chosen |= more
    return chosen


def _chosen(planned: Mapping[CellKey, Cell], run: Run, left: float, memory: int | None) -> list[Cell]:
    """Return the cells that fit into ``left`` seconds, those that decide most first, and the bases of their tasks."""
    cells, costs, spec = rated(run), Costs(planned, run), run.header.spec
    again = next_repeats(run).keys() & planned.keys()
    alive = may_win(cells, look=1 + max(record.repeat for record in run.cells))
    best = [cell.key for cell in _best(cells, alive) if cell.key in again and _is_unsettled(cell, run, alive)]
    larger = _larger(curves(cells), alive, planned, costs)
    by_rate = sorted(cells, key=lambda cell: (cell.reference_row, -cell.rate))
    fewest = min(PASSES_OF_ALL, spec.passes)
    once = [cell.key for cell in by_rate if cell.repeats < fewest and cell.key in again]
    bases = [key for key in again if planned[key].is_base or planned[key].backend.name == YARDSTICK]
    left -= costs.sum(bases)
    for_best = costs.sum(best)  # after a larger cell, there must be time to repeat the best cells
    chosen: dict[CellKey, Cell] = {}
    for key in dict.fromkeys((*best, *larger, *once)):
        cell, cost = planned[key], costs.seconds(key)
        needed = costs.bytes(key) if key in larger else 0
        if memory is not None and needed > memory:
            chosen[key] = replace(cell, skip=too_much_memory(needed, memory))
        elif cost <= left - (for_best if key in larger else 0):
            chosen[key] = cell
            left -= cost
    tasks = {key.env for key in chosen}
    return [*({key: planned[key] for key in bases if key.env in tasks} | chosen).values()]


def _is_unsettled(cell: CellSummary, run: Run, alive: Collection[tuple[str, str]]) -> bool:
    """Return whether more passes of one of the best cells are useful."""
    spec = run.header.spec
    if spec.until is not None:
        return cell.key in wide_cells(run, spec.until)
    undecided = sum(env == cell.env for env, _ in alive) > 1
    return (spec.race and undecided) or cell.repeats < (_SETTLED if spec.race else spec.passes)


def _best(cells: Sequence[CellSummary], alive: Collection[tuple[str, str]]) -> list[CellSummary]:
    """Return the fastest sizes of each backend that may win, given as task and label."""
    found = []
    for env, label in sorted(alive):
        own = [cell for cell in cells if (cell.env, cell.label) == (env, label)]
        found += sorted(own, key=lambda cell: -cell.rate)[:_SIZES]
    return found


def _larger(
    known: Iterable[Curve], alive: Collection[tuple[str, str]], planned: Mapping[CellKey, Cell], costs: Costs
) -> list[CellKey]:
    """Return the next size of each backend that may win or whose rate still rises; first come backends with both."""
    found = []
    for curve in known:
        last = curve[-1]
        more = [key for key in planned if of_key(key) == of_key(last.key) and key.workers > last.workers]
        if not more or last.status != "ok" or last.reference_row:
            continue
        following = min(more, key=lambda key: key.workers)
        wins = (last.env, last.label) in alive
        rises = last.rate > _RISING * max((cell.rate for cell in curve[:-1]), default=0.0)
        if wins or rises:
            found.append((not (wins and rises), not wins, costs.seconds(following), following))
    return [key for *_, key in sorted(found)]


class Costs:
    """The time and memory of planned cells, from records of the same cell or of fewer environments."""

    def __init__(self, planned: Mapping[CellKey, Cell], run: Run) -> None:
        self._planned = planned
        # The last good record of each size, by the backend, then by the number of environments.
        self._known: dict[tuple[str, str], dict[int, CellRecord]] = {}
        for record in run.cells:
            if record.status == "ok":
                self._known.setdefault((record.env, record.label), {})[record.num_envs] = record

    def sum(self, keys: Iterable[CellKey]) -> float:
        """Return the seconds of all these cells."""
        return sum(map(self.seconds, keys))

    def seconds(self, key: CellKey) -> float:
        """Return the seconds of a pass of the cell. Its start takes longer in proportion to its environments."""
        size = self._planned[key].shape.num_envs
        last = self._smaller(key)[-1]
        start = (last.startup_ns or 0) + (last.reset_ns or 0)
        proof = last.proof.seconds or 0.0 if last.proof else 0.0
        return _NANO * ((last.took_ns or 0) + start * (size / last.num_envs - 1)) + proof

    def bytes(self, key: CellKey) -> int:
        """Return the memory of the cell, on the line through two smaller sizes; 0 if it is unknown."""
        size = self._planned[key].shape.num_envs
        known = [(one.num_envs, one.peak_rss_bytes) for one in self._smaller(key) if one.peak_rss_bytes is not None]
        if len(known) < 2:  # noqa: PLR2004 - a line has two points
            return 0
        (first, less), (second, more) = known[-2:]
        return round(more + max(0, more - less) * (size - second) / (second - first))

    def _smaller(self, key: CellKey) -> list[CellRecord]:
        """Return the records of the cell's backend with at most its environments, sorted by their number."""
        size = self._planned[key].shape.num_envs
        return [one for count, one in sorted(self._known[key.env, key.backend].items()) if count <= size]
