"""What one process of a team steps. A team knows nothing of environments: its users define its shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from vebench.backends.shared_memory.memory_layout import Arrays


class Share(Protocol):
    """The environments of one process. What a method returns, its remark, goes to the caller unless it is None."""

    @property
    def current(self) -> int | None:
        """Index within the share of the environment in use now, or last; None if exceptions name their environment."""

    def open(self) -> object:
        """Build every environment."""

    def step(self) -> object:
        """Step every environment with its row of the actions."""

    def step_one(self, index: int) -> object:
        """Step one environment with its row of the actions."""

    def answer(self, name: str, argument: Any) -> object:  # noqa: ANN401 - each request has an argument of its own
        """Do what the request ``name`` asks for."""

    def close(self) -> None:
        """Close every environment."""


class MakeShare(Protocol):
    """Makes the share of one process. It is called in that process."""

    def __call__(self, arrays: Arrays, start: int, stop: int, /) -> Share:
        """Return the share of environments ``start`` to ``stop - 1``, whose rows are ``arrays``. None is built yet."""
