"""Where things lie in a figure: limits, ticks, and texts that keep apart. Pure values: nothing is drawn here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, exp, floor, log, log2, log10
from typing import TYPE_CHECKING
from unicodedata import east_asian_width

from vebench.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vebench.analysis.statistics import Estimate
    from vebench.reports.chart import Chart, Mark

MARGIN = 0.05  # of an axis, at either end
FARTHEST = 2.0  # an interval widens the axis by this factor at most: one that says nothing must not flatten the others
ROOM = 1.25  # likewise on a linear axis, over the highest value
# Ticks within a decade, the best first: where these are too few the denser ones are taken, else the sparser ones.
BEST_STEPS = (1.0, 2.0, 5.0)
DENSER = ((1.0, 1.5, 2.0, 3.0, 5.0, 7.0), (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0))
SPARSER = ((1.0, 3.0), (1.0,))
FEWEST_TICKS, MOST_TICKS = 4, 8
EVEN_STEPS = 6  # at the most
SHORT = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
# Widths of characters relative to the size of the font: those of DejaVu Sans, which few fonts exceed.
NARROW, WIDE = 0.6, 1.0
LONGEST = 34  # characters of a name in a figure; reports have it in full
ELLIPSIS = "…"


@dataclass(frozen=True)
class Axis:
    """What an axis spans, and its ticks."""

    low: float
    high: float
    logarithmic: bool
    ticks: tuple[tuple[float, str], ...]

    def at(self, value: float) -> float:
        """Return where ``value`` lies, from 0 at the low end to 1 at the high end."""
        return _at(value, self.low, self.high, logarithmic=self.logarithmic)

    def within(self, value: float) -> float:
        """Return ``value``, or the end of the axis that is nearest to it."""
        return min(max(value, self.low), self.high)


def x_axis(chart: Chart, width: float, size: float) -> Axis:
    """Return the horizontal axis for this many points of width, with tick labels of this size.

    It is logarithmic, because numbers of workers are: most sweeps double them.
    """
    places = {x for series in chart.series for x, _ in series.points}
    low, high = _widened(min(places), max(places))
    kept: list[float] = []
    for place in sorted(places, key=lambda x: _dispensable(x, places)):
        needed = (text_width(f"{place:g}", size) + size) / width
        if all(abs(_at(place, low, high) - _at(other, low, high)) >= needed for other in kept):
            kept.append(place)
    return Axis(low, high, logarithmic=True, ticks=tuple((place, f"{place:g}") for place in sorted(kept)))


def _dispensable(place: float, places: set[float]) -> tuple[bool, bool, float]:
    """Return a key by which the ends of the axis come first, then powers of two from above, then all else."""
    return place not in (min(places), max(places)), not log2(place).is_integer(), -place


def y_axis(chart: Chart) -> Axis:
    """Return the vertical axis: from zero if it is linear."""
    estimates = [estimate for series in chart.series for _, estimate in series.points]
    medians = [estimate.median for estimate in estimates]
    ends = [end for estimate in estimates for end in ends_of(estimate)]
    if chart.linear:
        high = min(max(ends), ROOM * max(medians)) * (1 + MARGIN)
        return Axis(0.0, high, logarithmic=False, ticks=tuple((tick, plain(tick)) for tick in _even_ticks(0.0, high)))
    low, high = _widened(
        max(min(ends), min(medians) / FARTHEST),
        min(max(ends), max(medians) * FARTHEST),
    )
    return Axis(low, high, logarithmic=True, ticks=tuple((tick, plain(tick)) for tick in _log_ticks(low, high)))


def ends_of(estimate: Estimate) -> tuple[float, float]:
    """Return both ends of an interval; where there is none, the median."""
    return (
        estimate.median if estimate.low is None else estimate.low,
        estimate.median if estimate.high is None else estimate.high,
    )


def _widened(low: float, high: float) -> tuple[float, float]:
    """Return limits with a margin on a logarithmic axis. Values that are nearly equal get some room."""
    room = max(log(high / low), log(1.2))
    middle = (log(low) + log(high)) / 2
    half = room * (0.5 + MARGIN)
    return exp(middle - half), exp(middle + half)


def _at(value: float, low: float, high: float, *, logarithmic: bool = True) -> float:
    return log(value / low) / log(high / low) if logarithmic else (value - low) / (high - low)


def _log_ticks(low: float, high: float) -> Sequence[float]:
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)

    def ticks(steps: Sequence[float]) -> Sequence[float]:
        return [tick for decade in decades for step in steps if low <= (tick := step * 10.0**decade) <= high]

    best = ticks(BEST_STEPS)
    if len(best) < FEWEST_TICKS:
        return next((dense for steps in DENSER if len(dense := ticks(steps)) >= FEWEST_TICKS), _even_ticks(low, high))
    fewer = [best, *map(ticks, SPARSER)]
    return next((some for some in fewer if len(some) <= MOST_TICKS), fewer[-1][:: ceil(len(fewer[-1]) / MOST_TICKS)])


def _even_ticks(low: float, high: float) -> Sequence[float]:
    """Return round numbers at equal distances."""
    rough = (high - low) / EVEN_STEPS
    decade = 10.0 ** floor(log10(rough))
    step = next(step for factor in (1, 2, 2.5, 5, 10) if (step := factor * decade) >= rough * 0.999)
    return [round(step * index, 12) for index in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


def plain(value: float) -> str:
    """Return the label of a tick: ``20k``, ``1.5M``, ``0.25``."""
    for unit, suffix in SHORT:
        if value >= unit:
            return f"{value / unit:.4g}{suffix}"
    return f"{value:.4g}"


def apart(wanted: Sequence[float], gap: float, high: float) -> list[float]:
    """Return places at least ``gap`` apart within 0 to ``high``, as near to the ``wanted`` ones as can be.

    ``wanted`` rises. Nearest by least squares: neighbours that are too close share their distance (the algorithm of
    pool adjacent violators; R. Barlow and others, Statistical Inference under Order Restrictions, 1972).
    """
    blocks: list[tuple[float, int]] = []  # the mean of what they want, less the gaps below, and how many they are
    for index, place in enumerate(wanted):
        mean, count = place - index * gap, 1
        while blocks and blocks[-1][0] >= mean:
            before, many = blocks.pop()
            mean, count = (before * many + mean * count) / (many + count), many + count
        blocks.append((mean, count))
    levels = [mean for mean, count in blocks for _ in range(count)]
    most = high - (len(levels) - 1) * gap
    return [min(max(level, 0.0), max(most, 0.0)) + index * gap for index, level in enumerate(levels)]


@dataclass(frozen=True)
class MarkText:
    """The text of a mark above the axes: its row from below, its two ends, and where the line of the mark is.

    The line goes up to the row. The text begins there, or ends there if there is no room to the right.
    """

    text: str
    row: int
    line: float
    left: float
    right: float

    @property
    def ends(self) -> bool:
        """Whether the text ends at its line."""
        return self.right == self.line


def mark_texts(marks: Iterable[Mark], axis: Axis, width: float, size: float) -> tuple[MarkText, ...]:
    """Return the texts of the marks on an ``axis`` of this width, in rows so that none covers another.

    Nor does a line go through the text of another mark, as far as that can be had: of texts to the right of their
    lines, the one farthest to the left is the highest.
    """
    loose = [_mark_text(mark, axis, width, size) for mark in marks if axis.low <= mark.x <= axis.high]
    placed: list[MarkText] = []
    for one in sorted(loose, key=lambda one: (one.ends, one.line if one.ends else -one.line)):
        rows = range(len(placed) + 1)
        row = next((row for row in rows if all(_agree(one, row, other) for other in placed)), len(placed))
        placed.append(replace(one, row=row))
    return tuple(placed)


def _mark_text(mark: Mark, axis: Axis, width: float, size: float) -> MarkText:
    text, line = shortened(mark.text), axis.at(mark.x) * width
    long = text_width(text, size) + size
    if line + long > width and line > width / 2:
        return MarkText(text, 0, line, line - long, line)
    return MarkText(text, 0, line, line, line + long)


def _agree(one: MarkText, row: int, other: MarkText) -> bool:
    """Return whether ``one`` can be in ``row``."""
    if row == other.row:
        return one.right <= other.left or other.right <= one.left
    if row < other.row:
        return not one.left < other.line < one.right
    return not other.left < one.line < other.right


def text_width(text: str, size: float) -> float:
    """Return about how wide ``text`` is in a font of this size."""
    return size * sum(WIDE if east_asian_width(character) in "WF" else NARROW for character in text)


def shortened(text: str, longest: int = LONGEST) -> str:
    """Return ``text`` on one line; a long one without its middle, since names differ at both ends."""
    text = one_line(text)
    if len(text) <= longest:
        return text
    end = (longest - 1) // 3
    return f"{text[: longest - 1 - end]}{ELLIPSIS}{text[-end:]}"
