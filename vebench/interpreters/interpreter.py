"""Other Pythons: what is installed in them, and which environments and adapters they have.

Each question is answered by ``child/probe.py`` in a separate process, so that this one imports no simulator.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict, TypeVar

import msgspec
from msgspec import Meta

import vebench
from vebench.backends import bracketed
from vebench.backends.environments.suites import SUITES
from vebench.backends.registry import PACKAGES, RECORDED
from vebench.child import probe
from vebench.errors import UsageError, one_line, shown
from vebench.interpreters.guarded import Guarded
from vebench.interpreters.scratch import python_path
from vebench.machine import guardian

if TYPE_CHECKING:
    from collections.abc import Sequence

_PROBE = Path(vebench.__path__[0]) / "child" / "probe.py"
LONGEST_QUOTE = 300  # characters of the last line that it printed
MOST_BYTES = 1 << 24  # of an answer: those that are honest are thousands
_LAST_PRINTED = 1 << 14  # bytes of what it printed that are kept
_CHECK_S = 0.1  # how often to look whether the interpreter has ended, if another process keeps its pipes open
_OLDEST = (3, 10)  # the oldest Python that the measuring child supports
_TIMEOUT_S = 60.0
PLUGINS = tuple(suite.plugin for suite in SUITES.values() if suite.plugin)

_Answer = TypeVar("_Answer")
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


class AdapterFacts(TypedDict, total=False):
    """The facts of an adapter; ``child/probe.py`` says what they mean. Without an error it can be loaded."""

    error: str
    wanted: str
    names: list[str]


class EnvFacts(TypedDict, total=False):
    """The facts of an environment: an error, or all of ``_FOUND``."""

    id: str
    package: str
    module: str | None
    frame_skip: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    called: bool
    problem: str | None
    error: str
    names: list[str]


class Answer(TypedDict):
    """The facts of all adapters and environments in the order in which they were asked for."""

    adapters: list[AdapterFacts]
    envs: NotRequired[list[EnvFacts]]
    registered: NotRequired[list[str]]


_FOUND = {"id", "package", "module", "frame_skip", "called", "problem"}


class FunctionsAnswer(TypedDict):
    """The facts of the functions that were asked for."""

    functions: list[AdapterFacts]


def look_up_function(target: str, python: str, timeout: float) -> AdapterFacts:
    """Return the facts of ``module:function``; the arguments and errors are those of ``look_up``."""
    request: dict[str, object] = {"functions": [target]}
    answer = ask(f"looking up {shown(target)}", python, request, timeout, FunctionsAnswer)
    if len(answer["functions"]) != 1:
        raise UsageError(f"looking up {shown(target)}: Python gave a wrong answer: it has not what was asked for")
    return answer["functions"][0]


def look_up(
    envs: Sequence[str],
    adapters: Sequence[tuple[str, Sequence[str]]],
    python: str,
    timeout: float,
) -> Answer:
    """Return the answer of ``child/probe.py`` about these environments and adapters.

    An environment is a name with its arguments, as a user writes it. An adapter is ``module:Class`` and the names of
    the options that it gets. ``timeout`` is in seconds. Raises UsageError if there is no answer.
    """
    about = f"looking up {shown(', '.join([*envs, *(target for target, _ in adapters)]))}"
    request: dict[str, object] = {
        "envs": [bracketed.read(name) for name in envs],
        "adapters": [*adapters],
        "plugins": PLUGINS,
    }
    answer = ask(about, python, request, timeout, Answer)
    found = answer.get("envs", [])
    whole = all("error" in facts or facts.keys() >= _FOUND for facts in found)
    if (len(found), len(answer["adapters"]), whole) != (len(envs), len(adapters), True):
        raise UsageError(f"{about}: Python gave a wrong answer: it has not what was asked for")
    return answer


def ask(  # noqa: PLR0913 - a question and how to put it
    about: str, python: str, request: dict[str, object], timeout: float, kind: type[_Answer], *, examined: bool = True
) -> _Answer:
    """Return the answer of ``child/probe.py`` in ``python``. Requests and answers are described there.

    What it imports, it finds where a cell would find it. It works in a scratch folder, so that nothing is written into
    the user's. ``about`` says what the question is about; every error begins with it. ``timeout`` is in seconds.
    ``kind`` is the type of the answer. ``examined`` is whether ``python`` is known to be a Python that runs. Processes
    that the interpreter has started are ended, too. Raises UsageError if there is no answer, because the interpreter
    does not start, or because an import crashes or hangs, or if the answer is of another type, and StorageError if
    there is no room for the scratch folder.
    """
    which = "Python" if examined else "is no Python that runs: it"
    with Guarded() as guarded:
        process = _start(about, python, guarded, request)
        guarded.add(process.pid)
        with process:
            try:
                answer, printed = _read(process, time.monotonic() + timeout)
            except subprocess.TimeoutExpired:
                raise UsageError(f"{about}: no answer within {timeout:g} s") from None
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    if len(answer) > MOST_BYTES:
        raise UsageError(f"{about}: {which} answered more than {MOST_BYTES >> 20} MiB")
    try:
        found = json.loads(answer.decode(errors="replace"))
    except (ValueError, RecursionError):
        ended = f"status {process.returncode}" if process.returncode >= 0 else f"signal {-process.returncode}"
        last = one_line(printed.decode(errors="replace").strip().rpartition("\n")[2])[:LONGEST_QUOTE]
        why = f": {last}" if last else ", without an answer"
        raise UsageError(f"{about}: {which} ended with {ended}{why}") from None
    try:
        return msgspec.convert(found, kind)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{about}: {which} gave a wrong answer: {one_line(str(error).replace('`', ''))}") from None


def _start(about: str, python: str, guarded: Guarded, request: dict[str, object]) -> subprocess.Popen[bytes]:
    asked = guarded.scratch / "request.json"  # a pipe would block if nobody read it
    asked.write_text(json.dumps({**request, "scratch": str(guarded.scratch)}), encoding="utf-8")
    pipe = subprocess.PIPE
    try:
        with asked.open("rb") as file:
            return subprocess.Popen(
                [python, str(_PROBE)],
                stdin=file,
                stdout=pipe,
                stderr=pipe,
                env={**os.environ, guardian.TOKEN_VARIABLE: guarded.token, "PYTHONPATH": python_path(guarded.scratch)},
                start_new_session=True,
            )
    except OSError as error:
        name, example = shown(python), "name a Python, such as venv/bin/python"
        which = "" if about.endswith(f" {name}") else f"{name} "  # as the user typed it, it is named already
        raise UsageError(f"{about}: {which}does not start: {error.strerror}: {example}") from None


def _read(process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bytes]:
    """Return what a process answers, and the end of what it prints to standard error, once it has ended.

    An answer of more than ``MOST_BYTES`` is not read to its end. Raises TimeoutExpired at the deadline.
    """
    answer, printed = bytearray(), bytearray()
    left = {pipe.fileno(): kept for pipe, kept in ((process.stdout, answer), (process.stderr, printed)) if pipe}
    while left and len(answer) <= MOST_BYTES:
        ended = process.poll() is not None
        if time.monotonic() > deadline:
            raise subprocess.TimeoutExpired(process.args, 0)
        readable, _, _ = select.select([*left], [], [], 0 if ended else _CHECK_S)
        if ended and not readable:  # what it has started keeps its pipes open
            break
        for pipe in readable:
            if chunk := os.read(pipe, 1 << 16):
                left[pipe] += chunk
            else:
                del left[pipe]
        del printed[:-_LAST_PRINTED]
    if len(answer) <= MOST_BYTES:
        process.wait(max(0.0, deadline - time.monotonic()))
    return bytes(answer), bytes(printed)
