"""What a check came to: from verdicts to a neutral document, and to JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench.backends.registry import REFERENCE
from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.pages.run import Document, Remark, Row, Table, Text, Tone

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vebench.analysis.comparison import CellComparison, Comparison, Metric, Place
    from vebench.analysis.statistics import Estimate
    from vebench.analysis.summary import CellSummary

COLUMNS = ("workers", "verdict", "ratio", "baseline", "candidate")
TONES: dict[str, Tone] = {"faster": "plain", "same": "plain"}
SECOND_CHANCE = "measure it again, in both runs if need be"


@dataclass(frozen=True)
class Check:
    """A comparison with the names of its runs, what else differs between them, and the exit status that it leads to."""

    baseline: str
    candidate: str
    comparison: Comparison
    differences: tuple[str, ...]
    status: int


def comparison_document(check: Check) -> Document:
    """Return a table for each task, a row for each cell, and why verdicts are what they are."""
    found = check.comparison
    envs = dict.fromkeys(cell.place.env for cell in found.cells)
    return Document(
        title=f"Check: {answer(check)}",
        facts=tuple(_facts(check)),
        tables=tuple(_task(env, [cell for cell in found.cells if cell.place.env == env], check) for env in envs),
        legend=(
            f"slower, faster: by more than {percent(found.tolerance)}, beyond doubt, all cells taken together.",
            f"same: not slower by more than {percent(found.tolerance)}. inconclusive: nobody can tell.",
            "±: the true ratio lies within this distance, with 95 % confidence for each cell.",
            "Of several repeats, baseline and candidate are geometric means.",
        ),
        remarks=tuple(_remarks(found)),
    )


def answer(check: Check) -> str:
    """Return the outcome in a few words: ``2 slower, 6 same of 8 cells``."""
    verdicts = [cell.verdict for cell in check.comparison.cells]
    counts = {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)}
    order = ("slower", "missing", "not comparable", "inconclusive", "same", "faster")
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in order if verdict in counts)
    return f"{told} of {figures.counted(len(verdicts), 'cell')}"


def cell_name(place: Place) -> str:
    """Return a cell's name: ``ALE/Pong-v5, shm-sync, 2 workers``."""
    return f"{one_line(place.env)}, {_label(place)}"


def _label(place: Place) -> str:
    envs = f" x {figures.counted(place.envs_per_worker, 'env')}" if place.envs_per_worker > 1 else ""
    return f"{one_line(place.label)}, {figures.counted(place.workers, 'worker')}{envs}"


def percent(share: float) -> str:
    """Return a share as people write it: ``5%``, ``2.5%``."""
    return f"{100 * share:.3g}%"


def sentence(cell: CellComparison) -> str:
    """Return what is to be said of one cell, in a line."""
    ratio = f", ratio {_number(cell.ratio)} ({interval(cell.ratio)})" if cell.ratio else ""
    why = f": {one_line(cell.why)}" if cell.why else ""
    return f"{cell_name(cell.place)}: {cell.verdict}{ratio}{why}"


def interval(ratio: Estimate) -> str:
    """Return both ends of an interval: ``0.921 to 0.948``."""
    return f"{ratio.low:.3f} to {ratio.high:.3f}"


def _number(ratio: Estimate) -> str:
    return f"{ratio.median:.3f}"


def _facts(check: Check) -> Iterator[tuple[str, str]]:
    found = check.comparison
    yield "baseline", one_line(check.baseline)
    yield "candidate", one_line(check.candidate)
    what = "frames/s" if found.metric == "fps" else "speedup over for-loop with one worker of the same run"
    yield "compared", f"{what}, tolerance {percent(found.tolerance)}"
    if found.overall is not None and len(found.cells) > 1:
        yield "all cells", f"{_number(found.overall)} ({interval(found.overall)}), geometric mean"
    if check.differences:
        yield "differs", "; ".join(check.differences)
    if found.skipped:
        yield "left out", f"{figures.counted(len(found.skipped), 'cell')} that could not run in the baseline"
    if found.new:
        yield "not gated", f"{figures.counted(len(found.new), 'cell')} of the candidate that the baseline lacks"


