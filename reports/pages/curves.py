"""How rates scale with workers: the charts of a run, and what a model predicts for more workers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vebench.analysis.cell import curves
from vebench.analysis.scaling import Forecast, cpu_order, forecast
from vebench.analysis.statistics import Estimate
from vebench.backends.environments.suites import short_name
from vebench.backends.registry import CEILING, NULL, REFERENCE, YARDSTICK
from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.document import Chart, ChartLine, Listing, Mark, Table, TableRow, Text
from vebench.reports.figures import times_envs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from vebench.analysis.answer import TaskAnswer
    from vebench.analysis.cell import CellSummary, Curve
    from vebench.reports.document import LineRole, View
    from vebench.results.records import RunRecord

    Bend = tuple[int, str]  # the number of workers after which something begins, and what


def curve_name(curve: Curve, *, several: bool) -> str:
    """Return what a curve is called among others, ``several`` of which differ in their environments per worker."""
    return one_line(curve[0].label) + (times_envs(curve[0].envs_per_worker) if several else "")


def line_of(curve: Curve, name: str, value: Callable[[CellSummary], Estimate | None]) -> ChartLine:
    """Return one line; cells without the value, and those of other work, have no point."""
    points = tuple(
        (float(cell.workers), estimate)
        for cell in curve
        if not cell.excluded and (estimate := value(cell)) is not None and estimate.median > 0
    )
    entry = curve[0].entry
    role: LineRole = "bound" if curve[0].backend == CEILING else "measured"
    family = one_line(curve[0].label).replace(entry.name, entry.family, 1)
    return ChartLine(name, points, role, family, entry.is_async)


FEWEST_POINTS = 2  # one is no figure


def run_charts(  # noqa: PLR0913, PLR0917 - what a page knows of a run
    cells: Sequence[CellSummary],
    header: RunRecord,
    found: Mapping[str, TaskAnswer],
    predicted: Sequence[Prediction],
    view: View,
    run: tuple[str, str],
) -> tuple[Chart, ...]:
    """Return the figures of each task: rates with the winner and what is ``predicted``, and what they cost.

    The latter are left out unless the ``view`` is of everything. ``run`` is how titles begin, and the
    machine in them.
    """
    order, cpus = cpu_order(header, cells), header.usable_cpus
    bends = (*(order.kinks if order else ()), (cpus, "CPUs end"))
    charts: list[Chart] = []
    for env, answer in found.items():
        of_env = [cell for cell in cells if cell.env == env]
        ahead = [one for one in predicted if one.curve[0].env == env]
        charts += _task(of_env, cpus, bends, ahead, answer, run)
    return tuple(
        chart
        for chart in charts
        if view.every_finding or chart.kind == "rate"
        if sum(len(series.points) for series in chart.series if series.role != "ideal") >= FEWEST_POINTS
    )


def _task(  # noqa: PLR0913, PLR0917 - what a run knows of one task
    cells: Sequence[CellSummary],
    cpus: int,
    bends: Iterable[Bend],
    predicted: Sequence[Prediction],
    answer: TaskAnswer,
    run: tuple[str, str],
) -> Iterator[Chart]:
    shown = [curve for curve in curves(cells) if curve[0].backend not in (NULL, YARDSTICK)]
    several = len({curve[0].envs_per_worker for curve in shown}) > 1
    named = [(curve, curve_name(curve, several=several)) for curve in shown]
    foreseen = [one for one in predicted if one.points]
    ahead = [ChartLine(curve_name(one.curve, several=several), one.points, "forecast") for one in foreseen]
    counts, farthest = [cell.workers for cell in cells], [int(series.points[-1][0]) for series in ahead]
    name, most = one_line(cells[0].env), max(counts + farthest)
    title = f"{run[0]}{one_line(short_name(name))} on {run[1]}"
    marks, reached = _marks(bends, min(counts), max(counts)), _marks(bends, min(counts), most)
    said = [(cell, Mark(float(cell.workers), "not distinguishable")) for cell in answer.tied if answer.winner]
    if (winner := answer.winner) is not None:
        said = [(winner, Mark(float(winner.workers), "winner", wins=True)), *said]
    rates = [
        replace(
            line_of(curve, label, lambda cell: cell.frames_per_second),
            mark=next((mark for cell, mark in said if cell in curve), None),
            banded=curve[0].label == REFERENCE or winner in curve,
        )
        for curve, label in named
    ]
    lines = (*rates, *_ideal(shown, cpus, most), *ahead)
    yield Chart(name, "rate", f"{title}: frames/s", "workers", "frames/s", lines, reached)
    choices = [(curve, label) for curve, label in named if not curve[0].reference_row]
    shares = tuple(line_of(curve, label, lambda cell: cell.figures.efficiency) for curve, label in choices)
    per_cpu = "speedup per CPU"
    yield Chart(name, "efficiency", f"{title}: {per_cpu}", "workers", per_cpu, shares, marks, linear=True)
    costs = tuple(line_of(curve, label, lambda cell: cell.figures.frames_per_cpu_second) for curve, label in named)
    per_second = "frames per CPU second"
    yield Chart(name, "cost", f"{title}: {per_second}", "workers", per_second, costs, marks, linear=True)


def _ideal(shown: Sequence[Curve], usable_cpus: int, most: int) -> Iterator[ChartLine]:
    """Yield, up to ``most`` workers, the line of a backend of which each worker with a CPU is as fast as the loop."""
    loops = [cell for curve in shown for cell in curve if cell.speedup == Estimate(1.0, 1.0, 1.0)]
    if len(loops) == 1 and (rate := loops[0].frames_per_second) is not None:
        ends = sorted({1, min(most, usable_cpus), most})
        points = tuple((float(end), Estimate(rate.median * min(end, usable_cpus))) for end in ends)
        yield ChartLine("ideal", points, "ideal")


def _marks(bends: Iterable[Bend], fewest: int, most: int) -> tuple[Mark, ...]:
    texts = figures.by_key((after, text) for after, text in bends if fewest <= after < most)
    return tuple(Mark(float(after), ", ".join(texts[after])) for after in sorted(texts))


_TITLE = "Predicted frames/s, not measured"
_ON_HOSTS = "replicas on hosts add up: measure with more hosts (--hosts 1..N)"


@dataclass(frozen=True)
class Prediction:
    """What is predicted of a curve. ``path`` leads from its largest number of workers to that of ``forecast``."""

    curve: Curve
    forecast: Forecast
    path: tuple[Forecast, ...] = ()

    @property
    def points(self) -> tuple[tuple[float, Estimate], ...]:
        """The points of its line in a figure: what it continues, and the path."""
        ahead = [(float(step.workers), step.rate) for step in self.path if step.rate is not None]
        measured = [
            (float(cell.workers), rate)
            for cell in self.curve
            if not cell.excluded and (rate := cell.frames_per_second) and ahead and cell.workers < ahead[0][0]
        ]
        return (*measured[-1:], *ahead)


def predictions(cells: Sequence[CellSummary], header: RunRecord, workers: int) -> tuple[Prediction, ...]:
    """Return the rate that each backend of a run would reach with more workers, or why it is not predicted."""
    order = cpu_order(header, cells)
    shown = [curve for curve in curves(cells) if curve[0].backend not in (NULL, YARDSTICK)]
    if order is None:
        refused = Forecast(workers, refused=_ON_HOSTS)
        return tuple(Prediction(curve, refused) for curve in shown)
    predicted = []
    for curve in shown:
        last, most = forecast(curve, order, workers), max(cell.workers for cell in curve)
        # The line of a figure bends where second threads begin.
        between = sorted({after for after, _ in order.kinks if most < after < workers})
        beyond = last.rate is not None and workers >= most
        path = (*(forecast(curve, order, count) for count in between), last) if beyond else ()
        predicted.append(Prediction(curve, last, path))
    return tuple(predicted)


def forecast_tables(predicted: Sequence[Prediction]) -> tuple[Table, ...]:
    """Return a table for each task: a row for each backend, and below it what stands behind the predictions."""
    envs = dict.fromkeys(one.curve[0].env for one in predicted)
    return tuple(_table(env, [one for one in predicted if one.curve[0].env == env]) for env in envs)


def _table(env: str, predicted: Sequence[Prediction]) -> Table:
    workers = predicted[0].forecast.workers
    several = len({one.curve[0].envs_per_worker for one in predicted}) > 1
    named = [(curve_name(one.curve, several=several), one) for one in predicted]
    names_by_remark = figures.by_key((remark, name) for name, one in named for remark in _remarks(one))
    lines = tuple(
        f"{'every backend' if len(names) == len(named) > 1 else ', '.join(names)}: {remark}"
        for remark, names in names_by_remark.items()
    )
    return Table(
        title=f"{one_line(env)}: {_TITLE}",
        columns=(figures.counted(workers, "worker"), "90 % band", "back-test"),
        rows=tuple(TableRow(name, _texts(one.forecast), one.curve[0].reference_row) for name, one in named),
        aside=2,
        notes=("back-test: by how much each measured rate is missed if predicted from those of fewer workers",),
        listing=Listing("What predictions stand on, or why there is none:", lines) if lines else None,
        group=one_line(env),
        about="run",
    )


def _texts(forecast: Forecast) -> tuple[Text, Text, Text]:
    if forecast.rate is None or forecast.rate.low is None or forecast.rate.high is None:
        return (Text(("not predicted",), "missing"), Text((figures.DASH,)), Text((figures.DASH,)))
    band = f"{_rounded(forecast.rate.low)} to {_rounded(forecast.rate.high)}"
    back_test = figures.DASH if forecast.back_test is None else f"±{forecast.back_test:.0%}"
    rate = Text((_rounded(forecast.rate.median),), value=forecast.rate)
    return (rate, Text((band,)), Text((back_test,), value=forecast.back_test))


def _rounded(rate: float) -> str:
    """Return a rate with three digits: no prediction is good for more."""
    return figures.number(float(f"{rate:.3g}"))


def _remarks(predicted: Prediction) -> Iterator[str]:
    """Yield why there is no prediction, or what it assumes, and where the rates fall."""
    if predicted.forecast.refused:
        yield f"not predicted: {predicted.forecast.refused}"
        return
    for assumed in predicted.forecast.assumed:
        yield f"assumed: {assumed}"
    rates = {cell.workers: rate for cell in predicted.curve if (rate := cell.frames_per_second) and rate.low}
    fastest = max(rates, key=lambda workers: rates[workers].median, default=0)
    if fastest and (rates[fastest].low or 0.0) > (rates[max(rates)].high or 0.0):
        yield f"fastest with {figures.counted(fastest, 'worker')}: with more, its rates fall"
