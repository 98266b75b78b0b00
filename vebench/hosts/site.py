"""A host that was reached: what is known of it, its clock, and the replica that runs there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any

import msgspec

from vebench.backends.packages import RAY, how_to_install, importable
from vebench.errors import UsageError, shown
from vebench.hosts import shipping
from vebench.interpreters.guarded import Guarded
from vebench.interpreters.waiting import readable, wakeful
from vebench.machine.host import Host  # noqa: TC001 - msgspec reads the annotations
from vebench.machine.outside import EXIT_S
from vebench.plan.spec import Hosts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from vebench.interpreters.waiting import Interrupts
    from vebench.plan.spec import RunSpec

# To be reached and to tell of itself. A thousand logins take a while.
_REACHED_S = 60.0
# For an answer that needs no work there, and for the processes of a replica to be ended.
ANSWER_S = 10.0
# A connection may take this long to close by itself.
_CLOSE_S = 5.0
# The lines that a host may send, by the types of what they hold.
KINDS: tuple[dict[str, type], ...] = (
    {"hello": dict},
    {"clock": int, "ns": int},
    {"cell": int, "line": str},
    {"cell": int, "ended": str, "log": str},
    {"lost": str},
)
# What is kept of what a connecting program printed.
_MOST_TOLD = 4096


@dataclass(frozen=True)
class Facts:
    """What a host tells of itself: its name, its Python with what is installed there, and the machine.

    ``boot`` names the time since it was started; ``load`` is how many processes want a CPU, before any runs for us.
    """

    name: str
    boot: str
    python: str
    path: str
    packages: dict[str, str]
    modules: list[str]
    host: Host
    memory_available: int | None
    load: float


class LostHostError(Exception):
    """A host cannot be reached any more."""


class NoAnswerError(LostHostError):
    """A host has not answered in time."""


class Site:
    """A host by the name that the user gave it, at the other end of two pipes.

    ``last_words`` returns what the program that connects to it said last. Once ``interrupts`` are there, waiting for it
    raises KeyboardInterrupt, but for its end.
    """

    def __init__(
        self,
        name: str,
        writing: IO[bytes],
        reading: IO[bytes],
        last_words: Callable[[], str],
        interrupts: Interrupts | None = None,
    ) -> None:
        self.name, self._writing, self._reading, self._last_words = name, writing, reading, last_words
        self._interrupts = interrupts
        os.set_blocking(self._writing.fileno(), False)  # until the payload is sent
        self._unsent = memoryview(shipping.payload())
        self._lines: deque[dict[str, Any]] = deque()
        self._rest = b""
        self._asked = 0
        self._fault: LostHostError | None = None
        self._ends_until = 0.0
        self.cell = 0  # the number of the last that was started there

    def fileno(self) -> int:
        """Return a descriptor that can be read when the host has said something, or is lost."""
        return self._reading.fileno()

    def feed(self) -> bool:
        """Send of the payload what can be sent without waiting. Returns whether more is to be sent.

        A host that is lost meanwhile is done, too: who asks for its facts is told.
        """
        try:
            if (said := self.heard()) is not None:
                self._lines.appendleft(said)
            with suppress(BlockingIOError):
                while self._unsent:
                    self._unsent = self._unsent[self._write(self._unsent) :]
        except LostHostError as error:
            self.give_up(str(error))
        if self._fault is not None or not self._unsent:
            os.set_blocking(self._writing.fileno(), True)
            return False
        return True

    @property
    def facts(self) -> Facts:
        """What the host told of itself. Raises LostHostError if it has not in time, or was lost before."""
        if self._fault is not None:
            raise self._fault
        try:
            return self._facts
        except LostHostError as error:
            self.give_up(str(error))
            raise

    @cached_property
    def _facts(self) -> Facts:
        hello = self._wait("hello", _REACHED_S)["hello"]
        try:
            return msgspec.json.decode(json.dumps(hello), type=Facts)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise LostHostError(f"what it tells of itself cannot be read: {error}") from None

    def ask_clock(self) -> int:
        """Ask for its time. Returns the number that its answer, ``{"clock": number, "ns": ...}``, will have."""
        self._asked += 1
        self.tell(clock=self._asked)
        return self._asked

    def tell(self, **what: Any) -> None:  # noqa: ANN401 - JSON
        """Send a line. Raises LostHostError."""
        line = json.dumps(what).encode() + b"\n"
        while line:
            line = line[self._write(line) :]

    def _write(self, what: bytes | memoryview) -> int:
        """Write what can be written; returns how much. Raises LostHostError."""
        try:
            return os.write(self._writing.fileno(), what)
        except BrokenPipeError:
            raise self._lost() from None

    def heard(self) -> dict[str, Any] | None:
        """Return the next line that has come, None if there is none yet. Raises LostHostError, once and for all."""
        while not self._lines and self._fault is None and readable(self.fileno()):
            chunk = os.read(self.fileno(), 1 << 16)
            if not chunk:
                self.give_up(f"lost: {self._last_words()}")
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            self._lines.extend(filter(None, map(_read, lines)))
        if self._lines and "lost" in self._lines[0]:
            self.give_up(f"lost: {self._lines.popleft()['lost']}")
        if self._lines:
            return self._lines.popleft()
        if self._fault is not None:
            raise self._fault
        return None

    def give_up(self, why: str) -> None:
        """Take it for lost from now on, if it was not before."""
        self._fault = self._fault or LostHostError(why)

    def start(self, request: dict[str, Any], seconds: float) -> None:
        """Start a replica there. It is ended after so many seconds, even if the host cannot be told."""
        self.cell += 1
        self.tell(start={"request": request, "seconds": seconds}, cell=self.cell)

    def tell_to_end(self) -> None:
        """Let what was started there last be ended, without waiting for that."""
        with suppress(LostHostError):
            self.tell(end=True)

    def log_at_end(self, seconds: float, *, heeding: bool = False) -> str | None:
        """Wait until what was started there last has ended. Returns the end of its log, None if it has not in time.

        The log of a lost host is not known, and so empty. ``heeding``: raises KeyboardInterrupt if the user wants to
        stop.
        """
        until = wakeful() + seconds
        try:
            while (left := until - wakeful()) > 0:
                said = self._wait("ended", left, heeding=heeding)
                if said["cell"] == self.cell:
                    return str(said["log"])
        except NoAnswerError:
            return None
        except LostHostError:
            return ""
        return None

    def hang_up(self) -> None:
        """Let everything end there that was started, without waiting for it."""
        if not self._writing.closed:
            self._ends_until = wakeful() + _CLOSE_S
            with suppress(OSError):
                self._writing.close()

    def close(self) -> None:
        """Hang up, and wait until everything there has ended."""
        self.hang_up()
        with suppress(LostHostError):
            while (left := self._ends_until - wakeful()) > 0:
                wakeful.wait([self.fileno()], left)
                self.heard()
        self._reading.close()

    def _wait(self, kind: str, seconds: float, *, heeding: bool = True) -> dict[str, Any]:
        """Return the next line of this kind; others are kept for later. Raises LostHostError if none comes in time.

        ``heeding``: whether it raises KeyboardInterrupt if the user wants to stop.
        """
        interrupts = self._interrupts if heeding else None
        news = [self.fileno()] if interrupts is None else [self.fileno(), interrupts.fileno()]
        until = wakeful() + seconds
        others: list[dict[str, Any]] = []
        try:
            while wakeful() < until:
                if interrupts is not None and interrupts.requested:
                    raise KeyboardInterrupt
                if (line := self.heard()) is None:
                    wakeful.wait(news, until - wakeful())
                elif kind in line:
                    return line
                else:
                    others.append(line)
        finally:
            self._lines.extendleft(reversed(others))
        raise NoAnswerError(f"no answer for {seconds:g} s")

    def _lost(self) -> LostHostError:
        """Return why the host takes nothing any more: what it has still said, or else the connecting program."""
        kept: list[dict[str, Any]] = []
        try:
            while (line := self.heard()) is not None:
                kept.append(line)
        except LostHostError as error:
            return error
        finally:
            self._lines.extendleft(reversed(kept))
        return LostHostError(f"lost: {self._last_words()}")


def _read(line: bytes) -> dict[str, Any]:
    """Return what a line says, nothing if it is none of ours: a login may greet, and a host may be damaged."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(said, dict) or not any(said.keys() >= kind.keys() for kind in KINDS):
        return {}
    kinds = {name: of for kind in KINDS for name, of in kind.items()}
    fits = all(type(value) is kinds.get(name) for name, value in said.items())
    return said if fits else {}


