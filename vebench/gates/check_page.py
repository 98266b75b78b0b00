"""A check or a comparison as a page: the verdict on every cell with its reason, and facts about the two runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

from vebench.analysis.cell import is_base
from vebench.analysis.comparison import (
    CHECK,
    POWER,
    CellComparison,
    Comparison,
    GroupComparison,
    Metric,
    group_of,
    prior_run_spread,
)
from vebench.analysis.statistics import Error
from vebench.backends.registry import REFERENCE, YARDSTICK
from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.document import DataPage, Document, Remark, Table, TableRow, Text
from vebench.reports.figures import ratio_text

_COLUMNS = ("workers", "verdict", "ratio")  # the two sides follow
# The order in the outcome: the most important first.
_ORDER = ("slower", "missing", "not comparable", "inconclusive", "same", "faster")
_GOOD = ("faster", "same")
_COMPARED = {
    "fps": "frames/s",
    "speedup": f"speedup over {REFERENCE} with one worker of the same run; {REFERENCE} over {YARDSTICK}",
    "yardstick": f"rates relative to {YARDSTICK} of the same run",
}
_UNITS = {"fps": "frames/s", "yardstick": f"frames per step of {YARDSTICK}"}
_UNSEEN = {
    "fps": "whether the code or the machine has changed",
    "speedup": f"a slowdown that {REFERENCE} shares, such as a slower environment: see the verdict on {REFERENCE}",
    "yardstick": f"effects that differ between {YARDSTICK} and environments, such as caches or the CPU model",
}


@dataclass(frozen=True)
class CheckPage(DataPage):
    """A comparison of two runs."""

    baseline: str
    candidate: str
    comparison: Comparison
    differences: tuple[str, ...]  # between the conditions of the runs
    status: int
    unusable: str = ""  # which runs are unusable, and why
    kind = "check"

    @property
    def outcome(self) -> str:
        """The outcome in a few words: ``2 slower, 6 same of 8 cells``."""
        verdicts = [cell.verdict for cell in self.comparison.cells]
        counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in _ORDER if verdict in verdicts)
        return f"{counts} of {figures.counted(len(verdicts), 'cell')}"

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: a table for each task with its backends and cells, and the reasons of verdicts."""
        found = self.comparison
        tolerance = _percent(found.tolerance)
        certain = "" if found.paired else ", and for how runs of the same code differ"
        unseen = () if found.paired else (f"Not detected: {_UNSEEN[found.metric]}.",)
        envs = dict.fromkeys(cell.key.env for cell in found.cells)
        document = Document(
            title=f"{found.names.command.capitalize()}: {self.outcome}",
            facts=tuple(_facts(self)),
            tables=tuple(_table(env, found) for env in envs),
            legend=(
                f"slower, faster: by more than {tolerance}, significant after correcting for all comparisons{certain}.",
                f"same: not slower by more than {tolerance}. inconclusive: the data cannot decide.",
                "A backend is judged by the mean of its ratios; single cells only if it is slower or faster.",
                "±: the 95 % confidence interval of each ratio, ─ in the last column. ¦: the tolerance, │: no change.",
                *unseen,
            ),
            explanations=tuple(_explanations(found)),
            notice=one_line(self.unusable),
        )
        return (document,)

    @property
    def data(self) -> dict[str, object]:
        """The check, with the verdicts in ``cells``."""
        found, spread = self.comparison, self.comparison.run_spread
        return {
            "baseline": self.baseline,
            "candidate": self.candidate,
            "metric": found.metric,
            "tolerance": found.tolerance,
            "status": self.status,
            "overall": found.overall,
            "differences": self.differences,
            "cells": [
                _attributes(cell.key, "env", "backend", "workers", "envs_per_worker")
                | _attributes(cell, "verdict", "ratio", "why", "failed")
                for cell in found.cells
            ],
            "groups": [
                _attributes(group.key, "env", "backend")
                | _attributes(group, "verdict", "ratio", "cells", "judged", "why", "resolves")
                for group in found.groups
            ],
            "run_spread": None if spread is None or spread.shared is None else _deviation(spread.shared),
            "cell_spread": None if spread is None else _deviation(spread.own),
        }


