"""The decisions of ``check`` and ``compare``: look at two sides, add passes, and stop at a verdict on every backend.

Repeated tests at 5 % find differences that do not exist in far more than 5 % of cases. So each look spends a part of
the 5 %: the growth of a spending function since the look before (docs/reference/statistics.md). All looks together
keep the level, for any dependence between them. The function is nearly proportional to the share of time used, so the
first looks find a clear difference, even within a long budget.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from math import ceil, e, inf, log1p, sqrt
from pathlib import Path

from vebench.analysis import comparison
from vebench.analysis.cell import CellSummary, in_report_order
from vebench.analysis.comparison import CellComparison, Comparison, GroupComparison, GroupKey, Metric
from vebench.analysis.rules import unusable
from vebench.analysis.statistics import Effects, ProcessPool, new_id
from vebench.analysis.summary import summarise
from vebench.backends.environments.suites import short_name
from vebench.backends.registry import REFERENCE, YARDSTICK
from vebench.errors import UsageError, did_you_mean, one_line, shown, write_error
from vebench.plan.cells import CellKey
from vebench.plan.grammar import COSTS, BackendChoice, Tolerance
from vebench.plan.spec import TOLERANCE
from vebench.reports import console, figures
from vebench.reports.console import Outlet
from vebench.reports.document import Document, Page, Table, TableRow, Text
from vebench.reports.formats import MARKDOWN
from vebench.reports.formats.data import workflow_commands
from vebench.results import store
from vebench.results.records import Run

Cells = Sequence[CellSummary]
Compare = Callable[..., Comparison]  # ``compare_runs`` with all arguments but both sides and ``part``

LAST_LOOK = 0.38  # the part of the level that the last look has if another one was after half of the time
FEWEST_PASSES = 2  # with one pass, a side does not show how its processes differ
NO_ANSWER: tuple[comparison.SpeedVerdict, ...] = ("missing", "not comparable")
PASSING = ("same", "faster", "advisory")
ORDER = ("slower", "failed", *NO_ANSWER, "inconclusive", *PASSING)  # the worst verdict first
UNITS: dict[Metric, str] = {
    "fps": "frames/s",
    "speedup": f"speedup over {REFERENCE} with one worker",
    "yardstick": f"frames per step of {YARDSTICK}",
    "startup": "startup time (imports + making + first reset)",
    "memory": "peak memory over the number of environments",
}


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

    ``sides`` returns the cells of the baseline and of the candidate, as measured so far. ``add_pass`` measures a
    further pass of the given cells, and returns False if none of them can be measured. ``cells`` are judged, first
    after ``first`` passes if there is time. The budget includes up to ``FEWEST_PASSES`` passes that were measured
    before. More than ``enough`` passes would hardly help, so the second look follows that number, if it is given.
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
        cells = frozenset(cell.key for cell in found.cells if cell.group in undecided)
        if over or not cells:
            return found
        # The passes grow by 40 % before the next look. Then looks are few, and each has a useful level.
        wanted = max(1, ceil(0.4 * passes)) if enough is None else enough - passes


def held(found: Comparison) -> Tolerance:
    """Return the smallest tolerance of each judged task, in whole percents, with which unchanged code passes.

    None: above 50 %, or the task is advisory.
    """
    percents: dict[str, int] = {}
    for group in found.groups:
        if group.holds is None and group.verdict != "advisory":
            continue
        least = 100 if group.holds is None else ceil(100 * group.holds)
        percents[short_name(group.key.env)] = max(percents.get(short_name(group.key.env), 1), least)
    most = 50
    return Tolerance(TOLERANCE, tuple((task, None if n > most else n / 100) for task, n in percents.items()))


class PassBudget:
    """The seconds to spend from now on. A pass begins only if it will probably end in time."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._start = self._now = clock()
        self._longest = 0.0  # the seconds of the longest pass

    def note(self, passes: int) -> None:
        """Record that this number of passes has ended since the last call."""
        before, self._now = self._now, self._clock()
        self._longest = max(self._longest, (self._now - before) / passes)

    @property
    def allows_a_pass(self) -> bool:
        """Whether another pass will probably end in time."""
        return self._now + self._longest <= self._start + self._seconds

    @property
    def used(self) -> float:
        """The share of the seconds that was used when the last pass ended."""
        return (self._now - self._start) / self._seconds


