"""What GitHub understands: annotations of a check, and rates for github-action-benchmark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from vebench.reports import figures
from vebench.reports.formats.series import entries
from vebench.reports.pages.check import sentence

if TYPE_CHECKING:
    from vebench.reports.pages.check import Check
    from vebench.reports.pages.run import Report

# Both are written so in a workflow command (github.com/actions/toolkit, packages/core/src/command.ts).
ESCAPES = {"%": "%25", "\r": "%0D", "\n": "%0A"}
PROPERTY_ESCAPES = {**ESCAPES, ":": "%3A", ",": "%2C"}
LEVELS = {"slower": "error", "missing": "warning", "not comparable": "warning", "inconclusive": "warning"}


def workflow_commands(check: Check) -> str:
    """Return a workflow command for each cell that is slower, or of which nobody can tell."""
    return "".join(
        f"::{LEVELS[cell.verdict]} title={_escaped(f'vebench: {cell.verdict}', PROPERTY_ESCAPES)}::"
        f"{_escaped(sentence(cell), ESCAPES)}\n"
        for cell in check.comparison.cells
        if cell.verdict in LEVELS
    )


def _escaped(text: str, escapes: dict[str, str]) -> str:
    return "".join(escapes.get(character, character) for character in text)


def render(report: Report) -> str:
    """Return rates as github-action-benchmark's ``customBiggerIsBetter``."""
    return (
        json.dumps(
            [
                {
                    "name": entry.name,
                    "unit": "frames/s",
                    "value": entry.rate.median,
                    "range": figures.spread(entry.rate),
                    "extra": entry.note,
                }
                for entry in entries(report)
            ],
            indent=2,
            ensure_ascii=False,
            allow_nan=False,
        )
        + "\n"
    )
