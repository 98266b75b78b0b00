"""Looks up environments and adapters in the interpreter that will step them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict

from msgspec import Meta

from vebench.backends import bracketed
from vebench.backends.environments.suites import SUITES
from vebench.errors import UsageError, shown
from vebench.interpreters.asking import ask

if TYPE_CHECKING:
    from collections.abc import Sequence

PLUGINS = tuple(suite.plugin for suite in SUITES.values() if suite.plugin)


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
