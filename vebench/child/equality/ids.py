"""Notes which environments were in which batch of a timed cell, and how often each has ended.

Rows may come in any order, and the order decides which actions an environment got. So the ids of every batch are noted,
unless the adapter declares their order.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.child.equality.recording import NO_ROW, Order, out_of_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from vebench.backends.interface import BackendInfo

MOST_BYTES = 128 << 20  # of the ids that are kept
CHUNK = 1 << 17  # batches of a window whose ids are put together, and whose ends are counted, before it is over
# At the end of a cell, environments are waited for that are silent, and have been for this share of all batches.
_SILENT_SHARE = 0.25


class Ids:
    """Notes the ids of batches, and the ends in them.

    The loop calls ``note`` with the bytes of each batch's ids, and ``note_end`` with the flags of each batch that has
    ends, unless they are None. ``first``: the ids of the reset's batch.
    """

    def __init__(self, info: BackendInfo, first: NDArray[Any]) -> None:
        count = info.num_envs
        self.ends = np.zeros(count, np.int64)  # of each environment
        self.in_order = info.in_order or not out_of_order(first, count)  # every batch so far
        self.is_full = False  # nothing is noted any more
        self._declared = info.in_order
        self._batch_size, self._fewest_rows = info.batch_size, info.fewest_rows
        self._ids, self._type = np.arange(count), first.dtype
        self._kept_type = np.min_scalar_type(count if info.fewest_rows is None else -count)
        self._noted: list[bytes] = []  # since ids were joined last
        self._ended: list[tuple[int, NDArray[np.bool_]]] = []  # the place of a batch in ``_noted``, and its flags
        self._ordered = 0  # batches that were in order, before the first that was not
        self._joined: list[NDArray[Any]] = []
        self._silent: dict[int, int] = {}  # environments, and for how many batches each has been silent
        self.note_end: Callable[[NDArray[np.bool_]], None] | None = self._note_end
        self.note: Callable[[bytes], None] | None = None if self._declared else self._noted.append
        if self.note is not None:
            self.note(first.tobytes())

    @property
    def nbytes(self) -> int:
        """The bytes that are kept."""
        return sum(part.nbytes for part in self._joined)

    def _note_end(self, flags: NDArray[np.bool_]) -> None:
        self._ended.append((len(self._noted) - 1, flags))

    def stop(self) -> None:
        """Note nothing any more."""
        self.is_full, self.note, self.note_end = True, None, None

    def tidy(self, at_least: int = 0) -> None:
        """Join noted ids to save memory, and count ends, if there are more than ``at_least``."""
        if len(self._noted) + len(self._ended) <= at_least:
            return
        noted, ended = [*self._noted], [*self._ended]
        self._noted.clear()
        self._ended.clear()
        try:
            joined = None if self._declared else self._join(noted)
            if ended:
                flags = np.concatenate([flags for _, flags in ended])
                rows = [self._ids if joined is None else joined[place, : len(flags)] for place, flags in ended]
                self.ends += np.bincount(np.concatenate(rows)[flags], minlength=len(self._ids))
        except (ValueError, IndexError):  # odd lengths or types are found by the copies
            self.is_full = True

    def _join(self, noted: list[bytes]) -> NDArray[Any]:
        """Return the ids of consecutive batches, ``(batches, batch_size)``, and keep them unless all were in order.

        Where all batches must have the same length, the first of another length ends the notes.
        """
        if self._fewest_rows is None:
            size = self._batch_size * self._type.itemsize
            whole = next((at for at, each in enumerate(noted) if len(each) != size), len(noted))
            if whole < len(noted):
                self.stop()
            joined = np.frombuffer(b"".join(noted[:whole]), self._type).reshape(-1, self._batch_size)
        else:
            rows = np.array([len(each) for each in noted], np.int64) // self._type.itemsize
            joined = np.full((len(noted), self._batch_size), NO_ROW, np.int64)
            joined[np.arange(self._batch_size) < rows[:, None]] = np.frombuffer(b"".join(noted), self._type)
        if self.in_order and bool((joined == self._ids).all()):
            self._ordered += len(joined)
        elif len(joined):
            self.give_up_order()
            self._joined.append(joined.astype(self._kept_type))
        if self.nbytes > MOST_BYTES:
            self.stop()
        return joined

    def give_up_order(self) -> None:
        """Keep the ids of the batches that were in order, because not all are."""
        if self.in_order and self._ordered:
            self._joined.append(np.tile(self._ids.astype(self._kept_type), (self._ordered, 1)))
        self.in_order = False

    def orders(self) -> Iterator[Order]:
        """Yield the ids that were kept."""
        first = 0
        for part in self._joined:
            yield Order(first, part)
            first += len(part)

    def silent(self) -> frozenset[int]:
        """Return the environments that have not answered for a long time. Nothing is noted any more."""
        self.tidy()
        self.note = self.note_end = None
        if self.in_order or self.is_full:
            return frozenset()
        seen = LastSeen(len(self._ids))
        for part in self._joined:
            if part.max(initial=0) >= len(self._ids):
                return frozenset()  # such ids are found by the copies
            seen.add(part)
        found = np.flatnonzero(seen.silent & (seen.since > _SILENT_SHARE * seen.batches))
        self._silent = dict(zip(found.tolist(), seen.since[found].tolist(), strict=True))
        return frozenset(self._silent)

    def left_behind(self, missing: set[int], seconds: float) -> str | None:
        """Return the fault if some of those still have not answered after ``seconds`` of stepping others."""
        return next((_left_behind(*each, seconds) for each in self._silent.items() if each[0] in missing), None)


# An environment is silent after _SILENT batches without an answer, plus _TIMES_SILENT times the batches that it usually
# needs for one. If it does not answer within PATIENCE_S seconds of stepping either, it is left behind.
_SILENT, _TIMES_SILENT = 1000, 50
PATIENCE_S = 20.0
# Of the time between two batches no more than this counts: the consumer may have paused.
MOST_BETWEEN_S = 0.1
_LOOK_EVERY = 256  # batches


class LastSeen:
    """The batch in which each environment answered last, and how often it has answered."""

    def __init__(self, num_envs: int) -> None:
        self.batches = 0
        self._rows = np.zeros(num_envs, np.int64)
        self._last = np.full(num_envs, -1)

    def add(self, env_ids: NDArray[Any]) -> None:
        """Take the ids of the next batches, ``(batches, batch_size)``."""
        numbers = np.arange(self.batches, self.batches + len(env_ids)).repeat(env_ids.shape[1])
        ids = env_ids.ravel()
        there = ids != NO_ROW
        self._rows += np.bincount(ids[there], minlength=len(self._rows))
        self._last[ids[there]] = numbers[there]
        self.batches += len(env_ids)

    @property
    def since(self) -> NDArray[np.int64]:
        """The batches since the last answer of each environment."""
        found: NDArray[np.int64] = self.batches - 1 - self._last
        return found

    @property
    def silent(self) -> NDArray[np.bool_]:
        """Which environments are silent by now."""
        usual = (self._last + 1) / np.maximum(1, self._rows)
        found: NDArray[np.bool_] = self.since > _SILENT + _TIMES_SILENT * usual
        return found


def _left_behind(env_id: int, batches: int, seconds: float) -> str:
    return f"environment {env_id} is left behind: no answer in the last {batches:,} batches and {seconds:g} s"


class Silence:
    """Looks for an environment that is left behind while a backend is stepped. ``clock`` is in seconds."""

    def __init__(self, num_envs: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen = LastSeen(num_envs)
        self._spent, self._now = 0.0, clock()
        self._last_spent = np.zeros(num_envs)

    def note(self, env_ids: NDArray[np.integer]) -> str | None:
        """Take the ids of the next batch. Returns the fault if an environment is left behind, None if none is."""
        now = self._clock()
        self._spent += min(MOST_BETWEEN_S, now - self._now)
        self._now = now
        self._last_spent[env_ids] = self._spent
        self._seen.add(env_ids[None])
        if self._seen.batches % _LOOK_EVERY:
            return None
        lost = np.flatnonzero(self._seen.silent & (self._spent - self._last_spent > PATIENCE_S))
        return _left_behind(int(lost[0]), int(self._seen.since[lost[0]]), PATIENCE_S) if len(lost) else None
