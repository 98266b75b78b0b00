"""The family of scaling laws, as many draws from what is known of such curves before any is measured.

With c the cores at work, in effective cores, and rates in those of one core, they achieve

    a = c / (1 + s (c - 1) + k c (c - 1))  x  1 / (1 + v z(w))  x  (1 - t share),

and the rate is a x (1 + (a / C)^m)^(-1/m) x g^apart.

- s is Amdahl's serial share, k the crosstalk of the universal scalability law (G. Amdahl, AFIPS 1967; N. Gunther,
  Guerrilla Capacity Planning, 2007, chapter 4).
- v is the spread of the workers' times, where a batch waits for the slowest of them: z(w) is the expected maximum of w
  normal values (G. Blom, Statistical Estimates and Transformed Beta-Variables, 1958).
- C is where something shared is exhausted, such as memory bandwidth (S. Williams, A. Waterman, D. Patterson, Roofline,
  CACM 52, 2009), with a corner rounded by m.
- t is by how much clocks fall from one core at work to all of them, g what it costs to work in two packages.
- c counts a second thread as h cores and a slower core as less than one.

Each of s, k, v, C, t is in some draws and not in others: the laws are nested, and no law is chosen. What a curve shows
makes some draws likelier than others; their weights average over parameters and laws at once (J. Hoeting, D. Madigan,
A. Raftery, C. Volinsky, Bayesian Model Averaging, Statistical Science 14, 1999). Weighed draws need no start values and
no bounds, and are right where a parameter lies on its bound, where normal approximations are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from vebench.analysis.effective_cpus import Load

    Floats = NDArray[np.float64]

# The machine is what the bare simulator shows, the backend what its ratio to the bare simulator does.
Part = Literal["whole", "machine", "backend"]

DRAWS = 24_000
KEPT = 2_000  # draws that stand for the weighed ones
FEWEST = 30  # draws that carry the weight: fewer would make a band too narrow
SEED = 8

# What is known before anything is measured; docs/scaling.md has the sources. Pairs are a mean and a standard deviation,
# or the ends of a range in which the logarithm is uniform; single values are standard deviations from 0, or a bound.
THREAD = (0.3, 0.15)
SLOWER = (0.6, 0.15)
APART = 0.15
SERIAL = (1e-3, 1.0)
CROSSTALK = (1e-5, 0.1)
STRAGGLER = 0.15
CLOCK = 0.2  # the bound of a uniform range
LEAST_LIMIT, LIMITS = 2.0, 64  # the least limit in cores, and the ratio of the most to it on machines of fewer cores
SPREAD = (0.01, 0.06)  # of measured points around any law, beside what their intervals show
CORNER = (4.0, 30.0)
# Shares of draws in which something holds back; of those with a serial share, half have crosstalk, too.
HELD = {"serial": 1 / 6, "crosstalk": 1 / 2, "straggler": 1 / 6, "clock": 1 / 6, "limit": 4 / 5}


@dataclass(frozen=True, eq=False)
class Draws:
    """Parameters, one value for each draw: see the module.

    ``limit`` is where in its range the limit lies: 0 at the least, 1 at the most, infinity for none. ``spread`` is that
    of points around the law.
    """

    serial: Floats
    crosstalk: Floats
    straggler: Floats
    clock: Floats
    limit: Floats
    corner: Floats
    thread: Floats
    slower: Floats
    apart: Floats
    spread: Floats


@cache
def draws() -> Draws:
    """Return the draws, always the same."""
    import numpy as np  # noqa: PLC0415 - imported on use: it takes longer than most commands

    random = np.random.default_rng(SEED)

    def held(what: str) -> NDArray[np.bool_]:
        return random.random(DRAWS) < HELD[what]

    def between(ends: tuple[float, float]) -> Floats:
        low, high = ends
        return low * (high / low) ** random.random(DRAWS)

    def around(middle: tuple[float, float]) -> Floats:
        return np.clip(random.normal(*middle, DRAWS), 0.0, 1.0)

    serial = held("serial")
    return Draws(
        serial=np.where(serial, between(SERIAL), 0.0),
        crosstalk=np.where(serial & held("crosstalk"), between(CROSSTALK), 0.0),
        straggler=np.where(held("straggler"), np.abs(random.normal(0.0, STRAGGLER, DRAWS)), 0.0),
        clock=np.where(held("clock"), random.uniform(0.0, CLOCK, DRAWS), 0.0),
        limit=np.where(held("limit"), random.random(DRAWS), np.inf),
        corner=between(CORNER),
        thread=around(THREAD),
        slower=around(SLOWER),
        apart=-np.abs(random.normal(0.0, APART, DRAWS)),
        spread=between(SPREAD),
    )


@lru_cache(maxsize=64)
def log_shape(load: Load, of: Part, *, waits: bool) -> Floats:
    """Return the log rate over that of one core with this load, shape ``(DRAWS,)``: as far as it is ``of`` this part.

    ``waits``: a batch waits for all workers.
    """
    import numpy as np  # noqa: PLC0415 - imported on use

    known = draws()
    parts = zip(load.cores, load.threads, strict=True)
    cores = sum((known.slower**kind * (whole + known.thread * second) for kind, (whole, second) in enumerate(parts)))
    log_rate = np.zeros(DRAWS)
    if of != "machine":
        more = np.maximum(cores - 1, 0.0)
        log_rate -= np.log1p(known.serial * more + known.crosstalk * cores * more)
        if waits:
            log_rate -= np.log1p(known.straggler * expected_maximum(load.workers))
    if of != "backend":
        log_rate += np.log(cores) + np.log1p(-known.clock * sum(load.cores) / load.all_cores)
        log_limit = np.log(LEAST_LIMIT) + known.limit * np.log(max(LIMITS, load.all_cores))
        log_rate -= np.log1p(np.exp(known.corner * (log_rate - log_limit))) / known.corner
        log_rate += known.apart * load.apart
    return log_rate


def expected_maximum(count: int) -> float:
    """Return the expected maximum of ``count`` standard normal values, by Blom's approximation; 0 for one."""
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


