"""Steps a backend through the trials of a comparison, and records its rows.

In each trial, the backend is built anew in another layout, and reset several times. One seed determines all layouts,
lengths and seeds, so that a comparison can be repeated. Each batch is written at once: if a backend hangs or dies, the
files have all earlier batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from vebench.backends import trees
from vebench.backends.interface import CountsFrames, Factory, Setup, VectorBackend
from vebench.child.actions import Actions, Fitting, Tape, action_tape
from vebench.child.answers import Answer, Comparing, Done
from vebench.child.equality import recording
from vebench.child.equality.recording import CHANGED, NAMES, About, Began, Ended, LastSeen, Rows, malformed
from vebench.child.request import Judging, Proving, Request

if TYPE_CHECKING:
    from vebench.backends.interface import ArrayTree

# The layout of one environment goes on until ENDS episodes have ended, up to TIMES_LONGER times the steps asked for.
# The layout asked for goes on until _END episodes have ended, up to TIMES_FOR_ONE times the steps asked for.
ENDS, TIMES_LONGER = 3, 8
_END, TIMES_FOR_ONE = 1, 3
# If steps are cheap, the layout asked for is stepped for LEAST_S seconds, up to _MOST_TIMES times the steps asked for,
# because some faults begin late.
LEAST_S, _MOST_TIMES = 2.0, 10
# The layout of many environments: ranges of the number of environments, environments per worker, and steps.
MANY, _PER_WORKER, _MANY_STEPS = (5, 8), (2, 3), (20, 40)
_ONE_STEPS = (40, 80)
_FAR_APART = 1 << 17  # distance of the ranges that seeds are drawn from; no layout has more environments
_MOST_SEEDS = 1 << 13  # number of these ranges
_BETWEEN_S = 0.25  # seconds between reports of progress
_MOST_BYTES = 1 << 30  # A reset ends early if its file is larger than this.
_LOOK_EVERY = 256  # batches between checks for environments that do not answer


@dataclass(frozen=True)
class TrialReset:
    """A reset and the steps after it. With ``ends``, the last batch has an end if possible: an autoreset is due."""

    seed: int
    tape_at: int  # the first batch of the tape
    steps: int  # least steps of each environment
    most: int  # most steps of each environment to wait for ``ends``
    ends: int = 0  # least ends of all environments together
    goes_on: bool = False  # whether to step for LEAST_S seconds if steps are cheap


@dataclass(frozen=True)
class Trial:
    """One layout in which a backend is built, and its resets."""

    workers: int
    envs_per_worker: int
    no_ops: int
    seed: int  # of the constructor
    tape_seed: int
    resets: tuple[TrialReset, ...]
    exact: bool  # whether to use the task's variant without chance

    def setup(self, asked: Setup) -> Setup:
        """Return the setup of the adapter in this trial."""
        return replace(
            asked,
            task=replace(asked.task, exact=self.exact, no_ops=self.no_ops),
            workers=self.workers,
            envs_per_worker=self.envs_per_worker,
            cpus=asked.cpus[: max(1, self.workers)],
            seed=self.seed,
        )

    def words(self, about: About | None = None) -> str:
        """Return the layout in words: ``with 2 environments``. ``about`` is None before the backend is built."""
        count = self.workers * self.envs_per_worker if about is None else about.num_envs
        envs = "1 environment" if count == 1 else f"{count} environments"
        return f"with {envs}" if self.exact else f"with {envs}, including randomness"


def trials_of(request: Request, how: Proving | Judging) -> tuple[Trial, ...]:
    """Return the trials of a request's backend."""
    setup, entry = request.setup, request.entry
    shape = entry.shape_of(setup.workers, setup.envs_per_worker, len(setup.cpus), request.options)
    chance = entry.scope.chance(replace(setup.task, exact=False)) is None
    return draw(setup, how, chance=chance, alive=shape.num_envs // shape.batch_size, no_ops=entry.scope.no_ops)


def draw(setup: Setup, how: Proving | Judging, *, chance: bool, alive: int = 1, no_ops: int = 1) -> tuple[Trial, ...]:
    """Draw the trials of a comparison: the layout asked for, then one environment, then many.

    ``chance``: whether the last two trials use the measured variant of the task, with its chance. ``alive``: the number
    of environments for each row of a batch. ``no_ops``: the no-ops in the backend's entry.
    """
    steps, exact = how.steps, not chance
    rng = Random(how.seed)
    lengths = Random(f"{how.seed} lengths")
    seeds = iter([place * _FAR_APART + rng.randrange(_FAR_APART // 2) for place in rng.sample(range(_MOST_SEEDS), 16)])

    def reset(least: int, longest: int, ends: int = 0, *, goes_on: bool = False) -> TrialReset:
        return TrialReset(next(seeds), rng.randrange(1 << 20), least, longest, ends, goes_on)

    def short(least: int, end: int) -> TrialReset:
        least = min(least, steps)
        length = lengths.randrange(least, max(least + 1, min(end, steps + 1)))
        return reset(length, length)

    def trial(workers: int, each: int, *resets: TrialReset, exact: bool) -> Trial:
        return Trial(workers, each, no_ops, next(seeds), next(seeds), resets, exact)

    length = steps + lengths.randrange(max(1, steps // 10))
    main = reset(length, TIMES_FOR_ONE * length, _END, goes_on=True)
    again = short(1, max(2, min(length, max(20, length // 10))))
    long = reset(min(length, _ONE_STEPS[1]), TIMES_LONGER * length, ENDS)
    # Seed 0 is tested, because some backends mistake it for no seed.
    three = short(*_ONE_STEPS), long, replace(short(1, _MANY_STEPS[0]), seed=0)
    each, many = rng.choice(_PER_WORKER), max(2, -(-rng.randrange(*MANY) // alive))
    return (
        trial(setup.workers, setup.envs_per_worker, main, again, exact=True),
        trial(1, 1, *three, exact=exact),
        trial(-(-many // each), each, short(*_MANY_STEPS), exact=exact),
    )


def step_trials(request: Request, proving: Proving, factory: Factory, answer: Callable[[Answer], None]) -> None:
    """Step the backend in each trial. Write the rows of the first trial to ``PATH.0``, and so on."""
    rows = 0
    for number, trial in enumerate(trials_of(request, proving)):
        with open(f"{proving.path}.{number}", "wb", buffering=0) as file:
            backend = factory(trial.setup(request.setup), **request.options)
            try:
                transcript = _Transcript(file, backend, trial.tape_seed, answer, rows)
                transcript.step(trial)
                rows = transcript.rows
            finally:
                backend.close()
    answer(Done())


class _Transcript:
    """Steps a backend through a trial, and writes every batch to a file. ``rows``: the rows of earlier trials."""

    def __init__(
        self, file: IO[bytes], backend: VectorBackend, tape_seed: int, answer: Callable[[Answer], None], rows: int
    ) -> None:
        self.rows = rows
        self._file, self._backend, self._tape_seed, self._answer = file, backend, tape_seed, answer
        self._said = time.monotonic()
        frames_from = backend.frames_from if isinstance(backend, CountsFrames) else None
        self._reported = recording.about(backend.info, tape_seed, frames_from)
        recording.write(file, self._reported)

    def step(self, trial: Trial) -> None:
        """Reset and step the backend as the trial says, until it breaks the interface."""
        backend, info = self._backend, self._backend.info
        tape = action_tape(info.action_space, trial.tape_seed, info.batch_size)
        for reset in trial.resets:
            self._begin(reset)
            backend.reset(reset.seed)
            first = backend.recv()
            at = reset.tape_at % len(tape)
            actions: Actions = Tape([*tape[at:], *tape[:at]])
            if info.fewest_rows is not None:
                actions = Fitting(actions, len(first[4]))
            receive = actions.receiving(backend.recv)
            fault = self._take(first)
            while fault is None and not self._has_enough():
                backend.send(next(actions))
                fault = self._take(receive())
            if fault is not None:
                recording.write(self._file, Ended(fault))
                return
        now = recording.about(backend.info, self._tape_seed)
        recording.write(self._file, Ended(recording.changed(self._reported, now) or ""))

    def _begin(self, reset: TrialReset) -> None:
        """Begin the history of a reset."""
        count = self._backend.info.num_envs
        self._info, self._reset = self._backend.info, reset
        self._number = -1
        self._made = np.full(count, -1, np.int64)  # steps of each environment
        self._ends, self._has_end = 0, False
        self._seen, self._answered = LastSeen(count), np.full(count, time.monotonic())
        self._last: tuple[Sequence[ArrayTree], list[ArrayTree]] = ((), [])
        self._longest, self._until = reset.most, time.monotonic() + LEAST_S
        recording.write(self._file, Began(reset.seed, reset.tape_at))

    def _take(self, batch: Sequence[Any]) -> str | None:
        """Write a batch. Returns how it breaks the interface, None if it does not."""
        self._number += 1
        if (fault := malformed(batch, self._info)) is not None:
            return fault
        if not self._info.reuses_buffers and (fault := self._changed()) is not None:
            return f"{fault}, although the adapter declares no reuse of buffers"
        if (fault := self._left_behind(batch[4])) is not None:
            return fault
        copies = [trees.mapped(np.copy, array) for array in batch]
        self._last = batch, copies
        observations, rewards, terminated, truncated, env_ids = copies
        self._made[env_ids] += 1
        most = max(self._reset.most, _MOST_TIMES * self._reset.steps) + self._reset.steps
        # Environments that wait for a slow one make further steps, which are not compared.
        shown = np.flatnonzero(self._made[env_ids] <= most)
        counted = self._backend.frames() if isinstance(self._backend, CountsFrames) else None
        frames = np.empty(0, np.int64) if counted is None else np.array(counted)
        seen = trees.part(observations, shown)
        recording.write(self._file, Rows(self._number, env_ids, rewards, terminated, truncated, shown, seen, frames))
        ends = int(np.count_nonzero(terminated | truncated))
        self._ends, self._has_end = self._ends + ends, ends > 0
        self.rows += len(env_ids)
        if time.monotonic() > self._said + _BETWEEN_S:
            self._said = time.monotonic()
            self._answer(Comparing(self.rows))
        fault = self._changed()
        return fault and f"{fault}, before the next actions were sent"

    def _left_behind(self, env_ids: Any) -> str | None:
        """Return the fault if an environment has not answered for a long time, None if each has."""
        if self._info.batch_size == self._info.num_envs and self._info.fewest_rows is None:
            return None
        self._seen.add(env_ids[None])
        self._answered[env_ids] = now = time.monotonic()
        if self._seen.batches % _LOOK_EVERY:
            return None
        silent = self._seen.silent().items()
        late = [each for each in silent if now - self._answered[each[0]] > recording.PATIENCE_S]
        return recording.left_behind(*late[0]) if late else None

    def _has_enough(self) -> bool:
        reset, made = self._reset, int(self._made.min())
        if self._file.tell() > _MOST_BYTES:
            return True
        if made < reset.steps:
            return False
        if reset.goes_on and time.monotonic() < self._until and made < _MOST_TIMES * reset.steps:
            self._longest = max(reset.most, made)
            return False
        if self._ends >= reset.ends > 0:
            return self._has_end or made >= self._longest + reset.steps
        return not reset.ends or made >= self._longest

    def _changed(self) -> str | None:
        """Return the fault if an array of the last batch has changed since it was copied."""
        for field, arrays, copies in zip(NAMES, *self._last):  # noqa: B905 - none before the first batch
            for (name, array), copy in zip(trees.named_leaves(arrays, field), trees.leaves(copies), strict=True):
                if array.tobytes() != copy.tobytes():
                    return f"{name} {CHANGED}"
        return None
