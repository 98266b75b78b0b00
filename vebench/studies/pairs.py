"""Pairs of cells of one run: how much faster one is than the other, beyond doubt or not, and in which words."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Literal

from vebench.analysis.contrasts import LEVEL, contrast, rejected
from vebench.backends.environments.suites import short_name
from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.document import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.contrasts import Contrast
    from vebench.analysis.statistics import Estimate
    from vebench.reports.document import Tone
    from vebench.studies.study import Measured

Verdict = Literal["faster", "slower", "not decided", "no rate"]
UNITS = ((1.0, "s", 1.0), (1e-3, "ms", 1e3), (-inf, "µs", 1e6))
LEGEND = (
    "In brackets: the interval that holds the true value with 95 % confidence.",
    "faster, slower: beyond doubt, all comparisons of the study tested together. not decided: the data do not say.",
)


def _number(value: float) -> str:
    return f"{'-' * (value < 0)}{figures.number(abs(value))}"


@dataclass(frozen=True)
class Pair:
    """A cell of ``run`` beside another of it, which it is compared with.

    ``ratio`` is its rate over the other's with a 95 % interval, paired pass by pass; None if there is none, for the
    reason ``why``. ``verdict`` is about that ratio, all pairs of a study tested together.
    """

    run: Measured
    one: CellSummary
    base: CellSummary
    ratio: Estimate | None
    verdict: Verdict
    why: str = ""

    @property
    def decided(self) -> bool:
        """Whether one is faster than the other beyond doubt."""
        return self.verdict in ("faster", "slower")

    @property
    def where(self) -> str:
        """What both are of: ``HalfCheetah, 2 workers x 20 envs``."""
        return f"{one_line(short_name(self.one.env))}, {self.one.key.size}"

    @property
    def words(self) -> str:
        """By how much: ``12.0% faster (9.1% to 15.0%)``, ``not decided: between -3.0% and +4.1%``, or why not."""
        if self.ratio is None:
            return f"no rate: {self.why}"
        return by_how_much(self.ratio, self.verdict)

    @property
    def text(self) -> Text:
        """The same for a table: the ratio first, and below it the verdict."""
        if self.ratio is None:
            return Text((figures.NOTHING, one_line(self.why)), "missing")
        tone: Tone = "plain" if self.decided else "missing"
        return Text((f"{times(self.ratio)}", self.verdict), tone, self.ratio)


def pairs(cells: Iterable[tuple[Measured, CellSummary, CellSummary]]) -> tuple[Pair, ...]:
    """Return each cell beside the one that comes after it, with verdicts that hold for all of them together."""
    asked = list(cells)
    found = [_contrast(one, base) for _, one, base in asked]
    chances = [2 * min(each.chance_above(1), each.chance_below(1)) for each in found if each is not None]
    told = iter(rejected(chances, 2 * LEVEL))
    made = []
    for (run, one, base), each in zip(asked, found, strict=True):
        if each is None:
            made.append(Pair(run, one, base, None, "no rate", why_not(one) or why_not(base) or "too few windows"))
            continue
        verdict: Verdict = "not decided"
        if next(told):
            verdict = "faster" if each.log > 0 else "slower"
        made.append(Pair(run, one, base, each.estimate, verdict))
    return tuple(made)


def _contrast(one: CellSummary, base: CellSummary) -> Contrast | None:
    if why_not(one) or why_not(base):
        return None
    return contrast([(1.0, one.sample), (-1.0, base.sample)])


def why_not(cell: CellSummary) -> str:
    """Return why the rate of a cell is compared with no other; empty if it may be."""
    label = one_line(cell.label)
    if cell.struck:
        return f"{label}: {cell.why_struck}"
    if not cell.sample.rates:
        return one_line(f"{label} {cell.status}{f': {cell.reason}' if cell.reason else ''}")
    return "" if cell.sample.measurable else f"{label}: too few windows"


def times(ratio: Estimate) -> str:
    """Return a ratio with its interval: ``1.12x (1.09 to 1.15)``."""
    return f"{ratio.median:.2f}x{interval(ratio, '{:.2f}'.format)}"


def interval(estimate: Estimate, written: Callable[[float], str] = _number) -> str:
    """Return both ends of an interval, as they stand behind a figure: `` (1.09 to 1.15)``."""
    if estimate.low is None or estimate.high is None:
        return " (no interval)"
    return f" ({written(estimate.low)} to {written(estimate.high)})"


def by_how_much(ratio: Estimate, verdict: Verdict) -> str:
    """Return a ratio of rates in words, with its interval."""
    low, high = ratio.low or 0.0, ratio.high or ratio.median
    if verdict == "faster":
        return f"{ratio.median - 1:.1%} faster ({low - 1:.1%} to {high - 1:.1%})"
    if verdict == "slower":
        return f"{1 - ratio.median:.1%} slower ({1 - high:.1%} to {1 - low:.1%})"
    return f"not decided: between {figures.change(low)} and {figures.change(high)}"


def time_of(seconds: Estimate) -> str:
    """Return a time with its interval, in the unit that fits it: ``12.3 µs (10.1 to 14.8)``."""
    unit, factor = next((unit, factor) for limit, unit, factor in UNITS if seconds.median >= limit)
    scaled = seconds.scaled(factor)
    return f"{_number(scaled.median)} {unit}{interval(scaled)}"


def lacking(found: Sequence[Pair]) -> tuple[str, ...]:
    """Return why some pairs have no ratio, each reason once, with the places that it holds for."""
    reasons: dict[str, list[str]] = {}
    for pair in found:
        if pair.ratio is None:
            reasons.setdefault(pair.why, []).append(pair.where)
    return tuple(f"{why} ({'; '.join(dict.fromkeys(places))})" for why, places in reasons.items())
