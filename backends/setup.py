"""What an adapter is given: the task, and its share of the machine.

Standard library only, so that the measuring child can read it before it is pinned. ``interface`` exports it, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from vebench.backends import bracketed
from vebench.backends.bracketed import OptionValue

__all__ = ["OptionValue", "Setup", "Task"]


@dataclass(frozen=True)
class Task:
    """One environment to be stepped, by facts that hold for every backend.

    ``id`` is what users see, and tells it from every other task: the id that ``gymnasium.make`` takes (``ALE/Pong-v5``)
    or ``module:callable``, with the arguments in brackets, if there are any (``CartPole-v1[max_episode_steps=50]``).
    ``module`` is imported before an environment is made that registers itself on import. ``suite`` is the name of its
    kind in ``environments.suites``.
    ``frame_skip`` is the number of emulator frames or physics sub-steps in one agent step. ``exact`` asks for the
    variant without chance, as far as there is one: no noise on the start, ``no_ops`` no-ops at each reset of a game.
    """

    id: str
    suite: str
    frame_skip: int
    module: str | None = None
    exact: bool = False
    no_ops: int = 1

    @property
    def name(self) -> str:
        """The id without arguments."""
        return bracketed.read(self.id)[0]

    @property
    def arguments(self) -> dict[str, OptionValue]:
        """The keyword arguments with which the environment is made."""
        return bracketed.read(self.id)[1]


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
