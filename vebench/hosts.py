"""Hosts: how to connect to them, the code that is sent to them, and their messages.

``python -m vebench.hosts ADDRESS`` prints the names of the nodes of a Ray cluster. ``... ADDRESS NODE PYTHON`` starts
that Python on the node, and connects its standard input and output with this process's, as ssh does. Ray carries the
bytes and reserves the CPUs. It does not pin processes.
"""

from __future__ import annotations

import io
import json
import logging
import os
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Thread
from typing import IO, Any, cast

import msgspec

import vebench
import vebench.backends
from vebench.backends.packages import RAY, how_to_install, importable
from vebench.backends.registry import PACKAGES, RECORDED
from vebench.child.process import LONGEST_QUOTE, Lines, Process, write_all
from vebench.errors import UsageError, shown
from vebench.machine.host import Host
from vebench.plan.grammar import Hosts
from vebench.plan.spec import RunSpec
from vebench.process_guard import CHILD_SIDE, PREFIX, Interrupts, ProcessGuard, wakeful

_REACHED_S = 60.0  # time limit for all hosts to connect and report their facts
_CLOSE_S = 5.0  # time limit for a connection to close by itself
# The first program on a host. It reads and runs the first part of the payload. It is short, because a shell gets it as
# an argument.
_FIRST = (
    "import os, sys\n"
    "sys.path[:]=filter(None, sys.path)\n"  # do not import modules from the login's folder
    "def part():\n"
    " n=int(take(10)); return take(n)\n"  # ten digits give the length of a part
    "def take(n):\n"
    " b=b''\n"
    " while len(b)<n:\n"
    "  c=os.read(0,n-len(b))\n"
    "  if not c: raise SystemExit(1)\n"
    "  b+=c\n"
    " return b\n"
    "exec(part())\n"
)
# Unpacks the packages into a new folder, and starts the relay from there. It makes the folder after it has read the
# whole payload: if the runner hangs up before that, no folder is left behind.
_SECOND = f"""
import io, shutil, sys, tempfile, zipfile
packed, asked = part(), part().decode()
scratch = tempfile.mkdtemp(prefix={PREFIX!r})
try:
    zipfile.ZipFile(io.BytesIO(packed)).extractall(scratch + "/packages")
    sys.path.insert(0, scratch + "/packages")
    from vebench.child.process import relay
    relay(scratch, asked)
finally:
    shutil.rmtree(scratch, ignore_errors=True)
"""


@cache
def payload() -> bytes:
    """Return the bytes to send to a host first: code to run there, and names of packages to report on."""
    import zipfile  # needed only for a run on hosts

    ours, packed = Path(vebench.__path__[0]), io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for source in (*(ours / name for name in CHILD_SIDE), Path(vebench.backends.__path__[0])):
            for path in [source] if source.is_file() else sorted(source.rglob("*")):
                # The file name of a .so says for which Python and machine it is.
                if path.suffix in {".py", ".json", ".so"}:
                    archive.write(path, Path("vebench", source.name, path.relative_to(source)))
    asked = json.dumps({"names": list(RECORDED), "modules": [package.module for package in PACKAGES]})
    parts = (_SECOND.encode(), packed.getvalue(), asked.encode())
    return b"".join(str(len(part)).zfill(10).encode() + part for part in parts)


@dataclass(frozen=True)
class HostFacts:
    """The facts that ``facts`` in ``vebench.child.process`` reports about a host."""

    python: str  # the version of its Python
    path: str  # the path of its Python
    packages: dict[str, str]
    modules: list[str]
    host: Host
    memory_available: int | None


@dataclass(frozen=True)
class Said:
    """A message from a host. ``vebench.child.process`` lists the kinds of message."""

    hello: HostFacts | None = None
    cell: int = 0
    clock: int | None = None
    line: str | None = None
    ended: str | None = None
    log: str = ""


class LostHostError(Exception):
    """The connection to a host has ended or failed."""


