"""How rates scale with workers: the charts of a run, and what is predicted for more workers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vebench.analysis.cell import curves
from vebench.analysis.forecast import BAND, THREAD, Forecast, cpu_order, forecast
from vebench.analysis.statistics import Estimate
from vebench.backends.environments.suites import short_name
from vebench.backends.registry import CEILING, NULL, REFERENCE, YARDSTICK
from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.document import Chart, ChartLine, Mark, Table, TableRow, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from vebench.analysis.answer import TaskAnswer
    from vebench.analysis.cell import CellSummary, Curve
    from vebench.reports.document import LineRole, View
    from vebench.results.records import RunRecord

FEWEST_POINTS = 2  # one is no chart


@dataclass(frozen=True)
class Prediction:
    """The prediction for a curve."""

    curve: Curve
    forecast: Forecast

    @property
    def points(self) -> tuple[tuple[float, Estimate], ...]:
        """The points of its line in a chart: the measured one that it continues, and the predicted one."""
        if self.forecast.rate is None:
            return ()
        before = [cell for cell in self.curve if cell.workers == self.forecast.measured]
        measured = [(float(cell.workers), cell.frames_per_second) for cell in before if cell.frames_per_second]
        return (*measured, (float(self.forecast.workers), self.forecast.rate))


def predictions(cells: Sequence[CellSummary], header: RunRecord, workers: int) -> tuple[Prediction, ...]:
    """Return the rate that each backend of a run would reach with more workers, or why it is not predicted."""
    order = cpu_order(header, cells)
    on_hosts = Forecast(workers, refused="replicas on hosts add up: measure with more hosts (--hosts 1..N)")
    return tuple(Prediction(curve, forecast(curve, order, workers) if order else on_hosts) for curve in _shown(cells))


def _shown(cells: Sequence[CellSummary]) -> list[Curve]:
    return [curve for curve in curves(cells) if curve[0].backend not in (NULL, YARDSTICK)]


def run_charts(
    cells: Sequence[CellSummary],
    header: RunRecord,
    found: Mapping[str, TaskAnswer],
    predicted: Sequence[Prediction],
    view: View,
    run: tuple[str, str],
) -> tuple[Chart, ...]:
    """Return the charts of each task: rates with the winner and predictions, and on request what rates cost.

    ``run`` is how titles begin, and the machine in them.
    """
    order = cpu_order(header, cells)
    kinks = [*(order.kinks if order else ()), (header.usable_cpus, "CPUs end")]
    charts: list[Chart] = []
    for env, answer in found.items():
        of_env = [cell for cell in cells if cell.env == env]
        title = f"{run[0]}{one_line(short_name(env))} on {run[1]}"
        lines = _rates(of_env, [one for one in predicted if one.curve[0].env == env], answer, header.usable_cpus)
        charts.append(_chart(env, title, lines, kinks))
        if view.every_finding:
            charts += _costs(of_env, title, kinks)
    return tuple(chart for chart in charts if _points(chart) >= FEWEST_POINTS)


def _points(chart: Chart) -> int:
    return sum(len(line.points) for line in chart.series if line.role != "ideal")


def _chart(env: str, title: str, lines: Sequence[ChartLine], kinks: Sequence[tuple[int, str]]) -> Chart:
    counts = [x for line in lines for x, _ in line.points]
    within = [kink for kink in kinks if counts and min(counts) <= kink[0] < max(counts)]
    texts = figures.by_key((float(after), text) for after, text in within)
    marks = tuple(Mark(after, ", ".join(texts[after])) for after in sorted(texts))
    return Chart(one_line(env), "rate", f"{title}: frames/s", "workers", "frames/s", tuple(lines), marks)


def _rates(
    cells: Sequence[CellSummary], predicted: Sequence[Prediction], answer: TaskAnswer, usable_cpus: int
) -> list[ChartLine]:
    shown = _shown(cells)
    winner = answer.winner
    marks = []
    if winner is not None:
        marks = [(winner, Mark(float(winner.workers), "winner", wins=True))]
        marks += [(cell, Mark(float(cell.workers), "not distinguishable")) for cell in answer.tied]
    lines = []
    for curve, name in _named(shown):
        line = line_of(curve, name, lambda cell: cell.frames_per_second)
        mark = next((mark for cell, mark in marks if cell in curve), None)
        lines.append(replace(line, mark=mark, banded=curve[0].label == REFERENCE or winner in curve))
    most = max(cell.workers for cell in cells)
    ahead = []
    for one, (_, name) in zip(predicted, _named([one.curve for one in predicted]), strict=True):
        if one.points:
            ahead.append(ChartLine(name, one.points, "forecast"))
            most = max(most, one.forecast.workers)
    return [*lines, *_ideal(shown, usable_cpus, most), *ahead]


def _ideal(shown: Sequence[Curve], usable_cpus: int, most: int) -> Iterator[ChartLine]:
    """Yield, up to ``most`` workers, the line of a backend whose workers are each as fast as the plain loop."""
    loops = [cell for curve in shown for cell in curve if cell.speedup == Estimate(1.0, 1.0, 1.0)]
    if len(loops) == 1 and (rate := loops[0].frames_per_second) is not None:
        ends = sorted({1, min(most, usable_cpus), most})
        points = tuple((float(end), Estimate(rate.median * min(end, usable_cpus))) for end in ends)
        yield ChartLine("ideal", points, "ideal")


def _costs(cells: Sequence[CellSummary], title: str, kinks: Sequence[tuple[int, str]]) -> Iterator[Chart]:
    """Yield the charts of efficiency and of CPU time."""
    named = _named(_shown(cells))
    choices = [(curve, name) for curve, name in named if not curve[0].reference_row]
    shares = [line_of(curve, name, lambda cell: cell.figures.efficiency) for curve, name in choices]
    costs = [line_of(curve, name, lambda cell: cell.figures.frames_per_cpu_second) for curve, name in named]
    whole = _chart(cells[0].env, title, shares, kinks)
    yield replace(whole, kind="efficiency", title=f"{title}: speedup per CPU", y_label="speedup per CPU", linear=True)
    whole, label = _chart(cells[0].env, title, costs, kinks), "frames per CPU second"
    yield replace(whole, kind="cost", title=f"{title}: {label}", y_label=label, linear=True)


def _named(shown: Sequence[Curve]) -> list[tuple[Curve, str]]:
    several = len({curve[0].envs_per_worker for curve in shown}) > 1
    return [(curve, curve_name(curve, several=several)) for curve in shown]


def curve_name(curve: Curve, *, several: bool) -> str:
    """Return the name of a curve. ``several``: curves differ in their environments per worker."""
    return one_line(curve[0].label) + (figures.times_envs(curve[0].envs_per_worker) if several else "")


def line_of(curve: Curve, name: str, value: Callable[[CellSummary], Estimate | None]) -> ChartLine:
    """Return one line; cells without the value, and cells of other work, have no point."""
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
    """Yield a table for each task: a row for each backend, and below it why there is no prediction."""
    for env in dict.fromkeys(one.curve[0].env for one in predicted):
        own = [one for one in predicted if one.curve[0].env == env]
        names = [name for _, name in _named([one.curve for one in own])]
        rows = []
        for name, one in zip(names, own, strict=True):
            rows.append(TableRow(name, _places(one.forecast), one.curve[0].reference_row))
        refused = ((one.forecast.refused, name) for name, one in zip(names, own, strict=True) if one.forecast.refused)
        reasons = []
        for reason, of in figures.by_key(refused).items():
            every = len(of) == len(own) > 1
            reasons.append(f"{'every backend' if every else ', '.join(of)}: not predicted: {reason}")
        yield Table(
            title=f"{one_line(env)}: Predicted frames/s, not measured",
            columns=(figures.counted(own[0].forecast.workers, "worker"), "90 % band"),
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
    # No prediction is good for more than three digits.
    low, median, high = (figures.number(float(f"{end:.3g}")) for end in (rate.low, rate.median, rate.high))
    return (Text((median,), value=rate), Text((f"{low} to {high}",)))
