"""The figures of runs side by side: the curves of their best backends over each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.analysis.beside import best_of
from vebench.analysis.curves import curves, of_key
from vebench.errors import one_line
from vebench.reports.chart import Chart, Mark
from vebench.reports.pages.charts import FEWEST_FOR_CURVE
from vebench.reports.pages.curve_lines import curve_name, line_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vebench.analysis.curves import Curve
    from vebench.plan.cells import CellKey
    from vebench.reports.chart import Series
    from vebench.reports.pages.sides import Side

    Curves = Mapping[CellKey, Curve]

MOST_LINES = 4  # of two runs: two backends in each


def charts(env: str, sides: Sequence[Side]) -> Iterator[Chart]:
    """Yield the curves of one task: of two runs those of the best backends in both, of more the best of each."""
    of_sides = [_by_rate(env, side) for side in sides]
    wanted = _wanted(of_sides)
    several = len({key.envs_per_worker for keys in wanted for key in keys}) > 1
    chosen = [
        (list(keys).index(key), index, _line(sides[index], of_sides[index][key], several=several))
        for index, keys in enumerate(wanted)
        for key in keys
        if key in of_sides[index]
    ]
    series = tuple(line for _, _, line in sorted(chosen, key=lambda item: item[:2]) if line.points)
    if any(len(line.points) >= FEWEST_FOR_CURVE for line in series):
        most = max(x for line in series for x, _ in line.points)
        title = f"{one_line(env)}: frames/s of the best backends"
        yield Chart(one_line(env), "beside", title, "workers", "frames/s", series, tuple(_marks(sides, most)))


def _by_rate(env: str, side: Side) -> Curves:
    """Return the curves of a task that have a cell to choose, the one with the fastest first."""
    known = [(best, curve) for curve in curves(c for c in side.cells if c.env == env) if (best := best_of(curve.cells))]
    ordered = sorted(known, key=lambda item: item[0].sample.level, reverse=True)
    return {of_key(curve.cells[0].key): curve for _, curve in ordered}


def _wanted(of_sides: Sequence[Curves]) -> list[tuple[CellKey, ...]]:
    """Return which curves are drawn of each run, in the order of the key."""
    if len(of_sides) > 2:  # noqa: PLR2004 - two are a pair
        return [tuple(found)[:1] for found in of_sides]
    ranks = [key for found in zip(*map(list, of_sides), strict=False) for key in found]
    rest = [key for found in of_sides for key in found]
    both = tuple(dict.fromkeys((*ranks, *rest)))[: MOST_LINES // 2]
    return [both for _ in of_sides]


def _line(side: Side, curve: Curve, *, several: bool) -> Series:
    """Return the line of a backend in one run."""
    return line_of(curve, f"{side.name}: {curve_name(curve, several=several)}", lambda cell: cell.frames_per_second)


def _marks(sides: Sequence[Side], most: float) -> Iterator[Mark]:
    """Yield where workers begin to share CPUs in each run, if its sweep goes that far."""
    names: dict[int, list[str]] = {}
    for side in sides:
        names.setdefault(side.head.usable_cpus, []).append(side.name)
    for cpus, of in sorted(names.items()):
        if cpus < most:
            yield Mark(float(cpus), "CPUs end" if len(of) == len(sides) else f"CPUs of {' and '.join(of)} end")
