"""Choose the law and the band of ``report --forecast`` on published curves, and judge them on others.

    git clone --depth 1 https://github.com/sail-sg/envpool
    python tools/forecast.py envpool/benchmark/README.md

The tables there are frames per second over numbers of workers, of five ways to step environments on four machines
(Apache License 2.0). Curves of the laptop and the workstation calibrate the band; those of the TPU-VM and the DGX-A100
judge. Each curve is continued from its first four or more points to at most twice the last of them.
"""

from __future__ import annotations

import sys
from itertools import count
from math import log, log2, sqrt
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vebench.analysis.scaling import BAND, FARTHEST, FEWEST, THREAD, amdahl

CORES = {"Laptop": 6, "Workstation": 16, "TPU-VM": 48, "DGX-A100": 128}  # of two threads each
CALIBRATED, JUDGED = ("Laptop", "Workstation"), ("TPU-VM", "DGX-A100")


class Case(NamedTuple):
    """The log errors of predictions, by their names; ``part`` is how much of the curve was known."""

    machine: str
    part: float
    following: float
    distance: float
    errors: dict[str, float]


def usl(points: list[tuple[float, float]], cores: float) -> float:
    """Return what the universal scalability law predicts, by least squares with parameters of zero or more."""
    at, rates = np.array(points).T
    terms = np.stack([np.ones_like(at), at - 1, at * (at - 1)], 1) / (at / rates)[:, None]
    fits = []
    for chosen in ([0], [0, 1], [0, 2], [0, 1, 2]):
        found = np.linalg.lstsq(terms[:, chosen], np.ones_like(at), rcond=None)[0]
        if (found >= 0).all():
            time = found @ np.array([1, cores - 1, cores * (cores - 1)])[chosen]
            fits.append((((terms[:, chosen] @ found - 1) ** 2).sum(), cores / time))
    return float(min(fits)[1])


def curves(text: str) -> list[tuple[str, dict[int, float]]]:
    """Return the machine and the rates of each row of the tables over workers, without for-loops."""
    found = []
    for block in text.split("\n\n"):
        head, *lines = ([entry.strip() for entry in line.strip("|").split("|")] for line in block.strip().split("\n"))
        machine = head[0].rpartition(" - ")[2]
        if machine in CORES:
            rows = [dict(zip(head[1:], rates, strict=True)) for name, *rates in lines[1:] if name != "For-loop"]
            found += [(machine, {int(n): float(rate) for n, rate in row.items() if rate != "/"}) for row in rows]
    return found


def cases(machine: str, rates: dict[int, float]) -> list[Case]:
    """Return every prediction of one curve."""
    cores = CORES[machine]

    def at(workers: int) -> float:
        return min(workers, cores) + THREAD * max(0, workers - cores)

    found = []
    workers = list(rates)
    for known in range(FEWEST, len(workers)):
        points, last = [(at(n), rates[n]) for n in workers[:known]], workers[known - 1]
        for n in workers[known:]:
            if n <= FARTHEST * last:
                predicted = {
                    "Amdahl": amdahl(points, at(n)),
                    "USL": usl(points, at(n)),
                    "USL over workers": usl([(float(w), rates[w]) for w in workers[:known]], float(n)),
                    "last x cores": rates[last] * at(n) / at(last),
                    "last": rates[last],
                }
                errors = {name: log(rate / rates[n]) for name, rate in predicted.items()}
                found.append(Case(machine, last / workers[-1], workers[known] / workers[-1], log2(n / last), errors))
    return found


def scores(chosen: list[Case]) -> list[float]:
    """Return the band's half width that each prediction would have needed just beyond the last point."""
    return [abs(case.errors["Amdahl"]) / sqrt(1 + case.distance) for case in chosen]


def main() -> None:
    """Print the errors and the band of both halves of the machines."""
    found = [case for curve in curves(Path(sys.argv[1]).read_text("utf-8")) for case in cases(*curve)]
    one, other = (scores([case for case in found if case.machine == machine]) for machine in CALIBRATED)
    # The smallest quantile that, taken from one machine, holds 90 % on the other, both ways.
    levels = (0.9 + step / 1000 for step in count())
    level = next(
        level
        for level in levels
        if min(np.mean(other <= np.quantile(one, level)), np.mean(one <= np.quantile(other, level))) >= 0.9
    )
    print(f"band from {len(one + other)} predictions: {np.quantile(one + other, level):.4f}, in use: {BAND}")
    for machines in (CALIBRATED, JUDGED):
        own = [case for case in found if case.machine in machines]
        parts = {f"from {part:g}": [case for case in own if case.part <= part < case.following] for part in (0.25, 0.5)}
        near = {"up to 1.5 times": [case for case in own if case.distance <= log2(1.5)]}
        for name, chosen in (parts | near | {"all": own}).items():
            held = np.mean([score <= BAND for score in scores(chosen)])
            print(f"\n{', '.join(machines)}, {name}: {len(chosen)} predictions, the band holds {held:.0%}")
            for law in chosen[0].errors:
                errors = np.abs(np.expm1([case.errors[law] for case in chosen]))
                print(f"  {law:17} median {np.median(errors):5.1%}  90th percentile {np.quantile(errors, 0.9):5.1%}")


if __name__ == "__main__":
    main()
