"""What each of MuJoCo's tasks shows, what it rewards and when it ends, for many environments at a time.

Constants are read off an environment of Gymnasium's own class. The arithmetic is that of the class, operation by
operation, on a whole batch, so that each reward has the same bytes: also where actions are of ``float32``, in which the
class then computes what they cost.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
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


class Bound(NamedTuple):
    """Limits between which all numbers of a part must lie; the limits themselves are allowed if it is ``closed``."""

    part: Part
    low: float = -inf
    high: float = inf
    closed: bool = False


class Seen(NamedTuple):
    """What the rewards of a batch are made of. Each array has a row for each environment.

    ``before`` and ``after``: the parts that the task asked for by these names, ``(environments, numbers)``.
    ``healthy``: 1.0 or 0.0. ``rewards`` are written.
    """

    actions: NDArray[Any]
    before: Mapping[str, NDArray[np.float64]]
    after: Mapping[str, NDArray[np.float64]]
    healthy: NDArray[np.float64]
    rewards: NDArray[np.float64]


@dataclass(frozen=True)
class Rules:
    """A task.

    - ``row``: the parts of an observation, in order.
    - ``before``, ``after``: what else is read before and after the physics, by names for ``reward``.
    - ``healthy``: the bounds that tell whether an environment is healthy; ``ends``: whether its episode ends if not.
    - ``reward``: takes what is seen of a batch; returns what writes its rewards after each step.
    """

    row: tuple[Part, ...]
    reward: Callable[[Seen], Callable[[], None]]
    before: Mapping[str, Part] = field(default_factory=dict)
    after: Mapping[str, Part] = field(default_factory=dict)
    healthy: tuple[Bound, ...] = ()
    ends: bool = False

    @property
    def contacts(self) -> bool:
        """Whether forces of contacts are read, which ``mj_rnePostConstraint`` computes."""
        parts = (*self.row, *self.after.values(), *(bound.part for bound in self.healthy))
        return any(part.field in {"cacc", "cfrc_int", "cfrc_ext"} for part in parts)


class Settings:
    """The settings of an environment of Gymnasium's MuJoCo classes, by the names of their arguments."""

    def __init__(self, origin: Any) -> None:  # noqa: ANN401 - the classes have settings of their own
        self._origin = origin

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a setting
        return getattr(self._origin, f"_{name}")


def _cost(weight: float, numbers: NDArray[Any]) -> Callable[[], NDArray[Any]]:
    """Return what computes ``weight * numpy.sum(numpy.square(...))`` of each row, in the type of the numbers."""
    squares, sums = np.empty_like(numbers), np.empty(len(numbers), numbers.dtype)
    cost = np.empty(len(numbers), np.result_type(weight, sums))

    def compute() -> NDArray[Any]:
        np.square(numbers, squares)
        np.add.reduce(squares, 1, None, sums)
        np.multiply(weight, sums, cost)
        return cost

    return compute


