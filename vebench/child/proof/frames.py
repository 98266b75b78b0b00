"""Compares the frames that a backend simulates with the frames that it claims: its frame skip for each step."""

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
    """Counts the frames of every environment, row by row. ``simulated`` is None if the backend does not report them."""

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
        """Read the backend's frame counts. Call this once after each batch."""
        self._now = None if self._ask is None else self._ask()

    def check(self, env_id: int, step: int, *, after_reset: bool, ended: bool) -> Mismatch | None:
        """Count the frames of a row. Returns a mismatch, None if frames are as claimed.

        The mismatch's field is ``frames`` if the backend has not simulated as many frames as it claims. It is ``claimed
        frames`` if the backend does not report its frames, and claims another number than the reference has simulated.
        A step that ends an episode may take fewer frames.
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
        """Return the frames since this environment's previous row, None if unknown."""
        before, last[env_id] = last.get(env_id), now
        return None if before is None or now is None else now - before


def _mismatch(env_id: int, step: int, field: str, expected: int, found: int) -> Mismatch:
    return Mismatch(env_id, step, field, str(expected), str(found), abs(found - expected))
