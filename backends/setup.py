"""What an adapter is given: the task, and its share of the machine.

Standard library only, so that the measuring child can read it before it is pinned. ``interface`` exports it, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from vebench.backends import bracketed
from vebench.backends.bracketed import OptionValue

__all__ = ["Engine", "OptionValue", "OwnClasses", "Setup", "Task"]


@dataclass(frozen=True)
class Task:
    """One environment to be stepped, by facts that hold for every backend."""

    # What users see, which tells it from every other task: the id that ``gymnasium.make`` takes (``ALE/Pong-v5``) or
    # ``module:callable``, with arguments in brackets, if there are any (``CartPole-v1[max_episode_steps=50]``).
    id: str
    suite: str  # the name of its kind in ``environments.suites``
    frame_skip: int  # emulator frames or physics sub-steps in one agent step
    module: str | None = None  # imported before it is made: the environment registers itself on import
    exact: bool = False  # the variant without chance, as far as there is one: no noise on the start, ``no_ops`` no-ops
    no_ops: int = 1  # at each reset of a game in its exact variant

    @property
    def name(self) -> str:
        """The id without arguments."""
        return bracketed.name_and_values(self.id)[0]

    @property
    def arguments(self) -> dict[str, OptionValue]:
        """The keyword arguments with which the environment is made."""
        return bracketed.name_and_values(self.id)[1]


@dataclass(frozen=True)
class Setup:
    """What a cell gives to its adapter's constructor, along with the adapter's own options as keyword arguments.

    ``workers`` is the parallelism wanted and ``cpus`` the CPUs owned. If ``pinned``, the process is restricted to them
    already when the adapter is built, and threads may be placed on them. The adapter steps ``workers x
    envs_per_worker`` environments at a time (its batch size); environment ``i`` is seeded with ``seed + i``.
    """

    task: Task
    workers: int
    envs_per_worker: int = 1
    cpus: tuple[int, ...] = (0,)
    seed: int = 0
    pinned: bool = False

    @property
    def batch_size(self) -> int:
        """Environments stepped at a time."""
        return self.workers * self.envs_per_worker


@dataclass(frozen=True)
class Engine:
    """A simulator of which a backend has its own copy."""

    name: str
    inside: str  # the version of the copy
    installed: str  # the version of the package that the other backends use
    matching: str  # what pip would have to install to make the two equal
    within: str = "EnvPool"  # what has the copy
    elsewhere: bool = False  # it is the backend's own interpreter that has it

    @property
    def unlike(self) -> bool:
        """Whether the two are of different versions."""
        return self.inside != self.installed

    @property
    def words(self) -> str:
        """Both versions in words: ``ALE 0.11.2 inside EnvPool, 0.12.1 in ale-py``."""
        package = self.matching.partition("==")[0]
        return f"{self.name} {self.inside} inside {self.within}, {self.installed} in {package}"


@dataclass(frozen=True)
class OwnClasses:
    """What a backend with environment classes of its own steps one task with."""

    how: str = ""  # how ours steps, in words, such as which parts are compiled
    refused: str = ""  # why Gymnasium's class stands in for ours, empty if it does not
    uncompiled: bool = False  # for want of a compiled part it steps slower than it could
    remedy: str = ""  # what to do about either

    @property
    def words(self) -> str:
        """What steps, in words: ``own classes for this task, pictures compiled``, ``Gymnasium's class: WHY``."""
        if self.refused:
            return f"Gymnasium's class: {self.refused}"
        return f"own classes for this task{f', {self.how}' if self.how else ''}"

    @property
    def words_for_kind(self) -> str:
        """The same where a kind of tasks is meant: ``own classes, with compiled parts``."""
        return self.words.replace(" for this task", "", 1)
