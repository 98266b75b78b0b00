"""Two runs compared cell by cell: slower, not slower, or inconclusive. Pure functions.

The verdict is on the ratio of the candidate's rate to the baseline's, with a tolerance:

    slower         beyond doubt, it is below 1 - tolerance
    faster         beyond doubt, it is above 1 + tolerance
    same           beyond doubt, it is not below 1 - tolerance; it may or may not be faster
    inconclusive   the data cannot decide: the interval reaches across 1 - tolerance

Beyond doubt means a one-sided test at 2.5 %, so that a cell's verdict is that of its 95 % interval. For ``slower``, and
for ``faster``, the tests of all cells together (Holm) must also hold at 5 %: in 95 % of comparisons, no cell at all is
called slower that is not. ``same`` needs no such correction: to pass wrongly, the very cell that is slower must be
missed (R. Berger, Multiparameter hypothesis testing and acceptance sampling, Technometrics 24, 1982).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from statistics import geometric_mean
from typing import TYPE_CHECKING, Literal

from vebench.analysis.cell import base_of
from vebench.analysis.contrasts import contrast, measurable, rejected
from vebench.analysis.names import CHECK
from vebench.analysis.statistics import FEWEST_FOR_INTERVAL, FEWEST_PAIRS, Sample, paired
from vebench.backends.registry import REFERENCE
from vebench.results.records import INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.contrasts import Contrast
    from vebench.analysis.names import Names
    from vebench.analysis.statistics import Estimate
    from vebench.plan.cells import CellKey

SpeedVerdict = Literal["faster", "same", "slower", "inconclusive", "missing", "not comparable"]
Metric = Literal["fps", "speedup"]
Term = tuple[float, Sample]  # a sample, and the power with which it enters a product

LEVEL = 0.025  # of a one-sided test, as the two sides of a 95 % interval
FAMILY_LEVEL = 0.05  # of the tests of all cells together
# Cells that differ in one of these do not do the same work on the same resources.
DECISIVE = ("num_envs", "batch_size", "frame_skip", "cpus_owned", "replicas")
NO_REASON = "no reason was recorded"


@dataclass(frozen=True)
class CellComparison:
    """One cell of the baseline compared with the candidate's. ``why`` explains a verdict that needs a reason.

    ``key`` is the identity of both. ``levels`` are the two values that ``ratio`` divides, the baseline's first. Of
    a cell with several processes this value is their geometric mean, not their median. ``failed`` is how the
    candidate's cell failed, in all repeats or in some, where the baseline's did not.
    """

    key: CellKey
    baseline: CellSummary
    candidate: CellSummary | None
    verdict: SpeedVerdict
    ratio: Estimate | None = None
    levels: tuple[float, float] | None = None
    why: str | None = None
    failed: str | None = None


@dataclass(frozen=True)
class Comparison:
    """All cells of the baseline that can be gated, in its order.

    ``overall`` is the geometric mean of all ratios that are known. ``skipped`` cells could not run in the baseline, or,
    of two sides that were measured in turn, on either. ``new`` ones are in the candidate only, ``references`` are
    reference rows of both. None of these are compared. ``names`` are what the sides are called.
    """

    metric: Metric
    tolerance: float
    cells: tuple[CellComparison, ...]
    overall: Estimate | None
    skipped: tuple[CellKey, ...] = ()
    new: tuple[CellKey, ...] = ()
    references: tuple[CellKey, ...] = ()
    names: Names = CHECK


def compare(  # noqa: PLR0913 - one parameter for each decision
    baseline: Sequence[CellSummary],
    candidate: Sequence[CellSummary],
    *,
    metric: Metric,
    tolerance: float,
    in_turn: bool = False,
    names: Names = CHECK,
) -> Comparison:
    """Return the verdicts on every cell of ``baseline`` that is no reference row.

    ``tolerance`` is a share, 0 to 1. ``in_turn``: each pass of the two was measured at the same time, so that what
    slowed one slowed the other; a cell that could run in one of them only is then missing. ``names`` are what reasons
    call the two.
    """
    before, after = ({cell.key: cell for cell in cells} for cells in (baseline, candidate))
    gated = [key for key, cell in before.items() if _gated(cell, metric)]
    skipped = {key for key in gated if _skipped(before[key]) and (not in_turn or _skipped(after.get(key)))}
    cells = [_beside(key, before, after, metric, names) for key in gated if key not in skipped]
    pairs = {cell.key: pair for cell in cells if (pair := _pair(cell, before, after, metric, in_turn)) is not None}
    verdicts = _verdicts({key: pair.ratio for key, pair in pairs.items()}, tolerance)
    return Comparison(
        metric,
        tolerance,
        tuple(
            _judged(cell, pairs[cell.key], verdicts[cell.key], tolerance) if cell.key in pairs else cell
            for cell in cells
        ),
        _overall(list(pairs.values())),
        skipped=tuple(key for key in gated if key in skipped),
        new=tuple(key for key, cell in after.items() if _gated(cell, metric) and key not in before),
        references=tuple(key for key, cell in before.items() if cell.reference_row and key in after),
        names=names,
    )


@dataclass(frozen=True)
class _Pair:
    """A ratio and what it is made of.

    ``terms`` are the samples behind it, each with its power; ``by_pass`` the same pass by pass, where passes are
    paired; ``levels`` the two values that are divided, the baseline's first.
    """

    ratio: Contrast
    terms: tuple[Term, ...]
    by_pass: tuple[Term, ...]
    levels: tuple[float, float]


def _pair(
    cell: CellComparison,
    before: Mapping[CellKey, CellSummary],
    after: Mapping[CellKey, CellSummary],
    metric: Metric,
    in_turn: bool,
) -> _Pair | None:
    """Return the pair that a cell and its counterpart make; None if something prevents a comparison."""
    if cell.why is not None:
        return None
    old, new = (_level(cell.key, cells, metric) for cells in (before, after))
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
    """Return the ratio of two samples in each pass; the terms as they are if too few passes have both."""
    if len(terms) != 2:  # noqa: PLR2004 - a numerator and a denominator
        return terms
    (_, above), (_, below) = terms
    pairs = paired(above, below, fewest)
    return terms if pairs is None else ((1.0, pairs),)


def _judged(cell: CellComparison, pair: _Pair, verdict: SpeedVerdict, tolerance: float) -> CellComparison:
    ratio = pair.ratio.estimate
    why = _doubt(ratio, tolerance, cell) if verdict == "inconclusive" else None
    return replace(cell, verdict=verdict, ratio=ratio, levels=pair.levels, why=why)


def _overall(pairs: Sequence[_Pair]) -> Estimate | None:
    """Return the geometric mean of all ratios.

    What slowed one cell of a pass may have slowed all of them, and all speedups of a run share its loop. So the mean is
    formed in each pass, where that is possible. Otherwise a sample that several ratios share counts once, with the sum
    of its weights.
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
    itself = metric == "speedup" and cell.key == base_of(cell.key)
    return not cell.reference_row and not itself


