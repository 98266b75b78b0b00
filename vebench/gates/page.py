"""A check or a comparison as a page: the verdict on every cell with its reason, and facts about the two runs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import sqrt

from vebench.analysis.comparison import POWER, CellComparison, Comparison, GroupComparison, group_of, prior_run_spread
from vebench.backends.registry import REFERENCE, YARDSTICK
from vebench.errors import one_line
from vebench.reports import console, figures
from vebench.reports.console import Outlet
from vebench.reports.document import DataPage, Document, Table, TableRow, Text
from vebench.reports.figures import ratio_text
from vebench.reports.formats import MARKDOWN
from vebench.reports.formats.data import workflow_commands
from vebench.results import store

# The order in the outcome: the most important first.
_ORDER = ("slower", "missing", "not comparable", "inconclusive", "same", "faster")
_COMPARED = {
    "fps": "frames/s",
    "speedup": f"speedup over {REFERENCE} with one worker of the same run; {REFERENCE} over {YARDSTICK}",
    "yardstick": f"rates relative to {YARDSTICK} of the same run",
}
_UNITS = {"fps": "frames/s", "speedup": "speedup", "yardstick": f"frames per step of {YARDSTICK}"}
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
        reasons = [
            (label, why, cell.key)
            for cell in found.cells
            for label, why in ((cell.verdict, cell.why), ("failed", None if cell.why == cell.failed else cell.failed))
        ]
        document = Document(
            title=f"{found.names.command.capitalize()}: {self.outcome}",
            facts=tuple(self._facts()),
            tables=tuple(_table(env, found) for env in dict.fromkeys(cell.key.env for cell in found.cells)),
            legend=(
                f"slower, faster: by more than {tolerance}, significant after correcting for all comparisons{certain}.",
                f"same: not slower by more than {tolerance}. inconclusive: the data cannot decide.",
                "A backend is judged by the mean of its ratios; single cells only if it is slower or faster.",
                "±: the 95 % confidence interval of each ratio.",
                *(() if found.paired else (f"Not detected: {_UNSEEN[found.metric]}.",)),
            ),
            explanations=tuple(figures.explained(reasons)),
            notice=one_line(self.unusable),
        )
        return (document,)

    def _facts(self) -> Iterator[tuple[str, str]]:
        found, names = self.comparison, self.comparison.names
        yield names.baseline, one_line(self.baseline)
        yield names.candidate, one_line(self.candidate)
        yield "compared", f"{_COMPARED[found.metric]}, tolerance {_percent(found.tolerance)}"
        resolved = [group.resolves for group in found.groups if group.resolves is not None]
        if resolved:
            yield "resolves", f"a backend that is {max(resolved):.0%} slower is found in {POWER:.0%} of cases"
        if (spread := found.run_spread) is not None:
            whole = f"by {sqrt(spread.shared.variance):.1%} as a whole and " if spread.shared is not None else ""
            known = "assumed, without --history" if spread == prior_run_spread(found.metric) else "from earlier runs"
            yield "two runs", f"of the same code differ {whole}by {sqrt(spread.own.variance):.1%} per cell ({known})"
        if found.overall is not None and len(found.cells) > 1:
            yield "all cells", f"{ratio_text(found.overall)}, geometric mean"
        if self.differences:
            yield "differs", one_line("; ".join(self.differences))
        if found.skipped:
            yield "left out", f"{figures.counted(len(found.skipped), 'cell')} that could not run {names.left_out}"
        if found.new:
            yield "not gated", f"{figures.counted(len(found.new), 'cell')} only in {names.article}{names.candidate}"
        if found.references:
            rows = " and ".join(sorted({key.backend for key in found.references}))
            yield "not gated", f"{figures.counted(len(found.references), 'cell')} of the reference rows {rows}"

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
            "run_spread": None if spread is None or spread.shared is None else sqrt(spread.shared.variance),
            "cell_spread": None if spread is None else sqrt(spread.own.variance),
        }


def publish_verdicts(page: CheckPage, outlet: Outlet) -> int:
    """Write the verdicts to the places where CI services expect them, and to the outlet. Returns the exit status."""
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        console.save(page, MARKDOWN, store.output(summary), "$GITHUB_STEP_SUMMARY", append=True)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        console.write_error(workflow_commands(page))
    outlet.publish(page)
    return page.status


def _attributes(of: object, *names: str) -> dict[str, object]:
    return {name: getattr(of, name) for name in names}


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _table(env: str, found: Comparison) -> Table:
    """Return a row for each backend that has several cells, and one for each cell."""
    rows: list[TableRow] = []
    for group in found.groups:
        if group.key.env != env:
            continue
        label = one_line(group.key.backend)
        if group.cells > 1:
            judged = "" if group.judged == group.cells else f", {group.judged} judged"
            empty = Text(("",))
            rows.append(TableRow(label, _texts(Text((f"all {group.cells}{judged}",)), group, (empty, empty))))
        for cell in found.cells:
            if group_of(cell.key) == group.key:
                size = f"{cell.key.workers}{figures.times_envs(cell.key.envs_per_worker)}"
                levels = [Text((figures.DASH,))] * 2
                if cell.levels is not None:
                    sign = "x" if found.metric == "speedup" and cell.key.backend != REFERENCE else ""
                    levels = [Text((f"{figures.number(level)}{sign}",), value=level) for level in cell.levels]
                rows.append(TableRow(label, _texts(Text((size,), value=cell.key.workers), cell, levels)))
    sides = found.names.baseline, found.names.candidate
    columns = ("workers", "verdict", "ratio", *sides)
    return Table(f"{one_line(env)}: {_UNITS[found.metric]}", columns, tuple(rows))


def _texts(size: Text, judged: CellComparison | GroupComparison, levels: Iterable[Text]) -> tuple[Text, ...]:
    verdict, ratio = judged.verdict, judged.ratio
    shown = Text((figures.DASH,)) if ratio is None else Text((ratio_text(ratio),), value=ratio)
    named = Text((verdict,), "plain" if verdict in ("faster", "same") else "missing", verdict)
    return (size, named, shown, *levels)
