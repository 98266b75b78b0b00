"""The table of our own classes: which tasks they stand for, and with which settings. Standard library only.

A task that is not here, or is asked for with other settings, is stepped by Gymnasium's class.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vebench.backends.packages import ALE_PY, GYMNASIUM, MUJOCO, NUMPY

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from vebench.backends.packages import Package


@dataclass(frozen=True)
class FastClass:
    """A class of ours.

    ``target`` is ``module:Class`` of a ``FastTask``. ``entry_point`` and ``defaults``: of the class that it stands for,
    as the registry of Gymnasium has them; only the defaults in ``free`` may have any value. ``packages``: what makes
    its bytes. ``sources``: the files that it stands for, in these packages, by their paths below ``site-packages``.
    ``settings``: what ``gymnasium.make`` and the usual wrappers can be told, as far as this class does the same.
    """

    target: str
    entry_point: str
    packages: tuple[Package, ...]
    sources: tuple[str, ...]
    settings: frozenset[str]
    defaults: Mapping[str, object] = field(default_factory=dict)
    free: frozenset[str] = frozenset()


_OF_MAKE = ("gymnasium/core.py", "gymnasium/envs/registration.py", "gymnasium/wrappers/common.py")

_ATARI = FastClass(
    target="vebench.backends.fast.atari:AtariTask",
    entry_point="ale_py.env:AtariEnv",
    # Pictures are OpenCV's own, of whatever version, or compared with them when a task is built.
    packages=(GYMNASIUM, ALE_PY, NUMPY),
    sources=(
        "ale_py/env.py",
        *_OF_MAKE,
        "gymnasium/utils/seeding.py",
        "gymnasium/wrappers/atari_preprocessing.py",
        "gymnasium/wrappers/stateful_observation.py",
        "gymnasium/wrappers/transform_reward.py",
    ),
    settings=frozenset(
        {
            "any_noop",
            "difficulty",
            "frame_skip",
            "full_action_space",
            "grayscale_obs",
            "last_frames",
            "max_num_frames_per_episode",
            "mode",
            "noop_max",
            "repeat_action_probability",
            "reward_clip",
            "screen_size",
            "stack",
            "terminal_on_life_loss",
        }
    ),
    # Each is set by a setting, or by what is put around the game.
    defaults={
        "game": "",
        "repeat_action_probability": 0.25,
        "full_action_space": False,
        "frameskip": 4,
        "max_num_frames_per_episode": 108_000,
    },
    free=frozenset({"game", "frameskip"}),
)


def _physics(name: str, origin: str, *settings: str) -> FastClass:
    """Return the class of a MuJoCo task whose file at Gymnasium is ``name``, and whose class there is ``origin``."""
    return FastClass(
        target="vebench.backends.fast.physics:PhysicsTask",
        entry_point=f"gymnasium.envs.mujoco.{name}:{origin}",
        packages=(GYMNASIUM, MUJOCO, NUMPY),
        sources=(
            "gymnasium/envs/mujoco/mujoco_env.py",
            f"gymnasium/envs/mujoco/{name}.py",
            *_OF_MAKE,
            "gymnasium/utils/seeding.py",
        ),
        settings=frozenset({"frame_skip", "max_episode_steps", *settings}),
    )


_NOISE = ("reset_noise_scale",)
_ACTION = ("forward_reward_weight", "ctrl_cost_weight")
_SHOWN = ("exclude_current_positions_from_observation",)
_HEALTH = ("healthy_reward", "terminate_when_unhealthy", "healthy_z_range")
_HUMANOID = (
    "include_cinert_in_observation",
    "include_cvel_in_observation",
    "include_qfrc_actuator_in_observation",
    "include_cfrc_ext_in_observation",
)

_PHYSICS: Mapping[str, FastClass] = {
    "Ant-v5": _physics(
        "ant_v5",
        "AntEnv",
        *_ACTION,
        *_SHOWN,
        *_NOISE,
        *_HEALTH,
        "contact_cost_weight",
        "contact_force_range",
        "include_cfrc_ext_in_observation",
        "main_body",
    ),
    "HalfCheetah-v5": _physics("half_cheetah_v5", "HalfCheetahEnv", *_ACTION, *_SHOWN, *_NOISE),
    "Hopper-v5": _physics(
        "hopper_v5", "HopperEnv", *_ACTION, *_SHOWN, *_NOISE, *_HEALTH, "healthy_angle_range", "healthy_state_range"
    ),
    "Humanoid-v5": _physics(
        "humanoid_v5",
        "HumanoidEnv",
        *_ACTION,
        *_SHOWN,
        *_NOISE,
        *_HEALTH,
        *_HUMANOID,
        "contact_cost_weight",
        "contact_cost_range",
    ),
    "HumanoidStandup-v5": _physics(
        "humanoidstandup_v5",
        "HumanoidStandupEnv",
        *_SHOWN,
        *_NOISE,
        *_HUMANOID,
        "uph_cost_weight",
        "ctrl_cost_weight",
        "impact_cost_weight",
        "impact_cost_range",
    ),
    "InvertedDoublePendulum-v5": _physics(
        "inverted_double_pendulum_v5", "InvertedDoublePendulumEnv", *_NOISE, "healthy_reward"
    ),
    "InvertedPendulum-v5": _physics("inverted_pendulum_v5", "InvertedPendulumEnv", *_NOISE),
    "Pusher-v5": _physics(
        "pusher_v5", "PusherEnv", "reward_near_weight", "reward_dist_weight", "reward_control_weight"
    ),
    "Reacher-v5": _physics("reacher_v5", "ReacherEnv", "reward_dist_weight", "reward_control_weight"),
    "Swimmer-v5": _physics("swimmer_v5", "SwimmerEnv", *_ACTION, *_SHOWN, *_NOISE),
    "Walker2d-v5": _physics("walker2d_v5", "Walker2dEnv", *_ACTION, *_SHOWN, *_NOISE, *_HEALTH, "healthy_angle_range"),
}
_GAMES = "ALE/"


def class_of(env_id: str) -> FastClass | None:
    """Return our class for a task, None if there is none."""
    return _ATARI if env_id.startswith(_GAMES) and env_id.endswith("-v5") else _PHYSICS.get(env_id)


def unsupported(env_id: str, settings: Collection[str]) -> list[str]:
    """Return the settings that our class for a task does not know, in order."""
    known = class_of(env_id)
    return sorted(settings if known is None else set(settings) - known.settings)
