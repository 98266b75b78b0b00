"""What a backend would reach with numbers of workers that were not measured, and where nothing can be said of it.

A curve is extrapolated by the laws of ``scaling_family``, in the effective cores of ``effective_cpus``. Where the bare
simulator was measured on the same CPUs, it shows what the machine does, and only the ratio of the backend to it is left
to the laws. Each measured point is predicted from those below it, too: this back-test is reported with every forecast,
and widens its band by what was not foreseen. docs/scaling.md has how often bands hold the true rate. Pure functions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import exp, log, log2, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING

from vebench.analysis.scaling_family import APART, SLOWER, THREAD, Point, Posterior, draws, posterior
from vebench.analysis.statistics import CONFIDENCE, Estimate
from vebench.backends.registry import find_recorded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.curves import Curve
    from vebench.analysis.effective_cpus import CpuOrder, Kink
    from vebench.analysis.scaling_family import Floats

BAND = 0.9  # of the true rates lie in it
HELD = 0.87  # of the draws, so that it is so: in simulations with the truths of docs/scaling.md
FEWEST_COUNTS = 4
WIDEST = 0.1  # half width of a measured rate, over it
FARTHEST = 2  # times the largest number of workers measured
FEWEST_BELOW = 2  # points that one of a back-test is predicted from
FEWEST_BEYOND = 2  # points beyond a kink that show what it costs
CERTAIN = 0.95
LEAST_ERROR = 1e-3  # of a log rate: repeats may agree to the last digit

QUANTILE = NormalDist().inv_cdf((1 + BAND) / 2)
# From the half width of an interval to a standard error.
TO_ERROR = 1 / NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


@dataclass(frozen=True)
class Forecast:
    """What a backend would reach with so many ``workers``.

    ``rate`` is in frames per second; ``low`` and ``high`` are the ends of its 90 % band, not of a 95 % interval.
    ``back_test`` is by how much the predictions of measured points from those below them were off, as a share, None if
    there were too few. ``assumed`` says what was not measured but assumed. ``refused`` is why there is no ``rate``,
    empty if there is one.
    """

    workers: int
    rate: Estimate | None = None
    back_test: float | None = None
    assumed: tuple[str, ...] = ()
    refused: str = ""


@dataclass(frozen=True)
class Scaling:
    """A curve that can be extrapolated: its points, by rising number of workers, on these CPUs.

    ``bare`` are the points of the bare simulator, at least where there are ``points``, or none at all. ``waits``: a
    batch waits for all workers.
    """

    points: tuple[Point, ...]
    bare: tuple[Point, ...]
    waits: bool
    order: CpuOrder

    def forecast(self, workers: int) -> Forecast:
        """Return what it would reach with so many workers, or why that cannot be said."""
        counts = [point.load.workers for point in self.points]
        if reason := nothing_to_predict(counts, self.order, workers) or _out_of_reach(counts, workers):
            return Forecast(workers, refused=reason)
        return Forecast(workers, self._band(workers), self.back_test, tuple(self._assumed(workers)))

    def path(self, workers: int) -> tuple[Forecast, ...]:
        """Return forecasts from the largest number measured up to ``workers``: at doublings, and where kinks are."""
        if self.forecast(workers).rate is None or workers <= self._most:
            return ()
        doublings = {1 << power for power in range(workers.bit_length())}
        kinks = {kink.after for kink in self.order.kinks}
        return tuple(map(self.forecast, sorted({n for n in doublings | kinks if self._most < n < workers} | {workers})))

    @property
    def peak(self) -> int | None:
        """The measured number of workers beyond which rates fall by crosstalk, None unless that is certain."""
        rates = {point.load.workers: self.middle(point.load.workers) for point in self.points}
        highest = max(rates, key=lambda workers: rates[workers])
        falls = highest < self._most
        certain = any(part.share(draws().crosstalk > 0) >= CERTAIN for part in self.parts)
        return highest if falls and certain else None

    @property
    def back_test(self) -> float | None:
        """By how much predictions of measured points from those below them were off, as a share; None if none was."""
        errors = [error for error, _ in self._back_test]
        return exp(sqrt(sum(error**2 for error in errors) / len(errors))) - 1 if errors else None

    @cached_property
    def _back_test(self) -> tuple[tuple[float, float], ...]:
        """The error of each such prediction, and the standard error that it was known to, of log rates."""
        return tuple(self._tested())

    def _tested(self) -> Iterator[tuple[float, float]]:
        for point in self.points[FEWEST_BELOW:]:
            workers = point.load.workers
            below = replace(self, points=_below(self.points, workers), bare=_below(self.bare, workers))
            known = float(below.log_rates(workers).var()) + point.variance
            yield point.log_rate - below.middle(workers), sqrt(known)

    @cached_property
    def parts(self) -> tuple[Posterior, ...]:
        """What the points show of the laws, as parts that add up on the log scale.

        There is one part, or that of the ratio to the bare simulator and that of the machine. Of the machine, both
        curves give evidence: the backend's own without what holds back the backend alone.
        """
        if not self.bare:
            return (posterior(self.points, "whole", waits=self.waits),)
        bare = {point.load: point for point in self.bare}
        ratios = [_ratio(point, bare[point.load]) for point in self.points]
        ratio = posterior(ratios, "backend", waits=self.waits)
        bare |= {point.load: _pooled(bare[point.load], point, ratio) for point in self.points}
        return ratio, posterior([*bare.values()], "machine", waits=False)

    @property
    def _most(self) -> int:
        return self.points[-1].load.workers

    def log_rates(self, workers: int) -> Floats:
        """Return log rates with so many workers that are as likely as each other, a row of them."""
        load = self.order.load(workers)
        first, *others = (part.log_rates(load) for part in self.parts)
        return sum(others, first)

    def middle(self, workers: int) -> float:
        """Return their median."""
        import numpy as np  # noqa: PLC0415 - imported on use

        return float(np.median(self.log_rates(workers)))

    def _band(self, workers: int) -> Estimate:
        import numpy as np  # noqa: PLC0415 - imported on use

        low, middle, high = np.quantile(self.log_rates(workers), ((1 - HELD) / 2, 0.5, (1 + HELD) / 2))
        beyond = max(0.0, log2(workers / self._most))
        unforeseen = QUANTILE * sqrt(beyond * self._unforeseen)
        return Estimate(
            exp(middle),
            exp(middle - sqrt((middle - low) ** 2 + unforeseen**2)),
            exp(middle + sqrt((high - middle) ** 2 + unforeseen**2)),
        )

    @property
    def _unforeseen(self) -> float:
        """The variance of the back-test's errors beyond what was expected of them."""
        if not self._back_test:
            return 0.0
        return max(0.0, sum(error**2 - known**2 for error, known in self._back_test) / len(self._back_test))

    def _assumed(self, workers: int) -> Iterator[str]:
        """Yield what is not known from points: what the order of CPUs assumes, and kinks with too few points beyond."""
        yield from self.order.assumed
        counts = [point.load.workers for point in self.bare or self.points]
        yield from dict.fromkeys(
            _assumption(kink, self.order)
            for kink in self.order.kinks
            if kink.after < workers and sum(count > kink.after for count in counts) < FEWEST_BEYOND
        )


