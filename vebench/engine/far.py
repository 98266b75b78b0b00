"""A replica on another host, as the runner sees any replica."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vebench.child.answers import Begins, Done, HostShare, ReplicaWindow
from vebench.engine.conversation import CellError, InterruptedCellError
from vebench.engine.messages import decode
from vebench.hosts import clocks
from vebench.hosts.site import LostHostError
from vebench.interpreters.news import wakeful

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vebench.child.answers import Answer
    from vebench.child.request import Request
    from vebench.engine.interrupts import Interrupts
    from vebench.hosts.site import Site

NANO = 1e-9
# After its last window, a backend may take this long to close before it is ended.
CLOSE_S = 10.0
# A host ends a replica by itself so long after it should have been told to.
GRACE_S = 30.0


class FarReplica:
    """A replica on the host of ``site``, which has a clock of its own unless that is ours."""

    def __init__(self, site: Site, interrupts: Interrupts, duration_ns: int, timeout: float) -> None:
        self._site, self._interrupts, self._duration_ns, self._timeout = site, interrupts, duration_ns, timeout
        self._deadline = wakeful() + timeout
        self._found = site.offset()
        self._log = ""
        self.done = False
        self._steps = 0
        self._ns = 0
        self._steal_ns: int | None = 0

    @property
    def _offset(self) -> clocks.Offset:
        """The offset that times are translated with: none where the clock is ours, whatever was found."""
        return clocks.SAME if self._site.facts.shares_our_clock else self._found

    @property
    def news(self) -> tuple[int, ...]:
        """Descriptors of which one can be read when it has answered, is lost, or the user wants to stop."""
        return self._site.fileno(), self._interrupts.fileno()

    def look(self) -> Answer | None:
        """Return its next answer, None if that has not come yet. Raises CellError if none will."""
        if self._interrupts.requested:
            raise InterruptedCellError("interrupted")
        while wakeful() <= self._deadline and (heard := self._heard()) is not None:
            if heard.get("cell") != self._site.cell:
                continue  # of one before
            if "ended" in heard:
                self._log = heard["log"]
                raise CellError(heard["ended"])
            if "line" not in heard:
                continue
            try:
                answer = decode(heard["line"].encode())
            except ValueError as error:
                raise CellError(f"its answer cannot be read: {error}") from None
            if not isinstance(answer, Begins):
                return self._translated(answer)
        if wakeful() > self._deadline:
            raise CellError(f"no end after {self._timeout:g} s (--timeout)")
        return None

    def _heard(self) -> dict[str, Any] | None:
        try:
            return self._site.heard()
        except LostHostError as error:
            raise CellError(str(error)) from None

    def start(self, at_ns: int) -> None:
        """Tell it when its first window begins, in nanoseconds of our clock. A host that is lost says so later."""
        with suppress(LostHostError):
            self._site.tell(say=str(self._offset.there(at_ns)))

    def log(self) -> str:
        """Return the end of what it printed. One that is not done is ended for that."""
        if not self._log and not self.done:
            self._log = self._site.end(0.0)
        return self._log

    def _translated(self, answer: Answer) -> Answer:
        if isinstance(answer, ReplicaWindow):
            self._steps += answer.window.rows - answer.window.resets
            self._ns += answer.window.ns
            steal = answer.window.steal_ns
            self._steal_ns = None if steal is None or self._steal_ns is None else self._steal_ns + steal
            return replace(answer, start_ns=max(0, self._offset.here(answer.start_ns)))
        if isinstance(answer, Done):
            self.done = True
            return replace(answer, hosts=(self._share(),))
        return answer

    def _share(self) -> HostShare:
        """Return what it did, once its clock was found good enough. Raises CellError if that was not."""
        ours = self._site.facts.shares_our_clock
        try:
            found = clocks.with_drift(self._found, self._site.offset())
        except LostHostError as error:
            raise CellError(str(error)) from None
        if not ours and clocks.too_uncertain(found, self._duration_ns):
            raise CellError(
                f"its clock is known to {found.error_ns * NANO:.2g} s only, more than {clocks.MOST_ERROR:.0%} of a "
                "window: give a longer --duration"
            )
        rate = self._steps / (self._ns * NANO) if self._ns else 0.0
        return HostShare(self._site.name, rate, ours, found.ns, found.error_ns, self._steal_ns)


@contextmanager
def started(site: Site, request: Request, seconds: float, interrupts: Interrupts) -> Iterator[FarReplica]:
    """Start a replica on a host, and end all its processes there when the context is left.

    ``seconds`` is how long it may take. Raises CellError if the host is lost.
    """
    try:
        replica = FarReplica(site, interrupts, round(request.settings.duration / NANO), seconds)
        site.start(request.as_json(), seconds + GRACE_S)
    except LostHostError as error:
        raise CellError(f"{site.name}: {error}") from None
    try:
        yield replica
    finally:
        site.end(CLOSE_S if replica.done else 0.0)
