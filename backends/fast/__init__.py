"""Environment classes of our own, with the same bytes as Gymnasium's: ``fast-sync``, ``fast-async`` and ``make_vec``.

Begin reading with ``task``: what the environments of one process are, as the rest sees them. What fills it in:

- ``atari``: the emulator, called straight; ``picture``: its screens made into observations;
- ``physics``: MuJoCo, many environments at a time; ``physics_tasks``: what each of its tasks shows and rewards, and
  when it ends, by the arithmetic of ``rewards``; ``physics_loops``: the loop over the environments;
  ``mujoco_library``: what a compiled loop must know of MuJoCo;
- ``native``: the compiled part, if there is one: ``picture.c`` and ``physics.c``.

What decides whether a class of ours may stand for Gymnasium's:

- ``classes``: the table of them, with the settings that each supports;
- ``verified``: the versions and the sources with which the same bytes were shown; ``guard``: whether they are these.

What is built on it:

- ``building``: a task is built, if Gymnasium's registry has what ours stands for;
- ``share``, the share of one process of a team, and ``backend``, both backends;
- ``vector_env``: ``make_vec``, for training code; ``gymnasium_env``: what its settings mean.

What is exported is loaded on use, since it needs Gymnasium.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vebench.backends.fast.vector_env import make_vec

__all__ = ["make_vec"]


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(import_module(f"{__name__}.vector_env"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
