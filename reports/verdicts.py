"""The words in which all pages and formats report the comparison of a cell."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.document import DataPage, Remark

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vebench.analysis.comparison import Comparison
    from vebench.analysis.pairing import CellComparison
    from vebench.analysis.statistics import Estimate
    from vebench.plan.cells import CellKey

_MEASURE_AGAIN = "measure it again, on both sides if necessary"


class VerdictPage(DataPage):
    """A page with the verdicts of a comparison."""

    comparison: Comparison

    @property
    @abstractmethod
    def outcome(self) -> str:
        """The outcome in a few words."""


def cell_name(key: CellKey) -> str:
    """Return a cell's name: ``ALE/Pong-v5, shm-sync, 2 workers``."""
    return f"{one_line(key.env)}, {one_line(key.backend)}, {key.size}"


def sentence(cell: CellComparison) -> str:
    """Return the verdict on one cell in a line, with its ratio and its reason."""
    ratio = f", ratio {ratio_text(cell.ratio)}" if cell.ratio else ""
    why = cell.failed or cell.why
    return f"{cell_name(cell.key)}: {cell.verdict}{ratio}{f': {one_line(why)}' if why else ''}"


def ratio_text(ratio: Estimate) -> str:
    """Return a ratio with its interval."""
    return f"{ratio.median:.3f} {figures.spread(ratio)}"


def explained(reasons: Iterable[tuple[str, str | None, CellKey]]) -> Iterator[Remark]:
    """Yield each label and reason once, with the cells that it applies to and a remedy."""
    groups = figures.by_key(((label, one_line(why)), cell_name(key)) for label, why, key in reasons if why)
    for (label, why), names in groups.items():
        text, _, remedy = why.partition("; ")
        yield Remark(label, text, tuple(names), remedy or _MEASURE_AGAIN)
