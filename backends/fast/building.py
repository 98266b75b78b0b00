"""A task of our own classes is built: once to be looked at, if ours may step it at all, and in every process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import gymnasium

from vebench.backends.environments.suites import load
from vebench.backends.fast import native
from vebench.backends.fast.classes import class_of
from vebench.backends.setup import OwnClasses

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vebench.backends.fast.task import FastTask, FastTaskClass


_OTHER_VERSIONS = "install that package anew, or in another version, with pip install --force-reinstall"


def build(env_id: str, settings: Mapping[str, Any], *, compiled: bool) -> tuple[Building | None, OwnClasses]:
    """Return how each process builds a task that the guard allows, None if it cannot be; and what steps, and why."""
    try:
        make = Building(env_id, settings, compiled=compiled)
    except ValueError as error:
        return None, OwnClasses(refused=f"our own class for {env_id}: {error}")
    missing = make.example.uncompiled
    remedy = native.REMEDY if missing == native.NOT_BUILT else _OTHER_VERSIONS if missing else ""
    return make, OwnClasses(make.example.how, uncompiled=bool(missing), remedy=remedy)


class Building:
    """Builds a task in each process that steps it, and once before: ``example``, which tells what it is.

    The process that has built the example gets it as its first task: building one takes as long as loading a game.
    Any other process builds its own, however it was started: no state of the example comes along.

    Raises ValueError for settings without sense, and if our class is not what Gymnasium has registered.
    """

    def __init__(self, env_id: str, settings: Mapping[str, Any], *, compiled: bool) -> None:
        self._arguments = env_id, dict(settings), compiled
        self._process = os.getpid()
        self.example: FastTask = self._build()
        self._unused: FastTask | None = self.example

    def __call__(self) -> FastTask:
        """Return the task."""
        given, self._unused = self._unused, None
        return self._build() if given is None or os.getpid() != self._process else given

    def _build(self) -> FastTask:
        env_id, settings, compiled = self._arguments
        ours = class_of(env_id)
        assert ours is not None  # noqa: S101 - whoever asks has seen that there is one
        kind: FastTaskClass = load(ours.target)
        _check_registered(env_id)
        return kind(env_id, settings, compiled=compiled)

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs: not the example."""
        return {"_arguments": self._arguments, "_process": 0, "_unused": None}


def _check_registered(env_id: str) -> None:
    """Raise ValueError if Gymnasium would make something else by this id than the class that ours stands for.

    It can be registered anew, with another class, with wrappers or with other defaults. The module that registers it
    must be loaded.
    """
    ours, spec = class_of(env_id), gymnasium.spec(env_id)
    assert ours is not None  # noqa: S101 - as above
    if spec.entry_point != ours.entry_point:
        raise ValueError(f"{env_id} is registered as {_name(spec.entry_point)}, not as {ours.entry_point}")
    if spec.additional_wrappers:
        names = ", ".join(wrapper.name for wrapper in spec.additional_wrappers)
        raise ValueError(f"{env_id} is registered with wrappers around it: {names}")
    if spec.max_episode_steps is not None and "max_episode_steps" not in ours.settings:
        raise ValueError(f"{env_id} is registered with max_episode_steps={spec.max_episode_steps}")
    for name in sorted(spec.kwargs.keys() | ours.defaults.keys()):
        if name not in spec.kwargs or name not in ours.defaults:
            raise ValueError(f"{env_id} is registered {'with' if name in spec.kwargs else 'without'} {name}")
        given, expected = spec.kwargs[name], ours.defaults[name]
        if name not in ours.free and (type(given) is not type(expected) or given != expected):
            raise ValueError(f"{env_id} is registered with {name}={given!r}, not {expected!r}")


def _name(entry_point: object) -> str:
    return getattr(entry_point, "__qualname__", str(entry_point))
