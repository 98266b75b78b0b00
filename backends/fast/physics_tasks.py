"""MuJoCo's tasks: what each of them shows, rewards and tells in infos, and when it ends, for many environments at once.

All constants are read off an environment of Gymnasium's own class. The arithmetic of rewards is that of the class,
operation by operation, on a whole batch, so that each reward has the same bytes: also where actions are of ``float32``,
in which the class then computes what they cost.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray


class Slice(NamedTuple):
    """Neighbouring numbers of one of MuJoCo's fields, flattened: from ``start`` up to ``stop``, or to its end.

    Numbers below ``low`` and above ``high`` are shown as these.
    """

    field: str
    start: int = 0
    stop: int | None = None
    low: float = -inf
    high: float = inf


_NOTHING = Slice("qpos", 0, 0)


def _limits_of(pair: tuple[float | None, float | None]) -> tuple[float, float]:
    """Return a setting's limits for ``numpy.clip``, which takes None for no limit."""
    low, high = pair
    return -inf if low is None else low, inf if high is None else high


class Bound(NamedTuple):
    """Limits between which all numbers of a part must lie, or none of them if they must be ``outside``.

    The limits themselves count as between if it is ``closed``. What is no number never lies between.
    """

    part: Slice
    low: float = -inf
    high: float = inf
    closed: bool = False
    outside: bool = False


class Info(NamedTuple):
    """What infos tell of the physics, at resets too.

    ``told`` takes that part of all environments, ``(environments, numbers)``; it returns a new array, with a row for
    each.
    """

    part: Slice
    told: Callable[[NDArray[np.float64]], NDArray[np.float64]]


class Seen(NamedTuple):
    """What the rewards of a batch are made of. Each array has a row for each environment.

    ``around``: the part that the task reads before and after the physics, ``(2, environments, numbers)``. ``after``:
    those that it reads only afterwards, ``(environments, numbers)``, by its names for them. ``healthy``: 1.0 or 0.0.
    ``rewards`` are written; ``observations`` are, where more than MuJoCo's own numbers is shown. ``told`` is
    filled with what returns a new array of what a reward is made of, by the names that infos have for it.
    """

    actions: NDArray[Any]
    around: NDArray[np.float64]
    after: Mapping[str, NDArray[np.float64]]
    healthy: NDArray[np.float64]
    observations: NDArray[np.float64]
    rewards: NDArray[np.float64]
    told: dict[str, Callable[[], NDArray[Any]]]

    def empty(self, count: int) -> Seen:
        """Return arrays for so many environments, of zeros."""
        around = np.zeros((2, count, self.around.shape[2]))
        after = {name: np.zeros((count, numbers.shape[1])) for name, numbers in self.after.items()}
        actions, observations = (np.zeros((count, of.shape[1]), of.dtype) for of in (self.actions, self.observations))
        return Seen(actions, around, after, np.zeros(count), observations, np.zeros(count), {})

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Return what rewards are made of: ``(..., environments, numbers)`` each."""
        return (self.actions, self.around, *self.after.values(), self.healthy[:, None], self.observations)


@dataclass(frozen=True)
class Rules:
    """A task.

    - ``row``: the parts of an observation, in order.
    - ``reward``: takes what is seen of a batch; returns what writes its rewards after each step.
    - ``around``: what is read both before and after the physics; ``after``: what is read afterwards, by names.
    - ``healthy``: the bounds within which an environment is healthy; ``ends``: whether its episode ends if not.
    - ``infos``: what infos tell besides parts of the reward, by names.
    """

    row: tuple[Slice, ...]
    reward: Callable[[Seen], Callable[[], None]]
    around: Slice = _NOTHING
    after: Mapping[str, Slice] = field(default_factory=dict)
    healthy: tuple[Bound, ...] = ()
    ends: bool = False
    infos: Mapping[str, Info] = field(default_factory=dict)

    def rewarding(self, seen: Seen) -> Callable[[], None]:
        """Return what writes the rewards of a batch after each step. Infos tell what was seen under their names."""
        for name, info in self.infos.items():
            if name in seen.after:
                seen.told[name] = partial(info.told, seen.after[name])
        return self.reward(seen)


def _constant(number: float) -> NDArray[np.float64]:
    """Return a number as numpy takes it at once: with one of Python's each operation would take twice as long."""
    return np.array(number, np.float64)