def _skipped(cell: CellSummary | None) -> bool:
    return cell is None or cell.status == "skipped"


def _beside(
    key: CellKey,
    before: Mapping[CellKey, CellSummary],
    after: Mapping[CellKey, CellSummary],
    metric: Metric,
    names: Names,
) -> CellComparison:
    """Return the cell with what prevents a comparison; ``inconclusive`` without a reason if nothing does."""
    old, new = before[key], after.get(key)
    nothing: tuple[SpeedVerdict, str | None] = ("inconclusive", None)
    gaps, weak = _gaps(old, new, names), _weak(old, new, names)
    verdict, why = next(chain(gaps, _bases(key, before, after, metric, names), weak), nothing)
    failed = _failed(old, new, names)
    if failed is None and metric == "speedup" and (base := base_of(key)) in before:
        failed = _failed(before[base], after.get(base), names, f"{REFERENCE} with one worker ")
    return CellComparison(key, old, new, verdict, why=why, failed=failed)


def _failed(old: CellSummary, new: CellSummary | None, names: Names, which: str = "") -> str | None:
    """Return how the new cell failed if the old one did not, or not in all repeats as the new one; None otherwise.

    ``which`` cell it is comes before that.
    """
    if old.status != "ok" or new is None or not new.failed_repeats or new.reason == INTERRUPTED:
        return None
    if new.status == "failed":
        return f"{names.candidate}: {which}{_lack(new)}"
    if old.failed_repeats:
        return None
    share = f"{new.failed_repeats} of {new.repeats} repeats"
    return f"{names.candidate}: {which}{share} failed: {new.reason or NO_REASON}"


