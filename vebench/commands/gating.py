"""What ``check`` and ``compare`` share: checks of the request, the exit status, and where verdicts are published."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from vebench.analysis.cell import in_report_order
from vebench.analysis.rules import unusable
from vebench.analysis.summary import summarise
from vebench.errors import UsageError, one_line
from vebench.reports import console
from vebench.reports.formats.registry import JUNIT, MARKDOWN
from vebench.reports.formats.services import workflow_commands
from vebench.reports.output import save, show
from vebench.results import paths, store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.comparison import Comparison
    from vebench.analysis.pairing import SpeedVerdict
    from vebench.reports.formats.registry import Format
    from vebench.reports.pages.check import CheckPage
    from vebench.results.records import Run

DONE, WORSE, UNDECIDED = 0, 1, 3
_MOST_TOLERANCE = 0.9
_NO_ANSWER: tuple[SpeedVerdict, ...] = ("missing", "not comparable")


def check_tolerance(share: float) -> None:
    """Raise UsageError for a tolerance with which every cell, or none, would pass."""
    if not 0 < share <= _MOST_TOLERANCE:
        raise UsageError(f"--tolerance {share:.4g}: must be above 0 and at most {_MOST_TOLERANCE:.0%}")


def classes_that_differ(one: Sequence[CellSummary], other: Sequence[CellSummary]) -> tuple[str, ...]:
    """Return, in words and each once, which cells of the two runs stepped other classes: own ones or Gymnasium's."""
    before = {cell.key: cell.own_classes for cell in one}
    pairs = [(cell, before.get(cell.key), cell.own_classes) for cell in other]
    texts = (
        f"{cell.label} on {cell.env}: {first.words} against {second.words}"
        for cell, first, second in pairs
        if first and second and first.words != second.words
    )
    return tuple(dict.fromkeys(texts))


def check_target(junit: Path, files: Sequence[Path]) -> None:
    """Raise UsageError if ``junit`` is a run file or a folder, or its folder is missing. Call this before measuring.

    ``files`` are the run files, including those that will be written.
    """
    store.refuse_to_overwrite(junit, files, "--junit")
    if junit in files:
        raise UsageError(f"--junit {junit}: is also the run file: name another file")
    if junit.is_dir() or not junit.parent.is_dir():
        raise UsageError(f"--junit {junit}: name a file in a folder that exists")


def exit_status(found: Comparison) -> int:
    """Return the exit status: 1 if a backend is slower, or a cell failed that did not in the baseline.

    It is 3 if a cell or a backend has no answer, or if there is none at all, and 0 otherwise.
    """
    verdicts = {group.verdict for group in found.groups}
    if "slower" in verdicts or any(cell.failed for cell in found.cells):
        return WORSE
    unanswered = not verdicts or (verdicts | {cell.verdict for cell in found.cells}) & set(_NO_ANSWER)
    return UNDECIDED if unanswered or "inconclusive" in verdicts else DONE


def unusable_run(path: Path, cells: Sequence[CellSummary]) -> str:
    """Return that the run in ``path`` is unusable, and why, in one line; empty if it may be used."""
    finding = unusable(cells)
    return "" if finding is None else f"{path} is {finding.code}: {finding.message}; {finding.remedy}"


def without_verdicts(found: Comparison, why: str) -> Comparison:
    """Return the comparison with no verdict on the speed of any cell, for the reason ``why``."""
    cells = (
        cell if cell.verdict in _NO_ANSWER else replace(cell, verdict="not comparable", why=why) for cell in found.cells
    )
    groups = (replace(group, verdict="not comparable", why=why) for group in found.groups)
    return replace(found, cells=tuple(cells), groups=tuple(groups))


def publish(page: CheckPage, form: Format, junit: Path | None) -> None:
    """Write the verdicts to the places where CI services expect them, and print them in ``form``."""
    if junit is not None:
        save(page, JUNIT, junit, "--junit")
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        save(page, MARKDOWN, paths.output(summary), "$GITHUB_STEP_SUMMARY", append=True)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        console.write_error(workflow_commands(page))
    show(page, form)


def cells_of(run: Run, path: Path) -> tuple[CellSummary, ...]:
    """Return a run's cells in the order of reports. Findings quote the name of its file."""
    return in_report_order(summarise(run, one_line(str(path))), run.header.spec)