class Decisions:
    """The verdicts so far, and the spent part of the level. A decided group keeps its verdict."""

    def __init__(self) -> None:
        self._spent = 0.0
        self._groups: dict[GroupKey, GroupComparison] = {}
        self._cells: dict[tuple[CellKey, Metric], CellComparison] = {}

    def part(self, used: float) -> float:
        """Return the part of the level for a look, given the share of time used, which is 1 for the last look."""
        grown = log1p((e - 1) * min(1.0, max(0.0, used)))
        part, self._spent = max(0.0, grown - self._spent), max(self._spent, grown)
        return part

    def after(self, found: Comparison) -> Comparison:
        """Return the verdicts of a look. Groups that an earlier look decided keep their verdicts."""
        for group in found.groups:
            if group.key not in self._groups and group.judged and group.verdict != "inconclusive":
                self._groups[group.key] = group
                self._cells |= {(cell.key, cell.metric): cell for cell in found.cells if cell.group == group.key}
        cells = [(self._cells.get((cell.key, cell.metric), cell), cell.failed) for cell in found.cells]
        return replace(
            found,
            groups=tuple(self._groups.get(group.key, group) for group in found.groups),
            # A cell may fail after its group was decided, while others are measured.
            cells=tuple(replace(cell, failed=failed) for cell, failed in cells),
        )


def foreseen(baseline: Cells, compare: Compare) -> tuple[tuple[GroupComparison, ...], int]:
    """Return the groups of a comparison with a very long run like ``baseline``, and how many passes are worth it.

    ``GroupComparison.resolves`` is the slowdown that the long run could detect. A new run needs no further passes if
    its error is within 3 % of the error that passes cannot reduce.
    """
    blocks: dict[int, int] = defaultdict(new_id)
    shifted: dict[Effects, Effects] = {}
    once, forever = [], []  # the same cells, as if they were measured in other passes
    for cell in baseline:
        short_samples, long_samples = {}, {}
        for name in ("sample", *COSTS):
            sample = replace(getattr(cell, name), id=new_id())
            long_samples[name] = replace(sample, pool=ProcessPool(0.0, inf), effects=None)
            if (effects := sample.effects) is not None:
                effects = shifted.setdefault(effects, replace(effects, block=blocks[effects.block]))
            short_samples[name] = replace(sample, effects=effects)
        once.append(replace(cell, **short_samples))
        forever.append(replace(cell, **long_samples))
    short, long = (compare(baseline, twins).groups for twins in (once, forever))
    pairs = [(one.error, other.error) for one, other in zip(short, long, strict=True) if one.error and other.error]
    more = max((one / other - 1 for one, other in pairs), default=0.0)
    passes = max((cell.sample.processes for cell in baseline), default=1)
    return long, max(passes, ceil(passes * more / 0.03))


def exit_status(found: Comparison) -> Status:
    """Return the exit status: worse if a cell failed only in the candidate, undecided if a cell has no answer."""
    verdicts = {group.verdict for group in found.groups}
    if "slower" in verdicts or any(cell.failed for cell in found.cells):
        return Status.WORSE
    unanswered = (verdicts | {cell.verdict for cell in found.cells}) & set(NO_ANSWER)
    return Status.UNDECIDED if unanswered or not verdicts or "inconclusive" in verdicts else Status.DONE


def cells_of(run: Run, path: Path) -> tuple[CellSummary, ...]:
    """Return a run's cells in the order of reports. Findings quote the file name."""
    return in_report_order(summarise(run, one_line(str(path))), run.header.spec)