class Site:
    """The connection to one host, through the standard input and output of a program that connects."""

    def __init__(self, name: str, program: Process) -> None:
        self.name, self._program = name, program
        self._writing, self._reading = cast("IO[bytes]", program.stdin), cast("IO[bytes]", program.stdout)
        self.facts: HostFacts | None = None  # None until the host has reported
        self.lost: str | None = None  # why the connection is lost, None if it is not
        os.set_blocking(self._writing.fileno(), False)  # until the host has reported
        self._unsent = memoryview(payload())
        self.descriptor = self._reading.fileno()  # readable when the host has sent something, or is lost
        self._lines = Lines(self.descriptor)
        self.cells = 0  # the number of cells started on the host; cells are numbered from 1

    def is_there(self) -> bool:
        """Send more of the payload, without waiting. Return whether the host has reported, or is lost."""
        with suppress(BlockingIOError, BrokenPipeError):  # a lost host is noticed in ``heard``
            while self._unsent:
                self._unsent = self._unsent[os.write(self._writing.fileno(), self._unsent) :]
        with suppress(LostHostError):
            while self.facts is None and (said := self.heard()) is not None:
                self.facts = said.hello
        if self.facts is not None:
            os.set_blocking(self._writing.fileno(), True)
        return self.facts is not None or self.lost is not None

    def tell(self, **message: Any) -> None:
        """Send a message. If the host is lost, only ``heard`` reports that."""
        if self.lost is None:
            write_all(self._writing.fileno(), json.dumps(message).encode() + b"\n")

    def heard(self) -> Said | None:
        """Return the next message, None if none has come yet. Raises LostHostError once the host is lost."""
        try:
            while self.lost is None and (line := self._lines.take()) is not None:
                with suppress(ValueError, RecursionError):  # skip other lines, such as the greeting of a login
                    return msgspec.json.decode(line, type=Said)
        except EOFError:
            how = self._program.how_it_ended()
            printed = self._program.log.last_line() if self._program.log else ""
            self.lost = f"lost: {printed or f'the program that connects {how}'}"
        if self.lost is not None:
            raise LostHostError(self.lost)
        return None

    def hang_up(self) -> None:
        """Close the connection, without waiting. The relay then ends all processes on the host."""
        with suppress(OSError):
            self._writing.close()

    def close(self) -> None:
        """After ``hang_up``, wait at most ``_CLOSE_S`` seconds until the host has closed its end."""
        until = wakeful() + _CLOSE_S
        with suppress(LostHostError):
            while wakeful() < until:
                if self.heard() is None:
                    wakeful.wait([self.descriptor], until - wakeful())
        self._reading.close()


@contextmanager
def reached(spec: RunSpec, guard: ProcessGuard, interrupts: Interrupts | None = None) -> Iterator[dict[str, Site]]:
    """Connect to all hosts of ``spec`` at once, and hang up when the context ends. Yields the sites by host name.

    Each host has then reported its facts, or is lost. Raises UsageError if a connecting program cannot be started, and
    KeyboardInterrupt if the user interrupts.
    """
    hosts = spec.hosts or Hosts()
    if hosts.via == "ray":
        require_ray(hosts.address)
    with ExitStack() as stack:
        sites = []
        for name in hosts.names:
            words, pipe = _words(hosts, name), subprocess.PIPE
            log = stack.enter_context(tempfile.TemporaryFile(dir=guard.scratch))
            # Not marked with the run's token: a local relay would inherit it, and be killed before it has cleaned up.
            program = guard.process(words, log, stdin=pipe, stdout=pipe, patience=_CLOSE_S, marked=False)
            try:
                sites.append(Site(name, stack.enter_context(program)))
            except OSError as error:
                raise UsageError(f"--hosts: {words[0]} cannot be started: {error.strerror}") from None
        try:
            until, waiting = wakeful() + _REACHED_S, sites
            while waiting := [site for site in waiting if not site.is_there()]:
                if interrupts is not None and interrupts.requested:
                    raise KeyboardInterrupt
                if wakeful() > until:
                    for site in waiting:
                        site.lost = f"no answer within {_REACHED_S:g} s"
                # The payload is larger than a pipe, so try again soon to send more of it.
                wakeful.wait([site.descriptor for site in waiting], 0.005)
            yield {site.name: site for site in sites}
        finally:
            for site in sites:  # hang up on all hosts before waiting for the first
                site.hang_up()
            for site in sites:
                site.close()


def _words(hosts: Hosts, name: str) -> list[str]:
    """Return the command that runs ``_FIRST`` in a host's Python, and forwards its standard input and output there.

    The command must not ask for a password. ssh exits if the host has not answered for half a minute.
    """
    if hosts.via == "ray":  # in a separate process, because Ray starts threads and takes seconds to import
        return [sys.executable, "-P", "-m", "vebench.hosts", hosts.address, name, hosts.python]
    one_line = f"exec({_FIRST!r})"  # some shells do not accept line breaks in quotes
    line = f"exec {shlex.quote(hosts.python or sys.executable)} -c {shlex.quote(one_line)}"
    if hosts.via == "srun":  # one task on a node of this Slurm allocation, even if other tasks run there
        options = ["--nodes=1", "--ntasks=1", "--overlap", "--cpu-bind=none", "--quiet", f"--nodelist={name}"]
        return ["srun", *options, "sh", "-c", line]
    options = ["BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=10", "ServerAliveCountMax=3"]
    return ["ssh", "-T", *(word for option in options for word in ("-o", option)), "--", name, line]


def read_hosts(spec: RunSpec) -> dict[str, HostFacts]:
    """Return the facts about the hosts of a spec, by name. Raises UsageError, which names every lost host."""
    with ProcessGuard() as guard, reached(spec, guard) as sites:
        if lost := [f"{name}: {site.lost}" for name, site in sites.items() if site.lost is not None]:
            raise UsageError(f"--hosts: {'; '.join(lost)}")
        return {name: site.facts for name, site in sites.items() if site.facts is not None}


