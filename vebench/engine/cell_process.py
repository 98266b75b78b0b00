"""A running cell, here or on another host: its answers, its limits, and whether its clock can be trusted."""

from __future__ import annotations

import os
import signal
import time
from abc import abstractmethod
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import sqrt
from statistics import median
from typing import TYPE_CHECKING

from vebench.child.answers import Begins, Done, Ends, Failure, HostShare, Ready, ReplicaWindow
from vebench.child.window import Window, too_much
from vebench.engine.interface import CellError, Conversation, InterruptedCellError, decode
from vebench.hosts.site import LostHostError
from vebench.interpreters.waiting import Wakeful, wakeful
from vebench.machine import guardian

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vebench.child.answers import Answer
    from vebench.child.process import ChildProcess
    from vebench.child.request import Request
    from vebench.hosts.site import Site
    from vebench.interpreters.process_guard import ProcessGuard
    from vebench.interpreters.waiting import Interrupts

# After its last window, a backend may take this long to close before it is ended.
CLOSE_S = 10.0
_CLOSE_CHECK_S = 0.01
_WHERE_S = 1.0  # a cell that hangs may take this long to say where
_NANO = 1e-9
_TRIPS = 10  # to the clock of a host, one after the other
# By how much that clock may be wrong: a few milliseconds, or this share of a window.
MOST_ERROR_S, MOST_ERROR = 5e-3, 0.01
# A host ends a cell by itself this long after it should have been asked to.
_GRACE_S = 30.0
# The processes of a cell on a host may take this long to be ended.
_ENDED_S = 10.0

OTHER_PACE = "its clock runs at a different speed from the runner's"
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


class CellProcess(Conversation):
    """A cell, or a replica of one, that answers in lines. ``timeout`` is in seconds, without rests.

    ``descriptor`` can be read when something has come. Its clock is ``ahead_ns`` nanoseconds ahead of this process's.
    """

    def __init__(self, descriptor: int, interrupts: Interrupts, timeout: float) -> None:
        self._interrupts, self._timeout = interrupts, timeout
        self.news = (descriptor, interrupts.fileno())
        self.ahead_ns = 0
        self._deadline = wakeful() + timeout
        self._pace = Pace(time.perf_counter_ns)
        self._is_ready = False
        self._may_close_until: float | None = None  # once it is done

    def messages(self) -> Iterator[Answer]:
        """Yield the cell's answers; see ``Conversation``."""
        while True:
            while (answer := self.look()) is None:
                wakeful.wait(self.news)
            yield answer

    def look(self) -> Answer | None:
        """Return the next answer if it has come, None if it has not, without waiting. Raises CellError if none will."""
        if self._interrupts.requested:
            raise InterruptedCellError("interrupted")
        while True:
            self._check_limits()
            if (line := self._heard()) is None:
                return None
            try:
                answer = decode(line)
            except ValueError as error:
                raise CellError(f"its answer cannot be read: {error}") from None
            self._pace.heard(answer)
            self._is_ready |= isinstance(answer, Ready)
            if isinstance(answer, Done):
                self._may_close_until = wakeful() + CLOSE_S
            if isinstance(answer, ReplicaWindow):
                return replace(answer, start_ns=max(0, answer.start_ns - self.ahead_ns))
            if not isinstance(answer, Begins | Ends):
                return answer

    @property
    def fault(self) -> str | None:
        """In words what is wrong with its clock; see ``Conversation``."""
        return self._pace.fault

    def start(self, at_ns: int) -> None:
        """Send a replica the time at which its first window begins, in nanoseconds of this process's clock."""
        self._say(str(at_ns + self.ahead_ns))

    def tell_to_end(self) -> None:
        """Let it end, if that takes time, without waiting for it."""

    def end(self) -> None:
        """End all its processes. One that is done may first close its backend and exit, unless a signal comes."""
        while (
            self._may_close_until is not None
            and wakeful() < self._may_close_until
            and not self._interrupts.requested
            and self._is_alive()
        ):
            wakeful.wait([self._interrupts.fileno()], _CLOSE_CHECK_S)
        self._end()

    def _check_limits(self) -> None:
        """Raise CellError if the cell took too much time."""
        if wakeful() > self._deadline:
            raise CellError(f"timed out after {self._timeout:.3g} s (--timeout)")

    @abstractmethod
    def _heard(self) -> bytes | None:
        """Return its next line, None if that has not come. Raises CellError if none will."""

    @abstractmethod
    def _say(self, line: str) -> None:
        """Write a line to it. That it has died is noticed when its answers are read."""

    @abstractmethod
    def _is_alive(self) -> bool:
        """Return whether it has not ended by itself."""

    @abstractmethod
    def _end(self) -> None:
        """End all its processes now."""


