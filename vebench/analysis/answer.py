"""The answer for one task: the backend to use, or why none can be named. Also races, and forecasts. Pure functions.

A backend is called slower than the fastest only if the difference is significant, corrected for all pairs of backends.
A race drops a setting that is significantly slower than the leader (successive elimination: E. Even-Dar, S. Mannor,
Y. Mansour, JMLR 2006). If the time is too short for all others, it drops the lowest rates, so that the best get enough
passes for a comparison (sequential halving: Z. Karnin, T. Koren, O. Somekh, ICML 2013). Each look at the data spends a
part of the total error that is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from math import comb, exp, log, sqrt
from typing import NamedTuple

from vebench.analysis.cell import CellSummary, Curve, Exclusion, of_key
from vebench.analysis.rules import WIDE, ageing
from vebench.analysis.statistics import Contrast, Estimate, Sample, contrast, ratio, slower, width_within_run
from vebench.analysis.summary import rated
from vebench.backends.registry import REFERENCE
from vebench.errors import UsageError
from vebench.machine.host import grouped, order_of, place
from vebench.plan.cells import Cell, CellKey, rank
from vebench.plan.spec import MARGIN, PASSES_OF_ALL, RunSpec
from vebench.results.records import Run, RunRecord, topology_of

_Cells = Sequence[CellSummary]

THREAD = 0.2  # the gain from the second thread of a core, as a share of a core
BAND = (0.73, 1.13)  # 90 % of rates, divided by their prediction, are in this band
PASSES_TO_COMPARE = 4  # a useful comparison needs at least this many passes
_HOPELESS = 0.6  # with fewer passes, a cell below this share of another's rate counts as slower without a test


class Reason(Enum):
    """Why no backend can be named as the one to choose."""

    UNUSABLE = auto()  # other processes or a CPU quota slowed most cells
    NO_BACKEND = auto()  # all cells are reference rows
    NOT_MEASURED = auto()  # no cell has a rate yet
    FAILED = auto()  # no cell has a rate: some failed, or all were skipped
    DOUBTED = auto()  # at most one backend has a rate without an objection, and another has one with an objection
    ALONE = auto()  # only one backend has a rate
    WIDE = auto()  # the highest rate is uncertain, and another backend is not distinguishable from it
    AGED = auto()  # rates change with the steps of environments, and cells had made different numbers of steps


@dataclass(frozen=True)
class TaskAnswer:
    """The answer for one task: which backend to use, with how many workers."""

    reason: Reason | None  # why there is no winner, None if there is one
    contestants: tuple[str, ...] = ()  # the labels of the backends to choose from: each has a cell without objections
    best: CellSummary | None = None  # the winner, or the cell with the highest rate
    known: CellSummary | None = None  # the fastest cell with a useful interval
    perhaps: CellSummary | None = None  # another size of the best backend, whose higher rate is uncertain
    tied: tuple[CellSummary, ...] = ()  # other cells not distinguishable from the fastest
    smaller: tuple[CellSummary, Estimate] | None = None  # an almost as fast cell with fewer workers, and its share
    in_gymnasium: CellSummary | None = None  # the fastest cell with Gymnasium's interface; None if ``best`` has it
    # The fastest cell on Gymnasium's classes, if ``in_gymnasium`` (or ``best``) steps vebench's own classes.
    of_gymnasium: CellSummary | None = None
    doubted: tuple[tuple[CellSummary, Exclusion], ...] = ()  # cells that cannot win, the fastest first

    @property
    def winner(self) -> CellSummary | None:
        """The cell to recommend; None if there is a reason not to."""
        return self.best if self.reason is None else None


def fastest_first(cells: Iterable[CellSummary]) -> list[CellSummary]:
    """Return the cells with a rate that an answer may recommend, the fastest first."""
    with_rate = (cell for cell in cells if cell.rate > 0 and cell.entry.candidate)
    return sorted(with_rate, key=lambda cell: cell.rate, reverse=True)


def first_of_each(cells: Iterable[CellSummary]) -> list[CellSummary]:
    """Return the first cell of each backend."""
    return [alike[0] for alike in grouped(cells, lambda cell: cell.label)]


def answer_for(cells: Sequence[CellSummary], spec: RunSpec, *, usable: bool = True) -> TaskAnswer:
    """Return the answer for one task, given its cells. ``usable``: the run as a whole is not too disturbed.

    The simplest cell with an interval within 20 % wins, if it is not distinguishable from the fastest and has at least
    95 % of its rate. There is no winner if another backend has a higher but uncertain rate that is not distinguishable.
    A cell with a wide interval wins only if all other backends are significantly slower. Cells with an objection cannot
    win.
    """
    choices = [cell for cell in cells if cell.entry.candidate]
    by_rate = fastest_first(choices)
    doubted = tuple((cell, cell.objection) for cell in by_rate if cell.objection is not None)
    valid = [cell for cell in by_rate if cell.objection is None]
    asked = {choice.name for choice in spec.backends}
    every = (cell.label for cell in valid if cell.label != REFERENCE or not asked or REFERENCE in asked)
    contestants = tuple(dict.fromkeys(every))
    reason = _uncontested(choices, contestants, doubted) if usable or not by_rate else Reason.UNUSABLE
    if reason is Reason.ALONE:  # leave out a plain loop that was measured only for speedups
        valid = [cell for cell in valid if cell.label in contestants] or valid
    if not valid:
        return TaskAnswer(reason, doubted=doubted)
    # Effects of passes cancel in ratios. So it suffices that the interval is narrow without these effects.
    widths = {cell.key: (cell.half_width, width_within_run(cell.sample)) for cell in valid}
    known = [cell for cell in valid if any(width is not None and width <= WIDE for width in widths[cell.key])]
    lead, tied, wide = _contest(valid, known)
    fastest = best = valid[0] if reason else lead
    reason = reason or (Reason.WIDE if wide else None)
    if reason is None:
        labels = {cell.label for cell in (fastest, *tied)}
        sizes = [cell for cell in known if cell.label in labels and cell not in (fastest, *tied)]
        candidates = (fastest, *tied, *_tied(fastest, sizes))
        if _are_younger(candidates, valid, cells):
            reason = Reason.AGED
    if reason is None:
        near = [cell for cell in candidates if cell.rate >= (1 - MARGIN) * fastest.rate]
        fit = (cell for cell in near if cell is fastest or (cell in known and not cell.conditions.disturbed))
        best = min(fit, key=_simplest_first)
        tied = tuple(cell for cell in candidates if cell is not best)
    smaller = _smaller(best, known, significantly=reason is None)
    plain = [cell for cell in valid if cell.entry.gymnasium_api]
    in_gymnasium = None if best.entry.gymnasium_api else next(iter(plain), None)
    own = (in_gymnasium or best).steps_own_classes
    of_gymnasium = next((cell for cell in plain if not cell.steps_own_classes), None)
    return TaskAnswer(
        reason,
        contestants,
        best,
        known=known[0] if known else None,
        perhaps=None if fastest is valid[0] else valid[0],
        tied=tied,
        smaller=smaller,
        in_gymnasium=in_gymnasium,
        of_gymnasium=of_gymnasium if own else None,
        doubted=doubted,
    )


def _simplest_first(cell: CellSummary) -> tuple[bool, bool, bool, int, int, tuple[bool, int]]:
    """Return a sort key: the plain loop, then ``step`` before ``send``, Gymnasium's interface, and few workers."""
    entry = cell.entry
    kind = cell.label != REFERENCE, entry.asynchronous, not entry.gymnasium_api
    return (*kind, cell.workers, cell.envs_per_worker, rank(cell.backend))


