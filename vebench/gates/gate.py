"""How ``check`` and ``compare`` decide: they look at two sides, add passes, and stop at a verdict on every backend.

Testing repeatedly at 5 % finds differences that do not exist in far more than 5 % of cases. So the 5 % are spent: each
look gets what the spending function has grown by since the look before (K. Lan, D. DeMets, Discrete sequential
boundaries for clinical trials, Biometrika 70, 1983). All looks together keep the level, however they depend on each
other. The function is the one that resembles Pocock's test. It is nearly proportional to the share of the time used, so
that a clear difference is found at the first looks, also within a long budget.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import IntEnum
from math import ceil, e, inf, log1p
from pathlib import Path

from vebench.analysis.cell import CellSummary, in_report_order
from vebench.analysis.comparison import CellComparison, Comparison, GroupComparison, GroupKey, SpeedVerdict, group_of
from vebench.analysis.rules import unusable
from vebench.analysis.statistics import Effects, ProcessPool, new_id
from vebench.analysis.summary import summarise
from vebench.backends.environments.suites import short_name
from vebench.errors import UsageError, did_you_mean, one_line, shown
from vebench.plan.cells import CellKey
from vebench.plan.grammar import BackendChoice
from vebench.results.records import Run

Cells = Sequence[CellSummary]
Compare = Callable[..., Comparison]  # ``compare_runs`` of the two sides and a ``part`` of the error; the rest is given

FEWEST_PASSES = 2  # with fewer, no side shows how its processes differ
NO_ANSWER: tuple[SpeedVerdict, ...] = ("missing", "not comparable")
_MOST_TOLERANCE = 0.9
# The passes before the next look, as a share of those before: few looks, each with a useful level.
_GROWTH = 0.4
# Passes of a new run are worth their time while its own error is more than this share of what cannot be reduced.
_WORTH = 0.03


class Status(IntEnum):
    """The exit statuses of gates."""

    DONE = 0
    WORSE = 1
    UNDECIDED = 3


def decide(
    sides: Callable[[], tuple[Cells, Cells]],
    add_pass: Callable[[frozenset[CellKey]], bool],
    compare: Compare,
    cells: frozenset[CellKey],
    first: int,
    budget: PassBudget,
    enough: int | None = None,
) -> Comparison:
    """Look, and add passes, until every backend is decided or the budget is spent. Returns the verdicts.

    ``sides`` returns the baseline's and the candidate's cells, as measured so far. ``add_pass`` measures one more pass
    of these cells; it returns False if none of them can be measured. ``cells`` are judged; ``FEWEST_PASSES`` of them
    were measured at the expense of the budget. There are ``first`` passes before the first look, if there is time.
    More than ``enough`` passes would hardly help. If that number is known, there are no looks on the way, because each
    costs some of the level.
    """
    decisions = Decisions()
    passes = min(first, FEWEST_PASSES)
    budget.note(passes)
    wanted = first - passes
    while True:
        added = 0
        while added < wanted and budget.allows_a_pass and add_pass(cells):
            budget.note(1)
            added += 1
        passes += added
        over = not budget.allows_a_pass or added < wanted or (enough is not None and passes >= enough)
        used = budget.used if enough is None else max(budget.used, passes / enough)
        found = decisions.after(compare(*sides(), part=decisions.part(1.0 if over else used)))
        undecided = {group.key for group in found.groups if group.judged and group.verdict == "inconclusive"}
        cells = frozenset(cell.key for cell in found.cells if group_of(cell.key) in undecided)
        if over or not cells:
            return found
        wanted = max(1, ceil(_GROWTH * passes)) if enough is None else enough - passes


class PassBudget:
    """Seconds to spend from now on. No pass is begun that would hardly end in time."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._start = self._now = clock()
        self._longest = 0.0  # seconds that a pass took at the most

    def note(self, passes: int) -> None:
        """Note that this number of passes has ended since the last note."""
        before, self._now = self._now, self._clock()
        self._longest = max(self._longest, (self._now - before) / passes)

    @property
    def allows_a_pass(self) -> bool:
        """Whether another pass would end in time."""
        return self._now + self._longest <= self._start + self._seconds

    @property
    def used(self) -> float:
        """The share that was used when the last pass ended."""
        return (self._now - self._start) / self._seconds


