"""The figures of a run: how each task's rates scale with workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.analysis.cell import curves
from vebench.analysis.scaling import cpu_order
from vebench.analysis.statistics import Estimate
from vebench.backends.registry import NULL
from vebench.errors import one_line
from vebench.reports.chart import Chart, Mark, Series
from vebench.reports.pages.curve_lines import curve_name, line_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from vebench.analysis.cell import CellSummary, Curve
    from vebench.reports.pages.forecasts import Prediction
    from vebench.results.records import RunRecord

    Bend = tuple[int, str]  # the number of workers after which something begins, and what

FEWEST_FOR_CURVE = 2  # numbers of workers: fewer are no curve


def charts(cells: Sequence[CellSummary], header: RunRecord, predicted: Sequence[Prediction] = ()) -> tuple[Chart, ...]:
    """Return the figures of a run with these cells: rates, efficiency and frames per CPU second of each task.

    The rates go on with what is ``predicted``.
    """
    order, cpus = cpu_order(header, cells), header.usable_cpus
    bends = (*((kink.after, kink.text) for kink in (order.kinks if order else ())), (cpus, "CPUs end"))
    parts = {
        env: ([cell for cell in cells if cell.env == env], [one for one in predicted if one.curve.env == env])
        for env in dict.fromkeys(cell.env for cell in cells)
    }
    return tuple(
        chart
        for own, ahead in parts.values()
        for chart in _task(own, cpus, bends, ahead)
        if any(len(series.points) >= FEWEST_FOR_CURVE for series in chart.series if series.role != "ideal")
    )


def _task(
    cells: Sequence[CellSummary], cpus: int, bends: Iterable[Bend], predicted: Sequence[Prediction]
) -> Iterator[Chart]:
    shown = [curve for curve in curves(cells) if curve.cells[0].backend != NULL]
    several = len({curve.envs_per_worker for curve in shown}) > 1
    named = [(curve, curve_name(curve, several=several)) for curve in shown]
    ahead = [Series(curve_name(one.curve, several=several), one.points, "forecast") for one in predicted if one.points]
    counts, farthest = [cell.workers for cell in cells], [int(series.points[-1][0]) for series in ahead]
    name, most = one_line(cells[0].env), max(counts + farthest)
    marks, reached = _marks(bends, min(counts), max(counts)), _marks(bends, min(counts), most)
    rates = [line_of(curve, label, lambda cell: cell.frames_per_second) for curve, label in named]
    lines = (*rates, *_ideal(shown, cpus, most), *ahead)
    yield Chart(name, "scaling", f"{name}: frames/s", "workers", "frames/s", lines, reached)
    choices = [(curve, label) for curve, label in named if not curve.reference_row]
    shares = tuple(line_of(curve, label, lambda cell: cell.efficiency) for curve, label in choices)
    title = f"{name}: speedup per CPU owned"
    yield Chart(name, "efficiency", title, "workers", "efficiency", shares, marks, linear=True)
    costs = tuple(line_of(curve, label, lambda cell: cell.frames_per_cpu_second) for curve, label in named)
    title = f"{name}: frames for each second of CPU time"
    yield Chart(name, "cost", title, "workers", "frames per CPU second", costs, marks, linear=True)


def _ideal(shown: Sequence[Curve], usable_cpus: int, most: int) -> Iterator[Series]:
    """Yield, up to ``most`` workers, the line of a backend of which each worker with a CPU is as fast as the loop."""
    loops = [cell for curve in shown for cell in curve.cells if cell.speedup == Estimate(1.0, 1.0, 1.0)]
    if len(loops) == 1 and (rate := loops[0].frames_per_second) is not None:
        ends = sorted({1, min(most, usable_cpus), most})
        points = tuple((float(end), Estimate(rate.median * min(end, usable_cpus))) for end in ends)
        yield Series("ideal", points, "ideal")


def _marks(bends: Iterable[Bend], fewest: int, most: int) -> tuple[Mark, ...]:
    """Return where workers begin to gain less, between the fewest and the most of them."""
    texts: dict[int, list[str]] = {}
    for after, text in bends:
        if fewest <= after < most:
            texts.setdefault(after, []).append(text)
    return tuple(Mark(float(after), ", ".join(texts[after])) for after in sorted(texts))
