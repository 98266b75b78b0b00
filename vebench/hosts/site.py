"""Hosts: the ways to reach them, what is sent to them so that they run this code, and what they say."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

import vebench
import vebench.backends
from vebench.backends.packages import RAY, how_to_install, importable
from vebench.backends.registry import PACKAGES, RECORDED
from vebench.child.process import EXIT_S, Lines, Log, write_all
from vebench.errors import UsageError, shown
from vebench.interpreters.process_guard import CHILD_SIDE, PREFIX, ProcessGuard
from vebench.interpreters.waiting import wakeful
from vebench.machine.host import Host  # noqa: TC001 - msgspec reads the annotations
from vebench.plan.grammar import Hosts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vebench.interpreters.waiting import Interrupts
    from vebench.plan.spec import RunSpec

# To be reached and to report its facts. A thousand logins take a while.
_REACHED_S = 60.0
_FEED_S = 0.005  # how often to send more of the payload: it is larger than what a pipe holds
# A connection may take this long to close by itself.
_CLOSE_S = 5.0
# A host that does not answer must not hang a run, nor ask for a password in the middle of it. One that is lost is
# noticed after half a minute. In an allocation of Slurm's: one task on one node, beside others there.
_WAYS: dict[str, Callable[[str, str], list[str]]] = {
    "ssh": lambda host, line: [
        *("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
        *("-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3", "--", host, line),
    ],
    "srun": lambda host, line: [
        *("srun", "--nodes=1", "--ntasks=1", "--overlap", "--cpu-bind=none", "--quiet"),
        *(f"--nodelist={host}", "sh", "-c", line),
    ],
}
# A process of its own: Ray starts threads, and takes seconds to import.
_OVER_RAY = (sys.executable, "-P", "-m", "vebench.hosts.over_ray")
_LENGTH = 10  # digits before each part
# Reads a part from standard input and runs it. It is a line of a shell on the way, and so it is short.
_FIRST = (
    "import os, sys\n"
    "sys.path[:]=filter(None, sys.path)\n"  # whatever folder a login is in: no module of it is meant
    "def part():\n"
    f" n=int(take({_LENGTH})); return take(n)\n"
    "def take(n):\n"
    " b=b''\n"
    " while len(b)<n:\n"
    "  c=os.read(0,n-len(b))\n"
    "  if not c: raise SystemExit(1)\n"
    "  b+=c\n"
    " return b\n"
    "exec(part())\n"
)
# Unpacks the packages into a folder of its own, and goes on in the relay that is among them. All is read before: a
# runner that hangs up meanwhile leaves nothing behind.
_SECOND = f"""
import io, shutil, sys, tempfile, zipfile
packed, asked = part(), part().decode()
scratch = tempfile.mkdtemp(prefix={PREFIX!r})
try:
    zipfile.ZipFile(io.BytesIO(packed)).extractall(scratch + "/packages")
    sys.path.insert(0, scratch + "/packages")
    from vebench.child.relay import main
    main(scratch, asked)
finally:
    shutil.rmtree(scratch, ignore_errors=True)
"""


@cache
def payload() -> bytes:
    """Return what a host reads first: the packages that run there, and the names of others to report on."""
    import zipfile  # noqa: PLC0415 - imported on use

    ours, packed = Path(vebench.__path__[0]), io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for source in (*(ours / name for name in CHILD_SIDE), Path(vebench.backends.__path__[0])):
            for path in [source] if source.is_file() else sorted(source.rglob("*")):
                if path.suffix in {".py", ".so"}:  # compiled parts name their Python and machine, and fit or not
                    archive.write(path, Path("vebench", source.name, path.relative_to(source)))
    asked = json.dumps({"names": list(RECORDED), "modules": [package.module for package in PACKAGES]})
    parts = (_SECOND.encode(), packed.getvalue(), asked.encode())
    return b"".join(str(len(part)).zfill(_LENGTH).encode() + part for part in parts)


@dataclass(frozen=True)
class HostFacts:
    """A host's name, its Python with what is installed there, and its machine. ``load``: processes that want a CPU."""

    name: str
    python: str
    path: str
    packages: dict[str, str]
    modules: list[str]
    host: Host
    memory_available: int | None
    load: float


@dataclass(frozen=True)
class Said:
    """A line that a host has sent; ``vebench.child.relay`` says what lines there are. ``lost``: why it is, over Ray."""

    hello: HostFacts | None = None
    lost: str | None = None
    cell: int = 0
    clock: int | None = None
    line: str | None = None
    ended: str | None = None
    log: str = ""


