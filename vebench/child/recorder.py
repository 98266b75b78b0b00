"""Keeps some of what a backend returns while it is timed, at moments and of environments that it cannot foresee.

Within a window only copies are made. They are checked, and written to a file, when all windows are over. Then another
process steps the same environments with the reference, up to these moments, and compares (``vebench.child.replay``).
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vebench.backends.interface import CountsFrames
from vebench.child.proof.batches import about, changed, malformed
from vebench.child.proof.recording import Began, Broken, Ended, Failed, Order, Rows, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO

    from numpy.typing import NDArray

    from vebench.backends.interface import Batch, VectorBackend
    from vebench.child.proof.recording import About

# A window of a second or more has about this many moments, a shorter one fewer, but at least one. A cell with so many
# windows that these would be more than MOST_MOMENTS has them in the first ones.
MOMENTS_PER_SECOND, MOST_MOMENTS = 8, 256
# Every so many moments are to begin with an end.
ENDS_EVERY = 3
# Environments whose observations are recorded: FEW where there are not many, because each has to be stepped again.
SHOWN, FEW, NOT_MANY = 4, 2, 16
# What is kept takes at most so much memory: copies of batches, and which environments were in which batch.
MOST_BYTES, MOST_HISTORY_BYTES = 64 << 20, 128 << 20
CHUNK = 1 << 17  # batches of a window whose ids are put together, and whose ends are counted, before it is over
NOTHING = np.empty(0, np.int64)
ORDER_LOST = "its rows came in another order than at first: which actions they answer is not known any more"

# The arrays of a batch, in the order of ``Batch``.
Arrays = tuple["NDArray[Any]", "NDArray[Any]", "NDArray[Any]", "NDArray[Any]", "NDArray[Any]"]


class Kept(NamedTuple):
    """The copy of a batch. ``places`` are the rows whose observations were copied, of ``length`` rows."""

    number: int
    length: int
    places: NDArray[np.intp]
    observations: NDArray[Any]
    rewards: NDArray[Any]
    terminated: NDArray[Any]
    truncated: NDArray[Any]
    env_ids: NDArray[Any]
    frames: NDArray[np.int64]
    ends: NDArray[np.int64]

    @property
    def arrays(self) -> Arrays:
        """The copied arrays, in the order of ``Batch``."""
        return self.observations, self.rewards, self.terminated, self.truncated, self.env_ids


class Recorder:
    """Draws the moments, and keeps what was returned at them.

    ``first`` is the batch of the reset; the backend was built and reset with ``backend_seed``, and its actions are
    drawn from it. ``readings`` is how often the loop asks for a moment in a window. ``seed``: moments and environments
    are drawn from it.
    """

    def __init__(self, backend: VectorBackend, first: Batch, backend_seed: int, seed: int, readings: int) -> None:
        self._backend, self._backend_seed = backend, backend_seed
        self._batch_size = backend.info.batch_size
        self._reuses_buffers = backend.info.reuses_buffers
        self._random = Random(seed)  # noqa: S311 - it is the seed that is not known beforehand
        self._readings = readings
        self._left, self._every, self._gap, self._moments = 0, 1, 1, 0
        self._kept: list[Kept] = []
        self._broken: tuple[int, str] | None = None
        self._over = False
        self._bytes = 0
        count = backend.info.num_envs
        drawn = self._random.sample(range(count), min(count, SHOWN if count >= NOT_MANY else FEW))
        self.shown = frozenset(drawn)
        self._is_shown = np.zeros(count, np.bool_)
        self._is_shown[drawn] = True
        self._ids = np.arange(count)
        # A backend that has returned all rows, in order, does so always; recorded batches show if it does not.
        self.in_order = bool(np.array_equal(first.env_ids, self._ids))
        self._about = self._reported()
        self._id_type = np.asarray(first.env_ids).dtype
        # For each batch the bytes of its ids, unless rows are in order; after them, if it has ends, where these are.
        self._history: list[bytes | NDArray[np.bool_]] = []
        self._joined: list[NDArray[Any]] = []
        self._ends = np.zeros(count, np.int64)
        self._last: tuple[Kept, Arrays] | None = None
        self.for_end = False
        plain = all(type(array) is np.ndarray for array in first)  # if not, that is the fault
        self.note_end: Callable[[NDArray[np.bool_]], None] | None = self._history.append if plain else None
        self.note: Callable[[bytes], None] | None = self._history.append if plain and not self.in_order else None
        if self.note is not None:
            self.note(first.env_ids.tobytes())
        self.keep(0, tuple(first))

    @property
    def nbytes(self) -> int:
        """The bytes that are kept."""
        return self._bytes + sum(part.nbytes for part in self._joined)

    def expect(self, moments: int) -> None:
        """Begin a part of the measurement that is to have about so many moments; with 0, one that has none."""
        moments = min(moments, max(0, MOST_MOMENTS - self._moments))
        self._left = 2 * moments  # by chance there may be more than expected
        self._every = max(1, self._readings // max(1, moments))
        self._gap = self._random.randint(1, 2 * self._every)

    def due(self) -> bool:
        """Return whether the stretch of batches that begins now has a moment. The loop asks once before each."""
        if not self._left or self._over:
            return False
        self._gap -= 1
        if self._gap > 0:
            return False
        self._gap = self._random.randint(1, 2 * self._every)
        self._left -= 1
        self._moments += 1
        self.for_end = self.for_end or not self._moments % ENDS_EVERY
        return True

    def place(self, batches: int) -> int:
        """Return how many batches of a stretch of ``batches`` come before its moment."""
        return self._random.randrange(batches)

    def wait_on(self) -> None:
        """Note that no episode has ended yet, where a moment is to begin with an end: the next stretch has it, too."""
        self._gap = 1
        self._left += 1
        self._moments -= 1

    def keep(self, number: int, arrays: tuple[Any, ...], *, counts: bool = False) -> None:
        """Copy batch ``number``: its flags, rewards and ids, and the observations of environments that are shown.

        With ``counts``, also keep how often each environment has ended, and ask the backend for its frames. That takes
        time.
        """
        if self._over:
            return
        if any(type(array) is not np.ndarray for array in arrays):
            self._break(number, malformed(arrays, len(self._ids), self._batch_size) or "its rows are no plain arrays")
            return
        observations, rewards, terminated, truncated, env_ids = arrays
        try:
            places = self._is_shown[env_ids].nonzero()[0]
            shown = observations[places]
        except IndexError:
            self._break(number, malformed(arrays, len(self._ids), self._batch_size) or "rows are missing")
            return
        kept = Kept(
            number,
            len(observations),
            places,
            shown,
            rewards.copy(),
            terminated.copy(),
            truncated.copy(),
            env_ids.copy(),
            self._frames(env_ids) if counts else NOTHING,
            self._ends.copy() if counts else NOTHING,
        )
        self._check_last(number)
        self._kept.append(kept)
        self._last = kept, (observations, rewards, terminated, truncated, env_ids)
        self._bytes += shown.nbytes + 4 * rewards.nbytes
        if self._bytes > MOST_BYTES:
            self._over = True

    def let_go(self) -> None:
        """Release the arrays of the backend: it is measured on."""
        self._last = None

    def stepped(self, number: int, rows: int, batches: int) -> None:
        """Check that so many ``batches``, up to batch ``number``, had so many ``rows``."""
        if len(self._history) > CHUNK:
            self.tidy()
        if rows != batches * self._batch_size and not self._over:
            self._break(number, f"rows counted that were not returned: batches without their {self._batch_size} rows")

    def tidy(self) -> None:
        """Put together the ids of the last batches, because they take less room, and count their ends."""
        ids: list[bytes] = []
        ended: list[NDArray[np.bool_]] = []
        places: list[int] = []
        for item in self._history:
            if isinstance(item, bytes):
                ids.append(item)
            else:
                ended.append(item)
                places.append(len(ids) - 1)
        self._history.clear()
        try:
            self._count(ended, self._ids if self.in_order else self._join(ids)[places])
        except ValueError:  # batches of odd lengths or types, which is noticed elsewhere
            self._over = True

    def _join(self, ids: list[bytes]) -> NDArray[Any]:
        """Return the ids of consecutive batches, ``(batches, batch_size)``, and keep them."""
        joined = np.frombuffer(b"".join(ids), self._id_type).reshape(-1, self._batch_size)
        if len(joined):
            self._joined.append(joined.astype(np.min_scalar_type(len(self._ids))))
        if sum(part.nbytes for part in self._joined) > MOST_HISTORY_BYTES:
            self._over, self.note, self.note_end = True, None, None
        return joined

    def _count(self, ended: list[NDArray[np.bool_]], env_ids: NDArray[Any]) -> None:
        """Count the ends of batches with these ids, ``(batches, batch_size)``; not looked at if rows are in order."""
        if not ended:
            return
        flags = np.stack(ended)
        if self.in_order:
            self._ends += flags.sum(axis=0)
        else:
            self._ends += np.bincount(env_ids[flags], minlength=len(self._ids))

    def write(self, file: IO[bytes], batches: int) -> None:
        """Check what was kept, and write it to a file. ``batches`` have been stepped since the reset."""
        self.let_go()
        self.tidy()
        write(file, self._about)
        write(file, Began(self._backend_seed))
        order = iter(self._orders())
        told = 0
        for kept in self._kept:
            wrong = self._malformed(kept)
            if wrong is not None:
                self._broken = (kept.number, wrong)
                break
            while not self.in_order and told <= kept.number:
                part = next(order, None)
                if part is None:
                    break
                write(file, part)
                told += len(part.env_ids)
            if self._broken is not None and kept.number >= self._broken[0]:
                break
            if self.in_order and not np.array_equal(kept.env_ids, self._ids):
                write(file, Failed(ORDER_LOST))
                return
            write(file, _rows(kept))
        if self._broken is not None:
            write(file, Broken(*self._broken))
            write(file, Ended(self._broken[0]))
        else:
            write(file, Ended(batches, changed(self._about, self._reported()) or ""))

    def _malformed(self, kept: Kept) -> str | None:
        observations = np.broadcast_to(np.empty(()), (kept.length,))
        arrays = (observations, kept.rewards, kept.terminated, kept.truncated, kept.env_ids)
        return malformed(arrays, len(self._ids), self._batch_size)

    def _orders(self) -> list[Order]:
        found, first = [], 0
        for part in self._joined:
            found.append(Order(first, part))
            first += len(part)
        return found

    def _reported(self) -> About:
        """Return what the backend reports about itself now, as plain values."""
        return about(
            self._backend.info,
            tape_seed=self._backend_seed,
            constructor_seed=self._backend_seed,
            in_order=self.in_order,
            frames_from=self._backend.frames_from if isinstance(self._backend, CountsFrames) else None,
        )

    def _check_last(self, number: int) -> None:
        """Note a fault if the arrays of the batch before this one have changed since, though they must not."""
        if self._last is None or self._reuses_buffers or self._broken is not None:
            return
        kept, (observations, *others) = self._last
        now = (observations[kept.places], *others)
        if kept.number == number - 1 and any(
            one.tobytes() != other.tobytes() for one, other in zip(kept.arrays, now, strict=True)
        ):
            self._break(kept.number, "rows change after they were handed out, though it does not report that")

    def _frames(self, env_ids: NDArray[Any]) -> NDArray[np.int64]:
        """Return the frames of each environment's episode so far, -1 where it is not known, empty if nothing is."""
        if not isinstance(self._backend, CountsFrames):
            return NOTHING
        counted = self._backend.frames()
        if counted is None:
            return NOTHING
        frames = np.full(len(self._ids), -1, np.int64)
        frames[env_ids] = counted[env_ids]
        return frames

    def _break(self, number: int, fault: str) -> None:
        if self._broken is None:
            self._broken = (number, fault)
        self._over = True


def _rows(kept: Kept) -> Rows:
    return Rows(
        kept.number,
        kept.env_ids,
        kept.rewards,
        kept.terminated,
        kept.truncated,
        kept.places,
        kept.observations,
        kept.frames,
        kept.ends,
    )
