"""How well the scaling model extrapolates sweeps of which the truth is known. Prints Markdown tables.

``python scaling_model.py [SWEEPS] [SEED]``: machines of 8, 16 and 64 cores with two threads each; 1, 2, 4 ... workers
up to a quarter, half and all of the cores, each rate with 3 % of noise. Twice the largest number of workers is
predicted. Beside the median error of the model are those of simpler predictions and of least squares, and how often the
90 % bands hold the true rate. The constants of the model were chosen on the seeds 1 to 4 and 100 to 102, and
docs/scaling.md has the results on the default.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from math import exp, inf, log
from statistics import NormalDist, mean, median
from typing import TYPE_CHECKING

import numpy as np
from scaling_by_least_squares import Sweep, predicted
from scipy.optimize import least_squares

from vebench.analysis.cell import CellSummary
from vebench.analysis.curves import Curve
from vebench.analysis.effective_cpus import Cpu, CpuOrder
from vebench.analysis.scaling import scaling
from vebench.analysis.statistics import Estimate
from vebench.plan.cells import CellKey

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.random import Generator

NOISE = 0.03
RATE = 5000.0  # frames per second of one core
CORES = (8, 16, 64)
FITTED = {"a quarter": 4, "half": 2, "all": 1}
TRUTHS = ("none", "straggler", "bandwidth", "package", "threads", "serial", "turbo", "mixed")
HALF_WIDTH = NormalDist().inv_cdf(0.975) * NOISE


@dataclass(frozen=True)
class Truth:
    """A machine of so many ``cores`` and a backend on it. What does not hold back is 0, or infinite."""

    cores: int
    thread: float = 0.3
    serial: float = 0.0
    straggler: float = 0.0
    limit: float = inf
    step: float = 0.0
    droop: float = 0.0
    packages: int = 1
    waits: bool = False

    @property
    def order(self) -> CpuOrder:
        """Its CPUs: first threads of one package after the other, then second threads."""
        regions = [core * self.packages // self.cores for core in range(self.cores)]
        return CpuOrder(tuple(Cpu(second, 0, region) for second in (False, True) for region in regions))

    def bare(self, workers: int) -> float:
        """Return the rate of the bare simulator: what the machine does."""
        whole = min(workers, self.cores)
        worth = whole + self.thread * (workers - whole)
        clock = 1 - self.droop * (whole - 1) / (self.cores - 1)
        return RATE * min(worth * clock, self.limit) * (1 - self.step * (whole > self.cores / 2))

    def rate(self, workers: int) -> float:
        """Return the rate of the backend. Its workers' times are lognormal, and a batch waits for the slowest."""
        worth = min(workers, self.cores) + self.thread * max(0, workers - self.cores)
        slowest = NormalDist().inv_cdf((workers - 0.375) / (workers + 0.25))
        return self.bare(workers) / (1 + self.serial * (worth - 1)) / exp(self.straggler * slowest)


def draw(random: Generator, name: str, cores: int) -> Truth:
    """Return a machine and backend in which this holds back, and nothing else; ``mixed``: each with a chance of 0.4."""
    held = {other: name == other or (name == "mixed" and random.random() < 0.4) for other in TRUTHS}
    waits = bool(held["straggler"] or random.random() < 0.5)
    packages = 2 if held["package"] else 1
    truth = Truth(cores, waits=waits, packages=packages)
    if name != "none":
        truth = replace(truth, thread=random.uniform(0.1, 0.5))
    if held["straggler"]:
        truth = replace(truth, straggler=random.uniform(0.02, 0.2))
    if held["bandwidth"]:
        truth = replace(truth, limit=cores * random.uniform(0.3, 1.2))
    if held["package"]:
        truth = replace(truth, step=random.uniform(0.0, 0.3))
    if held["serial"]:
        truth = replace(truth, serial=exp(random.uniform(log(0.002), log(0.05))))
    if held["turbo"]:
        truth = replace(truth, droop=random.uniform(0.0, 0.2))
    return truth


def curve(random: Generator, truth: Truth, counts: Sequence[int], backend: str) -> Curve:
    """Return a measured sweep of ``ceiling``, the bare simulator, or of any other backend."""
    rate = truth.bare if backend == "ceiling" else truth.rate
    return Curve(tuple(cell(backend, n, rate(n) * exp(NOISE * random.normal()), waits=truth.waits) for n in counts))


def cell(backend: str, workers: int, rate: float, *, waits: bool) -> CellSummary:
    """Return a cell with this rate."""
    estimate = Estimate(rate, rate * exp(-HALF_WIDTH), rate * exp(HALF_WIDTH))
    envs = workers * (1 if waits else 2)
    return CellSummary(
        key=CellKey("Pong", backend, workers, 1),
        backend=backend,
        options={},
        num_envs=envs,
        batch_size=workers,
        processes=workers,
        threads=1,
        cpus=(),
        cpus_owned=workers,
        frame_skip=4,
        replicas=1,
        status="ok",
        reason=None,
        repeats=3,
        failed_repeats=0,
        faulty_repeats=0,
        verdict="identical",
        verdict_reason="",
        proof=None,
        differences=(),
        engines=(),
        own_classes=None,
        startup_seconds=None,
        peak_rss_bytes=None,
        frames_per_second=estimate,
    )