def _are_younger(candidates: _Cells, valid: _Cells, cells: _Cells) -> bool:
    """Return whether a candidate may be fast only because of the number of steps that its environments had made.

    This is possible if another cell had made more than twice as many steps, or fewer than half as many, and rates are
    lower at its number of steps.
    """
    found = ageing(cell for cell in cells if cell.label == REFERENCE)
    ages = {cell.key: cell.figures.stability.age for cell in valid if cell.figures.stability.age is not None}
    mine = [ages[cell.key] for cell in candidates if cell.key in ages]
    if found is None or not mine:
        return False
    apart = max(ages.values()) - min(mine) if found.slope < 0 else max(mine) - min(ages.values())
    return apart > log(2)


def _uncontested(
    choices: _Cells, rivals: Sequence[str], doubted: Iterable[tuple[CellSummary, Exclusion]]
) -> Reason | None:
    if not choices:
        return Reason.NO_BACKEND
    if len(rivals) > 1:
        return None
    if any(cell.label not in rivals for cell, _ in doubted):
        return Reason.DOUBTED
    if any(cell.rate > 0 for cell in choices):
        return Reason.ALONE
    ended = any(cell.faulty_repeats for cell in choices) or all(cell.status == "skipped" for cell in choices)
    return Reason.FAILED if ended else Reason.NOT_MEASURED


def _contest(valid: _Cells, known: _Cells) -> tuple[CellSummary, tuple[CellSummary, ...], bool]:
    """Return the leading cell, other backends' best cells not distinguishable from it, and whether it is uncertain.

    The fastest cell leads. If its interval is too wide, the fastest cell of its backend with a useful interval leads,
    unless the result would be uncertain.
    """
    best = valid[0]
    rivals = [cell for cell in first_of_each(valid) if cell.label != best.label]
    own = [cell for cell in known[:1] if cell is not best and cell.label == best.label]
    for lead in (*own, best):
        tied = _tied(lead, rivals)
        wide = bool(tied) and (lead not in known or any(cell.rate > lead.rate for cell in tied))
        if not wide:
            break
    return lead, tied, wide


