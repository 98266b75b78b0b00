"""The processes of a cell, on this machine or other hosts, as one or several replicas: answers, limits and clocks."""

from __future__ import annotations

import os
import signal
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeVar

from vebench.child import answers
from vebench.child.process import ChildProcess
from vebench.child.request import Request
from vebench.engine.runner import CellError, Conversation, decode
from vebench.hosts import LostHostError, Site
from vebench.machine import guardian
from vebench.process_guard import Interrupts, ProcessGuard, wakeful

_SECOND = 1_000_000_000  # nanoseconds

_Kind = TypeVar("_Kind", answers.Ready, answers.Warm, answers.ReplicaWindow, answers.Done)
_Facts = TypeVar("_Facts", answers.Layout, answers.Done)


@dataclass(frozen=True)
class Limit:
    """The time limit of a cell. The time for which a cell is stopped between its turns does not count."""

    seconds: float
    option: str  # the option that sets the limit
    deadline: float  # when the limit is reached, by ``wakeful``, if the cell is never stopped
    measures: bool  # whether the cell builds and measures a backend


class CellProcess(Conversation):
    """A cell or replica that answers in lines."""

    def __init__(self, descriptor: int, interrupts: Interrupts, limit: Limit) -> None:
        self.news = (descriptor, interrupts.fileno())  # readable when an answer has arrived, or the user interrupts
        self.ahead_ns = 0  # how far the cell's clock is ahead of this process's clock
        self._interrupts, self._limit = interrupts, limit
        self._deadline = limit.deadline
        self._is_ready = False
        self._may_close_until = 0.0  # 0 until the cell is done

    def messages(self) -> Iterator[answers.Answer]:
        """Yield the cell's answers, as ``Conversation`` declares."""
        while True:
            if (answer := self.take()) is None:
                wakeful.wait(self.news)
            else:
                yield answer

    def take(self) -> answers.Answer | None:
        """Return the cell's next answer, None if it has not arrived. Its times are by this process's clock.

        Raises CellError if the cell has failed or cannot go on.
        """
        self._check_limits()
        if (line := self._heard()) is None:
            return None
        try:
            answer = decode(line)
        except ValueError as error:
            raise CellError(f"its answer cannot be read: {error}") from None
        match answer:
            case answers.Ready():
                self._is_ready = True
            case answers.ReplicaWindow(start_ns=start_ns):
                return replace(answer, start_ns=max(0, start_ns - self.ahead_ns))
            case answers.Done():
                self._may_close_until = wakeful() + 10
            case answers.Failure():
                raise CellError(answer.reason)
        return answer

    def start(self, at_ns: int) -> None:
        """Send a replica the time when its first window begins, given in nanoseconds of this process's clock."""
        self._say(str(at_ns + self.ahead_ns))

    def end(self) -> None:
        """End all processes of the cell. A cell that is done may close its backend first, unless interrupted."""
        while wakeful() < self._may_close_until and not self._interrupts.requested and self._is_alive():
            wakeful.wait([self._interrupts.fileno()], 0.01)
        self._end()

    def _check_limits(self) -> None:
        """Raise CellError if the time limit is reached, KeyboardInterrupt if the user interrupts."""
        if self._interrupts.requested:
            raise KeyboardInterrupt
        if wakeful() > self._deadline:
            limit = self._limit
            place = ", while it was built or reset" if limit.measures else ""
            if self._is_ready:
                place = ", in a step"
            raise CellError(f"timed out after {limit.seconds:.3g} s ({limit.option}){place}")

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
    ) -> None:
        super().__init__(child.lines.descriptor, interrupts, limit)
        self._child, self._mark, self._guard, self._keep_off = child, mark, guard, keep_off
        self._resting_since = 0.0
        self._strays: dict[int, bytes] | None = None  # when each process outside of the cell's group was started

    def take_turn(self) -> None:
        """Let the cell run until the end of its next window."""
        self._deadline += wakeful() - self._resting_since
        self._keep_off()
        self._signal(signal.SIGCONT)
        self._say("")

    def rest(self) -> None:
        """Stop the cell's processes: otherwise they might work, uncounted, during another cell's turn.

        Processes that have left the cell's group, such as Ray's, are looked for only once, because that takes long.
        """
        self._signal(signal.SIGSTOP)
        if self._strays is None:
            group, self._strays = self._child.process.pid, {}
            with suppress(OSError):  # /proc is missing
                for pid in guardian.members(self._mark, variable=guardian.CELL_VARIABLE):
                    with suppress(ProcessLookupError):
                        if os.getpgid(pid) != group:
                            self._strays[pid] = guardian.born(pid)
            self._signal(signal.SIGSTOP)
        self._resting_since = wakeful()

    def log(self) -> str:
        """Return the end of the log of the cell's processes."""
        return self._child.log.end()

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the cell's process group, and to its processes outside of the group."""
        for target in (-self._child.process.pid, *self._living_strays()):
            # ``_heard`` reports an ended process. macOS forbids signals to zombies.
            with suppress(ProcessLookupError, PermissionError):
                os.kill(target, number)

    def _living_strays(self) -> list[int]:
        """Return the ids of living strays. The id of an ended one may have been given to somebody else's process."""
        return [pid for pid, born in (self._strays or {}).items() if guardian.born(pid) == born]

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
        for pid in self._living_strays():  # some may have lost the mark, too
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self._guard.discard(self._child.process.pid)

    def _check_limits(self) -> None:
        super()._check_limits()
        if fault := self._child.fault():
            raise CellError(fault)


