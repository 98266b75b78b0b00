"""The next pass of a run whose plan does not fit its budget: the cells that decide most come first. Pure functions.

The first pass has all backends, with one worker and with about as many workers as CPUs, and with other counts if there
is time. More workers of a backend follow while its rate rises, first of the backends near the highest rate. The fastest
cells get passes until no other backend may be faster, and other cells get the rest of the time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import log

from vebench.analysis.answer import fastest_first, first_of_each, may_win
from vebench.analysis.cell import CellSummary, Curve, curves, of_key
from vebench.analysis.summary import is_wide, next_repeats, rated
from vebench.plan.cells import AROUND_S, Cell, CellKey, Plan, interleaved, shuffled, time_planned, too_much_memory
from vebench.plan.spec import MAX_PASSES, PASSES_OF_ALL, RunSpec
from vebench.results.records import CellRecord, Run

_NANO = 1e-9
_SETTLED = 6  # passes of the best cells, so that the intervals of their rates are useful
_RISING = 1.03  # a rate rises if it exceeds the rates of fewer workers by this factor
_CLOSE = 0.85  # cells with at least this share of the highest rate may be recommended

Backend = tuple[str, str]  # a task and the label of a backend


def next_pass_within(plan: Plan, run: Run, left: float, memory: int | None) -> Plan:
    """Return ``plan`` with the cells of its next pass. It has no cells if no useful cell fits into ``left`` seconds.

    A larger cell is skipped if smaller ones show that it needs more than ``memory`` bytes. None, or hosts: no limit.
    """
    planned = {cell.key.without_repeat: cell for cell in plan.cells}
    spec, costs = plan.spec, Costs(run)
    number = 1 + max((record.repeat for record in run.cells), default=-1)
    chosen: list[Cell] = []
    if left > 0 and number < MAX_PASSES:
        tried = {record.key.without_repeat for record in run.cells if not record.broken_off}
        chosen = [cell for key, cell in _early(planned, spec, run.header.usable_cpus).items() if key not in tried]
        limits = [] if spec.hosts else [most for most in (memory, spec.memory) if most is not None]
        chosen = chosen or _useful(planned, spec, run, costs, left, min(limits, default=None))
    in_order = shuffled([replace(cell, repeat=number) for cell in chosen], spec.seed, number)
    once = replace(plan, cells=tuple(in_order))
    return interleaved(once, memory, costs.bytes) if spec.takes_turns else once


def _early(planned: Mapping[CellKey, Cell], spec: RunSpec, cpus: int) -> dict[CellKey, Cell]:
    """Return the cells of the first pass: bases, one count of workers, and more counts within half of the budget.

    The first count is the one nearest to the CPUs. The smallest count is next, then others up to twice the CPUs.
    """
    # Cells that cannot run take no time. Bases have one worker, even if only larger counts are requested.
    chosen = {key: cell for key, cell in planned.items() if cell.skip is not None or cell.in_every_pass}
    counts = sorted({key.workers for key in planned if key not in chosen}) or [1]
    nearest = min(counts, key=lambda count: abs(log(count / cpus)))
    usual = (count for count in reversed(counts) if count <= 2 * cpus)
    for count in dict.fromkeys((nearest, counts[0], *usual)):
        more = {key: cell for key, cell in planned.items() if key.workers == count}
        if count == nearest or time_planned((chosen | more).values(), spec).total <= spec.budget / 2:
            chosen |= more
    return chosen


def _useful(
    planned: Mapping[CellKey, Cell], spec: RunSpec, run: Run, costs: Costs, left: float, memory: int | None
) -> list[Cell]:
    """Return the cells that fit into ``left`` seconds, the most decisive first, and the bases of their tasks."""
    cells = {cell.key: cell for cell in rated(run)}
    again = next_repeats(run).keys() & planned.keys()
    alive = may_win([*cells.values()], look=1 + max(record.repeat for record in run.cells))
    # After a larger cell, there must be time to repeat it and the best cells.
    larger = _larger(curves(cells.values()), alive, planned)
    nearer, farther = ([key for key in keys if costs.seconds(planned[key]) < left / 2] for keys in larger)
    rising = {of_key(key) for key in nearer}
    fastest = [key for key in _best(cells.values(), alive) if key in again]
    best = [key for key in fastest if of_key(key) not in rising and _is_unsettled(cells[key], spec, alive)]
    kept = sum(costs.seconds(planned[key]) for key in best)
    second = _with_few(cells, again, min(PASSES_OF_ALL, spec.passes))
    kinds = [(nearer, 1.0, kept), (best, 1.0, 0.0), (second, 0.5, 0.0)]
    if not nearer:
        kinds += [(farther, 0.25, 0.0)]
    if not (nearer or farther) and all(cells[key].repeats >= _SETTLED for key in best):
        kinds += [(_between(planned, cells, alive), 1.0, 0.0), (_with_few(cells, again, spec.passes), 1.0, 0.0)]
    bases = [key for key, cell in planned.items() if key in again and cell.in_every_pass]
    left -= sum(costs.seconds(planned[key]) for key in bases)
    chosen: dict[CellKey, Cell] = {}
    for keys, share, kept_back in kinds:
        room = share * left - kept_back
        for key in keys:
            cell = planned[key]
            seconds = costs.seconds(cell)
            if key not in cells and memory is not None and (needed := costs.bytes(cell)) > memory:
                chosen[key] = replace(cell, skip=too_much_memory(needed, memory))
            elif key not in chosen and seconds <= room:
                chosen[key] = cell
                room -= seconds
                left -= seconds
    tasks = {key.env for key in chosen}
    repeated = [planned[key] for key in bases if key.env in tasks and key not in chosen]
    return [*repeated, *chosen.values()]


def _with_few(cells: Mapping[CellKey, CellSummary], again: Collection[CellKey], passes: int) -> list[CellKey]:
    """Return the cells with fewer passes than this, the fastest first."""
    few = [cell for key, cell in cells.items() if cell.repeats < passes and key in again]
    return [cell.key for cell in sorted(few, key=lambda cell: (cell.reference_row, -cell.rate))]


def _between(
    planned: Mapping[CellKey, Cell], cells: Mapping[CellKey, CellSummary], alive: Collection[Backend]
) -> list[CellKey]:
    """Return the sizes that backends skipped on the way to larger ones, first of the backends that may win."""
    largest = {of_key(key): key.workers for key in sorted(cells)}
    found = [key for key in planned.keys() - cells.keys() if key.workers < largest.get(of_key(key), 0)]
    return sorted(found, key=lambda key: ((key.env, key.backend) not in alive, key))


def _is_unsettled(cell: CellSummary, spec: RunSpec, alive: Collection[Backend]) -> bool:
    """Return whether more passes of one of the best cells are useful."""
    if spec.until is not None:
        return is_wide(cell, spec.until)
    undecided = sum(env == cell.env for env, _ in alive) > 1
    return (spec.races and undecided) or cell.repeats < (_SETTLED if spec.races else spec.passes)


def _best(cells: Collection[CellSummary], alive: Collection[Backend]) -> list[CellKey]:
    """Return the cells that may be recommended, and the fastest of each other backend that may win, the best first."""
    found: dict[CellKey, int] = {}  # the place of each cell on its task
    for env in {env for env, _ in alive}:
        rivals = [cell for cell in fastest_first(cells) if cell.env == env and (env, cell.label) in alive]
        close = [cell for cell in rivals if cell.rate >= _CLOSE * rivals[0].rate]
        for place, cell in enumerate((*close, *first_of_each(rivals))):
            found.setdefault(cell.key, place)
    return sorted(found, key=lambda key: (found[key], key))


def _larger(
    known: Sequence[Curve], alive: Collection[Backend], planned: Mapping[CellKey, Cell]
) -> tuple[list[CellKey], list[CellKey]]:
    """Return the next sizes of backends whose rate still rises, near the highest rate and far from it, as two lists.

    A backend is near if it may win, and reaches the highest rate if its rate grows in proportion to its workers. Then
    it also gets a size after the first that does not raise its rate. In both lists, the fastest backends come first.
    """
    highest: defaultdict[str, float] = defaultdict(float)  # by task
    for curve in known:
        rates = [cell.rate for cell in curve if cell.entry.candidate]
        highest[curve[-1].env] = max([highest[curve[-1].env], *rates])
    near, far = [], []
    for curve in sorted(known, key=lambda curve: -curve[-1].rate):
        last = curve[-1]
        more = [key for key in planned if of_key(key) == of_key(last.key) and key.workers > last.workers]
        if not more or last.status != "ok" or last.reference_row:
            continue
        following = min(more, key=lambda key: key.workers)
        grown = last.rate * following.workers / last.workers
        is_near = (last.env, last.label) in alive and grown >= highest[last.env]
        if is_near and (_rises(curve) or _rises(curve[:-1])):
            near.append(following)
        elif _rises(curve):
            far.append(following)
    return near, far


def _rises(curve: Curve) -> bool:
    """Return whether the last cell of a curve has a higher rate than all cells with fewer workers."""
    fewer = max((cell.rate for cell in curve[:-1]), default=0.0)
    return not curve or curve[-1].rate > _RISING * fewer


class Costs:
    """The time and memory of planned cells, from records of the same cell or of fewer environments."""

    def __init__(self, run: Run) -> None:
        self._spec = run.header.spec
        # The last good record of each size, by the backend, then by the number of environments.
        self._known: dict[Backend, dict[int, CellRecord]] = {}
        for record in run.cells:
            if record.status == "ok":
                self._known.setdefault((record.env, record.label), {})[record.num_envs] = record

    def seconds(self, cell: Cell) -> float:
        """Return the seconds of a pass of the cell. Its start takes longer in proportion to its environments."""
        if not (smaller := self._smaller(cell)):
            return time_planned([cell], self._spec).total
        last = smaller[-1]
        # In a group, ``took_ns`` of one cell contains the starts of all. So add up the parts of the cell.
        start = (last.startup_ns or 0) * cell.shape.num_envs / last.num_envs + (last.first_step_ns or 0)
        stepped = (last.warmup_ns or 0) + sum(window.ns for window in last.windows)
        proof = last.proof.seconds or 0.0 if last.proof else 0.0
        return _NANO * (start + stepped) + self._spec.windows * AROUND_S + proof

    def bytes(self, cell: Cell) -> int:
        """Return the memory of the cell, on the line through two smaller sizes, but at least the planned memory."""
        size, least = cell.shape.num_envs, cell.bytes
        known = [(one.num_envs, one.peak_rss_bytes) for one in self._smaller(cell) if one.peak_rss_bytes is not None]
        if len(known) < 2:  # noqa: PLR2004 - a line has two points
            return least
        (first, less), (second, more) = known[-2:]
        return max(least, round(more + max(0, more - less) * (size - second) / (second - first)))

    def _smaller(self, cell: Cell) -> list[CellRecord]:
        """Return the records of the cell's backend with at most its environments, sorted by their number."""
        of_backend = self._known.get((cell.task.id, cell.backend.label), {})
        return [one for count, one in sorted(of_backend.items()) if count <= cell.shape.num_envs]
