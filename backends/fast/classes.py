"""The table of vebench's own classes: the tasks that they step, and whether they may step them here.

A class of ours only steps with versions of packages with which it was verified, and only settings that it supports.
Gymnasium's class steps everything else. Packages are looked up and not imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

from vebench.backends.environments.suites import known_as
from vebench.backends.fast import native
from vebench.backends.interface import OwnClasses, Task
from vebench.backends.packages import ALE_PY, GYMNASIUM, MUJOCO, NUMPY, Package

# The versions with which our classes returned the same bytes as Gymnasium's, by ``tools/survey.py``, up to the places
# that decide (``packages``). OpenCV is missing: compiled pictures are compared with its own whenever a task is built.
VERSIONS = {"ale-py": ("0.12.1",), "gymnasium": ("1.4.0",), "mujoco": ("3.6.0", "3.11.0"), "numpy": ("2",)}


@dataclass(frozen=True)
class FastClass:
    """A class of ours."""

    target: str  # ``module:Class`` of a ``FastTask``
    entry_point: str  # of the class that it replaces, as Gymnasium's registry has it
    packages: tuple[Package, ...]  # on which its bytes depend
    unsupported: frozenset[str]  # settings of ``gymnasium.make`` and the usual wrappers that only Gymnasium's class has
    defaults: Mapping[str, object] = field(default_factory=dict)  # of the class that it replaces
    free: frozenset[str] = frozenset()  # the defaults that may have any value


_ATARI = FastClass(
    target="vebench.backends.fast.atari:AtariTask",
    entry_point="ale_py.env:AtariEnv",
    packages=(GYMNASIUM, ALE_PY, NUMPY),
    unsupported=frozenset({"grayscale_newaxis", "max_episode_steps", "scale_obs"}),
    # A setting or a wrapper sets each of them.
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
    """Return what would step a task here, as far as that is known before it is built; None if we have no class."""
    if class_of(task.id) is None:
        return None
    return refusal(task.id) or OwnClasses()


def refusal(env_id: str, settings: Mapping[str, Any] = MappingProxyType({})) -> OwnClasses | None:
    """Return why Gymnasium's class must step a task with these settings, and the remedy; None if ours can."""
    ours = class_of(env_id)
    if ours is None:
        other = known_as(env_id)
        only = "" if other is None or class_of(other) is None else f", only for {other}"
        return OwnClasses(refused=f"there is no class of our own for {env_id}{only}")
    shown = settings.get("render_mode") in {None, "rgb_array"}
    unsupported = ours.unsupported if shown else ours.unsupported | {"render_mode"}
    lacking = sorted(unsupported & settings.keys())
    if lacking:
        why = f"our own class for {env_id} does not support {', '.join(lacking)}"
        return OwnClasses(refused=why, remedy="omit these settings")
    for package in ours.packages:
        refused = _unverified(package)
        if refused is not None:
            return refused
    return None if native.library() is not None else OwnClasses(refused=native.NOT_BUILT, remedy=native.REMEDY)


def _unverified(package: Package) -> OwnClasses | None:
    """Return that our classes were not verified with the installed version of a package; None if they were."""
    installed = {name: found for name in package.deciding_names if (found := _version(name)) is not None}
    verified = VERSIONS[package.name]
    if any(package.deciding_part(found) in verified for found in installed.values()):
        return None
    here = ", ".join(f"{name} {found}" for name, found in installed.items()) or f"{package.name} is not installed"
    places = "" if package.places is None else ".*"
    # All of them: which one fits depends on this Python, and on the other packages.
    wanted = " or ".join(f"'{package.name}=={part}{places}'" for part in verified)
    refused = f"our own class was verified with {package.name} {' and '.join(verified)} ({here})"
    return OwnClasses(refused=refused, remedy=f"pip install {wanted}")


@cache
def _version(name: str) -> str | None:
    from importlib import metadata  # slow, and the registry imports this module

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
