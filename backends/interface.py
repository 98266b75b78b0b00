"""The interface of a backend: a constructor, four methods, and a description of itself.

An adapter is a class in an importable module, built as ``Adapter(setup, **options)``. Stepping is asynchronous: one
step is a ``send`` followed by a ``recv``. The first ``recv`` after a ``reset`` returns the rows of the reset. From then
on, each ``send`` has actions for the rows of the last ``recv``.

The parent and a child that is not pinned yet import this module. Use only the standard library of Python 3.10.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from vebench.backends import bracketed, trees
from vebench.backends.bracketed import OptionValue

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# An array, or a dict or tuple of trees: an observation or action in a ``Dict`` or ``Tuple`` space.
ArrayTree: TypeAlias = "NDArray[np.generic] | dict[str, ArrayTree] | tuple[ArrayTree, ...]"
ActionSpaceTree: TypeAlias = "ActionSpace | dict[str, ActionSpaceTree] | tuple[ActionSpaceTree, ...]"


@dataclass(frozen=True)
class Task:
    """One kind of environment to step, by facts that hold for every backend."""

    # The unique name that users see: the id in ``gymnasium.make`` (``ALE/Pong-v5``), or ``module:callable``. Arguments
    # follow in brackets: ``CartPole-v1[max_episode_steps=50]``.
    id: str
    suite: str  # the name of its suite in ``environments.suites``
    frame_skip: int  # emulator frames or physics sub-steps in one agent step
    module: str | None = None  # the module that registers the environment on import
    exact: bool = False  # use the variant without chance, if there is one: a start without noise, ``no_ops`` no-ops
    no_ops: int = 1  # no-ops at each reset of a game in its exact variant
    vectorised: bool = False  # whether Gymnasium's registry has a vector environment for the id
    # Whether one generator draws the starts of all environments of a batch, so that single copies start elsewhere.
    drawn_together: bool = False

    @property
    def noop_max(self) -> int:
        """The largest number of no-ops of a reset. A reset of the exact variant always makes this number."""
        return self.no_ops if self.exact else 30

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
    """The argument of an adapter's constructor, along with the adapter's own options as keyword arguments."""

    task: Task  # what to step
    workers: int  # the requested parallelism
    envs_per_worker: int = 1  # rows of a batch for each worker
    cpus: tuple[int, ...] = (0,)  # the CPUs owned
    seed: int = 0  # the seed of random numbers before the first ``reset``, which may have another seed
    pinned: bool = False  # whether the process is already restricted to its CPUs, so that threads may be placed on them
    waits: bool = False  # whether steps wait, so that CPUs have time for more processes or threads

    @property
    def batch_size(self) -> int:
        """Rows of a batch. A synchronous backend has this number of environments, an asynchronous one may have more."""
        return self.workers * self.envs_per_worker

    @property
    def at_once(self) -> int:
        """The number of processes or threads that step: one per worker, at most one per CPU unless steps wait."""
        return self.workers if self.waits else min(self.workers, len(self.cpus))


class VectorBackend(Protocol):
    """The interface that vebench measures. Adapters do no timing, printing or counting, and add no work."""

    info: BackendInfo  # set by the constructor, and constant

    def reset(self, seed: int) -> None:
        """Start a new episode in every environment, environment ``i`` seeded with ``seed + i``."""

    def send(self, actions: ArrayTree) -> None:
        """Give actions, ``(rows, *action_shape)``, to the environments of the last batch, in its order.

        If ``info.action_space`` is a dict or tuple of spaces, the actions are a dict or tuple of arrays.
        """

    def recv(self) -> Batch:
        """Wait for a batch and return it. Each call follows a ``reset`` or a ``send``."""

    def close(self) -> None:
        """End every process and thread, free every buffer. A second call does nothing."""


class Batch(NamedTuple):
    """The rows that one ``recv`` returns, one for each environment that answered."""

    observations: ArrayTree  # (rows, *observation_shape); nested as the environment's ``Dict`` or ``Tuple``
    rewards: NDArray[np.floating]  # (rows,), float64 unless ``differences`` says otherwise; 0 where a row is a reset's
    terminated: NDArray[np.bool_]  # (rows,); False where a row is a reset's
    truncated: NDArray[np.bool_]  # (rows,); False where a row is a reset's
    env_ids: NDArray[np.integer]  # (rows,), from 0 to ``num_envs - 1``, each at most once

    def part(self, where: slice | NDArray[np.generic]) -> Batch:
        """Return these rows: views of the arrays for a slice, copies for indices or a mask."""
        return Batch._make(trees.part(array, where) for array in self)


# The constructor of an adapter: ``Adapter(setup, **options)``. It raises the library's exceptions.
Factory = Callable[..., VectorBackend]


@dataclass(frozen=True)
class BackendInfo:
    """An adapter's report on itself once it is built. Results use these numbers, not the requested ones."""

    num_envs: int  # environments alive
    batch_size: int  # rows that one ``recv`` returns
    action_space: ActionSpaceTree  # of one environment: bounds, shape and type
    frame_skip: int  # frames in one step: the task's
    processes: int = 1  # processes that step environments, the caller included if it does
    threads: int = 1  # threads that step environments, in each of these processes
    # ``next_step``: the row after the end of an episode reports the reset, and is not a step. ``same_step``: the row
    # that ends an episode has the first observation of the next one.
    autoreset: Literal["next_step", "same_step"] = "next_step"
    # Every batch has all environments in the order of their ids. Otherwise vebench records the ids of each batch.
    in_order: bool = False
    # Whether arrays of a batch may be overwritten once the next actions are sent. If not, no array is overwritten while
    # it is referenced.
    reuses_buffers: bool = False
    differences: tuple[Difference, ...] = ()  # differences from the reference ``for-loop``, known before a comparison
    engines: tuple[Engine, ...] = ()  # the backend's own copies of simulators
    chance: str | None = None  # why rows differ from the reference's even in the exact variant of the task
    own_classes: OwnClasses | None = None  # the own environment class in use, or why it is not used
    fewest_rows: int | None = None  # the fewest rows of a batch, if it may have fewer than ``batch_size``
    # Rows, except ids, stay arrays of a device. The loop ignores flags, and waits for rows before it reads the clock.
    # ``upload(actions)`` puts actions on the device. Such a backend is ``in_order``, and its autoreset ``same_step``.
    on_device: bool = False


