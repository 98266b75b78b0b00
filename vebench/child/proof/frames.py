"""Counts the frames that a backend really simulates, beside those that it claims: its frame skip for each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.backends.environments.suites import SUITES
from vebench.backends.interface import CountsFrames
from vebench.child.answers import Mismatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from vebench.backends.interface import VectorBackend
    from vebench.child.proof.reference import Reference


class FrameCount:
    """The frames of every environment, row by row. ``simulated`` is None where the backend cannot be asked."""

    def __init__(self, backend: VectorBackend, references: Sequence[Reference]) -> None:
        counted = SUITES[references[0].task.suite].frames is not None
        self._ask = backend.frames if counted and isinstance(backend, CountsFrames) else None
        self._references = references if counted else ()
        self._claim = backend.info.frame_skip
        self._now: NDArray[np.int64] | None = None
        self._last: dict[int, int | None] = {}
        self._last_known: dict[int, int | None] = {}
        self.source = backend.frames_from if isinstance(backend, CountsFrames) else None
        self.simulated: int | None = None
        self.claimed = 0

    def look(self) -> None:
        """Ask the backend, once for each batch."""
        self._now = None if self._ask is None else self._ask()

    def check(self, env_id: int, step: int, *, after_reset: bool, ended: bool) -> Mismatch | None:
        """Take account of a row. Returns a mismatch, None if frames are as claimed.

        ``frames``: other frames were simulated than claimed. ``claimed frames``: the backend cannot be asked, and
        claims others than the reference has simulated. A step in which an episode ends may take fewer than others.
        """
        counted = None if self._now is None else self._since(env_id, int(self._now[env_id]), self._last)
        known = self._since(env_id, self._references[env_id].frames, self._last_known) if self._references else None
        if after_reset:
            return None
        self.claimed += self._claim
        least = 1 if ended else self._claim
        if counted is not None:
            self.simulated = (self.simulated or 0) + max(0, counted)
            right = least <= counted <= self._claim
            return None if right else _mismatch(env_id, step, "frames", self._claim, counted)
        if known is not None and not least <= known <= self._claim:
            return _mismatch(env_id, step, "claimed frames", known, self._claim)
        return None

    @staticmethod
    def _since(env_id: int, now: int | None, last: dict[int, int | None]) -> int | None:
        """Return the frames since this environment's row before, None if that is not known."""
        before, last[env_id] = last.get(env_id), now
        return None if before is None or now is None else now - before


def _mismatch(env_id: int, step: int, field: str, expected: int, found: int) -> Mismatch:
    return Mismatch(env_id, step, field, str(expected), str(found), abs(found - expected))
