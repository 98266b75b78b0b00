"""What a study answers: a sentence with its intervals, a table, why, and what could not be decided.

It is made of the neutral model of documents; it knows neither results nor formats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vebench.reports.document import Table


@dataclass(frozen=True)
class Conclusion:
    """The answer to a study's question.

    ``headline`` is one sentence, with an interval for each figure. ``decided``: whether it says more than that nothing
    could be concluded. ``why`` are further sentences, the most important first. ``undecided`` says what could not be
    decided, and why. ``legend`` is how to read the tables.
    """

    headline: str
    decided: bool
    tables: tuple[Table, ...] = ()
    why: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    legend: tuple[str, ...] = ()
