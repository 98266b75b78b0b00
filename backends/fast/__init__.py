"""vebench's own environment classes, with the same bytes as Gymnasium's: ``fast-sync``, ``fast-async``, ``make_vec``.

Start reading with ``backend``: the interface of a class, and how its environments are stepped.
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
