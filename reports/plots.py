"""Charts drawn with matplotlib: as SVG for documents and HTML pages, and as PNG and PDF.

The same charts give the same bytes. All text is drawn as it is: nothing in a name is a formula or a style.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from io import BytesIO
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, Any

from vebench.backends.packages import MATPLOTLIB, how_to_install, importable
from vebench.backends.registry import ENTRIES
from vebench.errors import UsageError, one_line
from vebench.reports import figures

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Literal

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    from vebench.analysis.statistics import Estimate
    from vebench.reports.document import Chart, ChartLine, LineRole, Page

    Looks = Mapping[tuple[str, LineRole], Mapping[str, Any]]


@dataclass(frozen=True)
class Colour:
    """A colour on light and on dark ground. No two have the same ``light``."""

    light: str
    dark: str


GROUND = Colour("#ffffff", "#0d1117")
INK = Colour("#1f2328", "#f0f6fc")
MUTED = Colour("#59636e", "#9198a1")
_GRID = Colour("#d1d9e0", "#30363d")
# They were found by a search for colours that lie far apart for every reader: any two of them, also as they look
# without one kind of cones, are at least 20 apart in CIELAB, and the first five, for the default backends, 27.
# Each has a contrast of 3 to 1 or more with its ground (WCAG 2.1, 1.4.11). Markers say the same without colour.
SERIES = (
    Colour("#5e69fc", "#4f99de"),
    Colour("#792300", "#d64411"),
    Colour("#0ba76d", "#11f288"),
    Colour("#4a0162", "#9b0eef"),
    Colour("#b78800", "#f2d321"),
    Colour("#ae74dc", "#d9c4ee"),
    Colour("#3413d4", "#aee4c4"),
    Colour("#8a09aa", "#aa474e"),
)
COLOURS = (GROUND, INK, MUTED, _GRID, *SERIES)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "h")

_SETTINGS: Mapping[str, object] = {
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],  # matplotlib brings it
    "font.size": 9.0,
    "text.color": INK.light,
    "text.parse_math": False,
    "axes.edgecolor": MUTED.light,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": MUTED.light,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.titlesize": 10.0,
    "figure.titleweight": "bold",
    "grid.color": _GRID.light,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED.light,
    "ytick.color": MUTED.light,
    "xtick.major.size": 0.0,
    "ytick.major.size": 0.0,
    "lines.linewidth": 1.8,
    "lines.markersize": 5.0,
    "lines.markeredgewidth": 1.2,
    "legend.frameon": False,
    "figure.constrained_layout.h_pad": 0.06,
    "figure.constrained_layout.w_pad": 0.12,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # letters that can be selected and searched
}
# Without dates, and without the version of the library.
METADATA: Mapping[str, Mapping[str, None]] = {
    "svg": dict.fromkeys(("Date", "Creator", "Format", "Type")),
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_DOTS_PER_INCH = 200
_WIDTH, _HEIGHT = 5.2, 3.6  # of a chart, in inches: the texts of a narrow one can be read on a phone
_LINE = 0.19  # of the key, in inches: a chart with many series is higher
_MOST_FOR_BARS = 3  # numbers of workers: more are curves
_BAR, _GAP, _AROUND = (
    0.125,
    0.7,
    0.8,
)  # a bar's height in inches, the gap between groups in bars, and the rest in inches
_LONGEST_BESIDE_BARS = 22  # characters of a name
_FARTHEST = 2.0  # an interval widens the axis by this factor at most: a wide one must not flatten the others
_ROOM = 1.25  # the same for a linear axis, over the highest value
_MARGIN = 1.1  # of an axis, at either end
_DASHES, _PALE = (0.0, (5.0, 1.5)), 0.25  # of asynchronous backends: their lines, and the inside of their bars
_FORECAST: Mapping[str, Any] = {"linestyle": (0.0, (4.0, 2.5)), "markerfacecolor": GROUND.light}
# Ticks within a decade, from which ratio of the highest value to the lowest; below the first, they are evenly spaced.
_STEPS = ((1e4, (1.0,)), (100.0, (1.0, 3.0)), (4.0, (1.0, 2.0, 5.0)))
_MOST_TICKS = 10  # of numbers of workers, if they are this far apart at least
_LEAST_RATIO = 1.4
PREDICTED = "predicted"
LONGEST = 34  # characters of a name in a chart; reports have it in full


class NoFigureError(UsageError):
    """A page has nothing to draw."""


def missing() -> str:
    """Return in a line why no chart can be drawn here, and what to do; empty if they can."""
    return "" if importable(MATPLOTLIB.module) else f"figures need {MATPLOTLIB.name} ({how_to_install([MATPLOTLIB])})"


def svg_of(page: Page) -> str:
    """Return all charts of ``page`` as SVG. Raises NoFigureError if it has none."""
    return svg(_charts_of(page))


def png_of(page: Page) -> bytes:
    """Return all charts of ``page`` as PNG. Raises NoFigureError if it has none."""
    return picture(_charts_of(page), "png")


def pdf_of(page: Page) -> bytes:
    """Return all charts of ``page`` as PDF. Raises NoFigureError if it has none."""
    return picture(_charts_of(page), "pdf")


def _charts_of(page: Page) -> list[Chart]:
    """Return the charts of all documents, with groups that no two documents share."""
    documents = page.documents
    plain = figures.without_folders(document.file for document in documents)
    charts = [
        replace(chart, group=f"{number} {chart.group}", title=plain(chart.title))
        for number, document in enumerate(documents)
        for chart in document.charts
    ]
    if not charts:
        raise NoFigureError("no figure: the runs have fewer than two cells with a rate")
    return charts


def svg(charts: Sequence[Chart], *, among: Sequence[Chart] = (), part: str = "") -> str:
    """Return ``charts``, at least one, as one SVG: a row for each group, a column for each of its charts.

    Its colours follow the reader's scheme, light or dark. Each series looks as in all charts ``among`` which these are.
    With ``part`` it belongs into an HTML page: without a ground, with ids that no other part has, and its style touches
    nothing else.
    """
    drawn = _file(partial(_figure, charts, among or charts, ground=not part), "svg", salt=part).decode()
    size = re.search(r'width="\S*" height="\S*" viewBox="[^"]*"', drawn)
    _, _, body = drawn.partition("</defs>")  # the first ones hold a style for the whole page
    body = re.sub(r'<(\w+) id="[\w.]+_\d+"', r"<\1", _with_tips(body, charts))
    title = escape(one_line("; ".join(chart.title for chart in charts)))
    # With an element around these in the selector, rules would not hold for markers, which are drawn by reference.
    rules = (
        f'[style*="{name}: {colour.light}"]{{{name}:{colour.dark}!important}}'
        for colour in COLOURS
        for name in ("fill", "stroke")
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'{size[0] if size else ""} role="img" aria-label="{title}">\n'
        f"<title>{title}</title>\n<desc>{escape(_description(charts))}</desc>\n"
        f"<style>@media screen and (prefers-color-scheme:dark){{{''.join(rules)}}}</style>"
    )
    return f"{head}{body}" if part else f'<?xml version="1.0" encoding="UTF-8"?>\n{head}{body}'


def picture(charts: Sequence[Chart], form: Literal["png", "pdf"]) -> bytes:
    """Return ``charts``, at least one, on light ground."""
    return _file(partial(_figure, charts, charts), form)


def _file(draw: Callable[[], Figure], form: Literal["svg", "png", "pdf"], *, salt: str = "") -> bytes:
    """Return the file that matplotlib writes."""
    from matplotlib import style

    out = BytesIO()
    # The user's own settings must not change these charts.
    with warnings.catch_warnings(), style.context(["default", {**_SETTINGS, "svg.hashsalt": f"vebench {salt}"}]):
        warnings.filterwarnings("ignore", "Glyph .* missing")  # it is drawn as a box, and SVG has the letter itself
        draw().savefig(out, format=form, dpi=_DOTS_PER_INCH, metadata=METADATA[form])
    return out.getvalue()


def _description(charts: Sequence[Chart]) -> str:
    """Return the numbers of charts, for readers who cannot see them."""
    texts = []
    for chart in charts:
        lines = []
        for series in with_points(chart):
            points = ", ".join(f"{figures.number(estimate.median)} at {x:g}" for x, estimate in series.points)
            lines.append(f"{series.name}{f' ({PREDICTED})' if series.role == 'forecast' else ''}: {points}")
        texts.append(one_line(f"{chart.title}, over {chart.x_label}. {'. '.join(lines)}."))
    return " ".join(texts)


def _with_tips(body: str, charts: Sequence[Chart]) -> str:
    """Give each point, or bar, a text that browsers show at the pointer."""
    for number, chart in enumerate(charts):
        bars = _as_bars(chart)
        tag = "path" if bars else "use"
        for index, series in enumerate(with_points(chart)):
            group = f'<g id="points_{number}_{index}'
            at = body.index(group)
            for place in _own_points(series) if series.role != "ideal" else ():
                x, estimate = series.points[place]
                text = one_line(f"{_name(series)}: {figures.rate(estimate)}, {chart.x_label}: {x:g}")
                at = body.index(f'{group}_{place}"', at) if bars else body.index("<use ", at + 1)
                end = body.index("/>", at)
                body = f"{body[:end]}><title>{escape(text)}</title></{tag}>{body[end + 2 :]}"
    return body


def with_points(chart: Chart) -> list[ChartLine]:
    """Return the series that are drawn."""
    return [one for one in chart.series if one.points and not (one.role == "ideal" and _as_bars(chart))]


def _as_bars(chart: Chart) -> bool:
    """Return whether a chart has so few numbers of workers that it is drawn as bars."""
    return len({x for one in chart.series if one.role != "ideal" for x, _ in one.points}) <= _MOST_FOR_BARS


def _name(series: ChartLine) -> str:
    return f"{_shortened(series.name)}{f', {PREDICTED}' if series.role == 'forecast' else ''}"


def _own_points(series: ChartLine) -> list[int]:
    """Return the indices of the points of a series. A forecast begins with a point that was measured."""
    return [*range(1 if series.role == "forecast" else 0, len(series.points))]


def _figure(charts: Sequence[Chart], among: Sequence[Chart], *, ground: bool = True) -> Figure:
    """Return ``charts`` as a figure, transparent without ``ground``."""
    from matplotlib.figure import Figure

    groups = figures.by_key((chart.group, number) for number, chart in enumerate(charts))
    columns = max(map(len, groups.values()))
    heights = [max(_height(charts[number]) for number in row) for row in groups.values()]
    whole = Figure((columns * _WIDTH, sum(heights)), layout="constrained", facecolor=GROUND.light if ground else "none")
    places = whole.subfigures(len(groups), columns, squeeze=False, height_ratios=heights)
    looks = _looks(among)
    for row, numbers in zip(places, groups.values(), strict=True):
        for place, number in zip(row, numbers, strict=False):
            chart = charts[number]
            place.set_facecolor("none")
            place.suptitle(_shortened(chart.title, 2 * LONGEST), x=0.02, ha="left")
            draw = _draw_bars if _as_bars(chart) else _draw_curves
            draw(place.subplots(), chart, number, looks)
    return whole


def _height(chart: Chart) -> float:
    if not _as_bars(chart):
        return max(_HEIGHT, 1 + _LINE * len(chart.series))
    return _AROUND + _BAR * sum(len(series.points) + _GAP for series in with_points(chart))


def _looks(charts: Sequence[Chart]) -> Looks:
    """Return how each series is drawn, by its name and role: the same in all charts, a forecast as its curve.

    The families of default backends always have the same colours.
    """
    lines = [series for chart in charts for series in chart.series]
    bounds = {series.name for series in lines if series.role == "bound"}
    shown: dict[str, ChartLine] = {}
    for series in lines:
        if series.role == "measured" and series.name not in bounds:
            shown.setdefault(series.name, series)
    usual = (entry.family for entry in ENTRIES if entry.by_default and not entry.reference_row)
    families = dict.fromkeys((*usual, *(one.family or one.name for one in shown.values())))
    colours = dict(zip(families, cycle(SERIES), strict=False))
    looks: dict[tuple[str, LineRole], dict[str, Any]] = {}
    for (name, series), marker in zip(shown.items(), cycle(_MARKERS), strict=False):
        colour = colours[series.family or name].light
        dashes = _DASHES if series.dashed else "solid"
        looks[name, "measured"] = {"color": colour, "marker": marker, "markeredgewidth": 0.0, "linestyle": dashes}
        looks[name, "forecast"] = {"color": colour, "marker": marker, **_FORECAST}
    for name in bounds:
        looks[name, "bound"] = {"color": MUTED.light, "marker": "_"}
        looks[name, "forecast"] = {"color": MUTED.light, "marker": "_", **_FORECAST}
    ideal = {"color": MUTED.light, "linestyle": (0.0, (1.0, 2.5))}
    return looks | {(series.name, series.role): ideal for series in lines if series.role == "ideal"}


def _draw_bars(space: Axes, chart: Chart, number: int, looks: Looks) -> None:
    """Draw a group of bars for each series, one for each number of workers: the winner first, the bounds last."""

    def order(found: tuple[int, ChartLine]) -> tuple[bool, bool, float]:
        series = found[1]
        highest = max(estimate.median for _, estimate in series.points)
        return series.role == "bound", not (series.mark and series.mark.wins), -highest

    shown = sorted(enumerate(with_points(chart)), key=order)
    estimates = [estimate for _, series in shown for _, estimate in series.points]
    end = min(max(_ends_of(one)[1] for one in estimates), _ROOM * max(one.median for one in estimates))
    short = {_shortened(series.name, _LONGEST_BESIDE_BARS) for _, series in shown}
    longest = _LONGEST_BESIDE_BARS if len(short) == len(shown) else LONGEST
    below, places, counts = 0.0, [], []
    for index, series in shown:
        middle = below + (len(series.points) - 1) / 2
        where = {"xycoords": space.get_yaxis_transform(), "ha": "right", "va": "center"}
        _write(space, _shortened(series.name, longest), (0, middle), (-16, 0), **where)
        for place, (x, _) in enumerate(series.points):
            bar = _draw_bar(space, series, place, (below, end), looks[series.name, series.role]["color"])
            bar.set_gid(f"points_{number}_{index}_{place}")
            places.append(below)
            counts.append(f"{x:g}")
            below += 1
        below += _GAP
    _lay_bar_axes(space, chart, end, below)
    space.set_yticks(places, counts, fontsize=7)


def _draw_bar(space: Axes, series: ChartLine, place: int, at: tuple[float, float], colour: str) -> Rectangle:
    """Draw one bar with its interval, and the rate at the marked bar, or at the highest."""
    x, estimate = series.points[place]
    below, end = at
    low, high = _ends_of(estimate)
    bar: Rectangle = space.barh([below], [estimate.median], 0.8, color=colour, linewidth=0.0)[0]
    if series.dashed:
        bar.set(facecolor=(colour, _PALE), edgecolor=colour, linewidth=0.8, linestyle=_DASHES)
    space.hlines(below, low, estimate.median, color=GROUND.light, linewidth=2.2)
    space.hlines(below, low, min(high, end), color=INK.light, linewidth=0.9)
    if high > end:
        space.plot(end, below, color=INK.light, marker=">", markersize=3.5, clip_on=False)
    highest = max(series.points, key=lambda point: point[1].median)[0]
    if x == (series.mark.x if series.mark else highest):
        words = f"  {series.mark.text}" if series.mark else ""
        wins = {"weight": "bold"} if series.mark and series.mark.wins else {"color": MUTED.light}
        away = (7 if high > end else 3, 0)
        text = f"{figures.number(estimate.median)}{words}"
        _write(space, text, (min(high, end), below), away, va="center", fontsize=8, **wins)
    return bar


def _lay_bar_axes(space: Axes, chart: Chart, end: float, below: float) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    space.set_xlabel(f"{_shortened(chart.y_label)}, with 95 % intervals")
    head = {"ha": "right", "color": MUTED.light, "fontsize": 7}
    _write(space, chart.x_label, (0, 1), (-3, 1), xycoords="axes fraction", **head)
    space.set_ylim(below - _GAP - 0.3, -0.7)
    space.set_xlim(0.0, end)
    space.grid(visible=False, axis="y")
    space.grid(visible=True, axis="x")
    space.set_axisbelow(True)
    space.xaxis.set_major_locator(MaxNLocator(5, steps=(1, 2, 5, 10)))
    space.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _plain(x)))


def _write(space: Axes, text: str, at: tuple[float, float], away: tuple[float, float], **how: Any) -> None:
    """Write a text at a distance from a place, in points."""
    space.annotate(text, at, xytext=away, textcoords="offset points", **how)


def _draw_curves(space: Axes, chart: Chart, number: int, looks: Looks) -> None:
    from matplotlib.lines import Line2D

    _lay_axes(space, chart)
    left, right = space.get_xlim()
    for mark in chart.marks:
        if left <= mark.x <= right:
            space.axvline(mark.x, color=MUTED.light, linewidth=0.7, linestyle=(0, (5, 2, 1, 2)), zorder=1)
            how = {"rotation": 90, "ha": "right", "va": "bottom", "color": MUTED.light, "fontsize": 8}
            _write(space, _shortened(mark.text), (mark.x, 0), (-3, 4), xycoords=space.get_xaxis_transform(), **how)
    low, high = space.get_ylim()
    named: list[tuple[float, Line2D]] = []  # each with where it ends
    for index, series in enumerate(with_points(chart)):
        look = looks[series.name, series.role]
        places = [x for x, _ in series.points]
        medians = [estimate.median for _, estimate in series.points]
        if series.banded or series.role == "forecast":
            ends = [[min(max(end, low), high) for end in _ends_of(estimate)] for _, estimate in series.points]
            lows, highs = zip(*ends, strict=True)
            space.fill_between(places, lows, highs, color=look["color"], alpha=0.15, linewidth=0)
        group = f"points_{number}_{index}"
        (line,) = space.plot(places, medians, gid=group, markevery=_own_points(series), clip_on=False, **look)
        name = _name(series)
        line.set_label(f" {name}" if name.startswith("_") else name)  # a legend leaves out names that begin so
        if series.role != "forecast":
            named.append((medians[-1], line))
        if series.mark and series.mark.wins:
            place = series.mark.x, dict(series.points)[series.mark.x].median
            side = "left" if series.mark.x**2 < left * right else "right"
            _write(space, series.mark.text, place, (0, 6), ha=side, weight="bold")
    handles = [line for _, line in sorted(named, key=lambda pair: -pair[0])]
    if len(handles) < len(with_points(chart)):
        handles.append(Line2D([], [], color=MUTED.light, marker="o", label=PREDICTED, **_FORECAST))
    space.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=2.5)


def _lay_axes(space: Axes, chart: Chart) -> None:
    """Set names, limits and ticks. Numbers of workers are logarithmic, because most sweeps double them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

    space.set_xlabel(f"{_shortened(chart.x_label)} (log scale)")
    space.set_ylabel(f"{_shortened(chart.y_label)}{'' if chart.linear else ' (log scale)'}")
    places = sorted({x for series in chart.series for x, _ in series.points})
    apart = all(after / before >= _LEAST_RATIO for before, after in pairwise(places))
    space.set_xscale("log", base=2)
    space.set_xlim(places[0] / _MARGIN, places[-1] * _MARGIN)
    if apart and len(places) <= _MOST_TICKS:
        space.set_xticks(places)
    space.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    estimates = [estimate for series in chart.series for _, estimate in series.points]
    medians = [estimate.median for estimate in estimates]
    lows, highs = zip(*map(_ends_of, estimates), strict=True)
    if chart.linear:
        space.set_ylim(0.0, min(max(highs), _ROOM * max(medians)) * _MARGIN)
    else:
        low, high = max(min(lows), min(medians) / _FARTHEST), min(max(highs), max(medians) * _FARTHEST)
        space.set_yscale("log")
        space.set_ylim(low / _MARGIN, high * _MARGIN)
        steps = next((steps for ratio, steps in _STEPS if high / low >= ratio), None)
        space.yaxis.set_major_locator(LogLocator(subs=steps) if steps else MaxNLocator(5, steps=(1, 2, 5, 10)))
    space.yaxis.set_major_formatter(FuncFormatter(lambda y, _: _plain(y)))
    space.minorticks_off()


def _ends_of(estimate: Estimate) -> tuple[float, float]:
    low = estimate.median if estimate.low is None else estimate.low
    high = estimate.median if estimate.high is None else estimate.high
    return low, high


def _plain(value: float) -> str:
    """Return the label of a tick: ``20k``, ``1.5M``, ``0.25``."""
    for unit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:.4g}{suffix}"
    return f"{value:.4g}"


def _shortened(text: str, longest: int = LONGEST) -> str:
    """Return ``text`` on one line; a long one without its middle, since names differ at both ends."""
    text = one_line(text)
    if len(text) <= longest:
        return text
    end = (longest - 1) // 3
    return f"{text[: longest - 1 - end]}…{text[-end:]}"
