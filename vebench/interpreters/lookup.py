"""Looks up environments and adapters in the interpreter that will step them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vebench.backends.environments.suites import SUITES
from vebench.errors import shown
from vebench.interpreters.asking import ask

if TYPE_CHECKING:
    from collections.abc import Sequence

PLUGINS = tuple(suite.plugin for suite in SUITES.values() if suite.plugin)


def look_up(
    envs: Sequence[str], adapters: Sequence[tuple[str, Sequence[str]]], python: str, timeout: float
) -> dict[str, Any]:
    """Return the answer of ``child/probe.py`` about these environments and adapters.

    An adapter is ``module:Class`` and the names of the options that it gets. ``timeout`` is in seconds. Raises
    UsageError if there is no answer.
    """
    about = f"looking up {shown(', '.join([*envs, *(target for target, _ in adapters)]))}"
    return ask(about, python, {"envs": [*envs], "adapters": [*adapters], "plugins": PLUGINS}, timeout)