class LostHostError(Exception):
    """A host cannot be reached any more."""


class Site:
    """A host by the name that the user gave it, at the other end of two pipes.

    ``last_words`` returns what the program that connects to it said last. ``facts`` are known once it ``is_there``;
    ``lost`` is why it cannot be reached any more. ``descriptor`` can be read when it has said something, or is lost.
    ``cells`` counts those that were started there, which have numbers.
    """

    def __init__(self, name: str, writing: IO[bytes], reading: IO[bytes], last_words: Callable[[], str]) -> None:
        self.name, self._writing, self._reading, self._last_words = name, writing, reading, last_words
        self.facts: HostFacts | None = None
        self.lost: str | None = None
        os.set_blocking(writing.fileno(), False)  # until the payload is sent
        self._unsent = memoryview(payload())
        self.descriptor = reading.fileno()
        self._lines = Lines(self.descriptor)
        self.cells = 0

    def is_there(self) -> bool:
        """Return whether it has reported, or is lost. Sends as much of the payload as possible without waiting."""
        with suppress(BlockingIOError, BrokenPipeError):  # a host that is lost is noticed when it is heard
            while self._unsent:
                self._unsent = self._unsent[os.write(self._writing.fileno(), self._unsent) :]
        with suppress(LostHostError):
            while self.facts is None and (said := self.heard()) is not None:
                self.facts = said.hello
        if self.facts is not None:
            os.set_blocking(self._writing.fileno(), True)
        return self.facts is not None or self.lost is not None

    def tell(self, **what: Any) -> None:  # noqa: ANN401 - JSON
        """Send a line. That the host is lost is noticed when it is heard."""
        if self.lost is None:
            write_all(self._writing.fileno(), json.dumps(what).encode() + b"\n")

    def heard(self) -> Said | None:
        """Return the next line that has come, None if there is none yet. Raises LostHostError, once and for all."""
        try:
            while self.lost is None and (line := self._lines.take()) is not None:
                try:
                    said = msgspec.json.decode(line, type=Said)
                except (ValueError, RecursionError):  # none of ours: a login may greet, and a host may be damaged
                    continue
                if said.lost is None:
                    return said
                self.lost = f"lost: {said.lost}"
        except EOFError:
            self.lost = f"lost: {self._last_words()}"
        if self.lost is not None:
            raise LostHostError(self.lost)
        return None

    def hang_up(self) -> None:
        """Let everything end there that was started, without waiting for it."""
        with suppress(OSError):
            self._writing.close()

    def close(self) -> None:
        """Hang up, and wait until everything there has ended."""
        self.hang_up()
        until = wakeful() + _CLOSE_S
        with suppress(LostHostError):
            while wakeful() < until:
                if self.heard() is None:
                    wakeful.wait([self.descriptor], until - wakeful())
        self._reading.close()


@contextmanager
def reached(spec: RunSpec, guarded: ProcessGuard, interrupts: Interrupts | None = None) -> Iterator[dict[str, Site]]:
    """Reach the hosts of a spec, all at once, and hang up in the end. Returns them by name; none if it has none.

    Each has reported by then, or is lost. Raises UsageError if nothing can be reached, and KeyboardInterrupt.
    """
    hosts = spec.hosts or Hosts()
    with ExitStack() as stack:
        sites: list[Site] = []
        if hosts.via == "ray" and hosts.names:
            sites = _over_ray(hosts, guarded, stack)
        else:
            one_line = f"exec({_FIRST!r})"  # some shells take no other in quotes
            line = f"exec {shlex.quote(hosts.python or sys.executable)} -c {shlex.quote(one_line)}"
            for name in hosts.names:
                words, pipe = _WAYS[hosts.via](name, line), subprocess.PIPE
                started = _program(f"--hosts: {hosts.via}", words, guarded, EXIT_S, stdin=pipe, stdout=pipe)
                process, last_words = stack.enter_context(started)
                if process.stdin is not None and process.stdout is not None:
                    sites.append(Site(name, process.stdin, process.stdout, last_words))
        try:
            until, waiting = wakeful() + _REACHED_S, sites
            while waiting := [site for site in waiting if not site.is_there()]:
                if interrupts is not None and interrupts.requested:
                    raise KeyboardInterrupt
                if wakeful() > until:
                    for site in waiting:
                        site.lost = f"no answer within {_REACHED_S:g} s"
                wakeful.wait([site.descriptor for site in waiting], _FEED_S)
            yield {site.name: site for site in sites}
        finally:
            for site in sites:  # all, before one is waited for
                site.hang_up()
            for site in sites:
                site.close()


