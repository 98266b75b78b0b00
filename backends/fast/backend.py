"""Environments of our own classes in our own processes, as backends: ``fast-sync``, ``fast-async``, ``fast-half``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vebench.backends.environments.making import read_spaces
from vebench.backends.environments.suites import load_target
from vebench.backends.fast.classes import class_of, refusal
from vebench.backends.fast.share import build_task, make_share
from vebench.backends.interface import Difference
from vebench.backends.shared_memory.backend import ShmAsync, ShmHalf, ShmSync, Stepped, gymnasium_classes

if TYPE_CHECKING:
    from vebench.backends.fast.share import FastTask
    from vebench.backends.interface import Setup, Task


def stepped_by_own_classes(task: Task, *, compiled: bool) -> Stepped:
    """Return how our own class steps a task; Gymnasium's class does if ours may not, and that is said."""
    ours, refused = class_of(task.id), refusal(task.id)
    if ours is None or refused is not None:
        return gymnasium_classes(task)._replace(own_classes=refused)
    kind: type[FastTask] = load_target(ours.target)
    make, own = build_task(task.id, kind.settings_of(task), compiled=compiled)
    if make is None:
        return gymnasium_classes(task)._replace(own_classes=own)
    example = make.example
    return Stepped(
        read_spaces(task, example.observation_space, example.action_space),
        lambda division: make_share(make, division, "NextStep"),
        own,
        tuple(Difference(text) for text in example.leaves_out),
    )


class FastSync(ShmSync):
    """``ShmSync`` with our own classes for the environments. ``compiled``: whether compiled parts are used."""

    def __init__(self, setup: Setup, *, compiled: bool = True, **options: Any) -> None:  # noqa: ANN401 - of ShmSync
        self._compiled = compiled
        super().__init__(setup, **options)

    def stepped(self, task: Task) -> Stepped:
        """Return what steps the environments: our own class."""
        return stepped_by_own_classes(task, compiled=self._compiled)


class FastAsync(ShmAsync):
    """``ShmAsync`` with our own classes for the environments. ``compiled``: whether compiled parts are used."""

    def __init__(self, setup: Setup, *, compiled: bool = True, **options: Any) -> None:  # noqa: ANN401 - of ShmAsync
        self._compiled = compiled
        super().__init__(setup, **options)

    def stepped(self, task: Task) -> Stepped:
        """Return what steps the environments: our own class."""
        return stepped_by_own_classes(task, compiled=self._compiled)


class FastHalf(ShmHalf):
    """``ShmHalf`` with our own classes for the environments, whose options are those of ``FastSync``."""

    half = FastSync
