"""Environments of other suites, which register themselves when their package is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vebench.backends.environments import registered

if TYPE_CHECKING:
    import gymnasium

    from vebench.backends.interface import Task


def make_dm_control(task: Task) -> gymnasium.Env[Any, Any]:
    """Return one environment of the DeepMind Control suite, as Shimmy wraps it."""
    import shimmy  # noqa: F401, PLC0415 - imported on use, to register it

    return registered.make(task)


def make_minigrid(task: Task) -> gymnasium.Env[Any, Any]:
    """Return one environment of MiniGrid, without its mission: that is text."""
    import minigrid  # noqa: F401, PLC0415 - imported on use, to register it
    from gymnasium.wrappers import FilterObservation  # noqa: PLC0415 - imported on use

    return FilterObservation(registered.make(task), ["direction", "image"])
