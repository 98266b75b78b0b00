"""Two runs beside each other, cell by cell: is it slower, not slower, or can nobody tell? Pure functions.

What is decided, on the ratio of the candidate's rate to the baseline's, with a tolerance:

    slower         it lies below 1 - tolerance, beyond doubt
    faster         it lies above 1 + tolerance, beyond doubt
    same           it does not lie below 1 - tolerance, beyond doubt, and may or may not be faster
    inconclusive   the interval reaches across 1 - tolerance

Beyond doubt is a one-sided test at 2.5 %, so that a cell's verdict is that of its 95 % interval. For ``slower``, and
for ``faster``, the tests of all cells together (Holm) must also stand at 5 %: in 95 % of comparisons no cell at all is
called slower without being it. ``same`` needs no such correction: to pass wrongly, the very cell that is slower must be
missed (R. Berger, Multiparameter hypothesis testing and acceptance sampling, Technometrics 24, 1982).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from statistics import geometric_mean
from typing import TYPE_CHECKING, Literal, NamedTuple

from vebench.analysis.contrasts import contrast, measurable, rejected
from vebench.analysis.statistics import FEWEST_FOR_INTERVAL, FEWEST_PAIRS, Sample, paired
from vebench.backends.registry import REFERENCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vebench.analysis.contrasts import Contrast
    from vebench.analysis.statistics import Estimate
    from vebench.analysis.summary import CellSummary

Verdict = Literal["faster", "same", "slower", "inconclusive", "missing", "not comparable"]
Metric = Literal["fps", "speedup"]
Term = tuple[float, Sample]  # a sample, and the power with which it enters a product

LEVEL = 0.025  # of a one-sided test, as the two sides of a 95 % interval
FAMILY_LEVEL = 0.05  # of the tests of all cells together
# Cells that differ in one of these do not do the same work on the same resources.
DECISIVE = ("num_envs", "batch_size", "frame_skip", "cpus_owned", "pools")


class Place(NamedTuple):
    """What tells one cell of a run from another, repeats apart."""

    env: str
    label: str
    workers: int
    envs_per_worker: int


@dataclass(frozen=True)
class CellComparison:
    """One cell of the baseline beside the candidate's. ``why`` explains a verdict that needs it.

    ``levels`` are the two that the ratio is that of: of several processes geometric means, not medians.
    """

    place: Place
    baseline: CellSummary
    candidate: CellSummary | None
    verdict: Verdict
    ratio: Estimate | None = None
    levels: tuple[float, float] | None = None
    why: str | None = None


@dataclass(frozen=True)
class Comparison:
    """All cells of the baseline that can be gated, in its order.

    ``overall`` is the geometric mean of the ratios that there are. ``skipped`` cells could not run in the baseline, and
    ``new`` ones are in the candidate only: neither is compared.
    """

    metric: Metric
    tolerance: float
    cells: tuple[CellComparison, ...]
    overall: Estimate | None
    skipped: tuple[Place, ...] = ()
    new: tuple[Place, ...] = ()


def place_of(cell: CellSummary) -> Place:
    """Return what tells a cell from the others of its run."""
    return Place(cell.env, cell.label, cell.workers, cell.envs_per_worker)


def compare(
    baseline: Sequence[CellSummary],
    candidate: Sequence[CellSummary],
    *,
    metric: Metric,
    tolerance: float,
    in_turn: bool = False,
) -> Comparison:
    """Return the verdicts on every cell of ``baseline`` that is no reference row.

    ``in_turn``: each pass of the two was measured at the same time, so that what slowed one slowed the other.
    """
    before, after = ({place_of(cell): cell for cell in cells} for cells in (baseline, candidate))
    gated = [place for place, cell in before.items() if _gated(cell, metric)]
    cells = [_beside(place, before, after, metric) for place in gated if before[place].status != "skipped"]
    pairs = {cell.place: pair for cell in cells if (pair := _pair(cell, before, after, metric, in_turn)) is not None}
    verdicts = _verdicts({place: pair.ratio for place, pair in pairs.items()}, tolerance)
    return Comparison(
        metric,
        tolerance,
        tuple(
            _judged(cell, pairs[cell.place], verdicts[cell.place], tolerance) if cell.place in pairs else cell
            for cell in cells
        ),
        _overall(list(pairs.values())),
        skipped=tuple(place for place in gated if before[place].status == "skipped"),
        new=tuple(place for place, cell in after.items() if _gated(cell, metric) and place not in before),
    )


@dataclass(frozen=True)
class _Pair:
    """A ratio; the samples behind it, each with its power; the same pass by pass; and what is divided by what."""

    ratio: Contrast
    terms: tuple[Term, ...]
    by_pass: tuple[Term, ...]
    levels: tuple[float, float]


def _pair(
    cell: CellComparison,
    before: Mapping[Place, CellSummary],
    after: Mapping[Place, CellSummary],
    metric: Metric,
    in_turn: bool,
) -> _Pair | None:
    """Return the pair that a cell and its counterpart make, None where something stands in the way."""
    if cell.why is not None:
        return None
    old, new = (_level(cell.place, cells, metric) for cells in (before, after))
    terms = _over(new, old)
    if in_turn and metric == "fps":
        by_pass = _by_pass(terms, FEWEST_FOR_INTERVAL)
    else:
        by_pass = _over(_by_pass(new), _by_pass(old))
    ratio, below, above = contrast(by_pass), contrast(old), contrast(new)
    if ratio is None or below is None or above is None:
        return None
    return _Pair(ratio, terms, by_pass, (below.estimate.median, above.estimate.median))


def _over(above: Sequence[Term], below: Sequence[Term]) -> tuple[Term, ...]:
    return (*above, *((-weight, sample) for weight, sample in below))


def _by_pass(terms: tuple[Term, ...], fewest: int = FEWEST_PAIRS) -> tuple[Term, ...]:
    """Return the ratio of two samples as that of each pass; the terms as they are if too few passes have both."""
    if len(terms) != 2:  # noqa: PLR2004 - a numerator and a denominator
        return terms
    (_, above), (_, below) = terms
    pairs = paired(above, below, fewest)
    return terms if pairs is None else ((1.0, pairs),)


def _judged(cell: CellComparison, pair: _Pair, verdict: Verdict, tolerance: float) -> CellComparison:
    ratio = pair.ratio.estimate
    why = _doubt(ratio, tolerance, cell) if verdict == "inconclusive" else None
    return replace(cell, verdict=verdict, ratio=ratio, levels=pair.levels, why=why)


def _overall(pairs: Sequence[_Pair]) -> Estimate | None:
    """Return the geometric mean of all ratios.

    What slowed one cell of a pass may have slowed all of them, and all speedups of a run share its loop: so the mean is
    formed in each pass, where that can be. Otherwise what several have in common counts once, with its joint weight.
    """
    sides = (
        list(zip(*(pair.by_pass for pair in pairs), strict=True)) if len({len(p.by_pass) for p in pairs}) == 1 else []
    )
    means = [(side[0][0], _mean([sample for _, sample in side])) for side in sides]
    known = [(weight, mean) for weight, mean in means if mean is not None]
    if known and len(known) == len(means):
        found = contrast(known)
    else:
        found = contrast((weight / len(pairs), sample) for pair in pairs for weight, sample in pair.terms)
    return found.estimate if pairs and found is not None else None


def _mean(samples: Sequence[Sample]) -> Sample | None:
    """Return the geometric mean of all samples in each pass; None if they do not have the same passes."""
    rates = [sample.by_pass for sample in samples]
    numbers = rates[0].keys()
    if not numbers or any(each.keys() != numbers or min(each.values()) <= 0 for each in rates):
        return None
    means = tuple(geometric_mean(each[number] for each in rates) for number in numbers)
    return Sample(means, one_process=False, passes=tuple(numbers))


def _gated(cell: CellSummary, metric: Metric) -> bool:
    itself = metric == "speedup" and cell.backend == REFERENCE and cell.workers == 1
    return not cell.reference and not itself


def _beside(
    place: Place, before: Mapping[Place, CellSummary], after: Mapping[Place, CellSummary], metric: Metric
) -> CellComparison:
    """Return the cell with what stands in the way of a comparison; ``inconclusive`` if nothing but chance does."""
    old, new = before[place], after.get(place)
    nothing: tuple[Verdict, str | None] = ("inconclusive", None)
    verdict, why = next(chain(_gaps(old, new), _bases(place, before, after, metric), _weak(old, new)), nothing)
    return CellComparison(place, old, new, verdict, why=why)


def _gaps(old: CellSummary, new: CellSummary | None) -> Iterator[tuple[Verdict, str]]:
    """Yield what makes the two cells no pair."""
    if (lack := _lack(old)) is not None:
        yield "not comparable", f"baseline: {lack}"
    if new is None:
        yield "missing", "not in the candidate"
        return
    if (lack := _lack(new)) is not None:
        yield "missing", f"candidate: {lack}"
    if old.struck != new.struck:
        name, cell = ("baseline", old) if old.struck else ("candidate", new)
        yield "not comparable", f"{name}: other work than {REFERENCE} ({cell.verdict_reason or 'rows differ'})"
    for name in DECISIVE:
        one, other = getattr(old, name), getattr(new, name)
        if one != other:
            yield "not comparable", f"{name.replace('_', ' ')}: {one} in the baseline, {other} in the candidate"


def _bases(
    place: Place, before: Mapping[Place, CellSummary], after: Mapping[Place, CellSummary], metric: Metric
) -> Iterator[tuple[Verdict, str]]:
    """Yield that a run has not got what its speedups are relative to."""
    base = place._replace(label=REFERENCE, workers=1)
    for name, cells in (("baseline", before), ("candidate", after)):
        if metric == "speedup" and (base not in cells or not measurable(cells[base].sample)):
            yield "not comparable", f"{name}: {REFERENCE} with one worker has no rate with an interval"


def _weak(old: CellSummary, new: CellSummary | None) -> Iterator[tuple[Verdict, str]]:
    """Yield that a cell has no interval."""
    for name, cell in (("baseline", old), ("candidate", new)):
        if cell is not None and not measurable(cell.sample):
            yield "inconclusive", f"{name}: one window, no interval; measure with --repeats 5"


def _lack(cell: CellSummary) -> str | None:
    """Return why a cell has no rate, None if it has."""
    if cell.status != "ok":
        return f"{cell.status}: {cell.reason or 'no reason was recorded'}"
    if not cell.sample.rates:
        return "no window was measured"
    if min(cell.sample.rates) <= 0:
        return "a window without any step"
    return None


def _level(place: Place, cells: Mapping[Place, CellSummary], metric: Metric) -> tuple[Term, ...]:
    """Return what one run brings into a ratio, each sample with its power: its rate, or that over the loop's."""
    if metric == "fps":
        return ((1.0, cells[place].sample),)
    return (1.0, cells[place].sample), (-1.0, cells[place._replace(label=REFERENCE, workers=1)].sample)


