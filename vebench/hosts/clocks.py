"""Whose clock is how far ahead: offsets of other hosts' clocks, with what they may be wrong by.

The method is F. Cristian's (Distributed Computing 3, 1989): of many round trips the shortest says the most, since the
other clock was read somewhere within it. Time of day is never compared, so that no host needs to be set right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TRIPS = 200
# Where a trip takes long, there are fewer of them: they end after so many nanoseconds.
LONGEST_NS = 1_000_000_000
# What a measured window may be moved by, as a share of it, before its rate is refused.
MOST_ERROR = 0.01


@dataclass(frozen=True)
class Offset:
    """Another clock is ``ns`` nanoseconds ahead of ours, give or take ``error_ns``."""

    ns: int
    error_ns: int

    def there(self, here_ns: int) -> int:
        """Return the time of the other clock at a time of ours."""
        return here_ns + self.ns

    def here(self, there_ns: int) -> int:
        """Return the time of our clock at a time of the other."""
        return there_ns - self.ns


SAME = Offset(0, 0)


class RoundTrips:
    """Round trips to another clock, one after the other, until enough is known of it. ``near`` reads ours; both ns."""

    def __init__(self, near: Callable[[], int], trips: int = TRIPS) -> None:
        self._near, self._left = near, trips
        self._sent = 0
        self._until: int | None = None
        self._found: Offset | None = None

    def begin(self) -> None:
        """Note that the other clock is asked now."""
        self._sent = self._near()
        if self._until is None:
            self._until = self._sent + LONGEST_NS

    def end(self, there: int) -> Offset | None:
        """Note what it has answered, and return its offset; None if it is to be asked again."""
        came = self._near()
        error = (came - self._sent + 1) // 2
        if self._found is None or error < self._found.error_ns:
            self._found = Offset(there - (self._sent + came) // 2, error)
        self._left -= 1
        return self._found if self._left <= 0 or self._until is None or came > self._until else None


def with_drift(before: Offset, after: Offset) -> Offset:
    """Return the offset that was measured before, with what it may be off by until another was measured, after.

    Both clocks run at a steady pace for so long, so that the offset moved from the one to the other and not further.
    """
    return Offset(before.ns, max(before.error_ns, after.error_ns) + abs(after.ns - before.ns))


def too_uncertain(offset: Offset, window_ns: int) -> bool:
    """Return whether a window of this length may be moved by more than ``MOST_ERROR`` of it."""
    return offset.error_ns > MOST_ERROR * window_ns
