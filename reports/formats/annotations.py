"""The annotations that GitHub shows beside a workflow: one for each cell that needs attention.

It is not in the table of formats: nobody asks for it by name. It is written whenever a check or a comparison runs in
such a workflow, beside the format that was asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.reports.pages.check import sentence

if TYPE_CHECKING:
    from vebench.reports.pages.check import CheckPage

# Both are written so in a workflow command (github.com/actions/toolkit, packages/core/src/command.ts).
ESCAPES = {"%": "%25", "\r": "%0D", "\n": "%0A"}
PROPERTY_ESCAPES = {**ESCAPES, ":": "%3A", ",": "%2C"}
LEVELS = {"slower": "error", "missing": "warning", "not comparable": "warning", "inconclusive": "warning"}


def workflow_commands(page: CheckPage) -> str:
    """Return a workflow command for each cell that is slower or failed, or whose verdict is not known."""
    return "".join(
        f"::{level} title={_escaped(f'vebench: {cell.verdict}', PROPERTY_ESCAPES)}::"
        f"{_escaped(sentence(cell), ESCAPES)}\n"
        for cell in page.comparison.cells
        if (level := "error" if cell.failed else LEVELS.get(cell.verdict))
    )


def _escaped(text: str, escapes: dict[str, str]) -> str:
    return "".join(escapes.get(character, character) for character in text)
