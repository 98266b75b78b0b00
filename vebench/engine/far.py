"""A replica on another host, as the runner sees any replica."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vebench.child.answers import Begins, Done, HostShare, ReplicaWindow
from vebench.engine.conversation import CellError, InterruptedCellError
from vebench.engine.messages import decode
from vebench.engine.pace import Pace
from vebench.hosts import clocks
from vebench.hosts.site import LostHostError
from vebench.interpreters.news import wakeful

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vebench.child.answers import Answer
    from vebench.child.request import Request
    from vebench.hosts.site import Site
    from vebench.interpreters.interrupts import Interrupts

NANO = 1e-9
# After its last window, a backend may take this long to close before it is ended.
CLOSE_S = 10.0
# For what it takes a host to end all processes of a replica.
ANSWER_S = 10.0
# A host ends a replica by itself so long after it should have been told to.
GRACE_S = 30.0


class FarReplica:
    """A replica on the host of ``site``, which has a clock of its own unless that is ours.

    It is not started yet. Raises CellError if the host is lost, or its clock is known too badly.
    """

    def __init__(self, site: Site, interrupts: Interrupts, duration_ns: int, timeout: float) -> None:
        self._site, self._interrupts, self._duration_ns, self._timeout = site, interrupts, duration_ns, timeout
        self._deadline = wakeful() + timeout
        self._found = self._checked(self._offset_now())
        self._pace = Pace(time.perf_counter_ns)
        self._log: str | None = None
        self._told_to_end = False
        self.done = False
        self._may_close_until = 0.0
        self._steps = 0
        self._ns = 0
        self._steal_ns: int | None = 0

    @property
    def _ours(self) -> bool:
        """Whether its clock is ours."""
        return self._site.facts.shares_our_clock

    @property
    def _offset(self) -> clocks.Offset:
        """The offset that times are translated with: none where the clock is ours, whatever was found."""
        return clocks.SAME if self._ours else self._found

    def _offset_now(self) -> clocks.Offset:
        try:
            self._site.facts  # noqa: B018 - a host that was not reached says why
            return self._site.offset()
        except LostHostError as error:
            raise CellError(str(error)) from None
        except KeyboardInterrupt:
            raise InterruptedCellError("interrupted") from None

    def _checked(self, found: clocks.Offset) -> clocks.Offset:
        """Return an offset. Raises CellError if windows could be moved too far by its error."""
        if not self._ours and clocks.too_uncertain(found, self._duration_ns):
            raise CellError(
                f"its clock is known to {found.error_ns * NANO:.2g} s only, more than {clocks.MOST_ERROR:.0%} of a "
                "window: give a longer --duration"
            )
        return found

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
            self._pace.heard(answer)
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
        if self._log is None and not self.done:
            self.end()
        return self._log or ""

    def tell_to_end(self) -> None:
        """Let it be ended, without waiting for that."""
        if self._log is None and not self._told_to_end:
            self._told_to_end = True
            self._site.tell_to_end()

    def end(self) -> None:
        """End it, unless it has ended; one that is done may first close its backend."""
        if self._log is None and self.done and not self._interrupts.requested:
            self._log = self._site.log_at_end(self._may_close_until - wakeful())
        self.tell_to_end()
        if self._log is None:
            self._log = self._site.log_at_end(ANSWER_S) or ""

    def _translated(self, answer: Answer) -> Answer:
        if isinstance(answer, ReplicaWindow):
            self._steps += answer.window.rows - answer.window.resets
            self._ns += answer.window.ns
            steal = answer.window.steal_ns
            self._steal_ns = None if steal is None or self._steal_ns is None else self._steal_ns + steal
            return replace(answer, start_ns=max(0, self._offset.here(answer.start_ns)))
        if isinstance(answer, Done):
            self.done, self._may_close_until = True, wakeful() + CLOSE_S
            return replace(answer, hosts=(self._share(),))
        return answer

    def _share(self) -> HostShare:
        """Return what it did, once its clock was found good enough. Raises CellError if that was not."""
        found = self._checked(clocks.with_drift(self._found, self._offset_now()))
        rate = self._steps / (self._ns * NANO) if self._ns else 0.0
        return HostShare(self._site.name, rate, self._ours, found.ns, found.error_ns, self._steal_ns)


def end_all(replicas: Sequence[object]) -> None:
    """Let all replicas on hosts be ended that are not done, before one of them is waited for."""
    for one in replicas:
        if isinstance(one, FarReplica) and not one.done:
            one.tell_to_end()


@contextmanager
def started(site: Site, request: Request, seconds: float, interrupts: Interrupts) -> Iterator[FarReplica]:
    """Start a replica on a host, and end all its processes there when the context is left.

    ``seconds`` is how long it may take. Raises CellError, with the host's name, if it cannot be started.
    """
    try:
        replica = FarReplica(site, interrupts, round(request.settings.duration / NANO), seconds)
        site.start(request.as_json(), seconds + GRACE_S)
    except InterruptedCellError:
        raise
    except (CellError, LostHostError) as error:
        raise CellError(f"{site.name}: {error}") from None
    try:
        yield replica
    finally:
        replica.end()
