"""Scaling curves drawn with characters: a letter for each line, so that a figure reads without colour, too.

Both axes are logarithmic. Points that would lie on each other stand side by side, to the right of their place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import exp, log
from string import ascii_letters
from typing import TYPE_CHECKING

from rich.text import Text as Line

from vebench.reports.figures import number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vebench.reports.chart import Chart, Series

KIND = "scaling"  # the figure that is drawn on a terminal; files have the others
ROWS = 7
WIDEST = 76
LEAST_COLUMNS = 24  # a narrower figure shows nothing
LABELLED = (0, ROWS // 2, ROWS - 1)  # rows that have their rate beside them
DIGITS = 2  # of a label: a row is no more precise
BOUND, MARK, MORE = "^", "|", "+"
LINES = {"ideal": "·", "forecast": "~"}  # drawn as lines, the others as points
STYLES = ("green", "cyan", "magenta", "yellow", "blue", "red")


def drawn(charts: Sequence[Chart], width: int) -> Iterator[list[Line]]:
    """Yield the lines of each scaling curve that fits ``width``."""
    for chart in charts:
        if chart.kind == KIND and (canvas := _canvas(chart, min(width, WIDEST))) is not None:
            yield _lines(chart, canvas)


@dataclass
class _Canvas:
    """Characters by row and column, with the ranges that they stand for; ``margin`` is right of the last points."""

    left: float
    right: float
    low: float
    high: float
    columns: int
    margin: int
    places: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)

    def column(self, x: float) -> int:
        return round(log(x / self.left) / log(self.right / self.left) * (self.columns - 1))

    def row(self, y: float) -> int:
        """Return the row of a rate, counted from the top; it may be beyond the figure."""
        return round(log(self.high / y) / log(self.high / self.low) * (ROWS - 1))

    def rate(self, row: int) -> float:
        """Return the rate at the middle of a row, to as many digits as a row can show."""
        value = self.high * (self.low / self.high) ** (row / (ROWS - 1))
        return float(f"{value:.{DIGITS}g}")

    def put(self, row: int, column: int, character: str, style: str) -> None:
        if 0 <= row < ROWS:
            self.places[row, column] = character, style

    def line(self, row: int) -> Line:
        text = Line()
        for column in range(self.columns + self.margin):
            text.append(*self.places.get((row, column), (" ", "")))
        text.rstrip()
        return text


def _canvas(chart: Chart, width: int) -> _Canvas | None:
    """Return the figure without its surroundings, None if there is too little of it or too little room."""
    solid = [point for series in chart.series if series.role != "ideal" for point in series.points]
    places = {x for x, _ in solid}
    rates = [rate.median for _, rate in solid]
    margin = max(len(chart.series), len(f"{max(places, default=0):g} {chart.x_label}"))
    columns = width - margin - _label_width(rates) - 1
    if len(places) <= 1 or columns < LEAST_COLUMNS:
        return None
    low, high = min(rates), max(rates)
    if low == high:
        low, high = low / 2, high * 2
    canvas = _Canvas(min(places), max(places), low, high, columns, margin)
    for mark in chart.marks:
        if canvas.left <= mark.x <= canvas.right:
            for row in range(ROWS):
                canvas.put(row, canvas.column(mark.x), MARK, "dim")
    for series in chart.series:
        if series.role in LINES:
            _draw_line(canvas, series)
    _draw_points(canvas, chart.series)
    return canvas


def _label_width(rates: Sequence[float]) -> int:
    return max((len(number(rate)) for rate in rates), default=0)


def _draw_line(canvas: _Canvas, series: Series) -> None:
    """Draw a line through the points of ``series``, straight between each two of them."""
    for (x, begin), (next_x, end) in pairwise(series.points):
        for column in range(canvas.column(max(x, canvas.left)), canvas.column(min(next_x, canvas.right)) + 1):
            at = canvas.left * (canvas.right / canvas.left) ** (column / (canvas.columns - 1))
            share = min(max(log(at / x) / log(next_x / x), 0.0), 1.0)
            rate = exp(log(begin.median) + share * log(end.median / begin.median))
            canvas.put(canvas.row(rate), column, LINES[series.role], "dim")


def _draw_points(canvas: _Canvas, every: Sequence[Series]) -> None:
    """Draw the points of all series that are no lines, side by side where they share a place."""
    stops = sorted({canvas.column(x) for series in every for x, _ in series.points if x <= canvas.right})
    ends = dict(pairwise([*stops, canvas.columns + canvas.margin]))
    taken: set[tuple[int, int]] = set()
    for series, (letter, style) in zip(every, _letters(every), strict=True):
        if series.role in LINES:
            continue
        for x, rate in series.points:
            row, first = canvas.row(rate.median), canvas.column(x)
            free = [column for column in range(first, ends[first]) if (row, column) not in taken]
            column = free[0] if free else ends[first] - 1
            taken.add((row, column))
            canvas.put(row, column, letter if free else MORE, style)


def _letters(every: Sequence[Series]) -> Iterator[tuple[str, str]]:
    """Yield the character of each series and its colour."""
    count = 0
    for series in every:
        if series.role in LINES:
            yield LINES[series.role], "dim"
        elif series.role == "bound":
            yield BOUND, "cyan"
        else:
            yield ascii_letters[count % len(ascii_letters)], STYLES[count % len(STYLES)]
            count += 1


def _lines(chart: Chart, canvas: _Canvas) -> list[Line]:
    """Return the figure with its title, labels of both axes, and the key."""
    labels = {row: number(canvas.rate(row)) for row in LABELLED}
    indent = max(map(len, labels.values()))
    return [
        Line(f"{chart.title} by {chart.x_label} (both axes logarithmic)", style="bold"),
        *(Line(f"{labels.get(row, ''):>{indent}} ").append_text(canvas.line(row)) for row in range(ROWS)),
        Line(f"{'':{indent}} {_below(chart, canvas)}", style="dim"),
        *_key(chart, indent + 1 + canvas.columns + canvas.margin),
    ]


def _below(chart: Chart, canvas: _Canvas) -> str:
    """Return the numbers on the horizontal axis, each below its points; one that does not fit is left out."""
    text = ""
    for x in sorted({x for series in chart.series if series.role != "ideal" for x, _ in series.points}):
        column = canvas.column(x)
        if not text or column > len(text):
            text = f"{text.ljust(column)}{x:g}"
    return f"{text} {chart.x_label}"


def _key(chart: Chart, width: int) -> Iterator[Line]:
    """Yield what each character means, as many to a line as fit."""
    entries = {
        f"{letter} {series.name}": style
        for series, (letter, style) in zip(chart.series, _letters(chart.series), strict=True)
    }
    entries |= {f"{MARK} {mark.text}": "dim" for mark in chart.marks}
    line = Line()
    for entry, style in entries.items():
        if line and len(line) + 2 + len(entry) > width:
            yield line
            line = Line()
        line.append("  " if line else "").append(entry, style=style)
    yield line
