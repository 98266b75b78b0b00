"""Runs on another host: starts the cells of a run there, and relays messages between them and the runner.

The runner sends this package (``payload`` in ``vebench.hosts.site``) and talks to it over standard input and output,
a JSON object a line. So any program that connects two pipes can carry it: ssh, srun, or an actor of Ray's.

At first it says ``{"hello": {...}}``: ``facts``. Asked ``{"clock": 2}``, it answers at once: ``{"cell": 2, "clock":
NANOSECONDS}``. ``{"start": {...}, "seconds": 60, "cell": 2}`` starts a child; what that writes comes back as ``{"cell":
2, "line": "..."}`` and, when it is gone, ``{"cell": 2, "ended": "...", "log": "..."}``. ``{"say": "..."}`` is written
to the child, and ``{"end": 2}`` ends it. Nothing is sent in between, so that a cell that measures is left alone.

When the runner is gone, and so standard input ends, every process of the cell is ended and the folder removed. If this
process is killed, its guardian does so. Standard library only, and no code of adapters.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import sys
import time
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vebench.child import probe
from vebench.child.process import CHECK_S, ChildProcess, Lines, environment, start_guardian, write_all
from vebench.machine import guardian, host, pinning


class _Relay:
    """Relays messages between a child and the runner. ``scratch`` is the folder that the payload is in."""

    def __init__(self, scratch: Path, writing: int) -> None:
        self._scratch, self._writing = scratch, writing
        self._heard = Lines(0)
        self._token = secrets.token_hex(8)
        self._child: ChildProcess | None = None
        self._cell = 0
        self._deadline = 0.0  # of the child, by time.monotonic
        self._home = pinning.allowed()
        self._lifeline, self._held = os.pipe()  # which hangs up when this process is gone
        self._guardian = start_guardian(self._token, scratch)

    def run(self, names: list[str], modules: list[str]) -> None:
        """Report this host, and relay until the runner is gone. ``names`` are packages whose versions are asked."""
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
        heard = [0] if child is None else [0, child.lines.descriptor]
        ready, _, _ = select.select(heard, [], [], None if child is None else CHECK_S)
        if child is not None and child.lines.descriptor in ready:
            lines = child.lines.read()
            for line in lines or ():
                self._tell(cell=self._cell, line=line.decode(errors="replace"))
            if lines is None:
                self._over(child, child.how_it_ended())
        if self._child is not None:
            # A runner that cannot be reached any more must not leave anything behind.
            late = "timed out (--timeout)" if time.monotonic() > self._deadline else None
            if fault := late or self._child.fault():
                self._over(self._child, fault)
        if 0 not in ready:
            return True
        told = self._heard.read()
        for line in told or ():
            self._do(json.loads(line))
        return told is not None

    def _do(self, asked: dict[str, Any]) -> None:
        if "clock" in asked:
            self._tell(cell=asked["clock"], clock=time.perf_counter_ns())
        elif "start" in asked:
            self._cell = int(asked["cell"])
            self._deadline = time.monotonic() + float(asked["seconds"])
            self._start(asked["start"])
        elif self._child is not None and "say" in asked:
            self._child.say(asked["say"])
        elif "end" in asked:
            self._cell = int(asked["end"])  # which may be one that was never started
            self._over(self._child, "it was stopped")

    def _start(self, request: dict[str, Any]) -> None:
        setup = request["setup"]
        pinning.keep_off(setup["cpus"] if setup["pinned"] else (), self._home)
        # The packages come first, then what the host has there, as for cells of the runner's machine.
        path = os.pathsep.join(filter(None, (str(self._scratch / "packages"), os.environ.get("PYTHONPATH", ""))))
        request = {**request, "lifeline": self._lifeline, "folder": str(Path.home())}
        marks = {guardian.TOKEN_VARIABLE: self._token}
        try:
            folder = self._scratch / f"cell-{self._cell}"
            self._child = ChildProcess(sys.executable, request, folder, environment(path, marks))
        except OSError as error:  # no process, file or memory is available: this cell fails, not the connection
            self._over(None, f"its process could not be started: {error}")
        else:
            self._watch(self._child.process.pid)

    def _over(self, child: ChildProcess | None, how: str) -> None:
        log = "" if child is None else child.log.end()
        self._end_child()
        self._tell(cell=self._cell, ended=how, log=log)

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.end(self._token)
            self._watch(-self._child.process.pid)
            self._child = None

    def _watch(self, group: int) -> None:
        if self._guardian.stdin is not None:
            write_all(self._guardian.stdin.fileno(), b"%d\n" % group)

    def _tell(self, **what: Any) -> None:  # noqa: ANN401 - JSON
        write_all(self._writing, json.dumps(what).encode() + b"\n")


def facts(names: list[str], modules: list[str]) -> dict[str, Any]:
    """Return what a plan and a report need to know of this host, as JSON."""
    return {
        "name": os.uname().nodename,
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
    # The connection may hang up at any time, and that is how a run ends.
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(1))
    _Relay(Path(scratch), answers).run(**json.loads(asked))
