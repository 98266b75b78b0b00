"""Scaling with workers: the charts of a run, and the predicted rates of more workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from vebench.analysis.answer import BAND, THREAD, Forecast, TaskAnswer, cpu_order, forecast
from vebench.analysis.cell import CellSummary, Curve, curves
from vebench.analysis.statistics import Estimate
from vebench.backends.environments.suites import short_name
from vebench.backends.registry import CEILING, NULL, YARDSTICK
from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.document import Chart, ChartKind, ChartLine, LineRole, Mark, Table, TableRow, Text, View
from vebench.results.records import RunRecord

Prediction = tuple[Curve, Forecast]

_FEWEST_POINTS = 2  # a single point is not a chart


def predictions(cells: Sequence[CellSummary], header: RunRecord, workers: int) -> tuple[Prediction, ...]:
    """Return, for each curve of a run, the predicted rate with ``workers`` workers, or why there is no prediction."""
    order = cpu_order(header, cells)
    on_hosts = Forecast(workers, refused="replicas on hosts add up: measure with more hosts (--hosts 1..N)")
    return tuple((curve, forecast(curve, order, workers) if order else on_hosts) for curve in _shown(cells))


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
    order = cpu_order(header, cells)
    kinks = [*(order.kinks if order else ()), (header.usable_cpus, "CPUs end")]
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
