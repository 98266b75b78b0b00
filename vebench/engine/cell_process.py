"""The processes of a cell, on this machine or other hosts, as one or several replicas: answers, limits and clocks."""

from __future__ import annotations

import os
import signal
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeVar

from vebench.child.answers import (
    Answer,
    Begins,
    Done,
    Ends,
    Failure,
    HostShare,
    Layout,
    Ready,
    ReplicaWindow,
    Warm,
    Window,
    joined,
    too_much,
)
from vebench.child.process import ChildProcess
from vebench.child.request import Request
from vebench.engine.runner import CellError, Conversation, InterruptedCellError, decode
from vebench.hosts import LostHostError, Site
from vebench.machine import guardian
from vebench.process_guard import Interrupts, ProcessGuard, wakeful

_CLOSE_S = 10.0  # time limit for a backend to close after the last window
_CLOSE_CHECK_S = 0.01  # time between two checks whether it has
_NANO = 1e-9
# By the runner's clock, a window may take this share longer than its cell claims, plus a slack for late messages.
_SHARE, _SLACK_NS = 0.2, 100_000_000
_FEWEST = 3  # the fewest windows that say something about a cell's clock
_TRIPS = 10  # number of times that a host's clock is read
# The error of a host's clock may be this many seconds, or this share of a window if that is more.
_MOST_ERROR_S, _MOST_ERROR = 5e-3, 0.01
_GRACE_S = 30.0  # a host ends a cell by itself this long after the time limit
_ENDED_S = 10.0  # time limit for the processes of a cell on a host to end
# Time from the last replica's warm-up to the first window. Each replica must read the start by then.
LOCAL_LEAD_NS = 50_000_000
FAR_LEAD_NS = 500_000_000  # over a network
_LEAST_COMMON = 0.5  # all replicas must run during this share of the longest window

_T = TypeVar("_T")
_Facts = TypeVar("_Facts", Layout, Done)


@dataclass(frozen=True)
class Limit:
    """The time limit of a cell, in seconds. Rests do not count."""

    seconds: float
    option: str  # the option that sets the limit
    deadline: float  # when the limit is reached, by ``wakeful``, if the cell has no rests


class CellProcess(Conversation):
    """A cell or replica that answers in lines. ``measures``: whether it builds and measures a backend."""

    def __init__(self, descriptor: int, interrupts: Interrupts, limit: Limit, *, measures: bool) -> None:
        self._news = (descriptor, interrupts.fileno())  # readable when an answer has arrived, or the user interrupts
        self.ahead_ns = 0  # how far the cell's clock is ahead of this process's clock
        self._interrupts, self._limit, self._measures = interrupts, limit, measures
        self._deadline = limit.deadline
        self._is_ready = False
        self._began = self._passed = 0  # when the last window began, and how long it took, by this process's clock
        self._excess: list[float] = []  # nanoseconds that each window took beyond its claim and ``_SHARE`` of it
        self._may_close_until = 0.0  # 0 until the cell is done

    def messages(self) -> Iterator[Answer]:
        """Yield the cell's answers, as ``Conversation`` declares."""
        while True:
            self._check_limits()
            if (line := self._heard()) is None:
                wakeful.wait(self._news)
                continue
            try:
                answer = decode(line)
            except ValueError as error:
                raise CellError(f"its answer cannot be read: {error}") from None
            if (noted := self._noted(answer)) is not None:
                yield noted

    def _noted(self, answer: Answer) -> Answer | None:
        """Note the times of an answer, and return it with times by this process's clock; None if it is only a time."""
        match answer:
            case Ready():
                self._is_ready = True
            case Begins():
                self._began = time.perf_counter_ns()
                return None
            case Ends():
                self._passed = time.perf_counter_ns() - self._began
                return None
            case Window(ns=ns):
                self._excess.append(self._passed - (1 + _SHARE) * ns)
            case ReplicaWindow():
                self._excess.append(self._passed - (1 + _SHARE) * answer.window.ns)
                return replace(answer, start_ns=max(0, answer.start_ns - self.ahead_ns))
            case Done():
                # Judge by the smallest excess: on a busy machine, messages of some windows arrive late.
                if len(self._excess) >= _FEWEST and min(self._excess) > _SLACK_NS:
                    raise CellError("its clock is too slow: its windows take longer than it claims")
                self._may_close_until = wakeful() + _CLOSE_S
        return answer

    def start(self, at_ns: int) -> None:
        """Send a replica the time when its first window begins, given in nanoseconds of this process's clock."""
        self._say(str(at_ns + self.ahead_ns))

    def end(self) -> None:
        """End all processes of the cell. A cell that is done may close its backend first, unless interrupted."""
        while wakeful() < self._may_close_until and not self._interrupts.requested and self._is_alive():
            wakeful.wait([self._interrupts.fileno()], _CLOSE_CHECK_S)
        self._end()

    def _check_limits(self) -> None:
        """Raise CellError if the cell's time limit is reached, or the user interrupts."""
        if self._interrupts.requested:
            raise InterruptedCellError
        if wakeful() > self._deadline:
            place = ", in a step" if self._is_ready else ", while it was built or reset" if self._measures else ""
            raise CellError(f"timed out after {self._limit.seconds:.3g} s ({self._limit.option}){place}")

    @abstractmethod
    def _heard(self) -> bytes | None:
        """Return the cell's next line, None if it has not arrived. Raises CellError if none will arrive."""

    @abstractmethod
    def _say(self, line: str) -> None:
        """Write a line to the cell. If the cell has ended, only ``_heard`` reports that."""

    @abstractmethod
    def _is_alive(self) -> bool:
        """Return whether the cell still runs."""

    @abstractmethod
    def _end(self) -> None:
        """End all processes of the cell now."""


