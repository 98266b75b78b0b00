"""What a chart becomes in a figure before it is drawn: how each series looks, what it is called, and how large all is.

All lengths are in points.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from vebench.reports.plotting import axes, colours
from vebench.reports.plotting.axes import shortened, text_width

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vebench.reports.chart import Chart, Role, Series
    from vebench.reports.plotting.colours import Colour

SIZE, SMALL, LARGE = 9.0, 8.0, 11.0  # of fonts
LINE = 13.0  # from one line of text to the next
WIDTH, HEIGHT = 330.0, 230.0  # of the space that the axes span
LEFT, BOTTOM, TOP, RIGHT = 54.0, 42.0, 30.0, 12.0  # around it: ticks and names of axes, title
LEADER, SAMPLE = 14.0, 18.0  # between the last point and its name: a thin line, and how the series is drawn
PREDICTED = "predicted"
DASHED, DOTTED = (0.0, (4.0, 2.5)), (0.0, (1.0, 2.5))


@dataclass(frozen=True)
class Look:
    """How a series is drawn."""

    colour: Colour
    marker: str = ""
    line: str | tuple[float, tuple[float, ...]] = "-"


@dataclass(frozen=True)
class Name:
    """The name of a series, the place in the axes where the series ends, both from 0 to 1, and how it is drawn."""

    text: str
    at: float
    end: float
    look: Look
    role: Role


@dataclass(frozen=True)
class Panel:
    """A chart, the ``number``-th of its figure, with the look of each series, and what follows for the layout."""

    chart: Chart
    looks: Mapping[tuple[str, Role], Look]
    number: int = 0

    @property
    def series(self) -> tuple[Series, ...]:
        """The series that have a point."""
        return series_with_points(self.chart)

    @cached_property
    def x(self) -> axes.Axis:
        """The horizontal axis."""
        return axes.x_axis(self.chart, WIDTH, SIZE)

    @cached_property
    def y(self) -> axes.Axis:
        """The vertical axis."""
        return axes.y_axis(self.chart)

    @cached_property
    def marks(self) -> tuple[axes.MarkText, ...]:
        """The texts of the marks, above the axes."""
        return axes.mark_texts(self.chart.marks, self.x, WIDTH, SMALL)

    @property
    def above(self) -> float:
        """The height above the axes."""
        return TOP + LINE * (1 + max((mark.row for mark in self.marks), default=-1))

    @cached_property
    def names(self) -> tuple[Name, ...]:
        """The names beside the axes, by their heights, the lowest first."""
        return tuple(sorted(_names(self), key=lambda name: name.end))

    @property
    def height(self) -> float:
        """The height of the axes: a line for each name."""
        return max(HEIGHT, LINE * len(self.names))

    @property
    def beside(self) -> float:
        """The width right of the axes."""
        return LEADER + SAMPLE + max(text_width(name.text, SIZE) for name in self.names) + RIGHT


def series_with_points(chart: Chart) -> tuple[Series, ...]:
    """Return the series that have a point: only these are in a figure."""
    return tuple(series for series in chart.series if series.points)


def name_of(series: Series) -> str:
    """Return what a series is called in a figure. What a model expects is called so."""
    name = shortened(series.name)
    return name if series.role != "forecast" or PREDICTED in name else f"{name}, {PREDICTED}"


def continued(series: Series, chart: Chart) -> Series | None:
    """Return what a forecast continues, by its name; None if that is not in the chart, or ``series`` is no forecast."""
    if series.role != "forecast":
        return None
    return next(
        (one for one in series_with_points(chart) if one.name == series.name and one.role in ("measured", "bound")),
        None,
    )


def own_points(series: Series, chart: Chart) -> list[int]:
    """Return the indices of the points of a series, without those that a forecast shares with what it continues."""
    before = continued(series, chart)
    known = {x for x, _ in before.points} if before else set()
    return [index for index, (x, _) in enumerate(series.points) if x not in known]


def looks_of(charts: Sequence[Chart]) -> dict[tuple[str, Role], Look]:
    """Return the look of each series by its name and role: the same in all charts.

    A forecast has the colour and the marker of what it continues.
    """
    lines = [series for chart in charts for series in chart.series]
    bounds = {series.name for series in lines if series.role == "bound"}
    names = dict.fromkeys(series.name for role in ("measured", "forecast") for series in lines if series.role == role)
    numbers = {name: index for index, name in enumerate(name for name in names if name not in bounds)}
    return {(series.name, series.role): _look(series, numbers.get(series.name)) for series in lines}


def _look(series: Series, number: int | None) -> Look:
    """Return how a series is drawn: the ``number``-th of its colours and markers, None for one without."""
    line = {"forecast": DASHED, "ideal": DOTTED}.get(series.role, "-")
    if series.role == "ideal" or number is None:
        return Look(colours.MUTED, "" if series.role == "ideal" else "_", line)
    return Look(colours.SERIES[number % len(colours.SERIES)], colours.MARKERS[number % len(colours.MARKERS)], line)


def _names(panel: Panel) -> Iterator[Name]:
    """Yield a name for each series. One that a forecast continues ends where that does; one entry tells both apart."""
    ahead = {before.name: series for series in panel.series if (before := continued(series, panel.chart))}
    for series in panel.series:
        if continued(series, panel.chart) is None:
            longest = ahead.get(series.name, series) if series.role in ("measured", "bound") else series
            x, estimate = longest.points[-1]
            end = panel.y.at(panel.y.within(estimate.median))
            yield Name(name_of(series), panel.x.at(x), end, panel.looks[series.name, series.role], series.role)
    if ahead:
        yield Name(PREDICTED, 0.0, 0.0, Look(colours.MUTED, "o", DASHED), "forecast")