class FarCell(CellProcess):
    """A cell or replica on the host of ``site``.

    Before a replica is started, the host's clock is read a few times. The shortest round trip gives the smallest error,
    since the clock was read within it (F. Cristian, Distributed Computing 3, 1989). Monotonic clocks are compared.
    """

    def __init__(self, site: Site, request: Request, interrupts: Interrupts, limit: Limit) -> None:
        super().__init__(site.descriptor, interrupts, limit)
        self._site, self._cpus = site, len(request.setup.cpus)
        site.cells += 1
        self._number = site.cells
        self._told_ns: list[int] = []  # readings of the host's clock
        self._error_ns: int | None = None  # the error of ``ahead_ns``, None if ``ahead_ns`` is not needed
        self._windows: list[answers.Window] = []
        self._log: str | None = None  # the end of the cell's log; None until the cell has ended
        self._refusal: CellError | None = None
        try:
            if request.mode == "in_step":
                self._read_clock(request.settings.duration)
            site.tell(start=request.as_json(), cell=self._number)
        except CellError as error:
            self._refusal = error

    def _read_clock(self, duration: float) -> None:
        """Set ``ahead_ns`` and its error. Raises CellError if the error is too large for windows of this duration."""
        trips = []
        for _ in range(10):
            asked = time.perf_counter_ns()
            self._site.tell(clock=self._number)
            while self._heard() is None and not self._told_ns:
                self._check_limits()
                wakeful.wait(self.news)
            came = time.perf_counter_ns()
            half, middle = (came - asked + 1) // 2, (asked + came) // 2
            trips.append((half, self._told_ns.pop() - middle))
        self._error_ns, self.ahead_ns = min(trips)
        error = self._error_ns / _SECOND
        if error > max(0.005, 0.01 * duration):
            within = f"{error:.2g} s, over 1% of a window"
            raise CellError(f"its clock is known only to within {within}: use a longer --duration")

    def take(self) -> answers.Answer | None:
        """Return the cell's next answer. ``Done`` also has the host's share."""
        if self._refusal is not None:
            raise self._refusal
        answer = super().take()
        if isinstance(answer, answers.ReplicaWindow):
            self._windows.append(answer.window)
        if not isinstance(answer, answers.Done) or self._error_ns is None:
            return answer
        spent = sum(window.ns for window in self._windows)
        taken = sum(window.taken_ns for window in self._windows)
        rate = sum(window.transitions for window in self._windows) / (spent * 1e-9) if spent else 0.0
        disturbed = answers.too_much(taken, self._cpus * spent, self._cpus * len(self._windows))
        share = answers.HostShare(self._site.name, rate, self.ahead_ns, self._error_ns, taken, disturbed)
        return replace(answer, hosts=(share,))

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
        if self._log is None:
            self._site.tell(end=self._number)
            until = wakeful() + 10
            while wakeful() < until and self._is_alive():
                wakeful.wait([self._site.descriptor], until - wakeful())