def chosen(
    cells: Sequence[CellKey], envs: Sequence[str], backends: Sequence[BackendChoice], source: str, option: str = "--env"
) -> list[CellKey]:
    """Return the cells of these tasks and backends, by default all. Raises UsageError if ``source`` lacks a name."""
    tasks = {cell.env: {cell.env.casefold(), short_name(cell.env).casefold()} for cell in cells}
    named = {cell.backend: {cell.backend, cell.backend.partition("[")[0]} for cell in cells}
    for env in envs:
        if not any(env.casefold() in names for names in tasks.values()):
            raise UsageError(f"{option} {shown(env)}: not in {source}{did_you_mean(env, map(short_name, tasks))}")
    for choice in backends:
        if not any(choice.label in names for names in named.values()):
            raise UsageError(f"--backend {shown(choice.label)}: not in {source}{did_you_mean(choice.label, named)}")
    wanted, labels = {env.casefold() for env in envs}, {choice.label for choice in backends}
    found = [cell for cell in cells if not wanted or tasks[cell.env] & wanted]
    return [cell for cell in found if not labels or named[cell.backend] & labels]


def unusable_run(path: Path, cells: Cells) -> str:
    """Return on one line why the run in ``path`` is unusable; empty if it is usable."""
    finding = unusable(cells)
    return "" if finding is None else f"{path} is {finding.code}: {finding.message}; {finding.remedy}"


