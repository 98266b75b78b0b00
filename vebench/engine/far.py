"""A replica on another host, as the runner sees any replica."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from vebench.child.answers import Begins, Done, Ends, HostShare, ReplicaWindow
from vebench.child.window import too_much
from vebench.engine.conversation import CellError, InterruptedCellError, decode
from vebench.engine.pace import Pace
from vebench.hosts.site import ANSWER_S, LostHostError
from vebench.interpreters.waiting import wakeful

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vebench.child.answers import Answer
    from vebench.child.request import Request
    from vebench.child.window import Window
    from vebench.hosts.site import Site
    from vebench.interpreters.waiting import Interrupts

_NANO = 1e-9
# So many round trips are made to its clock, one after the other.
_TRIPS = 10
# By how much a clock may be wrong: a few milliseconds, or this share of a window.
MOST_ERROR_S, MOST_ERROR = 5e-3, 0.01
# After its last window, a backend may take this long to close before it is ended.
_CLOSE_S = 10.0
# A host ends a replica by itself so long after it should have been told to.
_GRACE_S = 30.0


class Offset(NamedTuple):
    """Another clock is ``ns`` nanoseconds ahead of ours, give or take ``error_ns``."""

    error_ns: int
    ns: int


class FarReplica:
    """A replica on the host of ``site``, which has a clock of its own.

    Its clock is asked for, and it is started: that goes on whenever one looks, so that no host waits for another.
    ``timeout`` is in seconds. Raises LostHostError.

    Of several round trips to a clock the shortest says the most, since the clock was read somewhere within it
    (F. Cristian, Distributed Computing 3, 1989). Time of day is never compared, so that no host needs to be set right.
    """

    def __init__(self, site: Site, request: Request, timeout: float, interrupts: Interrupts) -> None:
        self._site, self._request, self._timeout, self._interrupts = site, request, timeout, interrupts
        self._deadline = wakeful() + timeout
        self._pace = Pace(time.perf_counter_ns)
        self._trips: list[Offset] = []
        self._offset: Offset | None = None  # known once it is started
        self._windows: list[Window] = []
        self._is_done = False
        self._may_close_until = 0.0
        self._ends_until: float | None = None  # once it was told to
        self._log: str | None = None  # known once it has ended
        _ = site.facts  # which takes as long as to reach it; all else is answered at once
        self._ask()

    @property
    def news(self) -> tuple[int, ...]:
        """Descriptors of which one can be read when it has answered, is lost, or the user wants to stop."""
        return self._site.fileno(), self._interrupts.fileno()

    def look(self) -> Answer | None:
        """Return its next answer, None if that has not come yet. Raises CellError if none will."""
        if self._interrupts.requested:
            raise InterruptedCellError("interrupted")
        try:
            while wakeful() <= self._deadline and (line := self._site.heard()) is not None:
                if (answer := self._heard(line)) is not None:
                    return answer
        except LostHostError as error:
            raise CellError(str(error)) from None
        if wakeful() > self._deadline:
            raise CellError(f"no end after {self._timeout:g} s (--timeout)")
        if self._asked is not None and wakeful() > self._answers_until:
            raise CellError(f"no answer for {ANSWER_S:g} s")
        return None

    def _ask(self) -> None:
        """Ask for its clock."""
        self._asked_ns = time.perf_counter_ns()
        self._asked: int | None = self._site.ask_clock()
        self._answers_until = wakeful() + ANSWER_S

    def _told(self, there_ns: int) -> None:
        """Note its time, and start it once enough is known of its clock. Raises CellError if that is too little."""
        came_ns = time.perf_counter_ns()
        self._trips.append(Offset((came_ns - self._asked_ns + 1) // 2, there_ns - (self._asked_ns + came_ns) // 2))
        if len(self._trips) < _TRIPS:
            self._ask()
            return
        self._asked, found = None, min(self._trips)
        error = found.error_ns * _NANO
        if error > max(MOST_ERROR_S, MOST_ERROR * self._request.settings.duration):
            raise CellError(
                f"its clock is known to {error:.2g} s only, more than {MOST_ERROR:.0%} of a window: give a longer "
                "--duration"
            )
        self._offset = found
        self._site.start(self._request.as_json(), self._timeout + _GRACE_S)

    def _heard(self, line: dict[str, Any]) -> Answer | None:
        """Return the answer that a line has for others, None if there is none. Raises CellError, LostHostError."""
        if "clock" in line and line["clock"] == self._asked:
            self._told(line["ns"])
            return None
        if self._offset is None or line.get("cell") != self._site.cell:
            return None  # of one before
        if "ended" in line:
            self._log = line["log"]
            if not self._is_done:
                raise CellError(line["ended"])
            return None
        return self._answered(line["line"], self._offset) if "line" in line else None

    def _answered(self, text: str, offset: Offset) -> Answer | None:
        """Return an answer of the cell for others, in our time; None if it is none."""
        try:
            answer = decode(text.encode())
        except ValueError as error:
            raise CellError(f"its answer cannot be read: {error}") from None
        self._pace.heard(answer)
        if isinstance(answer, Begins | Ends):
            return None
        if isinstance(answer, Done):
            self._is_done, self._may_close_until = True, wakeful() + _CLOSE_S
            return replace(answer, hosts=(self._share(offset),))
        if isinstance(answer, ReplicaWindow):
            self._windows.append(answer.window)
            return replace(answer, start_ns=max(0, answer.start_ns - offset.ns))
        return answer

    def start(self, at_ns: int) -> None:
        """Tell it when its first window begins, in nanoseconds of our clock. A host that is lost says so later."""
        if self._offset is not None:
            with suppress(LostHostError):
                self._site.tell(say=str(at_ns + self._offset.ns))

    def log(self) -> str:
        """Return the end of what it printed. One that is not done is ended for that."""
        if not self._is_done:
            self.end()
        return self._log or ""

    def tell_to_end(self) -> None:
        """Let it be ended, without waiting for that. One that is done may first close its backend."""
        if not self._is_done:
            self._tell_to_end()

    def _tell_to_end(self) -> None:
        if self._offset is not None and self._ends_until is None and self._log is None:
            self._ends_until = wakeful() + ANSWER_S
            self._site.tell_to_end()

    def end(self) -> None:
        """End it, unless it has ended."""
        if self._is_done and self._log is None:
            with suppress(KeyboardInterrupt):  # it is ended without more time, then
                self._log = self._site.log_at_end(self._may_close_until - wakeful(), heeding=True)
        self._tell_to_end()
        if self._ends_until is not None and self._log is None:
            self._log = self._site.log_at_end(self._ends_until - wakeful())

    def _share(self, offset: Offset) -> HostShare:
        """Return what it did."""
        spent = sum(window.ns for window in self._windows)
        steps = sum(window.transitions for window in self._windows)
        taken = sum(window.taken_ns for window in self._windows)
        cpus = len(self._request.setup.cpus)
        return HostShare(
            self._site.name,
            steps / (spent * _NANO) if spent else 0.0,
            offset.ns,
            offset.error_ns,
            taken,
            too_much(taken, cpus * spent, cpus * len(self._windows)),
        )


@contextmanager
def started(site: Site, request: Request, seconds: float, interrupts: Interrupts) -> Iterator[FarReplica]:
    """Start a replica on a host, and end all its processes there when the context is left.

    ``seconds`` is how long it may take. Raises CellError, with the host's name, if the host is lost.
    """
    try:
        replica = FarReplica(site, request, seconds, interrupts)
    except LostHostError as error:
        raise CellError(f"{site.name}: {error}") from None
    except KeyboardInterrupt:  # while it was to tell of itself
        raise InterruptedCellError("interrupted") from None
    try:
        yield replica
    finally:
        replica.end()