@contextmanager
def reached(spec: RunSpec, guarded: Guarded, interrupts: Interrupts | None = None) -> Iterator[dict[str, Site]]:
    """Reach the hosts of a spec, all at once, and hang up in the end. Returns them by name; none if it has none.

    A host that cannot be reached says so to whom asks for its facts. Raises UsageError if nothing can be reached.
    """
    hosts = spec.hosts or Hosts()
    with ExitStack() as stack:
        if hosts.via == shipping.RAY and hosts.names:
            require_ray(hosts.address)
            sites = stack.enter_context(_over_ray(hosts, guarded, interrupts))
        else:
            line = shipping.command(hosts.python or sys.executable)
            sites = [
                stack.enter_context(_connected(name, hosts.via, line, guarded, interrupts)) for name in hosts.names
            ]
        stack.callback(_hang_up, sites)  # on all, before one is waited for
        _feed(sites, interrupts)
        yield {site.name: site for site in sites}


def _hang_up(sites: Iterable[Site]) -> None:
    for site in sites:
        site.hang_up()


def require_ray(address: str) -> None:
    """Raise UsageError, with what to install, if Ray is not there."""
    if not importable(RAY.module):
        raise UsageError(f"--hosts: Ray at {shown(address)}: needs Ray: {how_to_install([RAY])}")