class LocalCell(CellProcess):
    """A cell on this machine, whose processes have ``mark`` in their environment.

    If this process is killed, ``guard`` ends the cell. ``keep_off`` moves this process off the cell's CPUs.
    """

    def __init__(
        self,
        child: ChildProcess,
        mark: str,
        interrupts: Interrupts,
        limit: Limit,
        guard: ProcessGuard,
        keep_off: Callable[[], None],
        *,
        measures: bool,
    ) -> None:
        super().__init__(child.lines.descriptor, interrupts, limit, measures=measures)
        self._child, self._mark, self._guard, self._keep_off = child, mark, guard, keep_off
        self._resting_since = 0.0
        self._strays: list[int] | None = None  # the cell's processes that are not in its process group

    def take_turn(self) -> None:
        """Let the cell run until the end of its next window."""
        self._deadline += wakeful() - self._resting_since
        self._keep_off()
        self._signal(signal.SIGCONT)
        self._say("")

    def rest(self) -> None:
        """Stop the cell's processes: otherwise they might work, uncounted, during another cell's turn.

        Processes that have left the cell's process group, such as Ray's, are stopped, too. They are looked for only
        once, when the cell is warm, because the search takes long if there are many processes.
        """
        self._signal(signal.SIGSTOP)
        if self._strays is None:
            group, self._strays = self._child.process.pid, []
            with suppress(OSError):  # /proc is missing
                for pid in guardian.members(self._mark, variable=guardian.CELL_VARIABLE):
                    with suppress(ProcessLookupError):
                        self._strays += [] if os.getpgid(pid) == group else [pid]
            self._signal(signal.SIGSTOP)
        self._resting_since = wakeful()

    def log(self) -> str:
        """Return the end of the log of the cell's processes."""
        return self._child.log.end()

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the cell's process group, and to its processes outside of the group."""
        for target in (-self._child.process.pid, *(self._strays or ())):
            # ``_heard`` reports an ended process. macOS forbids signals to zombies.
            with suppress(ProcessLookupError, PermissionError):
                os.kill(target, number)

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
        super()._check_limits()
        if fault := self._child.fault():
            raise CellError(fault)