class Replicas(Conversation):
    """The replicas of a cell as one conversation. Their windows start together, and count only while all replicas run.

    Times are by the runner's clock, so that replicas may be on several hosts. The first of ``windows`` windows begins
    some time after the last replica is warm. Each replica then knows its start in time, even if messages go over a
    network (``far``). Reasons of failures begin with one of the ``names``.
    """

    def __init__(
        self,
        replicas: Sequence[CellProcess],
        windows: int,
        names: Sequence[str],
        *,
        far: bool = False,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._replicas = dict(zip(names, replicas, strict=True))
        self._windows, self._clock = windows, clock
        self._lead_ns = _SECOND // 2 if far else _SECOND // 20
        self._arrived: dict[str, deque[answers.Answer]] = {name: deque() for name in names}
        self._working = dict(self._replicas)  # the replicas that are not done

    def messages(self) -> Iterator[answers.Answer]:
        """Yield the joint answers of the replicas up to ``Done``. Raises CellError if a replica has failed."""
        ready = self._each(answers.Ready)
        slowest = max(ready, key=lambda one: one.startup_ns)
        unbound = next(filter(None, (one.layout.unbound for one in ready)), None)
        layout = replace(joined_facts([one.layout for one in ready]), unbound=unbound)
        yield replace(slowest, layout=layout)
        self._each(answers.Warm)
        start = self._clock() + self._lead_ns
        for replica in self._replicas.values():
            replica.start(start)
        for _ in range(self._windows):
            yield common_window(self._each(answers.ReplicaWindow))
        yield joined_facts(self._each(answers.Done))

    def _each(self, kind: type[_Kind]) -> list[_Kind]:
        """Return the next answer of each replica. Raises CellError for a failure, or an answer of another kind."""
        self._take()
        while not all(self._arrived.values()):
            wakeful.wait(chain.from_iterable(replica.news for replica in self._working.values()))
            self._take()
        found: list[_Kind] = []
        for name, arrived in self._arrived.items():
            answer = arrived.popleft()
            if not isinstance(answer, kind):
                raise CellError(f"{name} answered {type(answer).__name__} instead of {kind.__name__}")
            found.append(answer)
        return found

    def _take(self) -> None:
        """Take all answers that have arrived. This waits for no replica, so that the end of any is seen at once."""
        for name, replica in tuple(self._working.items()):
            try:
                while name in self._working and (answer := replica.take()) is not None:
                    self._arrived[name].append(answer)
                    if isinstance(answer, answers.Done):
                        del self._working[name]
            except CellError as error:
                raise CellError(f"{name}: {error}") from None

    def log(self) -> str:
        """Return the end of each replica's log, under the replica's name. Replicas on hosts are ended first."""
        texts = {name: replica.log() for name, replica in self._replicas.items()}
        return "".join(f"{name}:\n{text}\n" for name, text in texts.items() if text)


def common_window(windows: Sequence[answers.ReplicaWindow]) -> answers.Window:
    """Return the window in which all replicas ran, with sums over their shares. Raises CellError if it is short."""
    begin = max(one.start_ns for one in windows)
    end = min(one.start_ns + one.window.ns for one in windows)
    if 2 * (end - begin) < max(one.window.ns for one in windows):
        raise CellError("replicas hardly ran at the same time: use a longer --duration")
    shares = [(end - begin) / one.window.ns for one in windows]
    return answers.joined([one.window for one in windows], shares, end - begin)


# The functions that join facts about replicas. Other facts are equal in all replicas.
_JOINED: dict[str, Callable[[list[Any]], Any]] = {
    **dict.fromkeys(("num_envs", "batch_size", "processes", "peak_rss_bytes", "peak_gpu_bytes"), sum),
    **dict.fromkeys(("threads", "warmup_ns", "first_step_ns", "compile_ns"), max),
    **dict.fromkeys(
        ("differences", "engines", "priorities"), lambda each: tuple(dict.fromkeys(chain.from_iterable(each)))
    ),
    **dict.fromkeys(("affinity", "seats", "hosts"), lambda each: tuple(chain.from_iterable(each))),
    "settled": all,
}


def joined_facts(facts: Sequence[_Facts]) -> _Facts:
    """Return the joint facts about all replicas. A fact is None if it is unknown for one of them."""
    found: dict[str, Any] = {}
    for name in vars(facts[0]).keys() & _JOINED.keys():
        values = [getattr(each, name) for each in facts]
        found[name] = None if None in values else _JOINED[name](values)
    return replace(facts[0], **found)
