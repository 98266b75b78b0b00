"""What scripts beside this one read from a command line."""

from __future__ import annotations

import ast
from typing import Any


def setting(text: str) -> tuple[str, Any]:
    """Return the name and the value of an argument, given as NAME=VALUE."""
    name, _, value = text.partition("=")
    return name, ast.literal_eval(value)
