"""``vebench history``: the levels of cells over many runs, when they changed, and how much runs differ.

A series has the levels of one cell under the same conditions: on the same machine with the same packages or, for
speedups, with the same packages on any machine. E-divisive finds the places of changes, in windows, so that a long
history hides nothing. Student's t tests them, so a series always has the same answer (docs/reference/statistics.md).
"""

from __future__ import annotations

import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from filecmp import cmp
from itertools import pairwise
from math import exp, inf, log, log1p, sqrt
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vebench.analysis.cell import CellSummary, Code, base_of, in_report_order, yardstick_of
from vebench.analysis.comparison import Metric, RunSpread
from vebench.analysis.rules import unusable
from vebench.analysis.statistics import Contrast, Error, Estimate, around, ratio, variance
from vebench.analysis.summary import rated
from vebench.commands.session import known
from vebench.errors import RunFileError, UsageError, one_line
from vebench.gates import gate
from vebench.gates.gate import Status
from vebench.plan.cells import CellKey
from vebench.plan.grammar import BackendChoice, Pinning
from vebench.reports import console, figures
from vebench.reports.console import Outlet
from vebench.reports.document import Document, Page, Remark, Table, TableRow, Text
from vebench.results import store
from vebench.results.records import Run, RunRecord, fingerprint, with_current_verdicts

RECENT = 5  # a change is new if the series without its newest ``RECENT`` runs does not show it
FEWEST_FOR_SPREAD = 5  # with fewer runs, their spread is too uncertain to be used
# The level of the test of one place in a series of at least WINDOW values. Shorter series are tested at a stricter
# level: they show the correlation of runs less well, and CI looks at them after each run. docs/reference/statistics.md
_LEVEL = 0.002
_LENIENT = 10.0  # the factor of the level for the first test of a place, before the final test, as in Hunter
WINDOW = 50  # the number of values in a window of the search, as in Hunter; windows overlap by half
SHORTEST = 3  # the smallest number of values in a part: a single outlier is not a level
FEWEST = 2 * SHORTEST
LEAST = 0.02  # a smaller change is ignored, because the place of data in memory alone causes such changes


def show_history(
    folder: Path, envs: tuple[str, ...], backends: tuple[BackendChoice, ...], keep: Path | None, outlet: Outlet
) -> int:
    """Show the levels of these cells, by default all, over the runs in ``folder``. Returns the exit status.

    Before that, the run file ``keep`` is copied to the folder. Raises UsageError if that fails, or without any run.
    """
    if keep is not None:
        store.read(keep)
        target = folder / keep.name
        try:
            folder.mkdir(exist_ok=True)
            if not (target.exists() and cmp(target, keep, shallow=False)):
                store.refuse_to_overwrite(target, "--store")
                shutil.copyfile(keep, target)
        except OSError as error:
            raise UsageError(f"--store: cannot write {target}: {error.strerror}") from None
    page = history_of(runs_in(folder), choose=lambda cells: gate.chosen(cells, envs, backends, f"{folder}/"))
    outlet.publish(page)
    return page.status


def runs_in(folder: Path) -> Iterator[tuple[str, Run]]:
    """Yield the runs in ``folder`` with the names of their files, and sides of comparisons without their other side.

    A note on standard error names each run file that cannot be read. Raises UsageError if there is no run.
    """
    knowledge, found = known(), False
    sides: dict[tuple[str, str], list[tuple[str, Run]]] = {}  # the sides of each comparison
    for path in filter(store.holds_run, store.run_files_in(folder)):
        try:
            run = with_current_verdicts(store.read(path), knowledge)
        except RunFileError as error:
            console.note(f"left out: {error}")
            continue
        if run.header.interpreter is not None and not run.header.code:
            sides.setdefault((run.header.command, run.header.started), []).append((one_line(str(path)), run))
            continue
        found = True
        yield one_line(str(path)), run
    alone = [both[0] for both in sides.values() if len(both) == 1]
    yield from alone
    if not found and not alone:
        raise UsageError(f"no usable run in {folder}/: vebench run writes runs")


@dataclass(frozen=True)
class Change:
    """A change of level."""

    at: int  # the index of the first value after the change
    ratio: Estimate  # the level after this change (up to the next), divided by the level before it
    chance: float  # the probability of such a large difference at this place without a change

    @property
    def worse(self) -> bool:
        """Whether the level is lower after the change."""
        return self.ratio.median < 1


