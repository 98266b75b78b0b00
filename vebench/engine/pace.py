"""Compares the times that a cell claims for its windows with the clock of the process that started it."""

from __future__ import annotations

from math import sqrt
from statistics import median
from typing import TYPE_CHECKING

from vebench.child.answers import Begins, Done, Ends, Ready, ReplicaWindow
from vebench.child.window import Window
from vebench.engine.conversation import CellError
from vebench.interpreters.waiting import Wakeful, wakeful

if TYPE_CHECKING:
    from collections.abc import Callable

    from vebench.child.answers import Answer

OTHER_PACE = "its clock runs at another pace than the runner's"
# By how much windows may take longer than they claim: a share of their time, and as many nanoseconds for each as the
# words of its begin and end may differ in how late they come. These differences are independent of each other, so that
# their sum grows with the square root of the number of windows. Added to them are what others took of the CPU, and
# SPREADS times the spread of the differences (1.48 median absolute deviations, as much as a standard deviation).
SHARE, _SLACK_NS, _SPREADS = 0.02, 150_000_000, 3 * 1.48
# A process that was stopped for less than half a second does not know it. The median over ENOUGH windows ignores one
# that this has hit. Of fewer windows, each must take longer than it explains.
_ENOUGH, _SLACK_OF_FEW_NS = 3, 700_000_000
# A cell cannot have lived, or measured, for longer than since it was started. Clocks differ by less than this share,
# and this process may have noted the start so late.
_CLOCKS_DIFFER, _LATE_NS = 0.01, 100_000_000


class Pace:
    """The windows of a cell by two clocks. ``clock`` returns nanoseconds; the cell's process has just been started."""

    def __init__(self, clock: Callable[[], int], waiting: Wakeful = wakeful) -> None:
        self._clock = clock
        self._waiting = waiting
        self._started = self._since = clock()
        self._seen = (waiting.waits, waiting.lapses)
        self._cpus = 1
        self._claimed = self._passed = 0
        self._late = True
        self._windows: list[tuple[int, float, int]] = []
        self._fast: str | None = None

    def heard(self, answer: Answer) -> None:
        """Note an answer of the cell. Raises CellError at its end if the cell's clock runs at another pace."""
        # It is not known when an answer came that nobody was waiting for.
        (waits, lapses), self._seen = self._seen, (self._waiting.waits, self._waiting.lapses)
        late = self._waiting.waits == waits or self._waiting.lapses != lapses
        match answer:
            case Ready():
                self._cpus = len(answer.layout.affinity or (0,))
            case Begins():
                self._since = self._clock()
            case Ends():
                self._passed, self._late = self._clock() - self._since - answer.reading_ns, late
                self._check_life(answer.lived_ns)
            case Window():
                self._ended(answer)
            case ReplicaWindow():
                self._ended(answer.window)
            case Done() if fault := self.fault:
                raise CellError(fault)

    def _check_life(self, claimed: int) -> None:
        """Note that the cell says that it has lived or measured for so long."""
        lived = self._clock() - self._started
        if claimed > (1 + _CLOCKS_DIFFER) * lived + _LATE_NS:
            self._fast = f"{OTHER_PACE}: it counts {claimed / 1e9:.2f} s, and has lived for {lived / 1e9:.2f} s"

    def _ended(self, window: Window) -> None:
        self._claimed += window.ns
        self._check_life(self._claimed)
        if not self._late:
            self._windows.append((self._passed - window.ns, SHARE * window.ns, window.taken_ns // self._cpus))

    @property
    def fault(self) -> str | None:
        """In words what is wrong with the cell's clock, None if nothing can be said against it."""
        if self._fast is None and _beyond(self._windows):
            return f"{OTHER_PACE}: its windows take longer than it claims"
        return self._fast


def _beyond(windows: list[tuple[int, float, int]]) -> bool:
    """Return whether windows take longer than their claims by more than chance explains.

    ``windows``: for each, by how many nanoseconds it does, its share of what clocks may differ, and what others took.
    """
    if len(windows) < _ENOUGH:
        return bool(windows) and all(
            over > share + (_SLACK_OF_FEW_NS + taken) / sqrt(len(windows)) for over, share, taken in windows
        )
    middle = median(over for over, _, _ in windows)
    spread = _SPREADS * median(abs(over - middle) for over, _, _ in windows)
    return (
        median(over - share - (_SLACK_NS + taken + spread) / sqrt(len(windows)) for over, share, taken in windows) > 0
    )
