"""``exchange``: from which step time on processes pay, since handing over a batch takes time, too."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, Literal

from vebench.analysis.exchange import inverse, point_of, step_seconds
from vebench.analysis.lines import line
from vebench.analysis.statistics import Estimate
from vebench.backends.environments.suites import short_name
from vebench.backends.environments.timed_names import env_name, kind_of
from vebench.backends.registry import ENTRIES, REFERENCE
from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.conclusion import Conclusion
from vebench.reports.document import Table, TableRow, Text
from vebench.studies.pairs import LEGEND, Pair, interval, lacking, pairs, time_of, times
from vebench.studies.study import PLAN, Part, Study

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vebench.analysis.lines import Line, Point
    from vebench.studies.study import Measured

STEP_TIMES = (5, 20, 50, 200, 1000)  # microseconds
# The loop, and all that wait for a whole batch of Gymnasium's environments: of others, no batch is handed over.
BACKENDS = (
    REFERENCE,
    *(
        entry.name
        for entry in ENTRIES
        if entry.role == "contestant"
        and entry.overlap == "none"
        and entry.steps_gymnasium
        and entry.own_classes is None
    ),
)
# A backend that gains less than this even where a step takes longest pays nowhere.
WORTH = 1.05

Outcome = Literal["from", "everywhere", "nowhere", "unclear"]
OUTCOMES = {"everywhere": "always faster", "nowhere": "never faster", "unclear": "not decided"}  # in place of a time


@dataclass(frozen=True)
class Curve:
    """A backend of one size beside the loop over as many environments, by step time in seconds, the shortest first.

    ``line``: the share of the loop's time that a step then takes, over 1 / step time. The share is what it hands over,
    divided by the step time, plus 1 / the environments that it steps at the same time: where it is 1, both are as fast.
    ``break_even`` is that step time, in seconds.
    """

    label: str
    size: str
    num_envs: int
    times: tuple[float, ...]
    pairs: tuple[Pair, ...]
    line: Line | None
    break_even: Estimate | None

    @property
    def outcome(self) -> Outcome:
        """From which step time on it pays, as far as that is known: it has to be faster where a step takes longest."""
        first, last = self.pairs[0], self.pairs[-1]
        if first.verdict == "faster":
            return "everywhere"
        if last.verdict == "faster" and self.break_even is not None:
            return "from"
        return "nowhere" if last.ratio is not None and (last.ratio.high or WORTH) < WORTH else "unclear"

    @property
    def words(self) -> str:
        """The outcome in words."""
        last = self.pairs[-1]
        if self.outcome == "from" and self.break_even is not None:
            return f"from {time_of(self.break_even)} on"
        if self.outcome == "everywhere":
            return f"from the shortest step on, {figures.short(self.times[0] * 1e9)}"
        if self.outcome == "nowhere" and last.ratio is not None:
            return f"at no step time up to {figures.short(self.times[-1] * 1e9)}, where it reaches {times(last.ratio)}"
        return f"where a step takes {figures.short(self.times[-1] * 1e9)}, {last.words}"


def conclude(runs: Sequence[Measured]) -> Conclusion:
    """Return from which step time on each backend is faster than a loop over as many environments."""
    every = pairs(
        (run, cell, base)
        for run in runs
        for cell in run.cells
        if cell.entry.role == "contestant"
        for base in run.cells
        if base.label == REFERENCE and replace(cell.key, backend=REFERENCE) == base.key
    )
    timed = [pair for pair in every if kind_of(pair.one.env) == "Busy"]
    own = [pair for pair in every if kind_of(pair.one.env) != "Busy" and pair.ratio is not None]
    curves = list(_curves([pair for pair in timed if pair.ratio is not None]))
    by_size = {size: [*of_size] for size, of_size in groupby(curves, key=lambda curve: curve.size)}
    told = [sentence for of_size in by_size.values() if (sentence := _headline(of_size))]
    return Conclusion(
        headline=" ".join(told) or "Not decided: no backend was faster or slower than the loop beyond doubt.",
        decided=bool(told),
        tables=tuple(table for size, of_size in by_size.items() for table in _tables(size, of_size)),
        why=(*_of_own(own), *_why(by_size)),
        undecided=(
            *(f"{curve.label}, {curve.size}: {curve.words}" for curve in curves if curve.outcome == "unclear"),
            *lacking(every),
        ),
        legend=(
            *LEGEND,
            "hand-over: what a batch takes besides steps. at a time: environments that step at the same time.",
            "break-even: the time of a step in a plain loop from which on the backend is faster than the loop.",
            "In each column of ratios: the rate over that of a loop over as many environments.",
        ),
    )


def _curves(found: Sequence[Pair]) -> Iterator[Curve]:
    """Yield a curve for each backend and size, those of a size together."""

    def key(pair: Pair) -> tuple[int, int, str]:
        return pair.one.workers, pair.one.envs_per_worker, pair.one.label

    for (_, _, label), of_curve in groupby(sorted(found, key=key), key=key):
        members = sorted(of_curve, key=_step_seconds)
        share = line(_points(members))
        crossing = None if share is None or share.slope <= 0 else share.crossing(1.0)
        cell = members[0].one
        yield Curve(
            one_line(label),
            cell.key.size,
            cell.num_envs,
            tuple(map(_step_seconds, members)),
            tuple(members),
            share,
            inverse(crossing),
        )


def _step_seconds(pair: Pair) -> float:
    """Return what a step takes in the loop of a pair."""
    return step_seconds(pair.base)


def _points(found: Sequence[Pair]) -> list[Point]:
    """Return the shares of the loop's time over 1 / step time."""
    points = (point_of(pair.one, pair.base) for pair in found if pair.ratio is not None)
    return [point for point in points if point is not None]


