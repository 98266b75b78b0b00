"""Environment classes of our own, with the same bytes as Gymnasium's: ``fast-sync``, ``fast-async`` and ``make_vec``.

Begin reading with ``share``: what the environments are, as the rest sees them. What fills it in:

- ``atari``: the emulator's C++ methods, called by C; ``picture``: its screens made into observations;
- ``physics``: MuJoCo; ``physics_tasks``: what each of its tasks shows and rewards, and when it ends;
- ``classic``: classic control;
- ``native``: the compiled part, if there is one: ``pool.c``, the threads, and a file for each of these.

What is built on it: ``classes``, the table of classes, and whether they may step here; ``backend``, the backends; and
``vector_env``: ``make_vec``, for training code.

``make_vec`` is loaded on use, since it needs Gymnasium.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vebench.backends.fast.vector_env import make_vec

__all__ = ["make_vec"]


def __getattr__(name: str) -> object:
    if name == "make_vec":
        from vebench.backends.fast.vector_env import make_vec  # noqa: PLC0415 - as said above

        return make_vec
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