@dataclass(frozen=True)
class Travel:
    """The reward for moving along x: ``forward + healthy - (control + contact)``, as far as a task has them.

    ``weights``: of a setting or 0-d arrays. ``masses``: of the bodies whose centre of mass moves; None if ``x`` is a
    coordinate. ``contact``: what contacts cost, and the limits of that, None for none.
    """

    dt: float
    forward: float
    control: float
    bonus: float | None = None
    contact: float | None = None
    contact_range: tuple[float, float] | None = None
    masses: NDArray[np.float64] | None = None

    def __call__(self, seen: Seen) -> Callable[[], None]:
        """Return what writes the rewards of a batch."""
        rewards, healthy, bonus = seen.rewards, seen.healthy, self.bonus
        before, after = self._x(seen.before["x"]), self._x(seen.after["x"])
        dt, forward = np.float64(self.dt), np.float64(self.forward)
        survival = np.empty_like(rewards)
        costs = _cost(self.control, seen.after.get("control", seen.actions))
        contacts = None if self.contact is None else _cost(self.contact, seen.after["contact"])

        def write() -> None:
            np.subtract(after(), before(), rewards)
            np.divide(rewards, dt, rewards)
            np.multiply(rewards, forward, rewards)
            if bonus is not None:
                np.multiply(healthy, bonus, survival)
                np.add(rewards, survival, rewards)
            cost = costs()
            if contacts is not None:
                cost = np.add(cost, self._limited(contacts()))
            np.subtract(rewards, cost, rewards)

        return write

    def _x(self, parts: NDArray[np.float64]) -> Callable[[], NDArray[np.float64]]:
        if self.masses is None:
            x = parts[:, 0]
            return lambda: x
        masses, total = self.masses[:, None], np.sum(self.masses)
        positions = parts.reshape(len(parts), len(masses), 3)
        moments = np.empty_like(positions)

        def centre() -> NDArray[np.float64]:
            np.multiply(masses, positions, moments)
            # All three coordinates, though x is enough: so the bodies are added up in the order of Gymnasium's sum.
            summed: NDArray[np.float64] = np.add.reduce(moments, 1)[:, 0]
            return np.divide(summed, total, summed)

        return centre

    def _limited(self, cost: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.contact_range is not None:
            np.clip(cost, *self.contact_range, out=cost)
        return cost


def _travel(origin: Any, **more: Any) -> Travel:  # noqa: ANN401 - what an environment has
    has = Settings(origin)
    return Travel(float(origin.dt), has.forward_reward_weight, has.ctrl_cost_weight, **more)


def _position_and_velocity(origin: Any, hidden: int, low: float = -inf, high: float = inf) -> tuple[Part, Part]:  # noqa: ANN401
    """Return the parts of a row: the positions, less the ``hidden`` first if so set, and the velocities."""
    excluded = Settings(origin).exclude_current_positions_from_observation
    return Part("qpos", hidden if excluded else 0), Part("qvel", 0, None, low, high)


X = Part("qpos", 0, 1)


def half_cheetah(origin: Any) -> Rules:
    """Return the rules of HalfCheetah."""
    return Rules(_position_and_velocity(origin, 1), _travel(origin), {"x": X}, {"x": X})


def swimmer(origin: Any) -> Rules:
    """Return the rules of Swimmer."""
    return Rules(_position_and_velocity(origin, 2), _travel(origin), {"x": X}, {"x": X})


def walker(origin: Any) -> Rules:
    """Return the rules of Walker2d."""
    has = Settings(origin)
    return Rules(
        _position_and_velocity(origin, 1, -10, 10),
        _travel(origin, bonus=has.healthy_reward),
        {"x": X},
        {"x": X},
        (Bound(Part("qpos", 1, 2), *has.healthy_z_range), Bound(Part("qpos", 2, 3), *has.healthy_angle_range)),
        has.terminate_when_unhealthy,
    )


def hopper(origin: Any) -> Rules:
    """Return the rules of Hopper."""
    as_walker, limits = walker(origin), Settings(origin).healthy_state_range
    state = (Bound(Part("qpos", 2), *limits), Bound(Part("qvel"), *limits))
    return replace(as_walker, healthy=(*as_walker.healthy, *state))


def ant(origin: Any) -> Rules:
    """Return the rules of Ant."""
    has = Settings(origin)
    body = origin.data.body(has.main_body).id
    x = Part("xpos", 3 * body, 3 * body + 1)
    forces = Part("cfrc_ext", 0, None, *has.contact_force_range)
    # The world's own forces, those of body 0, count but are not shown.
    shown = (forces._replace(start=6),) if has.include_cfrc_ext_in_observation else ()
    return Rules(
        (*_position_and_velocity(origin, 2), *shown),
        _travel(origin, bonus=has.healthy_reward, contact=has.contact_cost_weight),
        {"x": x},
        {"x": x, "contact": forces},
        (Bound(Part("qpos")), Bound(Part("qvel")), Bound(Part("qpos", 2, 3), *has.healthy_z_range, closed=True)),
        has.terminate_when_unhealthy,
    )


def _humanoid_row(origin: Any) -> tuple[Part, ...]:
    has = Settings(origin)
    shown = (
        (has.include_cinert_in_observation, Part("cinert", 10)),
        (has.include_cvel_in_observation, Part("cvel", 6)),
        (has.include_qfrc_actuator_in_observation, Part("qfrc_actuator", 6)),
        (has.include_cfrc_ext_in_observation, Part("cfrc_ext", 6)),
    )
    # Gymnasium asks whether these settings are True, not whether they are true.
    return (*_position_and_velocity(origin, 2), *(part for setting, part in shown if setting is True))


def humanoid(origin: Any) -> Rules:
    """Return the rules of Humanoid."""
    has = Settings(origin)
    reward = _travel(
        origin,
        bonus=has.healthy_reward,
        contact=has.contact_cost_weight,
        contact_range=has.contact_cost_range,
        masses=np.array(origin.model.body_mass),
    )
    return Rules(
        _humanoid_row(origin),
        reward,
        {"x": Part("xipos")},
        {"x": Part("xipos"), "control": Part("ctrl"), "contact": Part("cfrc_ext")},
        (Bound(Part("qpos", 2, 3), *has.healthy_z_range),),
        has.terminate_when_unhealthy,
    )


def humanoid_standup(origin: Any) -> Rules:
    """Return the rules of HumanoidStandup."""
    has = Settings(origin)
    time_step = float(origin.model.opt.timestep)

    def reward(seen: Seen) -> Callable[[], None]:
        control = _cost(has.ctrl_cost_weight, seen.after["control"])
        impact = _cost(has.impact_cost_weight, seen.after["contact"])
        height, rewards = seen.after["height"][:, 0], seen.rewards

        def write() -> None:
            np.divide(height, time_step, rewards)
            np.subtract(rewards, control(), rewards)
            np.subtract(rewards, np.clip(impact(), *has.impact_cost_range), rewards)
            np.add(rewards, 1, rewards)

        return write

    after = {"height": Part("qpos", 2, 3), "control": Part("ctrl"), "contact": Part("cfrc_ext")}
    return Rules(_humanoid_row(origin), reward, after=after)


RULES: Mapping[str, Callable[[Any], Rules]] = {
    "Ant-v5": ant,
    "HalfCheetah-v5": half_cheetah,
    "Hopper-v5": hopper,
    "Humanoid-v5": humanoid,
    "HumanoidStandup-v5": humanoid_standup,
    "Swimmer-v5": swimmer,
    "Walker2d-v5": walker,
}
