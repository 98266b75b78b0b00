"""Loads an adapter, and says in a line what a library has raised."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vebench.backends.interface import Factory


def load(target: str) -> Factory:
    """Return the adapter ``module:Class``. Raises whatever its import raises."""
    module, _, name = target.partition(":")
    factory: Factory = getattr(importlib.import_module(module), name)
    return factory


def one_line(error: BaseException) -> str:
    """Return the error's type and the first line of its text, at most 500 characters; the log has the rest."""
    text = " ".join(str(error).strip().partition("\n")[0].split())
    name = type(error).__name__
    return f"{name}: {text}"[:500] if text else name
