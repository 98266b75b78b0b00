"""MuJoCo's tasks: what each of them shows, what it rewards and when it ends.

All constants are read off an environment of Gymnasium's own class.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends.fast.rewards import (
    Bound,
    Part,
    Rules,
    Travel,
    constant,
    distances,
    each_row,
    limited_cost,
    limits_of,
    squared_cost,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vebench.backends.fast.rewards import Seen

Origin = Any  # an environment of Gymnasium's class: each class has attributes of its own


class Settings:
    """The settings of an environment of Gymnasium's MuJoCo classes, by the names of their arguments."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a setting
        return getattr(self._origin, f"_{name}")


def _travel(origin: Origin, **more: Any) -> Travel:  # noqa: ANN401 - fields of several types
    has = Settings(origin)
    return Travel(float(origin.dt), has.forward_reward_weight, has.ctrl_cost_weight, **more)


def _position_and_velocity(origin: Origin, hidden: int, low: float = -inf, high: float = inf) -> tuple[Part, Part]:
    """Return the parts of a row: the positions, less the ``hidden`` first if so set, and the velocities."""
    excluded = Settings(origin).exclude_current_positions_from_observation
    return Part("qpos", hidden if excluded else 0), Part("qvel", 0, None, low, high)


X = Part("qpos", 0, 1)


def _half_cheetah(origin: Origin) -> Rules:
    """Return the rules of HalfCheetah."""
    return Rules(_position_and_velocity(origin, 1), _travel(origin), X)


def _swimmer(origin: Origin) -> Rules:
    """Return the rules of Swimmer."""
    return Rules(_position_and_velocity(origin, 2), _travel(origin), X)


def walker(origin: Origin) -> Rules:
    """Return the rules of Walker2d."""
    has = Settings(origin)
    return Rules(
        _position_and_velocity(origin, 1, -10, 10),
        _travel(origin, bonus=has.healthy_reward),
        X,
        healthy=(Bound(Part("qpos", 1, 2), *has.healthy_z_range), Bound(Part("qpos", 2, 3), *has.healthy_angle_range)),
        ends=has.terminate_when_unhealthy,
    )


def _hopper(origin: Origin) -> Rules:
    """Return the rules of Hopper."""
    as_walker, limits = walker(origin), Settings(origin).healthy_state_range
    state = (Bound(Part("qpos", 2), *limits), Bound(Part("qvel"), *limits))
    return replace(as_walker, healthy=(*as_walker.healthy, *state))


def _place(origin: Origin, body: str | int) -> Part:
    """Return the part that is the position of a body. Raises ValueError if there is none of this name or number."""
    try:
        number = origin.data.body(body).id
    except (KeyError, IndexError) as error:
        raise ValueError(f"no body {body!r}: {error}") from None
    return Part("xpos", 3 * number, 3 * number + 3)


def _ant(origin: Origin) -> Rules:
    """Return the rules of Ant."""
    has = Settings(origin)
    main = _place(origin, has.main_body)
    x = main._replace(stop=main.start + 1)
    low, high = has.healthy_z_range
    forces = Part("cfrc_ext", 0, None, *limits_of(has.contact_force_range))
    # The world's own forces, those of body 0, count but are not shown.
    shown = (forces._replace(start=6),) if has.include_cfrc_ext_in_observation else ()
    return Rules(
        (*_position_and_velocity(origin, 2), *shown),
        _travel(origin, bonus=has.healthy_reward, contact=has.contact_cost_weight),
        x,
        {"contact": forces},
        (Bound(Part("qpos")), Bound(Part("qvel")), Bound(Part("qpos", 2, 3), low, high, closed=True)),
        has.terminate_when_unhealthy,
    )


def _humanoid_row(origin: Origin) -> tuple[Part, ...]:
    has = Settings(origin)
    shown = (
        (has.include_cinert_in_observation, Part("cinert", 10)),
        (has.include_cvel_in_observation, Part("cvel", 6)),
        (has.include_qfrc_actuator_in_observation, Part("qfrc_actuator", 6)),
        (has.include_cfrc_ext_in_observation, Part("cfrc_ext", 6)),
    )
    # Gymnasium asks whether these settings are True, not whether they are true.
    return (*_position_and_velocity(origin, 2), *(part for setting, part in shown if setting is True))


def humanoid(origin: Origin) -> Rules:
    """Return the rules of Humanoid."""
    has = Settings(origin)
    reward = _travel(
        origin,
        bonus=has.healthy_reward,
        contact=has.contact_cost_weight,
        contact_range=limits_of(has.contact_cost_range),
        masses=np.array(origin.model.body_mass),
    )
    return Rules(
        _humanoid_row(origin),
        reward,
        Part("xipos"),
        {"control": Part("ctrl"), "contact": Part("cfrc_ext")},
        (Bound(Part("qpos", 2, 3), *has.healthy_z_range),),
        has.terminate_when_unhealthy,
    )


