"""Keeps some of what a backend returns while it is timed, at moments and of environments that it cannot foresee.

Within a window only copies are made. They are checked, and written to a file, when all windows are over. Then another
process steps the same environments with the reference, up to these moments, and compares (``vebench.child.replay``).
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vebench.backends import trees
from vebench.backends.interface import CountsFrames
from vebench.child.loading import one_line
from vebench.child.record.batches import CHANGED, OUT_OF_ORDER, about, changed, malformed, out_of_order, plain_arrays
from vebench.child.record.recording import NO_ROW, Acted, Began, Broken, Ended, Order, Rows, write
from vebench.child.record.silence import left_behind, silent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import IO

    from numpy.typing import NDArray

    from vebench.backends.interface import ArrayTree, BackendInfo, Batch, VectorBackend
    from vebench.child.record.recording import About

# A window of a second or more has about this many moments, a shorter one fewer, but at least one. A cell with so many
# windows that these would be more than MOST_MOMENTS has them in the first ones.
MOMENTS_PER_SECOND, MOST_MOMENTS = 8, 256
# Every so many moments are to begin with an end.
ENDS_EVERY = 3
# Environments whose observations are recorded: FEW where there are not many, because each has to be stepped again. In
# full, MOST_SHOWN, as far as the copies fit.
SHOWN, FEW, NOT_MANY, MOST_SHOWN = 4, 2, 16, 16
# The first batches after the reset are kept with the observations of all environments, as far as these fit.
FIRST, FIRST_BYTES = 10, 16 << 20
# Batches of a window whose arrays are held until it is over, to see whether they change, and the bytes that they have.
HELD, HELD_BYTES = 4, 16 << 20
# What is kept takes at most so much memory: copies of batches, in full or not, and which environments were in which
# batch.
MOST_BYTES, MOST_FULL_BYTES, MOST_HISTORY_BYTES = 64 << 20, 256 << 20, 128 << 20
# So do the actions of a policy. What comes after them could not be made again.
MOST_ACTION_BYTES = 64 << 20
# Batches one after another that are kept at a moment: an end with what follows it, or rows that must not change.
CONSECUTIVE = 3
CHUNK = 1 << 17  # batches of a window whose ids are put together, and whose ends are counted, before it is over
NOTHING = np.empty(0, np.int64)
ROWS_CHANGED = f"rows {CHANGED}, though no reuse of buffers is declared"
# At the end of a cell, environments are waited for that are silent, and have been for this share of all batches.
SILENT_SHARE = 0.25

# The arrays of a batch, in the order of ``Batch``.
Arrays = tuple["ArrayTree", "NDArray[Any]", "NDArray[Any]", "NDArray[Any]", "NDArray[Any]"]


class Kept(NamedTuple):
    """The copy of a batch. ``places`` are the rows whose observations were copied, of ``length`` rows."""

    number: int
    length: int
    places: NDArray[np.intp]
    observations: ArrayTree
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
    drawn from it. ``readings`` is how often the loop asks for a moment in a window. ``seed``: moments are drawn from
    it. ``chooser``: environments are; with the next ``turn`` of the same chooser they are those that come next.
    ``info`` is what the backend reported before it was reset, which must not change. With ``full``, as many
    environments are shown as can be.
    """

    def __init__(  # noqa: PLR0913 - what is drawn, and what it is drawn from
        self,
        backend: VectorBackend,
        first: Batch,
        backend_seed: int,
        seed: int,
        readings: int,
        *,
        chooser: int = 0,
        turn: int = 0,
        info: BackendInfo | None = None,
        full: bool = False,
    ) -> None:
        self._backend, self._backend_seed = backend, backend_seed
        self._batch_size, self._fewest_rows = backend.info.batch_size, backend.info.fewest_rows
        self._reuses_buffers = backend.info.reuses_buffers
        self._random = Random(seed)  # noqa: S311 - it is the seed that is not known beforehand
        self._readings = readings
        self._left, self._every, self._gap, self._moments = 0, 1, 1, 0
        self._kept: list[Kept] = []
        self._broken: tuple[int, str] | None = None
        self._over = False
        self._bytes = 0
        count = backend.info.num_envs
        plain = plain_arrays(first, exactly=True) is not None  # if not, that is the fault
        row_bytes = max(1, _nbytes(trees.part(first.observations, slice(1)))) if plain else 1
        self._most_bytes = MOST_FULL_BYTES if full else MOST_BYTES
        few = _few(count, row_bytes, full=full)
        order = Random(chooser).sample(range(count), count)  # noqa: S311 - likewise
        self.shown = frozenset(order[(turn * few + place) % count] for place in range(few))
        self._is_shown = _mask(count, self.shown)
        self._ids = np.arange(count)
        self._kept_type = np.min_scalar_type(count if self._fewest_rows is None else -count)
        # What is declared holds for batches that are not looked at; of others the ids of every batch are noted, because
        # an order that is only usual may be another in one of thousands.
        self._declared = backend.info.in_order
        self.in_order = self._declared or not out_of_order(first.env_ids, count)
        self._ids_in_order = np.asarray(first.env_ids).tobytes()
        self._ordered = 0  # batches whose ids were noted and were in order, before any that were not
        self._about = self._reported(info or backend.info)
        self._id_type = np.asarray(first.env_ids).dtype
        # For each batch the bytes of its ids, unless these are declared; after them, if it has ends, where these are.
        self._history: list[bytes | NDArray[np.bool_]] = []
        self._joined: list[NDArray[Any]] = []
        self._ends = np.zeros(count, np.int64)
        self._last: tuple[Kept, Arrays] | None = None
        self._held: list[tuple[Kept, Arrays]] = []
        self._at_end: str | None = None
        self._silent: dict[int, int] = {}  # environments, and the batches for which each has been silent
        self._waited = 0.0  # seconds for which it was waited for them
        self._began: int | None = None
        self._rows = 0  # of batches that may have fewer rows than others
        self._windows: list[int] = []
        self._again: tuple[int, Kept] | None = None
        self._actions: list[ArrayTree] = []  # those of a policy, batch by batch
        self._action_bytes = 0
        self.for_end = False
        fit = FIRST_BYTES // (FIRST + 2) // row_bytes if plain else 0
        self._is_shown_first = _mask(count, self._random.sample(range(count), min(count, fit)))
        self._first: list[Kept] = []
        self.note_end: Callable[[NDArray[np.bool_]], None] | None = self._history.append if plain else None
        self.note: Callable[[bytes], None] | None = self._history.append if plain and not self._declared else None
        if self.note is not None:
            self.note(first.env_ids.tobytes())
        self.keep(0, tuple(first))
        self.keep_first(0, tuple(first))

    @property
    def nbytes(self) -> int:
        """The bytes that are kept."""
        return self._bytes + self._action_bytes + sum(part.nbytes for part in self._joined)

    def expect(self, moments: int) -> None:
        """Begin a part of the measurement that is to have about so many moments; with 0, one that has none."""
        moments = min(moments, max(0, MOST_MOMENTS - self._moments))
        self._left = 2 * moments  # by chance there may be more than expected
        self._every = max(1, self._readings // max(1, moments))
        self._gap = self._random.randint(1, 2 * self._every)

    def begins(self, number: int, moments: int) -> None:
        """Begin a window after batch ``number``."""
        self._began = self._at(number)
        self.expect(moments)

    def ended(self, number: int) -> None:
        """End a window, or the warm-up, with batch ``number``. What follows has no moments."""
        if self._began is not None:
            self._windows.append(self._at(number) - self._began)
        self._began = None
        self.expect(0)

    def _at(self, number: int) -> int:
        """Return by how much windows are counted up to batch ``number``: by batches, or by rows if these vary."""
        return number if self._fewest_rows is None else self._rows

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

    def note_actions(self, actions: ArrayTree) -> None:
        """Keep a batch of actions that a policy has chosen. On a tape, they need not be kept."""
        if self._over:
            return
        self._action_bytes += _nbytes(actions)
        self._actions.append(actions)
        self._over = self._action_bytes > MOST_ACTION_BYTES

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
        begins = self._last is None and not counts
        kept = self._copied(number, arrays, self._is_shown, counts=counts)
        if kept is None:
            return
        self._kept.append(kept)
        if begins and not self._reuses_buffers and len(self._held) < HELD:
            size = sum(map(_nbytes, arrays))
            if size * (len(self._held) + 1) <= HELD_BYTES:
                self._held.append((kept, arrays))

    def keep_first(self, number: int, arrays: tuple[Any, ...]) -> None:
        """Copy batch ``number``, one of the first, with the observations of as many environments as fit."""
        kept = None if self._over else self._copied(number, arrays, self._is_shown_first)
        if kept is not None:
            self._first.append(kept)

    def keep_reset(self, seed: int, reset: Callable[[int], Any]) -> None:
        """Reset once more, with another seed, and copy the rows of that. Call this when all windows are over."""
        if self._broken is not None:
            return
        self.let_go()
        try:
            arrays = tuple(reset(seed))
        except Exception as error:  # noqa: BLE001 - a library may raise anything; it is the fault
            self._at_end = f"a second reset, with another seed, fails: {one_line(error)}"
            return
        wrong = self._wrong(arrays)
        kept = None if wrong is not None else self._copied(0, arrays, self._is_shown_first)
        self._at_end = wrong and f"after a second reset {wrong}"
        self._again = None if kept is None else (seed, kept)

    def _copied(
        self, number: int, arrays: tuple[Any, ...], is_shown: NDArray[np.bool_], *, counts: bool = False
    ) -> Kept | None:
        """Return copies of a batch, with the observations of these environments; None if it is none."""
        if plain_arrays(arrays, exactly=True) is None:
            self._break(number, self._wrong(arrays) or "its rows are no plain arrays")
            return None
        observations, rewards, terminated, truncated, env_ids = arrays
        try:
            places = is_shown[env_ids].nonzero()[0]
            shown = trees.part(observations, places)
        except IndexError:
            self._break(number, self._wrong(arrays) or "rows are missing")
            return None
        lengths = [len(leaf) for leaf in trees.leaves(observations)]
        kept = Kept(
            number,
            next((length for length in lengths if length != len(env_ids)), len(env_ids)),
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
        self._last = kept, (observations, rewards, terminated, truncated, env_ids)
        self._bytes += _nbytes(shown) + 4 * rewards.nbytes
        if self._bytes > self._most_bytes:
            self._over = True
        return kept

    def let_go(self) -> None:
        """Release the arrays of the backend: it is measured on."""
        self._last = None

    def look_again(self) -> None:
        """Note a fault if arrays of the last window have changed since. Call this outside a window."""
        for kept, arrays in self._held:
            if _differ(kept, arrays):
                self._break(kept.number, ROWS_CHANGED)
        self._held.clear()

    def stepped(self, number: int, rows: int, batches: int, env_ids: Any) -> None:  # noqa: ANN401 - if malformed
        """Check that so many ``batches``, up to batch ``number``, had so many ``rows``; the last had ``env_ids``."""
        if self._declared and not self._over and type(env_ids) is np.ndarray:
            as_at_first = env_ids.tobytes() == self._ids_in_order
            if not as_at_first and _is_permuted(env_ids, self._ids):  # rows that are missing have another name
                self._break(number, OUT_OF_ORDER)
        if self._fewest_rows is not None and rows >= 0:
            self._rows += rows
        elif rows != batches * self._batch_size and not self._over:
            self._break(number, f"rows counted that were not returned: batches without their {self._batch_size} rows")
        if len(self._history) > CHUNK:
            self.tidy()

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
            if self._fewest_rows is None:
                self._count(ended, self._ids if self._declared else self._join(ids)[places])
            else:
                joined = self._join(ids)
                for flags, place in zip(ended, places):  # noqa: B905 - Python 3.10, and of equal length
                    self._ends += np.bincount(joined[place][: len(flags)][flags], minlength=len(self._ids))
        except (ValueError, IndexError):  # batches of odd lengths or types, which is noticed elsewhere
            self._over = True

    def _join(self, ids: list[bytes]) -> NDArray[Any]:
        """Return the ids of consecutive batches, ``(batches, batch_size)``, and keep them unless all were in order.

        Where all must have as many rows, those from the first batch of another length on are left out, and no more
        are noted.
        """
        if self._fewest_rows is None:
            size = self._batch_size * self._id_type.itemsize
            whole = next((at for at, each in enumerate(ids) if len(each) != size), len(ids))
            if whole < len(ids):
                self._stop_noting()
            joined = np.frombuffer(b"".join(ids[:whole]), self._id_type).reshape(-1, self._batch_size)
        else:
            flat = np.frombuffer(b"".join(ids), self._id_type)
            rows = np.array([len(each) for each in ids], np.int64) // self._id_type.itemsize
            joined = np.full((len(ids), self._batch_size), NO_ROW, np.int64)
            joined[np.arange(self._batch_size) < rows[:, None]] = flat
        if self.in_order and bool((joined == self._ids).all()):
            self._ordered += len(joined)
        elif len(joined):
            self._give_up_order()
            self._joined.append(joined.astype(self._kept_type))
        if sum(part.nbytes for part in self._joined) > MOST_HISTORY_BYTES:
            self._stop_noting()
        return joined

    def _stop_noting(self) -> None:
        """Keep nothing that comes from now on."""
        self._over, self.note, self.note_end = True, None, None

    def _give_up_order(self) -> None:
        """Keep the ids of the batches that were in order, because not all are."""
        if self.in_order and self._ordered:
            self._joined.append(np.tile(self._ids.astype(self._kept_type), (self._ordered, 1)))
        self.in_order = False

    def _count(self, ended: list[NDArray[np.bool_]], env_ids: NDArray[Any]) -> None:
        """Count the ends of batches with these ids, ``(batches, batch_size)``, or with those that are declared."""
        if not ended:
            return
        flags = np.stack(ended)
        if self._declared:
            self._ends += flags.sum(axis=0)
        else:
            self._ends += np.bincount(env_ids[flags], minlength=len(self._ids))

    def write(self, file: IO[bytes], batches: int) -> None:
        """Check what was kept, and write it to a file. ``batches`` have been stepped since the reset."""
        self.let_go()
        self.look_again()
        self.tidy()
        first, kept = self._sound(self._first), self._sound(self._kept)
        if self._again is not None and not self._declared and out_of_order(self._again[1].env_ids, len(self._ids)):
            self._give_up_order()
        write(file, replace(self._about, in_order=self.in_order))
        write(file, Began(self._backend_seed))
        if self._actions:
            write(file, Acted(self._stacked(self._actions[:FIRST])))
        for one in first:
            write(file, _rows(one))
        if self._again is not None:
            write(file, Began(self._again[0]))
            write(file, _rows(self._again[1]))
        write(file, Began(self._backend_seed))
        if self._actions:
            write(file, Acted(self._stacked(self._actions)))
        self._write_rows(file, kept)
        if self._broken is not None:
            write(file, Broken(*self._broken))
            write(file, Ended(self._broken[0]))
        else:
            at_end = self._at_end or self._left_behind() or changed(self._about, self._reported(self._backend.info))
            write(file, Ended(batches, at_end or "", tuple(self._windows)))

    def _stacked(self, actions: list[ArrayTree]) -> ArrayTree:
        """Return batches of actions as one array, ``(batches, batch_size, *action_shape)``, leaf by leaf."""
        stacked: ArrayTree = trees.mapped(lambda *batches: self._stacked_array(batches), *actions)
        return stacked

    def _stacked_array(self, batches: Sequence[NDArray[np.generic]]) -> NDArray[np.generic]:
        stacked = np.zeros((len(batches), self._batch_size, *batches[0].shape[1:]), batches[0].dtype)
        for batch, each in zip(stacked, batches):  # noqa: B905 - Python 3.10, and of equal length
            batch[: len(each)] = each
        return stacked

    def _write_rows(self, file: IO[bytes], found: list[Kept]) -> None:
        """Write batches, and before them the ids of all batches up to there, unless rows are in order."""
        order = iter(self._orders())
        told = 0
        for kept in found:
            while not self.in_order and told <= kept.number:
                part = next(order, None)
                if part is None:
                    break
                write(file, part)
                told += len(part.env_ids)
            write(file, _rows(kept))

    def _sound(self, found: list[Kept]) -> list[Kept]:
        """Return the batches before the first that breaks the interface, which is noted."""
        for kept in found:
            wrong = self._malformed(kept)
            if wrong is not None:
                if self._broken is None or kept.number <= self._broken[0]:
                    self._broken = (kept.number, wrong)
                break
        return [kept for kept in found if self._broken is None or kept.number < self._broken[0]]

    def silent(self) -> frozenset[int]:
        """Return the environments that have not answered for a long time. Call this when all windows are over.

        The ids of batches that follow are not kept any more.
        """
        self.tidy()
        self.note = self.note_end = None
        self._silent = {} if self.in_order or self._over or not self._joined else self._silences()
        return frozenset(self._silent)

    def waited(self, missing: set[int], seconds: float) -> None:
        """Note which environments have still not answered when others were stepped for so many seconds more."""
        self._silent = {env_id: batches for env_id, batches in self._silent.items() if env_id in missing}
        self._waited = seconds

    def _left_behind(self) -> str | None:
        return next((left_behind(*each, self._waited) for each in self._silent.items()), None) if self._waited else None

    def _silences(self) -> dict[int, int]:
        """Return the environments that are silent, and for how many batches they have been."""
        count, batches = len(self._ids), 0
        rows, last = np.zeros(count, np.int64), np.full(count, -1)
        for part in self._joined:
            there = part.ravel() != NO_ROW
            env_ids = part.ravel()[there]
            if env_ids.max(initial=0) >= count:
                return {}  # which is noticed elsewhere
            rows += np.bincount(env_ids, minlength=count)
            last[env_ids] = np.arange(batches, batches + len(part)).repeat(self._batch_size)[there]
            batches += len(part)
        since = batches - 1 - last
        found = np.flatnonzero(silent(batches, last, rows) & (since > SILENT_SHARE * batches))
        return dict(zip(found.tolist(), since[found].tolist(), strict=True))

    def _wrong(self, arrays: Any) -> str | None:  # noqa: ANN401 - if malformed
        return malformed(arrays, len(self._ids), self._batch_size, self._fewest_rows)

    def _malformed(self, kept: Kept) -> str | None:
        observations = np.broadcast_to(np.empty(()), (kept.length,))
        arrays = (observations, kept.rewards, kept.terminated, kept.truncated, kept.env_ids)
        wrong = self._wrong(arrays)
        if wrong is None and self._declared and out_of_order(kept.env_ids, len(self._ids)):
            return OUT_OF_ORDER
        return wrong

    def _orders(self) -> list[Order]:
        found, first = [], 0
        for part in self._joined:
            found.append(Order(first, part))
            first += len(part)
        return found

    def _reported(self, info: BackendInfo) -> About:
        """Return what the backend has reported about itself, as plain values."""
        return about(
            info,
            tape_seed=self._backend_seed,
            constructor_seed=self._backend_seed,
            in_order=self.in_order,
            frames_from=self._backend.frames_from if isinstance(self._backend, CountsFrames) else None,
        )

    def _check_last(self, number: int) -> None:
        """Note a fault if the arrays of the batch before this one have changed since, though they must not."""
        if self._last is None or self._reuses_buffers or self._broken is not None:
            return
        kept, arrays = self._last
        if kept.number == number - 1 and _differ(kept, arrays):
            self._break(kept.number, ROWS_CHANGED)

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


def _few(count: int, row_bytes: int, *, full: bool) -> int:
    """Return how many of ``count`` environments are shown."""
    few = SHOWN if count >= NOT_MANY else FEW
    if full:
        few = max(few, min(MOST_SHOWN, MOST_FULL_BYTES // (MOST_MOMENTS * CONSECUTIVE * row_bytes)))
    return min(count, few)


def _mask(count: int, env_ids: Iterable[int]) -> NDArray[np.bool_]:
    """Return for each environment whether it is one of these."""
    mask = np.zeros(count, np.bool_)
    mask[list(env_ids)] = True
    return mask


def _is_permuted(env_ids: NDArray[Any], ids: NDArray[np.int64]) -> bool:
    """Return whether these are all environments, in another order."""
    return not np.array_equal(env_ids, ids) and np.array_equal(np.sort(env_ids), ids)


def _differ(kept: Kept, arrays: Arrays) -> bool:
    """Return whether arrays are not what they were when they were copied."""
    observations, *others = arrays
    now = (*trees.leaves(trees.part(observations, kept.places)), *others)
    then = (*trees.leaves(kept.observations), *kept.arrays[1:])
    return any(one.tobytes() != other.tobytes() for one, other in zip(then, now, strict=True))


def _nbytes(tree: ArrayTree) -> int:
    return sum(leaf.nbytes for leaf in trees.leaves(tree))


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
