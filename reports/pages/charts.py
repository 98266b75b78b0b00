"""The figures of a run: how each task's rates scale with workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.analysis.curves import curves
from vebench.analysis.statistics import Estimate
from vebench.backends.registry import CEILING, NULL
from vebench.errors import one_line
from vebench.reports.chart import Chart, Mark, Series
from vebench.reports.figures import times_envs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.curves import Curve
    from vebench.results.records import HostRecord

    Figure = Callable[[CellSummary], Estimate | None]

FEWEST_FOR_CURVE = 2  # numbers of workers: fewer are no curve


def charts(cells: Sequence[CellSummary], host: HostRecord) -> tuple[Chart, ...]:
    """Return the figures of a run with these cells: rates, efficiency and frames per CPU second of each task."""
    return tuple(
        chart
        for env in dict.fromkeys(cell.env for cell in cells)
        for chart in _task(env, [cell for cell in cells if cell.env == env], host)
        if any(len(series.points) >= FEWEST_FOR_CURVE for series in chart.series)
    )


def _task(env: str, cells: Sequence[CellSummary], host: HostRecord) -> Iterator[Chart]:
    drawn = [curve for curve in curves(cells) if curve.cells[0].backend != NULL]
    several = len({curve.envs_per_worker for curve in drawn}) > 1
    name, marks = one_line(env), _marks(cells, host)
    rates = [_series(curve, lambda cell: cell.frames_per_second, several=several) for curve in drawn]
    yield Chart(
        name, "scaling", f"{name}: frames/s", "workers", "frames/s", (*rates, *_ideal(drawn, host.usable_cpus)), marks
    )
    choices = [curve for curve in drawn if not curve.reference_row]
    shares = tuple(_series(curve, lambda cell: cell.efficiency, several=several) for curve in choices)
    title = f"{name}: speedup over each CPU owned"
    yield Chart(name, "efficiency", title, "workers", "efficiency", shares, marks, linear=True)
    costs = tuple(_series(curve, lambda cell: cell.frames_per_cpu_second, several=several) for curve in drawn)
    title = f"{name}: frames for each second of CPU time"
    yield Chart(name, "cost", title, "workers", "frames per CPU second", costs, marks, linear=True)


def _series(curve: Curve, figure: Figure, *, several: bool) -> Series:
    """Return one line; cells without a figure, and those of other work, have no point."""
    points = tuple(
        (float(cell.workers), value)
        for cell in curve.cells
        if not cell.struck and (value := figure(cell)) is not None and value.median > 0
    )
    name = one_line(curve.label) + (times_envs(curve.envs_per_worker) if several else "")
    return Series(name, points, "bound" if curve.cells[0].backend == CEILING else "measured")


def _ideal(drawn: Sequence[Curve], usable_cpus: int) -> Iterator[Series]:
    """Yield the line of a backend that would gain, by every worker with a CPU, as much as the plain loop has."""
    loops = [cell for curve in drawn for cell in curve.cells if cell.speedup == Estimate(1.0, 1.0, 1.0)]
    most = max((cell.workers for curve in drawn for cell in curve.cells), default=1)
    if len(loops) == 1 and (rate := loops[0].frames_per_second) is not None:
        ends = sorted({1, min(most, usable_cpus), most})
        points = tuple((float(end), Estimate(rate.median * min(end, usable_cpus))) for end in ends)
        yield Series("ideal", points, "ideal")


def _marks(cells: Sequence[CellSummary], host: HostRecord) -> tuple[Mark, ...]:
    """Return where workers begin to share CPUs, if the sweep goes that far."""
    most = max(cell.workers for cell in cells)
    return (Mark(float(host.usable_cpus), "CPUs end"),) if most > host.usable_cpus else ()
