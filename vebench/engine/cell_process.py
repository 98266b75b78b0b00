"""The process of a cell, or of one of its replicas, here or on another host: answers, limits, and its clock."""

from __future__ import annotations

import os
import signal
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from vebench.child.answers import Answer, Begins, Done, Ends, Failure, HostShare, Ready, ReplicaWindow
from vebench.child.process import ChildProcess
from vebench.child.request import Request
from vebench.child.window import Window, too_much
from vebench.engine.interface import CellError, Conversation, InterruptedCellError, decode
from vebench.hosts import LostHostError, Site
from vebench.interpreters.process_guard import Interrupts, ProcessGuard, wakeful
from vebench.machine import guardian

CLOSE_S = 10.0  # for a backend to close after the last window
_CLOSE_CHECK_S = 0.01
_WHERE_S = 1.0  # for a cell that hangs to say where
_NANO = 1e-9
_TRIPS = 10  # to the clock of a host, one after the other
# The error of that clock may be a few milliseconds, or this share of a window.
MOST_ERROR_S, MOST_ERROR = 5e-3, 0.01
_GRACE_S = 30.0  # after its deadline, a host ends a cell by itself
_ENDED_S = 10.0  # for the processes of a cell on a host to end
# By how much windows may take longer by the runner's clock than they claim: a share, and for late messages.
_SHARE, _SLACK_NS = 0.2, 100_000_000
_FEWEST = 3  # windows that tell something about a cell's clock


class CellProcess(Conversation):
    """A cell, or a replica of one, that answers in lines.

    - ``news``: descriptors that can be read when an answer has come, or the user has interrupted
    - ``ahead_ns``: by how much its clock is ahead of this process's
    """

    def __init__(self, descriptor: int, interrupts: Interrupts, timeout: float) -> None:
        self._interrupts = interrupts
        self._timeout = timeout  # in seconds, without rests
        self.news = (descriptor, interrupts.fileno())
        self.ahead_ns = 0
        self._deadline = wakeful() + timeout
        self._pace = Pace(time.perf_counter_ns)
        self._is_ready = False
        self._may_close_until: float | None = None  # None until it is done

    def messages(self) -> Iterator[Answer]:
        """Yield the cell's answers; see ``Conversation``."""
        while True:
            while (answer := self.look()) is None:
                wakeful.wait(self.news)
            yield answer

    def look(self) -> Answer | None:
        """Return the next answer if it has come, else None, without waiting. Raises CellError if none will come."""
        if self._interrupts.requested:
            raise InterruptedCellError
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
                if self.fault:
                    raise CellError(self.fault)
                self._may_close_until = wakeful() + CLOSE_S
            if isinstance(answer, ReplicaWindow):
                return replace(answer, start_ns=max(0, answer.start_ns - self.ahead_ns))
            if not isinstance(answer, Begins | Ends):
                return answer

    @property
    def fault(self) -> str | None:
        """Why its clock cannot be trusted; see ``Conversation``."""
        return self._pace.fault

    def start(self, at_ns: int) -> None:
        """Tell a replica when its first window begins, in nanoseconds of this process's clock."""
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
        """Return its next line, None if that has not come. Raises CellError if none will come."""

    @abstractmethod
    def _say(self, line: str) -> None:
        """Write a line to it. Its death is noticed when its answers are read."""

    @abstractmethod
    def _is_alive(self) -> bool:
        """Return whether it has not ended by itself."""

    @abstractmethod
    def _end(self) -> None:
        """End all its processes now."""


@dataclass(frozen=True)
class Limit:
    """How long a cell may take, in seconds without rests."""

    seconds: float
    option: str  # which sets it
    deadline: float  # by ``wakeful``


