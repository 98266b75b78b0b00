"""How MuJoCo's tasks are declared (``Rules``), and the arithmetic of their rewards, for many environments at a time.

The arithmetic is that of Gymnasium's class, operation by operation, on a whole batch, so that each reward has the same
bytes: also where actions are of ``float32``, in which the class then computes what they cost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray


class Part(NamedTuple):
    """Neighbouring numbers of one of MuJoCo's fields, flattened: from ``start`` up to ``stop``, or to its end.

    Numbers below ``low`` and above ``high`` are shown as these.
    """

    field: str
    start: int = 0
    stop: int | None = None
    low: float = -inf
    high: float = inf


_NOTHING = Part("qpos", 0, 0)


def limits_of(pair: tuple[float | None, float | None]) -> tuple[float, float]:
    """Return a setting's limits for ``numpy.clip``, which takes None for no limit."""
    low, high = pair
    return -inf if low is None else low, inf if high is None else high


class Bound(NamedTuple):
    """Limits between which all numbers of a part must lie, or none of them if they must be ``outside``.

    The limits themselves count as between if it is ``closed``. What is no number never lies between.
    """

    part: Part
    low: float = -inf
    high: float = inf
    closed: bool = False
    outside: bool = False


class Seen(NamedTuple):
    """What the rewards of a batch are made of. Each array has a row for each environment.

    ``around``: the part that the task reads before and after the physics, ``(2, environments, numbers)``. ``after``:
    those that it reads only afterwards, ``(environments, numbers)``, by its names for them. ``healthy``: 1.0 or 0.0.
    ``rewards`` are written; ``observations`` are, where more than MuJoCo's own numbers is shown.
    """

    actions: NDArray[Any]
    around: NDArray[np.float64]
    after: Mapping[str, NDArray[np.float64]]
    healthy: NDArray[np.float64]
    observations: NDArray[np.float64]
    rewards: NDArray[np.float64]


@dataclass(frozen=True)
class Rules:
    """A task.

    - ``row``: the parts of an observation, in order.
    - ``reward``: takes what is seen of a batch; returns what writes its rewards after each step.
    - ``around``: what is read both before and after the physics; ``after``: what is read afterwards, by names.
    - ``healthy``: the bounds that tell whether an environment is healthy; ``ends``: whether its episode ends if not.
    """

    row: tuple[Part, ...]
    reward: Callable[[Seen], Callable[[], None]]
    around: Part = _NOTHING
    after: Mapping[str, Part] = field(default_factory=dict)
    healthy: tuple[Bound, ...] = ()
    ends: bool = False

    @property
    def contacts(self) -> bool:
        """Whether forces of contacts are read, which ``mj_rnePostConstraint`` computes."""
        parts = (*self.row, *self.after.values())
        return any(part.field in {"cacc", "cfrc_int", "cfrc_ext"} for part in parts)


def constant(number: float) -> NDArray[np.float64]:
    """Return a number as numpy takes it at once: with one of Python's each operation would take twice as long."""
    return np.array(number, np.float64)


def squared_cost(weight: float, numbers: NDArray[Any]) -> Callable[[], NDArray[Any]]:
    """Return what computes ``weight * numpy.sum(numpy.square(...))`` of each row, in the type of the numbers."""
    squares, sums = np.empty_like(numbers), np.empty(len(numbers), numbers.dtype)
    cost = np.empty(len(numbers), np.result_type(weight, sums))
    factor = np.array(weight, cost.dtype)

    def compute() -> NDArray[Any]:
        np.square(numbers, squares)
        np.add.reduce(squares, axis=1, out=sums)
        np.multiply(factor, sums, cost)
        return cost

    return compute


def limited_cost(
    weight: float, limits: tuple[float, float], numbers: NDArray[np.float64]
) -> Callable[[], NDArray[np.float64]]:
    """Return what computes ``squared_cost`` between limits."""
    compute, (low, high) = squared_cost(weight, numbers), map(constant, limits)

    def compute_limited() -> NDArray[np.float64]:
        cost = compute()
        # numpy.clip does the same and takes five times as long.
        np.maximum(cost, low, out=cost)
        np.minimum(cost, high, out=cost)
        return cost

    return compute_limited


def _centre_x(masses: NDArray[np.float64], positions: NDArray[np.float64]) -> Callable[[], NDArray[np.float64]]:
    """Return what computes x of the centre of mass of bodies, before and after: ``(2, environments)``."""
    weights, total = masses[:, None], np.sum(masses)
    positions = positions.reshape(*positions.shape[:2], len(masses), 3)
    moments = np.empty_like(positions)
    # All three coordinates, though x is enough: so numpy adds the bodies up one after another, as Gymnasium's sum does.
    centres = np.empty((*positions.shape[:2], 3))
    x = centres[..., 0]

    def compute() -> NDArray[np.float64]:
        np.multiply(weights, positions, moments)
        np.add.reduce(moments, axis=2, out=centres)
        np.divide(x, total, x)
        return x

    return compute


def each_row(function: Callable[[Any, Any], Any], rows: NDArray[np.float64]) -> Callable[[], None]:
    """Return what applies a function to each row by itself.

    On a whole batch numpy may take another way, with vectors of another length, that rounds otherwise.
    """
    views = list(rows)

    def apply() -> None:
        for view in views:
            function(view, view)

    return apply


def distances(start: NDArray[np.float64], end: NDArray[np.float64]) -> Callable[[], NDArray[np.float64]]:
    """Return what computes ``numpy.linalg.norm(start - end)`` of each row: the root of its product with itself."""
    vectors, lengths = np.empty_like(start), np.empty(len(start))
    views = list(vectors)

    def compute() -> NDArray[np.float64]:
        np.subtract(start, end, vectors)
        lengths[:] = [view.dot(view) for view in views]
        np.sqrt(lengths, lengths)
        return lengths

    return compute


@dataclass(frozen=True)
class Travel:
    """The reward for moving along x: ``forward + healthy - (control + contact)``, as far as a task has them.

    ``forward``, ``control``, ``bonus``, ``contact`` are Gymnasium's weights, None for what the task has not.
    ``contact_range``: the limits of what contacts cost. ``masses``: of the bodies whose centre of mass moves; None if
    x is a coordinate.
    """

    dt: float
    forward: float
    control: float
    bonus: float | None = None
    contact: float | None = None
    contact_range: tuple[float, float] = (-inf, inf)
    masses: NDArray[np.float64] | None = None

    def __call__(self, seen: Seen) -> Callable[[], None]:
        """Return what writes the rewards of a batch."""
        rewards, healthy, dt, forward = seen.rewards, seen.healthy, constant(self.dt), constant(self.forward)
        bonus = None if self.bonus is None else constant(self.bonus)
        survival = np.empty_like(rewards)
        before, after = seen.around[..., 0]
        move = None if self.masses is None else _centre_x(self.masses, seen.around)
        control = squared_cost(self.control, seen.after.get("control", seen.actions))
        contact = None
        if self.contact is not None:
            contact = limited_cost(self.contact, self.contact_range, seen.after["contact"])

        def write() -> None:
            start, end = (before, after) if move is None else move()
            np.subtract(end, start, rewards)
            np.divide(rewards, dt, rewards)
            np.multiply(rewards, forward, rewards)
            if bonus is not None:
                np.multiply(healthy, bonus, survival)
                np.add(rewards, survival, rewards)
            cost = control()
            if contact is not None:
                cost = np.add(cost, contact())
            np.subtract(rewards, cost, rewards)

        return write
