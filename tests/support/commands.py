"""Commands as a user meets them: what they print, and their exit status."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO
from unittest.mock import patch

import pytest
from support.places import ADAPTERS, ENVIRONMENTS, EXAMPLES

from vebench import cli
from vebench.analysis import rules
from vebench.commands.session import World

CI_VARIABLES = ("GITHUB_STEP_SUMMARY", "GITHUB_ACTIONS")
# By default a run measures several passes, in which cells take turns. One pass, cell by cell, is enough for most tests.
# What cells returned is compared in the tests of that.
ONE_PASS = ("--passes", "1", "--no-interleave", "--proof", "off")
LONG = 120.0  # seconds after which a process that should have ended is an error


def registered() -> dict[str, Any]:
    """Return the commands by the words that call them: ``run``, ``share make``."""
    found = {}
    for name, command in cli.app.commands.items():
        inner = getattr(command, "commands", {})
        found.update({f"{name} {each}": one for each, one in inner.items()} or {name: command})
    return found


@dataclass(frozen=True)
class Result:
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def refusal(self) -> str:
        """The one line of a command that refused and printed nothing else."""
        assert (self.out, self.err.count("\n")) == ("", 1), self
        return self.err


def lines(path: Path, *kinds: str) -> list[dict[str, Any]]:
    """Return the lines of a run file of these types, if none is named all but those that say what was compared."""
    found = map(json.loads, path.read_text().splitlines())
    return [line for line in found if line["type"] in (kinds or ("run", "cell"))]


@contextmanager
def without_a_reader() -> Iterator[TextIO]:
    """Return a stream whose reader has gone away, as `head` does."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        yield stream


@dataclass(frozen=True)
class Command:
    """The command, run in an empty folder and outside of any CI service; the tests' adapters can be imported there."""

    capture: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str | Path, world: World | None = None) -> Result:
        """Run it in this process, in this world or in another."""
        self.capture.readouterr()
        # Cells of this machine are measured beside other tests, which take CPU time from them.
        bound = 1.0 if world is None and arguments[:1] in {("run",), ("tune",)} else rules.UNUSABLE_ABOVE
        with patch.object(rules, "UNUSABLE_ABOVE", bound):
            status = cli.invoke([*map(str, arguments)], world)
        return Result(status, *self.capture.readouterr())

    def start(self, *arguments: str | Path, **streams: Any) -> subprocess.Popen[str]:
        """Start it in a process of its own, to be sent signals or to write to what is not a file."""
        return subprocess.Popen([sys.executable, "-m", "vebench", *map(str, arguments)], text=True, **streams)

    def shell(self, line: str) -> Result:
        """Let a shell run a line in which ``vebench`` is the command, in a process of its own."""
        defined = f'vebench() {{ "{sys.executable}" -m vebench "$@"; }}\n{line}'
        done = subprocess.run(["/bin/sh", "-c", defined], capture_output=True, text=True, timeout=LONG, check=False)
        return Result(done.returncode, done.stdout, done.stderr)


def command_in(folder: Path, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> Command:
    """Return the command for a user who stands in ``folder``, before a terminal of 100 columns."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (ADAPTERS, ENVIRONMENTS, EXAMPLES))))
    for name in CI_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return Command(capture)
