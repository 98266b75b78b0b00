"""How a suite's environments are made with Gymnasium alone, as lines of Python to paste: standard library only.

What they make is what ``making.make`` makes, by the same settings. A test steps both and compares them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from keyword import iskeyword
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.backends.bracketed import OptionValue
    from vebench.backends.interface import Task

_WIDTH = 60  # of the narrowest terminal: a line that is wrapped cannot always be pasted
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_HARMLESS = re.compile(r"[\w./:-]+", re.ASCII)
# Defaults of Gymnasium's AtariPreprocessing.
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


def full_id(task: Task) -> str:
    """Return what ``gymnasium.make`` takes for a task: it imports the module that a name begins with."""
    return task.name if task.module is None else f"{task.module}:{task.name}"


def _arguments_of(task: Task) -> tuple[str, ...]:
    return tuple(
        f"{key}={literal(value)}" if key.isascii() and not iskeyword(key) else f"**{{{key!a}: {literal(value)}}}"
        for key, value in task.arguments.items()
    )


def literal(value: OptionValue) -> str:
    """Return a value as a Python literal in ASCII."""
    return quoted(value) if isinstance(value, str) else ascii(value)


def fast_settings(task: Task) -> dict[str, OptionValue]:
    """Return the settings with which ``fast.make_vec`` makes a task as every backend has it, without defaults."""
    if task.suite != "atari":
        return {}
    settings: dict[str, OptionValue] = {"repeat_action_probability": 0, "last_frames": True}
    if task.id in _WITHOUT_NOOP:
        settings["any_noop"] = True
    if task.frame_skip != _FRAME_SKIP:
        settings["frame_skip"] = task.frame_skip
    return settings


def call(target: str, arguments: Sequence[str], indent: str = "") -> list[str]:
    """Return a call on one line, or with its arguments on several lines if it is too long."""
    whole = f"{indent}{target}({', '.join(arguments)})"
    if len(whole) <= _WIDTH:
        return [whole]
    lines = [f"{indent}{target}("]
    line = ""
    for argument in arguments:
        if line and len(f"{indent}    {line} {argument},") > _WIDTH:
            lines.append(f"{indent}    {line}")
            line = ""
        line = f"{line} {argument},".lstrip()
    return [*lines, f"{indent}    {line}", f"{indent})"]


def _made(function: str, arguments: Sequence[str]) -> tuple[str, ...]:
    return ("def make_env():", *call(f"return {function}", arguments, "    "))


def registered(task: Task, plugin: str | None = None, observed: Sequence[str] = ()) -> Recipe:
    """Return how an environment is made that Gymnasium has registered, or the module ``plugin`` when it is imported.

    Of what it observes, arrays named in ``observed`` are kept, or all if there is no name.
    """
    named = task if plugin is None else replace(task, module=plugin)
    arguments = (quoted(full_id(named)), *_arguments_of(task), "disable_env_checker=True")
    if not observed:
        return Recipe(("import gymnasium",), _made("gymnasium.make", arguments))
    kept = ", ".join(map(quoted, observed))
    return Recipe(
        ("import gymnasium", "from gymnasium.wrappers import FilterObservation"),
        (
            "def make_env():",
            *call("env = gymnasium.make", arguments, "    "),
            "    # other parts are text",
            *call("return FilterObservation", ("env", f"[{kept}]"), "    "),
        ),
    )


def called(task: Task) -> Recipe:
    """Return how a user's own callable makes an environment; no lines for what cannot be the name of one."""
    module, _, name = task.name.partition(":")
    if not _DOTTED.fullmatch(module) or not _DOTTED.fullmatch(name):
        return Recipe((), ())
    return Recipe((f"import {module}",), _made(f"{module}.{name}", _arguments_of(task)))


def atari(task: Task) -> Recipe:
    """Return how an Atari environment is made. Only the last frames of an episode may differ: see ``atari_screen``."""
    settings = ", noop_max=0" if task.name in _WITHOUT_NOOP else ""
    if task.frame_skip != _FRAME_SKIP:
        settings += f", frame_skip={task.frame_skip}"
    fixed = ("frameskip=1", "repeat_action_probability=0", "disable_env_checker=True")
    arguments = (quoted(task.name), *fixed, *_arguments_of(task))
    return Recipe(
        (
            "import ale_py",
            "import cv2",
            "import gymnasium",
            "from gymnasium.wrappers import AtariPreprocessing",
            "from gymnasium.wrappers import FrameStackObservation",
        ),
        (
            "gymnasium.register_envs(ale_py)",
            "def make_env():",
            "    cv2.setNumThreads(1)  # not one thread for each CPU",
            *call("env = gymnasium.make", arguments, "    "),
            *call("return FrameStackObservation", (f"AtariPreprocessing(env{settings})", "4"), "    "),
        ),
    )