@dataclass(frozen=True)
class Point:
    """A measured point of a curve: what worked, the log of the rate, and its variance."""

    load: Load
    log_rate: float
    variance: float


@dataclass(frozen=True, eq=False)
class Posterior:
    """The draws that stand for all of them after ``points``: their indices, and the level of each with its error."""

    chosen: NDArray[np.intp]
    level: Floats
    error: Floats
    shape: Callable[[Load], Floats]

    def log_rates(self, load: Load) -> Floats:
        """Return log rates that are as likely as each other, shape ``(KEPT,)``, in the order of no property."""
        return self.shape(load)[self.chosen] + self.level + self.error

    def share(self, wanted: NDArray[np.bool_]) -> float:
        """Return the probability that a draw is among the ``wanted``, shape ``(DRAWS,)``."""
        return float(wanted[self.chosen].mean())


def posterior(points: Sequence[Point], of: Part, *, waits: bool) -> Posterior:
    """Return what one curve shows: draws are weighed by how likely they make its points, at the best of levels.

    The level has a flat prior and is integrated out; errors are normal.
    """
    import numpy as np  # noqa: PLC0415 - imported on use

    known = draws()

    def shape(load: Load) -> Floats:
        return log_shape(load, of, waits=waits)

    precision = np.stack([1 / (point.variance + known.spread**2) for point in points])
    over = np.stack([point.log_rate - shape(point.load) for point in points])
    total = precision.sum(axis=0)
    level = (precision * over).sum(axis=0) / total
    misfit = (precision * (over - level) ** 2).sum(axis=0)
    log_weight = 0.5 * (np.log(precision).sum(axis=0) - np.log(total) - misfit)
    weight = np.exp(log_weight - log_weight.max())
    # Few draws carry the weight of a curve that hardly any law foresees. Likelihoods to the power of a half are those
    # of twice the variance; the size of a weighed sample is that of L. Kish, Survey Sampling, 1965, section 11.7.
    while weight.sum() ** 2 / (weight**2).sum() < FEWEST:
        weight **= 0.5
    # Systematic resampling: each draw is kept as often as its weight says, to within one.
    ends = np.cumsum(weight)
    kept = np.searchsorted(ends, (np.arange(KEPT) + 0.5) / KEPT * ends[-1])
    # Of two curves, such as a backend and the bare simulator, the draws are independent.
    random = np.random.default_rng((SEED, of == "machine"))
    chosen = random.permutation(kept)
    # That of a ratio has no error of its own: what both curves err by at all points, the machine's part has already.
    error = np.zeros(KEPT) if of == "backend" else random.standard_normal(KEPT) / np.sqrt(total[chosen])
    return Posterior(chosen, level[chosen], error, shape)