@dataclass(frozen=True)
class CheckPage(Page):
    """A comparison of two runs."""

    baseline: str
    candidate: str
    comparison: Comparison
    differences: tuple[str, ...]  # the differences between the conditions of the runs
    status: int
    unusable: str = ""  # the unusable runs with their reasons
    calibrated: Tolerance | None = None  # the smallest tolerances that unchanged code holds, if they were asked for
    kind = "check"

    @property
    def outcome(self) -> str:
        """The outcome in a few words, the most important verdict first: ``2 slower, 6 not slower of 8 cells``."""
        if self.calibrated is not None:
            return f"--tolerance {self.calibrated.label}"
        cells = sorted(self.comparison.cells, key=lambda cell: ORDER.index(cell.verdict))
        verdicts = [figures.verdict_word(cell) for cell in cells]
        counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))
        noun = "cell" if len(self.comparison.metrics) == 1 else "verdict"
        return f"{counts} of {figures.counted(len(verdicts), noun)}"

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: a table for each task and metric with backends and cells, and the reasons of verdicts."""
        found = self.comparison
        tolerance = "the tolerance" if found.tolerance.of_tasks else found.tolerance.label
        words = f"slower, faster{' (memory: larger, smaller)' if 'memory' in found.metrics else ''}"
        certain = "" if found.run_spread is None else ", and for how runs of the same code differ"
        reasons: list[tuple[str, str | None, CellKey]] = [(cell.verdict, cell.why, cell.key) for cell in found.cells]
        reasons += [("failed", cell.failed, cell.key) for cell in found.cells if cell.failed != cell.why]
        tables = dict.fromkeys((group.key.env, group.key.metric) for group in found.groups)
        document = Document(
            title=f"{found.names.command.capitalize()}: {self.outcome}",
            facts=tuple(self._facts()),
            tables=tuple(_table(env, metric, found) for env, metric in tables),
            legend=(
                f"{words}: by more than {tolerance}, significant after correcting for all comparisons{certain}.",
                f"not slower: slower by less than {tolerance}, if at all. inconclusive: the data cannot decide.",
                "A backend is judged by the mean of its ratios; single cells only if it is slower or faster.",
                "±: the 95 % confidence interval of each ratio.",
            ),
            remarks=tuple(figures.explained(reasons)),
            notice=one_line(self.unusable),
        )
        return (document,)

    def _facts(self) -> Iterator[tuple[str, str]]:
        found, names = self.comparison, self.comparison.names
        yield names.baseline, one_line(self.baseline)
        yield names.candidate, one_line(self.candidate)
        units = ", ".join(UNITS[metric] for metric in found.metrics)
        yield "compared", f"{units}, tolerance {one_line(found.tolerance.label)}"
        resolved = [group.resolves for group in found.groups if group.resolves is not None]
        if resolved:
            cases = f"{comparison.POWER:.0%} of cases"
            yield "detectable", f"a change for the worse by {max(resolved):.0%}, in {cases}"
        if (spread := found.run_spread) is not None:
            whole = f"by {sqrt(spread.shared.variance):.1%} as a whole and " if spread.shared is not None else ""
            assumed = spread == comparison.prior_run_spread(found.metrics[0])
            known = "assumed, without --history" if assumed else "from earlier runs"
            yield "same code", f"two runs differ {whole}by {sqrt(spread.own.variance):.1%} per cell ({known})"
        if found.overall is not None and len(found.cells) > 1:
            yield "all cells", f"{figures.ratio_text(found.overall)}, geometric mean"
        if self.differences:
            yield "differs", one_line("; ".join(self.differences))

    @property
    def data(self) -> dict[str, object]:
        """The check, with the verdicts in ``cells``."""
        found, spread = self.comparison, self.comparison.run_spread
        return {
            "baseline": self.baseline,
            "candidate": self.candidate,
            "metric": ",".join(found.metrics),
            "tolerance": found.tolerance.label,
            "calibrated": self.calibrated and self.calibrated.label,
            "status": self.status,
            "overall": found.overall,
            "differences": self.differences,
            "cells": [
                _attributes(cell.key, "env", "backend", "workers", "envs_per_worker")
                | _attributes(cell, "metric", "verdict", "ratio", "why", "failed")
                for cell in found.cells
            ],
            "groups": [
                _attributes(group.key, "env", "backend", "metric")
                | _attributes(group, "verdict", "ratio", "cells", "judged", "why", "resolves", "holds")
                for group in found.groups
            ],
            "run_spread": None if spread is None or spread.shared is None else sqrt(spread.shared.variance),
            "cell_spread": None if spread is None else sqrt(spread.own.variance),
        }


def publish_verdicts(page: CheckPage, outlet: Outlet) -> int:
    """Write the verdicts to the outlet, and where GitHub Actions expects them. Returns the exit status."""
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        console.save(page, MARKDOWN, store.output_path(summary), "$GITHUB_STEP_SUMMARY", append=True)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        write_error(workflow_commands(page))
    outlet.publish(page)
    return page.status


def _attributes(of: object, *names: str) -> dict[str, object]:
    return {name: getattr(of, name) for name in names}


def _table(env: str, metric: Metric, found: Comparison) -> Table:
    """Return the table of a task: a row for each cell, and one for each backend that has several cells."""
    rows: list[TableRow] = []
    for group in found.groups:
        if (group.key.env, group.key.metric) != (env, metric):
            continue
        if group.cells > 1:
            judged = "" if group.judged == group.cells else f", {group.judged} judged"
            rows.append(_row(Text((f"all {group.cells}{judged}",)), group, [Text(("",))] * 2))
        for cell in found.cells:
            if cell.group == group.key:
                size = f"{cell.key.workers}{figures.times_envs(cell.key.envs_per_worker)}"
                levels = [Text((figures.DASH,))] * 2
                if cell.levels is not None:
                    levels = [_level(cell, level, side) for level, side in zip(cell.levels, cell.cells, strict=True)]
                rows.append(_row(Text((size,), value=cell.key.workers), cell, levels))
    columns = ("workers", "verdict", "ratio", found.names.baseline, found.names.candidate)
    return Table(f"{one_line(env)}: {UNITS[metric]}", columns, tuple(rows))


def _level(cell: CellComparison, level: float, side: CellSummary | None) -> Text:
    """Return the text of a rate or cost on one side."""
    if side is None or cell.metric not in COSTS:
        sign = "x" if cell.metric == "speedup" and cell.key.backend != REFERENCE else ""
        return Text((f"{figures.number(level)}{sign}",), value=level)
    cost = side.sample.level
    if cell.metric == "memory":
        return Text((figures.byte_size(round(cost)),), value=cost)
    of_side = side.figures
    parts = (of_side.imports_seconds, of_side.making_seconds, of_side.reset_seconds)
    shown = "+".join(f"{1000 * seconds:.0f}" for seconds in parts if seconds is not None)
    return Text((figures.short_time(cost), f"{shown} ms"), value=cost)


def _row(size: Text, judged: CellComparison | GroupComparison, levels: Iterable[Text]) -> TableRow:
    verdict, ratio = figures.verdict_word(judged), judged.ratio
    shown = Text((figures.DASH,)) if ratio is None else Text((figures.ratio_text(ratio),), value=ratio)
    named = Text((verdict,), "plain" if judged.verdict in PASSING else "missing", judged.verdict)
    return TableRow(one_line(judged.key.backend), (size, named, shown, *levels))
