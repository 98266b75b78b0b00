"""How a suite's environments are made with Gymnasium alone, as lines of Python to paste: standard library only.

What they make is what ``making.make`` makes, by the same settings. A test steps both and compares them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vebench.backends.setup import OptionValue, Task

_HARMLESS = re.compile(r"[\w./:-]+", re.ASCII)
# Of Gymnasium's AtariPreprocessing, if it is not told otherwise.
_FRAME_SKIP = 4
# Games whose action 0 presses a button: AtariPreprocessing makes no no-ops there.
_WITHOUT_NOOP = frozenset({"ALE/Backgammon-v5", "ALE/VideoCheckers-v5"})


@dataclass(frozen=True)
class Recipe:
    """Lines that define a ``function`` named ``make_env``, which makes an environment, and the ``imports`` it needs."""

    imports: tuple[str, ...]
    function: tuple[str, ...]


def quoted(text: str) -> str:
    """Return a text from outside as a Python literal in ASCII, which shows what is not printable by its number."""
    return f'"{text}"' if _HARMLESS.fullmatch(text) else ascii(text)


def name_of(task: Task) -> str:
    """Return what ``gymnasium.make`` takes for a task: it imports the module that a name begins with."""
    return task.id if task.module is None else f"{task.module}:{task.id}"


def settings_of(task: Task) -> dict[str, OptionValue]:
    """Return the settings with which ``make_vec`` makes a task as every backend has it, without its defaults."""
    if task.suite != "atari":
        return {}
    settings: dict[str, OptionValue] = {"repeat_action_probability": 0, "last_frames": True}
    if task.id in _WITHOUT_NOOP:
        settings["any_noop"] = True
    if task.frame_skip != _FRAME_SKIP:
        settings["frame_skip"] = task.frame_skip
    return settings


def registered(task: Task) -> Recipe:
    """Return how an environment is made that Gymnasium takes as it is."""
    made = f"    return gymnasium.make({quoted(name_of(task))}, disable_env_checker=True)"
    return Recipe(("import gymnasium",), ("def make_env():", made))


def atari(task: Task) -> Recipe:
    """Return how an Atari environment is made. Only the last frames of an episode may differ: see ``atari_screen``."""
    settings = ", noop_max=0" if task.id in _WITHOUT_NOOP else ""
    if task.frame_skip != _FRAME_SKIP:
        settings += f", frame_skip={task.frame_skip}"
    return Recipe(
        (
            "import ale_py",
            "import cv2",
            "import gymnasium",
            "from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation",
        ),
        (
            "gymnasium.register_envs(ale_py)",
            "def make_env():",
            "    cv2.setNumThreads(1)  # otherwise every process has a thread for each CPU",
            "    env = gymnasium.make(",
            f"        {quoted(task.id)}, frameskip=1, repeat_action_probability=0,",
            "        disable_env_checker=True,",
            "    )",
            f"    return FrameStackObservation(AtariPreprocessing(env{settings}), 4)",
        ),
    )
