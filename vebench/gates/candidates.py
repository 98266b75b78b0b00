"""The candidates of ``vebench bisect``: commits of a git repository, or releases of a package."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from vebench.errors import UsageError, did_you_mean, one_line, shown


class Candidate(Struct, frozen=True):
    """A release by its version, or a commit by its hash, with its day and subject."""

    name: str
    day: str = ""
    subject: str = ""

    @property
    def label(self) -> str:
        """The candidate in a line: ``1f3a9c2b71 2026-11-20 Draw once``."""
        return one_line(f"{self.name[:10]} {self.day} {self.subject}") if self.day else self.name


def releases(known: Sequence[str], good: str, bad: str) -> list[Candidate]:
    """Return the releases from ``good`` to ``bad``. Raises UsageError for an unknown end."""
    for option, name in (("--good", good), ("--bad", bad)):
        if name not in known:
            raise UsageError(f"{option} {shown(name)}: pip finds no such release{did_you_mean(name, known)}")
    return [Candidate(name) for name in known[known.index(good) : known.index(bad) + 1]]


def commits(folder: Path, good: str, bad: str) -> list[Candidate]:
    """Return the commits from ``good`` to ``bad`` on the path of first parents.

    Raises UsageError if git does not know them, or if ``good`` is not on that path from ``bad``.
    """
    first, last = (
        _git(folder, f"{option} {shown(name)}", "rev-parse", "--verify", f"{name}^{{commit}}")
        for option, name in (("--good", good), ("--bad", bad))
    )
    lines = _git(folder, "--bad", "log", "--first-parent", "--format=%H%x09%cs%x09%s", last).split("\n")
    known = [Candidate(*line.split("\t", 2)) for line in lines]
    at = next((number for number, one in enumerate(known) if one.name == first), None)
    if at is None:
        raise UsageError(f"--good {shown(good)}: must be an ancestor of {shown(bad)} by first parents")
    return known[at::-1]


def check_out(folder: Path, commit: str, target: Path) -> Path:
    """Check out a commit into ``target``, and return the folder that corresponds to ``folder`` there.

    ``target`` is a clone that borrows the repository's objects, so the repository gets no worktree.
    """
    top, prefix = (_git(folder, "--repo", "rev-parse", f"--show-{what}") for what in ("toplevel", "prefix"))
    _git(folder, "--repo", "clone", "--quiet", "--shared", "--no-checkout", top, str(target))
    _git(target, "--repo", "checkout", "--quiet", "--detach", commit)
    return target / prefix


def _git(folder: Path, about: str, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        *_, why = done.stderr.splitlines() or [""]
        raise UsageError(f"{about}{': ' if why else ''}{one_line(why)}")
    return done.stdout.strip()