def _attributes(of: object, *names: str) -> dict[str, object]:
    return {name: getattr(of, name) for name in names}


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _facts(page: CheckPage) -> Iterator[tuple[str, str]]:
    found, names = page.comparison, page.comparison.names
    yield names.baseline, one_line(page.baseline)
    yield names.candidate, one_line(page.candidate)
    yield "compared", f"{_COMPARED[found.metric]}, tolerance {_percent(found.tolerance)}"
    resolved = [group.resolves for group in found.groups if group.resolves is not None]
    if resolved:
        yield "resolves", f"a backend that is {max(resolved):.0%} slower is found in {POWER:.0%} of cases"
    if (spread := found.run_spread) is not None:
        whole = f"by {_deviation(spread.shared):.1%} as a whole and " if spread.shared is not None else ""
        known = "assumed, without --history" if spread == prior_run_spread(found.metric) else "from earlier runs"
        yield "two runs", f"of the same code differ {whole}by {_deviation(spread.own):.1%} per cell ({known})"
    if found.overall is not None and len(found.cells) > 1:
        yield "all cells", f"{ratio_text(found.overall)}, geometric mean"
    if page.differences:
        yield "differs", one_line("; ".join(page.differences))
    if found.skipped:
        yield "left out", f"{figures.counted(len(found.skipped), 'cell')} that could not run {names.left_out}"
    rows = " and ".join(sorted({key.backend for key in found.references}))
    not_gated = [
        f"{figures.counted(len(keys), 'cell')} {which}"
        for keys, which in (
            (found.new, f"only in {names.the_candidate}"),
            (found.references, f"of the reference rows {rows}"),
        )
        if keys
    ]
    if not_gated:
        yield "not gated", "; ".join(not_gated)


def _deviation(error: Error) -> float:
    return sqrt(error.variance)


def _table(env: str, found: Comparison) -> Table:
    rows: list[TableRow] = []
    for group in found.groups:
        if group.key.env == env:
            rows += _rows(group, found)
    names = found.names
    return Table(
        title=f"{one_line(env)}: {_UNITS.get(found.metric, found.metric)}",
        columns=(*_COLUMNS, names.baseline, names.candidate, f"1 ± {_percent(2 * found.tolerance)}"),
        rows=tuple(rows),
    )


def _rows(group: GroupComparison, found: Comparison) -> Iterator[TableRow]:
    """Yield a row for a backend if it has several cells, and one for each of its cells."""
    label = one_line(group.key.backend)
    if group.cells > 1:
        judged = "" if group.judged == group.cells else f", {group.judged} judged"
        empty = Text(("",))
        yield TableRow(
            label, (Text((f"all {group.cells}{judged}",)), *_verdict(group), empty, empty, _bar(group, found))
        )
    for cell in found.cells:
        if group_of(cell.key) == group.key:
            size = f"{cell.key.workers}{figures.times_envs(cell.key.envs_per_worker)}"
            workers = Text((size,), value=cell.key.workers)
            levels = (_level(cell, side, found.metric) for side in (0, 1))
            yield TableRow(label, (workers, *_verdict(cell), *levels, _bar(cell, found)))


def _verdict(judged: CellComparison | GroupComparison) -> tuple[Text, Text]:
    verdict, ratio = judged.verdict, judged.ratio
    return (
        Text((verdict,), "plain" if verdict in _GOOD else "missing", verdict),
        Text((figures.DASH,)) if ratio is None else Text((ratio_text(ratio),), value=ratio),
    )


def _bar(judged: CellComparison | GroupComparison, found: Comparison) -> Text:
    ratio = judged.ratio
    return Text(("",)) if ratio is None else Text((figures.on_axis(ratio, found.tolerance),), value=ratio)


def _level(cell: CellComparison, side: int, metric: Metric) -> Text:
    """Return the level compared on side 0 (baseline) or 1 (candidate), or the median if none was compared."""
    value = None
    if cell.levels is not None:
        value = cell.levels[side]
    elif (summary := (cell.baseline, cell.candidate)[side]) is not None:
        estimate = {"fps": summary.frames_per_second, "speedup": summary.speedup}.get(metric)
        value = None if estimate is None else estimate.median
    if value is None:
        return Text((figures.DASH,))
    sign = "x" if metric == "speedup" and cell.key.backend != REFERENCE else ""
    return Text((f"{figures.number(value)}{sign}",), value=value)


def _explanations(found: Comparison) -> Iterator[Remark]:
    shifted = [cell for cell in found.cells if is_base(cell.key) and cell.verdict in ("slower", "faster")]
    if found.metric == "fps" and shifted and found.names == CHECK:
        yield Remark(
            "machine",
            f"the rate of {REFERENCE} itself has changed: the machine differs, or something that all backends share",
            tuple(f"{figures.cell_name(cell.key)}: {cell.verdict}" for cell in shifted),
            "compare with --metric yardstick, which cancels the speed of the machine",
        )
    yield from figures.explained(
        (label, why, cell.key)
        for cell in found.cells
        for label, why in ((cell.verdict, cell.why), ("failed", None if cell.why == cell.failed else cell.failed))
    )
