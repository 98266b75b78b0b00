"""The one interface: what an adapter is given, what it reports about itself, a constructor and four methods.

Asynchronous use is primitive: a step is :meth:`VectorBackend.send` followed by :meth:`VectorBackend.recv`. After
:meth:`VectorBackend.reset` the first ``recv`` returns the rows of the reset; from then on each ``send`` answers the
rows that the last ``recv`` returned.

This module, like every adapter's, is also loaded by interpreters that do not have vebench installed: it needs numpy
and Python 3.10, nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

from vebench.backends import trees
from vebench.backends.setup import OptionValue, Setup, Task

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np
    from numpy.typing import NDArray

    # An array, or a dict or tuple of such: what environments with ``Dict`` and ``Tuple`` spaces observe and take.
    ArrayTree: TypeAlias = "NDArray[np.generic] | dict[str, ArrayTree] | tuple[ArrayTree, ...]"
    ActionSpaceTree: TypeAlias = "ActionSpace | dict[str, ActionSpaceTree] | tuple[ActionSpaceTree, ...]"

    from vebench.backends.setup import Engine, OwnClasses

__all__ = [
    "ActionSpace",
    "BackendInfo",
    "Batch",
    "CountsFrames",
    "Difference",
    "Factory",
    "NothingToReceiveError",
    "OptionValue",
    "Setup",
    "Task",
    "VectorBackend",
]


@dataclass(frozen=True)
class ActionSpace:
    """A box of numbers, ``low`` and ``high`` included: every array-valued action space of Gymnasium is one.

    Both bounds have the shape and the type of one action; a ``Discrete(n)`` is the scalar range 0 to n - 1 of int64.
    Bounds of a real-valued space may be infinite.
    """

    low: NDArray[np.generic]
    high: NDArray[np.generic]

    @classmethod
    def discrete(cls, n: int, start: int = 0) -> ActionSpace:
        """Return the space of the ``n`` integers from ``start`` on."""
        import numpy as np  # noqa: PLC0415 - this module is read where tables are, without numpy

        return cls(np.asarray(start, np.int64), np.asarray(start + n - 1, np.int64))

    @property
    def integer(self) -> bool:
        """Whether actions are whole numbers."""
        return self.low.dtype.kind in "iu"


@dataclass(frozen=True)
class Difference:
    """One way in which a backend's rows differ from the reference's, in words, and where that may be seen.

    ``field`` is a field of ``Batch``, empty if rows show nothing of it. ``rows``: ``every``; ``end``, those that end an
    episode; ``start``, the first ``count`` after a reset, its own row included. What shows in every row is reported to
    readers, but excuses nothing in a comparison, since it could hide any other fault.
    """

    text: str
    field: str = ""
    rows: Literal["every", "end", "start"] = "every"
    count: int = 1


@dataclass(frozen=True)
class BackendInfo:
    """What an adapter reports about itself once it is built. Counts are taken from here, never from what was asked for.

    ``num_envs``: environments alive. ``batch_size``: rows that one ``recv`` returns. ``action_space``: a dict or tuple
    of spaces where actions are ``Dict`` or ``Tuple``. ``processes``: processes that step
    environments, the caller's included where it does. ``threads``: threads that step environments, in each of those.
    ``autoreset``: ``next_step`` if the row after an end only reports the reset (it is no transition), ``same_step`` if
    the row of the end itself carries the next episode's first observation. ``frame_skip``: frames in one step.
    ``in_order``: every batch has all environments, in the order of their ids, as synchronous backends have them; where
    this is not declared, rows may come in any order, and each measured batch's ids are noted. ``fewest_rows``: the
    fewest rows of a batch where it may have fewer than ``batch_size``, None if it always has as many.
    ``reuses_buffers``: the arrays of a batch are overwritten once the next actions are sent, or later. If not, they
    stay as they are for as long as anybody holds them: a ring of buffers reuses them, unless it looks whether they are
    still held. ``differences``: what differs from the reference ``for-loop``, declared before anything is compared.
    ``engines``: simulators of which it carries a copy of its own. ``chance``: why rows differ from the reference's even
    in the exact variant of the task, None if they must not. ``own_classes``: which of its own classes it steps, or why
    none, None if it has none.
    """

    num_envs: int
    batch_size: int
    action_space: ActionSpaceTree
    frame_skip: int
    processes: int = 1
    threads: int = 1
    autoreset: Literal["next_step", "same_step"] = "next_step"
    in_order: bool = False
    reuses_buffers: bool = False
    differences: tuple[Difference, ...] = field(default=())
    engines: tuple[Engine, ...] = ()
    chance: str | None = None
    own_classes: OwnClasses | None = None
    fewest_rows: int | None = None


class Batch(NamedTuple):
    """The rows that one ``recv`` returns, one for each environment that answered.

    ``observations``: ``(rows, *observation_shape)``, or a dict or tuple of such arrays where an environment observes a
    ``Dict`` or ``Tuple``, nested as that is; ``rewards``: ``(rows,)``, float; ``terminated`` and ``truncated``:
    ``(rows,)``, bool; ``env_ids``: ``(rows,)``, int, from 0 to ``num_envs - 1``, none of them twice.
    """

    observations: ArrayTree
    rewards: NDArray[np.floating]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    env_ids: NDArray[np.integer]

    def part(self, where: slice | NDArray[np.generic]) -> Batch:
        """Return these rows: views of the arrays for a slice, copies for indices or a mask."""
        return Batch._make(trees.part(array, where) for array in self)


class NothingToReceiveError(RuntimeError):
    """``recv`` was called without a ``reset`` or ``send`` before it: waiting would never end."""

    def __init__(self) -> None:
        super().__init__("recv() needs a reset() or send() before it")


class VectorBackend(Protocol):
    """What vebench measures. An adapter holds no timing, no printing, no counting, and adds no work of its own."""

    info: BackendInfo

    def reset(self, seed: int) -> None:
        """Start a new episode in every environment, environment ``i`` seeded with ``seed + i``."""

    def send(self, actions: ArrayTree) -> None:
        """Give actions, ``(rows, *action_shape)``, to the environments of the last batch, in its order.

        They are a dict or tuple of such arrays where ``info.action_space`` is one of spaces.
        """

    def recv(self) -> Batch:
        """Wait for a batch and return it. Without a ``reset`` or ``send`` before it: ``RuntimeError``."""

    def close(self) -> None:
        """End every process and thread, free every buffer. A second call does nothing."""


@runtime_checkable
class CountsFrames(Protocol):
    """An addition to a backend, by choice: it can be asked what its simulators have really done."""

    frames_from: str
    """Who counts, in words."""

    def frames(self) -> NDArray[np.int64] | None:
        """Return the frames of each environment's episode so far, by id, or None if they are not known.

        It may be called after any ``recv``, and counts up to the row that the environment returned last. That of an
        environment without a row in the last batch may be out of date. Frames of the reset itself, such as no-ops, may
        be among them.
        """


class Factory(Protocol):
    """How an adapter is built: a third party writes a class with this constructor, in an importable module."""

    def __call__(self, setup: Setup, **options: OptionValue) -> VectorBackend:
        """Build the environments. Raises what the library raises; the cell's reason then quotes it."""
