"""Compares the times that a cell claims for its windows with the clock of the process that started it."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from vebench.child.answers import Begins, Done, ReplicaWindow
from vebench.child.window import Window
from vebench.engine.conversation import CellError
from vebench.interpreters.news import wakeful

if TYPE_CHECKING:
    from collections.abc import Callable

    from vebench.child.answers import Answer

OTHER_PACE = "its clock runs at another pace than the runner's"
# How much longer than its claim a window may seem: a share of it, and nanoseconds. This process may get the word that a
# window is over too late, but not of most windows. One that was stopped for less than half a second does not know it:
# where there are too few windows for a median, all of them must be longer than that explains.
SHARE, SLACK_NS, ENOUGH = 0.1, 100_000_000, 3
SHARE_OF_FEW, SLACK_OF_FEW_NS = 0.2, 700_000_000
# All windows together cannot take longer than the process has lived; clocks differ by less than this share.
CLOCKS_DIFFER = 0.01


class Pace:
    """The windows of a cell by two clocks. ``clock`` returns nanoseconds; the cell's process has just been started."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._started = self._since = clock()
        self._sure = True
        self._claimed = 0
        self._lapses = wakeful.lapses
        self._excess: list[tuple[float, float]] = []

    def heard(self, answer: Answer) -> None:
        """Note an answer of the cell. Raises CellError at its end if the cell's clock runs at another pace."""
        if self._lapses != wakeful.lapses:
            self._lapses = wakeful.lapses
            self.late()
        match answer:
            case Begins():
                self.begins()
            case Window():
                self.ended(answer.ns)
            case ReplicaWindow():
                self.ended(answer.window.ns)
            case Done() if fault := self.fault:
                raise CellError(fault)

    def begins(self) -> None:
        """Note that a window begins now. Without this word, one begins where the last has ended."""
        self._since, self._sure = self._clock(), True

    def late(self) -> None:
        """Note that this process has not been running for a while: of this window nothing is known."""
        self._sure = False

    def ended(self, claimed_ns: int) -> None:
        """Note that a window has ended, which claims to have taken so many nanoseconds."""
        now = self._clock()
        over = now - self._since - claimed_ns
        self._claimed += claimed_ns
        if self._sure:
            self._excess.append(
                (over - SHARE * claimed_ns - SLACK_NS, over - SHARE_OF_FEW * claimed_ns - SLACK_OF_FEW_NS)
            )
        self._since, self._sure = now, True

    @property
    def fault(self) -> str | None:
        """In words what is wrong with the cell's clock, None if nothing can be said against it."""
        lived = self._clock() - self._started
        if self._claimed > (1 + CLOCKS_DIFFER) * lived:
            claim, whole = self._claimed / 1e9, lived / 1e9
            return f"{OTHER_PACE}: it claims windows of {claim:.2f} s in all, and has lived for {whole:.2f} s"
        if not self._excess:
            return None
        many = len(self._excess) >= ENOUGH
        excess = median(one for one, _ in self._excess) if many else min(few for _, few in self._excess)
        return f"{OTHER_PACE}: its windows take longer than it claims" if excess > 0 else None