def _squared_cost(weight: float, numbers: NDArray[Any]) -> tuple[NDArray[Any], Callable[[], None]]:
    """Return an array of what ``weight * numpy.sum(numpy.square(...))`` of each row is, and what computes it.

    It has the type that the numbers have.
    """
    squares, sums = np.empty_like(numbers), np.empty(len(numbers), numbers.dtype)
    cost = np.empty(len(numbers), np.result_type(weight, sums))
    factor = np.array(weight, cost.dtype)

    def compute() -> None:
        np.square(numbers, squares)
        np.add.reduce(squares, axis=1, out=sums)
        np.multiply(factor, sums, cost)

    return cost, compute


def _limited_cost(
    weight: float, limits: tuple[float, float], numbers: NDArray[np.float64]
) -> tuple[NDArray[np.float64], Callable[[], None]]:
    """Return what ``_squared_cost`` does, between limits."""
    (cost, compute), (low, high) = _squared_cost(weight, numbers), map(_constant, limits)

    def compute_limited() -> None:
        compute()
        # numpy.clip does the same and takes five times as long.
        np.maximum(cost, low, out=cost)
        np.minimum(cost, high, out=cost)

    return cost, compute_limited


def _centres(
    masses: NDArray[np.float64], positions: NDArray[np.float64]
) -> tuple[NDArray[np.float64], Callable[[], None]]:
    """Return an array of x and y of the bodies' centre of mass, ``(2, environments, 2)``, and what computes it."""
    weights, total = masses[:, None], np.sum(masses)
    positions = positions.reshape(*positions.shape[:2], len(masses), 3)
    moments = np.empty_like(positions)
    # All three coordinates, though two are enough: so numpy adds the bodies up one after another, as Gymnasium does.
    centres = np.empty((*positions.shape[:2], 3))

    def compute() -> None:
        np.multiply(weights, positions, moments)
        np.add.reduce(moments, axis=2, out=centres)
        np.divide(centres, total, centres)

    return centres[..., :2], compute


def _each_row(function: Callable[[Any, Any], Any], rows: NDArray[np.float64]) -> Callable[[], None]:
    """Return what applies a function to each row by itself: on a whole batch numpy may round otherwise."""
    views = list(rows)

    def apply() -> None:
        for view in views:
            function(view, view)

    return apply


