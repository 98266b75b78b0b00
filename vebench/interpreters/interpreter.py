"""A Python in which cells can run: its version, and what is installed in it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, TypedDict

from msgspec import Meta

import vebench
from vebench.backends.registry import PACKAGES, RECORDED
from vebench.child import probe
from vebench.errors import UsageError, shown
from vebench.interpreters.asking import ask

_OLDEST = (3, 10)  # the oldest Python that the measuring child supports
_TIMEOUT_S = 60.0

Part = Annotated[int, Meta(ge=0, lt=1000)]


class Facts(TypedDict):
    """What ``child/probe.py`` answers about an interpreter: its version, and the packages and modules that it has."""

    version: tuple[Part, Part, Part]
    packages: dict[str, str]
    modules: list[str]


@dataclass(frozen=True)
class Interpreter:
    """A Python: its path and version, the packages that affect a figure, and the modules that can be imported."""

    path: str
    version: str
    packages: dict[str, str]
    modules: frozenset[str]

    def has(self, module: str) -> bool:
        """Return whether a module that a backend needs can be imported in this Python."""
        return module in self.modules


def packages_here() -> dict[str, str]:
    """Return the versions of the packages that affect a figure, by name, in the running interpreter."""
    return with_ours(_recorded_here())


@cache
def _recorded_here() -> dict[str, str]:
    """Return what is installed. To read it takes long, and each cell of a plan asks for it."""
    return probe.versions(RECORDED)


def with_ours(packages: dict[str, str]) -> dict[str, str]:
    """Return the packages and vebench: our code runs in every interpreter, even if vebench is not installed there."""
    return {"vebench": vebench.__version__, **packages}


def examine(option: str, path: str) -> Interpreter:
    """Return the facts about the Python at ``path``, the value of ``option``.

    Raises UsageError if it does not exist, is too old, or has no numpy, which every cell needs.
    """
    # A relative path must become absolute, because cells run in another folder; a bare name is searched for in PATH.
    python = str(Path(path).absolute()) if os.sep in path else path
    about = f"{option} {shown(path)}"
    request: dict[str, object] = {"packages": RECORDED, "modules": [package.module for package in PACKAGES]}
    facts = ask(about, python, request, _TIMEOUT_S, Facts, examined=False)
    if facts["version"] < _OLDEST:
        found, oldest = (".".join(map(str, version[:2])) for version in (facts["version"], _OLDEST))
        raise UsageError(f"{about}: Python {found} is too old; {oldest} or later is needed")
    if "numpy" not in facts["modules"]:
        raise UsageError(f"{about}: has no numpy, which every cell needs")
    version = ".".join(map(str, facts["version"]))
    return Interpreter(python, version, with_ours(facts["packages"]), frozenset(facts["modules"]))
