"""What a callable of a user's module returns, with all its wrappers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vebench.backends.environments.suites import load

if TYPE_CHECKING:
    import gymnasium

    from vebench.backends.interface import Task


def make(task: Task) -> gymnasium.Env[Any, Any]:
    """Return one environment of ``task``, whose name is ``module:callable``."""
    environment: gymnasium.Env[Any, Any] = load(task.name)(**task.arguments)
    return environment