def _gaps(old: CellSummary, new: CellSummary | None, names: Names) -> Iterator[tuple[SpeedVerdict, str]]:
    """Yield why the two cells are no pair."""
    if (lack := _lack(old)) is not None:
        yield "missing" if old.status == "skipped" else "not comparable", f"{names.baseline}: {lack}"
    if new is None:
        yield "missing", f"not in {names.the_candidate}"
        return
    if (lack := _lack(new)) is not None:
        yield "missing", f"{names.candidate}: {lack}"
    if old.struck != new.struck:
        name, cell = (names.baseline, old) if old.struck else (names.candidate, new)
        yield "not comparable", f"{name}: other work than {REFERENCE} ({cell.verdict_reason or 'rows differ'})"
    for name in DECISIVE:
        one, other = getattr(old, name), getattr(new, name)
        if one != other:
            what = name.replace("_", " ")
            yield "not comparable", f"{what}: {one} in {names.the_baseline}, {other} in {names.the_candidate}"


def _bases(
    key: CellKey,
    before: Mapping[CellKey, CellSummary],
    after: Mapping[CellKey, CellSummary],
    metric: Metric,
    names: Names,
) -> Iterator[tuple[SpeedVerdict, str]]:
    """Yield that a run lacks the cell that its speedups are relative to."""
    base = base_of(key)
    for name, cells in ((names.baseline, before), (names.candidate, after)):
        if metric == "speedup" and (base not in cells or not measurable(cells[base].sample)):
            yield "not comparable", f"{name}: {REFERENCE} with one worker has no rate with an interval"


def _weak(old: CellSummary, new: CellSummary | None, names: Names) -> Iterator[tuple[SpeedVerdict, str]]:
    """Yield that a cell has no interval."""
    for name, cell in ((names.baseline, old), (names.candidate, new)):
        if cell is not None and not measurable(cell.sample):
            yield "inconclusive", f"{name}: one window, no interval; measure with --repeats 5"


def _lack(cell: CellSummary) -> str | None:
    """Return why a cell has no rate, None if it has."""
    if cell.status != "ok":
        return f"{cell.status}: {cell.reason or NO_REASON}"
    if not cell.sample.rates:
        return "no window was measured"
    if min(cell.sample.rates) <= 0:
        return "a window without any step"
    return None


def _level(key: CellKey, cells: Mapping[CellKey, CellSummary], metric: Metric) -> tuple[Term, ...]:
    """Return what one run adds to a ratio, each sample with its power: the cell's rate, or that over the loop's."""
    if metric == "fps":
        return ((1.0, cells[key].sample),)
    return (1.0, cells[key].sample), (-1.0, cells[base_of(key)].sample)


def _verdicts(contrasts: Mapping[CellKey, Contrast], tolerance: float) -> dict[CellKey, SpeedVerdict]:
    slower = _beyond_doubt([found.chance_above(1 - tolerance) for found in contrasts.values()])
    faster = _beyond_doubt([found.chance_below(1 + tolerance) for found in contrasts.values()])
    return {
        key: _verdict(found.estimate, tolerance, slower=one, faster=other)
        for (key, found), one, other in zip(contrasts.items(), slower, faster, strict=True)
    }


def _beyond_doubt(chances: Sequence[float]) -> list[bool]:
    together = rejected(chances, FAMILY_LEVEL)
    return [chance <= LEVEL and one for chance, one in zip(chances, together, strict=True)]


def _verdict(ratio: Estimate, tolerance: float, *, slower: bool, faster: bool) -> SpeedVerdict:
    if slower:
        return "slower"
    if faster:
        return "faster"
    return "same" if ratio.low is not None and ratio.low >= 1 - tolerance else "inconclusive"


def _doubt(ratio: Estimate, tolerance: float, cell: CellComparison) -> str:
    """Return why the data cannot decide, and what would help."""
    if ratio.high is not None and ratio.high < 1 - tolerance:
        return "slower if it were the only cell, but one of so many may seem so by chance; measure with more --repeats"
    if cell.candidate is not None and (cell.candidate.sample.one_process or cell.baseline.sample.one_process):
        return "one process is too few to decide; measure both with --repeats 5"
    return "the interval reaches across the tolerance; measure both with more --repeats, or a longer --duration"
