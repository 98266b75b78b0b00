"""A Python in which cells may run: its version, and what is installed in it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import vebench
from vebench.backends.registry import PACKAGES, RECORDED
from vebench.child import probe
from vebench.errors import UsageError, shown
from vebench.interpreters.asking import ask

OLDEST = (3, 10)  # what the measuring child runs on
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Interpreter:
    """A Python by its path: its version, the packages that decide a figure, the modules that can be imported."""

    path: str
    version: str
    packages: dict[str, str]
    modules: frozenset[str]

    def has(self, module: str) -> bool:
        """Return whether a module that backends need can be imported there."""
        return module in self.modules


def packages_here() -> dict[str, str]:
    """Return the versions of the packages that decide a figure, in this interpreter, by name."""
    return _with_ours(probe.versions(RECORDED))


def _with_ours(packages: dict[str, str]) -> dict[str, str]:
    """Return the packages with vebench: its own code runs in every interpreter, also where it is not installed."""
    return {"vebench": vebench.__version__, **packages}


def examine(option: str, path: str) -> Interpreter:
    """Return what is known of the Python at ``path``, which ``option`` named.

    Raises UsageError if there is none, if it is too old, or if it lacks numpy, which every cell needs.
    """
    # A path is relative to this folder, where no cell runs; a bare name is looked for as a shell does.
    python = str(Path(path).absolute()) if os.sep in path else path
    about = f"{option} {shown(path)}"
    request: dict[str, object] = {"packages": RECORDED, "modules": [package.module for package in PACKAGES]}
    facts = ask(about, python, request, TIMEOUT_S)
    if tuple(facts["version"]) < OLDEST:
        found, oldest = (".".join(map(str, version[:2])) for version in (facts["version"], OLDEST))
        raise UsageError(f"{about}: Python {found} is too old; {oldest} is the oldest")
    if "numpy" not in facts["modules"]:
        raise UsageError(f"{about}: has no numpy, which every cell needs")
    version = ".".join(map(str, facts["version"]))
    return Interpreter(python, version, _with_ours(facts["packages"]), frozenset(facts["modules"]))
