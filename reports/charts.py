"""The charts of a run, drawn with matplotlib as SVG, PNG and PDF, and the predicted rates of more workers.

The same charts give the same bytes. All text is drawn literally: no part of a name is a formula or a style.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from io import BytesIO
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, Any, Literal

from vebench.analysis.answer import BAND, THREAD, TaskAnswer, cores_of_workers, forecast
from vebench.analysis.cell import CellSummary, Curve, curves
from vebench.analysis.statistics import Estimate
from vebench.backends.environments.suites import short_name
from vebench.backends.registry import CEILING, ENTRIES, NULL, YARDSTICK
from vebench.errors import UsageError, one_line
from vebench.reports import figures
from vebench.reports.document import Chart, ChartLine, LineRole, Page, Table, TableRow, Text
from vebench.results.records import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# A search found these colours. Any two are at least 20 apart in CIELAB, also for readers without one kind of cones. The
# first five, which default backends have, are at least 27 apart. Each has a contrast of at least 3 to 1 with white
# (WCAG 2.1, 1.4.11). Markers distinguish lines without colour.
SERIES = ("#5e69fc", "#792300", "#0ba76d", "#4a0162", "#b78800", "#ae74dc", "#3413d4", "#8a09aa")
MUTED = "#59636e"
_SETTINGS: Mapping[str, object] = {
    "font.sans-serif": ["DejaVu Sans"],  # this font comes with matplotlib
    "font.size": 9.0,
    "text.color": "#1f2328",
    "text.parse_math": False,
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), MUTED),
    **dict.fromkeys(("axes.spines.left", "axes.spines.right", "axes.spines.top"), False),
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "figure.titlesize": 10.0,
    "figure.titleweight": "bold",
    "grid.color": "#d1d9e0",
    **dict.fromkeys(("xtick.major.size", "ytick.major.size"), 0.0),
    "lines.markersize": 5.0,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # letters that can be selected and searched
}


def run_charts(
    cells: Sequence[CellSummary], header: RunRecord, found: Mapping[str, TaskAnswer], letter: str, where: str
) -> tuple[Chart, ...]:
    """Return a chart for each task with at least two rates. Titles begin with ``letter``, and name the machine."""
    cores = cores_of_workers(header, cells)
    kinks = [(after, "second threads begin") for after, (one, two) in enumerate(pairwise(cores), 1) if two - one < 1]
    kinks = [*kinks[:1], (header.usable_cpus, "CPUs end")]
    charts = []
    for env, answer in found.items():
        lines = tuple(_lines([cell for cell in cells if cell.env == env], answer, header.usable_cpus))
        points = [x for line in lines if line.role != "ideal" for x, _ in line.points]
        if len(points) > 1:
            marks = tuple((float(x), text) for x, text in kinks if min(points) <= x < max(points))
            title = f"{letter}{one_line(short_name(env))} on {where}: frames/s"
            charts.append(Chart(one_line(env), title, lines, marks))
    return tuple(charts)


def _lines(cells: Sequence[CellSummary], answer: TaskAnswer, usable_cpus: int) -> Iterator[ChartLine]:
    """Yield the measured lines and the ideal line. Ideally, each worker that has a CPU is as fast as the plain loop."""
    for curve, name in _curves(cells):
        points = []
        for cell in curve:
            rate = cell.frames_per_second
            if rate is not None and rate.median > 0 and not cell.exclusion:
                points.append((float(cell.workers), rate))
        if not points:
            continue
        entry = curve[0].entry
        role: LineRole = "bound" if entry.name == CEILING else "measured"
        family = one_line(curve[0].label).replace(entry.name, entry.family, 1)
        winner = float(answer.winner.workers) if answer.winner is not None and answer.winner in curve else None
        yield ChartLine(name, tuple(points), role, family, entry.is_async, winner)
    loops = [cell.frames_per_second for cell in cells if cell.speedup == Estimate(1.0, 1.0, 1.0)]
    if len(loops) == 1 and loops[0] is not None:
        rate, most = loops[0], max(cell.workers for cell in cells)
        ends = sorted({1, min(most, usable_cpus), most})
        ideal = tuple((float(end), Estimate(rate.median * min(end, usable_cpus))) for end in ends)
        yield ChartLine("ideal", ideal, "ideal")


def _curves(cells: Iterable[CellSummary]) -> Iterator[tuple[Curve, str]]:
    """Yield the curves of a task with names. Names include the environments per worker if these differ."""
    shown = [curve for curve in curves(cells) if curve[0].backend not in (NULL, YARDSTICK)]
    several = len({curve[0].envs_per_worker for curve in shown}) > 1
    for curve in shown:
        envs = figures.times_envs(curve[0].envs_per_worker) if several else ""
        yield curve, f"{one_line(curve[0].label)}{envs}"


def forecast_tables(cells: Sequence[CellSummary], header: RunRecord, workers: int) -> Iterator[Table]:
    """Yield a table for each task with the predicted rates of ``workers`` workers. Notes say why one is missing."""
    cores = cores_of_workers(header, cells)
    on_hosts = "replicas on hosts add up: measure with more hosts (--hosts 1..N)"
    for env in dict.fromkeys(cell.env for cell in cells):
        rows, refused = [], []
        for curve, name in _curves(cell for cell in cells if cell.env == env):
            found = on_hosts if header.hosts else forecast(curve, cores, workers)
            texts = Text(("not predicted",), "missing"), Text((figures.DASH,))
            if isinstance(found, str):
                refused.append((f"not predicted: {found}", name))
            else:  # a prediction is not precise enough for more than three digits
                ends = (found.low or 0.0, found.median, found.high or 0.0)
                low, median, high = (figures.number(float(f"{end:.3g}")) for end in ends)
                texts = Text((median,), value=found), Text((f"{low} to {high}",))
            rows.append(TableRow(name, texts, curve[0].reference_row))
        yield Table(
            title=f"{one_line(env)}: Predicted frames/s, not measured",
            columns=(figures.counted(workers, "worker"), "90 % band"),
            rows=tuple(rows),
            notes=(
                f"predicted: the rate per core with the most measured workers; a second thread is {THREAD:g} of a core",
                f"90 % band: {BAND[0]:g} to {BAND[1]:g} times the prediction, wider if the last rate is uncertain",
                *figures.with_names(refused),
            ),
            group=one_line(env),
            further=True,
        )


class NoChartError(UsageError):
    """A page has nothing to draw."""


def _file_of(page: Page, form: Literal["svg", "png", "pdf"]) -> str | bytes:
    """Return all charts of ``page`` in one file. Raises NoChartError if it has none."""
    charts = [chart for document in figures.shortened(page.documents) for chart in document.charts]
    if not charts:
        raise NoChartError("no chart: no task has two rates that a chart can show")
    return svg(charts) if form == "svg" else drawn(charts, form)


svg_of = partial(_file_of, form="svg")
png_of = partial(_file_of, form="png")
pdf_of = partial(_file_of, form="pdf")


def svg(charts: Sequence[Chart], *, among: Sequence[Chart] = (), part: str = "") -> str:
    """Return ``charts``, at least one, as one SVG, which has their numbers in words for readers who cannot see them.

    ``among`` has all charts that must draw the same series in the same colours. ``part`` is for HTML pages: it makes
    ids unique within the page.
    """
    text = drawn(charts, "svg", among=among, part=part).decode()
    size = re.search(r'width="\S*" height="\S*" viewBox="[^"]*"', text)
    _, _, body = text.partition("</defs>")  # the first <defs> has a style that would apply to the whole page
    body = re.sub(r'<(\w+) id="[\w.]+_\d+"', r"<\1", body)
    words = []
    for chart in charts:
        lines = []
        for line in chart.series:
            points = ", ".join(f"{figures.number(estimate.median)} at {x:g}" for x, estimate in line.points)
            lines.append(f"{line.name}: {points}")
        words.append(one_line(f"{chart.title}, over workers. {'. '.join(lines)}."))
    title = escape(one_line("; ".join(chart.title for chart in charts)))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'{size[0] if size else ""} role="img" aria-label="{title}">\n'
        f"<title>{title}</title>\n<desc>{escape(' '.join(words))}</desc>"
    )
    return f"{head}{body}" if part else f'<?xml version="1.0" encoding="UTF-8"?>\n{head}{body}'


def drawn(
    charts: Sequence[Chart], form: Literal["svg", "png", "pdf"], *, among: Sequence[Chart] = (), part: str = ""
) -> bytes:
    """Return the file that matplotlib writes of ``charts``, at least one. ``among`` and ``part``: see ``svg``."""
    from matplotlib import style

    # Without dates and the version of the library, the same charts give the same bytes.
    left_out = {
        "svg": ("Date", "Creator", "Format", "Type"),
        "png": ("Software",),
        "pdf": ("CreationDate", "Creator", "Producer"),
    }
    out = BytesIO()
    # The user's own settings must not change these charts.
    with warnings.catch_warnings(), style.context(["default", {**_SETTINGS, "svg.hashsalt": f"vebench {part}"}]):
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a box is drawn, and SVG keeps the letter
        _figure(charts, among or charts).savefig(out, format=form, dpi=200, metadata=dict.fromkeys(left_out[form]))
    return out.getvalue()


def _figure(charts: Sequence[Chart], among: Sequence[Chart]) -> Figure:
    """Return ``charts`` as one picture, one below the other. Series have the same looks in all charts ``among``."""
    from matplotlib.figure import Figure

    # In inches: narrow, so that texts can be read on a phone, and higher for the names of many series.
    heights = [max(3.6, 1 + 0.19 * len(chart.series)) for chart in charts]
    whole = Figure((5.2, sum(heights)), layout="constrained", facecolor="white")
    places = whole.subfigures(len(charts), 1, squeeze=False, height_ratios=heights)
    every = [series for chart in among for series in chart.series]
    looks = {series.name: (MUTED, "_") for series in every}
    names = {series.name: series.family or series.name for series in every if series.role == "measured"}
    # The families of default backends always have the same colours, but for backends of few tasks.
    usual = (entry.family for entry in ENTRIES if entry.by_default and not (entry.reference_row or entry.roles))
    colours = dict(zip(dict.fromkeys((*usual, *names.values())), cycle(SERIES), strict=False))
    for (name, family), marker in zip(names.items(), cycle("os^DvPXph"), strict=False):
        looks[name] = (colours[family], marker)
    for (place,), chart in zip(places, charts, strict=True):
        place.suptitle(_shortened(chart.title, 68), x=0.02, ha="left")
        _draw(place.subplots(), chart, looks)
    return whole


def _draw(space: Axes, chart: Chart, looks: Mapping[str, tuple[str, str]]) -> None:
    """Draw a chart. ``looks`` has the colour and the marker of each series by name."""
    _lay_axes(space, chart)
    low, high = space.get_ylim()
    for x, text in chart.marks:
        space.axvline(x, color=MUTED, linewidth=0.7, linestyle="dashdot", zorder=1)
        how: dict[str, Any] = {"rotation": 90, "ha": "right", "va": "bottom", "color": MUTED, "fontsize": 8}
        space.annotate(_shortened(text), (x, low), xytext=(-3, 4), textcoords="offset points", **how)
    handles = []
    for index, series in enumerate(chart.series):
        colour, marker = looks[series.name]
        ideal = series.role == "ideal"
        # Points of different lines at one number of workers are slightly apart, to show all intervals.
        aside = 1.0 if ideal else 1.012 ** (index - len(chart.series) / 2)
        places = [x * aside for x, _ in series.points]
        medians = [estimate.median for _, estimate in series.points]
        ends = [_ends_of(estimate) for _, estimate in series.points]
        lows, highs = ([min(max(end, low), high) for end in side] for side in zip(*ends, strict=True))
        if not ideal:
            space.vlines(places, lows, highs, color=colour, linewidth=0.9)
        style = "dashed" if series.dashed else "dotted" if ideal else "solid"
        handles += space.plot(places, medians, color=colour, marker=marker, linestyle=style, clip_on=False)
        if series.winner is not None:
            at = [x for x, _ in series.points].index(series.winner)
            place = places[at], medians[at]
            space.annotate("winner", place, xytext=(0, 7), textcoords="offset points", ha="center", weight="bold")
    lines = sorted(zip(handles, chart.series, strict=True), key=lambda line: -line[1].points[-1][1].median)
    names = [_shortened(series.name) for _, series in lines]
    space.legend([handle for handle, _ in lines], names, loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=2.5)


def _lay_axes(space: Axes, chart: Chart) -> None:
    """Set names, limits and ticks. Numbers of workers are logarithmic, because most sweeps double them."""
    from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator

    margin = 1.1  # the margin at either end of an axis, as a factor
    farthest = 2.0  # a wide interval would flatten the lines, so intervals widen the axis at most by this factor
    space.set_xlabel("workers (log scale)")
    space.set_ylabel("frames/s (log scale)")
    places = sorted({x for series in chart.series for x, _ in series.points})
    space.set_xscale("log", base=2)
    space.set_xlim(places[0] / margin, places[-1] * margin)
    if len(places) <= 10:  # noqa: PLR2004 - the names of more would overlap
        space.set_xticks(places)
    space.xaxis.set_major_formatter("{x:g}")
    estimates = [estimate for series in chart.series for _, estimate in series.points]
    medians = [estimate.median for estimate in estimates]
    lows, highs = zip(*map(_ends_of, estimates), strict=True)
    low, high = max(min(lows), min(medians) / farthest), min(max(highs), max(medians) * farthest)
    space.set_yscale("log")
    space.set_ylim(low / margin, high * margin)
    # Within a factor of 4, evenly spaced ticks are easier to read.
    space.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if high > 4 * low else MaxNLocator(5, steps=(1, 2, 5, 10)))
    space.yaxis.set_major_formatter(EngFormatter(sep=""))
    space.minorticks_off()


def _ends_of(estimate: Estimate) -> tuple[float, float]:
    low = estimate.median if estimate.low is None else estimate.low
    high = estimate.median if estimate.high is None else estimate.high
    return low, high


def _shortened(text: str, longest: int = 34) -> str:
    """Return ``text`` on one line. A long text loses its middle, because names differ at both ends."""
    text = one_line(text)
    if len(text) <= longest:
        return text
    end = (longest - 1) // 3
    return f"{text[: longest - 1 - end]}…{text[-end:]}"
