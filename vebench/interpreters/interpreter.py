"""Facts about other Pythons: their packages, environments and adapters.

``child/probe.py`` looks the facts up in a separate process, so that this process imports no simulator.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import msgspec

import vebench
from vebench.backends import bracketed
from vebench.backends.environments.suites import SUITES
from vebench.backends.registry import PACKAGES, RECORDED
from vebench.child import probe
from vebench.child.process import Log
from vebench.errors import UsageError, one_line, shown
from vebench.interpreters.process_guard import ProcessGuard, python_path

PLUGINS = tuple(suite.plugin for suite in SUITES.values() if suite.plugin)
_MOST_BYTES = 1 << 24  # limit for an answer; normal answers have thousands of bytes
_OLDEST = (3, 10)  # the oldest Python that the measuring child supports


class ProbeFacts(TypedDict):
    """The answer of ``child/probe.py``. Lists are in the order of the request."""

    version: tuple[int, int, int]
    packages: dict[str, str]
    modules: list[str]
    adapters: NotRequired[list[dict[str, Any]]]
    functions: NotRequired[list[dict[str, Any]]]
    envs: NotRequired[list[dict[str, Any]]]
    registered: NotRequired[list[str]]


@dataclass(frozen=True)
class Interpreter:
    """A Python: its path and version, the packages that affect a rate, and the modules that it can import."""

    path: str
    version: str
    packages: dict[str, str]
    modules: frozenset[str]

    def has(self, module: str) -> bool:
        """Return whether a module that a backend needs can be imported in this Python."""
        return module in self.modules


@cache
def packages_here() -> dict[str, str]:
    """Return the versions of the packages that affect a rate, by name, in the running interpreter."""
    return with_ours(probe.versions(RECORDED))


def with_ours(packages: dict[str, str]) -> dict[str, str]:
    """Return ``packages`` with vebench added. Its code runs in every interpreter, even where it is not installed."""
    return {"vebench": vebench.__version__, **packages}


def examine_python(option: str, path: str) -> Interpreter:
    """Return the facts about the Python at ``path``. Errors begin with ``option``, which names it.

    Raises UsageError if the Python does not exist, is too old, or has no numpy, which every cell needs.
    """
    # A relative path must become absolute, because cells run in another folder. A bare name is searched for in PATH.
    python = str(Path(path).absolute()) if os.sep in path else path
    about = f"{option} {shown(path)}"
    request: dict[str, object] = {"packages": RECORDED, "modules": [package.module for package in PACKAGES]}
    facts = ask(about, python, request, 60.0)
    if facts["version"] < _OLDEST:
        found, oldest = (".".join(map(str, version[:2])) for version in (facts["version"], _OLDEST))
        raise UsageError(f"{about}: Python {found} is too old; {oldest} or later is needed")
    if "numpy" not in facts["modules"]:
        raise UsageError(f"{about}: has no numpy, which every cell needs")
    version = ".".join(map(str, facts["version"]))
    return Interpreter(python, version, with_ours(facts["packages"]), frozenset(facts["modules"]))


def look_up(
    python: str,
    timeout: float,
    *,
    envs: Sequence[str] = (),
    adapters: Sequence[tuple[str, Sequence[str]]] = (),
    functions: Sequence[str] = (),
) -> ProbeFacts:
    """Return the facts of these environments, adapters and functions. Raises UsageError if there is no answer.

    An environment is a name with arguments in brackets. An adapter is ``module:Class`` with the names of its options.
    """
    about = f"looking up {shown(', '.join([*envs, *(target for target, _ in adapters), *functions]))}"
    request: dict[str, object] = {
        "envs": [bracketed.name_and_values(name) for name in envs],
        "adapters": [*adapters],
        "functions": [*functions],
        "plugins": PLUGINS,
    }
    return ask(about, python, request, timeout)


def ask(about: str, python: str, request: dict[str, object], timeout: float) -> ProbeFacts:
    """Return the answer of ``child/probe.py``, run in ``python``, to a request. That script describes both.

    Raises UsageError, which begins with ``about``, if ``python`` does not answer.
    """
    probe_script = str(Path(probe.__file__).absolute())
    with ProcessGuard() as guard:
        # Use files, because a pipe stays open until all processes that the interpreter started have closed it.
        asked, answered, printed = (guard.scratch / name for name in ("request.json", "answer.json", "log"))
        asked.write_text(json.dumps({**request, "scratch": str(guard.scratch)}), encoding="utf-8")
        env = {**os.environ, "PYTHONPATH": python_path(guard.scratch)}
        with asked.open("rb") as question, answered.open("w+b") as answer, printed.open("a+b") as log:
            deadline = time.monotonic() + timeout
            try:
                with guard.process([python, probe_script], log, env=env, stdin=question, stdout=answer) as process:
                    while process.wait(0.05) is None and os.fstat(answer.fileno()).st_size <= _MOST_BYTES:
                        if time.monotonic() > deadline:
                            raise UsageError(f"{about}: no answer within {timeout:g} s")
                        Log(log).keep_short()
            except OSError as error:
                named = "" if about.endswith(f" {shown(python)}") else f"{shown(python)} "
                why = f"{named}does not start: {error.strerror}: name a Python, such as venv/bin/python"
                raise UsageError(f"{about}: {why}") from None
            text, how = os.pread(answer.fileno(), _MOST_BYTES, 0), process.how_it_ended()
    try:
        found = json.loads(text.decode(errors="replace"))
    except (ValueError, RecursionError):
        why = "" if ": " in how else ", without an answer"
        raise UsageError(f"{about}: Python {one_line(how)}{why}") from None
    try:
        return msgspec.convert(found, ProbeFacts)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{about}: Python gave a wrong answer: {one_line(str(error).replace('`', ''))}") from None
