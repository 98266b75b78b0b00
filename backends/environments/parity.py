"""The Gymnasium environments of a task, built so that every backend does the same work, and what their spaces are.

Atari follows Machado et al. (2018), "Revisiting the Arcade Learning Environment", without sticky actions: frame skip 4,
the maximum of the last two frames, grey, 84x84 by area interpolation, four frames stacked, 108,000 frames an episode,
no clipping of rewards, no end at the loss of a life, no button pressed at a reset.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends.interface import ActionSpace, Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import gymnasium
    from numpy.typing import NDArray

    from vebench.backends.interface import Task

ATARI_FRAME_SKIP = 4
ATARI_FRAME_LIMIT = 108_000
ATARI_NOOP_MAX = 30
ATARI_SCREEN_SIZE = 84
ATARI_STACK = 4
THE_SIMULATOR = "the simulator"  # who counts frames, where it is asked itself
# Rows of the emulator's raw screen, in most games and in those known to have more. All screens are 160 pixels wide.
ATARI_SCREEN_ROWS = 210
ATARI_TALL_SCREENS = {
    "ALE/Adventure-v5": 250,
    "ALE/AirRaid-v5": 250,
    "ALE/Carnival-v5": 214,
    "ALE/JourneyEscape-v5": 230,
    "ALE/KeystoneKapers-v5": 250,
    "ALE/KingKong-v5": 250,
    "ALE/Klax-v5": 250,
    "ALE/LaserGates-v5": 250,
    "ALE/MrDo-v5": 250,
    "ALE/Pacman-v5": 250,
    "ALE/Pooyan-v5": 220,
    "ALE/SirLancelot-v5": 250,
    "ALE/SpaceWar-v5": 250,
}

# MuJoCo tasks whose start Gymnasium draws whatever its arguments.
ALWAYS_DRAWN = frozenset({"Pusher-v5", "Reacher-v5"})


@dataclass(frozen=True)
class Spaces:
    """What one environment gives and takes: observations of one shape and type, and actions."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    actions: ActionSpace

    def rows(self, count: int) -> Batch:
        """Return zeroed arrays for ``count`` environments, rewards in float64, ids counted from 0."""
        return Batch(
            np.zeros((count, *self.shape), self.dtype),
            np.zeros(count, np.float64),
            np.zeros(count, np.bool_),
            np.zeros(count, np.bool_),
            np.arange(count),
        )


def make(task: Task, *, upper_rows: int | None = None) -> gymnasium.Env[Any, Any]:
    """Return one environment of ``task``. Raises what Gymnasium raises if there is none or a package is missing.

    It can be sent to another process as ``functools.partial(make, task)``. With ``upper_rows`` an Atari picture is made
    from so many rows of the raw screen, as no backend should: to tell one that does.
    """
    import gymnasium  # noqa: PLC0415 - imported on use

    if task.module is not None:
        importlib.import_module(task.module)
    if task.suite == "atari":
        environment = _make_atari(task, upper_rows)
    elif task.suite == "mujoco":
        environment = _make_physics(task)
    else:
        environment = gymnasium.make(task.id, disable_env_checker=True)
    # OpenCV starts a pool of threads in every process, however many processes there are.
    if (opencv := sys.modules.get("cv2")) is not None:
        opencv.setNumThreads(1)
    return environment


def _make_atari(task: Task, upper_rows: int | None) -> gymnasium.Env[Any, Any]:
    import ale_py  # noqa: PLC0415 - imported on use
    import gymnasium  # noqa: PLC0415 - imported on use
    from gymnasium.wrappers import FrameStackObservation  # noqa: PLC0415 - imported on use

    from vebench.backends.environments.atari import Screen, UpperScreen  # noqa: PLC0415 - imported on use

    gymnasium.register_envs(ale_py)
    emulator = gymnasium.make(
        task.id,
        frameskip=1,
        repeat_action_probability=0,
        full_action_space=False,
        disable_env_checker=True,
        max_num_frames_per_episode=ATARI_FRAME_LIMIT,
    )
    settings: dict[str, Any] = {
        "noop_max": 1 if task.exact else ATARI_NOOP_MAX,
        "frame_skip": task.frame_skip,
        "screen_size": ATARI_SCREEN_SIZE,
    }
    screen = Screen(emulator, **settings) if upper_rows is None else UpperScreen(emulator, upper_rows, **settings)
    return FrameStackObservation(screen, ATARI_STACK, padding_type="reset")


