"""A straight line through points that are known with an error, and where it crosses a level. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

from vebench.analysis.statistics import CONFIDENCE, Error, Estimate, student_quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

FEWEST_POINTS = 3  # two points make a line, whatever lies between them
LEAST_VARIANCE = 1e-18  # of points that noise has left alone, so that they have a weight


class Point(NamedTuple):
    """What was found at ``x``: ``y``, with its error."""

    x: float
    y: float
    error: Error


@dataclass(frozen=True)
class Line:
    """``y = intercept + slope x``, with the variances of both and how they vary together."""

    intercept: float
    slope: float
    intercept_variance: float
    covariance: float
    slope_variance: float
    freedom: float

    @property
    def _quantile(self) -> float:
        return student_quantile((1 + CONFIDENCE) / 2, self.freedom)

    @property
    def slope_estimate(self) -> Estimate:
        """The slope with its interval."""
        half = self._quantile * sqrt(self.slope_variance)
        return Estimate(self.slope, self.slope - half, self.slope + half)

    @property
    def intercept_estimate(self) -> Estimate:
        """The intercept with its interval."""
        half = self._quantile * sqrt(self.intercept_variance)
        return Estimate(self.intercept, self.intercept - half, self.intercept + half)

    def crossing(self, level: float) -> Estimate | None:
        """Return at which ``x`` the line has this level, with its interval; None if that has no two ends.

        The interval has all x at which the line may have this level (E. Fieller, Some problems in interval estimation,
        Journal of the Royal Statistical Society B 16, 1954). If the slope may be zero, nothing bounds it.
        """
        above, squared = self.intercept - level, self._quantile**2
        leading = self.slope**2 - squared * self.slope_variance
        if leading <= 0:
            return None
        middle = above * self.slope - squared * self.covariance
        last = above**2 - squared * self.intercept_variance
        reach = sqrt(max(0.0, middle**2 - leading * last))
        return Estimate(-above / self.slope, (-middle - reach) / leading, (-middle + reach) / leading)


def line(points: Sequence[Point]) -> Line | None:
    """Return the line through points, by weighted least squares; None for too few of them.

    What it leaves of them, beyond their errors, is added to its own: variances are multiplied by chi squared over its
    degrees of freedom if that is above 1 (the scale factor of the Particle Data Group, Review of Particle Physics). It
    is known with as few degrees of freedom as the point of which least is known.
    """
    if len({point.x for point in points}) < FEWEST_POINTS:
        return None
    weights = [1 / max(point.error.variance, LEAST_VARIANCE) for point in points]
    total = sum(weights)
    x_mean = sum(weight * point.x for weight, point in zip(weights, points, strict=True)) / total
    y_mean = sum(weight * point.y for weight, point in zip(weights, points, strict=True)) / total
    spread = sum(weight * (point.x - x_mean) ** 2 for weight, point in zip(weights, points, strict=True))
    slope = (
        sum(weight * (point.x - x_mean) * (point.y - y_mean) for weight, point in zip(weights, points, strict=True))
        / spread
    )
    intercept = y_mean - slope * x_mean
    left = sum(
        weight * (point.y - intercept - slope * point.x) ** 2 for weight, point in zip(weights, points, strict=True)
    )
    scale = max(1.0, left / (len(points) - 2))
    return Line(
        intercept,
        slope,
        scale * (1 / total + x_mean**2 / spread),
        -scale * x_mean / spread,
        scale / spread,
        min(point.error.freedom for point in points),
    )
