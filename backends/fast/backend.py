"""Environments of our own classes in our own processes, as backends: ``fast-sync`` and ``fast-async``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.backends.environments.making import read_spaces
from vebench.backends.environments.suites import load
from vebench.backends.fast.classes import class_of, refusal
from vebench.backends.fast.share import build, make_share
from vebench.backends.interface import Difference
from vebench.backends.shared_memory.backend import ShmAsync, ShmHalf, ShmSync, Stepped, gymnasium_classes

if TYPE_CHECKING:
    from vebench.backends.fast.share import FastTask
    from vebench.backends.interface import Setup, Task


def own_classes(task: Task, *, compiled: bool) -> Stepped:
    """Return how our own class steps a task; Gymnasium's class does if ours may not, and that is said."""
    ours, refused = class_of(task.id), refusal(task.id)
    if ours is None or refused is not None:
        return gymnasium_classes(task)._replace(own_classes=refused)
    kind: type[FastTask] = load(ours.target)
    make, own = build(task.id, kind.settings_of(task), compiled=compiled)
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

    def __init__(
        self,
        setup: Setup,
        *,
        compiled: bool = True,
        spin: int | None = None,
        caller_steps: bool = True,
        context: str = "fork",
    ) -> None:
        self._compiled = compiled
        super().__init__(setup, spin=spin, caller_steps=caller_steps, context=context)

    def stepped(self, task: Task) -> Stepped:
        """Return what steps the environments: our own class."""
        return own_classes(task, compiled=self._compiled)


class FastAsync(ShmAsync):
    """``ShmAsync`` with our own classes for the environments. ``compiled``: whether compiled parts are used."""

    def __init__(  # noqa: PLR0913 - its options
        self,
        setup: Setup,
        *,
        compiled: bool = True,
        ratio: int = 2,
        recv_timeout: float | None = None,
        recv_min: int = 1,
        spin: int | None = None,
        caller_steps: bool = True,
        context: str = "fork",
    ) -> None:
        self._compiled = compiled
        super().__init__(
            setup,
            ratio=ratio,
            recv_timeout=recv_timeout,
            recv_min=recv_min,
            spin=spin,
            caller_steps=caller_steps,
            context=context,
        )

    def stepped(self, task: Task) -> Stepped:
        """Return what steps the environments: our own class."""
        return own_classes(task, compiled=self._compiled)


class FastHalf(ShmHalf):
    """``ShmHalf`` with our own classes for the environments. ``compiled``: whether compiled parts are used."""

    def __init__(self, setup: Setup, *, compiled: bool = True, spin: int = 0, context: str = "fork") -> None:
        self._compiled = compiled
        super().__init__(setup, spin=spin, context=context)

    def half(self, setup: Setup, spin: int, context: str) -> ShmSync:
        """Return one half."""
        return FastSync(setup, compiled=self._compiled, spin=spin, caller_steps=False, context=context)
