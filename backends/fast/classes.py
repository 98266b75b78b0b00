"""The table of our own classes: the tasks that they stand for, and whether they may step them here.

Ours steps only with versions of packages with which it was verified, and only settings that it supports. Gymnasium's
class steps everything else. Standard library only: packages are looked up and not imported.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from vebench.backends.environments.suites import known_as
from vebench.backends.fast import native
from vebench.backends.interface import OwnClasses
from vebench.backends.packages import ALE_PY, GYMNASIUM, MUJOCO, NUMPY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vebench.backends.interface import Task
    from vebench.backends.packages import Package

# The versions with which our classes returned the same bytes as Gymnasium's, by ``tools/survey.py``: as many
# places as decide (``packages``). OpenCV is not here: compiled pictures are compared with its own whenever a task is
# built.
VERSIONS = {"ale-py": ("0.12.1",), "gymnasium": ("1.4.0",), "mujoco": ("3.6.0", "3.11.0"), "numpy": ("2",)}


@dataclass(frozen=True)
class FastClass:
    """A class of ours.

    ``target`` is ``module:Class`` of a ``FastTask``. ``entry_point`` and ``defaults``: of the class that it stands for,
    as the registry of Gymnasium has them; only the defaults in ``free`` may have any value. ``packages``: what makes
    its bytes. ``unsupported``: settings of ``gymnasium.make`` and the usual wrappers that only Gymnasium's class has.
    """

    target: str
    entry_point: str
    packages: tuple[Package, ...]
    unsupported: frozenset[str]
    defaults: Mapping[str, object] = field(default_factory=dict)
    free: frozenset[str] = frozenset()


_ATARI = FastClass(
    target="vebench.backends.fast.atari:AtariTask",
    entry_point="ale_py.env:AtariEnv",
    packages=(GYMNASIUM, ALE_PY, NUMPY),
    unsupported=frozenset({"grayscale_newaxis", "max_episode_steps", "scale_obs"}),
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

_PHYSICS: Mapping[str, FastClass] = {
    f"{name}-v5": FastClass(
        target="vebench.backends.fast.physics:PhysicsTask",
        entry_point=f"gymnasium.envs.mujoco.{module}_v5:{name}Env",
        packages=(GYMNASIUM, MUJOCO, NUMPY),
        unsupported=frozenset({"disable_env_checker", "xml_file"}),  # another model has other rules
    )
    for name, module in (
        ("Ant", "ant"),
        ("HalfCheetah", "half_cheetah"),
        ("Hopper", "hopper"),
        ("Humanoid", "humanoid"),
        ("HumanoidStandup", "humanoidstandup"),
        ("InvertedDoublePendulum", "inverted_double_pendulum"),
        ("InvertedPendulum", "inverted_pendulum"),
        ("Pusher", "pusher"),
        ("Reacher", "reacher"),
        ("Swimmer", "swimmer"),
        ("Walker2d", "walker2d"),
    )
}
_CLASSIC: Mapping[str, FastClass] = {
    env_id: FastClass(
        target="vebench.backends.fast.classic:ClassicTask",
        entry_point=f"gymnasium.envs.classic_control.{module}",
        packages=(GYMNASIUM, NUMPY),
        unsupported=frozenset({"disable_env_checker"}),
    )
    for env_id, module in (
        ("Acrobot-v1", "acrobot:AcrobotEnv"),
        ("CartPole-v0", "cartpole:CartPoleEnv"),
        ("CartPole-v1", "cartpole:CartPoleEnv"),
        ("MountainCar-v0", "mountain_car:MountainCarEnv"),
        ("MountainCarContinuous-v0", "continuous_mountain_car:Continuous_MountainCarEnv"),
        ("Pendulum-v1", "pendulum:PendulumEnv"),
    )
}


def class_of(env_id: str) -> FastClass | None:
    """Return our class for a task, None if there is none."""
    game = env_id.startswith("ALE/") and env_id.endswith("-v5")
    return _ATARI if game else _PHYSICS.get(env_id, _CLASSIC.get(env_id))


def expected_classes(task: Task) -> OwnClasses | None:
    """Return what a task would be stepped with here, as far as it is known before it is; None without a class."""
    if class_of(task.id) is None:
        return None
    if (refused := refusal(task.id)) is not None:
        return refused
    return OwnClasses()


def refusal(env_id: str, settings: Mapping[str, Any] = MappingProxyType({})) -> OwnClasses | None:
    """Return why Gymnasium's class is to step a task with these settings, and the remedy, or None if ours can."""
    ours = class_of(env_id)
    if ours is None:
        other = known_as(env_id)
        only = "" if other is None or class_of(other) is None else f", only for {other}"
        return OwnClasses(refused=f"there is no class of our own for {env_id}{only}")
    shown = settings.get("render_mode") in {None, "rgb_array"}
    if lacking := sorted((ours.unsupported if shown else ours.unsupported | {"render_mode"}) & settings.keys()):
        why = f"our own class for {env_id} does not support {', '.join(lacking)}"
        return OwnClasses(refused=why, remedy="omit these settings")
    for package in ours.packages:
        if (refused := _unverified(package)) is not None:
            return refused
    return None if native.library() is not None else OwnClasses(refused=native.NOT_BUILT, remedy=native.REMEDY)


def _unverified(package: Package) -> OwnClasses | None:
    installed = {name: found for name in package.deciding_names if (found := _version(name)) is not None}
    verified = VERSIONS[package.name]
    if any(package.deciding_part(found) in verified for found in installed.values()):
        return None
    here = ", ".join(f"{name} {found}" for name, found in installed.items()) or f"{package.name} is not installed"
    places = "" if package.places is None else ".*"
    # All of them: which one fits depends on this Python, and on what else is installed.
    wanted = " or ".join(f"'{package.name}=={part}{places}'" for part in verified)
    refused = f"our own class was verified with {package.name} {' and '.join(verified)} ({here})"
    return OwnClasses(refused=refused, remedy=f"pip install {wanted}")


@cache
def _version(name: str) -> str | None:
    from importlib import metadata  # noqa: PLC0415 - slow, and the registry imports this module

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
