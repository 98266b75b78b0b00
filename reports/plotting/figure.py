"""Charts as one figure of matplotlib: a row for each group, a column for each of its charts.

All lengths are in points. The figure is laid out here and not by matplotlib, so that it is the same with any font.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vebench.reports.plotting import axes, colours
from vebench.reports.plotting.axes import shortened
from vebench.reports.plotting.panels import (
    BOTTOM,
    LARGE,
    LEADER,
    LEFT,
    LINE,
    SAMPLE,
    SIZE,
    SMALL,
    WIDTH,
    Panel,
    looks_of,
    own_points,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from vebench.reports.chart import Chart, Role, Series
    from vebench.reports.plotting.panels import Look

INCH = 72.0
POINTS = "points-{}-{}"  # the id of the group with the points of a series, by the numbers of its chart and its own
BAND, WIDE_LINE, THIN_LINE = 0.13, 1.8, 0.7


def figure(charts: Sequence[Chart], *, ground: bool) -> Figure:
    """Return ``charts`` as a figure, transparent without ``ground``. ``vebench.reports.plots`` has its settings."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - imported on use: only figures need it

    looks = looks_of(charts)
    groups: dict[str, list[Panel]] = {}
    for number, chart in enumerate(charts):
        groups.setdefault(chart.group, []).append(Panel(chart, looks, number))
    rows = list(groups.values())
    columns = [[row[index] for row in rows if index < len(row)] for index in range(max(map(len, rows)))]
    widths = [LEFT + WIDTH + max(panel.beside for panel in column) for column in columns]
    heights = [max(panel.above for panel in row) + max(panel.height for panel in row) + BOTTOM for row in rows]
    width, height = sum(widths), sum(heights)
    whole = Figure((width / INCH, height / INCH), INCH, facecolor=colours.GROUND.light if ground else "none")
    for number, row in enumerate(rows):
        bottom = height - sum(heights[: number + 1]) + BOTTOM
        for index, panel in enumerate(row):
            tall = heights[number] - BOTTOM - max(other.above for other in row)
            left = sum(widths[:index]) + LEFT
            space = whole.add_axes((left / width, bottom / height, WIDTH / width, tall / height))
            _draw(space, panel, tall)
    return whole


def _draw(space: Axes, panel: Panel, height: float) -> None:
    _lay_axes(space, panel, height)
    for mark in panel.marks:
        _mark(space, mark, height)
    for number, series in enumerate(panel.series):
        _band(space, series, panel)
        _line(space, series, panel, POINTS.format(panel.number, number))
    _write_names(space, panel, height)


def _lay_axes(space: Axes, panel: Panel, height: float) -> None:
    """Set limits, ticks and their texts, the names of the axes, and the title."""
    x, y, chart = panel.x, panel.y, panel.chart
    space.set_facecolor("none")
    space.set_xscale("log")
    space.set_yscale("log" if y.logarithmic else "linear")
    space.set_xlim(x.low, x.high)
    space.set_ylim(y.low, y.high)
    space.minorticks_off()
    space.set_xticks([tick for tick, _ in x.ticks], labels=[text for _, text in x.ticks])
    space.set_yticks([tick for tick, _ in y.ticks], labels=[text for _, text in y.ticks])
    space.tick_params(which="both", bottom=False, left=False, labelsize=SIZE, labelcolor=colours.MUTED.light)
    space.grid(visible=True, axis="y", color=colours.GRID.light, linewidth=THIN_LINE)
    for side, spine in space.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(colours.MUTED.light)
    space.text(
        0.5, -30 / height, shortened(chart.x_label), transform=space.transAxes, ha="center", color=colours.MUTED.light
    )
    space.text(
        -42 / WIDTH,
        0.5,
        shortened(chart.y_label),
        transform=space.transAxes,
        rotation=90,
        rotation_mode="anchor",
        ha="center",
        color=colours.MUTED.light,
    )
    space.text(
        -46 / WIDTH,
        1 + (panel.above - LARGE - 4) / height,
        shortened(chart.title, 2 * axes.LONGEST),
        transform=space.transAxes,
        fontsize=LARGE,
        fontweight="bold",
        color=colours.INK.light,
    )


def _mark(space: Axes, mark: axes.MarkText, height: float) -> None:
    """Draw a mark: a line through the axes, up to its text."""
    at = mark.line / WIDTH
    top = 1 + (LINE * mark.row + SMALL) / height
    space.plot(
        [at, at],
        [0, top],
        transform=space.transAxes,
        color=colours.MUTED.light,
        linewidth=THIN_LINE,
        linestyle=(0, (5, 2, 1, 2)),
        clip_on=False,
    )
    space.text(
        at + (-1 if mark.ends else 1) * 3 / WIDTH,
        1 + (LINE * mark.row + 2) / height,
        mark.text,
        transform=space.transAxes,
        fontsize=SMALL,
        ha="right" if mark.ends else "left",
        color=colours.MUTED.light,
    )


def _band(space: Axes, series: Series, panel: Panel) -> None:
    """Draw the intervals: a band, or a bar where there is a single point."""
    look = panel.looks[series.name, series.role]
    places = [x for x, _ in series.points]
    ends = [tuple(map(panel.y.within, axes.ends_of(estimate))) for _, estimate in series.points]
    if all(low == high for low, high in ends):
        return
    if len(places) == 1:
        space.plot(places * 2, ends[0], color=look.colour.light, linewidth=THIN_LINE, clip_on=False)
        return
    outline = [*zip(places, (low for low, _ in ends), strict=True)]
    outline += reversed([*zip(places, (high for _, high in ends), strict=True)])
    space.fill(*zip(*outline, strict=True), color=look.colour.light, alpha=BAND, linewidth=0, clip_on=False)


def _line(space: Axes, series: Series, panel: Panel, name: str) -> None:
    look = panel.looks[series.name, series.role]
    space.plot(
        [x for x, _ in series.points],
        [panel.y.within(estimate.median) for _, estimate in series.points],
        gid=name,
        clip_on=False,
        markevery=own_points(series, panel.chart),
        **_style(look, series.role),
    )


def _style(look: Look, role: Role) -> dict[str, Any]:
    """Return what matplotlib calls the look of a line."""
    return {
        "color": look.colour.light,
        "linestyle": look.line,
        "linewidth": WIDE_LINE,
        "marker": look.marker or None,
        "markersize": 5.0,
        "markerfacecolor": colours.GROUND.light if role == "forecast" else look.colour.light,
        "markeredgewidth": 1.2 if role in ("forecast", "bound") else 0.0,
    }


def _write_names(space: Axes, panel: Panel, height: float) -> None:
    """Write the names right of the axes, near where their series end, with a sample of how each is drawn."""
    last = max(name.at for name in panel.names)
    levels = axes.apart([name.end * height for name in panel.names], LINE, height)
    for name, level in zip(panel.names, levels, strict=True):
        begin = 1 + LEADER / WIDTH
        end = begin + (SAMPLE - 4) / WIDTH
        if name.at == last:
            space.plot(
                [name.at, begin],
                [name.end, level / height],
                transform=space.transAxes,
                color=name.look.colour.light,
                linewidth=THIN_LINE,
                alpha=0.6,
                clip_on=False,
            )
        space.plot(
            [begin, (begin + end) / 2, end],
            [level / height] * 3,
            transform=space.transAxes,
            clip_on=False,
            markevery=[1],
            **_style(name.look, name.role),
        )
        space.text(
            1 + (LEADER + SAMPLE) / WIDTH,
            (level - 0.35 * SIZE) / height,
            name.text,
            transform=space.transAxes,
            color=colours.INK.light,
        )