class LocalCell(CellProcess):
    """A cell on this machine, whose processes have ``mark`` in their environment.

    ``option`` sets ``timeout``, which ends at ``deadline``. ``keep_off`` takes this process off the cell's CPUs.
    ``guarded`` ends it if this process is killed. ``tells_where``: a cell that hangs is asked how far it is.
    """

    def __init__(  # noqa: PLR0913 - what a process is started with, and what it may do
        self,
        child: ChildProcess,
        mark: str,
        interrupts: Interrupts,
        timeout: float,
        *,
        option: str,
        deadline: float,
        keep_off: Callable[[], None],
        guarded: ProcessGuard,
        tells_where: bool,
    ) -> None:
        super().__init__(child.lines.descriptor, interrupts, timeout)
        self._child, self._mark, self._keep_off, self._guarded = child, mark, keep_off, guarded
        self._option, self._deadline, self._tells_where = option, deadline, tells_where
        self._resting_since = 0.0
        self._strays: list[int] | None = None

    def take_turn(self) -> None:
        """Let the cell run until the end of its next window."""
        self._deadline += wakeful() - self._resting_since
        self._keep_off()
        for pid in self._strays or ():
            _send(signal.SIGCONT, partial(os.kill, pid))
        _send(signal.SIGCONT, partial(os.killpg, self._child.process.pid))
        self._say("")

    def rest(self) -> None:
        """Stop the cell's processes: otherwise they might keep working, uncounted, during another cell's turn.

        Those that have left its process group, such as Ray's, are stopped, too. They are looked for once, when the cell
        is warm: that takes as long as many processes are there.
        """
        group = self._child.process.pid
        _send(signal.SIGSTOP, partial(os.killpg, group))
        if self._strays is None:
            self._strays = []
            with suppress(OSError):  # no /proc
                members = guardian.members(self._mark, variable=guardian.CELL_VARIABLE)
                self._strays = [pid for pid in members if _group_of(pid) not in {group, None}]
        for pid in self._strays:
            _send(signal.SIGSTOP, partial(os.kill, pid))
        self._resting_since = wakeful()

    def log(self) -> str:
        """Return the end of what the cell's processes printed."""
        return self._child.log.end()

    def _heard(self) -> bytes | None:
        ended = not self._is_alive()
        try:
            line = self._child.lines.take()
        except EOFError:
            raise CellError(self._child.how_it_ended()) from None
        if line is None and ended:
            raise CellError(self._child.how_it_ended())
        return line

    def _say(self, line: str) -> None:
        self._child.say(line)

    def _is_alive(self) -> bool:
        return self._child.process.poll() is None

    def _end(self) -> None:
        self._child.end(self._mark, guardian.CELL_VARIABLE)
        self._guarded.discard(self._child.process.pid)

    def _check_limits(self) -> None:
        """Raise CellError if the cell took too much time or memory. Keep only the end of a log that is too long."""
        if wakeful() > self._deadline:
            how_far = self._how_far() if self._tells_where else ""
            raise CellError(f"timed out after {self._timeout:.3g} s ({self._option}){how_far}")
        if fault := self._child.fault():
            raise CellError(fault)

    def _how_far(self) -> str:
        """Return in words how far a process is that hangs. It says so itself, unless it hangs outside of Python."""
        _send(signal.SIGUSR2, partial(os.kill, self._child.process.pid))
        until = wakeful() + _WHERE_S
        with suppress(EOFError):
            while (left := until - wakeful()) > 0:
                if (line := self._child.lines.take()) is None:
                    wakeful.wait([self._child.lines.descriptor], left)
                    continue
                with suppress(ValueError):
                    if isinstance(answer := decode(line), Failure):
                        return f", {answer.reason}" if answer.reason else ""
        return ", in a step" if self._is_ready else ", while it was built or reset"


def _send(number: signal.Signals, to: Callable[[int], None]) -> None:
    # An ended process is noticed when its answers are read. macOS forbids signals to processes not waited for.
    with suppress(ProcessLookupError, PermissionError):
        to(number)


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


