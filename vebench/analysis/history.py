"""Many runs as series: for each cell its level over time, where the level changed, and by how much runs differ.

Pure functions of runs. A series has the points of one cell that were measured under the same conditions: on the same
machine with the same packages or, of speedups, with the same packages on any machine.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, islice
from math import exp, inf, log, sqrt
from statistics import fmean, variance
from typing import TYPE_CHECKING

from vebench.analysis.cell import base_of, in_report_order, is_base, yardstick_of
from vebench.analysis.change_points import FEWEST, LEVEL, Change, change_points, parts
from vebench.analysis.comparison import RunSpread
from vebench.analysis.findings import Code
from vebench.analysis.pairing import DECISIVE
from vebench.analysis.rules import unusable
from vebench.analysis.statistics import FEWEST_FOR_INTERVAL, Error, Estimate, around, ratio
from vebench.analysis.summary import summarise
from vebench.plan.spec import Pinning
from vebench.results.header import fingerprint, machine_fingerprint, work_fingerprint

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.pairing import Metric
    from vebench.plan.cells import CellKey
    from vebench.results.records import Run, RunRecord

# A change is new as long as the runs before the newest so many do not show it.
RECENT = 5
# With fewer runs, their spread is not known well enough to be of use.
FEWEST_FOR_SPREAD = 5
_RELATIVE_TO = {"speedup": base_of, "yardstick": yardstick_of}
# Findings with which a rate is not that of the cell alone.
_NOT_ITS_OWN = frozenset({Code.DISTURBED, Code.THROTTLED})


@dataclass(frozen=True)
class SeriesKey:
    """The identity of a series: the cell, the numbers in ``DECISIVE``, and the conditions that it was measured under.

    ``conditions`` is the fingerprint of the machine and the packages, or of the packages alone, with the placement
    where it is not the default one.
    """

    cell: CellKey
    shape: tuple[int, ...]
    conditions: str


@dataclass(frozen=True)
class Point:
    """The level of a cell in one run: ``run`` is its index among all runs, ``level`` the logarithm of the metric."""

    run: int
    level: float


@dataclass(frozen=True)
class Series:
    """The points of one cell, the oldest first, and its changes. ``news`` is its newest change if it is a new one.

    A change is new if the series has the conditions of the newest run, and the runs before the newest ``RECENT`` under
    these conditions do not show it.
    """

    key: SeriesKey
    points: tuple[Point, ...]
    changes: tuple[Change, ...] = ()
    news: Change | None = None

    @property
    def levels(self) -> list[float]:
        """The levels of all points, as logarithms."""
        return [point.level for point in self.points]

    @property
    def parts(self) -> list[Sequence[float]]:
        """The levels between changes."""
        return parts(self.levels, [change.at for change in self.changes])

    @property
    def level_now(self) -> Estimate:
        """The level since the newest change: the geometric mean of its points."""
        newest = self.parts[-1]
        middle = exp(fmean(newest))
        if len(newest) < FEWEST_FOR_INTERVAL:
            return Estimate(middle)
        return around(middle, Error(variance(newest) / len(newest), len(newest) - 1).half_width())

    @property
    def residuals(self) -> list[float]:
        """How far each point is from the level of its part, as a difference of logarithms."""
        return [level - fmean(part) for part in self.parts for level in part]

    @property
    def spread(self) -> float | None:
        """The standard deviation of points around the level of their part, on the log scale; None for too few."""
        freedom = len(self.points) - len(self.parts)
        return sqrt(sum(residual**2 for residual in self.residuals) / freedom) if freedom else None

    def run_of(self, change: Change) -> int:
        """Return the index of the first run after a change, among all runs."""
        return self.points[change.at].run

    def run_before(self, change: Change) -> int:
        """Return the index of the last run before it."""
        return self.points[change.at - 1].run


@dataclass(frozen=True)
class PastRun:
    """A run by the name of its file, when it started, as its file says it, and the conditions that it ran under."""

    name: str
    started: str
    conditions: str


@dataclass(frozen=True)
class History:
    """Runs, the oldest first, and their series. ``machines`` is how many machines they ran on.

    ``left_out`` counts the points that no series has, by the reason why.
    """

    metric: Metric
    machines: int
    runs: tuple[PastRun, ...]
    series: tuple[Series, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def current(self) -> tuple[Series, ...]:
        """The series that have the conditions of the newest run."""
        return tuple(one for one in self.series if self.runs and one.key.conditions == self.runs[-1].conditions)

    @property
    def slower(self) -> tuple[Series, ...]:
        """The series whose newest change is a new one for the worse."""
        return tuple(series for series in self.series if series.news is not None and series.news.worse)

    @property
    def decided(self) -> bool:
        """Whether any current series has enough points to show a change."""
        return any(len(series.points) >= FEWEST for series in self.current)


def history(
    runs: Iterable[tuple[str, Run]], metric: Metric | None = None, only: Collection[CellKey] | None = None
) -> History:
    """Return the series of ``runs``, each with the name of its file, in the order in which they started.

    Without a ``metric``, it is frames per second if all runs ran on one machine, else the speedup. ``only`` are the
    cells to look at, by default all but reference rows.
    """
    ordered = sorted(runs, key=lambda item: (_moment(item[1].header.started), item[0]))
    machines = len({machine_fingerprint(run.header) for _, run in ordered})
    metric = metric or ("fps" if machines <= 1 else "speedup")
    past = tuple(PastRun(name, run.header.started, _conditions(run.header, metric)) for name, run in ordered)
    points: dict[SeriesKey, list[Point]] = {}
    left_out: Counter[str] = Counter()
    for index, (name, run) in enumerate(ordered):
        cells = {cell.key: cell for cell in in_report_order(summarise(run, name), run.header.spec)}
        whole = unusable([*cells.values()])
        for cell in cells.values():
            # Skipped cells could not run; a cell's speedup over itself is no figure.
            itself = metric == "speedup" and is_base(cell.key)
            chosen = only is None or cell.key in only
            if not chosen or cell.status == "skipped" or cell.reference_row or itself:
                continue
            base = None if metric == "fps" else cells.get(_RELATIVE_TO[metric](cell.key))
            estimate = cell.frames_per_second if metric == "fps" else cell.speedup
            if metric == "yardstick":
                estimate = None if base is None else ratio(cell.sample, base.sample)
            if (reason := whole.code if whole else _why_not(cell, base)) is not None:
                left_out[reason] += 1
            elif estimate is None or estimate.median <= 0:
                left_out["no rate" if metric == "fps" else "no speedup"] += 1
            else:
                shape = tuple(getattr(cell, name) for name in DECISIVE)
                key = SeriesKey(cell.key, shape, past[index].conditions)
                points.setdefault(key, []).append(Point(index, log(estimate.median)))
    series = [Series(key, tuple(measured)) for key, measured in points.items()]
    return History(metric, machines, past, tuple(with_changes(series, past)), left_out)


def with_changes(series: Sequence[Series], runs: Sequence[PastRun]) -> Iterable[Series]:
    """Yield the series with their changes.

    The level of the tests is divided by their number (Bonferroni), so that of many steady series together no more show
    a change than of one.
    """
    level = LEVEL / max(sum(len(one.points) >= FEWEST for one in series), 1)
    for one in series:
        alike = [index for index, run in enumerate(runs) if run.conditions == one.key.conditions]
        earlier = [point.level for point in one.points if point.run not in alike[-RECENT:]]
        changes = change_points(one.levels, level)
        current = one.key.conditions == runs[-1].conditions
        yield replace(one, changes=changes, news=_news(changes, earlier, level) if current else None)


def run_spread(series: Sequence[Series]) -> Error | None:
    """Return by how much whole runs differ, as a variance of log levels; None with fewer than five runs.

    What one run shares, such as a machine that is slower that day, shifts all its cells alike. So each point is taken
    apart into the level of its part of its series, the shift of its run, and a rest, by least squares (the two-way
    layout, as in ``pooling``); this is the variance of the shifts. Runs that no level connects, because they have no
    cell in common, or because all levels change between them, show nothing about how they differ: of each connected set
    of runs, one degree of freedom is spent on its levels. Series with fewer than five points are left out.

    It includes the error of the cells of a run, divided by their number, and all of it where there is only one series.
    """
    levels: list[dict[int, float]] = []  # the points between changes, by run
    for one in series:
        runs_of = (point.run for point in one.points)
        if len(one.points) >= FEWEST_FOR_SPREAD:
            levels += [dict(zip(islice(runs_of, len(part)), part, strict=True)) for part in one.parts]
    runs = {run for level in levels for run in level}
    sets = _connected(levels)
    freedom = len(runs) - len(sets)
    if len(runs) < FEWEST_FOR_SPREAD or freedom < 1:
        return None
    return Error(sum(shift**2 for shift in _shifts(levels, sets)) / freedom, freedom)


def _connected(groups: Iterable[Iterable[int]]) -> list[set[int]]:
    """Return the sets of runs that are connected, directly or by way of others, by a group that has both."""
    sets: list[set[int]] = []
    for group in groups:
        joined = set(group)
        apart = [one for one in sets if not one & joined]
        sets = [*apart, joined.union(*(one for one in sets if one & joined))]
    return sets


def _shifts(levels: Sequence[Mapping[int, float]], sets: Sequence[set[int]]) -> list[float]:
    """Return the shifts of runs by least squares. Those of each of the connected ``sets`` add up to zero."""
    import numpy as np  # noqa: PLC0415 - imported on use: other commands that come by here need no arrays

    columns = {run: column for column, run in enumerate(chain.from_iterable(sets))}
    normal, right = np.zeros((len(columns), len(columns))), np.zeros(len(columns))
    for level in levels:
        # Without its mean, a part says nothing of its level: only shifts are left to be found.
        places, middle = [columns[run] for run in level], fmean(level.values())
        normal[np.ix_(places, places)] += np.eye(len(places)) - 1 / len(places)
        right[places] += [value - middle for value in level.values()]
    for among in sets:
        places = [columns[run] for run in among]
        normal[np.ix_(places, places)] += 1 / len(places)
    return [float(shift) for shift in np.linalg.solve(normal, right)]


def spread_of_runs(runs: Iterable[tuple[str, Run]], like: RunRecord, metric: Metric) -> RunSpread | None:
    """Return by how much runs under the same conditions differ, None if there are too few.

    ``runs`` come with the names of their files; those under other conditions than the run ``like`` do not count. What
    is left to the cells contains the error with which they were measured, so it is rather too large.
    """
    conditions = _conditions(like, metric)
    alike = ((name, run) for name, run in runs if _conditions(run.header, metric) == conditions)
    known = [one for one in history(alike, metric).series if len(one.points) >= FEWEST_FOR_SPREAD]
    shared, freedom = run_spread(known), sum(len(one.points) - len(one.parts) for one in known)
    if shared is None or not freedom:
        return None
    of_points = sum(residual**2 for one in known for residual in one.residuals) / freedom
    if metric == "fps":
        return RunSpread(shared, Error(max(0.0, of_points - shared.variance), shared.freedom))
    return RunSpread(None, Error(of_points / 2, shared.freedom))  # a ratio has the errors of two cells


def _moment(started: str) -> float:
    """Return when a run started, in seconds, so that runs can be ordered; before all others if it is not known."""
    try:
        moment = datetime.fromisoformat(started)
    except ValueError:
        return -inf
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _conditions(header: RunRecord, metric: Metric) -> str:
    """Return what a series' points have in common: a fingerprint, and options of placement that are not the default."""
    digits = fingerprint(header) if metric == "fps" else work_fingerprint(header)
    # With other CPUs or other memory, a cell has another level.
    pin, replicas = header.spec.pin, header.spec.replicas
    pinned = [f"--pin {pin.label}"] if pin != Pinning() else []
    return " ".join((digits, *pinned, *([f"--replicas {replicas}"] if replicas != 1 else [])))


def _why_not(cell: CellSummary, base: CellSummary | None) -> str | None:
    """Return why a cell's figures are no point of a series, None if they are. ``base`` is what they are relative to."""
    if cell.status != "ok":
        return cell.status
    if cell.struck:
        return cell.why_struck
    if base is not None and base.struck:
        return base.why_struck
    findings = (*cell.findings, *(base.findings if base is not None else ()))
    return next((finding.code.value for finding in findings if finding.code in _NOT_ITS_OWN), None)


def _news(changes: Sequence[Change], earlier: Sequence[float], level: float) -> Change | None:
    """Return the newest change if the ``earlier`` levels do not show it, or one of its kind at about its place."""
    if not changes:
        return None
    newest = changes[-1]
    known = change_points(earlier, level)
    same = (abs(change.at - newest.at) < RECENT and change.worse == newest.worse for change in known)
    return None if any(same) else newest