def _humanoid_standup(origin: Origin) -> Rules:
    """Return the rules of HumanoidStandup."""
    has = Settings(origin)
    time_step = constant(origin.model.opt.timestep)

    def reward(seen: Seen) -> Callable[[], None]:
        control = squared_cost(has.ctrl_cost_weight, seen.after["control"])
        impact = limited_cost(has.impact_cost_weight, limits_of(has.impact_cost_range), seen.after["contact"])
        height, rewards, one = seen.after["height"][:, 0], seen.rewards, constant(1)

        def write() -> None:
            np.divide(height, time_step, rewards)
            np.subtract(rewards, control(), rewards)
            np.subtract(rewards, impact(), rewards)
            np.add(rewards, one, rewards)

        return write

    after = {"height": Part("qpos", 2, 3), "control": Part("ctrl"), "contact": Part("cfrc_ext")}
    return Rules(_humanoid_row(origin), reward, after=after)


def _inverted_pendulum(_origin: Origin) -> Rules:
    """Return the rules of InvertedPendulum."""
    row = (Part("qpos"), Part("qvel"))
    upright = Bound(Part("qpos", 1, 2), -0.2, 0.2, closed=True)

    def reward(seen: Seen) -> Callable[[], None]:
        return lambda: np.copyto(seen.rewards, seen.healthy)

    return Rules(row, reward, healthy=(*map(Bound, row), upright), ends=True)


def _inverted_double_pendulum(origin: Origin) -> Rules:
    """Return the rules of InvertedDoublePendulum."""
    alive: float = Settings(origin).healthy_reward
    angles = Part("qpos", 1)
    row = (Part("qpos", 0, 1), angles, angles, Part("qvel", 0, None, -10, 10), Part("qfrc_constraint", 0, 1, -10, 10))

    def reward(seen: Seen) -> Callable[[], None]:
        rewards, healthy, tips, velocities = seen.rewards, seen.healthy, seen.after["tip"], seen.after["velocities"]
        turn = each_row(np.sin, seen.observations[:, 1:3]), each_row(np.cos, seen.observations[:, 3:5])

        def write() -> None:
            for part in turn:
                part()
            # With numbers of numpy, as in the class: powers of an array have other bytes than those of a number.
            for index, ((x, _, y), (v1, v2)) in enumerate(zip(tips, velocities, strict=True)):
                distance = 0.01 * x**2 + (y - 2) ** 2
                velocity = 1e-3 * v1**2 + 5e-3 * v2**2
                rewards[index] = alive * healthy[index] - distance - velocity

        return write

    tip = Part("site_xpos", 0, 3)
    after = {"tip": tip, "velocities": Part("qvel", 1, 3)}
    fallen = Bound(tip._replace(start=2), high=1.0, closed=True, outside=True)
    return Rules(row, reward, after=after, healthy=(fallen,), ends=True)


def _reacher(origin: Origin) -> Rules:
    """Return the rules of Reacher."""
    has = Settings(origin)
    angles, tip, target = Part("qpos", 0, 2), _place(origin, "fingertip"), _place(origin, "target")

    def reward(seen: Seen) -> Callable[[], None]:
        rewards, observations, aim = seen.rewards, seen.observations, seen.after["target"][:, :2]
        turn = each_row(np.cos, observations[:, :2]), each_row(np.sin, observations[:, 2:4])
        away = observations[:, -2:]
        distance, weight = distances(seen.after["tip"], seen.after["target"]), constant(-has.reward_dist_weight)
        control = squared_cost(has.reward_control_weight, seen.actions)

        def write() -> None:
            for part in turn:
                part()
            np.subtract(away, aim, away)
            np.multiply(distance(), weight, rewards)
            np.subtract(rewards, control(), rewards)

        return write

    row = (angles, angles, Part("qpos", 2), Part("qvel", 0, 2), tip._replace(stop=tip.start + 2))
    return Rules(row, reward, after={"tip": tip, "target": target})


def _pusher(origin: Origin) -> Rules:
    """Return the rules of Pusher."""
    has = Settings(origin)
    tip, thing, goal = (_place(origin, body) for body in ("tips_arm", "object", "goal"))

    def reward(seen: Seen) -> Callable[[], None]:
        rewards = seen.rewards
        near = distances(seen.after["thing"], seen.after["tip"])
        distance = distances(seen.after["thing"], seen.after["goal"])
        control = squared_cost(has.reward_control_weight, seen.actions)
        weight, near_weight = constant(-has.reward_dist_weight), constant(has.reward_near_weight)

        def write() -> None:
            np.multiply(distance(), weight, rewards)
            np.subtract(rewards, control(), rewards)
            np.subtract(rewards, near() * near_weight, rewards)

        return write

    row = (Part("qpos", 0, 7), Part("qvel", 0, 7), tip, thing, goal)
    return Rules(row, reward, after={"tip": tip, "thing": thing, "goal": goal})


RULES: Mapping[str, Callable[[Any], Rules]] = {
    "Ant-v5": _ant,
    "HalfCheetah-v5": _half_cheetah,
    "Hopper-v5": _hopper,
    "Humanoid-v5": humanoid,
    "HumanoidStandup-v5": _humanoid_standup,
    "InvertedDoublePendulum-v5": _inverted_double_pendulum,
    "InvertedPendulum-v5": _inverted_pendulum,
    "Pusher-v5": _pusher,
    "Reacher-v5": _reacher,
    "Swimmer-v5": _swimmer,
    "Walker2d-v5": walker,
}
