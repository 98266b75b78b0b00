"""A history as a page: for each series its level now, its levels over time, and where they changed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, sqrt

from vebench.backends.registry import REFERENCE
from vebench.errors import one_line
from vebench.gates.series import FEWEST, LEAST, RECENT, History, Series, run_spread
from vebench.reports import figures
from vebench.reports.document import DataPage, Document, Remark, Table, TableRow, Text, Tone

_COLUMNS = ("runs", "level now", "newest change", "run to run", "levels")


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
            return f"slower since {_at(found, first)}: {len(found.slower)} of {many}"
        if not found.decided:
            return f"too few runs: a series needs {FEWEST} to show a change"
        new = "new change for the worse" if any(series.changes for series in found.current) else "change"
        return f"no {new} in {many} over {figures.counted(len(found.runs), 'run')}"

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: a table for each task under each set of conditions, and the date of each change."""
        found = self.history
        groups = dict.fromkeys((series.key.conditions, series.key.cell.env) for series in _newest_first(found))
        document = Document(
            title=f"History: {self.outcome}",
            facts=tuple(_facts(found)),
            tables=tuple(_table(found, conditions, env) for conditions, env in groups),
            legend=(
                "level now: the level since the newest change. ±: its 95 % confidence interval.",
                "run to run: the standard deviation of a run around its level. levels: the oldest run first.",
                f"A change is {LEAST:.0%} or more, and significant after correcting for all series.",
                f"new: the runs before the newest {RECENT} do not show it.",
            ),
            explanations=tuple(_explanations(found)),
        )
        return (document,)

    @property
    def data(self) -> dict[str, object]:
        """The history, with its runs in ``runs``, which points and changes refer to by their index."""
        found = self.history
        spread = run_spread(found.current)
        identity = ("env", "backend", "workers", "envs_per_worker")
        return {
            "metric": found.metric,
            "status": self.status,
            "outcome": self.outcome,
            "runs": [{"file": run.name, "started": run.started, "conditions": run.conditions} for run in found.runs],
            "left_out": dict(found.left_out),
            "run_to_run": None if spread is None else sqrt(spread.variance),
            "series": [
                {
                    **{name: getattr(series.key.cell, name) for name in identity},
                    "conditions": series.key.conditions,
                    "level": series.level_now,
                    "run_to_run": series.spread,
                    "points": [{"run": point.run, "value": exp(point.level)} for point in series.points],
                    "changes": [
                        {
                            "run": series.run_of(change),
                            "file": found.runs[series.run_of(change)].name,
                            "ratio": change.ratio,
                            "new": change is series.news,
                        }
                        for change in series.changes
                    ],
                }
                for series in found.series
            ],
        }


def _facts(found: History) -> Iterator[tuple[str, str]]:
    first, last = found.runs[0], found.runs[-1]
    yield "runs", f"{len(found.runs)}, from {one_line(first.name)} to {one_line(last.name)}"
    where = "all on one machine" if found.machines == 1 else f"on {found.machines} machines"
    what = "frames/s" if found.metric == "fps" else f"speedup over {REFERENCE} with one worker of the same run"
    yield "metric", f"{what}; the runs are {where}"
    if (spread := run_spread(found.current)) is not None:
        yield "run to run", f"{sqrt(spread.variance):.1%} shared by all cells of a run (standard deviation)"
    if len({run.conditions for run in found.runs}) > 1:
        yield ("conditions", f"machine or packages differ between runs; the newest: {one_line(last.conditions)}")
    if found.left_out:
        counts = ", ".join(f"{count} {reason}" for reason, count in found.left_out.items())
        yield "left out", f"{figures.counted(sum(found.left_out.values()), 'point')}: {counts}"


def _table(found: History, conditions: str, env: str) -> Table:
    alone = len({run.conditions for run in found.runs}) == 1
    unit = "frames/s" if found.metric == "fps" else "speedup"
    return Table(
        title=one_line(f"{env}: {unit}{'' if alone else f', {conditions}'}"),
        columns=_COLUMNS,
        rows=tuple(
            TableRow(one_line(f"{series.key.cell.backend}, {series.key.cell.size}"), tuple(_places(found, series)))
            for series in found.series
            if (series.key.conditions, series.key.cell.env) == (conditions, env)
        ),
    )


def _places(found: History, series: Series) -> Iterator[Text]:
    level = series.level_now
    yield Text((str(len(series.points)),), value=len(series.points))
    yield Text((figures.rate(level) if found.metric == "fps" else figures.times(level),), value=level)
    yield _newest_change(found, series)
    yield Text((figures.DASH if series.spread is None else f"{series.spread:.1%}",), value=series.spread)
    yield Text((figures.sparkline(series.levels),))


def _newest_change(found: History, series: Series) -> Text:
    if not series.changes:
        return Text(("none" if len(series.points) >= FEWEST else "too few runs",))
    newest = series.changes[-1]
    tone: Tone = "missing" if newest is series.news and newest.worse else "plain"
    lines = (
        f"{'new, ' if newest is series.news else ''}{figures.change(newest.ratio.median)}",
        _at(found, series.run_of(newest)),
    )
    return Text(lines, tone, newest.ratio)


def _explanations(found: History) -> Iterator[Remark]:
    """Yield each change once, the newest first, with the series that show it."""
    metric = "" if found.metric == "fps" else f" --metric {found.metric}"
    groups = figures.by_key(
        (
            (series.run_of(change), series.points[change.at - 1].run, change.worse, change is series.news),
            f"{figures.cell_name(series.key.cell)}: {figures.in_sentence(change.ratio, 'x')} the level before",
        )
        for series in _newest_first(found)
        for change in series.changes
    )
    for (after, before, worse, new), places in sorted(groups.items(), reverse=True):
        files = [shlex.quote(found.runs[index].name) for index in (before, after)]
        yield Remark(
            "slower" if worse else "faster",
            one_line(f"{'new, ' if new else ''}since {_at(found, after)}: {found.runs[after].name}"),
            tuple(places),
            "compare it with the run before:",
            one_line(f"vebench check {' '.join(files)}{metric}"),
        )


def _at(found: History, run: int) -> str:
    """Return a run's number, counted from 1, and its day: ``run 41 of 60, 2026-11-20``."""
    day = one_line(found.runs[run].started)[:10]
    return f"run {run + 1} of {len(found.runs)}{', ' if day else ''}{day}"


def _newest_first(found: History) -> Sequence[Series]:
    newest = {run.conditions: index for index, run in enumerate(found.runs)}
    return sorted(found.series, key=lambda series: -newest[series.key.conditions])
