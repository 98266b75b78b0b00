"""Keeps what is shown of a run or a comparison from ending it."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from rich.text import Text

from vebench.errors import one_line
from vebench.reports.console import discard

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from rich.console import Console

Shown = TypeVar("Shown", bound=AbstractContextManager[object])


class Guarded(Generic[Shown]):
    """A screen on ``console`` until it fails: its reader is gone, the disk behind it is full, or it has a fault.

    After a fault there is ``nothing`` in its place, and one line says so. ``what`` goes on, in a word: what was
    measured is worth more than any view of it. Each method of a screen is one that draws in ``_drawing``.
    """

    def __init__(self, screen: Shown, nothing: Shown, console: Console, what: str) -> None:
        self._screen = screen
        self._nothing = nothing
        self._console = console
        self._what = what

    def __enter__(self) -> Self:
        with self._drawing() as screen:
            screen.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the terminal if it is still there."""
        with self._drawing() as screen:
            screen.__exit__(kind, error, trace)

    @contextmanager
    def _drawing(self) -> Iterator[Shown]:
        try:
            yield self._screen
        except OSError:
            self._be_quiet()
        except Exception as error:  # noqa: BLE001 - whatever it is, the view is what breaks
            self._give_up(error)

    def _be_quiet(self) -> None:
        self._console.quiet = True
        discard(self._console.file)

    def _give_up(self, error: Exception) -> None:
        """Restore the terminal, and say that nothing more is shown."""
        broken, self._screen = self._screen, self._nothing
        with suppress(Exception):  # the view may break again while it goes
            broken.__exit__(None, None, None)
        why = one_line(f"{type(error).__name__}: {error}")
        line = f"vebench: progress is not shown any more ({why}); the {self._what} goes on"
        try:
            self._console.print(Text(line), soft_wrap=True)
        except OSError:
            self._be_quiet()