def _tied(best: CellSummary, rivals: Sequence[CellSummary]) -> tuple[CellSummary, ...]:
    """Return the rivals that are not significantly slower, corrected for all pairs among ``best`` and rivals.

    With few passes, a much lower rate is enough. If others took a share of a rival's CPU time, the rival counts as
    slower only beyond this share.
    """
    ratios = {}
    for cell in rivals:
        left = cell.conditions.share_left
        few = min(cell.sample.processes, best.sample.processes) < PASSES_TO_COMPARE
        if few and cell.rate < _HOPELESS * left * best.rate:
            continue
        found = contrast([(1.0, cell.sample), (-1.0, best.sample)])
        ratios[cell.key] = Contrast(found.log - log(left), found.error) if found is not None and left > 0 else None
    tied = ratios.keys() - slower(ratios, tests=lambda left: comb(1 + left, 2))
    return tuple(cell for cell in rivals if cell.key in tied)


def _smaller(best: CellSummary, known: _Cells, *, significantly: bool) -> tuple[CellSummary, Estimate] | None:
    """Return the cell with the fewest workers that is almost as fast as ``best``, and its share of the rate."""
    worth_a_word = 0.8  # 4 of 32 workers that reach 88 % are more useful to know than 16 that reach 92 %
    fewer = [cell for cell in known if of_key(cell.key) == of_key(best.key) and cell.workers < best.workers]
    for cell in sorted(fewer, key=lambda cell: cell.workers):
        share = ratio(cell.sample, best.sample)
        below = share is not None and share.high is not None and share.high < 1.0
        if share is not None and share.median >= worth_a_word and (below or not significantly):
            return cell, share
    return None


class RaceState(NamedTuple):
    """The state of a race."""

    alive: tuple[CellKey, ...]  # the cells that may still be the fastest; the highest rate comes first
    decided: bool  # no other cell may be faster than the first by more than the tolerance


def level_of_look(look: int) -> float:
    """Return the error allowed at the look with this number, from 1. Over all looks, the sum is 5 %."""
    return 0.05 / (look * (look + 1))


def standing(rates: Mapping[CellKey, Sample], look: int, tolerance: float) -> RaceState:
    """Return the state of a race, given the rates of all cells that were not dropped before."""
    known = {key: rate for key, rate in rates.items() if rate.positive}
    if not known:
        return RaceState((), decided=False)
    leader, *others = sorted(known, key=lambda key: known[key].level, reverse=True)
    level = level_of_look(look)
    still = contenders(known, leader, 0.0, level)
    alive = (leader, *(key for key in others if key in still))
    return RaceState(alive, decided=not contenders(known, leader, tolerance, level))


def contenders(rates: Mapping[CellKey, Sample], key: CellKey, tolerance: float, level: float) -> set[CellKey]:
    """Return the cells whose positive rate may exceed the rate of ``key`` by more than the tolerance."""
    against = {}
    for other in rates.keys() - {key}:
        # A single pass does not show how processes vary.
        alone = min(rates[other].processes, rates[key].processes) <= 1
        against[other] = None if alone else contrast([(1.0, rates[other]), (-1.0, rates[key])])
    below = slower(against, 1 / (1 - tolerance), level)
    return {
        other
        for other, found in against.items()
        if other not in below and (found or rates[other].level / rates[key].level >= _HOPELESS)
    }


def racing(cells: Iterable[Cell], run: Run) -> Iterator[Cell]:
    """Yield the planned cells of the backends that may still be the fastest on their task.

    The first decision follows the passes of all cells, and there is a decision after each later pass. A backend that
    was dropped stays out. Reference rows, rollouts and rows on a device stay while a backend of their task does.
    """
    passes: dict[str, int] = {}
    for record in run.cells:
        passes[record.env] = max(record.repeat, passes.get(record.env, 0))
    going = {record.key.without_repeat for record in run.cells if record.repeat == passes[record.env]}
    look = max(passes.values(), default=0) - PASSES_OF_ALL + 2
    alive = may_win([cell for cell in rated(run) if cell.key in going], look)
    tasks = {env for env, _ in alive}
    for planned in cells:
        if planned.key.without_repeat not in going:
            continue
        stays = planned.in_every_pass or planned.entry.role in ("device", "rollout")
        if (planned.task.id, planned.backend.label) in alive or (stays and planned.task.id in tasks):
            yield planned


