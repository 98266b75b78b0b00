"""A replica on another host, as the runner sees any replica."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vebench.child.answers import Begins, Done, Ends, HostShare, ReplicaWindow
from vebench.child.window import too_much
from vebench.engine.conversation import CellError, InterruptedCellError
from vebench.engine.messages import decode
from vebench.engine.pace import Pace
from vebench.hosts import clocks
from vebench.hosts.site import ANSWER_S, LostHostError
from vebench.interpreters.news import wakeful

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vebench.child.answers import Answer
    from vebench.child.request import Request
    from vebench.child.window import Window
    from vebench.hosts.site import Site
    from vebench.interpreters.interrupts import Interrupts

NANO = 1e-9
# After its last window, a backend may take this long to close before it is ended.
CLOSE_S = 10.0
# A host ends a replica by itself so long after it should have been told to.
GRACE_S = 30.0


class FarReplica:
    """A replica on the host of ``site``, which has a clock of its own unless that is ours.

    Its clock is asked for, it is started, and in the end its clock is asked for again: all of that goes on whenever one
    looks, so that no host waits for another. ``timeout`` is in seconds. Raises LostHostError.
    """

    def __init__(self, site: Site, request: Request, timeout: float, interrupts: Interrupts) -> None:
        self._site, self._request, self._timeout, self._interrupts = site, request, timeout, interrupts
        self._deadline = wakeful() + timeout
        self._pace = Pace(time.perf_counter_ns)
        self._shares_our_clock = site.facts.shares_our_clock
        self._offset: clocks.Offset | None = None  # known once it is started
        self._windows: list[Window] = []
        self._end: Done | None = None
        self._is_done = False
        self._may_close_until = 0.0
        self._ends_until: float | None = None  # once it was told to
        self._log: str | None = None  # known once it has ended
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
        """Begin to ask for its clock."""
        self._trips = clocks.RoundTrips(time.perf_counter_ns)
        self._ask_again()

    def _ask_again(self) -> None:
        self._trips.begin()
        self._asked: int | None = self._site.ask_clock()
        self._answers_until = wakeful() + ANSWER_S

    def _told(self, there_ns: int) -> Done | None:
        """Note its time. Returns its last answer if nothing but that was left to ask. Raises CellError."""
        found = self._trips.end(there_ns)
        if found is None:
            self._ask_again()
            return None
        self._asked = None
        if self._offset is None or self._end is None:
            # Machines that were copied while they ran may share the name of their start, and not the clock.
            self._shares_our_clock &= abs(found.ns) <= found.error_ns
            self._offset = self._checked(found)
            self._site.start(self._request.as_json(), self._timeout + GRACE_S)
            return None
        self._is_done, self._may_close_until = True, wakeful() + CLOSE_S
        return replace(self._end, hosts=(self._share(self._checked(clocks.with_drift(self._offset, found))),))

    def _checked(self, found: clocks.Offset) -> clocks.Offset:
        """Return an offset. Raises CellError if windows could be moved too far by its error."""
        if not self._shares_our_clock and clocks.too_uncertain(found, round(self._request.settings.duration / NANO)):
            raise CellError(
                f"its clock is known to {found.error_ns * NANO:.2g} s only, more than {clocks.MOST_ERROR:.0%} of a "
                "window: give a longer --duration"
            )
        return found

    def _heard(self, line: dict[str, Any]) -> Answer | None:
        """Return the answer that a line has for others, None if there is none. Raises CellError, LostHostError."""
        if "clock" in line:
            return self._told(line["ns"]) if line["clock"] == self._asked else None
        if self._offset is None or line.get("cell") != self._site.cell:
            return None  # of one before
        if "ended" in line:
            self._log = line["log"]
            if self._end is None:
                raise CellError(line["ended"])
            return None
        return self._answered(line["line"]) if "line" in line else None

    def _answered(self, text: str) -> Answer | None:
        """Return an answer of the cell for others, in our time; None if it is none."""
        try:
            answer = decode(text.encode())
        except ValueError as error:
            raise CellError(f"its answer cannot be read: {error}") from None
        self._pace.heard(answer)
        if isinstance(answer, Begins | Ends):
            return None
        if isinstance(answer, Done):
            self._end = answer
            self._ask()
            return None
        if isinstance(answer, ReplicaWindow):
            self._windows.append(answer.window)
            return replace(answer, start_ns=max(0, self._translation.here(answer.start_ns)))
        return answer

    @property
    def _translation(self) -> clocks.Offset:
        """The offset that times are translated with: none where the clock is ours, whatever was found."""
        return clocks.SAME if self._shares_our_clock or self._offset is None else self._offset

    def start(self, at_ns: int) -> None:
        """Tell it when its first window begins, in nanoseconds of our clock. A host that is lost says so later."""
        with suppress(LostHostError):
            self._site.tell(say=str(self._translation.there(at_ns)))

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

    def _share(self, found: clocks.Offset) -> HostShare:
        """Return what it did."""
        spent = sum(window.ns for window in self._windows)
        steps = sum(window.transitions for window in self._windows)
        taken = sum(window.taken_ns for window in self._windows)
        cpus = len(self._request.setup.cpus)
        return HostShare(
            self._site.name,
            steps / (spent * NANO) if spent else 0.0,
            self._shares_our_clock,
            found.ns,
            found.error_ns,
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