def change_points(levels: Sequence[float], level: float = _LEVEL, *, drifts: bool = True) -> tuple[Change, ...]:
    """Return the changes in ``levels``, which are logarithms. ``level`` is the significance level in a long series.

    ``drifts``: whether neighbours were measured one after the other, so that a drift of the machine correlates them.
    """
    level *= min(len(levels) / WINDOW, 1.0) ** 2
    places = _candidates(levels, _LENIENT * level, drifts=drifts)
    while places:
        between = parts(levels, places)
        correlation = _correlation(between) if drifts else 0.0
        changes = [_change(at, *sides, correlation) for at, sides in zip(places, pairwise(between), strict=True)]
        weakest = max(changes, key=lambda change: change.chance)
        if weakest.chance <= level:
            return tuple(changes)
        places.remove(weakest.at)
    return ()


def parts(levels: Sequence[float], places: Sequence[int]) -> list[Sequence[float]]:
    """Return the parts of ``levels``, given the indices at which all parts but the first begin."""
    return [levels[start:end] for start, end in pairwise((0, *places, len(levels)))]


def _correlation(between: Sequence[Sequence[float]]) -> float:
    """Return the correlation of neighbouring deviations from the levels of the parts, between 0 and 0.9."""
    # Each estimated level lowers the correlation by (1 + 3 r) / n (F. Marriott, J. Pope, Biometrika 41, 1954). In few
    # runs, the correlation is estimated too low, so raise it by 1.35 standard errors.
    rest = [level - fmean(part) for part in between for level in part]
    found = sum(one * later for one, later in pairwise(rest)) / (sum(one**2 for one in rest) or 1.0)
    found += len(between) * (1 + 3 * max(found, 0.0)) / len(rest) + 1.35 / sqrt(len(rest))
    return min(max(found, 0.0), 0.9)