@dataclass(frozen=True)
class ActionSpace:
    """A box of numbers from ``low`` to ``high``, both included, each with the shape and type of one action.

    ``Discrete(n)`` is the scalar range 0 to n - 1 of int64. Bounds of a real-valued space may be infinite.
    """

    low: NDArray[np.generic]  # the smallest numbers
    high: NDArray[np.generic]  # the largest numbers

    @classmethod
    def discrete(cls, n: int, start: int = 0) -> ActionSpace:
        """Return the space of the ``n`` integers from ``start`` on."""
        import numpy as np

        return cls(np.asarray(start, np.int64), np.asarray(start + n - 1, np.int64))

    @property
    def integer(self) -> bool:
        """Whether actions are whole numbers."""
        return self.low.dtype.kind in "iu"


@dataclass(frozen=True)
class Difference:
    """One way in which a backend's rows differ from the reference's.

    A difference in ``every`` row is reported to readers, but excuses nothing in a comparison: it could hide any fault.
    """

    text: str  # the difference in words, for reports
    field: str = ""  # the field of ``Batch`` that differs; empty if rows do not show the difference
    rows: Literal["every", "end", "start"] = "every"  # ``end``: rows that end an episode; ``start``: after a reset
    count: int = 1  # with ``start``: the number of rows, from the row of the reset on


@runtime_checkable
class CountsFrames(Protocol):
    """An optional addition to a backend: counts of the frames that its simulators have made."""

    def frames(self) -> NDArray[np.int64] | None:
        """Return the number of frames in each environment's episode up to its last row, by id, or None if unknown.

        An environment without a row in the last batch may have an older count. Frames of the reset may be included.
        """


@dataclass(frozen=True)
class Engine:
    """A backend's own copy of a simulator."""

    name: str  # the simulator
    inside: str  # the version of the copy
    installed: str  # the version of the package that the other backends use
    matching: str  # pip's requirement that would make both versions equal
    within: str = "EnvPool"  # the owner of the copy
    elsewhere: bool = False  # whether the copy is in the backend's own interpreter

    @property
    def unlike(self) -> bool:
        """Whether the two versions differ."""
        return self.inside != self.installed

    @property
    def words(self) -> str:
        """Both versions in words: ``ALE 0.11.2 inside EnvPool, 0.12.1 in ale-py``."""
        package = self.matching.partition("==")[0]
        return f"{self.name} {self.inside} inside {self.within}, {self.installed} in {package}"


@dataclass(frozen=True)
class OwnClasses:
    """Whether a backend with its own environment classes steps a task with one of them, or with Gymnasium's."""

    how: str = ""  # how the own class steps, in words
    refused: str = ""  # why Gymnasium's class is used instead; empty: it is not
    remedy: str = ""  # how a user can change that

    @property
    def words(self) -> str:
        """The class in words: ``own classes for this task, games compiled``, ``Gymnasium's class: WHY``."""
        if self.refused:
            return f"Gymnasium's class: {self.refused}"
        return f"own classes for this task{f', {self.how}' if self.how else ''}"