def _lengths(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``numpy.linalg.norm`` of each row: the root of its product with itself."""
    lengths: NDArray[np.float64] = np.sqrt(np.vecdot(vectors, vectors))
    return lengths


@dataclass(frozen=True)
class _Travel:
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
        rewards, healthy, dt, weight = seen.rewards, seen.healthy, _constant(self.dt), _constant(self.forward)
        (before, after), move = (seen.around, None) if self.masses is None else _centres(self.masses, seen.around)
        velocity, forward = np.empty_like(after), np.empty_like(rewards)
        speed = velocity[:, 0]
        control, pay_control = _squared_cost(self.control, seen.after.get("control", seen.actions))
        seen.told.update({f"{axis}_velocity": along.copy for axis, along in zip("xy", velocity.T, strict=False)})
        seen.told.update(reward_forward=forward.copy, reward_ctrl=partial(np.negative, control))
        bonus = None if self.bonus is None else _constant(self.bonus)
        survival = np.zeros_like(rewards)
        if self.bonus is not None:
            seen.told.update(reward_survive=partial(survival.astype, np.asarray(self.bonus).dtype))
        contact = None
        if self.contact is not None:
            contact, pay_contact = _limited_cost(self.contact, self.contact_range, seen.after["contact"])
            seen.told.update(reward_contact=partial(np.negative, contact))

        def write() -> None:
            if move is not None:
                move()
            np.subtract(after, before, velocity)
            np.divide(velocity, dt, velocity)
            np.multiply(speed, weight, forward)
            gain = forward
            if bonus is not None:
                np.multiply(healthy, bonus, survival)
                gain = np.add(forward, survival, rewards)
            pay_control()
            cost = control
            if contact is not None:
                pay_contact()
                cost = np.add(control, contact)
            np.subtract(gain, cost, rewards)

        return write


_Origin = Any  # an environment of Gymnasium's class: each class has attributes of its own


class _Settings:
    """The settings of an environment of Gymnasium's MuJoCo classes, by the names of their arguments."""

    def __init__(self, origin: _Origin) -> None:
        self._origin = origin

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a setting
        return getattr(self._origin, f"_{name}")


def _travel(origin: _Origin, **more: Any) -> _Travel:  # noqa: ANN401 - fields of several types
    has = _Settings(origin)
    return _Travel(float(origin.dt), has.forward_reward_weight, has.ctrl_cost_weight, **more)


def _position_and_velocity(origin: _Origin, hidden: int, low: float = -inf, high: float = inf) -> tuple[Slice, Slice]:
    """Return the parts of a row: the positions, less the ``hidden`` first if so set, and the velocities."""
    excluded = _Settings(origin).exclude_current_positions_from_observation
    return Slice("qpos", hidden if excluded else 0), Slice("qvel", 0, None, low, high)


_X, _Y, _XY = Slice("qpos", 0, 1), Slice("qpos", 1, 2), Slice("qpos", 0, 2)


def _number(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    return numbers[:, 0].copy()


_X_INFO: Mapping[str, Info] = {"x_position": Info(_X, _number)}
_XY_INFO: Mapping[str, Info] = {**_X_INFO, "y_position": Info(_Y, _number)}
_DISTANCE: Mapping[str, Info] = {"distance_from_origin": Info(_XY, _lengths)}
_TENDONS: Mapping[str, Info] = {
    "tendon_length": Info(Slice("ten_length"), np.copy),
    "tendon_velocity": Info(Slice("ten_velocity"), np.copy),
}


def _z_distance(origin: _Origin, at: int) -> Mapping[str, Info]:
    start = origin.init_qpos[at]
    return {"z_distance_from_origin": Info(Slice("qpos", at, at + 1), lambda numbers: numbers[:, 0] - start)}


def _half_cheetah(origin: _Origin) -> Rules:
    return Rules(_position_and_velocity(origin, 1), _travel(origin), _X, infos=_X_INFO)


def _swimmer(origin: _Origin) -> Rules:
    return Rules(_position_and_velocity(origin, 2), _travel(origin), _XY, infos={**_XY_INFO, **_DISTANCE})


def _walker(origin: _Origin) -> Rules:
    has = _Settings(origin)
    height, angle = (
        Bound(Slice("qpos", 1, 2), *has.healthy_z_range),
        Bound(Slice("qpos", 2, 3), *has.healthy_angle_range),
    )
    return Rules(
        _position_and_velocity(origin, 1, -10, 10),
        _travel(origin, bonus=has.healthy_reward),
        _X,
        healthy=(height, angle),
        ends=has.terminate_when_unhealthy,
        infos={**_X_INFO, **_z_distance(origin, 1)},
    )


def _hopper(origin: _Origin) -> Rules:
    as_walker, limits = _walker(origin), _Settings(origin).healthy_state_range
    state = (Bound(Slice("qpos", 2), *limits), Bound(Slice("qvel"), *limits))
    return replace(as_walker, healthy=(*as_walker.healthy, *state))


def _place(origin: _Origin, body: str | int) -> Slice:
    """Return the part that is the position of a body, given its name or number."""
    number = origin.data.body(body).id
    return Slice("xpos", 3 * number, 3 * number + 3)


def _ant(origin: _Origin) -> Rules:
    has = _Settings(origin)
    main = _place(origin, has.main_body)
    low, high = has.healthy_z_range
    forces = Slice("cfrc_ext", 0, None, *_limits_of(has.contact_force_range))
    # The world's own forces, those of body 0, count but are not shown.
    shown = (forces._replace(start=6),) if has.include_cfrc_ext_in_observation else ()
    return Rules(
        (*_position_and_velocity(origin, 2), *shown),
        _travel(origin, bonus=has.healthy_reward, contact=has.contact_cost_weight),
        main._replace(stop=main.start + 2),
        {"contact": forces},
        (Bound(Slice("qpos")), Bound(Slice("qvel")), Bound(Slice("qpos", 2, 3), low, high, closed=True)),
        has.terminate_when_unhealthy,
        {**_XY_INFO, **_DISTANCE},
    )


def _humanoid_row(origin: _Origin) -> tuple[Slice, ...]:
    has = _Settings(origin)
    shown = (
        (has.include_cinert_in_observation, Slice("cinert", 10)),
        (has.include_cvel_in_observation, Slice("cvel", 6)),
        (has.include_qfrc_actuator_in_observation, Slice("qfrc_actuator", 6)),
        (has.include_cfrc_ext_in_observation, Slice("cfrc_ext", 6)),
    )
    # Gymnasium asks whether these settings are True, not whether they are true.
    return (*_position_and_velocity(origin, 2), *(part for setting, part in shown if setting is True))


def _humanoid(origin: _Origin) -> Rules:
    has = _Settings(origin)
    reward = _travel(
        origin,
        bonus=has.healthy_reward,
        contact=has.contact_cost_weight,
        contact_range=_limits_of(has.contact_cost_range),
        masses=np.array(origin.model.body_mass),
    )
    return Rules(
        _humanoid_row(origin),
        reward,
        Slice("xipos"),
        {"control": Slice("ctrl"), "contact": Slice("cfrc_ext")},
        (Bound(Slice("qpos", 2, 3), *has.healthy_z_range),),
        has.terminate_when_unhealthy,
        {**_XY_INFO, **_TENDONS, **_DISTANCE},
    )


def _humanoid_standup(origin: _Origin) -> Rules:
    has = _Settings(origin)
    time_step = _constant(origin.model.opt.timestep)

    def reward(seen: Seen) -> Callable[[], None]:
        control, pay_control = _squared_cost(has.ctrl_cost_weight, seen.after["control"])
        limits = _limits_of(has.impact_cost_range)
        impact, pay_impact = _limited_cost(has.impact_cost_weight, limits, seen.after["contact"])
        height, rewards, one = seen.after["height"][:, 0], seen.rewards, _constant(1)
        up = np.empty_like(rewards)
        minus = {"reward_quadctrl": control, "reward_impact": impact}
        seen.told.update(reward_linup=up.copy, **{name: partial(np.negative, cost) for name, cost in minus.items()})

        def write() -> None:
            pay_control()
            pay_impact()
            np.divide(height, time_step, up)
            np.subtract(up, control, rewards)
            np.subtract(rewards, impact, rewards)
            np.add(rewards, one, rewards)

        return write

    after = {"height": Slice("qpos", 2, 3), "control": Slice("ctrl"), "contact": Slice("cfrc_ext")}
    infos = {**_XY_INFO, **_z_distance(origin, 2), **_TENDONS}
    return Rules(_humanoid_row(origin), reward, after=after, infos=infos)


def _inverted_pendulum(_origin: _Origin) -> Rules:
    row = (Slice("qpos"), Slice("qvel"))
    upright = Bound(Slice("qpos", 1, 2), -0.2, 0.2, closed=True)

    def reward(seen: Seen) -> Callable[[], None]:
        seen.told.update(reward_survive=partial(seen.healthy.astype, np.int64))
        return lambda: np.copyto(seen.rewards, seen.healthy)

    return Rules(row, reward, healthy=(*map(Bound, row), upright), ends=True)


def _inverted_double_pendulum(origin: _Origin) -> Rules:
    alive: float = _Settings(origin).healthy_reward
    angles, speeds = Slice("qpos", 1), Slice("qvel", 0, None, -10, 10)
    row = (Slice("qpos", 0, 1), angles, angles, speeds, Slice("qfrc_constraint", 0, 1, -10, 10))

    def reward(seen: Seen) -> Callable[[], None]:
        rewards, healthy, tips, speeds = seen.rewards, seen.healthy, seen.after["tip"], seen.after["velocities"]
        turn = _each_row(np.sin, seen.observations[:, 1:3]), _each_row(np.cos, seen.observations[:, 3:5])
        numbers = tips[:, 0], tips[:, 2], *speeds.T
        distance, velocity = np.empty_like(rewards), np.empty_like(rewards)
        seen.told.update(reward_survive=lambda: (healthy * alive).astype(np.asarray(alive).dtype))
        seen.told.update(distance_penalty=partial(np.negative, distance))
        seen.told.update(velocity_penalty=partial(np.negative, velocity))

        def write() -> None:
            for part in turn:
                part()
            # With numbers of numpy, as in the class: powers of an array have other bytes than those of a number.
            for index, (x, y, v1, v2) in enumerate(zip(*numbers, strict=True)):
                distance[index] = far = 0.01 * x**2 + (y - 2) ** 2
                velocity[index] = fast = 1e-3 * v1**2 + 5e-3 * v2**2
                rewards[index] = alive * healthy[index] - far - fast

        return write

    tip = Slice("site_xpos", 0, 3)
    after = {"tip": tip, "velocities": Slice("qvel", 1, 3)}
    fallen = Bound(tip._replace(start=2), high=1.0, closed=True, outside=True)
    return Rules(row, reward, after=after, healthy=(fallen,), ends=True)


def _reacher(origin: _Origin) -> Rules:
    has = _Settings(origin)
    angles, tip, target = Slice("qpos", 0, 2), _place(origin, "fingertip"), _place(origin, "target")

    def reward(seen: Seen) -> Callable[[], None]:
        rewards, observations, aim = seen.rewards, seen.observations, seen.after["target"][:, :2]
        turn = _each_row(np.cos, observations[:, :2]), _each_row(np.sin, observations[:, 2:4])
        away = observations[:, -2:]
        distance, weight = np.empty_like(rewards), _constant(-has.reward_dist_weight)
        control, pay_control = _squared_cost(has.reward_control_weight, seen.actions)
        seen.told.update(reward_dist=distance.copy, reward_ctrl=partial(np.negative, control))

        def write() -> None:
            for part in turn:
                part()
            np.subtract(away, aim, away)
            np.multiply(_lengths(seen.after["tip"] - seen.after["target"]), weight, distance)
            pay_control()
            np.subtract(distance, control, rewards)

        return write

    row = (angles, angles, Slice("qpos", 2), Slice("qvel", 0, 2), tip._replace(stop=tip.start + 2))
    return Rules(row, reward, after={"tip": tip, "target": target})


def _pusher(origin: _Origin) -> Rules:
    has = _Settings(origin)
    tip, thing, goal = (_place(origin, body) for body in ("tips_arm", "object", "goal"))

    def reward(seen: Seen) -> Callable[[], None]:
        rewards, (at_tip, at_thing, at_goal) = seen.rewards, (seen.after[name] for name in ("tip", "thing", "goal"))
        control, pay_control = _squared_cost(has.reward_control_weight, seen.actions)
        weight, near_weight = _constant(-has.reward_dist_weight), _constant(-has.reward_near_weight)
        distance, near = np.empty_like(rewards), np.empty_like(rewards)
        seen.told.update(reward_dist=distance.copy, reward_ctrl=partial(np.negative, control), reward_near=near.copy)

        def write() -> None:
            pay_control()
            np.multiply(_lengths(at_thing - at_goal), weight, distance)
            np.multiply(_lengths(at_thing - at_tip), near_weight, near)
            np.subtract(distance, control, rewards)
            np.add(rewards, near, rewards)

        return write

    row = (Slice("qpos", 0, 7), Slice("qvel", 0, 7), tip, thing, goal)
    return Rules(row, reward, after={"tip": tip, "thing": thing, "goal": goal})


RULES: Mapping[str, Callable[[_Origin], Rules]] = {
    "Ant-v5": _ant,
    "HalfCheetah-v5": _half_cheetah,
    "Hopper-v5": _hopper,
    "Humanoid-v5": _humanoid,
    "HumanoidStandup-v5": _humanoid_standup,
    "InvertedDoublePendulum-v5": _inverted_double_pendulum,
    "InvertedPendulum-v5": _inverted_pendulum,
    "Pusher-v5": _pusher,
    "Reacher-v5": _reacher,
    "Swimmer-v5": _swimmer,
    "Walker2d-v5": _walker,
}