def _make_physics(task: Task) -> gymnasium.Env[Any, Any]:
    import gymnasium  # noqa: PLC0415 - imported on use

    # Each class has a frame skip of its own; that of the task is the same, but for one who asks for another.
    settings: dict[str, Any] = {"frame_skip": task.frame_skip, "disable_env_checker": True}
    if not task.exact or task.id in ALWAYS_DRAWN:
        return gymnasium.make(task.id, **settings)
    return gymnasium.make(task.id, reset_noise_scale=0.0, **settings)


def read_spaces(task: Task, observations: gymnasium.Space[Any], actions: gymnasium.Space[Any]) -> Spaces:
    """Return the spaces of one environment. Raises ValueError if its observations or actions are not one array."""
    from gymnasium import spaces  # noqa: PLC0415 - imported on use

    if not isinstance(observations, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        raise ValueError(f"observations are {_kind(observations)}, not one array: {_ARRAYS}")  # noqa: TRY004 - by contract
    return Spaces(observations.shape or (), np.dtype(observations.dtype), action_space(task, actions))


def action_space(task: Task, actions: gymnasium.Space[Any]) -> ActionSpace:
    """Return the bounds of one action of ``task``. Raises ValueError if an action is not one array."""
    from gymnasium import spaces  # noqa: PLC0415 - imported on use

    if isinstance(actions, spaces.Discrete):
        return ActionSpace.discrete(int(actions.n), int(actions.start))
    if isinstance(actions, spaces.Box):
        return _box(task, actions.low, actions.high)
    if isinstance(actions, spaces.MultiDiscrete):
        low: NDArray[np.int64] = np.asarray(actions.start, np.int64)
        return ActionSpace(low, low + np.asarray(actions.nvec, np.int64) - 1)
    if isinstance(actions, spaces.MultiBinary):
        return ActionSpace(np.zeros(actions.shape, np.int64), np.ones(actions.shape, np.int64))
    raise ValueError(f"actions are {_kind(actions)}, not one array: {_ARRAYS}")


def _box(task: Task, low: NDArray[Any], high: NDArray[Any]) -> ActionSpace:
    """Return the same space for a task whether Gymnasium declares it, in float32, or EnvPool, often in float64."""
    if task.suite == "gymnasium" or not np.issubdtype(low.dtype, np.floating):
        return ActionSpace(low, high)
    # EnvPool gives MuJoCo float64, and Gymnasium whatever it gets: both must get the same bits.
    dtype = np.float64 if task.suite == "mujoco" else np.float32
    return ActionSpace(low.astype(np.float32).astype(dtype), high.astype(np.float32).astype(dtype))


def frames_of(environment: gymnasium.Env[Any, Any]) -> int | None:
    """Return the frames that an environment's emulator or physics has simulated in this episode, None if it has none.

    Counted by the simulator: ALE's episode frame number, or MuJoCo's time in time steps of its model.
    """
    simulator: Any = environment.unwrapped
    if (emulator := getattr(simulator, "ale", None)) is not None:
        return int(emulator.getEpisodeFrameNumber())
    try:
        frames: int = round(simulator.data.time / simulator.model.opt.timestep)
    except AttributeError:
        return None
    return frames


def frames_of_all(environments: Sequence[gymnasium.Env[Any, Any]]) -> NDArray[np.int64] | None:
    """Return ``frames_of`` each environment, None if one of them cannot be told."""
    return as_counts([frames_of(environment) for environment in environments])


def as_counts(frames: Sequence[int | None]) -> NDArray[np.int64] | None:
    """Return frames of each environment as an array, None if one of them is not known."""
    known = [count for count in frames if count is not None]
    return np.array(known, np.int64) if len(known) == len(frames) else None


def make_asked(task: Task) -> gymnasium.Env[Any, Any]:
    """Return ``make(task)`` with a function ``frames_simulated`` on it, for those who reach attributes only."""
    environment = make(task)
    environment.frames_simulated = partial(frames_of, environment)  # type: ignore[attr-defined] # that is what it is for
    return environment


def raw_screen_rows(environment: gymnasium.Env[Any, Any]) -> int | None:
    """Return how many rows the emulator's raw screen has, None for an environment that has no emulator."""
    emulator = getattr(environment.unwrapped, "ale", None)
    return None if emulator is None else int(emulator.getScreenDims()[0])


def upper_rows_shown(shown: int, rows: int) -> str:
    """Return in words that a picture is made from the first ``shown`` of the screen's ``rows``."""
    return f"shows the upper {shown} of the screen's {rows} rows"


_ARRAYS = "vebench steps environments with Box, Discrete, MultiDiscrete or MultiBinary spaces"


def _kind(space: gymnasium.Space[Any]) -> str:
    return type(space).__name__