def _over_ray(hosts: Hosts, guarded: ProcessGuard, stack: ExitStack) -> list[Site]:
    """Reach all hosts by one program, since Ray takes seconds to start. It gets the other ends of their pipes."""
    require_ray(hosts.address)
    theirs: dict[str, tuple[int, int]] = {}
    ours: list[tuple[str, IO[bytes], IO[bytes]]] = []
    with ExitStack() as until_started:
        try:
            for name in hosts.names:
                (reading, say), (hear, writing) = os.pipe(), os.pipe()
                theirs[name] = (reading, writing)
                ours.append((name, os.fdopen(say, "wb", 0), os.fdopen(hear, "rb", 0)))
                until_started.callback(os.close, reading)
                until_started.callback(os.close, writing)
        except OSError as error:
            raise UsageError(f"--hosts: too many hosts: {error.strerror} (ulimit -n)") from None
        asked = {"address": hosts.address, "python": hosts.python, "code": _FIRST}
        words = [*_OVER_RAY, json.dumps({**asked, "hosts": theirs})]
        ends = [end for both in theirs.values() for end in both]
        # What Ray prints goes to standard error: standard output is for data.
        _, last_words = stack.enter_context(
            _program("--hosts: Ray", words, guarded, _CLOSE_S, stdin=subprocess.DEVNULL, stdout=2, pass_fds=ends)
        )
    return [Site(name, writing, reading, last_words) for name, writing, reading in ours]


@contextmanager
def _program(
    option: str,
    words: list[str],
    guarded: ProcessGuard,
    patience: float,
    **how: Any,  # noqa: ANN401 - as Popen has them
) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], str]]]:
    """Start a program that connects, and end it afterwards; it has some seconds to end by itself.

    Returns it, and what returns its last words. Raises UsageError, which names the option, if it cannot be started.
    """
    with tempfile.TemporaryFile(dir=guarded.scratch) as printed:
        try:
            process = subprocess.Popen(words, stderr=printed, start_new_session=True, **how)
        except OSError as error:
            raise UsageError(f"{option}: {words[0]} cannot be started: {error.strerror}") from None
        guarded.add(process.pid)

        def last_words() -> str:
            with suppress(subprocess.TimeoutExpired):
                process.wait(EXIT_S)
            return Log(printed).last_line() or f"{words[0]} ended with status {process.poll()}"

        try:
            yield process, last_words
        finally:
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            guarded.discard(process.pid)


def require_ray(address: str) -> None:
    """Raise UsageError, with what to install, if Ray is not there."""
    if not importable(RAY.module):
        raise UsageError(f"--hosts: Ray at {shown(address)}: needs Ray ({how_to_install([RAY])})")


def nodes_of_ray(address: str) -> tuple[str, ...]:
    """Return the names of the nodes of a Ray cluster. Raises UsageError without Ray, or without such a cluster."""
    require_ray(address)
    words = [*_OVER_RAY, json.dumps({"address": address})]
    try:
        asked = subprocess.run(words, capture_output=True, timeout=_REACHED_S, check=False)
    except subprocess.TimeoutExpired:
        raise UsageError(f"--hosts: Ray at {shown(address)}: no answer within {_REACHED_S:g} s") from None
    if asked.returncode:
        why = asked.stderr.decode(errors="replace").strip().rpartition("\n")[2][:300]
        raise UsageError(f"--hosts: Ray at {shown(address)}: {why}")
    names: list[str] = json.loads(asked.stdout.splitlines()[-1])
    if not names:
        raise UsageError(f"--hosts: Ray at {shown(address)}: none of its nodes has a CPU")
    return tuple(names)


def read_hosts(spec: RunSpec) -> dict[str, HostFacts]:
    """Return what the hosts of a spec report, by name. Raises UsageError, which names each host that does not."""
    with ProcessGuard() as guarded, reached(spec, guarded) as sites:
        if lost := [f"{name}: {site.lost}" for name, site in sites.items() if site.lost is not None]:
            raise UsageError(f"--hosts: {'; '.join(lost)}")
        return {name: site.facts for name, site in sites.items() if site.facts is not None}
