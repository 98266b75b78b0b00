"""The charts of a run, drawn with matplotlib as SVG, PNG and PDF, and the predicted rates of more workers.

The same charts give the same bytes. All text is drawn literally: no part of a name is a formula or a style.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from io import BytesIO
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, Any, Literal

from vebench.analysis.answer import BAND, THREAD, Forecast, TaskAnswer, cores_of_workers, forecast
from vebench.analysis.cell import CellSummary, Curve, curves
from vebench.analysis.statistics import Estimate
from vebench.backends.environments.suites import short_name
from vebench.backends.packages import MATPLOTLIB, how_to_install, importable
from vebench.backends.registry import CEILING, ENTRIES, NULL, YARDSTICK
from vebench.errors import UsageError, one_line
from vebench.reports import figures
from vebench.reports.document import Chart, ChartKind, ChartLine, LineRole, Mark, Page, Table, TableRow, Text, View
from vebench.results.records import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Prediction = tuple[Curve, Forecast]
Looks = Mapping[str, tuple[str, str]]

GROUND, INK, MUTED, _GRID = "#ffffff", "#1f2328", "#59636e", "#d1d9e0"
# A search found these colours. Any two are at least 20 apart in CIELAB, also for readers without one kind of cones. The
# first five, which default backends have, are at least 27 apart. Each has a contrast of at least 3 to 1 with the ground
# (WCAG 2.1, 1.4.11). Markers distinguish lines without colour.
SERIES = ("#5e69fc", "#792300", "#0ba76d", "#4a0162", "#b78800", "#ae74dc", "#3413d4", "#8a09aa")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "h")

_SETTINGS: Mapping[str, object] = {
    "font.sans-serif": ["DejaVu Sans"],  # this font comes with matplotlib
    "font.size": 9.0,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": MUTED,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.titlesize": 10.0,
    "figure.titleweight": "bold",
    "grid.color": _GRID,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0.0,
    "ytick.major.size": 0.0,
    "lines.linewidth": 1.5,
    "lines.markersize": 5.0,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # letters that can be selected and searched
}
# Files have no dates and no version of the library, so that the same charts give the same bytes.
METADATA: Mapping[str, Mapping[str, None]] = {
    "svg": dict.fromkeys(("Date", "Creator", "Format", "Type")),
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_DOTS_PER_INCH = 200
_WIDTH, _HEIGHT = 5.2, 3.6  # the size of a chart in inches: narrow, so that its texts can be read on a phone
_KEY_LINE = 0.19  # the height of a line of the key in inches: charts with many series are higher
_FARTHEST = 2.0  # intervals widen the axis at most by this factor, because a wide one would flatten the lines
_MARGIN = 1.1  # the margin at either end of an axis, as a factor
_BESIDE = 1.012  # points of different lines at one number of workers are this factor apart, to show all intervals
_MOST_TICKS = 10  # the largest number of ticks for workers
# Each pair has the smallest ratio of the highest value to the lowest, and the ticks within a decade. Below all ratios,
# ticks are evenly spaced.
_TICKS = ((1e4, (1.0,)), (100.0, (1.0, 3.0)), (4.0, (1.0, 2.0, 5.0)))
LONGEST = 34  # the largest number of characters of a name in a chart; reports have the full name
_FEWEST_POINTS = 2  # a single point is not a chart


def predictions(cells: Sequence[CellSummary], header: RunRecord, workers: int) -> tuple[Prediction, ...]:
    """Return, for each curve of a run, the predicted rate with ``workers`` workers, or why there is no prediction."""
    cores = cores_of_workers(header, cells)
    on_hosts = Forecast(workers, refused="replicas on hosts add up: measure with more hosts (--hosts 1..N)")
    return tuple((curve, on_hosts if header.hosts else forecast(curve, cores, workers)) for curve in _shown(cells))


def _shown(cells: Sequence[CellSummary]) -> list[Curve]:
    return [curve for curve in curves(cells) if curve[0].backend not in (NULL, YARDSTICK)]


def run_charts(
    cells: Sequence[CellSummary],
    header: RunRecord,
    found: Mapping[str, TaskAnswer],
    view: View,
    run: tuple[str, str],
) -> tuple[Chart, ...]:
    """Return the charts of each task: rates with the winner, and on request efficiency and CPU time.

    ``run`` has the beginning of titles, and the machine's name for titles.
    """
    cores = cores_of_workers(header, cells)
    kinks = [(header.usable_cpus, "CPUs end")]
    if second := next((after for after, two in enumerate(pairwise(cores), 1) if two[1] - two[0] < 1), None):
        kinks.append((second, "second threads begin"))
    charts = []
    for env, answer in found.items():
        of_env = [cell for cell in cells if cell.env == env]
        named = _named(_shown(of_env))
        title = f"{run[0]}{one_line(short_name(env))} on {run[1]}: "
        rates = tuple(_rates(named, answer, header.usable_cpus))
        of_task = [Chart(one_line(env), "rate", f"{title}frames/s", "workers", "frames/s", rates)]
        for kind, label, lines in _costs(named) if view.every_finding else ():
            of_task.append(Chart(one_line(env), kind, f"{title}{label}", "workers", label, lines, linear=True))
        for chart in of_task:
            points = [x for line in chart.series if line.role != "ideal" for x, _ in line.points]
            if len(points) >= _FEWEST_POINTS:
                within = [(float(after), text) for after, text in kinks if min(points) <= after < max(points)]
                texts = figures.by_key(within)
                marks = tuple(Mark(after, ", ".join(texts[after])) for after in sorted(texts))
                charts.append(replace(chart, marks=marks))
    return tuple(charts)


def _rates(named: Sequence[tuple[Curve, str]], answer: TaskAnswer, usable_cpus: int) -> Iterator[ChartLine]:
    """Yield the measured lines and the ideal line. Ideally, each worker that has a CPU is as fast as the plain loop."""
    winner = answer.winner
    for curve, name in named:
        line = _line(curve, name, lambda cell: cell.frames_per_second)
        yield replace(line, winner=float(winner.workers)) if winner is not None and winner in curve else line
    cells = [cell for curve, _ in named for cell in curve]
    loops = [cell.frames_per_second for cell in cells if cell.speedup == Estimate(1.0, 1.0, 1.0)]
    if len(loops) == 1 and loops[0] is not None:
        rate, most = loops[0].median, max(cell.workers for cell in cells)
        ends = sorted({1, min(most, usable_cpus), most})
        yield ChartLine("ideal", tuple((float(end), Estimate(rate * min(end, usable_cpus))) for end in ends), "ideal")


def _costs(named: Sequence[tuple[Curve, str]]) -> Iterator[tuple[ChartKind, str, tuple[ChartLine, ...]]]:
    """Yield the kind, the label and the lines of the charts of efficiency and of CPU time."""
    choices = [(curve, name) for curve, name in named if not curve[0].reference_row]
    shares = [_line(curve, name, lambda cell: cell.figures.efficiency) for curve, name in choices]
    costs = [_line(curve, name, lambda cell: cell.figures.frames_per_cpu_second) for curve, name in named]
    yield "efficiency", "speedup per CPU", tuple(shares)
    yield "cost", "frames per CPU second", tuple(costs)


def _named(shown: Sequence[Curve]) -> list[tuple[Curve, str]]:
    """Return curves with names. Names include the environments per worker if these differ."""
    several = len({curve[0].envs_per_worker for curve in shown}) > 1
    named = []
    for curve in shown:
        envs = figures.times_envs(curve[0].envs_per_worker) if several else ""
        named.append((curve, f"{one_line(curve[0].label)}{envs}"))
    return named


def _line(curve: Curve, name: str, value: Callable[[CellSummary], Estimate | None]) -> ChartLine:
    """Return one line. Cells without the value, and excluded cells, have no point."""
    points = []
    for cell in curve:
        estimate = value(cell)
        if estimate is not None and estimate.median > 0 and not cell.excluded:
            points.append((float(cell.workers), estimate))
    entry = curve[0].entry
    role: LineRole = "bound" if curve[0].backend == CEILING else "measured"
    family = one_line(curve[0].label).replace(entry.name, entry.family, 1)
    return ChartLine(name, tuple(points), role, family, entry.is_async)


def forecast_tables(predicted: Sequence[Prediction]) -> Iterator[Table]:
    """Yield a table for each task, with a row for each backend. Notes say why there is no prediction."""
    for env in dict.fromkeys(curve[0].env for curve, _ in predicted):
        own = [(curve, prediction) for curve, prediction in predicted if curve[0].env == env]
        rows, refused = [], []
        for (curve, name), (_, found) in zip(_named([curve for curve, _ in own]), own, strict=True):
            rows.append(TableRow(name, _places(found), curve[0].reference_row))
            if found.refused:
                refused.append((found.refused, name))
        reasons = []
        for reason, of in figures.by_key(refused).items():
            every = len(of) == len(own) > 1
            reasons.append(f"{'every backend' if every else ', '.join(of)}: not predicted: {reason}")
        yield Table(
            title=f"{one_line(env)}: Predicted frames/s, not measured",
            columns=(figures.counted(own[0][1].workers, "worker"), "90 % band"),
            rows=tuple(rows),
            notes=(
                f"predicted: the last rate for each core, where a second thread counts as {THREAD:g} of a core",
                f"90 % band: {BAND[0]:g} to {BAND[1]:g} times the prediction, wider if the last rate is uncertain",
                *reasons,
            ),
            group=one_line(env),
            further=True,
        )


def _places(forecast: Forecast) -> tuple[Text, Text]:
    rate = forecast.rate
    if rate is None or rate.low is None or rate.high is None:
        return (Text(("not predicted",), "missing"), Text((figures.DASH,)))
    # A prediction is not precise enough for more than three digits.
    low, median, high = (figures.number(float(f"{end:.3g}")) for end in (rate.low, rate.median, rate.high))
    return (Text((median,), value=rate), Text((f"{low} to {high}",)))


class NoFigureError(UsageError):
    """A page has nothing to draw."""


def missing() -> str:
    """Return on one line why no chart can be drawn here, with the remedy; empty if charts can be drawn."""
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
    """Return the charts of all documents. Documents do not share groups."""
    shortened = figures.without_folders(document.file for document in page.documents)
    charts = [
        replace(chart, group=f"{number} {chart.group}")
        for number, document in enumerate(shortened(page.documents))
        for chart in document.charts
    ]
    if not charts:
        raise NoFigureError("no figure: the runs have fewer than two cells with a rate")
    return charts


def svg(charts: Sequence[Chart], *, among: Sequence[Chart] = (), part: str = "") -> str:
    """Return ``charts``, at least one, as one SVG: a row for each group, with a column for each of its charts.

    ``among`` has all charts that must draw the same series in the same colours. ``part`` is for HTML pages: it makes
    ids unique within the page.
    """
    drawn = _file(partial(_figure, charts, among or charts), "svg", salt=part).decode()
    size = re.search(r'width="\S*" height="\S*" viewBox="[^"]*"', drawn)
    _, _, body = drawn.partition("</defs>")  # the first <defs> has a style that would apply to the whole page
    body = re.sub(r'<(\w+) id="[\w.]+_\d+"', r"<\1", body)
    title = escape(one_line("; ".join(chart.title for chart in charts)))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'{size[0] if size else ""} role="img" aria-label="{title}">\n'
        f"<title>{title}</title>\n<desc>{escape(_description(charts))}</desc>"
    )
    return f"{head}{body}" if part else f'<?xml version="1.0" encoding="UTF-8"?>\n{head}{body}'


def picture(charts: Sequence[Chart], form: Literal["png", "pdf"]) -> bytes:
    """Return ``charts``, at least one, on a light ground."""
    return _file(partial(_figure, charts, charts), form)


def _file(draw: Callable[[], Figure], form: Literal["svg", "png", "pdf"], *, salt: str = "") -> bytes:
    """Return the file that matplotlib writes."""
    from matplotlib import style

    out = BytesIO()
    # The user's own settings must not change these charts.
    with warnings.catch_warnings(), style.context(["default", {**_SETTINGS, "svg.hashsalt": f"vebench {salt}"}]):
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a box is drawn, and SVG keeps the letter
        draw().savefig(out, format=form, dpi=_DOTS_PER_INCH, metadata=METADATA[form])
    return out.getvalue()


def _description(charts: Sequence[Chart]) -> str:
    """Return the numbers of charts, for readers who cannot see them."""
    texts = []
    for chart in charts:
        lines = []
        for series in _with_points(chart):
            points = ", ".join(f"{figures.number(estimate.median)} at {x:g}" for x, estimate in series.points)
            lines.append(f"{series.name}: {points}")
        texts.append(one_line(f"{chart.title}, over {chart.x_label}. {'. '.join(lines)}."))
    return " ".join(texts)


def _with_points(chart: Chart) -> list[ChartLine]:
    return [one for one in chart.series if one.points]


def _figure(charts: Sequence[Chart], among: Sequence[Chart]) -> Figure:
    """Return ``charts`` as a figure."""
    from matplotlib.figure import Figure

    groups = figures.by_key((chart.group, number) for number, chart in enumerate(charts))
    columns = max(map(len, groups.values()))
    heights = [max(max(_HEIGHT, 1 + _KEY_LINE * len(charts[one].series)) for one in row) for row in groups.values()]
    whole = Figure((columns * _WIDTH, sum(heights)), layout="constrained", facecolor=GROUND)
    places = whole.subfigures(len(groups), columns, squeeze=False, height_ratios=heights)
    looks = _looks(series for chart in among for series in chart.series)
    for row, numbers in zip(places, groups.values(), strict=True):
        for place, number in zip(row, numbers, strict=False):
            place.suptitle(_shortened(charts[number].title, 2 * LONGEST), x=0.02, ha="left")
            _draw(place.subplots(), charts[number], looks)
    return whole


def _looks(lines: Iterable[ChartLine]) -> Looks:
    """Return the colour and the marker of each series by name, for all charts.

    The families of default backends always have the same colours.
    """
    every = list(lines)
    looks = {series.name: (MUTED, "_") for series in every}
    names = {series.name: series.family or series.name for series in every if series.role == "measured"}
    usual = (entry.family for entry in ENTRIES if entry.by_default and not entry.reference_row)
    colours = dict(zip(dict.fromkeys((*usual, *names.values())), cycle(SERIES), strict=False))
    for (name, family), marker in zip(names.items(), cycle(_MARKERS), strict=False):
        looks[name] = (colours[family], marker)
    return looks


def _draw(space: Axes, chart: Chart, looks: Looks) -> None:
    _lay_axes(space, chart)
    left, right = space.get_xlim()
    low, high = space.get_ylim()
    for mark in chart.marks:
        if left <= mark.x <= right:
            space.axvline(mark.x, color=MUTED, linewidth=0.7, linestyle="dashdot", zorder=1)
            how = {"rotation": 90, "ha": "right", "va": "bottom", "color": MUTED, "fontsize": 8}
            _write(space, _shortened(mark.text), (mark.x, low), (-3, 4), **how)
    shown = _with_points(chart)
    handles = []
    for index, series in enumerate(shown):
        colour, marker = looks[series.name]
        aside = _BESIDE ** (index - len(shown) / 2) if series.role != "ideal" else 1.0
        places = [x * aside for x, _ in series.points]
        medians = [estimate.median for _, estimate in series.points]
        ends = [_ends_of(estimate) for _, estimate in series.points]
        lows, highs = ([min(max(end, low), high) for end in side] for side in zip(*ends, strict=True))
        if series.role != "ideal":
            space.vlines(places, lows, highs, color=colour, linewidth=0.9)
        style = "dashed" if series.dashed else "dotted" if series.role == "ideal" else "solid"
        handles += space.plot(places, medians, color=colour, marker=marker, linestyle=style, clip_on=False)
        if series.winner is not None:
            at = [x for x, _ in series.points].index(series.winner)
            _write(space, "winner", (places[at], medians[at]), (0, 7), ha="center", weight="bold")
    last_first = sorted(range(len(shown)), key=lambda index: -shown[index].points[-1][1].median)
    names = [_shortened(shown[index].name) for index in last_first]
    lines = [handles[index] for index in last_first]
    space.legend(lines, names, loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=2.5)


def _write(space: Axes, text: str, at: tuple[float, float], away: tuple[float, float], **how: Any) -> None:
    """Write a text at the distance ``away``, in points, from the place ``at``."""
    space.annotate(text, at, xytext=away, textcoords="offset points", **how)


def _lay_axes(space: Axes, chart: Chart) -> None:
    """Set names, limits and ticks. Numbers of workers are logarithmic, because most sweeps double them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

    space.set_xlabel(f"{_shortened(chart.x_label)} (log scale)")
    space.set_ylabel(f"{_shortened(chart.y_label)}{'' if chart.linear else ' (log scale)'}")
    places = sorted({x for series in chart.series for x, _ in series.points})
    space.set_xscale("log", base=2)
    space.set_xlim(places[0] / _MARGIN, places[-1] * _MARGIN)
    if len(places) <= _MOST_TICKS:
        space.set_xticks(places)
    space.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    estimates = [estimate for series in chart.series for _, estimate in series.points]
    medians = [estimate.median for estimate in estimates]
    lows, highs = zip(*map(_ends_of, estimates), strict=True)
    low, high = max(min(lows), min(medians) / _FARTHEST), min(max(highs), max(medians) * _FARTHEST)
    if chart.linear:
        space.set_ylim(0.0, high * _MARGIN)
    else:
        space.set_yscale("log")
        space.set_ylim(low / _MARGIN, high * _MARGIN)
        steps = next((steps for ratio, steps in _TICKS if high / low >= ratio), None)
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
    """Return ``text`` on one line. A long text loses its middle, because names differ at both ends."""
    text = one_line(text)
    if len(text) <= longest:
        return text
    end = (longest - 1) // 3
    return f"{text[: longest - 1 - end]}…{text[-end:]}"
