"""The words in which all pages and formats report the comparison of a cell."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.document import DataPage

if TYPE_CHECKING:
    from vebench.analysis.comparison import CellComparison, Comparison
    from vebench.analysis.statistics import Estimate


class VerdictPage(DataPage):
    """A page with the verdicts of a comparison."""

    comparison: Comparison

    @property
    @abstractmethod
    def outcome(self) -> str:
        """The outcome in a few words."""


def sentence(cell: CellComparison) -> str:
    """Return the verdict on one cell in a line, with its ratio and its reason."""
    ratio = f", ratio {ratio_text(cell.ratio)}" if cell.ratio else ""
    why = cell.failed or cell.why
    return f"{figures.cell_name(cell.key)}: {cell.verdict}{ratio}{f': {one_line(why)}' if why else ''}"


def ratio_text(ratio: Estimate) -> str:
    """Return a ratio with its interval."""
    return f"{ratio.median:.3f} {figures.spread(ratio)}"