def _candidates(levels: Sequence[float], level: float, *, drifts: bool) -> list[int]:
    """Return the places that are significant at this level within their window."""
    values = np.asarray(levels, dtype=float)
    # The element i, j is the sum of all distances between the first i levels and the first j levels.
    sums = np.zeros((len(values) + 1, len(values) + 1))
    sums[1:, 1:] = np.abs(values[:, None] - values[None, :]).cumsum(axis=0).cumsum(axis=1)
    found: set[int] = set()
    start = 0
    while start + FEWEST <= len(levels):
        end = min(start + WINDOW, len(levels))
        found.update(_divided(levels, sums, start, end, level, drifts=drifts))
        if end == len(levels):
            break
        # If the last change is later than half of the window, begin the next window there.
        start = max(start + WINDOW // 2, *found, 0)
    return sorted(found)


def _divided(
    levels: Sequence[float], sums: NDArray[np.float64], start: int, end: int, level: float, *, drifts: bool
) -> Iterator[int]:
    """Yield the best place between ``start`` and ``end`` if it is significant, and then the places in both parts."""
    if end - start < FEWEST:
        return
    at, stop = _best_place(sums, start, end)
    before = levels[start:at]
    sides = [(before, after) for after in (levels[at:end], levels[at:stop])]
    lasting, ended = (_chance(_ratio(*both, _correlation(both) if drifts else 0.0)) for both in sides)
    # A level that ends within the window must be more certain, because more places were tried.
    if min(lasting, _LENIENT**2 * ended) > level:
        return
    yield at
    yield from _divided(levels, sums, start, at, level, drifts=drifts)
    yield from _divided(levels, sums, at, end, level, drifts=drifts)


def _best_place(sums: NDArray[np.float64], start: int, end: int) -> tuple[int, int]:
    """Return ``at`` and ``stop``: the part between them is the farthest from the part between ``start`` and ``at``.

    The distance of parts with m and n values is m n / (m + n) times their energy distance, with distances of power 1
    (Matteson & James, equations 5 to 7).
    """
    places = np.arange(start + SHORTEST, end - SHORTEST + 1)[:, None]
    ends = np.arange(start + FEWEST, end + 1)[None, :]
    left, right = places - start, np.maximum(ends - places, SHORTEST)
    across = sums[places, ends] - sums[start, ends] - sums[places, places] + sums[start, places]
    within_left = sums[places, places] - 2 * sums[start, places] + sums[start, start]
    within_right = sums[ends, ends] - 2 * sums[places, ends] + sums[places, places]
    apart = (2 * across - right * within_left / (left - 1) - left * within_right / (right - 1)) / (left + right)
    row, column = np.unravel_index(np.where(ends - places >= SHORTEST, apart, -inf).argmax(), apart.shape)
    return start + SHORTEST + int(row), start + FEWEST + int(column)


def _change(at: int, before: Sequence[float], after: Sequence[float], correlation: float) -> Change:
    """Return the change between two parts. Its chance is 1 if the change is too small, or comes from one outlier."""
    ratio = _ratio(before, after, correlation)
    low, high = fmean(before), fmean(after)
    trimmed = _ratio(
        sorted(before, key=lambda level: abs(level - high))[:-1],
        sorted(after, key=lambda level: abs(level - low))[:-1],
        correlation,
    )
    # Without the farthest value of each part, at least half of a change must remain.
    if abs(ratio.log) < -log1p(-LEAST) or 2 * trimmed.log / ratio.log < 1:
        return Change(at, ratio.estimate, 1.0)
    return Change(at, ratio.estimate, max(_chance(ratio), _chance(trimmed) / _LENIENT))


def _ratio(before: Sequence[float], after: Sequence[float], r: float) -> Contrast:
    """Return the ratio of two parts. Both are first-order autoregressions with correlation ``r`` and one variance."""
    m, n = len(before), len(after)
    spread = ((m - 1) * variance(before) + (n - 1) * variance(after)) / (m + n - 2)
    left, right, factor = (1 - r**m) / m, (1 - r**n) / n, (1 + r) / (1 - r)
    error = factor * (1 / m + 1 / n) - 2 * r * (left / m + right / n + left * right) / (1 - r) ** 2
    return Contrast(fmean(after) - fmean(before), Error(spread * error, max((m + n) / factor - 2, 1.0)))


def _chance(ratio: Contrast) -> float:
    return 2 * min(ratio.chance_above(1.0), ratio.chance_below(1.0))


@dataclass(frozen=True)
class Series:
    """The levels of one cell under the same conditions, from the oldest to the newest, and the changes of level."""

    cell: CellKey
    conditions: str
    runs: tuple[int, ...]  # the index of each level's run
    levels: tuple[float, ...]  # logarithms of the metric
    changes: tuple[Change, ...] = ()
    # The newest change, if the series has the conditions of the newest run, and runs before the newest ``RECENT`` do
    # not show the change.
    news: Change | None = None

    @property
    def parts(self) -> list[Sequence[float]]:
        """The levels between changes."""
        return parts(self.levels, [change.at for change in self.changes])

    @property
    def level_now(self) -> Estimate:
        """The level since the newest change: the geometric mean of the points since then."""
        newest = self.parts[-1]
        middle = exp(fmean(newest))
        if len(newest) <= 1:
            return Estimate(middle)
        return around(middle, Error(variance(newest) / len(newest), len(newest) - 1).half_width())

    @property
    def residual(self) -> Error:
        """The variance of levels around the mean of their part, with its degrees of freedom: 0 for too few levels."""
        freedom = len(self.levels) - len(self.parts)
        squares = sum((level - fmean(part)) ** 2 for part in self.parts for level in part)
        return Error(squares / max(freedom, 1), freedom)


class PastRun(NamedTuple):
    """One run of a history."""

    file: str  # the name of the run file
    started: str
    conditions: str
    code: str = ""  # the commit or release, if it is known


def history_of(
    runs: Iterable[tuple[str, Run]],
    metric: Metric | None = None,
    choose: Callable[[Sequence[CellKey]], Collection[CellKey]] | None = None,
) -> HistoryPage:
    """Return the series of the cells that ``choose`` returns. ``runs`` has run files' names and runs, and may be lazy.

    The default metric is frames per second if all runs are of one machine, and else the speedup.
    """
    measured = [(name, run.header, in_report_order(rated(run), run.header.spec)) for name, run in runs]
    measured.sort(key=lambda item: (item[1].code_order or item[1].started, item[0]))
    machines = len({fingerprint(header, "machine") for _, header, _ in measured})
    metric = metric or ("fps" if machines <= 1 else "speedup")
    past = tuple(PastRun(name, head.started, _conditions(head, metric), head.code) for name, head, _ in measured)
    keys = [*dict.fromkeys(cell.key for *_, cells in measured for cell in cells)]
    wanted = set(keys if choose is None else choose(keys))
    points: dict[tuple[CellKey, str, tuple[int, ...]], list[tuple[int, float]]] = {}
    left_out: Counter[str] = Counter()
    for index, (*_, cells) in enumerate(measured):
        by_key = {cell.key: cell for cell in cells}
        whole = unusable(cells)
        for cell in cells:
            itself = metric == "speedup" and cell.key == base_of(cell.key)
            if cell.key not in wanted or cell.status == "skipped" or cell.reference_row or itself:
                continue
            base = None if metric == "fps" else (base_of if metric == "speedup" else yardstick_of)(cell.key)
            level = whole.code if whole else _level(cell, by_key.get(base) if base else None, metric)
            if isinstance(level, str):
                left_out[level] += 1
            else:
                shape = tuple(cell.shape.values())
                points.setdefault((cell.key, past[index].conditions, shape), []).append((index, level))
    series = []
    # All tests together have the significance level of one.
    level_of_test = _LEVEL / max(sum(len(its) >= FEWEST for its in points.values()), 1)
    for (key, conditions, _), its in points.items():
        of_runs, levels = zip(*its, strict=True)
        drifts = not all(past[index].code for index in of_runs)  # a backfill does not follow the order of commits
        one = Series(key, conditions, of_runs, levels, change_points(levels, level_of_test, drifts=drifts))
        series.append(replace(one, news=_news(one, past, level_of_test, drifts=drifts)))
    return HistoryPage(metric, machines, past, tuple(series), left_out)


def _news(one: Series, past: Sequence[PastRun], level: float, *, drifts: bool) -> Change | None:
    """Return the newest change, unless earlier runs show a change in the same direction at about the same place."""
    if not one.changes or one.conditions != past[-1].conditions:
        return None
    newest = one.changes[-1]
    recent = [index for index, run in enumerate(past) if run.conditions == one.conditions][-RECENT:]
    earlier = [level for run, level in zip(one.runs, one.levels, strict=True) if run not in recent]
    for change in change_points(earlier, level, drifts=drifts):
        if abs(change.at - newest.at) < RECENT and change.worse == newest.worse:
            return None
    return newest


def _level(cell: CellSummary, base: CellSummary | None, metric: Metric) -> float | str:
    """Return the logarithm of a cell's metric, relative to its ``base``, or why this level is left out."""
    if cell.status != "ok":
        return cell.status
    for one in (cell,) if base is None else (cell, base):
        if one.exclusion is not None:
            return one.exclusion
        if one.conditions.throttled_windows:
            return Code.THROTTLED
        if one.conditions.disturbed:
            return Code.DISTURBED
    if metric == "fps":
        return log(cell.sample.middle) if cell.sample.middle else "no rate"
    over = None if base is None else ratio(cell.sample, base.sample)
    return log(over.median) if over and over.median else "no speedup"


def _conditions(header: RunRecord, metric: Metric) -> str:
    """Return the conditions of a run: a fingerprint, and options of placement that are not the default."""
    digits = fingerprint(header) if metric == "fps" else fingerprint(header, "work")
    pin, replicas = header.spec.pin, header.spec.replicas
    pinned = [f"--pin {pin.label}"] if pin != Pinning() else []
    return " ".join((digits, *pinned, *([f"--replicas {replicas}"] if replicas != 1 else [])))


def run_spread(series: Sequence[Series]) -> Error | None:
    """Return the difference between whole runs, as a variance of log levels; None with too few runs.

    Least squares split each level into the mean of its part, the shift of its run, and a rest (the two-way layout, as
    in ``statistics``). Runs that share no part cannot be compared. So each set of runs that shared parts connect costs
    one degree of freedom.
    """
    long = [one for one in series if len(one.levels) >= FEWEST_FOR_SPREAD]
    runs = {run for one in long for run in one.runs}
    if len(runs) < FEWEST_FOR_SPREAD:
        return None
    normal, right = np.zeros((max(runs) + 1, max(runs) + 1)), np.zeros(max(runs) + 1)
    for one in long:
        for start, end in pairwise((0, *(change.at for change in one.changes), len(one.levels))):
            of_run = np.eye(len(right))[list(one.runs[start:end])]
            of_run -= of_run.mean(axis=0)  # without the mean of the part, only shifts of runs remain
            normal += of_run.T @ of_run
            right += of_run.T @ np.array(one.levels[start:end])
    # In the shortest solution, the shifts of each connected set add up to zero.
    shifts, _, freedom, _ = np.linalg.lstsq(normal, right, rcond=None)
    return Error(float(shifts @ shifts) / int(freedom), int(freedom)) if freedom else None


def spread_of_runs(runs: Iterable[tuple[str, Run]], like: RunRecord, metric: Metric) -> RunSpread | None:
    """Return the difference between runs under the conditions of the run ``like``; None with too few such runs.

    ``runs`` has run files' names and runs. The error of single cells includes the error of their measurement.
    """
    conditions = _conditions(like, metric)
    alike = ((name, run) for name, run in runs if _conditions(run.header, metric) == conditions)
    series = [one for one in history_of(alike, metric).series if len(one.levels) >= FEWEST_FOR_SPREAD]
    shared, errors = run_spread(series), [one.residual for one in series]
    freedom = sum(error.freedom for error in errors)
    if shared is None or not freedom:
        return None
    of_points = sum(error.variance * error.freedom for error in errors) / freedom
    if metric == "fps":
        return RunSpread(shared, Error(max(0.0, of_points - shared.variance), shared.freedom))
    return RunSpread(None, Error(of_points / 2, shared.freedom))  # a ratio has the errors of two cells


@dataclass(frozen=True)
class HistoryPage(Page):
    """Runs, from the oldest to the newest, and their series: current levels, levels over time, and changes."""

    metric: Metric
    machines: int
    runs: tuple[PastRun, ...]
    series: tuple[Series, ...]
    left_out: Mapping[str, int]  # the number of points that are in no series, by reason
    kind = "history"

    @property
    def current(self) -> tuple[Series, ...]:
        """The series that have the conditions of the newest run."""
        return tuple(one for one in self.series if self.runs and one.conditions == self.runs[-1].conditions)

    @property
    def slower(self) -> tuple[Series, ...]:
        """The series with a new change for the worse."""
        return tuple(series for series in self.series if series.news is not None and series.news.worse)

    @property
    def status(self) -> Status:
        """The exit status of the command."""
        if self.slower:
            return Status.WORSE
        return Status.DONE if any(len(one.levels) >= FEWEST for one in self.current) else Status.UNDECIDED

    @property
    def outcome(self) -> str:
        """The outcome in a few words: ``slower since run 41 of 60, 2026-11-20: 2 of 54 series``."""
        many = f"{len(self.current)} series"
        if self.slower:
            first = min(series.runs[series.changes[-1].at] for series in self.slower)
            return f"slower since {self._run(first)}: {len(self.slower)} of {many}"
        if self.status is Status.UNDECIDED:
            return f"too few runs: a series needs {FEWEST} to show a change"
        new = "new change for the worse" if any(series.changes for series in self.current) else "change"
        return f"no {new} in {many} over {figures.counted(len(self.runs), 'run')}"

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: a table for each task under each set of conditions, and the changes."""
        newest = {run.conditions: index for index, run in enumerate(self.runs)}
        unit = gate.UNITS[self.metric]
        where = "all on one machine" if self.machines == 1 else f"on {self.machines} machines"
        counts = ", ".join(f"{count} {reason}" for reason, count in self.left_out.items())
        facts = (
            ("runs", f"{len(self.runs)}, from {one_line(self.runs[0].file)} to {one_line(self.runs[-1].file)}"),
            ("metric", f"{unit}; the runs are {where}"),
            ("left out", f"{figures.counted(sum(self.left_out.values()), 'point')}: {counts}" if counts else ""),
        )
        newest_first = sorted(self.series, key=lambda series: -newest[series.conditions])
        tables = []
        by_task = figures.by_key(((one.conditions, one.cell.env), one) for one in newest_first)
        for (conditions, env), its in by_task.items():
            title = one_line(f"{env}: {unit}{f', {conditions}' if len(newest) > 1 else ''}")
            rows = tuple(TableRow(one_line(f"{one.cell.backend}, {one.cell.size}"), self._texts(one)) for one in its)
            tables.append(Table(title, ("runs", "level now", "newest change", "run to run", "levels"), rows))
        document = Document(
            title=f"History: {self.outcome}",
            facts=tuple((name, text) for name, text in facts if text),
            tables=tuple(tables),
            legend=(
                "level now: the level since the newest change. ±: its 95 % confidence interval.",
                "run to run: the standard deviation of a run around its level. levels: the oldest run first.",
                f"A change is {LEAST:.0%} or more, and significant after correcting for all series.",
                f"new: the runs before the newest {RECENT} do not show it.",
            ),
            remarks=tuple(self._explanations(newest_first)),
        )
        return (document,)

    def _texts(self, series: Series) -> tuple[Text, ...]:
        level, runs, residual = series.level_now, len(series.levels), series.residual
        shown = figures.with_spread(level, "" if self.metric == "fps" else "x")
        change = Text(("none" if runs >= FEWEST else "too few runs",))
        if series.changes:
            newest = series.changes[-1]
            new = newest is series.news
            lines = f"{'new, ' if new else ''}{newest.ratio.median - 1:+.1%}", self._run(series.runs[newest.at])
            change = Text(lines, "missing" if new and newest.worse else "plain", newest.ratio)
        spread = sqrt(residual.variance) if residual.freedom else None
        return (
            Text((str(runs),), value=runs),
            Text((shown,), value=level),
            change,
            Text((figures.DASH if spread is None else f"{spread:.1%}",), value=spread),
            Text((figures.sparkline(series.levels),)),
        )

    def _explanations(self, newest_first: Sequence[Series]) -> Iterator[Remark]:
        """Yield each change once, with the series that show it. The newest change comes first."""
        metric = "" if self.metric == "fps" else f" --metric {self.metric}"
        changes: dict[tuple[int, int, bool, bool], list[str]] = {}
        for series in newest_first:
            for change in series.changes:
                key = series.runs[change.at], series.runs[change.at - 1], change.worse, change is series.news
                over = figures.in_sentence(change.ratio, "x")
                changes.setdefault(key, []).append(f"{figures.cell_name(series.cell)}: {over} the level before")
        for (after, before, worse, new), places in sorted(changes.items(), reverse=True):
            files = shlex.join(self.runs[index].file for index in (before, after))
            yield Remark(
                "slower" if worse else "faster",
                one_line(f"{'new, ' if new else ''}since {self._run(after)}: {self.runs[after].file}"),
                tuple(places),
                "compare it with the run before:",
                one_line(f"vebench check {files}{metric}"),
            )

    def _run(self, index: int) -> str:
        """Return the number of a run, counted from 1, and its code or day: ``run 41 of 60, 2026-11-20``."""
        which = one_line(self.runs[index].code or self.runs[index].started[:10])
        return f"run {index + 1} of {len(self.runs)}{', ' if which else ''}{which}"

    @property
    def data(self) -> dict[str, object]:
        """The history for programs. Points and changes refer to ``runs`` by index."""
        spread = run_spread(self.current)
        series = []
        for one in self.series:
            changes = []
            for change in one.changes:
                run = one.runs[change.at]
                new = change is one.news
                changes.append({"run": run, "file": self.runs[run].file, "ratio": change.ratio, "new": new})
            values = [{"run": run, "value": exp(level)} for run, level in zip(one.runs, one.levels, strict=True)]
            series.append(
                {
                    **{name: getattr(one.cell, name) for name in ("env", "backend", "workers", "envs_per_worker")},
                    "conditions": one.conditions,
                    "level": one.level_now,
                    "run_to_run": sqrt(one.residual.variance) if one.residual.freedom else None,
                    "points": values,
                    "changes": changes,
                }
            )
        return {
            "metric": self.metric,
            "status": self.status,
            "outcome": self.outcome,
            "runs": [run._asdict() for run in self.runs],
            "left_out": dict(self.left_out),
            "run_to_run": None if spread is None else sqrt(spread.variance),
            "series": series,
        }