def _headline(curves: Sequence[Curve]) -> str:
    """Return what the curves of one size say; empty if that is nothing."""
    size = curves[0].size
    first = next((curve for curve in curves if curve.outcome == "everywhere"), None)
    if first is not None:
        return f"With {size}, {first.label} is faster than a plain loop {first.words}."
    first = min((curve for curve in curves if curve.outcome == "from"), key=_when, default=None)
    if first is not None and first.break_even is not None:
        return (
            f"With {size}, a plain loop is faster where a step takes less than {time_of(first.break_even)}, and "
            f"{first.label} where it takes longer."
        )
    if all(curve.outcome == "nowhere" for curve in curves):
        return f"With {size}, no backend gains over a plain loop, at no step time up to {_longest(curves)}."
    return ""


def _when(curve: Curve) -> float:
    """Return the step time from which on a backend pays, infinity if none is known."""
    return curve.break_even.median if curve.break_even is not None else inf


def _longest(curves: Sequence[Curve]) -> str:
    return figures.short(max(curve.times[-1] for curve in curves) * 1e9)


def _why(by_size: dict[str, list[Curve]]) -> Iterator[str]:
    """Yield for each size from when on each of the backends pays, the earliest first."""
    for size, curves in by_size.items():
        order = sorted(curves, key=_when)
        known = [f"{curve.label} {curve.words}" for curve in order if curve.outcome != "unclear"]
        if known:
            yield f"Faster than the loop with {size}: {'; '.join(known)}."


def _of_own(found: Sequence[Pair]) -> Iterator[str]:
    """Yield what to take for the environments that the user has named: the fastest of the backends, or the loop."""
    for _, of_place in groupby(sorted(found, key=lambda pair: pair.where), key=lambda pair: pair.where):
        best = max(of_place, key=lambda pair: pair.ratio.median if pair.ratio else 0.0)
        name, took = one_line(short_name(best.one.env)), figures.short(_step_seconds(best) * 1e9)
        yield (
            f"A step of {name} takes {took} in a loop; with {best.one.key.size}, the best of the others is "
            f"{one_line(best.one.label)}: {best.words}."
        )


def _tables(size: str, curves: Sequence[Curve]) -> Iterator[Table]:
    yield Table(
        title=f"{size}: hand-over and break-even",
        corner="backend",
        columns=("hand-over", "at a time", "break-even"),
        rows=tuple(TableRow(curve.label, tuple(_facts(curve))) for curve in curves),
        group=size,
    )
    taken = curves[0].times
    yield Table(
        title=f"{size}: rate over the loop's, by the time of a step",
        corner="backend",
        columns=tuple(figures.short(seconds * 1e9) for seconds in taken),
        rows=tuple(
            TableRow(curve.label, tuple(pair.text for pair in curve.pairs))
            for curve in curves
            if len(curve.pairs) == len(taken)
        ),
        group=size,
    )


def _facts(curve: Curve) -> Iterator[Text]:
    """Yield what a batch takes besides steps, how many environments step at the same time, and the break-even."""
    if curve.line is None:
        yield from (Text((figures.NOTHING,), "missing"),) * 2
    else:
        batch = curve.line.slope_estimate.scaled(curve.num_envs)
        yield Text((time_of(batch),), value=batch)
        share = curve.line.intercept_estimate
        if share.low is None or share.low <= 0:
            yield Text((figures.NOTHING,), "missing")
        else:
            together = Estimate(1 / share.median, 1 / (share.high or share.median), 1 / share.low)
            yield Text((f"{together.median:.2f}{interval(together)}",), value=together)
    if curve.outcome == "from" and curve.break_even is not None:
        yield Text((time_of(curve.break_even),), value=curve.break_even)
    else:
        yield Text((OUTCOMES[curve.outcome],), "missing")


STUDY = Study(
    name="exchange",
    question="From which step time on does handing over to processes pay, compared with a plain loop?",
    parts=(
        Part(
            "step-times",
            replace(
                PLAN,
                envs=tuple(env_name("Busy", microseconds) for microseconds in STEP_TIMES),
                envs_per_worker=(1, 8),
                duration=0.3,
                warmup=0.3,
            ),
            BACKENDS,
            keeps_envs=True,
        ),
    ),
    conclude=conclude,
)
