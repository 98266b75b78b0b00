"""MuJoCo's tasks: their observations, rewards and ends, for many environments at once.

All constants are read from an environment of Gymnasium's class. Rewards have the same bytes as in that class, because
numpy does the same operations in the same order and precision, for a whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Origin = Any  # an environment of Gymnasium's class. Each class has other attributes.


class Slice(NamedTuple):
    """Neighbouring numbers of one of MuJoCo's fields, flattened: from ``start`` up to ``stop``, or to its end."""

    field: str
    start: int = 0
    stop: int | None = None
    low: float = -inf  # smaller numbers are replaced by this one
    high: float = inf  # larger numbers are replaced by this one


class Bound(NamedTuple):
    """Limits between which all numbers of a part must lie. NaN is never between them."""

    part: Slice
    low: float = -inf
    high: float = inf
    closed: bool = False  # whether the limits themselves count as between
    outside: bool = False  # whether all numbers must lie outside the limits instead


@dataclass
class Seen:
    """A batch after a step, from which rewards are computed. Each array has a row for each environment."""

    actions: NDArray[Any]
    around: Numbers  # the part that the task reads before and after the physics: ``(2, environments, numbers)``
    parts: Mapping[str, Numbers]  # the parts that the task reads only after the physics, by the task's names
    healthy: Numbers  # 1.0 or 0.0
    observations: Numbers  # rewritten if a task observes other numbers than MuJoCo's own
    rewards: Numbers  # the result

    def rows(self, indices: NDArray[np.int64]) -> Seen:
        """Return copies of these rows."""
        actions, around = self.actions.take(indices, 0), self.around.take(indices, 1)
        parts = {name: numbers.take(indices, 0) for name, numbers in self.parts.items()}
        healthy, observations = self.healthy.take(indices), self.observations.take(indices, 0)
        return Seen(actions, around, parts, healthy, observations, np.empty(len(indices)))


Reward = Callable[[Seen], None]  # writes the rewards of a batch
_NOTHING = Slice("qpos", 0, 0)
_X = Slice("qpos", 0, 1)


@dataclass(frozen=True)
class Rules:
    """The rules of a task."""

    row: tuple[Slice, ...]  # the parts of an observation, in order
    reward: Reward
    around: Slice = _NOTHING  # the part that is read both before and after the physics
    after: Mapping[str, Slice] = field(default_factory=dict)  # the parts that are read only after the physics, by name
    healthy: tuple[Bound, ...] = ()
    ends: bool = False  # whether an episode ends when its environment is not healthy


def _constant(number: float) -> Numbers:
    """Return a number as an array: a Python float would double the time of each operation of numpy."""
    return np.array(number, np.float64)


def _squared_cost(weight: float, numbers: NDArray[Any]) -> NDArray[Any]:
    """Return ``weight * numpy.sum(numpy.square(row))`` of each row, in the type of that expression."""
    cost: NDArray[Any] = weight * np.add.reduce(np.square(numbers), axis=1)
    return cost


def _limits_of(pair: tuple[float | None, float | None]) -> tuple[float, float]:
    """Return the two limits of a setting, with infinity in place of None."""
    low, high = pair
    return -inf if low is None else low, inf if high is None else high


def _clipped_cost(weight: float, limits: tuple[float, float]) -> Callable[[Numbers], Numbers]:
    """Return the function ``numpy.clip(_squared_cost(...), *limits)``, in a fifth of ``numpy.clip``'s time."""
    low, high = map(_constant, limits)
    return lambda numbers: np.minimum(np.maximum(_squared_cost(weight, numbers), low), high)


def _turn(function: Callable[[Any, Any], Any], angles: Numbers) -> None:
    """Replace angles by their sines or cosines. The angles must be columns of wider rows.

    numpy computes such columns row by row, as in Gymnasium's class. It may round a contiguous array differently.
    """
    function(angles, angles)


def _lengths(vectors: Numbers) -> Numbers:
    """Return ``numpy.linalg.norm`` of each row: the square root of the row's product with itself."""
    lengths: Numbers = np.sqrt(np.vecdot(vectors, vectors))
    return lengths


