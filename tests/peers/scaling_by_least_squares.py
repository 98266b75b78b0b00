"""The other way to extrapolate that was tried: nested laws by least squares, averaged by AICc, with Laplace's band.

The laws are those of ``vebench.analysis.scaling_family`` without a limit, with the same knowledge of second threads and
packages as further residuals. ``scaling_model.py`` prints its errors beside the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import inf, sqrt
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import least_squares

from vebench.analysis.scaling_family import expected_maximum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LEVEL, THREAD, STEP, SERIAL, CROSSTALK, STRAGGLER = range(6)
START = np.array([0.0, 0.3, 0.1, 0.01, 1e-4, 0.05])
ABSENT = np.array([0.0, 0.3, 0.0, 0.0, 0.0, 0.0])
HIGHEST = np.array([inf, 1.0, 1.0, 1.0, 1.0, 2.0])
KNOWN = {THREAD: (0.3, 0.15), STEP: (0.1, 0.1)}
SLIGHT = 1e-5  # to differentiate by


@dataclass(frozen=True)
class Sweep:
    """Log rates with a standard ``error`` by numbers of workers, on so many ``cores`` in one or two packages."""

    counts: Floats
    log_rates: Floats
    error: float
    cores: int
    packages: int
    waits: bool


@dataclass(frozen=True)
class Fit:
    """A law that was fitted: its criterion, and what it predicts, with the variance of that."""

    aicc: float
    log_rate: float
    variance: float


def law(parameters: Floats, counts: Floats, sweep: Sweep) -> Floats:
    """Return log rates."""
    level, thread, step, serial, crosstalk, straggler = parameters
    cores = np.minimum(counts, sweep.cores) + thread * np.maximum(0, counts - sweep.cores)
    slowest = np.array([expected_maximum(int(count)) for count in counts])
    held_back = serial * (cores - 1) + crosstalk * cores * (cores - 1)
    shape = np.log(cores) - np.log1p(held_back) - np.log1p(straggler * slowest)
    return np.asarray(level + shape - step * (counts > sweep.cores / 2) * (sweep.packages > 1))


def predicted(sweep: Sweep, workers: int) -> tuple[float, float]:
    """Return the log rate with so many workers, and its standard error, over all laws."""
    held_back: Sequence[tuple[int, ...]] = ((), (SERIAL,), (SERIAL, CROSSTALK))
    stragglers: Sequence[tuple[int, ...]] = ((), (STRAGGLER,)) if sweep.waits else ((),)
    steps = (STEP,) if sweep.packages > 1 else ()
    free = [[LEVEL, THREAD, *steps, *more, *slow] for more, slow in product(held_back, stragglers)]
    fits = [_fit(sweep, parameters, workers) for parameters in free]
    weights = np.exp([(min(fit.aicc for fit in fits) - fit.aicc) / 2 for fit in fits])
    weights /= weights.sum()
    middle = float(weights @ [fit.log_rate for fit in fits])
    return middle, sqrt(weights @ [fit.variance + (fit.log_rate - middle) ** 2 for fit in fits])


def _fit(sweep: Sweep, free: Sequence[int], workers: int) -> Fit:
    known = [index for index in KNOWN if index in free]

    def whole(values: Floats) -> Floats:
        parameters = ABSENT.copy()
        parameters[[*free]] = values
        return parameters

    def residuals(values: Floats) -> Floats:
        parameters = whole(values)
        own = (law(parameters, sweep.counts, sweep) - sweep.log_rates) / sweep.error
        prior = [(parameters[index] - KNOWN[index][0]) / KNOWN[index][1] for index in known]
        return np.array([*own, *prior])

    start = START[[*free]]
    start[0] = sweep.log_rates[0]
    lowest = np.where(np.array(free) == LEVEL, -inf, 0.0)
    tries = (np.where(np.array(free) >= SERIAL, start * scale, start) for scale in (1.0, 0.1))
    found = min(
        (least_squares(residuals, values, bounds=(lowest, HIGHEST[[*free]])) for values in tries),
        key=lambda one: float(one.cost),
    )

    def at(values: Floats) -> float:
        return float(law(whole(values), np.array([float(workers)]), sweep)[0])

    middle, count, size = at(found.x), len(found.fun), len(free)
    slope = np.array([(at(found.x + step) - middle) / SLIGHT for step in SLIGHT * np.eye(size)])
    small = 2 * size * (size + 1) / (count - size - 1) if count > size + 1 else inf
    variance = float(slope @ np.linalg.pinv(found.jac.T @ found.jac) @ slope)
    return Fit(2 * found.cost + 2 * size + small, middle, variance)
