"""A history as a page: for each series its level now, its levels over time, and where they changed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, sqrt

from vebench.backends.registry import REFERENCE
from vebench.errors import one_line
from vebench.gates.series import FEWEST, LEAST, RECENT, History, Series, run_spread
from vebench.reports import figures
from vebench.reports.document import DataPage, Document, Remark, Table, TableRow, Text

_COLUMNS = ("runs", "level now", "newest change", "run to run", "levels")
_LEGEND = (
    "level now: the level since the newest change. ±: its 95 % confidence interval.",
    "run to run: the standard deviation of a run around its level. levels: the oldest run first.",
    f"A change is {LEAST:.0%} or more, and significant after correcting for all series.",
    f"new: the runs before the newest {RECENT} do not show it.",
)


@dataclass(frozen=True)
class HistoryPage(DataPage):
    """A history with the exit status of the command."""

    history: History
    status: int
    kind = "history"

    @property
    def outcome(self) -> str:
        """The outcome in a few words: ``slower since run 41: 2 of 54 series``."""
        found = self.history
        many = f"{len(found.current)} series"
        if found.slower:
            first = min(series.run_of(series.changes[-1]) for series in found.slower)
            return f"slower since {self._run(first)}: {len(found.slower)} of {many}"
        if not found.decided:
            return f"too few runs: a series needs {FEWEST} to show a change"
        new = "new change for the worse" if any(series.changes for series in found.current) else "change"
        return f"no {new} in {many} over {figures.counted(len(found.runs), 'run')}"

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: a table for each task under each set of conditions, and the date of each change."""
        groups = dict.fromkeys((series.key.conditions, series.key.cell.env) for series in self._newest_first)
        document = Document(
            title=f"History: {self.outcome}",
            facts=tuple(self._facts()),
            tables=tuple(self._table(conditions, env) for conditions, env in groups),
            legend=_LEGEND,
            explanations=tuple(self._explanations()),
        )
        return (document,)

    @property
    def _newest_first(self) -> list[Series]:
        """The series, those under the conditions of the newest runs first."""
        newest = {run.conditions: index for index, run in enumerate(self.history.runs)}
        return sorted(self.history.series, key=lambda series: -newest[series.key.conditions])

    def _facts(self) -> Iterator[tuple[str, str]]:
        found = self.history
        first, last = found.runs[0], found.runs[-1]
        yield "runs", f"{len(found.runs)}, from {one_line(first.name)} to {one_line(last.name)}"
        where = "all on one machine" if found.machines == 1 else f"on {found.machines} machines"
        what = "frames/s" if found.metric == "fps" else f"speedup over {REFERENCE} with one worker of the same run"
        yield "metric", f"{what}; the runs are {where}"
        spread = run_spread(found.current)
        if spread is not None:
            yield "run to run", f"{sqrt(spread.variance):.1%} shared by all cells of a run (standard deviation)"
        if self._conditions_differ:
            yield "conditions", f"machine or packages differ between runs; the newest: {one_line(last.conditions)}"
        if found.left_out:
            counts = ", ".join(f"{count} {reason}" for reason, count in found.left_out.items())
            yield "left out", f"{figures.counted(sum(found.left_out.values()), 'point')}: {counts}"

    @property
    def _conditions_differ(self) -> bool:
        return len({run.conditions for run in self.history.runs}) > 1

    def _table(self, conditions: str, env: str) -> Table:
        unit = "frames/s" if self.history.metric == "fps" else "speedup"
        return Table(
            title=one_line(f"{env}: {unit}{f', {conditions}' if self._conditions_differ else ''}"),
            columns=_COLUMNS,
            rows=tuple(
                TableRow(one_line(f"{series.key.cell.backend}, {series.key.cell.size}"), self._texts(series))
                for series in self.history.series
                if (series.key.conditions, series.key.cell.env) == (conditions, env)
            ),
        )

    def _texts(self, series: Series) -> tuple[Text, ...]:
        level, runs = series.level_now, len(series.points)
        shown = figures.rate(level) if self.history.metric == "fps" else figures.times(level)
        change = Text(("none" if runs >= FEWEST else "too few runs",))
        if series.changes:
            newest = series.changes[-1]
            new = newest is series.news
            lines = f"{'new, ' if new else ''}{figures.change(newest.ratio.median)}", self._run(series.run_of(newest))
            change = Text(lines, "missing" if new and newest.worse else "plain", newest.ratio)
        return (
            Text((str(runs),), value=runs),
            Text((shown,), value=level),
            change,
            Text((figures.DASH if series.spread is None else f"{series.spread:.1%}",), value=series.spread),
            Text((figures.sparkline(series.levels),)),
        )

    def _explanations(self) -> Iterator[Remark]:
        """Yield each change once, the newest first, with the series that show it."""
        found = self.history
        metric = "" if found.metric == "fps" else f" --metric {found.metric}"
        changes: dict[tuple[int, int, bool, bool], list[str]] = {}
        for series in self._newest_first:
            for change in series.changes:
                key = series.run_of(change), series.points[change.at - 1].run, change.worse, change is series.news
                ratio = figures.in_sentence(change.ratio, "x")
                changes.setdefault(key, []).append(f"{figures.cell_name(series.key.cell)}: {ratio} the level before")
        for (after, before, worse, new), places in sorted(changes.items(), reverse=True):
            files = shlex.join(found.runs[index].name for index in (before, after))
            yield Remark(
                "slower" if worse else "faster",
                one_line(f"{'new, ' if new else ''}since {self._run(after)}: {found.runs[after].name}"),
                tuple(places),
                "compare it with the run before:",
                one_line(f"vebench check {files}{metric}"),
            )

    def _run(self, index: int) -> str:
        """Return a run's number, counted from 1, and its day: ``run 41 of 60, 2026-11-20``."""
        day = one_line(self.history.runs[index].started)[:10]
        return f"run {index + 1} of {len(self.history.runs)}{', ' if day else ''}{day}"

    @property
    def data(self) -> dict[str, object]:
        """The history, with its runs in ``runs``, which points and changes refer to by their index."""
        found = self.history
        spread = run_spread(found.current)
        return {
            "metric": found.metric,
            "status": self.status,
            "outcome": self.outcome,
            "runs": [{"file": run.name, "started": run.started, "conditions": run.conditions} for run in found.runs],
            "left_out": dict(found.left_out),
            "run_to_run": None if spread is None else sqrt(spread.variance),
            "series": [self._series_data(series) for series in found.series],
        }

    def _series_data(self, series: Series) -> dict[str, object]:
        cell = series.key.cell
        changes = [
            {
                "run": series.run_of(change),
                "file": self.history.runs[series.run_of(change)].name,
                "ratio": change.ratio,
                "new": change is series.news,
            }
            for change in series.changes
        ]
        return {
            "env": cell.env,
            "backend": cell.backend,
            "workers": cell.workers,
            "envs_per_worker": cell.envs_per_worker,
            "conditions": series.key.conditions,
            "level": series.level_now,
            "run_to_run": series.spread,
            "points": [{"run": point.run, "value": exp(point.level)} for point in series.points],
            "changes": changes,
        }
