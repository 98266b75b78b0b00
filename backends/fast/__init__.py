"""vebench's own environment classes, with the same bytes as Gymnasium's: ``fast-sync``, ``fast-async``, ``make_vec``.

Start reading with ``share``: the interface of a class, and how its environments are stepped. The other modules:

- ``atari``: the emulator's C++ methods, called by C; ``picture``: observations out of its screens;
- ``physics``: MuJoCo; ``physics_tasks``: what each of its tasks shows and rewards, and when it ends;
- ``classic``: classic control;
- ``native`` and ``pool``: the compiled part, and the threads;
- ``classes``: the table of classes, and whether they may step here;
- ``backend`` and ``vector_env``: the backends, and ``make_vec`` for training code.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vebench.backends.fast.vector_env import make_vec

__all__ = ["make_vec"]


def __getattr__(name: str) -> object:
    if name == "make_vec":
        from vebench.backends.fast.vector_env import make_vec  # loaded on use, since it imports Gymnasium

        return make_vec
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
