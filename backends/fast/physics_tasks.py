"""MuJoCo's tasks: what each of them shows, what it rewards and when it ends, for many environments at a time.

All constants are read off an environment of Gymnasium's own class. The arithmetic of rewards is that of the class,
operation by operation, on a whole batch, so that each reward has the same bytes: also where actions are of ``float32``,
in which the class then computes what they cost.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
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
    - ``healthy``: the bounds within which an environment is healthy; ``ends``: whether its episode ends if not.
    """

    row: tuple[Slice, ...]
    reward: Callable[[Seen], Callable[[], None]]
    around: Slice = _NOTHING
    after: Mapping[str, Slice] = field(default_factory=dict)
    healthy: tuple[Bound, ...] = ()
    ends: bool = False

    @property
    def contacts(self) -> bool:
        """Whether forces of contacts are read, which ``mj_rnePostConstraint`` computes."""
        parts = (*self.row, *self.after.values())
        return any(part.field in {"cacc", "cfrc_int", "cfrc_ext"} for part in parts)


def _constant(number: float) -> NDArray[np.float64]:
    """Return a number as numpy takes it at once: with one of Python's each operation would take twice as long."""
    return np.array(number, np.float64)


def _squared_cost(weight: float, numbers: NDArray[Any]) -> Callable[[], NDArray[Any]]:
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


def _limited_cost(weight: float, limits: tuple[float, float], numbers: NDArray[np.float64]) -> Callable[[], Any]:
    """Return what computes ``squared_cost`` between limits."""
    compute, (low, high) = _squared_cost(weight, numbers), map(_constant, limits)

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


def _each_row(function: Callable[[Any, Any], Any], rows: NDArray[np.float64]) -> Callable[[], None]:
    """Return what applies a function to each row by itself: on a whole batch numpy may round otherwise."""
    views = list(rows)

    def apply() -> None:
        for view in views:
            function(view, view)

    return apply


def _distances(start: NDArray[np.float64], end: NDArray[np.float64]) -> Callable[[], NDArray[np.float64]]:
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
        rewards, healthy, dt, forward = seen.rewards, seen.healthy, _constant(self.dt), _constant(self.forward)
        bonus = None if self.bonus is None else _constant(self.bonus)
        survival = np.empty_like(rewards)
        before, after = seen.around[..., 0]
        move = None if self.masses is None else _centre_x(self.masses, seen.around)
        control = _squared_cost(self.control, seen.after.get("control", seen.actions))
        contact = None
        if self.contact is not None:
            contact = _limited_cost(self.contact, self.contact_range, seen.after["contact"])

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


_X = Slice("qpos", 0, 1)


def _half_cheetah(origin: _Origin) -> Rules:
    return Rules(_position_and_velocity(origin, 1), _travel(origin), _X)


def _swimmer(origin: _Origin) -> Rules:
    return Rules(_position_and_velocity(origin, 2), _travel(origin), _X)


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
    x = main._replace(stop=main.start + 1)
    low, high = has.healthy_z_range
    forces = Slice("cfrc_ext", 0, None, *_limits_of(has.contact_force_range))
    # The world's own forces, those of body 0, count but are not shown.
    shown = (forces._replace(start=6),) if has.include_cfrc_ext_in_observation else ()
    return Rules(
        (*_position_and_velocity(origin, 2), *shown),
        _travel(origin, bonus=has.healthy_reward, contact=has.contact_cost_weight),
        x,
        {"contact": forces},
        (Bound(Slice("qpos")), Bound(Slice("qvel")), Bound(Slice("qpos", 2, 3), low, high, closed=True)),
        has.terminate_when_unhealthy,
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
    )


def _humanoid_standup(origin: _Origin) -> Rules:
    has = _Settings(origin)
    time_step = _constant(origin.model.opt.timestep)

    def reward(seen: Seen) -> Callable[[], None]:
        control = _squared_cost(has.ctrl_cost_weight, seen.after["control"])
        impact = _limited_cost(has.impact_cost_weight, _limits_of(has.impact_cost_range), seen.after["contact"])
        height, rewards, one = seen.after["height"][:, 0], seen.rewards, _constant(1)

        def write() -> None:
            np.divide(height, time_step, rewards)
            np.subtract(rewards, control(), rewards)
            np.subtract(rewards, impact(), rewards)
            np.add(rewards, one, rewards)

        return write

    after = {"height": Slice("qpos", 2, 3), "control": Slice("ctrl"), "contact": Slice("cfrc_ext")}
    return Rules(_humanoid_row(origin), reward, after=after)


def _inverted_pendulum(_origin: _Origin) -> Rules:
    row = (Slice("qpos"), Slice("qvel"))
    upright = Bound(Slice("qpos", 1, 2), -0.2, 0.2, closed=True)

    def reward(seen: Seen) -> Callable[[], None]:
        return lambda: np.copyto(seen.rewards, seen.healthy)

    return Rules(row, reward, healthy=(*map(Bound, row), upright), ends=True)


def _inverted_double_pendulum(origin: _Origin) -> Rules:
    alive: float = _Settings(origin).healthy_reward
    angles, speeds = Slice("qpos", 1), Slice("qvel", 0, None, -10, 10)
    row = (Slice("qpos", 0, 1), angles, angles, speeds, Slice("qfrc_constraint", 0, 1, -10, 10))

    def reward(seen: Seen) -> Callable[[], None]:
        rewards, healthy, tips, velocities = seen.rewards, seen.healthy, seen.after["tip"], seen.after["velocities"]
        turn = _each_row(np.sin, seen.observations[:, 1:3]), _each_row(np.cos, seen.observations[:, 3:5])

        def write() -> None:
            for part in turn:
                part()
            # With numbers of numpy, as in the class: powers of an array have other bytes than those of a number.
            for index, ((x, _, y), (v1, v2)) in enumerate(zip(tips, velocities, strict=True)):
                distance = 0.01 * x**2 + (y - 2) ** 2
                velocity = 1e-3 * v1**2 + 5e-3 * v2**2
                rewards[index] = alive * healthy[index] - distance - velocity

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
        distance, weight = _distances(seen.after["tip"], seen.after["target"]), _constant(-has.reward_dist_weight)
        control = _squared_cost(has.reward_control_weight, seen.actions)

        def write() -> None:
            for part in turn:
                part()
            np.subtract(away, aim, away)
            np.multiply(distance(), weight, rewards)
            np.subtract(rewards, control(), rewards)

        return write

    row = (angles, angles, Slice("qpos", 2), Slice("qvel", 0, 2), tip._replace(stop=tip.start + 2))
    return Rules(row, reward, after={"tip": tip, "target": target})


def _pusher(origin: _Origin) -> Rules:
    has = _Settings(origin)
    tip, thing, goal = (_place(origin, body) for body in ("tips_arm", "object", "goal"))

    def reward(seen: Seen) -> Callable[[], None]:
        rewards = seen.rewards
        near = _distances(seen.after["thing"], seen.after["tip"])
        distance = _distances(seen.after["thing"], seen.after["goal"])
        control = _squared_cost(has.reward_control_weight, seen.actions)
        weight, near_weight = _constant(-has.reward_dist_weight), _constant(has.reward_near_weight)

        def write() -> None:
            np.multiply(distance(), weight, rewards)
            np.subtract(rewards, control(), rewards)
            np.subtract(rewards, near() * near_weight, rewards)

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
