"""What the two sides of a comparison are called."""

from __future__ import annotations

from typing import NamedTuple


class Names(NamedTuple):
    """The command that compares, and what it calls the first side, the second, and where left-out cells lack.

    ``article`` is what comes before the name of a side within a sentence.
    """

    command: str
    baseline: str
    candidate: str
    left_out: str
    article: str = ""

    @property
    def the_baseline(self) -> str:
        """The first side within a sentence."""
        return self.article + self.baseline

    @property
    def the_candidate(self) -> str:
        """The second side within a sentence."""
        return self.article + self.candidate


CHECK = Names("check", "baseline", "candidate", "in the baseline", "the ")
COMPARE = Names("compare", "A", "B", "on either side")


def of_report(one: str, other: str) -> Names:
    """Return the names of two runs that a report shows side by side, such as A and B."""
    return Names("report", one, other, "in either")