class LocalCell(CellProcess):
    """A cell on this machine, whose processes have ``mark`` in their environment."""

    def __init__(
        self,
        child: ChildProcess,
        mark: str,
        interrupts: Interrupts,
        limit: Limit,
        guard: ProcessGuard,
        keep_off: Callable[[], None],
        *,
        tells_where: bool,
    ) -> None:
        super().__init__(child.lines.descriptor, interrupts, limit.seconds)
        self._child, self._mark, self._option, self._deadline = child, mark, limit.option, limit.deadline
        self._guard = guard  # ends it if this process is killed
        self._keep_off = keep_off  # takes this process off the cell's CPUs
        self._tells_where = tells_where  # when it has timed out
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
        """Stop the cell's processes: otherwise they might work, uncounted, during another cell's turn.

        Processes that have left its process group, such as Ray's, are stopped, too. They are looked for once, when the
        cell is warm, because that takes long where there are many processes.
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
        """Return the end of the log of the cell's processes."""
        return self._child.log.end()

    def _heard(self) -> bytes | None:
        ended = not self._is_alive()
        try:
            line = self._child.lines.take()
        except EOFError:
            line, ended = None, True
        if line is None and ended:
            raise CellError(f"its process {self._child.process.how_it_ended()}")
        return line

    def _say(self, line: str) -> None:
        self._child.say(line)

    def _is_alive(self) -> bool:
        return self._child.process.poll() is None

    def _end(self) -> None:
        self._child.end(self._mark, guardian.CELL_VARIABLE)
        self._guard.discard(self._child.process.pid)

    def _check_limits(self) -> None:
        """Raise CellError if the cell took too much time or memory. Keep only the end of a log that is too long."""
        if wakeful() > self._deadline:
            how_far = self._how_far() if self._tells_where else ""
            raise CellError(f"timed out after {self._timeout:.3g} s ({self._option}){how_far}")
        if fault := self._child.fault():
            raise CellError(fault)

    def _how_far(self) -> str:
        """Return how far a process is that hangs. It answers that itself, unless it hangs outside of Python."""
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

    Before a replica is started, the host's clock is read over the connection, a few times. The shortest round trip says
    the most, since the clock was read within it (F. Cristian, Distributed Computing 3, 1989). Each answer is handled in
    ``look``, so that no host waits for another. Time of day is not compared: no host needs to be set right.
    """

    def __init__(self, site: Site, request: Request, interrupts: Interrupts, timeout: float) -> None:
        super().__init__(site.descriptor, interrupts, timeout)
        self._site, self._request = site, request
        site.cells += 1
        self._number = site.cells
        self._trips: list[tuple[int, int]] = []  # the error of the clock and its offset, in nanoseconds
        self._windows: list[Window] = []
        self._ends_until: float | None = None  # None until it was told to end
        self._log: str | None = None  # None until it has ended
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
        """Return the end of its log. A cell that is not done is ended for that."""
        if self._may_close_until is None:
            self._end()
        return self._log or ""

    def tell_to_end(self) -> None:
        """Tell it to end, without waiting for that. A cell that is done may first close its backend."""
        if self._may_close_until is None and self._ends_until is None and self._log is None:
            self._ends_until = wakeful() + _ENDED_S
            self._site.tell(end=self._number)

    def _heard(self) -> bytes | None:
        try:
            while (said := self._site.heard()) is not None:
                if said.cell != self._number:  # an earlier one
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
        """Note the host's time, and start the cell after the last trip. Raises CellError if the clock is too vague."""
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
    """Compares a cell's clock with the runner's: its windows must not take much longer than they claim.

    ``clock`` returns nanoseconds. The cell's process has just been started.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._started = self._began = clock()
        self._passed = self._claimed = 0
        self._excess: list[float] = []  # nanoseconds over the claim and its share, for each window

    def heard(self, answer: Answer) -> None:
        """Note an answer of the cell."""
        match answer:
            case Begins():
                self._began = self._clock()
            case Ends():
                self._passed = self._clock() - self._began - answer.reading_ns
            case Window():
                self._note(answer)
            case ReplicaWindow():
                self._note(answer.window)

    def _note(self, window: Window) -> None:
        self._claimed += window.ns
        self._excess.append(self._passed - (1 + _SHARE) * window.ns)

    @property
    def fault(self) -> str | None:
        """Why the cell's clock cannot be trusted, None if nothing is wrong with it."""
        lived = self._clock() - self._started
        if self._claimed > (1 + _SHARE) * lived + _SLACK_NS:
            return f"its clock is too fast: it counts {self._claimed / 1e9:.2f} s within {lived / 1e9:.2f} s"
        # Every window: messages of some come late on a busy machine.
        if len(self._excess) >= _FEWEST and min(self._excess) > _SLACK_NS:
            return "its clock is too slow: its windows take longer than it claims"
        return None