def require_ray(address: str) -> None:
    """Raise UsageError, which says how to install Ray, if Ray cannot be imported."""
    if not importable(RAY.module):
        raise UsageError(f"--hosts: Ray at {shown(address)}: needs Ray ({how_to_install([RAY])})")


def nodes_of_ray(address: str) -> tuple[str, ...]:
    """Return the node names of a Ray cluster. Raises UsageError if Ray or the cluster is missing, or has no node."""
    require_ray(address)
    words = [sys.executable, "-P", "-m", "vebench.hosts", address]
    try:
        asked = subprocess.run(words, capture_output=True, timeout=_REACHED_S, check=False)
        why = asked.stderr.decode(errors="replace").strip().rpartition("\n")[2][:LONGEST_QUOTE]
        names = [] if asked.returncode else json.loads(asked.stdout)
    except subprocess.TimeoutExpired:
        names, why = [], f"no answer within {_REACHED_S:g} s"
    if not names:
        raise UsageError(f"--hosts: Ray at {shown(address)}: {why or 'none of its nodes has a CPU'}")
    return tuple(names)


class Far:
    """A Ray actor that runs a program on a node. ``say`` and ``hear`` may run at the same time.

    Ray sends the code of this class along, so vebench need not be installed on the node.
    """

    def __init__(self, python: str, code: str) -> None:
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the actor
        words, pipe = [python or sys.executable, "-c", code], subprocess.PIPE
        self._process: Any = subprocess.Popen(
            words, stdin=pipe, stdout=pipe, stderr=self._printed, start_new_session=True
        )

    def say(self, data: bytes) -> None:
        """Write ``data`` to the program's standard input, or close the input if ``data`` is empty."""
        with suppress(BrokenPipeError):  # the program has ended; ``hear`` reports that
            if data:
                self._process.stdin.write(data)
                self._process.stdin.flush()
            else:
                self._process.stdin.close()

    def hear(self) -> bytes:
        """Wait for output of the program, and return it; empty once the program has closed its output."""
        return os.read(self._process.stdout.fileno(), 1 << 20)

    def last_words(self) -> str:
        """Return the last line of the program's standard error."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._printed.seek(0)
        return self._printed.read().decode(errors="replace").strip().rpartition("\n")[2][:LONGEST_QUOTE]


def named(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the living nodes that have CPUs, by host name. Further nodes on a host are called ``host:2`` and so on."""
    found: dict[str, Mapping[str, Any]] = {}
    of_host: Counter[str] = Counter()
    for node in sorted(nodes, key=lambda node: (node["NodeManagerHostname"], node["NodeID"])):
        if node["Alive"] and node["Resources"].get("CPU"):
            host = node["NodeManagerHostname"]
            of_host[host] += 1
            found[host if of_host[host] == 1 else f"{host}:{of_host[host]}"] = node
    return found


def _connect(ray: Any, node: Mapping[str, Any], python: str, writing: int) -> str:
    """Pass standard input to a program on a node, and its output to ``writing``. Return why the connection ended."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as OnNode

    def say() -> None:
        with suppress(ray.exceptions.RayError):  # the node is lost; ``hear`` reports that
            while said := os.read(0, 1 << 20):
                ray.get(far.say.remote(said))
            ray.get(far.say.remote(b""))

    limit_s = 30.0  # an actor starts in two seconds if the node's CPUs are free
    try:
        at = OnNode(node["NodeID"], soft=False)
        actor = ray.remote(Far).options(num_cpus=node["Resources"]["CPU"], scheduling_strategy=at, max_concurrency=3)
        far = actor.remote(python, _FIRST)
        ray.get(far.__ray_ready__.remote(), timeout=limit_s)
        Thread(target=say, daemon=True).start()
        while said := ray.get(far.hear.remote()):
            write_all(writing, said)
        return ray.get(far.last_words.remote()) or "its program has ended"
    except ray.exceptions.GetTimeoutError:
        return f"Ray did not provide all CPUs of the node within {limit_s:g} s: does another program use them?"
    except ray.exceptions.RayError as error:
        return str(error).strip().rpartition("\n")[2][:LONGEST_QUOTE] or type(error).__name__


def main(address: str, name: str = "", python: str = "") -> None:
    """Print the node names of a cluster, or connect to the node ``name``. Exits with the reason if the node is lost."""
    import ray

    writing = os.dup(1)
    os.dup2(2, 1)  # Ray prints to standard output, which is reserved for messages
    ray.init(address, namespace="vebench", log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
    nodes, lost = named(ray.nodes()), ""
    if not name:
        write_all(writing, json.dumps(list(nodes)).encode())
    elif name in nodes:
        lost = _connect(ray, nodes[name], python, writing)
    else:
        lost = f"the cluster has no such node now; it has {', '.join(nodes)}"
    ray.shutdown()
    if lost:
        sys.exit(lost)


if __name__ == "__main__":
    main(*sys.argv[1:])