class FarCell(CellProcess):
    """A cell, or a replica of one, on the host of ``site``.

    Before a replica is started, the host's clock is asked for: whenever one looks, so that no host waits for another.
    Of several round trips to a clock the shortest says the most, since the clock was read somewhere within it (F.
    Cristian, Distributed Computing 3, 1989). Time of day is never compared: no host needs to be set right.
    """

    def __init__(self, site: Site, request: Request, interrupts: Interrupts, timeout: float) -> None:
        super().__init__(site.descriptor, interrupts, timeout)
        self._site, self._request = site, request
        site.cells += 1
        self._number = site.cells
        self._trips: list[tuple[int, int]] = []  # the error of a clock and how far it is ahead, in nanoseconds
        self._windows: list[Window] = []
        self._ends_until: float | None = None  # once it was asked to
        self._log: str | None = None  # known once it has ended
        if request.mode == "in_step":
            self._ask_clock()
        else:
            self._start()

    def look(self) -> Answer | None:
        """Return the next answer; see ``CellProcess``."""
        answer = super().look()
        if isinstance(answer, ReplicaWindow):
            self._windows.append(answer.window)
        return replace(answer, hosts=(self._share(),)) if isinstance(answer, Done) and self._trips else answer

    def log(self) -> str:
        """Return the end of what it printed. One that is not done is ended for that."""
        if self._may_close_until is None:
            self._end()
        return self._log or ""

    def tell_to_end(self) -> None:
        """Let it be ended, without waiting for that. One that is done may first close its backend."""
        if self._may_close_until is None and self._ends_until is None and self._log is None:
            self._ends_until = wakeful() + _ENDED_S
            self._site.tell(end=self._number)

    def _heard(self) -> bytes | None:
        try:
            while (said := self._site.heard()) is not None:
                if said.cell != self._number:  # of one before
                    continue
                if said.clock is not None:
                    self._note_clock(said.clock)
                elif said.ended is not None:
                    self._log = said.log
                    if self._may_close_until is None:
                        raise CellError(said.ended)
                elif said.line is not None:
                    return said.line.encode()
        except LostHostError as error:
            self._log = ""
            raise CellError(str(error)) from None
        return None

    def _say(self, line: str) -> None:
        self._site.tell(say=line)

    def _is_alive(self) -> bool:
        with suppress(CellError):
            self._heard()
        return self._log is None

    def _end(self) -> None:
        self._may_close_until = None
        self.tell_to_end()
        while self._ends_until is not None and wakeful() < self._ends_until and self._is_alive():
            wakeful.wait([self._site.descriptor], self._ends_until - wakeful())

    def _ask_clock(self) -> None:
        self._asked_ns = time.perf_counter_ns()
        self._site.tell(clock=self._number)

    def _note_clock(self, there_ns: int) -> None:
        """Note its time, and start it once enough is known of its clock. Raises CellError if that is too little."""
        came_ns = time.perf_counter_ns()
        self._trips.append(((came_ns - self._asked_ns + 1) // 2, there_ns - (self._asked_ns + came_ns) // 2))
        if len(self._trips) < _TRIPS:
            self._ask_clock()
            return
        error_ns, self.ahead_ns = min(self._trips)
        error = error_ns * _NANO
        if error > max(MOST_ERROR_S, MOST_ERROR * self._request.settings.duration):
            raise CellError(
                f"its clock is known only to within {error:.2g} s, over {MOST_ERROR:.0%} of a window: use a longer "
                "--duration"
            )
        self._start()

    def _start(self) -> None:
        self._site.tell(start=self._request.as_json(), seconds=self._timeout + _GRACE_S, cell=self._number)

    def _share(self) -> HostShare:
        spent = sum(window.ns for window in self._windows)
        taken = sum(window.taken_ns for window in self._windows)
        cpus = len(self._request.setup.cpus)
        return HostShare(
            self._site.name,
            sum(window.transitions for window in self._windows) / (spent * _NANO) if spent else 0.0,
            self.ahead_ns,
            min(self._trips)[0],
            taken,
            too_much(taken, cpus * spent, cpus * len(self._windows)),
        )


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
        # Of each, what it took beyond its claim, its share of what clocks may differ, and what others took.
        self._windows: list[tuple[int, float, int]] = []
        self._fast: str | None = None

    def heard(self, answer: Answer) -> None:
        """Note an answer of the cell. Raises CellError at its end if the cell's clock runs at another pace."""
        # The arrival time of an answer is unknown if nothing was waiting for it.
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
        lived = self._clock() - self._started
        if claimed > (1 + _CLOCKS_DIFFER) * lived + _LATE_NS:
            self._fast = f"{OTHER_PACE}: it counts {claimed / 1e9:.2f} s after running for {lived / 1e9:.2f} s"

    def _ended(self, window: Window) -> None:
        self._claimed += window.ns
        self._check_life(self._claimed)
        if not self._late:
            self._windows.append((self._passed - window.ns, SHARE * window.ns, window.taken_ns // self._cpus))

    @property
    def fault(self) -> str | None:
        """In words what is wrong with the cell's clock, None if nothing can be said against it.

        Its windows must not take longer than it claims by more than chance explains.
        """
        windows, root = self._windows, sqrt(max(1, len(self._windows)))
        if len(windows) < _ENOUGH:
            few = [over - share - (_SLACK_OF_FEW_NS + taken) / root for over, share, taken in windows]
            beyond = bool(few) and min(few) > 0
        else:
            middle = median(over for over, _, _ in windows)
            spread = _SPREADS * median(abs(over - middle) for over, _, _ in windows)
            beyond = median(over - share - (_SLACK_NS + taken + spread) / root for over, share, taken in windows) > 0
        if self._fast is None and beyond:
            return f"{OTHER_PACE}: its windows take longer than it claims"
        return self._fast
