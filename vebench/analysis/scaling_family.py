"""The family of scaling laws, as many draws from what is known of such curves before any is measured.

With c the cores at work, in effective cores, the rate over that of a core is

    c / (1 + s (c - 1) + k c (c - 1))  x  1 / (1 + v z(w))  x  (1 + (c / C)^4)^(-1/4)  x  g^apart

- s is Amdahl's serial share, k the crosstalk of the universal scalability law (G. Amdahl, AFIPS 1967; N. Gunther,
  Guerrilla Capacity Planning, 2007, chapter 4).
- v is the spread of the workers' times, where a batch waits for the slowest of them: z(w) is the expected maximum of w
  normal values (G. Blom, Statistical Estimates and Transformed Beta-Variables, 1958).
- C is where something shared is exhausted, such as memory bandwidth (S. Williams, A. Waterman, D. Patterson, Roofline,
  CACM 52, 2009), with a rounded corner.
- g is what it costs to work in two packages, c counts a second thread as h cores and a slower core as less than one.

Each of s, k, v, C is in some draws and not in others: the laws are nested, and no law is chosen. What a curve shows
makes some draws likelier than others; their weights average over parameters and laws at once (J. Hoeting, D. Madigan,
A. Raftery, C. Volinsky, Bayesian Model Averaging, Statistical Science 14, 1999). Weighed draws need no start values and
no bounds, and are right where a parameter lies on its bound, where normal approximations are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from vebench.analysis.effective_cpus import Load

    Floats = NDArray[np.float64]

DRAWS = 24_000
KEPT = 2_000  # draws that stand for the weighed ones
SEED = 8

# What is known before anything is measured. Second threads: published curves have 2 to 14 % (EnvPool), general work 15
# to 50 %. Packages: EnvPool's pools for each node against one for all, 4 % on two packages and 20 % on two of four nodes.
THREAD = (0.3, 0.15)
SLOWER = (0.6, 0.15)
APART = 0.15
SERIAL = (5e-4, 0.2)
CROSSTALK = (1e-6, 5e-3)
STRAGGLER = 0.15
EXHAUSTED = (2.0, 1024.0)
SPREAD = (0.01, 0.06)  # of measured points around any law, beside what their intervals show
CORNER = (3.0, 30.0)
LIMITED = 2  # one draw in so many has a limit


@dataclass(frozen=True, eq=False)
class Draws:
    """Parameters, one value for each draw: see the module. ``spread`` is that of points around them."""

    serial: Floats
    crosstalk: Floats
    straggler: Floats
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
    law = np.arange(DRAWS)

    def between(ends: tuple[float, float]) -> Floats:
        return np.exp(random.uniform(*np.log(ends), DRAWS))

    def around(middle: tuple[float, float]) -> Floats:
        return np.clip(random.normal(*middle, DRAWS), 0.0, 1.0)

    return Draws(
        serial=np.where(law % 3 > 0, between(SERIAL), 0.0),
        crosstalk=np.where(law % 3 > 1, between(CROSSTALK), 0.0),
        straggler=np.where(law // 3 % 2 > 0, np.abs(random.normal(0.0, STRAGGLER, DRAWS)), 0.0),
        limit=np.where(law // 6 % LIMITED > 0, np.inf, between(EXHAUSTED)),
        corner=between(CORNER),
        thread=around(THREAD),
        slower=around(SLOWER),
        apart=-np.abs(random.normal(0.0, APART, DRAWS)),
        spread=between(SPREAD),
    )


@lru_cache(maxsize=64)
def log_shape(load: Load, *, waits: bool, hardware: bool) -> Floats:
    """Return the log rate over that of one core with this load, shape ``(DRAWS,)``.

    ``waits``: a batch waits for all workers. Without ``hardware``, what the machine does is left out: it is for the
    ratio of a backend to the bare simulator on the same CPUs, which has all of it.
    """
    import numpy as np  # noqa: PLC0415 - imported on use

    known = draws()
    parts = zip(load.cores, load.threads, strict=True)
    cores = sum((known.slower**kind * (whole + known.thread * second) for kind, (whole, second) in enumerate(parts)))
    more = np.maximum(cores - 1, 0.0)
    log_rate = -np.log1p(known.serial * more + known.crosstalk * cores * more)
    if waits:
        log_rate = log_rate - np.log1p(known.straggler * expected_maximum(load.workers))
    if hardware:
        log_rate = log_rate + np.log(cores) + known.apart * load.apart
        log_rate = log_rate - np.log1p((cores / known.limit) ** known.corner) / known.corner
    return np.asarray(log_rate)


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


def posterior(points: Sequence[Point], *, waits: bool, hardware: bool) -> Posterior:
    """Return what one curve shows: draws are weighed by how likely they make its points, at the best of levels.

    The level has a flat prior and is integrated out; errors are normal.
    """
    import numpy as np  # noqa: PLC0415 - imported on use

    known = draws()

    def shape(load: Load) -> Floats:
        return log_shape(load, waits=waits, hardware=hardware)

    precision = np.stack([1 / (point.variance + known.spread**2) for point in points])
    over = np.stack([point.log_rate - shape(point.load) for point in points])
    total = precision.sum(axis=0)
    level = (precision * over).sum(axis=0) / total
    misfit = (precision * (over - level) ** 2).sum(axis=0)
    log_weight = 0.5 * (np.log(precision).sum(axis=0) - np.log(total) - misfit)
    weight = np.exp(log_weight - log_weight.max())
    # Systematic resampling: each draw is kept as often as its weight says, to within one.
    ends = np.cumsum(weight)
    kept = np.searchsorted(ends, (np.arange(KEPT) + 0.5) / KEPT * ends[-1])
    # Of two curves, such as a backend and the bare simulator, the draws are independent.
    random = np.random.default_rng((SEED, hardware))
    chosen = random.permutation(kept)
    return Posterior(chosen, level[chosen], random.standard_normal(KEPT) / np.sqrt(total[chosen]), shape)
