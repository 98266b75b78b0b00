"""What runs side by side say, in sentences: how much faster one is, each at its best and cell by cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.analysis.cell import is_base
from vebench.backends.environments.suites import short_name
from vebench.backends.registry import REFERENCE
from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.document import Answer
from vebench.reports.pages.sides import interval

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vebench.analysis.beside import Best, TaskBeside
    from vebench.reports.pages.sides import Other, Side


def answer(env: str, first: Side, others: Sequence[Other]) -> Answer:
    """Return what is found of one task: by how much each of the other runs is faster than the first."""
    sentences = [f"{one_line(short_name(env))}: {_verdict(first, other)}" for other in others]
    for side, found in others:
        if not (first.notice or side.notice):
            whose = f"{side.name}, with" if len(others) > 1 else "With"
            sentences += [f"{whose} {text}" for text in _details(found)]
    return Answer(one_line(env), tuple(sentences), settled=any(_settled(first, other) for other in others))


def _settled(first: Side, other: Other) -> bool:
    """Return whether the other run is known to be faster, or slower."""
    side, found = other
    return not (first.notice or side.notice or found.best is None or _may_be_alike(found.best))


def _may_be_alike(best: Best) -> bool:
    low, high = best.ratio.low, best.ratio.high
    return low is not None and high is not None and low <= 1 <= high


def _verdict(first: Side, other: Other) -> str:
    """Return by how much the other run is faster, or why nobody can say."""
    side, found = other
    for one in (first, side):
        if one.notice:
            return f"no verdict: {one.name} is {one.notice}."
    if found.best is None:
        lacking = " and ".join((first.name, side.name)[run] for run in found.lacking)
        return f"no verdict: no cell of {lacking} has a rate that can be compared."
    ratio, where, farther = found.best.ratio, _where(found.best, first, side), _farther(found, found.best, first, side)
    if _may_be_alike(found.best):
        speed = f"{side.name} is {interval(ratio)} as fast"
        return f"each at its best, {first.name} and {side.name} cannot be told apart: {speed}, {where}.{farther}"
    return f"{side.name} is {interval(ratio)} as fast as {first.name}, each at its best: {where}.{farther}"


def _where(best: Best, first: Side, side: Side) -> str:
    one, other = (f"{one_line(cell.label)} with {cell.key.size}" for cell in (best.one, best.other))
    return f"{one} on both" if one == other else f"{other} on {side.name}, {one} on {first.name}"


def _farther(found: TaskBeside, best: Best, first: Side, side: Side) -> str:
    """Return that one run has its best where the other was not measured at all, after a blank; empty if neither has."""
    for run, name, cell in ((0, first.name, best.other), (1, side.name, best.one)):
        most = max(own.workers for place in found.places if (own := place.cells[run]) is not None)
        if cell.workers > most:
            return f" {name} was measured with {figures.counted(most, 'worker')} at most."
    return ""


def _details(found: TaskBeside) -> Iterator[str]:
    """Yield what the ratio is of cells alike: the mean of all, and that of a plain loop, which uses one CPU."""
    if found.mean is None or len(found.counted) == 1:
        return
    ratios = {place.key: place.ratio for place in found.counted if place.ratio is not None}
    ends = [pick(ratios, key=lambda key: ratios[key].median) for pick in (min, max)]
    smallest, largest = (
        f"{figures.number(ratios[key].median)}x ({one_line(key.backend)} with {key.size})" for key in ends
    )
    cells = f"the geometric mean of {figures.counted(len(ratios), 'cell')}, from {smallest} to {largest}"
    yield f"the same backend, workers and CPUs: {interval(found.mean)}, {cells}."
    for ratio in [ratio for key, ratio in ratios.items() if is_base(key)][:1]:
        yield f"{REFERENCE} and one worker: {interval(ratio)}."