def nodes_of_ray(address: str) -> tuple[str, ...]:
    """Return the names of the nodes of a Ray cluster. Raises UsageError without Ray, or without such a cluster."""
    require_ray(address)
    try:
        asked = subprocess.run(shipping.nodes_of_ray(address), capture_output=True, timeout=_REACHED_S, check=False)
    except subprocess.TimeoutExpired:
        raise UsageError(f"--hosts: Ray at {shown(address)}: no answer for {_REACHED_S:g} s") from None
    if asked.returncode:
        why = asked.stderr.decode(errors="replace").strip().rpartition("\n")[2][:300]
        raise UsageError(f"--hosts: Ray at {shown(address)}: {why}")
    names: list[str] = json.loads(asked.stdout.splitlines()[-1])
    if not names:
        raise UsageError(f"--hosts: Ray at {shown(address)}: none of its nodes has a CPU")
    return tuple(names)


def examine(spec: RunSpec) -> dict[str, Facts]:
    """Return what the hosts of a spec report, by name. Raises UsageError, which names each host that does not."""
    found, lost = {}, []
    with Guarded() as guarded, reached(spec, guarded) as sites:
        for name, site in sites.items():
            try:
                found[name] = site.facts
            except LostHostError as error:
                lost.append(f"{name}: {error}")
    if lost:
        raise UsageError(f"--hosts: {'; '.join(lost)}")
    return found