def _travel(
    origin: Origin,
    *,
    bonus: float | None = None,
    contact_cost: Callable[[Numbers], Numbers] | None = None,
    masses: Numbers | None = None,
) -> Reward:
    """Return the reward for moving along x: ``forward + healthy - (control + contact)``. A task may lack some terms.

    ``bonus``: the reward for health. ``masses``: of the bodies whose centre of mass counts. None: x is a coordinate.
    """
    control_weight = origin._ctrl_cost_weight
    dt, forward_weight = _constant(origin.dt), _constant(origin._forward_reward_weight)
    bonus_each = None if bonus is None else _constant(bonus)
    total = np.sum(0.0 if masses is None else masses)

    def reward(seen: Seen) -> None:
        around = seen.around
        if masses is not None:
            moments = masses[:, None] * around.reshape(*around.shape[:2], len(masses), 3)
            # Keep all three coordinates, though one is enough: numpy then adds the bodies one by one, as in Gymnasium.
            around = np.add.reduce(moments, axis=2) / total
        gain = (around[1] - around[0])[:, 0] / dt * forward_weight
        cost = _squared_cost(control_weight, seen.parts.get("control", seen.actions))
        if bonus_each is not None:
            gain = gain + seen.healthy * bonus_each
        if contact_cost is not None:
            cost = cost + contact_cost(seen.parts["contact"])
        np.subtract(gain, cost, seen.rewards)

    return reward


def _position_and_velocity(origin: Origin, hidden: int, low: float = -inf, high: float = inf) -> tuple[Slice, Slice]:
    """Return the positions and velocities of a row. A setting may hide the first ``hidden`` positions."""
    excluded = origin._exclude_current_positions_from_observation
    return Slice("qpos", hidden if excluded else 0), Slice("qvel", 0, None, low, high)


def _place(origin: Origin, body: str | int) -> Slice:
    """Return the position of a body, given its name or number."""
    number = origin.data.body(body).id
    return Slice("xpos", 3 * number, 3 * number + 3)


def _walker(origin: Origin) -> Rules:
    height = Bound(Slice("qpos", 1, 2), *origin._healthy_z_range)
    angle = Bound(Slice("qpos", 2, 3), *origin._healthy_angle_range)
    return Rules(
        _position_and_velocity(origin, 1, -10, 10),
        _travel(origin, bonus=origin._healthy_reward),
        _X,
        healthy=(height, angle),
        ends=origin._terminate_when_unhealthy,
    )


def _hopper(origin: Origin) -> Rules:
    as_walker, limits = _walker(origin), origin._healthy_state_range
    state = (Bound(Slice("qpos", 2), *limits), Bound(Slice("qvel"), *limits))
    return replace(as_walker, healthy=(*as_walker.healthy, *state))


def _ant(origin: Origin) -> Rules:
    main = _place(origin, origin._main_body)
    low, high = origin._healthy_z_range
    forces = Slice("cfrc_ext", 0, None, *_limits_of(origin._contact_force_range))
    row: tuple[Slice, ...] = _position_and_velocity(origin, 2)
    if origin._include_cfrc_ext_in_observation:
        row = (*row, forces._replace(start=6))  # forces on body 0, the world, count as cost but are not observed
    contact_cost = _clipped_cost(origin._contact_cost_weight, (-inf, inf))
    return Rules(
        row,
        _travel(origin, bonus=origin._healthy_reward, contact_cost=contact_cost),
        main._replace(stop=main.start + 1),
        {"contact": forces},
        (Bound(Slice("qpos")), Bound(Slice("qvel")), Bound(Slice("qpos", 2, 3), low, high, closed=True)),
        origin._terminate_when_unhealthy,
    )


def _humanoid_row(origin: Origin) -> tuple[Slice, ...]:
    shown = (
        (origin._include_cinert_in_observation, Slice("cinert", 10)),
        (origin._include_cvel_in_observation, Slice("cvel", 6)),
        (origin._include_qfrc_actuator_in_observation, Slice("qfrc_actuator", 6)),
        (origin._include_cfrc_ext_in_observation, Slice("cfrc_ext", 6)),
    )
    # Gymnasium tests these settings with ``is True``, so 1 does not count.
    return (*_position_and_velocity(origin, 2), *(part for setting, part in shown if setting is True))


def _humanoid(origin: Origin) -> Rules:
    reward = _travel(
        origin,
        bonus=origin._healthy_reward,
        contact_cost=_clipped_cost(origin._contact_cost_weight, _limits_of(origin._contact_cost_range)),
        masses=np.array(origin.model.body_mass),
    )
    return Rules(
        _humanoid_row(origin),
        reward,
        Slice("xipos"),
        {"control": Slice("ctrl"), "contact": Slice("cfrc_ext")},
        (Bound(Slice("qpos", 2, 3), *origin._healthy_z_range),),
        origin._terminate_when_unhealthy,
    )


