"""Any environment that Gymnasium has registered, as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import gymnasium

    from vebench.backends.interface import Task


def make(task: Task) -> gymnasium.Env[Any, Any]:
    """Return one environment of ``task``."""
    import gymnasium  # noqa: PLC0415 - imported on use

    arguments: dict[str, Any] = task.arguments
    return gymnasium.make(task.name, disable_env_checker=True, **arguments)
