"""Environment classes of our own: what steps in a cell, or would, and what to do where it is not the best that we have.

It crosses from the child to its parent, and reports show it: standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OwnClasses:
    """What a backend with environment classes of its own steps one task with.

    ``refused`` is why Gymnasium's class stands in for ours, empty if it does not. ``how`` is how ours steps, in words,
    such as which parts are compiled; ``uncompiled``: for want of a compiled part it steps slower than it could.
    ``remedy`` is what to do about either, empty if there is nothing to do.
    """

    how: str = ""
    refused: str = ""
    uncompiled: bool = False
    remedy: str = ""

    @property
    def words(self) -> str:
        """What steps, in words: ``own classes for this task, pictures compiled``, ``Gymnasium's class: WHY``."""
        if self.refused:
            return f"Gymnasium's class: {self.refused}"
        return f"own classes for this task{self._how}"

    @property
    def words_for_kind(self) -> str:
        """The same where a kind of tasks is meant: ``own classes, with compiled parts``."""
        return self.words if self.refused else f"own classes{self._how}"

    @property
    def _how(self) -> str:
        return f", {self.how}" if self.how else ""