def may_win(cells: Sequence[CellSummary], look: int) -> set[tuple[str, str]]:
    """Return the backends that may be the fastest on a task, as task and label. For ``look``, see ``level_of_look``."""
    # A backend whose work can never be verified cannot win.
    hopeless = {cell.key for cell in cells if cell.verdict == "unverified" and cell.work.reason}
    known = [cell for cell in cells if cell.entry.candidate and not (cell.exclusion or cell.key in hopeless)]
    alive: set[tuple[str, str]] = set()
    for env in dict.fromkeys(cell.env for cell in known):
        ranked = sorted((cell for cell in known if cell.env == env), key=lambda cell: cell.rate)
        best_of_each = {cell.label: cell for cell in ranked}
        race = standing({cell.key: cell.sample for cell in best_of_each.values()}, look, tolerance=0.0)
        alive |= {(env, key.backend) for key in race.alive}
        # A disturbed cell might be the fastest on an idle machine, so keep it.
        slowed = [cell for cell in ranked if cell.conditions.disturbed]
        alive |= {(env, cell.label) for cell in slowed if cell.rate >= cell.conditions.share_left * ranked[-1].rate}
    return alive


def affordable(
    alive: Sequence[CellKey], passes: Mapping[CellKey, int], cost: Mapping[CellKey, float], left: float
) -> tuple[CellKey, ...]:
    """Return the first cells of ``alive`` that can all reach ``PASSES_TO_COMPARE`` in ``left`` seconds; at least two.

    ``passes`` has the number of passes of each cell, and ``cost`` the seconds of a further pass.
    """
    spent = 0.0
    for number, key in enumerate(alive):
        spent += cost[key] * max(1, PASSES_TO_COMPARE - passes.get(key, 0))
        if spent > left and number > 1:
            return tuple(alive[:number])
    return tuple(alive)


def forecast(curve: Curve, cores: Sequence[float], workers: int) -> Estimate | str:
    """Return the frames/s that a backend would reach with ``workers`` workers, or why it cannot be predicted.

    ``low`` and ``high`` are a 90 % band, not a 95 % interval. For ``cores``, see ``cores_of_workers``.
    """
    if workers > len(cores):
        return f"only {len(cores)} CPUs are usable and of one kind"
    if workers in {cell.workers for cell in curve}:
        return f"{workers} workers were measured"
    near = [cell for cell in curve if cell.workers < workers <= 2 * cell.workers and cell.half_width is not None]
    steady = [cell for cell in near if cell.condition == "undisturbed" and not cell.conditions.throttled]
    last = max((cell for cell in steady if not cell.exclusion), key=lambda cell: cell.workers, default=None)
    if last is None or last.frames_per_second is None:
        return f"no undisturbed rate of {-(-workers // 2)} or more workers was measured"
    if last.entry.at_work(last.built.processes, last.built.threads, last.built.options) < last.workers:
        return f"its {last.workers} workers do not all step at the same time"
    known = last.frames_per_second
    rate = known.median * cores[workers - 1] / cores[last.workers - 1]
    half = log(known.median / known.low) if known.low else 0.0  # ``BAND`` excludes the error of the measured rate
    low, high = (exp(sqrt(log(end) ** 2 + half**2)) for end in BAND)
    return Estimate(rate, rate / low, rate * high)


def cores_of_workers(header: RunRecord, cells: Sequence[CellSummary]) -> tuple[float, ...]:
    """Return the number of cores that 1, 2, 3 ... workers of a run use. A second thread counts as ``THREAD``.

    It ends with the usable CPUs, or where slower or faster cores begin. It is empty if the run used other hosts.
    """
    host, pin = header.host, header.spec.pin
    topology, allowed = topology_of(host.topology), frozenset(host.cpus_allowed)
    if host.pinning and pin.pins:  # the CPUs of the largest cell are the first in the order
        order = max((cell.built.cpus for cell in cells), key=len, default=())
        with suppress(UsageError):  # the run's --pin lists CPUs that its topology lacks
            order += place(pin.cpus, allowed, topology=topology, smt=pin.smt).order
    else:  # unpinned workers are assumed to use all cores before second threads
        order = order_of(topology, allowed, "compact", "off" if pin.smt == "off" else "last")
    taken: list[int] = []
    cores: list[float] = []
    seconds = 0
    alike = next((kind for kind in topology.kinds if order and order[0] in kind), order)
    for cpu in tuple(dict.fromkeys(order))[: 0 if header.hosts else host.usable_cpus]:
        if cpu not in alike:
            break
        seconds += any(cpu in core and not {*core}.isdisjoint(taken) for core in topology.cores)
        taken.append(cpu)
        cores.append(len(taken) - (1 - THREAD) * seconds)
    return tuple(cores)
