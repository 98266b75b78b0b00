"""What a run's backends would reach with a number of workers that was not measured: a table, and lines of figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench.analysis.cell import curves
from vebench.analysis.scaling import Forecast, cpu_order, forecast
from vebench.backends.registry import NULL
from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.document import Listing, Table, TableRow, Text
from vebench.reports.pages.curve_lines import curve_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vebench.analysis.cell import CellSummary, Curve
    from vebench.analysis.scaling import CpuOrder
    from vebench.analysis.statistics import Estimate
    from vebench.results.records import RunRecord

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
            for cell in self.curve.cells
            if not cell.struck and (rate := cell.frames_per_second) and ahead and cell.workers < ahead[0][0]
        ]
        return (*measured[-1:], *ahead)


def predictions(cells: Sequence[CellSummary], header: RunRecord, workers: int) -> tuple[Prediction, ...]:
    """Return what each backend of a run would reach with so many workers, or why that cannot be said."""
    order = cpu_order(header, cells)
    shown = [curve for curve in curves(cells) if curve.cells[0].backend != NULL]
    if order is None:
        refused = Forecast(workers, refused=_ON_HOSTS)
        return tuple(Prediction(curve, refused) for curve in shown)
    return tuple(_prediction(curve, order, workers) for curve in shown)


def _prediction(curve: Curve, order: CpuOrder, workers: int) -> Prediction:
    last = forecast(curve, order, workers)
    most = max(cell.workers for cell in curve.cells)
    if last.rate is None or workers < most:
        return Prediction(curve, last)
    # The line of a figure bends where second threads begin.
    between = {kink.after for kink in order.kinks if most < kink.after < workers}
    return Prediction(curve, last, (*(forecast(curve, order, count) for count in sorted(between)), last))


def tables(predicted: Sequence[Prediction]) -> tuple[Table, ...]:
    """Return a table for each task: a row for each backend, and below it what stands behind the predictions."""
    envs = dict.fromkeys(one.curve.env for one in predicted)
    return tuple(_table(env, [one for one in predicted if one.curve.env == env]) for env in envs)


def _table(env: str, predicted: Sequence[Prediction]) -> Table:
    workers = predicted[0].forecast.workers
    several = len({one.curve.envs_per_worker for one in predicted}) > 1
    named = [(curve_name(one.curve, several=several), one) for one in predicted]
    return Table(
        title=f"{one_line(env)}: {_TITLE}",
        corner="backend",
        columns=(figures.counted(workers, "worker"), "90 % band", "back-test"),
        rows=tuple(TableRow(name, _texts(one.forecast), one.curve.reference_row) for name, one in named),
        axis=(workers, None, None),
        notes=("back-test: by how much each measured rate is missed if predicted from those of fewer workers",),
        listing=_listing([(name, remark) for name, one in named for remark in _remarks(one)], len(named)),
        group=one_line(env),
        about="run",
    )


def _texts(forecast: Forecast) -> tuple[Text, Text, Text]:
    if forecast.rate is None or forecast.rate.low is None or forecast.rate.high is None:
        return (Text(("not predicted",), "missing"), Text((figures.NOTHING,)), Text((figures.NOTHING,)))
    band = f"{_rounded(forecast.rate.low)} to {_rounded(forecast.rate.high)}"
    back_test = figures.NOTHING if forecast.back_test is None else f"±{forecast.back_test:.0%}"
    return (
        Text((_rounded(forecast.rate.median),), value=forecast.rate),
        Text((band,)),
        Text((back_test,), value=forecast.back_test),
    )


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
    rates = {cell.workers: rate for cell in predicted.curve.cells if (rate := cell.frames_per_second) and rate.low}
    fastest = max(rates, key=lambda workers: rates[workers].median, default=0)
    if fastest and (rates[fastest].low or 0.0) > (rates[max(rates)].high or 0.0):
        yield f"fastest with {figures.counted(fastest, 'worker')}: with more, its rates fall"


def _listing(remarks: Sequence[tuple[str, str]], every: int) -> Listing | None:
    """Return the remarks, each with the backends that it holds for, of ``every`` so many."""
    names_by_remark: dict[str, list[str]] = {}
    for name, remark in remarks:
        names_by_remark.setdefault(remark, []).append(name)
    lines = tuple(
        f"{'every backend' if len(names) == every > 1 else ', '.join(names)}: {remark}"
        for remark, names in names_by_remark.items()
    )
    return Listing("What predictions stand on, or why there is none:", lines) if lines else None
