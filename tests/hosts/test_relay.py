"""The far side of a connection: what it does with a cell that takes too much, and with a runner that hears nothing."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.waiting import eventually

import vebench

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="hosts are reached from Linux")

# A relay with limits of its own, and a child that does what it is asked.
RELAY = """
import sys
from vebench.child import process
for name, value in {limits}.items():
    setattr(process, name, value)
process.relay(sys.argv[1], '{{"names": [], "modules": []}}')
"""
CHILD = """
import json, os, sys, time
with open(sys.argv[1]) as file:
    asked = json.load(file)
with open(asked["pid"], "w") as file:
    file.write(str(os.getpid()))
print("x" * asked["prints"] + os.environ.get(asked["tells"], ""), flush=True)
os.write(int(sys.argv[2]), (bytes(asked["what"]) + b"\\n") * asked["answers"])
while asked["endless"]:
    os.write(int(sys.argv[2]), b"answer\\n")
time.sleep(asked["sleeps"])
"""


class Runner:
    """What a runner says to a relay, and hears. ``folder`` is the relay's."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self._process, self.folder = process, folder

    def tell(self, **what: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")
        self._process.stdin.flush()

    def start(self, cell: int = 1, **does: object) -> None:
        nothing = {"prints": 0, "answers": 0, "tells": "", "endless": False}
        asked = {**nothing, "what": list(b"answer"), "sleeps": 60, **does}
        asked["pid"] = str(self.folder / "pid")
        request = {**asked, "job": None, "setup": {"pinned": True, "cpus": [0]}}
        self.tell(start=request, cell=cell)

    def hear(self, kind: str) -> dict[str, Any]:
        """Return the next line of this kind."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said: dict[str, Any] = json.loads(line)
            if kind in said:
                return said
        raise AssertionError(f"it has hung up without {kind}")

    def child(self) -> int:
        """Return the child's process, once it has begun."""
        file = self.folder / "pid"
        assert eventually(lambda: file.exists() and file.read_text().isdecimal())
        return int(file.read_text())


@contextmanager
def relay(folder: Path, **limits: int) -> Iterator[Runner]:
    program = folder / "packages" / "vebench" / "child" / "main.py"
    program.parent.mkdir(parents=True)
    program.write_text(CHILD)
    for package in (program.parent, program.parent.parent):
        (package / "__init__.py").touch()
    with subprocess.Popen(
        [sys.executable, "-c", RELAY.format(limits=limits), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(vebench.__path__[0]).parent)},
    ) as process:
        yield Runner(process, folder)
        process.communicate()  # hangs up
    assert not folder.exists()


def test_a_cell_that_leaves_no_memory_is_ended(tmp_path: Path) -> None:
    with relay(tmp_path / "there", LEAST_MEMORY=1 << 60) as runner:
        runner.start()
        child = runner.child()
        assert "out of memory" in runner.hear("ended")["ended"]
        assert not Path(f"/proc/{child}").exists()


def test_a_cell_that_cannot_be_started_says_why_and_the_next_one_can(tmp_path: Path) -> None:
    with relay(tmp_path / "there") as runner:
        runner.start(cell=1, sleeps=0)
        assert runner.hear("ended")["ended"] == "its process exited with status 0"
        (runner.folder / "cell-2").touch()  # where its folder is to be made
        runner.start(cell=2)
        assert runner.hear("ended")["ended"].startswith("its process could not be started: [Errno 17] File exists")
        runner.tell(clock=1)
        assert runner.hear("clock")["cell"] == 1
        runner.start(cell=3, prints=3, sleeps=0)
        assert runner.hear("ended")["ended"] == "its process exited with status 0: xxx"


def test_a_cell_that_never_stops_answering_can_be_ended(tmp_path: Path) -> None:
    with relay(tmp_path / "there") as runner:
        runner.start(endless=True)
        child = runner.child()
        runner.hear("line")
        runner.tell(end=1)
        assert runner.hear("ended")["ended"] == "it was stopped"
        assert not Path(f"/proc/{child}").exists()