def _verdicts(contrasts: Mapping[Place, Contrast], tolerance: float) -> dict[Place, Verdict]:
    slower = _beyond_doubt([found.chance_above(1 - tolerance) for found in contrasts.values()])
    faster = _beyond_doubt([found.chance_below(1 + tolerance) for found in contrasts.values()])
    return {
        place: _verdict(found.estimate, tolerance, slower=one, faster=other)
        for (place, found), one, other in zip(contrasts.items(), slower, faster, strict=True)
    }


def _beyond_doubt(chances: Sequence[float]) -> list[bool]:
    together = rejected(chances, FAMILY_LEVEL)
    return [chance <= LEVEL and one for chance, one in zip(chances, together, strict=True)]


def _verdict(ratio: Estimate, tolerance: float, *, slower: bool, faster: bool) -> Verdict:
    if slower:
        return "slower"
    if faster:
        return "faster"
    return "same" if ratio.low is not None and ratio.low >= 1 - tolerance else "inconclusive"


def _doubt(ratio: Estimate, tolerance: float, cell: CellComparison) -> str:
    """Return why nobody can tell, and what would help."""
    if ratio.high is not None and ratio.high < 1 - tolerance:
        return "slower if it were the only cell, but one of so many may be by chance; measure with more --repeats"
    if cell.candidate is not None and (cell.candidate.sample.one_process or cell.baseline.sample.one_process):
        return "one process tells too little; measure both with --repeats 5"
    return "the interval reaches across the tolerance; measure both with more --repeats, or a longer --duration"
