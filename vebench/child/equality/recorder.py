"""Records a random sample of batches and environments while a backend is timed.

Within a window, copies are made (``Copies``) and ids are noted (``ids.py``). After all windows, they are checked and
written to a file. Another process compares them with the reference (``replay.py``).
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends import trees
from vebench.backends.interface import CountsFrames
from vebench.child.answers import READINGS_PER_WINDOW, describe
from vebench.child.equality import recording
from vebench.child.equality.ids import CHUNK, Ids
from vebench.child.equality.recording import CHANGED, OUT_OF_ORDER, Acted, Began, Ended, Order, Rows, out_of_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import IO

    from numpy.typing import NDArray

    from vebench.backends.interface import ArrayTree, BackendInfo, Batch, VectorBackend
    from vebench.child.request import Recording

# A window of a second or more has about this many moments, a shorter one fewer, but at least one. A cell has
# _MOST_MOMENTS at most, in its first windows.
MOMENTS_PER_SECOND, _MOST_MOMENTS = 48, 256
# One in this many moments begins with an end.
_ENDS_EVERY = 3
# Environments whose observations are recorded: _FEW below _NOT_MANY environments, because each is stepped again. In
# full, _MOST_SHOWN, as far as the copies fit.
SHOWN, _FEW, _NOT_MANY, _MOST_SHOWN = 4, 2, 16, 16
# The first batches after the reset are kept with the observations of all environments, as far as these fit.
FIRST, _FIRST_BYTES = 10, 16 << 20
# Bytes of copied batches, in full or not, and of a policy's actions. Batches after the last kept actions could not be
# repeated.
MOST_BYTES, _MOST_FULL_BYTES, _MOST_ACTION_BYTES = 64 << 20, 256 << 20, 64 << 20
# Consecutive batches that are kept at a moment: an end with the batches after it, or rows that must not change.
CONSECUTIVE = 3
# Batches of a window whose arrays are held until it is over, to see whether they change, and their bytes at most.
_HELD, _HELD_BYTES = 4, 16 << 20
_NOTHING = np.empty(0, np.int64)
ROWS_CHANGED = f"rows {CHANGED}, although the adapter declares no reuse of buffers"
Arrays = tuple[Any, ...]  # of a batch


class Recorder:
    """Draws moments, and keeps the batches at these moments.

    ``first``: the batch of the reset. ``seeds``: of the reset, and of the action tape. ``info``: the backend's report
    before the reset, which must not change.
    """

    def __init__(
        self,
        backend: VectorBackend,
        first: Batch,
        seeds: tuple[int, int],
        asked: Recording,
        info: BackendInfo | None = None,
    ) -> None:
        self._backend, self._info = backend, backend.info
        self._start_seed, tape_seed = seeds
        frames_from = backend.frames_from if isinstance(backend, CountsFrames) else None
        self._about = recording.about(info or backend.info, tape_seed, frames_from)
        self._random = Random(asked.seed)
        row_bytes = max(1, nbytes(trees.part(first.observations, slice(1))))
        self.ids, self.copies = Ids(backend.info, first.env_ids), Copies(backend)
        # Moments: how many are left, and readings until the next.
        self._left, self._every, self._gap, self._moments = 0, 1, 1, 0
        self._for_end = False
        self.following = 0  # batches that are kept after the last one that was drawn
        self.awaited: frozenset[int] = frozenset()  # the next end of any of these environments is kept
        self._most_bytes = _MOST_FULL_BYTES if asked.full else MOST_BYTES
        count = backend.info.num_envs
        few = SHOWN if count >= _NOT_MANY else _FEW
        if asked.full:
            few = max(few, min(_MOST_SHOWN, _MOST_FULL_BYTES // (_MOST_MOMENTS * CONSECUTIVE * row_bytes)))
        few = min(count, few)
        # Backends with other numbers of environments have them in the same order: the reference steps them once.
        order = sorted(range(count), key=lambda env_id: Random(f"{asked.chooser} {env_id}").random())
        self.shown = frozenset(order[(asked.turn * few + place) % count] for place in range(few))
        self._is_shown = np.isin(np.arange(count), [*self.shown])
        fit = _FIRST_BYTES // (FIRST + 2) // row_bytes
        self._is_shown_first = np.isin(np.arange(count), self._random.sample(range(count), min(count, fit)))
        self._kept: list[Rows] = []
        self._first: list[Rows] = []
        self._again: list[tuple[int, list[Rows], list[ArrayTree]]] = []  # later resets: seed, batches, actions
        self._at_end: str | None = None
        self._began: int | None = None
        self._windows: list[int] = []
        self._rows = 0  # of batches that may have fewer rows than others
        self._actions: list[ArrayTree] = []  # of a policy, batch by batch
        self._action_bytes = 0
        self.keep(0, tuple(first))
        self.keep_first(0, tuple(first))

    @property
    def nbytes(self) -> int:
        """The bytes that are kept."""
        return self.copies.nbytes + self._action_bytes + self.ids.nbytes

    @property
    def _is_over(self) -> bool:
        is_full = self.copies.nbytes > self._most_bytes or self._action_bytes > _MOST_ACTION_BYTES
        return is_full or self.ids.is_full or self.copies.broken is not None

    def expect(self, moments: int) -> None:
        """Begin a part of the measurement that is to have about this many moments, or none."""
        moments = min(moments, max(0, _MOST_MOMENTS - self._moments))
        self._left = 2 * moments  # by chance there may be more than expected
        self._every = max(1, READINGS_PER_WINDOW // max(1, moments))
        self._gap = self._random.randint(1, 2 * self._every)
        self.awaited = frozenset()

    def begins(self, number: int, moments: int) -> None:
        """Begin a window after batch ``number``."""
        self._began = self._at(number)
        self.expect(moments)

    def ended(self, number: int) -> None:
        """End a window, or the warm-up, with batch ``number``. Later batches have no moments."""
        if self._began is not None:
            self._windows.append(self._at(number) - self._began)
        self._began = None
        self.expect(0)

    def _at(self, number: int) -> int:
        """Return by how much windows are counted up to batch ``number``: by batches, or by rows if these vary."""
        return number if self._info.fewest_rows is None else self._rows

    def stretch(self, batches: int) -> int:
        """Return how many batches the loop steps next: ``batches`` on average, whether the last is kept or not."""
        return 1 if self.following else self._random.randrange(1, 2 * batches)

    def take(self, number: int, arrays: Arrays, ended: NDArray[np.bool_]) -> None:
        """Keep batch ``number``, the last of a stretch, if this is a moment or follows one.

        ``ended``: whether the last row of each environment is an end, ``(num_envs,)``. Some moments wait for one.
        """
        if self.following:
            self.following -= 1
        elif self.awaited and not self.awaited.isdisjoint(arrays[4][ended[arrays[4]]].tolist()):
            self._for_end, self.awaited = False, frozenset()
            self.following = CONSECUTIVE - 1
        elif not self._due():
            return
        elif self._for_end and not self.awaited:  # other moments go on while it waits
            self.awaited = self.shown
            return
        else:
            self.following = CONSECUTIVE - 1
        self.keep(number, arrays)
        if not self.following:
            self.copies.let_go()

    def _due(self) -> bool:
        if not self._left or self._is_over:
            return False
        self._gap -= 1
        if self._gap > 0:
            return False
        self._gap = self._random.randint(1, 2 * self._every)
        self._left -= 1
        self._moments += 1
        self._for_end = self._for_end or not self._moments % _ENDS_EVERY
        return True

    def note_actions(self, actions: ArrayTree) -> None:
        """Keep a batch of actions that a policy has chosen. On a tape, they need not be kept."""
        if not self._is_over:
            self._action_bytes += nbytes(actions)
            self._actions.append(actions)

    def keep(self, number: int, arrays: Arrays, *, counts: bool = False) -> None:
        """Copy batch ``number``: its flags, rewards and ids, and the observations of environments that are shown.

        With ``counts``, also how often each environment has ended, and the backend's frames, which takes time.
        """
        if not self._is_over:
            ends = self.ids.ends if counts else None
            rows = self.copies.copy(number, arrays, self._is_shown, ends=ends, held=not counts)
            self._kept += [] if rows is None else [rows]

    def keep_first(self, number: int, arrays: Arrays) -> None:
        """Copy batch ``number``, one of the first, with the observations of all environments, as far as they fit."""
        if not self._is_over:
            rows = self.copies.copy(number, arrays, self._is_shown_first)
            self._first += [] if rows is None else [rows]

    def keep_reset(self, seed: int, actions: Iterator[ArrayTree], receive: Callable[[], Batch]) -> None:
        """Reset once more, with another seed, and copy the rows of that and of the next step of each environment.

        Call this when all windows are over.
        """
        if self.copies.broken is not None or self._at_end is not None:
            return
        self.copies.let_go()
        kept: list[Rows] = []
        sent: list[ArrayTree] = []
        try:
            self._backend.reset(seed)
            for number in range(min(FIRST, 2 * -(-self._info.num_envs // self._info.batch_size))):
                if number:
                    sent.append(next(actions))
                    self._backend.send(sent[-1])
                arrays = tuple(receive())
                self._at_end = (wrong := recording.malformed(arrays, self._info)) and f"after a second reset {wrong}"
                if wrong or (rows := self.copies.copy(number, arrays, self._is_shown_first)) is None:
                    break
                kept.append(rows)
        except Exception as error:  # noqa: BLE001 - a library may raise anything; it is the fault
            self._at_end = f"a second reset with another seed fails: {describe(error)}"
        self._again.append((seed, kept, sent))

    def keep_last(self, number: int, arrays: Arrays) -> None:
        """Copy batch ``number`` and the frames of the backend after a window; check the arrays that were held in it."""
        self.copies.look_again()
        self.ids.tidy()
        self.keep(number, arrays, counts=True)
        self.copies.let_go()

    def stepped(self, number: int, rows: int, batches: int, env_ids: Any) -> None:
        """Check that ``batches`` batches, up to batch ``number``, had ``rows`` rows; the last had ``env_ids``."""
        size, count = self._info.batch_size, self._info.num_envs
        looks = self._info.in_order and not self._is_over and type(env_ids) is np.ndarray
        if looks and out_of_order(env_ids, count) and not out_of_order(np.sort(env_ids), count):  # none is missing
            self.copies.breaks(number, OUT_OF_ORDER)
        if self._info.fewest_rows is not None and rows >= 0:
            self._rows += rows
        elif rows != batches * size and not self._is_over:
            self.copies.breaks(number, f"rows were counted but not returned: batches do not have {size} rows")
        self.ids.tidy(CHUNK)

    def waited(self, missing: set[int], seconds: float) -> None:
        """Note which environments have still not answered after ``seconds`` more of stepping others."""
        self._at_end = self.ids.left_behind(missing, seconds)

    def write(self, file: IO[bytes]) -> None:
        """Check the copies, and write them to a file."""
        self.copies.let_go()
        self.copies.look_again()
        self.ids.tidy()
        first, kept = self.copies.sound(self._first), self.copies.sound(self._kept)
        again = [rows.env_ids for _, kept_again, _ in self._again for rows in kept_again]
        if not self._info.in_order and any(out_of_order(env_ids, self._info.num_envs) for env_ids in again):
            self.ids.give_up_order()
        recording.write(file, replace(self._about, in_order=self.ids.in_order))
        self._write_history(file, self._start_seed, first, self._actions[:FIRST])
        for again_seed, after, sent in self._again:
            self._write_history(file, again_seed, after, sent)
        orders = () if self.ids.in_order else self.ids.orders()
        self._write_history(file, self._start_seed, kept, self._actions, orders)
        if self.copies.broken is not None:
            _, fault = self.copies.broken
        else:
            now = recording.about(self._backend.info, self._about.tape_seed)
            fault = self._at_end or recording.changed(self._about, now) or ""
        recording.write(file, Ended(fault, tuple(self._windows)))

    def _write_history(
        self, file: IO[bytes], seed: int, kept: list[Rows], actions: list[ArrayTree], orders: Iterable[Order] = ()
    ) -> None:
        """Write the history of a reset: the actions of a policy if there was one, and batches.

        Before each batch come the ids of all batches up to it, unless rows are in order.
        """

        def stacked(*batches: NDArray[np.generic]) -> NDArray[np.generic]:
            together = np.zeros((len(batches), self._info.batch_size, *batches[0].shape[1:]), batches[0].dtype)
            for batch, each in zip(together, batches, strict=True):
                batch[: len(each)] = each
            return together

        recording.write(file, Began(seed))
        if actions:
            recording.write(file, Acted(trees.mapped(stacked, *actions)))
        coming, known = iter(orders), 0
        for rows in kept:
            while known <= rows.number and (order := next(coming, None)) is not None:
                recording.write(file, order)
                known += len(order.env_ids)
            recording.write(file, rows)


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
        if not recording.is_plain(arrays):
            self.breaks(number, recording.malformed(arrays, self._info) or "its rows are not plain arrays")
            return None
        observations, rewards, terminated, truncated, env_ids = arrays
        try:
            places = is_shown[env_ids].nonzero()[0]
            shown = trees.part(observations, places)
            is_whole = all(leaf.shape[:1] == env_ids.shape for leaf in trees.leaves(observations))
        except IndexError:
            is_whole = False
        if not is_whole:
            self.breaks(number, recording.malformed(arrays, self._info) or "rows are missing")
            return None
        frames = _NOTHING  # of each environment's episode so far, -1 where it is not known
        counted = self._backend.frames() if ends is not None and isinstance(self._backend, CountsFrames) else None
        if counted is not None:
            frames = np.full(self._info.num_envs, -1, np.int64)
            frames[env_ids] = counted[env_ids]
        rows = Rows(
            number,
            env_ids.copy(),
            rewards.copy(),
            terminated.copy(),
            truncated.copy(),
            places,
            shown,
            frames,
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

    def sound(self, copied: list[Rows]) -> list[Rows]:
        """Return the copies before the first that breaks the interface, which is noted."""
        for rows in copied:
            observations = np.broadcast_to(np.empty(()), rows.env_ids.shape)
            arrays = observations, rows.rewards, rows.terminated, rows.truncated, rows.env_ids
            wrong = recording.malformed(arrays, self._info)
            if wrong is None and self._info.in_order and out_of_order(rows.env_ids, self._info.num_envs):
                wrong = OUT_OF_ORDER
            if wrong is not None:
                if self.broken is None or rows.number <= self.broken[0]:
                    self.broken = (rows.number, wrong)
                break
        return [rows for rows in copied if self.broken is None or rows.number < self.broken[0]]


def _differ(rows: Rows, arrays: Arrays) -> bool:
    observations, *others = arrays
    now = (*trees.leaves(trees.part(observations, rows.shown)), *others)
    then = (*trees.leaves(rows.observations), rows.rewards, rows.terminated, rows.truncated, rows.env_ids)
    return any(one.tobytes() != other.tobytes() for one, other in zip(then, now, strict=True))


def nbytes(tree: ArrayTree) -> int:
    """Return the bytes of all arrays of a tree, such as a batch."""
    return sum(leaf.nbytes for leaf in trees.leaves(tree))
