"""Runs on another host: starts the replica of a cell there, and passes on what it and the runner tell each other.

The runner sends this package as a payload (``vebench.hosts.shipping``) and talks to it over standard input and output,
a JSON object a line. So any program that connects two pipes can carry it: ssh, srun, or an actor of Ray's.

Asked ``{"clock": 3}``, it answers at once with the same number and its time. ``{"start": {...}, "cell": 2}`` starts a
child; what that writes comes back as ``{"cell": 2, "line": "..."}`` and, when it is gone, ``{"cell": 2, "ended": "...",
"log": "..."}``.
``{"say": "..."}`` is written to the child, and ``{"end": true}`` ends it. Nothing is sent in between, so that a cell
that measures is left alone.

When the runner is gone, and so standard input ends, every process of the cell is ended and the folder removed. If this
process is killed, its guardian does so. Standard library only, and no code of adapters.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vebench.child import probe
from vebench.machine import guardian, host, outside, pinning

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
# While a child runs, how often its end and its deadline are looked at.
_CHECK_S = 0.5
# A runner that has not been heard for so long, while nothing runs here, is out of reach. It may be at work elsewhere.
_IDLE_S = 72 * 3600.0


def _boot_id() -> str:
    """Return what names the time since this machine was started, empty if the system does not tell."""
    try:
        return Path(_BOOT_ID).read_text(encoding="ascii").strip()
    except OSError:
        return ""


class Child:
    """A child of this host: its process and pipes, and the log that its output goes to.

    ``deadline`` is by ``time.monotonic``: a runner that can be reached no more must not leave anything behind.
    """

    def __init__(self, asked: dict[str, Any], folder: Path, packages: Path, lifeline: int, token: str) -> None:
        folder.mkdir()
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            printed = ours.enter_context((folder / "log").open("a+b"))
            self.results, answers = os.pipe()
            child_end, self.go_ahead = os.pipe()
            for descriptor, whose in (
                (self.results, ours),
                (answers, theirs),
                (child_end, theirs),
                (self.go_ahead, ours),
            ):
                whose.callback(os.close, descriptor)
            request = {**asked["request"], "go_ahead": child_end, "lifeline": lifeline, "folder": str(Path.home())}
            asks = folder / "request.json"
            asks.write_text(json.dumps(request), encoding="utf-8")
            # The packages come first, then what the host has there, as for cells of the runner's machine.
            path = os.pathsep.join(filter(None, (str(packages), os.environ.get("PYTHONPATH", ""))))
            marks = {guardian.TOKEN_VARIABLE: token, "TMPDIR": str(folder), "PYTHONPATH": path}
            self.process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", "-m", "vebench.child.main", str(asks), str(answers)],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                cwd=folder,
                env={**os.environ, **pinning.ONE_THREAD_EACH, **marks},
                pass_fds=[answers, child_end, lifeline],
                start_new_session=True,
            )
            self._open = ours.pop_all()
        self.log = outside.Log(printed)
        self.deadline = time.monotonic() + float(asked["seconds"])
        self._rest = b""

    def lines(self) -> list[str] | None:
        """Return what can be read, without waiting; None at the end."""
        if not select.select([self.results], [], [], 0)[0]:
            return []
        chunk = os.read(self.results, 1 << 16)
        if not chunk:
            return None
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def say(self, text: str) -> None:
        """Write a line to the child."""
        with contextlib.suppress(BrokenPipeError):  # it has died, which is noticed when its answers end
            os.write(self.go_ahead, text.encode() + b"\n")

    def fault(self) -> str | None:
        """Return in words why it must end now, None if it may go on. Its log is kept short."""
        self.log.keep_short()
        if time.monotonic() > self.deadline:
            return "no end in the time that it has (--timeout)"
        return outside.short_of_memory()

    def end(self, token: str) -> None:
        """End all its processes, and close what is open."""
        guardian.end(token, frozenset({self.process.pid}))
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(outside.EXIT_S)
        self._open.close()


class Relay:
    """Passes on what a child and the runner tell each other. ``scratch`` is the folder that the payload is in."""

    def __init__(self, scratch: Path, reading: int = 0, writing: int = 1) -> None:
        self._scratch, self._reading, self._writing = scratch, reading, writing
        self._token = secrets.token_hex(8)
        self._child: Child | None = None
        self._cell = 0
        self._rest = b""
        self._look_at = 0.0
        self._home = pinning.allowed()
        self._lifeline, self._held = os.pipe()  # which hangs up when this process is gone
        self._guardian = subprocess.Popen(
            [sys.executable, "-I", "-S", guardian.__file__, self._token, str(scratch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )

    def run(self, names: list[str], modules: list[str]) -> None:
        """Tell who this is, and pass on until the runner is gone. ``names`` are packages whose versions are asked."""
        self._tell(hello=facts(names, modules))
        try:
            while self._turn():
                pass
        finally:
            for number in (signal.SIGHUP, signal.SIGTERM):  # what is to be done then is done already
                signal.signal(number, signal.SIG_IGN)
            self._end_child()
            guardian.end(self._token)
            guardian.remove(str(self._scratch))
            self._guardian.kill()
            self._guardian.wait()

    def _turn(self) -> bool:
        """Wait for something to pass on, and do so. Returns whether the runner is still there."""
        child = self._child
        heard = [self._reading] if child is None else [self._reading, child.results]
        ready, _, _ = select.select(heard, [], [], _IDLE_S if child is None else _CHECK_S)
        if child is None and not ready:
            return False
        if child is not None and child.results in ready:
            self._pass_on(child)
        if self._child is not None and time.monotonic() > self._look_at:
            self._look_at = time.monotonic() + _CHECK_S
            if fault := self._child.fault():
                self._over(self._child, fault)
        if self._reading not in ready:
            return True
        chunk = os.read(self._reading, 1 << 16)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._do(json.loads(line))
        return bool(chunk)

    def _do(self, asked: dict[str, Any]) -> None:
        if "clock" in asked:
            self._tell(clock=asked["clock"], ns=time.perf_counter_ns())
        elif "start" in asked:
            self._cell = int(asked["cell"])
            self._start(asked["start"])
        elif self._child is not None and "say" in asked:
            self._child.say(asked["say"])
        elif "end" in asked:
            log = "" if self._child is None else self._child.log.end()
            self._end_child()
            self._tell(cell=self._cell, ended="it was told to end", log=log)

    def _start(self, asked: dict[str, Any]) -> None:
        folder, packages = self._scratch / f"cell-{self._cell}", self._scratch / "packages"
        setup = asked["request"]["setup"]
        if setup["pinned"]:
            pinning.keep_off(setup["cpus"], self._home)
        try:
            self._child = Child(asked, folder, packages, self._lifeline, self._token)
        except OSError as error:  # no process, file or memory is to be had: this cell's fault, not the connection's
            self._tell(cell=self._cell, ended=f"its process could not be started: {error}", log="")
        else:
            self._watch(self._child.process.pid)

    def _pass_on(self, child: Child) -> None:
        lines = child.lines()
        for line in lines or ():
            self._tell(cell=self._cell, line=line)
        if lines is None:
            self._over(child, outside.how_it_ended(child.process, child.log))

    def _over(self, child: Child, how: str) -> None:
        log = child.log.end()
        self._end_child()
        self._tell(cell=self._cell, ended=how, log=log)

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.end(self._token)
            self._watch(-self._child.process.pid)
            self._child = None

    def _watch(self, group: int) -> None:
        if self._guardian.stdin is not None:
            with contextlib.suppress(OSError):
                os.write(self._guardian.stdin.fileno(), b"%d\n" % group)

    def _tell(self, **what: Any) -> None:  # noqa: ANN401 - JSON
        line = json.dumps(what).encode() + b"\n"
        while line:
            line = line[os.write(self._writing, line) :]


def facts(names: list[str], modules: list[str]) -> dict[str, Any]:
    """Return what a plan and a report need to know of this host, as JSON."""
    return {
        "name": os.uname().nodename,
        "boot": _boot_id(),
        "python": ".".join(map(str, sys.version_info[:3])),
        "path": sys.executable,
        "packages": probe.versions(names),
        "modules": [name for name in modules if find_spec(name) is not None],
        "host": asdict(host.read_host()),
        "memory_available": host.memory_available(),
        "load": os.getloadavg()[0],
    }


def main(scratch: str, asked: str) -> None:
    """Serve the runner. ``asked`` names the packages and modules that it wants to know of, as JSON."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no answer
    wanted = json.loads(asked)
    # The connection may hang up at any time, and that is how a run ends.
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(1))
    with contextlib.suppress(BrokenPipeError):
        Relay(Path(scratch), 0, answers).run(wanted["packages"], wanted["modules"])
