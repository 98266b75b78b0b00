"""The table of vebench's own classes, their compiled part, and the conditions under which they step a task.

Packages are looked up, not imported. The compiled part is a library without Python code, called by ctypes. The
installation of vebench builds it if there is a C compiler.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vebench.backends.environments.suites import SUITES, known_as
from vebench.backends.interface import OwnClasses, Task
from vebench.backends.packages import ALE_PY, GYMNASIUM, MUJOCO, NUMPY, Package

# The versions with which our classes returned the same bytes as Gymnasium's, by ``tools/survey.py``. Each version has
# only its deciding places. OpenCV is not listed: building a task compares compiled pictures with OpenCV's.
VERSIONS = {"ale-py": ("0.12.1",), "gymnasium": ("1.4.0",), "mujoco": ("3.6.0", "3.11.0"), "numpy": ("2",)}
# The value of ``vebench_interface`` in pool.c. Increase both when a function changes, so that Python never calls a
# library built from older sources.
_INTERFACE = 14
NOT_BUILT = "not compiled: vebench was installed without a C compiler, or from other source"
REMEDY = "install a C compiler, then reinstall vebench from its clone: pip install --force-reinstall --no-deps ."


@dataclass(frozen=True)
class FastClass:
    """One own class."""

    target: str  # ``module:Class`` of a ``FastTask``
    entry_point: str  # a pattern of the replaced class's entry point in Gymnasium's registry
    packages: tuple[Package, ...]  # packages that affect its bytes
    unsupported: frozenset[str]  # settings of ``gymnasium.make`` or usual wrappers that only Gymnasium's class has
    registered: Mapping[str, object] = field(default_factory=dict)  # the settings in Gymnasium's registry


_ATARI = FastClass(
    "vebench.backends.fast.atari:AtariTask",
    "ale_py.env:AtariEnv",
    (GYMNASIUM, ALE_PY, NUMPY),
    frozenset({"grayscale_newaxis", "max_episode_steps", "render_mode", "scale_obs"}),
    {"repeat_action_probability": 0.25, "full_action_space": False, "max_num_frames_per_episode": 108_000},
)
_OTHERS: Mapping[str, FastClass] = {
    **{
        env_id: FastClass(
            "vebench.backends.fast.physics:PhysicsTask",
            f"gymnasium.envs.mujoco.*_v5:{env_id.removesuffix('-v5')}Env",
            (GYMNASIUM, MUJOCO, NUMPY),
            frozenset({"disable_env_checker", "render_mode", "xml_file"}),  # another model has other rules
        )
        for env_id in SUITES["mujoco"].tasks
    },
    **{
        env_id: FastClass(
            "vebench.backends.fast.classic:ClassicTask",
            f"gymnasium.envs.classic_control.*:{name}",
            (GYMNASIUM, NUMPY),
            frozenset({"disable_env_checker", "render_mode"}),
        )
        for env_id, name in (
            ("Acrobot-v1", "AcrobotEnv"),
            ("CartPole-v0", "CartPoleEnv"),
            ("CartPole-v1", "CartPoleEnv"),
            ("MountainCar-v0", "MountainCarEnv"),
            ("MountainCarContinuous-v0", "Continuous_MountainCarEnv"),
            ("Pendulum-v1", "PendulumEnv"),
        )
    },
}


def class_of(env_id: str) -> FastClass | None:
    """Return the own class for a task, None if there is none."""
    is_game = env_id.startswith("ALE/") and env_id.endswith("-v5")
    return _ATARI if is_game else _OTHERS.get(env_id)


def expected_classes(task: Task) -> OwnClasses | None:
    """Return the class that would step a task here, as far as known before it is built. None: there is no own class."""
    return None if class_of(task.id) is None else refusal(task.id) or OwnClasses()


def refusal(env_id: str, settings: Mapping[str, Any] = MappingProxyType({})) -> OwnClasses | None:
    """Return why Gymnasium's class must step a task with these settings, and the remedy. None: the own class can."""
    ours = class_of(env_id)
    if ours is None:
        other = known_as(env_id)
        only = "" if other is None or class_of(other) is None else f", only for {other}"
        return OwnClasses(refused=f"there is no class of our own for {env_id}{only}")
    if lacking := ours.unsupported & {name for name, value in settings.items() if value is not None}:
        why = f"our own class for {env_id} does not support {', '.join(sorted(lacking))}"
        return OwnClasses(refused=why, remedy="omit these settings")
    for package in ours.packages:
        installed, verified = _version(package.name), VERSIONS[package.name]
        if installed is None or package.deciding_part(installed) not in verified:
            here = f"{package.name} {installed or 'is not installed'}"
            places = "" if package.places is None else ".*"
            # List all versions, since the right one depends on this Python and on the other packages.
            wanted = " or ".join(f"'{package.name}=={part}{places}'" for part in verified)
            why = f"our own class was verified with {package.name} {' and '.join(verified)} ({here})"
            return OwnClasses(refused=why, remedy=f"pip install {wanted}")
    return None if library() is not None else OwnClasses(refused=NOT_BUILT, remedy=REMEDY)


@cache
def _version(name: str) -> str | None:
    from importlib import metadata  # slow, and the registry imports this module

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled part, or None if it was not built, was built for another machine, or from other source."""
    with suppress(OSError, AttributeError):
        found = ctypes.CDLL(str(Path(__file__).with_name("_native.abi3.so")))
        return found if found.vebench_interface() == _INTERFACE else None
    return None


def needed() -> ctypes.CDLL:
    """Return the compiled part. It must exist: call this only after ``refusal`` returned None."""
    found = library()
    assert found is not None  # noqa: S101 - the caller's duty
    return found


def address(function: Any) -> int:
    """Return the address of a function of a library."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0