def _task(env: str, cells: Sequence[CellComparison], check: Check) -> Table:
    metric = check.comparison.metric
    unit = "frames/s" if metric == "fps" else "speedup"
    return Table(
        title=f"{one_line(env)}: {unit}",
        corner="backend",
        columns=COLUMNS,
        rows=tuple(
            Row(
                one_line(cell.place.label),
                (
                    Text((_workers(cell.place),)),
                    Text((cell.verdict,), TONES.get(cell.verdict, "missing")),
                    Text((f"{_number(cell.ratio)} {figures.spread(cell.ratio)}" if cell.ratio else "-",)),
                    *(Text((_level(cell, side, metric),)) for side in (0, 1)),
                ),
            )
            for cell in cells
        ),
    )


def _workers(place: Place) -> str:
    envs = f" x {figures.counted(place.envs_per_worker, 'env')}" if place.envs_per_worker > 1 else ""
    return f"{place.workers}{envs}"


def _level(cell: CellComparison, side: int, metric: Metric) -> str:
    """Return what was compared; where nothing was, what there is of it."""
    value = cell.levels[side] if cell.levels is not None else _median((cell.baseline, cell.candidate)[side], metric)
    return "-" if value is None else f"{figures.number(value)}{'' if metric == 'fps' else 'x'}"


def _median(cell: CellSummary | None, metric: Metric) -> float | None:
    if cell is None:
        return None
    estimate = cell.frames_per_second if metric == "fps" else cell.speedup
    return None if estimate is None else estimate.median


def _remarks(found: Comparison) -> Iterator[Remark]:
    """Yield each reason once, with the cells that it holds for."""
    shifted = [cell for cell in found.cells if _is_loop(cell.place) and cell.verdict in ("slower", "faster")]
    if found.metric == "fps" and shifted:
        yield Remark(
            "machine",
            f"{REFERENCE} itself is not as fast as it was: the machine has changed, or what all backends share",
            tuple(f"{cell_name(cell.place)}: {cell.verdict}" for cell in shifted),
            "compare with --metric speedup, from which that cancels, or measure the baseline again",
        )
    groups: dict[tuple[str, str], list[str]] = {}
    for cell in found.cells:
        if cell.why:
            groups.setdefault((cell.verdict, one_line(cell.why)), []).append(cell_name(cell.place))
    for (verdict, why), names in groups.items():
        text, _, remedy = why.partition("; ")
        yield Remark(verdict, text, tuple(names), remedy or SECOND_CHANCE)


def _is_loop(place: Place) -> bool:
    return place.label == REFERENCE and place.workers == 1


def comparison_json(check: Check) -> str:
    """Return the check as a JSON object: the verdicts in ``cells``."""
    found = check.comparison
    return (
        json.dumps(
            {
                "baseline": check.baseline,
                "candidate": check.candidate,
                "metric": found.metric,
                "tolerance": found.tolerance,
                "status": check.status,
                "overall": _estimate(found.overall),
                "differences": list(check.differences),
                "cells": [
                    {
                        "env": cell.place.env,
                        "backend": cell.place.label,
                        "workers": cell.place.workers,
                        "envs_per_worker": cell.place.envs_per_worker,
                        "verdict": cell.verdict,
                        "ratio": _estimate(cell.ratio),
                        "why": cell.why,
                    }
                    for cell in found.cells
                ],
            },
            indent=2,
            ensure_ascii=False,
            allow_nan=False,
        )
        + "\n"
    )


def _estimate(estimate: Estimate | None) -> dict[str, float | None] | None:
    return None if estimate is None else {"median": estimate.median, "low": estimate.low, "high": estimate.high}