def baselines(measured: Curve, truth: Truth, workers: int) -> dict[str, float]:
    """Return what others would predict."""
    counts = np.array([found.workers for found in measured.cells], dtype=float)
    rates = np.array([found.frames_per_second.median for found in measured.cells if found.frames_per_second])
    cores = np.minimum(counts, truth.cores)
    worth = min(workers, truth.cores) + 0.3 * max(0, workers - truth.cores)
    return {
        "linear in cores": exp(mean(np.log(rates / cores))) * min(workers, truth.cores),
        "last point": rates[-1],
        "last point x cores": rates[-1] * worth / cores[-1],
        "plain USL": plain_usl(counts, rates, workers),
    }


def by_least_squares(measured: Curve, truth: Truth, workers: int) -> tuple[float, float]:
    """Return the log rate by nested laws averaged by AICc, and half of its 90 % band."""
    counts = np.array([found.workers for found in measured.cells], dtype=float)
    rates = np.array([found.frames_per_second.median for found in measured.cells if found.frames_per_second])
    middle, error = predicted(Sweep(counts, np.log(rates), NOISE, truth.cores, truth.packages, truth.waits), workers)
    return middle, NormalDist().inv_cdf(0.95) * error


def plain_usl(counts: np.ndarray, rates: np.ndarray, workers: int) -> float:
    """Return the prediction of the universal scalability law over workers: log errors, no negative parameter."""

    def log_rate(parameters: np.ndarray, count: np.ndarray) -> np.ndarray:
        level, serial, crosstalk = parameters
        return level + np.log(count) - np.log1p(serial * (count - 1) + crosstalk * count * (count - 1))

    found = least_squares(
        lambda parameters: log_rate(parameters, counts) - np.log(rates),
        (log(rates[0]), 0.01, 1e-4),
        bounds=((-inf, 0, 0), (inf, 1, 1)),
        x_scale=(1, 0.01, 1e-4),
    )
    return exp(log_rate(found.x, np.array(float(workers))))


@dataclass(frozen=True)
class Trial:
    """How one prediction turned out: log errors of the model and of others, and whether its band held the truth.

    ``width`` is half that of the band, of log rates. ``others_held`` is whether the band of least squares held it, None
    if that was not tried.
    """

    error: float
    others: dict[str, float]
    held: bool
    width: float
    others_held: bool | None


def trial(random: Generator, name: str, cores: int, part: int, *, beside: bool) -> Trial | None:
    """Return how twice the workers are predicted, ``beside`` the bare simulator or without; None if it is refused."""
    truth = draw(random, name, cores)
    counts = [1 << power for power in range(20) if 1 << power <= cores // part]
    workers = 2 * counts[-1]
    measured = curve(random, truth, counts, "any:Backend")
    bare = curve(random, truth, counts, "ceiling")
    found = scaling(measured, bare if beside else None, truth.order)
    if isinstance(found, str):
        return None
    rate = found.forecast(workers).rate
    assert rate is not None
    assert rate.low is not None
    assert rate.high is not None
    true = truth.rate(workers)
    others = {other: log(value / true) for other, value in baselines(measured, truth, workers).items()}
    held, width = rate.low <= true <= rate.high, log(rate.high / rate.low) / 2
    if beside:  # least squares knows nothing of the bare simulator
        return Trial(log(rate.median / true), others, held, width, None)
    middle, half = by_least_squares(measured, truth, workers)
    others["least squares"] = middle - log(true)
    return Trial(log(rate.median / true), others, held, width, abs(middle - log(true)) <= half)


def line(trials: Sequence[Trial]) -> Iterator[str]:
    """Yield the places of a row: median errors, and what the band is like."""
    yield f"**{median(abs(found.error) for found in trials):.1%}**"
    for other in trials[0].others:
        yield f"{median(abs(found.others[other]) for found in trials):.1%}"
    yield f"{mean(found.held for found in trials):.0%}"
    yield f"±{median(found.width for found in trials):.0%}"
    if trials[0].others_held is not None:
        yield f"{mean(bool(found.others_held) for found in trials):.0%}"


def table(first: str, rows: dict[str, list[Trial]]) -> None:
    """Print a table with a row for each name."""
    one = next(found for trials in rows.values() for found in trials)
    more = () if one.others_held is None else ("least squares' holds",)
    heads = (first, "model", *one.others, "90 % band holds", "half its width", *more)
    print(f"\n| {' | '.join(heads)} |\n| --- |{' ---: |' * (len(heads) - 1)}")
    for name, trials in rows.items():
        if trials:
            print(f"| {name} | {' | '.join(line(trials))} |", flush=True)


def main(sweeps: int = 20, seed: int = 5) -> None:
    """Print how each truth and each extrapolation is predicted."""
    for beside in (False, True):
        print(f"\n## {'Beside the bare simulator' if beside else 'Alone'}")
        by_truth: dict[str, list[Trial]] = defaultdict(list)
        by_part: dict[str, list[Trial]] = defaultdict(list)
        for number, name in enumerate(TRUTHS):
            for place, cores in enumerate(CORES):
                for part, divisor in FITTED.items():
                    random = np.random.default_rng((seed, number, place, divisor))
                    found = [trial(random, name, cores, divisor, beside=beside) for _ in range(sweeps)]
                    known = [one for one in found if one is not None]
                    by_truth[name] += known
                    by_part[part] += known
        table("what holds back", by_truth)
        table("fitted up to", {**by_part, "all of these": [one for found in by_part.values() for one in found]})


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
