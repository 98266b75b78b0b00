"""Other Pythons: what is installed in them, and which environments and adapters they have.

Each question is answered by ``child/probe.py`` in a separate process, so that this one imports no simulator.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict

import msgspec
from msgspec import Meta

import vebench
from vebench.backends import bracketed
from vebench.backends.environments.suites import SUITES
from vebench.backends.registry import PACKAGES, RECORDED
from vebench.child import probe
from vebench.child.process import Log
from vebench.errors import UsageError, one_line, shown
from vebench.interpreters.process_guard import ProcessGuard, python_path

if TYPE_CHECKING:
    from collections.abc import Sequence

PLUGINS = tuple(suite.plugin for suite in SUITES.values() if suite.plugin)
LONGEST_QUOTE = 300  # characters of the last line that was printed
_PROBE = Path(vebench.__path__[0]) / "child" / "probe.py"
_MOST_BYTES = 1 << 24  # of an answer: those that are honest are thousands
_CHECK_S = 0.05  # how often to look whether the interpreter has ended, or has answered too much
_OLDEST = (3, 10)  # the oldest Python that the measuring child supports
_TIMEOUT_S = 60.0
_WHOLE = {"id", "package", "module", "frame_skip", "called", "problem"}
_Part = Annotated[int, Meta(ge=0, lt=1000)]


class _ObjectFacts(TypedDict, total=False):
    """The facts of an adapter or a function. Without an error it can be loaded."""

    error: str
    wanted: str
    names: list[str]


class _EnvFacts(_ObjectFacts, total=False):
    """The facts of an environment: an error, or all of ``_WHOLE``."""

    id: str
    package: str
    module: str | None
    frame_skip: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    called: bool
    problem: str | None


class ProbeFacts(TypedDict):
    """What ``child/probe.py`` answers, which describes it. Lists are in the order of what was asked for."""

    version: tuple[_Part, _Part, _Part]
    packages: dict[str, str]
    modules: list[str]
    adapters: NotRequired[list[_ObjectFacts]]
    functions: NotRequired[list[_ObjectFacts]]
    envs: NotRequired[list[_EnvFacts]]
    registered: NotRequired[list[str]]


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


@cache
def packages_here() -> dict[str, str]:
    """Return the versions of the packages that affect a figure, by name, in the running interpreter."""
    return with_ours(probe.versions(RECORDED))


def with_ours(packages: dict[str, str]) -> dict[str, str]:
    """Return the packages and vebench: our code runs in every interpreter, even if vebench is not installed there."""
    return {"vebench": vebench.__version__, **packages}


def examine_python(option: str, path: str) -> Interpreter:
    """Return the facts about the Python at ``path``, the value of ``option``.

    Raises UsageError if it does not exist, is too old, or has no numpy, which every cell needs.
    """
    # A relative path must become absolute, because cells run in another folder; a bare name is searched for in PATH.
    python = str(Path(path).absolute()) if os.sep in path else path
    about = f"{option} {shown(path)}"
    request: dict[str, object] = {"packages": RECORDED, "modules": [package.module for package in PACKAGES]}
    facts = ask(about, python, request, _TIMEOUT_S, examined=False)
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
    """Return the facts of these environments, adapters and functions.

    An environment is a name with its arguments, as a user writes it. An adapter is ``module:Class`` and the names of
    the options that it gets. ``timeout`` is in seconds. Raises UsageError if there is no answer.
    """
    about = f"looking up {shown(', '.join([*envs, *(target for target, _ in adapters), *functions]))}"
    request: dict[str, object] = {
        "envs": [bracketed.name_and_values(name) for name in envs],
        "adapters": [*adapters],
        "functions": [*functions],
        "plugins": PLUGINS,
    }
    facts = ask(about, python, request, timeout)
    found = facts.get("envs", [])
    counts = len(found), len(facts.get("adapters", [])), len(facts.get("functions", []))
    whole = all("error" in env or env.keys() >= _WHOLE for env in found)
    if counts != (len(envs), len(adapters), len(functions)) or not whole:
        raise UsageError(f"{about}: Python gave an incomplete answer")
    return facts


def ask(about: str, python: str, request: dict[str, object], timeout: float, *, examined: bool = True) -> ProbeFacts:
    """Return the answer of ``child/probe.py`` in ``python``. Requests and answers are described there.

    It imports what a cell would import, and works in a scratch folder. ``timeout`` is in seconds. ``examined`` is
    whether ``python`` is known to be a Python. Raises UsageError, which begins with ``about``, if it does not start,
    does not answer or answers something else, StorageError if the scratch folder cannot be made.
    """
    which = "Python" if examined else "is not a working Python: it"
    with ProcessGuard() as guarded:
        process, answer, printed = _run(about, python, guarded, request, timeout)
    if len(answer) > _MOST_BYTES:
        raise UsageError(f"{about}: {which} answered more than {_MOST_BYTES >> 20} MiB")
    try:
        found = json.loads(answer.decode(errors="replace"))
    except (ValueError, RecursionError):
        ended = f"status {process.returncode}" if process.returncode >= 0 else f"signal {-process.returncode}"
        last = one_line(printed.strip().rpartition("\n")[2])[:LONGEST_QUOTE]
        why = f": {last}" if last else ", without an answer"
        raise UsageError(f"{about}: {which} ended with {ended}{why}") from None
    try:
        return msgspec.convert(found, ProbeFacts)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{about}: {which} gave a wrong answer: {one_line(str(error).replace('`', ''))}") from None


def _run(
    about: str, python: str, guarded: ProcessGuard, request: dict[str, object], timeout: float
) -> tuple[subprocess.Popen[bytes], bytes, str]:
    """Run the probe to its end. Returns its process, its answer, and the end of what it printed to standard error."""
    asked, answered, printed = (guarded.scratch / name for name in ("request.json", "answer.json", "log"))
    asked.write_text(json.dumps({**request, "scratch": str(guarded.scratch)}), encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": python_path(guarded.scratch)}
    # Files, not pipes: a pipe stays open as long as anything that was started has it.
    with asked.open("rb") as question, answered.open("w+b") as answer, printed.open("a+b") as errors:
        log, deadline = Log(errors), time.monotonic() + timeout
        try:
            with guarded.process([python, str(_PROBE)], env, question, answer, errors) as process:
                while process.poll() is None and os.fstat(answer.fileno()).st_size <= _MOST_BYTES:
                    if time.monotonic() > deadline:
                        raise UsageError(f"{about}: no answer within {timeout:g} s")
                    log.keep_short()
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(_CHECK_S)
        except OSError as error:
            name, example = shown(python), "name a Python, such as venv/bin/python"
            named = "" if about.endswith(f" {name}") else f"{name} "  # as the user typed it, it is named already
            raise UsageError(f"{about}: {named}does not start: {error.strerror}: {example}") from None
        return process, os.pread(answer.fileno(), _MOST_BYTES + 1, 0), log.end()