def _assumption(kink: Kink, order: CpuOrder) -> str:
    if kink.kind == "thread":
        return f"a second thread adds {THREAD[0]:.0%} ± {THREAD[1]:.0%} of a core"
    if kink.kind == "kind":
        return f"a slower core has {SLOWER[0]:.0%} ± {SLOWER[1]:.0%} of a faster one's rate"
    return f"another {order.region_name} costs 0 to {1 - exp(-QUANTILE * APART):.0%}"


def nothing_to_predict(measured: Sequence[int], order: CpuOrder, workers: int) -> str:
    """Return why nobody needs a prediction for so many workers after these were ``measured``; empty if one may."""
    if workers > len(order.cpus):
        return f"there are {len(order.cpus)} CPUs to work on: workers beyond them add nothing"
    return f"{workers} workers were measured" if workers in measured else ""


def _out_of_reach(measured: Sequence[int], workers: int) -> str:
    if workers < min(measured):
        return f"fewer than the {min(measured)} workers measured"
    if workers > FARTHEST * max(measured):
        return f"more than {FARTHEST} times the {max(measured)} workers measured"
    return ""


def scaling(curve: Curve, ceiling: Curve | None, order: CpuOrder) -> Scaling | str:
    """Return the curve as one that can be extrapolated, or in words why it cannot be.

    ``ceiling`` is the curve of the bare simulator on the same CPUs and environments, None if it was not measured.
    """
    points = _points(curve, order)
    cells = [cell for cell in curve.cells if cell.workers in points]
    if reason := _at_work(cells) or _too_few(curve, order) or _too_wide(points):
        return reason
    waits = not curve.reference_row and any(cell.batch_size == cell.num_envs for cell in cells if cell.workers > 1)
    bare = _points(ceiling, order) if ceiling is not None and not curve.reference_row else {}
    beside = tuple(bare.values()) if bare.keys() >= points.keys() else ()
    return Scaling(tuple(points.values()), beside, waits, order)


