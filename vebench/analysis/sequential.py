"""A gate that looks at its data after every pass, and stops when it knows. Pure functions.

Whoever tests at 5 % after each pass finds a difference that is not there far more often than in 5 % of cases. So the
5 % are spent: each look gets what the spending function has grown by since the look before (K. Lan, D. DeMets, Discrete
sequential boundaries for clinical trials, Biometrika 70, 1983). All looks together then keep the level, however they
depend on each other and however many there are. The function is the share of the budget, squared (K. Kim, D. DeMets,
Design and analysis of group sequential tests based on the type I error spending rate function, Biometrika 74, 1987): it
leaves most of the level to the end, and enough to the beginning for what is clear at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.analysis.comparison import FAMILY_LEVEL, SAME_LEVEL, Levels

if TYPE_CHECKING:
    from vebench.analysis.comparison import Comparison, GroupKey

POWER_OF_SHARE = 2
DECIDED = ("slower", "faster", "same")


class Looks:
    """How much of the levels is spent. ``share`` of the budget was used at the last look, 0 to 1."""

    def __init__(self) -> None:
        self._spent = 0.0

    def at(self, share: float) -> Levels:
        """Return the levels of a look at which this share of the budget is used, 1 for the last one."""
        grown = min(1.0, max(0.0, share)) ** POWER_OF_SHARE
        part, self._spent = max(0.0, grown - self._spent), max(grown, self._spent)
        return Levels(FAMILY_LEVEL * part, SAME_LEVEL * part)


def undecided(found: Comparison) -> frozenset[GroupKey]:
    """Return the groups that more passes could decide."""
    return frozenset(group.key for group in found.groups if group.judged and group.verdict == "inconclusive")