class Decisions:
    """The verdicts so far, and the part of the level that is spent. A group that is decided stays so."""

    def __init__(self) -> None:
        self._spent = 0.0
        self._groups: dict[GroupKey, GroupComparison] = {}
        self._cells: dict[CellKey, CellComparison] = {}

    def part(self, used: float) -> float:
        """Return the part of the level for a look at which this share of the time is used, 1 for the last one."""
        grown = log1p((e - 1) * min(1.0, max(0.0, used)))
        part, self._spent = max(0.0, grown - self._spent), max(self._spent, grown)
        return part

    def after(self, found: Comparison) -> Comparison:
        """Return a look's verdicts, with groups that were decided before as they were then."""
        for group in found.groups:
            if group.key not in self._groups and group.judged and group.verdict != "inconclusive":
                self._groups[group.key] = group
                self._cells |= {cell.key: cell for cell in found.cells if group_of(cell.key) == group.key}
        return replace(
            found,
            groups=tuple(self._groups.get(group.key, group) for group in found.groups),
            # A cell may fail after its group was decided, while others are measured.
            cells=tuple(replace(self._cells.get(cell.key, cell), failed=cell.failed) for cell in found.cells),
        )


def resolution(baseline: Cells, compare: Compare, *, forever: bool = False) -> tuple[GroupComparison, ...]:
    """Return, for each group, what a second run like ``baseline`` could detect; with ``forever``, a very long one."""
    blocks: dict[int, int] = defaultdict(new_id)
    shifted: dict[Effects, Effects] = {}
    twins = []  # the same cells, as if measured in other passes
    for cell in baseline:
        pool, effects = cell.sample.pool, cell.sample.effects
        if forever:
            pool, effects = ProcessPool(0.0, inf), None
        elif effects is not None:
            effects = shifted.setdefault(effects, replace(effects, block=blocks[effects.block]))
        twins.append(replace(cell, sample=replace(cell.sample, pool=pool, effects=effects, id=new_id())))
    return compare(baseline, twins).groups


def enough_passes(once: Sequence[GroupComparison], forever: Sequence[GroupComparison], passes: int) -> int:
    """Return the passes after which more hardly matter, given the ``resolution`` of ``passes``, and of a long run."""
    pairs = [(one.error, other.error) for one, other in zip(once, forever, strict=True) if one.error and other.error]
    more = max((one / other - 1 for one, other in pairs), default=0.0)
    return max(passes, ceil(passes * more / _WORTH))


def exit_status(found: Comparison) -> Status:
    """Return the exit status. A cell that failed in the candidate alone is worse; one without an answer, undecided."""
    verdicts = {group.verdict for group in found.groups}
    if "slower" in verdicts or any(cell.failed for cell in found.cells):
        return Status.WORSE
    unanswered = (verdicts | {cell.verdict for cell in found.cells}) & set(NO_ANSWER)
    return Status.UNDECIDED if unanswered or not verdicts or "inconclusive" in verdicts else Status.DONE


def check_tolerance(share: float) -> None:
    """Raise UsageError for a tolerance with which every cell, or none, would pass."""
    if not 0 < share <= _MOST_TOLERANCE:
        raise UsageError(f"--tolerance {share:.4g}: must be above 0 and at most {_MOST_TOLERANCE:.0%}")


def cells_of(run: Run, path: Path) -> tuple[CellSummary, ...]:
    """Return a run's cells in the order of reports. Findings quote the name of its file."""
    return in_report_order(summarise(run, one_line(str(path))), run.header.spec)


def chosen(
    cells: Sequence[CellKey], envs: Sequence[str], backends: Sequence[BackendChoice], source: str
) -> list[CellKey]:
    """Return the cells of these tasks and backends; empty ``envs`` or ``backends`` mean all.

    A task may have its full name or its short one. A backend without options stands for all choices of its options.
    Raises UsageError for a name that no cell in ``source`` has.
    """
    tasks = {cell.env: {cell.env.casefold(), short_name(cell.env).casefold()} for cell in cells}
    named = {cell.backend: {cell.backend, cell.backend.partition("[")[0]} for cell in cells}
    for env in envs:
        if not any(env.casefold() in names for names in tasks.values()):
            raise UsageError(f"--env {shown(env)}: not in {source}{did_you_mean(env, map(short_name, tasks))}")
    for choice in backends:
        if not any(choice.label in names for names in named.values()):
            raise UsageError(f"--backend {shown(choice.label)}: not in {source}{did_you_mean(choice.label, named)}")
    wanted, labels = {env.casefold() for env in envs}, {choice.label for choice in backends}
    found = [cell for cell in cells if not wanted or tasks[cell.env] & wanted]
    return [cell for cell in found if not labels or named[cell.backend] & labels]


def unusable_run(path: Path, cells: Cells) -> str:
    """Return in one line why the run in ``path`` is unusable; empty if it is not."""
    finding = unusable(cells)
    return "" if finding is None else f"{path} is {finding.code}: {finding.message}; {finding.remedy}"
