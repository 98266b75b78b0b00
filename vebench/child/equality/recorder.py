"""Records the rows of a backend: a random sample while it is timed, or every batch in the trials of ``verify``.

``Recorder`` copies batches and notes ids within a window. After all windows, the copies are checked and written to a
file. ``step_trials`` builds a backend in several layouts, and resets it several times in each. It writes each batch at
once: if a backend hangs or dies, the files have all earlier batches. Another process compares the rows with the
reference (``replay.py``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count as numbers
from random import Random
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from vebench.backends import trees
from vebench.backends.batched.arrays import to_host
from vebench.backends.interface import ArrayTree, BackendInfo, Batch, CountsFrames, Factory, Setup, VectorBackend
from vebench.child.actions import Acting, Actions, Fitting, PolicyChoice, Tape, action_tape, make_policy, uploaded
from vebench.child.answers import READINGS_PER_WINDOW, describe
from vebench.child.equality import recording
from vebench.child.equality.recording import About, Acted, Began, BrokenInterfaceError, Ended, LastSeen, Order, Rows
from vebench.child.request import Judging, Recording, Request, Stepping

# A window of a second or more has about MOMENTS_PER_SECOND moments. A shorter window has fewer, but at least one.
# A cell has at most _MOST_MOMENTS, in its first windows.
MOMENTS_PER_SECOND, _MOST_MOMENTS = 48, 256
_CONSECUTIVE = 3  # batches that are kept at a moment: an end and the batches after it, for example
# The limit in bytes for copied batches, and for a policy's actions. A full recording has four times the former limit.
# Recording stops at the first limit, because later batches could not be repeated.
_MOST_BYTES = 64 << 20
_BATCH_BYTES = 1500  # memory of a copied batch without the contents of its arrays
# The arrays of up to _HELD batches, or _HELD_BYTES, are held until the window is over, to detect whether they change.
_HELD, _HELD_BYTES = 4, 16 << 20
_CHUNK = 1 << 17  # Ids are joined and ends are counted during a window if there are more of them than this.
ROWS_CHANGED = f"rows {recording.CHANGED}, although the adapter declares no reuse of buffers"
# The layout of one environment goes on until ENDS episodes have ended, up to TIMES_LONGER times the steps asked for.
# The layout asked for goes on until an episode has ended, up to TIMES_FOR_ONE times the steps asked for.
ENDS, TIMES_LONGER, TIMES_FOR_ONE = 3, 8, 3
# If steps are cheap, the layout asked for is stepped for LEAST_S seconds, up to _MOST_TIMES times the steps asked for,
# because some faults begin late.
LEAST_S, _MOST_TIMES = 2.0, 10
# Where episodes are compared, each side makes steps until EPISODES have ended, for at most EPISODES_S seconds.
EPISODES, EPISODES_S, _MOST_ROWS = 200, 8.0, 100_000
_MOST_FILE_BYTES = 1 << 30  # A reset of a trial ends early if the file is larger than this.
Arrays = tuple[Any, ...]  # the arrays of a batch


class Ids:
    """Notes the environments of each batch, and counts the ends of each environment.

    Rows may come in any order, and the order decides which actions an environment gets. The loop calls ``note`` with
    the bytes of each batch's ids, and ``note_end`` with the flags of each batch that has ends. ``note`` is None if the
    adapter declares the order. Both are None once nothing is noted. ``first``: the ids of the reset's batch.
    """

    def __init__(self, info: BackendInfo, first: NDArray[Any]) -> None:
        count = info.num_envs
        self.ends = np.zeros(count, np.int64)  # the number of ends of each environment
        self.is_full = False  # whether noting has stopped
        self.nbytes = 0
        self._batch_size = info.batch_size
        self._ids, self._type = np.arange(count), first.dtype
        self._kept_type = np.min_scalar_type(-count)
        self._noted: list[bytes] = []  # the ids of batches since the last join
        self._ended: list[tuple[int, NDArray[np.bool_]]] = []  # the place of a batch in ``_noted``, and its flags
        self.joined: list[NDArray[Any]] = []  # ids of consecutive batches
        self._seen = LastSeen(count)
        self.note: Callable[[bytes], None] | None = None if info.in_order else self._noted.append
        self.note_end: Callable[[NDArray[np.bool_]], None] | None = lambda flags: self._ended.append(
            (len(self._noted) - 1, flags)
        )
        if self.note is not None:
            self.note(first.tobytes())

    def tidy(self, at_least: int = 0) -> None:
        """Join noted ids to save memory, and count ends. Do nothing for up to ``at_least`` notes of both kinds."""
        if len(self._noted) + len(self._ended) <= at_least:
            return
        noted, ended = [*self._noted], [*self._ended]
        self._noted.clear()
        self._ended.clear()
        try:
            joined = self._join(noted) if noted else None
            if ended:
                flags = np.concatenate([flags for _, flags in ended])
                rows = [self._ids if joined is None else joined[place, : len(flags)] for place, flags in ended]
                self.ends += np.bincount(np.concatenate(rows)[flags], minlength=len(self._ids))
        except (ValueError, IndexError):  # the checks of the copies find odd lengths and types
            self.is_full = True
        self.is_full = self.is_full or self.nbytes > 2 * _MOST_BYTES
        if self.is_full:
            self.note = self.note_end = None

    def _join(self, noted: list[bytes]) -> NDArray[Any]:
        """Keep and return the ids of batches, ``(batches, batch_size)``, filled up with ``NO_ROW``."""
        item = self._type.itemsize
        noted = [each[: self._batch_size * item] for each in noted]  # the checks of the copies find longer batches
        rows = np.array([len(each) for each in noted], np.int64) // item
        joined = np.full((len(noted), self._batch_size), recording.NO_ROW, np.int64)
        joined[np.arange(self._batch_size) < rows[:, None]] = np.frombuffer(b"".join(noted), self._type)
        self.joined.append(joined.astype(self._kept_type))
        self._seen.add(joined)
        self.nbytes += self.joined[-1].nbytes
        return joined

    def silent(self) -> dict[int, int]:
        """Stop noting. Return the environments that have not answered for long, and for how many batches."""
        self.tidy()
        self.note = self.note_end = None
        if self.is_full:
            return {}
        return {env_id: since for env_id, since in self._seen.silent().items() if since > self._seen.batches / 4}


class Recorder:
    """Keeps the batches at random moments.

    ``first``: the batch of the reset. ``seeds``: the seeds of the reset and of the action tape. ``info``: the backend's
    description of itself before the reset, which must not change.
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
        first = Batch(*recording.on_host(first, self._info))
        self._start_seed, tape_seed = seeds
        self._about = About(info or backend.info, tape_seed)
        self._random = Random(asked.seed)
        self.ids = Ids(backend.info, first.env_ids)
        self._every = 0  # readings of the clock between two moments
        self._gap = 0  # readings of the clock until the next moment
        self._moments = 0  # moments so far
        self.following = 0  # number of batches still to keep at this moment
        self.awaited: frozenset[int] = frozenset()  # the next end of any of these environments is kept
        self.broken: tuple[int, str] | None = None  # the first batch that breaks the interface, and its fault
        self._most_bytes = 4 * _MOST_BYTES if asked.full else _MOST_BYTES
        # Few environments are recorded, because the reference steps each again. With ``full``, all that fit are.
        count, row_bytes = backend.info.num_envs, max(1, _nbytes(trees.part(first.observations, slice(1))))
        few = 4 if count >= 16 else 2  # noqa: PLR2004
        if asked.full:
            few = max(few, min(16, self._most_bytes // (_MOST_MOMENTS * _CONSECUTIVE * row_bytes)))
        few = min(count, few)
        # The order does not depend on the backend, so that cells share environments and steps of the reference.
        order = sorted(range(count), key=lambda env_id: Random(f"{asked.chooser} {env_id}").random())
        self.shown = frozenset(order[(asked.repeat * few + place) % count] for place in range(few))
        self._is_shown = np.isin(np.arange(count), [*self.shown])
        fit = _HELD_BYTES // (recording.FIRST + 2) // row_bytes  # environments that the first batches record
        drawn = self._random.sample(range(count), min(count, fit))
        self._is_shown_first = self._is_shown | np.isin(np.arange(count), drawn)
        self._kept: list[Rows] = []
        self._held: list[tuple[Rows, Arrays]] = []  # copies, and the arrays of the backend
        self._copied = 0  # bytes of copied batches
        self._actions: list[ArrayTree] = []  # a policy's actions, batch by batch
        self._action_bytes = 0
        self._again: list[recording.Record] = []  # the history of another reset after all windows
        self._at_end = ""  # the fault of an environment that is left behind, or of another reset
        self.keep_first(0, tuple(first))

    @property
    def nbytes(self) -> int:
        """The number of bytes in memory, roughly."""
        return self._copied + self._action_bytes + self.ids.nbytes + _BATCH_BYTES * len(self._kept)

    @property
    def _is_over(self) -> bool:
        is_full = self._copied > self._most_bytes or self._action_bytes > _MOST_BYTES
        return is_full or self.ids.is_full or self.broken is not None

    def expect(self, moments: int) -> None:
        """Begin a part of the measurement with about this many moments, or with none."""
        self._every = moments and max(1, READINGS_PER_WINDOW // moments)
        self._gap = self._random.randint(1, 2 * self._every or 1)
        self.awaited = frozenset()

    def stretch(self, batches: int) -> int:
        """Return the number of batches in the loop's next stretch. It is random, ``batches`` on average."""
        return 1 if self.following else self._random.randrange(1, 2 * batches)

    def take(self, number: int, arrays: Arrays, ended: NDArray[np.bool_]) -> None:
        """Keep batch ``number``, the last of a stretch, if this is a moment or follows one.

        ``ended``: whether the last row of each environment is an end, ``(num_envs,)``. Some moments wait for an end,
        while other moments go on.
        """
        holds = False
        if self.following:
            self.following -= 1
        elif self.awaited and not self.awaited.isdisjoint(arrays[4][ended[arrays[4]]].tolist()):
            self.awaited = frozenset()
            self.following, holds = _CONSECUTIVE - 1, True
        elif not self._due():
            return
        elif not (self._moments % 3 or self.awaited or self._info.on_device):  # one in three begins with an end
            self.awaited = self.shown
            return
        else:
            self.following, holds = _CONSECUTIVE - 1, True
        self._keep(number, arrays, self._is_shown, holds=holds)

    def _due(self) -> bool:
        if not self._every or self._moments >= _MOST_MOMENTS or self._is_over:
            return False
        self._gap -= 1
        if self._gap > 0:
            return False
        self._gap = self._random.randint(1, 2 * self._every)
        self._moments += 1
        return True

    def note_actions(self, actions: ArrayTree) -> None:
        """Keep a batch of a policy's actions. The actions of a tape follow from its seed, and are not kept."""
        if not self._is_over:
            self._action_bytes += _nbytes(actions)
            self._actions.append(actions)

    def keep_first(self, number: int, arrays: Arrays) -> None:
        """Copy batch ``number``, one of the first, with the observations of all environments that fit in memory."""
        self._keep(number, arrays, self._is_shown_first, holds=True)

    def keep_last(self, number: int, arrays: Arrays) -> None:
        """Copy batch ``number`` after a window, with counts of frames and ends. Check the arrays held in the window."""
        self._look_again()
        self.ids.tidy()
        self._keep(number, arrays, self._is_shown, counts=True)

    def _keep(
        self, number: int, arrays: Arrays, is_shown: NDArray[np.bool_], *, counts: bool = False, holds: bool = False
    ) -> None:
        """Copy a batch: its flags, rewards and ids, and the observations of these environments.

        ``counts``: also ask the backend for its frames, which takes time. ``holds``: hold the arrays, to detect whether
        they change.
        """
        if self._is_over:
            return
        arrays = tuple(recording.on_host(arrays, self._info))
        is_whole = recording.is_plain(arrays)
        if is_whole:
            observations, rewards, terminated, truncated, env_ids = arrays
            try:
                places = is_shown[env_ids].nonzero()[0]
                shown = trees.part(observations, places)
                is_whole = all(leaf.shape[:1] == env_ids.shape for leaf in trees.leaves(observations))
            except IndexError:
                is_whole = False
        if not is_whole:
            self._breaks(number, recording.malformed(arrays, self._info) or "its rows are not plain arrays")
            return
        frames = ends = None
        if counts:
            ends = None if self._info.on_device else self.ids.ends.copy()  # the loop does not look at flags there
            counted = self._backend.frames() if isinstance(self._backend, CountsFrames) else None
            frames = None if counted is None else np.array(counted)
        flags = rewards.copy(), terminated.copy(), truncated.copy()
        rows = Rows(number, env_ids.copy(), *flags, places, shown, frames, ends)
        self._kept.append(rows)
        self._copied += _nbytes(shown) + 4 * rewards.nbytes
        fits = not self._held or (len(self._held) + 1) * _nbytes(arrays) <= _HELD_BYTES
        if holds and fits and len(self._held) < _HELD and not self._info.reuses_buffers:
            self._held.append((rows, arrays))

    def _look_again(self) -> None:
        """Note a fault if held arrays have changed."""
        for rows, (observations, *others) in self._held:
            now = (*trees.leaves(trees.part(observations, rows.shown)), *others)
            then = (*trees.leaves(rows.observations), rows.rewards, rows.terminated, rows.truncated, rows.env_ids)
            if any(one.tobytes() != other.tobytes() for one, other in zip(then, now, strict=True)):
                self._breaks(rows.number, ROWS_CHANGED)
        self._held.clear()

    def _breaks(self, number: int, fault: str) -> None:
        if self.broken is None or number < self.broken[0]:
            self.broken = number, fault

    def stepped(self, number: int, rows: int, batches: int, env_ids: Any) -> None:
        """Check the size of ``batches`` batches up to batch ``number``, and the order of the last one.

        Together they had ``rows`` rows. The last batch had ``env_ids``.
        """
        size, count = self._info.batch_size, self._info.num_envs
        if self._is_over:
            return
        looks = self._info.in_order and type(env_ids) is np.ndarray
        is_odd = looks and recording.out_of_order(env_ids, count)
        if is_odd and not recording.out_of_order(np.sort(env_ids), count):  # none is missing
            self._breaks(number, recording.OUT_OF_ORDER)
        if self._info.fewest_rows is None and rows != batches * size:
            self._breaks(number, f"rows were counted but not returned: batches do not have {size} rows")
        self.ids.tidy(_CHUNK)

    def waited(self, missing: set[int], silent: dict[int, int]) -> None:
        """Note that ``missing`` environments have not answered, even after another ``PATIENCE_S`` seconds of steps."""
        if missing:
            self._at_end = recording.left_behind(min(missing), silent[min(missing)])

    def keep_reset(self, actions: Actions, clock: Callable[[], int], duration_ns: int) -> None:
        """Reset the backend again, with seed 0, which some mistake for no seed. Copy the first batches after it."""
        if self._is_over or self._at_end:
            return
        kept, self._kept = self._kept, []
        sent: list[ArrayTree] = []
        receive, until = actions.receiving(self._backend.recv), clock() + duration_ns
        try:
            self._backend.reset(0)
            self.keep_first(0, tuple(receive()))
            while len(sent) < recording.FIRST and clock() < until:
                sent.append(next(actions))
                self._backend.send(sent[-1])
                self.keep_first(len(sent), tuple(receive()))
        except Exception as error:  # noqa: BLE001 - a library may raise anything, which is the fault
            self._at_end = f"a second reset fails: {describe(error)}"
        if self.broken is not None:
            self._at_end, self.broken = f"after a second reset {self.broken[1]}", None
        self._again, self._kept = [Began(0), Acted([*map(to_host, sent)]), *self._kept], kept

    def write(self, file: IO[bytes]) -> None:
        """Check the copies, and write them to a file. Each batch comes after the ids of all batches up to it."""
        self._look_again()
        self.ids.tidy()
        for rows in self._kept:
            observations = np.broadcast_to(np.empty(()), rows.env_ids.shape)
            arrays = observations, rows.rewards, rows.terminated, rows.truncated, rows.env_ids
            if (wrong := recording.malformed(arrays, self._info)) is not None:
                self._breaks(rows.number, wrong)
                break
        recording.write(file, self._about)
        recording.write(file, Began(self._start_seed))
        if self._actions:
            recording.write(file, Acted(self._actions))
        parts, known = iter(self.ids.joined), 0
        for rows in self._kept:
            if self.broken is not None and rows.number >= self.broken[0]:
                break
            while known <= rows.number and (part := next(parts, None)) is not None:
                recording.write(file, Order(known, part))
                known += len(part)
            recording.write(file, rows)
        for record in () if self.broken else self._again:
            recording.write(file, record)
        seen = self.broken[1] if self.broken else self._at_end
        fault = seen or recording.changed(self._about.info, self._backend.info) or ""
        recording.write(file, Ended(fault, () if self._info.in_order else tuple(sorted(self.shown))))


def _nbytes(tree: ArrayTree) -> int:
    """Return the number of bytes in all arrays of a tree, such as a batch."""
    return sum(leaf.nbytes for leaf in trees.leaves(tree))


@dataclass(frozen=True)
class TrialReset:
    """A reset and the steps after it. With ``ends``, the last batch has an end if possible: an autoreset is due."""

    seed: int
    tape_at: int  # the first batch of the tape
    steps: int  # least steps of each environment
    most: int  # most steps of each environment to wait for ``ends``
    ends: int = 0  # least ends of all environments together
    goes_on: bool = False  # whether to step for LEAST_S seconds if steps are cheap
    seconds: float = math.inf  # limit after the first step, which may compile; the least steps may take longer


@dataclass(frozen=True)
class Trial:
    """One layout in which a backend is built, and its resets."""

    setup: Setup
    tape_seed: int
    resets: tuple[TrialReset, ...]

    def words(self, about: About | None = None) -> str:
        """Return the layout in words: ``with 2 environments``. ``about`` is None before the backend is built."""
        count = self.setup.batch_size if about is None else about.info.num_envs
        envs = "1 environment" if count == 1 else f"{count} environments"
        return f"with {envs}" if self.setup.task.exact else f"with {envs}, including randomness"


def trials_of(request: Request, how: Stepping | Judging) -> tuple[Trial, ...]:
    """Return the trials of a request's backend: the layout asked for, then one environment, then many.

    The last two use the measured variant of the task, with its chance, where the reference can repeat it. If episodes
    are compared, there is one layout.
    """
    setup, scope = request.setup, request.entry.scope
    shape = request.entry.shape_of(setup.workers, setup.envs_per_worker, len(setup.cpus), request.options)
    exact = scope.chance(replace(setup.task, exact=False)) is not None
    rng = Random(how.seed)
    # No layout has so many environments that the ranges of two seeds overlap.
    seeds = iter([place << 17 | rng.randrange(1 << 16) for place in rng.sample(range(1 << 13), 16)])

    def reset(least: int, longest: int = 0, ends: int = 0, *, goes_on: bool = False) -> TrialReset:
        return TrialReset(next(seeds), rng.randrange(1 << 20), least, max(least, longest), ends, goes_on)

    def short(least: int, end: int) -> TrialReset:
        return reset(min(how.steps, rng.randrange(least, end)))

    def trial(workers: int, each: int, *resets: TrialReset, exact: bool) -> Trial:
        task, cpus = replace(setup.task, exact=exact, no_ops=scope.no_ops), setup.cpus[: max(1, workers)]
        layout = replace(setup, task=task, workers=workers, envs_per_worker=each, cpus=cpus, seed=next(seeds))
        return Trial(layout, next(seeds), resets)

    length = how.steps + rng.randrange(max(1, how.steps // 10))
    main = reset(length, TIMES_FOR_ONE * length, 1, goes_on=True)
    long = reset(min(length, 80), TIMES_LONGER * length, ENDS)
    # Seed 0 is tested, because some backends mistake it for no seed.
    three = short(40, 80), long, replace(short(1, 20), seed=0)
    if how.episodes:
        most = max(length, _MOST_ROWS // shape.num_envs)
        episodes = replace(main, most=most, ends=EPISODES, goes_on=False, seconds=EPISODES_S)
        return (trial(max(setup.workers, 4), setup.envs_per_worker, episodes, short(1, 20), short(1, 20), exact=False),)
    many = max(1, 4 * shape.batch_size // shape.num_envs)  # asynchronous backends have more environments than rows
    return (
        trial(setup.workers, setup.envs_per_worker, main, short(1, max(20, length // 10)), exact=True),
        trial(1, 1, *three, exact=exact),
        trial(many, 2, short(20, 40), exact=exact),
    )


def step_trials(request: Request, proving: Stepping, factory: Factory) -> None:
    """Step the backend in each trial. Write the rows of the first trial to ``PATH.0``, and so on."""
    for number, trial in enumerate(trials_of(request, proving)):
        with open(f"{proving.path}.{number}", "wb", buffering=0) as file:
            backend = factory(trial.setup, **request.options)
            try:
                _step(backend, trial, file, request.settings.policy)
            except BrokenInterfaceError as error:
                recording.write(file, Ended(str(error)))
            finally:
                backend.close()


def _step(backend: VectorBackend, trial: Trial, file: IO[bytes], policy: PolicyChoice) -> None:
    """Reset and step the backend as the trial says, until it breaks the interface. Write every batch.

    A user's ``policy`` acts. Otherwise, actions are drawn beforehand.
    """
    info = backend.info
    recording.write(file, About(info, trial.tape_seed))
    tape = action_tape(info.action_space, trial.tape_seed, info.batch_size)
    for reset in trial.resets:
        transcript = _Transcript(backend, reset, file)
        backend.reset(reset.seed)
        first = backend.recv()
        transcript.take(first)
        at = reset.tape_at % len(tape)
        actions: Actions = Tape(uploaded([*tape[at:], *tape[:at]], backend))
        if policy.target:
            acting = make_policy(policy, info.action_space, first[0], trial.tape_seed, tape)
            actions = Acting(acting, Batch(*first), info, time.perf_counter_ns, transcript.note_actions)
        if info.fewest_rows is not None:
            actions = Fitting(actions, len(first[4]))
        receive = actions.receiving(backend.recv)
        while not transcript.has_enough():
            backend.send(next(actions))
            transcript.take(receive())
    recording.write(file, Ended(recording.changed(info, backend.info) or ""))


class _Transcript:
    """Writes the batches after a reset to a file, and checks that they keep to the interface."""

    def __init__(self, backend: VectorBackend, reset: TrialReset, file: IO[bytes]) -> None:
        self._backend, self._info, self._reset, self._file = backend, backend.info, reset, file
        count = self._info.num_envs
        self._numbers = numbers()
        self._made = np.full(count, -1, np.int64)  # steps of each environment
        self._ends, self._has_end = 0, False
        self._seen, self._answered = LastSeen(count), np.full(count, time.monotonic())
        self._last: tuple[Sequence[ArrayTree], Sequence[ArrayTree]] = ((), ())  # the last batch, and copies of it
        self._longest, self._until = reset.most, time.monotonic() + LEAST_S
        self._deadline = math.inf
        recording.write(file, Began(reset.seed, reset.tape_at))

    def note_actions(self, actions: ArrayTree) -> None:
        """Write a policy's actions for the last batch."""
        recording.write(self._file, Acted([actions]))

    def take(self, batch: Sequence[Any]) -> None:
        """Write a batch. Raises BrokenInterfaceError."""
        if (fault := recording.malformed(batch, self._info)) is not None:
            raise BrokenInterfaceError(fault)
        batch = recording.on_host(batch, self._info)
        if not self._info.reuses_buffers:
            self._look_again("although the adapter declares no reuse of buffers")
        self._look_for_silent(batch[4])
        copies = Batch._make(trees.mapped(np.copy, array) for array in batch)
        self._last = batch, copies
        self._made[copies.env_ids] += 1
        # Environments that wait for a slow one make further steps, which are not compared.
        most = max(self._reset.most, _MOST_TIMES * self._reset.steps) + self._reset.steps
        shown = np.flatnonzero(self._made[copies.env_ids] <= most)
        counted = self._backend.frames() if isinstance(self._backend, CountsFrames) else None
        observations, rewards, terminated, truncated, env_ids = copies
        seen = trees.part(observations, shown)
        frames = None if counted is None else np.array(counted)
        rows = Rows(next(self._numbers), env_ids, rewards, terminated, truncated, shown, seen, frames)
        recording.write(self._file, rows)
        ends = int(np.count_nonzero(terminated | truncated))
        self._ends, self._has_end = self._ends + ends, ends > 0
        self._look_again("before the next actions were sent")

    def _look_again(self, when: str) -> None:
        """Raise BrokenInterfaceError if an array of the last batch has changed since it was copied."""
        for field, arrays, copies in zip(Batch._fields, *self._last):  # noqa: B905 - none before the first batch
            for (name, array), copy in zip(trees.named_leaves(arrays, field), trees.leaves(copies), strict=True):
                if array.tobytes() != copy.tobytes():
                    raise BrokenInterfaceError(f"{name} {recording.CHANGED}, {when}")

    def _look_for_silent(self, env_ids: Any) -> None:
        """Raise BrokenInterfaceError if an environment has not answered for a long time."""
        if self._info.batch_size == self._info.num_envs and self._info.fewest_rows is None:
            return
        self._seen.add(env_ids[None])
        self._answered[env_ids] = now = time.monotonic()
        if self._seen.batches % 256:
            return
        for env_id, batches in self._seen.silent().items():
            if now - self._answered[env_id] > recording.PATIENCE_S:
                raise BrokenInterfaceError(recording.left_behind(env_id, batches))

    def has_enough(self) -> bool:
        """Return whether the environments have made enough steps since the reset."""
        reset, made = self._reset, int(self._made.min())
        if self._file.tell() > _MOST_FILE_BYTES:
            return True
        if made and self._deadline == math.inf:
            self._deadline = time.monotonic() + reset.seconds
        late = time.monotonic() - self._deadline
        if late > 10 * reset.seconds or (late > 0 and made >= reset.steps):
            return True
        if made < reset.steps:
            return False
        if reset.goes_on and time.monotonic() < self._until and made < _MOST_TIMES * reset.steps:
            self._longest = max(reset.most, made)
            return False
        if self._ends >= reset.ends > 0:
            return self._has_end or made >= self._longest + reset.steps
        return not reset.ends or made >= self._longest