@contextmanager
def _connected(name: str, way: str, line: str, guarded: Guarded, interrupts: Interrupts | None) -> Iterator[Site]:
    words = shipping.words(way, name, line)
    with _program(f"--hosts: {way}", words, guarded, EXIT_S, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as (
        process,
        told,
    ):
        if process.stdin is None or process.stdout is None:
            raise ValueError("a host is talked to over pipes")
        with closing(Site(name, process.stdin, process.stdout, told, interrupts)) as site:
            yield site


@contextmanager
def _over_ray(hosts: Hosts, guarded: Guarded, interrupts: Interrupts | None) -> Iterator[list[Site]]:
    """Reach all hosts by one program, since Ray takes seconds to start. It gets the other ends of their pipes."""
    with ExitStack() as stack:
        pipes = _pipes(hosts.names)
        theirs = [end for _, (reading, _), (_, writing) in pipes for end in (reading, writing)]
        ours = [(name, os.fdopen(w, "wb", 0), os.fdopen(r, "rb", 0)) for name, (_, w), (r, _) in pipes]
        try:
            words = shipping.over_ray(
                hosts.address,
                [(name, r, w) for name, (r, _), (_, w) in pipes],
                hosts.python,
                deliver=hosts.deliver,
            )
            # What Ray prints goes to standard error: standard output is for data.
            started = _program(
                "--hosts: Ray", words, guarded, _CLOSE_S, stdin=subprocess.DEVNULL, stdout=2, pass_fds=theirs
            )
            _, told = stack.enter_context(started)
        finally:
            for end in theirs:
                os.close(end)
        yield [
            stack.enter_context(closing(Site(name, writing, reading, told, interrupts)))
            for name, writing, reading in ours
        ]


def _pipes(names: Sequence[str]) -> list[tuple[str, tuple[int, int], tuple[int, int]]]:
    """Return two pipes for each host. Raises UsageError if there are not so many to be had."""
    made: list[tuple[str, tuple[int, int], tuple[int, int]]] = []
    try:
        for name in names:
            there = os.pipe()
            made.append((name, there, os.pipe()))
    except OSError as error:
        raise UsageError(
            f"--hosts: no pipe for the host number {len(made) + 1}: {error.strerror} (ulimit -n)"
        ) from None
    return made


@contextmanager
def _program(
    option: str,
    words: list[str],
    guarded: Guarded,
    patience: float,
    **how: Any,  # noqa: ANN401 - as Popen has them
) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], str]]]:
    """Start a program that connects, and end it in the end, in which it has so many seconds to do so by itself.

    Returns it, and what returns its last words. Raises UsageError, which names the option, if it cannot be started.
    """
    with tempfile.TemporaryFile(dir=guarded.scratch) as printed:
        try:
            process = subprocess.Popen(words, stderr=printed, start_new_session=True, **how)
        except OSError as error:
            raise UsageError(f"{option}: {words[0]} cannot be started: {error.strerror}") from None
        guarded.add(process.pid)
        try:
            yield process, lambda: _last_words(process, words[0], printed)
        finally:
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            guarded.discard(process.pid)


def _last_words(process: subprocess.Popen[bytes], name: str, printed: IO[bytes]) -> str:
    with suppress(subprocess.TimeoutExpired):
        process.wait(1.0)
    size = os.fstat(printed.fileno()).st_size
    told = os.pread(printed.fileno(), _MOST_TOLD, max(0, size - _MOST_TOLD)).decode(errors="replace")
    return told.strip().rpartition("\n")[2][:300] or f"{name} ended with status {process.poll()}"


def _feed(sites: Sequence[Site], interrupts: Interrupts | None) -> None:
    """Send the payload to all, each as fast as it takes it."""
    until = wakeful() + _REACHED_S
    hungry = list(sites)
    while hungry := [site for site in hungry if site.feed()]:
        if interrupts is not None and interrupts.requested:
            raise KeyboardInterrupt
        if wakeful() > until:
            for site in hungry:
                site.give_up(f"takes nothing for {_REACHED_S:g} s")
            return
        time.sleep(0.005)  # what goes out is a few hundred kilobytes each
