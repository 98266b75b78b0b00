"""What figures of an HTML page are made of: the numbers of a chart as a table, and the strip of windows as paths."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from vebench.reports import figures
from vebench.reports.document import Table, TableRow, Text
from vebench.reports.plotting.panels import PREDICTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.analysis.statistics import Estimate
    from vebench.reports.chart import Chart, Series
    from vebench.reports.pages.noise import NoisyWindow, State

# The strip's own units: a window is STEP wide, and its height goes from 0 to 2 x MIDDLE.
STEP, MIDDLE = 10, 100
EDGE = 6  # what lies beyond the limits is drawn this far from the edge
LIMITS = (0.05, 0.1, 0.2, 0.5)
WITHIN = 0.95  # the share of windows that the limits must hold
MOST_LABELS = 8
STATES: tuple[State, ...] = ("calm", "disturbed", "throttled")
DRAWN = {"calm": "h0", "disturbed": "h0", "throttled": "m0-5v10"}


@dataclass(frozen=True)
class Strip:
    """Windows in the order of measuring, as an SVG of ``width`` and ``height`` draws them.

    ``limit`` is the share above and below the level that the height stands for, ``beyond`` how many windows are farther
    away. ``paths`` are by state, with how many windows each holds. ``passes`` are the names of the passes, each with
    the share of the width at which it begins; empty if there is one.
    """

    width: int
    height: int
    limit: float
    beyond: int
    paths: tuple[tuple[State, int, str], ...]
    passes: tuple[tuple[str, float], ...]


def strip(windows: Sequence[NoisyWindow]) -> Strip:
    """Return the strip of at least one window."""
    away = sorted(abs(window.ratio - 1) for window in windows)
    needed = away[int(WITHIN * (len(away) - 1))]
    limit = next((limit for limit in LIMITS if limit >= needed), LIMITS[-1])
    paths = {state: [_place(at, window, limit) for at, window in enumerate(windows) if window.state == state]
             for state in STATES}  # fmt: skip
    begins = [at for at, (one, other) in enumerate(pairwise(windows), 1) if one.pass_number != other.pass_number]
    named = [(f"pass {windows[at].pass_number + 1}", at / len(windows)) for at in (0, *begins)] if begins else []
    return Strip(
        width=STEP * len(windows),
        height=2 * MIDDLE,
        limit=limit,
        beyond=sum(distance > limit for distance in away),
        paths=tuple(
            (state, len(places), "".join(f"M{x} {y}{DRAWN[state]}" for x, y in places))
            for state, places in paths.items()
            if places
        ),
        passes=tuple(named if len(named) <= MOST_LABELS else [("", share) for _, share in named]),
    )


def _place(at: int, window: NoisyWindow, limit: float) -> tuple[int, int]:
    height = round(MIDDLE - MIDDLE * (window.ratio - 1) / limit)
    return STEP * at + STEP // 2, min(max(height, EDGE), 2 * MIDDLE - EDGE)


def numbers_of(chart: Chart) -> Table:
    """Return the points of a chart as a table: a row for each place on the axis, a column for each series."""
    places = sorted({x for series in chart.series for x, _ in series.points})
    by_series = [dict(series.points) for series in chart.series]
    return Table(
        title=f"{chart.title}, by {chart.x_label}",
        corner=chart.x_label,
        columns=tuple(_column(series) for series in chart.series),
        rows=tuple(TableRow(f"{x:g}", tuple(_number(points.get(x)) for points in by_series)) for x in places),
    )


def _column(series: Series) -> str:
    return series.name if series.role != "forecast" or PREDICTED in series.name else f"{series.name}, {PREDICTED}"


def _number(estimate: Estimate | None) -> Text:
    if estimate is None:
        return Text((figures.NOTHING,))
    alone = estimate.low is None and estimate.high is None
    return Text((figures.number(estimate.median) if alone else figures.rate(estimate),), value=estimate)