class FarCell(CellProcess):
    """A cell or replica on the host of ``site``.

    Before a replica is started, the host's clock is read over the connection a few times. The shortest round trip gives
    the smallest error, since the clock was read within it (F. Cristian, Distributed Computing 3, 1989). Hosts need not
    agree on the time of day: monotonic clocks are compared.
    """

    def __init__(self, site: Site, request: Request, interrupts: Interrupts, limit: Limit, *, measures: bool) -> None:
        super().__init__(site.descriptor, interrupts, limit, measures=measures)
        self._site, self._cpus = site, len(request.setup.cpus)
        site.cells += 1
        self._number = site.cells
        self._told_ns: list[int] = []  # readings of the host's clock
        self._error_ns: int | None = None  # the error of ``ahead_ns``; None if ``ahead_ns`` is not needed
        self._is_told = False  # whether the host was asked to end the cell
        self._log: str | None = None  # the end of the cell's log; None until the cell has ended
        self._refusal: CellError | None = None
        try:
            if request.mode == "in_step":
                self._read_clock(request.settings.duration)
            site.tell(start=request.as_json(), seconds=limit.seconds + _GRACE_S, cell=self._number)
        except CellError as error:
            self._refusal = error

    def _read_clock(self, duration: float) -> None:
        """Set ``ahead_ns`` and its error. Raises CellError if the error is too large for windows of this duration."""
        trips = []
        for _ in range(_TRIPS):
            asked = time.perf_counter_ns()
            self._site.tell(clock=self._number)
            while self._heard() is None and not self._told_ns:
                self._check_limits()
                wakeful.wait(self._news)
            came = time.perf_counter_ns()
            trips.append(((came - asked + 1) // 2, self._told_ns.pop() - (asked + came) // 2))
        self._error_ns, self.ahead_ns = min(trips)
        error = self._error_ns * _NANO
        if error > max(_MOST_ERROR_S, _MOST_ERROR * duration):
            within = f"{error:.2g} s, over {_MOST_ERROR:.0%} of a window"
            raise CellError(f"its clock is known only to within {within}: use a longer --duration")

    def messages(self) -> Iterator[Answer]:
        """Yield the cell's answers. ``Done`` also has the host's share."""
        if self._refusal is not None:
            raise self._refusal
        windows: list[Window] = []
        for answer in super().messages():
            if isinstance(answer, ReplicaWindow):
                windows.append(answer.window)
            yield replace(answer, hosts=self._share(windows)) if isinstance(answer, Done) else answer

    def _share(self, windows: Sequence[Window]) -> tuple[HostShare, ...] | None:
        if self._error_ns is None:
            return None
        spent = sum(window.ns for window in windows)
        taken = sum(window.taken_ns for window in windows)
        rate = sum(window.transitions for window in windows) / (spent * _NANO) if spent else 0.0
        disturbed = too_much(taken, self._cpus * spent, self._cpus * len(windows))
        return (HostShare(self._site.name, rate, self.ahead_ns, self._error_ns, taken, disturbed),)

    def log(self) -> str:
        """Return the end of the cell's log. A cell that is not done is ended first, because the host then sends it."""
        if not self._may_close_until:
            self._end()
        return self._log or ""

    def _heard(self) -> bytes | None:
        try:
            while (said := self._site.heard()) is not None:
                if said.cell != self._number:  # a message about an earlier cell
                    continue
                if said.clock is not None:
                    self._told_ns.append(said.clock)
                    return None
                if said.ended is not None:
                    self._log = said.log
                    if not self._may_close_until:
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
        if self._log is None and not self._is_told:
            self._site.tell(end=self._number)
            self._is_told, until = True, wakeful() + _ENDED_S
            while wakeful() < until and self._is_alive():
                wakeful.wait([self._site.descriptor], until - wakeful())


class Replicas(Conversation):
    """The replicas of a cell as one conversation. Their windows start together, and count only while all replicas run.

    Times are by the runner's clock, so that replicas may be on several hosts. The first of ``windows`` windows begins
    ``lead_ns`` after the last replica is warm. Failure reasons begin with one of the ``names``.
    """

    def __init__(
        self,
        replicas: Sequence[CellProcess],
        windows: int,
        names: Sequence[str],
        lead_ns: int = LOCAL_LEAD_NS,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._replicas, self._windows, self._names = replicas, windows, names
        self._lead_ns, self._clock = lead_ns, clock
        self._answers = [replica.messages() for replica in replicas]

    def messages(self) -> Iterator[Answer]:
        """Yield the joint answers of the replicas up to ``Done``. Raises CellError if a replica has failed."""
        ready = self._each(Ready)
        slowest = max(ready, key=lambda one: one.startup_ns)
        unbound = next(filter(None, (one.layout.unbound for one in ready)), None)
        layout = replace(joined_facts([one.layout for one in ready]), unbound=unbound)
        yield replace(slowest, layout=layout)
        self._each(Warm)
        start = self._clock() + self._lead_ns
        for replica in self._replicas:
            replica.start(start)
        for _ in range(self._windows):
            yield common_window(self._each(ReplicaWindow))
        yield joined_facts(self._each(Done))

    def _each(self, kind: type[_T]) -> list[_T]:
        """Return the next answer of each replica. Raises CellError for a failure, or an answer of another kind."""
        found: list[_T] = []
        for name, answers in zip(self._names, self._answers, strict=True):
            try:
                answer = next(answers)
            except InterruptedCellError:  # the replica has not failed
                raise
            except CellError as error:
                answer = Failure(str(error))
            if isinstance(answer, Failure):
                raise CellError(f"{name}: {answer.reason}")
            if not isinstance(answer, kind):
                raise CellError(f"{name} answered {type(answer).__name__} instead of {kind.__name__}")
            found.append(answer)
        return found

    def log(self) -> str:
        """Return the end of each replica's log, under the replica's name. Replicas on hosts are ended first."""
        texts = [replica.log() for replica in self._replicas]
        return "".join(f"{name}:\n{text}\n" for name, text in zip(self._names, texts, strict=True) if text)


def common_window(windows: Sequence[ReplicaWindow]) -> Window:
    """Return the window in which all replicas ran. Its counts are sums over the replicas' shares in this window.

    Raises CellError if the replicas hardly ran at the same time.
    """
    begin = max(one.start_ns for one in windows)
    end = min(one.start_ns + one.window.ns for one in windows)
    if end - begin < _LEAST_COMMON * max(one.window.ns for one in windows):
        raise CellError("replicas hardly ran at the same time: use a longer --duration")
    shares = [(end - begin) / one.window.ns for one in windows]
    return joined([one.window for one in windows], shares, end - begin)


def _unique(values: Iterable[Iterable[Any]]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(values)))


def _chained(values: Iterable[Iterable[Any]]) -> tuple[Any, ...]:
    return tuple(chain.from_iterable(values))


# The functions that join facts about replicas. Other facts are equal in all replicas.
_JOINED: dict[str, Callable[[list[Any]], Any]] = {
    **dict.fromkeys(("num_envs", "batch_size", "processes", "peak_rss_bytes"), sum),
    **dict.fromkeys(("threads", "warmup_ns"), max),
    **dict.fromkeys(("differences", "engines", "priorities"), _unique),
    **dict.fromkeys(("affinity", "seats", "hosts"), _chained),
    "settled": all,
    "memory_policy": lambda each: "; ".join(dict.fromkeys(each)),
    "memory_by_node": lambda each: {node: sum(one.get(node, 0) for one in each) for node in sorted(_unique(each))},
}


def joined_facts(facts: Sequence[_Facts]) -> _Facts:
    """Return the joint facts about all replicas. A fact is None if it is unknown for one of them."""
    found: dict[str, Any] = {}
    for name in vars(facts[0]).keys() & _JOINED.keys():
        values = [getattr(each, name) for each in facts]
        found[name] = None if None in values else _JOINED[name](values)
    return replace(facts[0], **found)
