"""Runs on another host, starts the cells of a run there, and relays messages between cells and runner.

The runner sends this package (``payload`` in ``vebench.hosts``), and exchanges messages with it over standard input and
output. A message is a line with a JSON object. So any program that connects two pipes can carry them: ssh, srun, or a
Ray actor.

| from the runner | answer |
| --- | --- |
| (at the beginning) | ``{"hello": facts}`` |
| ``{"clock": 2}`` | ``{"cell": 2, "clock": NANOSECONDS}`` |
| ``{"start": request, "seconds": 60, "cell": 2}`` | ``{"cell": 2, "line": "..."}`` for each line of the child |
| ``{"say": "..."}`` | none: the line is written to the child |
| ``{"end": 2}`` | ``{"cell": 2, "ended": "why", "log": "..."}``, also sent if the child ends by itself |

Nothing else is sent, so that a measuring cell is not disturbed. When standard input closes, the relay kills every
process of the cell, and removes the folder. If the relay is killed, its guardian does that.
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
from vebench.child.process import CHECK_S, ChildProcess, Guardian, Lines, environment, write_all
from vebench.machine import guardian, host, kernel


class _Relay:
    """Relays messages between the runner and one child at a time.

    ``scratch`` is the folder with the payload. ``writing`` is the pipe to the runner.
    """

    def __init__(self, scratch: Path, writing: int) -> None:
        self._scratch, self._writing = scratch, writing
        self._asked = Lines(0)
        self._child: ChildProcess | None = None
        self._cell = 0  # the child's number
        self._deadline = 0.0  # the time.monotonic() at which the child is ended
        self._home = kernel.allowed()
        self._token = secrets.token_hex(8)
        self._guardian = Guardian(self._token, scratch)

    def run(self, names: list[str], modules: list[str]) -> None:
        """Report the facts about this host, then relay messages until the runner has ended."""
        self._tell(hello=facts(names, modules))
        try:
            while True:
                child = self._child
                heard = [0] if child is None else [0, child.lines.descriptor]
                ready, _, _ = select.select(heard, [], [], None if child is None else CHECK_S)
                if child is not None:
                    self._pass_on(child)
                while 0 in ready and (line := self._asked.take()) is not None:
                    self._do(json.loads(line))
        except EOFError:  # the runner has ended
            return
        finally:
            for number in (signal.SIGHUP, signal.SIGTERM):  # the cleanup must not be interrupted
                signal.signal(number, signal.SIG_IGN)
            self._end_child()
            self._guardian.end()

    def _pass_on(self, child: ChildProcess) -> None:
        """Pass the child's answers on. End the child at its deadline, or if memory runs out."""
        fault = None
        try:
            while time.monotonic() <= self._deadline and (line := child.lines.take()) is not None:
                self._tell(cell=self._cell, line=line.decode(errors="replace"))
        except EOFError:
            fault = f"its process {child.process.how_it_ended()}"
        else:  # enforced here, too, in case the runner cannot reach this host any more
            fault = "timed out (--timeout)" if time.monotonic() > self._deadline else child.fault()
        if fault is not None:
            self._over(fault)

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
            self._cell = int(asked["end"])  # this cell may never have been started
            self._over("it was stopped")

    def _start(self, request: dict[str, Any]) -> None:
        setup = request["setup"]
        kernel.keep_off(setup["cpus"] if setup["pinned"] else (), self._home)
        # The payload's packages come before the host's PYTHONPATH, as they do on the runner's machine.
        path = os.pathsep.join(filter(None, (str(self._scratch / "packages"), os.environ.get("PYTHONPATH", ""))))
        request = {**request, "lifeline": self._guardian.lifeline, "folder": str(Path.home())}
        env = environment(path, {guardian.TOKEN_VARIABLE: self._token})
        try:
            self._child = ChildProcess(sys.executable, request, self._scratch / f"cell-{self._cell}", env)
        except OSError as error:  # only this cell fails
            self._over(f"its process could not be started: {error}")
        else:
            self._guardian.add(self._child.process.pid)

    def _over(self, how: str) -> None:
        log = "" if self._child is None else self._child.log.end()
        self._end_child()
        self._tell(cell=self._cell, ended=how, log=log)

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.end(self._token)
            self._guardian.discard(self._child.process.pid)
            self._child = None

    def _tell(self, **message: Any) -> None:
        write_all(self._writing, json.dumps(message).encode() + b"\n")


def facts(names: list[str], modules: list[str]) -> dict[str, Any]:
    """Return the facts about this host that plans and reports need, as JSON."""
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
    """Serve the runner. ``asked`` is JSON with the names of packages and modules to report on."""
    answers = os.dup(1)
    os.dup2(2, 1)  # libraries print to standard output, which is reserved for messages
    # A login program may send these signals when the connection closes: clean up, then exit.
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(1))
    _Relay(Path(scratch), answers).run(**json.loads(asked))
