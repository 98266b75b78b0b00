"""Copies of batches of a cell that is timed. They are checked when all windows are over: within one, only copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends import trees
from vebench.backends.interface import CountsFrames
from vebench.child.record.batches import CHANGED, OUT_OF_ORDER, malformed, out_of_order, plain_arrays
from vebench.child.record.recording import Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vebench.backends.interface import ArrayTree, VectorBackend

# Batches of a window whose arrays are held until it is over, to see whether they change, and the bytes that they have.
_HELD, _HELD_BYTES = 4, 16 << 20
_NOTHING = np.empty(0, np.int64)
ROWS_CHANGED = f"rows {CHANGED}, though no reuse of buffers is declared"

Arrays = tuple[Any, ...]  # those of a batch


class Copies:
    """Copies batches. ``broken``: the first batch that was seen to break the interface, and its fault."""

    def __init__(self, backend: VectorBackend) -> None:
        self.broken: tuple[int, str] | None = None
        self.nbytes = 0
        self._backend, self._info = backend, backend.info
        self._last: tuple[Rows, Arrays] | None = None
        self._held: list[tuple[Rows, Arrays]] = []

    def copy(
        self,
        number: int,
        arrays: Arrays,
        is_shown: NDArray[np.bool_],
        *,
        ends: NDArray[np.int64] | None = None,
        held: bool = False,
    ) -> Rows | None:
        """Return copies of a batch, with the observations of these environments; None if it is none.

        With ``ends`` so far, also ask the backend for its frames, which takes time. The arrays of a batch that follows
        no other are ``held``, to see whether they change.
        """
        if plain_arrays(arrays, exactly=True) is None:
            self.breaks(number, self.wrong(arrays) or "its rows are no plain arrays")
            return None
        observations, rewards, terminated, truncated, env_ids = arrays
        try:
            places = is_shown[env_ids].nonzero()[0]
            shown = trees.part(observations, places)
            is_whole = all(leaf.shape[:1] == env_ids.shape for leaf in trees.leaves(observations))
        except IndexError:
            is_whole = False
        if not is_whole:
            self.breaks(number, self.wrong(arrays) or "rows are missing")
            return None
        rows = Rows(
            number,
            env_ids.copy(),
            rewards.copy(),
            terminated.copy(),
            truncated.copy(),
            places,
            shown,
            _NOTHING if ends is None else self._frames(env_ids),
            _NOTHING if ends is None else ends.copy(),
        )
        before, self._last = self._last, (rows, arrays)
        if not self._info.reuses_buffers:
            if before is not None and before[0].number == number - 1 and _differ(*before):
                self.breaks(number - 1, ROWS_CHANGED)
            count = len(self._held)
            if held and before is None and count < _HELD and nbytes(arrays) * (count + 1) <= _HELD_BYTES:
                self._held.append((rows, arrays))
        self.nbytes += nbytes(shown) + 4 * rewards.nbytes
        return rows

    def let_go(self) -> None:
        """Release the arrays of the last batch: the backend is measured on."""
        self._last = None

    def look_again(self) -> None:
        """Note a fault if arrays of the last window have changed since. Call this outside a window."""
        for rows, arrays in self._held:
            if _differ(rows, arrays):
                self.breaks(rows.number, ROWS_CHANGED)
        self._held.clear()

    def breaks(self, number: int, fault: str) -> None:
        """Note that a batch breaks the interface, unless another is known to."""
        if self.broken is None:
            self.broken = (number, fault)

    def wrong(self, arrays: Arrays) -> str | None:
        """Return what is wrong with a batch, None if nothing is."""
        return malformed(arrays, self._info.num_envs, self._info.batch_size, self._info.fewest_rows)

    def sound(self, copied: list[Rows]) -> list[Rows]:
        """Return the copies before the first that breaks the interface, which is noted."""
        for rows in copied:
            observations = np.broadcast_to(np.empty(()), rows.env_ids.shape)
            wrong = self.wrong((observations, rows.rewards, rows.terminated, rows.truncated, rows.env_ids))
            if wrong is None and self._info.in_order and out_of_order(rows.env_ids, self._info.num_envs):
                wrong = OUT_OF_ORDER
            if wrong is not None:
                if self.broken is None or rows.number <= self.broken[0]:
                    self.broken = (rows.number, wrong)
                break
        return [rows for rows in copied if self.broken is None or rows.number < self.broken[0]]

    def _frames(self, env_ids: NDArray[Any]) -> NDArray[np.int64]:
        """Return the frames of each environment's episode so far, -1 where it is not known, empty if nothing is."""
        counted = self._backend.frames() if isinstance(self._backend, CountsFrames) else None
        if counted is None:
            return _NOTHING
        frames = np.full(self._info.num_envs, -1, np.int64)
        frames[env_ids] = counted[env_ids]
        return frames


def _differ(rows: Rows, arrays: Arrays) -> bool:
    """Return whether arrays are not what they were when they were copied."""
    observations, *others = arrays
    now = (*trees.leaves(trees.part(observations, rows.shown)), *others)
    then = (*trees.leaves(rows.observations), rows.rewards, rows.terminated, rows.truncated, rows.env_ids)
    return any(one.tobytes() != other.tobytes() for one, other in zip(then, now, strict=True))


def nbytes(tree: ArrayTree) -> int:
    """Return the bytes of all arrays of a tree, such as a batch."""
    return sum(leaf.nbytes for leaf in trees.leaves(tree))