def _humanoid_standup(origin: Origin) -> Rules:
    time_step, one = _constant(origin.model.opt.timestep), _constant(1)
    control_weight = origin._ctrl_cost_weight
    impact_cost = _clipped_cost(origin._impact_cost_weight, _limits_of(origin._impact_cost_range))

    def reward(seen: Seen) -> None:
        up = seen.parts["height"][:, 0] / time_step
        control = _squared_cost(control_weight, seen.parts["control"])
        impact = impact_cost(seen.parts["contact"])
        np.add(up - control - impact, one, seen.rewards)

    after = {"height": Slice("qpos", 2, 3), "control": Slice("ctrl"), "contact": Slice("cfrc_ext")}
    return Rules(_humanoid_row(origin), reward, after=after)


def _inverted_pendulum(_origin: Origin) -> Rules:
    row = (Slice("qpos"), Slice("qvel"))
    upright = Bound(Slice("qpos", 1, 2), -0.2, 0.2, closed=True)
    return Rules(
        row, lambda seen: np.copyto(seen.rewards, seen.healthy), healthy=(*map(Bound, row), upright), ends=True
    )


def _inverted_double_pendulum(origin: Origin) -> Rules:
    alive: float = origin._healthy_reward
    angles, velocities = Slice("qpos", 1), Slice("qvel", 0, None, -10, 10)
    row = (Slice("qpos", 0, 1), angles, angles, velocities, Slice("qfrc_constraint", 0, 1, -10, 10))

    def reward(seen: Seen) -> None:
        rewards, healthy, tips, speeds = seen.rewards, seen.healthy, seen.parts["tip"], seen.parts["velocities"]
        _turn(np.sin, seen.observations[:, 1:3])
        _turn(np.cos, seen.observations[:, 3:5])
        # Compute with numbers, as the class does: a power of an array may have other bytes than a power of a number.
        for index, (x, y, v1, v2) in enumerate(zip(tips[:, 0], tips[:, 2], *speeds.T, strict=True)):
            far = 0.01 * x**2 + (y - 2) ** 2
            fast = 1e-3 * v1**2 + 5e-3 * v2**2
            rewards[index] = alive * healthy[index] - far - fast

    tip = Slice("site_xpos", 0, 3)
    after = {"tip": tip, "velocities": Slice("qvel", 1, 3)}
    fallen = Bound(tip._replace(start=2), high=1.0, closed=True, outside=True)
    return Rules(row, reward, after=after, healthy=(fallen,), ends=True)


def _reacher(origin: Origin) -> Rules:
    angles, tip, target = Slice("qpos", 0, 2), _place(origin, "fingertip"), _place(origin, "target")
    weight, control_weight = _constant(-origin._reward_dist_weight), origin._reward_control_weight

    def reward(seen: Seen) -> None:
        observations, aim = seen.observations, seen.parts["target"]
        _turn(np.cos, observations[:, :2])
        _turn(np.sin, observations[:, 2:4])
        observations[:, -2:] -= aim[:, :2]
        distance = _lengths(seen.parts["tip"] - aim) * weight
        control = _squared_cost(control_weight, seen.actions)
        np.subtract(distance, control, seen.rewards)

    row = (angles, angles, Slice("qpos", 2), Slice("qvel", 0, 2), tip._replace(stop=tip.start + 2))
    return Rules(row, reward, after={"tip": tip, "target": target})


def _pusher(origin: Origin) -> Rules:
    tip, thing, goal = (_place(origin, body) for body in ("tips_arm", "object", "goal"))
    weight, near_weight = _constant(-origin._reward_dist_weight), _constant(-origin._reward_near_weight)
    control_weight = origin._reward_control_weight

    def reward(seen: Seen) -> None:
        position = seen.parts["thing"]
        control = _squared_cost(control_weight, seen.actions)
        distance = _lengths(position - seen.parts["goal"]) * weight
        near = _lengths(position - seen.parts["tip"]) * near_weight
        np.add(distance - control, near, seen.rewards)

    row = (Slice("qpos", 0, 7), Slice("qvel", 0, 7), tip, thing, goal)
    return Rules(row, reward, after={"tip": tip, "thing": thing, "goal": goal})


RULES: Mapping[str, Callable[[Origin], Rules]] = {
    "Ant-v5": _ant,
    "HalfCheetah-v5": lambda origin: Rules(_position_and_velocity(origin, 1), _travel(origin), _X),
    "Hopper-v5": _hopper,
    "Humanoid-v5": _humanoid,
    "HumanoidStandup-v5": _humanoid_standup,
    "InvertedDoublePendulum-v5": _inverted_double_pendulum,
    "InvertedPendulum-v5": _inverted_pendulum,
    "Pusher-v5": _pusher,
    "Reacher-v5": _reacher,
    "Swimmer-v5": lambda origin: Rules(_position_and_velocity(origin, 2), _travel(origin), _X),
    "Walker2d-v5": _walker,
}
