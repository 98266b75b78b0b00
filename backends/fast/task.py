"""What one process steps, as its users see it: a task, and batches of its environments.

A ``FastTask`` is everything that the environments of one process share: constants, tables, a model. A ``FastBatch`` is
some of those environments, stepped together, which write straight into their rows of the shared arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import gymnasium

    from vebench.backends.fast.commons import Area, Commons
    from vebench.backends.setup import Task
    from vebench.backends.shared_memory.memory_layout import Arrays


class FastBatch(Protocol):
    """Some environments of one process. They end their episodes; what comes after an end is up to their user."""

    current: int
    """Index within the batch of the environment in use now, or last."""

    def reset(self, index: int, seed: int | None) -> None:
        """Start a new episode in one environment and write its first observation, and nothing else, into its row.

        Without a seed it draws on from where it is, or, before the first seed, from the system's entropy.
        """

    def step(self, resting: Sequence[int]) -> Sequence[int]:
        """Step the environments with their rows of the actions; return those that have ended their episodes, in order.

        Those that are ``resting``, in order, begin a new episode instead, drawing on from where they are. Their rows
        show its first observation and no reward.
        """

    def frames(self, index: int) -> int:
        """Return the frames that the simulator of one environment has made in its episode."""

    def close(self) -> None:
        """Free what the environments have."""


class FastTask(Protocol):
    """A task as the environments of one process share it. Building one takes about as long as one environment.

    ``how``: how it steps, in words, such as which parts are compiled. ``leaves_out``: what Gymnasium's class does and
    this one does not, in words. ``uncompiled``: why a compiled part that there could be is not used, though it was
    asked for, empty if it is used or there is none for these settings.
    """

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    how: str
    uncompiled: str
    leaves_out: tuple[str, ...]

    def commons(self, count: int) -> Commons | None:
        """Return memory for ``count`` environments in which each process can step those of others, None if none can.

        It is made before the other processes are forked.
        """

    def batch(self, rows: Arrays, area: Area | None = None) -> FastBatch:
        """Build as many environments as there are rows, in this process's area of that memory if there is any."""


class FastTaskClass(Protocol):
    """How a task is built."""

    def __call__(self, env_id: str, settings: Mapping[str, Any], *, compiled: bool = True) -> FastTask:
        """Return the task that Gymnasium calls ``env_id``, with these settings instead of its defaults.

        ``compiled``: whether compiled parts are used where there are any. Raises ValueError for settings without sense.
        """

    def settings_of(self, task: Task) -> dict[str, Any]:
        """Return the settings with which a task is what every backend steps."""
