"""A world in which whatever is installed steps at its own rate: releases, or commits of a repository."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from support.fakes import FakeCell, FakeClock, Script, failing, fake_world, steady

from vebench.commands.session import World
from vebench.interpreters import NotHadError
from vebench.plan.cells import Cell
from vebench.plan.spec import RunSpec
from vebench.process_guard import Interrupts

RELEASES = [f"1.{minor}" for minor in range(12)]
Rate = Callable[[str], float]


class Installed:
    """Installs releases into folders; ``installed`` are their names, in order, ``others`` what came with them."""

    def __init__(self, rate: Rate, lacking: Sequence[str] = (), broken: Sequence[str] = ()) -> None:
        self.rate, self.lacking, self.broken = rate, lacking, broken
        self.installed: list[str] = []
        self.others: list[list[str]] = []
        self.stolen = 0.0
        self.most = self.calls = self.interrupts_at = 0

    def install(self, requirements: Sequence[str], folder: Path) -> str:
        self.others.append([named for one in requirements if (named := rate_in(one))])
        name = next(filter(None, map(self.named, requirements)))
        folder.mkdir()
        if name in self.lacking:
            raise NotHadError("error: no compiler")
        self.installed.append(name)
        self.most = max(self.most, len([*folder.parent.glob("python-*")]))
        (folder / "python").write_text(name)
        return str(folder / "python")

    def named(self, requirement: str) -> str:
        return requirement.partition("<=")[2]

    def rate_of(self, name: str, _cell: Cell) -> float:
        return self.rate(name)

    @contextmanager
    def start(self, spec: RunSpec, interrupts: Interrupts, python: str) -> Iterator[Callable[[Cell], object]]:
        name = Path(python).read_text()

        @contextmanager
        def launch(cell: Cell) -> Iterator[FakeCell]:
            self.calls += 1
            if self.calls == self.interrupts_at:
                raise KeyboardInterrupt
            script: Script = steady(cell, spec, self.rate_of(name, cell), self.stolen)
            yield FakeCell(failing("boom")(cell, spec) if name in self.broken else script)

        assert not interrupts.requested
        yield launch

    def world(self, **parts: object) -> World:
        fakes = {"start": self.start, "releases": lambda _: RELEASES, "install": self.install, "clock": FakeClock(0.25)}
        return fake_world(**{**fakes, **parts})  # type: ignore[arg-type]


def rate_in(requirement: str) -> str:
    """Return the file ``rate`` of the commit that a requirement names; empty if it names none."""
    found = re.fullmatch(r"git\+file://(.+)@(\w{40})#subdirectory=(.*)", requirement)
    return git(Path(found[1]), "show", f"{found[2]}:{found[3]}rate") if found else ""


class Repository(Installed):
    """Installs what a commit's file ``rate`` says."""

    def named(self, requirement: str) -> str:
        return rate_in(requirement)


def git(folder: Path, *words: str) -> str:
    settings = ("-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    command = [shutil.which("git") or "git", "-C", folder, *settings, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def commits(folder: Path, rates: Sequence[str], inside: str = "") -> list[str]:
    """Make a repository with a commit for each text in its file ``rate``. Return their hashes, the oldest first."""
    (folder / inside).mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    hashes = []
    for number, rate in enumerate(rates):
        (folder / inside / "rate").write_text(rate)
        (folder / "number").write_text(str(number))
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", f"Change {number}")
        hashes.append(git(folder, "rev-parse", "HEAD").strip())
    return hashes