def _below(points: Sequence[Point], workers: int) -> tuple[Point, ...]:
    return tuple(point for point in points if point.load.workers < workers)


def _points(curve: Curve, order: CpuOrder) -> dict[int, Point]:
    """Return the points of a curve by their workers."""
    points = {cell.workers: _point(cell, order) for cell in curve.cells}
    return {workers: point for workers, point in points.items() if isinstance(point, Point)}


def _point(cell: CellSummary, order: CpuOrder) -> Point | str:
    """Return a cell as a point, or why it is none."""
    unfit = {
        cell.status: cell.status != "ok",
        cell.why_struck: cell.struck,
        "held back by a quota": cell.throttled,
        "disturbed": cell.disturbed,
        "more than the CPUs": cell.workers > len(order.cpus),
    }
    rate = cell.frames_per_second
    if why := next((why for why, is_so in unfit.items() if is_so), ""):
        return why
    if rate is None or rate.low is None or rate.high is None or rate.low <= 0:
        return "no interval"
    error = max(LEAST_ERROR, TO_ERROR * log(rate.high / rate.low) / 2)
    return Point(order.load(cell.workers), log(rate.median), error**2)


def _ratio(point: Point, bare: Point) -> Point:
    return Point(point.load, point.log_rate - bare.log_rate, point.variance + bare.variance)


def _pooled(bare: Point, point: Point, ratio: Posterior) -> Point:
    """Return the rate of the bare simulator by both curves, each weighed by its precision."""
    import numpy as np  # noqa: PLC0415 - imported on use

    implied = point.log_rate - float(np.median(ratio.log_rates(point.load)))
    share = point.variance / (bare.variance + point.variance)  # of the bare simulator's own rate
    return Point(bare.load, share * bare.log_rate + (1 - share) * implied, share * bare.variance)


def _at_work(cells: Sequence[CellSummary]) -> str:
    """Return that workers wait for one another by the backend's design; empty if all of them work."""
    for cell in cells:
        at_work = find_recorded(cell.backend).at_work(cell.processes, cell.threads, cell.options)
        if at_work < cell.workers:
            return f"only {at_work} of its {cell.workers} workers {'works' if at_work == 1 else 'work'} at a time"
    return ""


def _too_few(curve: Curve, order: CpuOrder) -> str:
    left_out: dict[str, list[str]] = {}
    for cell in curve.cells:
        if isinstance(why := _point(cell, order), str):
            left_out.setdefault(why, []).append(str(cell.workers))
    count = len(curve.cells) - sum(map(len, left_out.values()))
    without = "".join(f", without {', '.join(workers)} ({why})" for why, workers in left_out.items())
    return f"{count} numbers of workers measured{without}: {FEWEST_COUNTS} are needed" if count < FEWEST_COUNTS else ""


def _too_wide(points: Mapping[int, Point]) -> str:
    halves = {workers: exp(sqrt(point.variance) / TO_ERROR) - 1 for workers, point in points.items()}
    widest = max(halves, key=lambda workers: halves[workers])
    if halves[widest] <= WIDEST:
        return ""
    return f"the rate of {widest} workers is known to ±{halves[widest]:.0%}: measure with --until {WIDEST:.0%}"
