"""Steps a backend through the trials of a comparison, and records its rows.

Each batch is written as soon as it has come: if a backend hangs or dies, the files have all batches before.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends import trees
from vebench.backends.interface import CountsFrames
from vebench.child.actions import Fitting, Tape, action_tape
from vebench.child.answers import Comparing, Done
from vebench.child.equality import layouts, recording
from vebench.child.equality.ids import Silence
from vebench.child.equality.recording import CHANGED, NAMES, Began, Ended, Rows, malformed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import IO

    from vebench.backends.interface import ArrayTree, Factory, VectorBackend
    from vebench.child.actions import Actions
    from vebench.child.answers import Answer
    from vebench.child.equality.layouts import Reset, Trial
    from vebench.child.request import Proving, Request

_BETWEEN_S = 0.25  # how often it is said how many rows there are
MOST_BYTES = 1 << 30  # of a file: a trial ends early before it fills the disk


def step_trials(request: Request, proving: Proving, factory: Factory, answer: Callable[[Answer], None]) -> None:
    """Step the backend in each trial. The rows of the first go to the file ``PATH.0``, and so on."""
    rows = 0
    for number, trial in enumerate(layouts.planned(request, proving)):
        with open(f"{proving.path}.{number}", "wb", buffering=0) as file:
            backend = factory(trial.setup(request.setup), **request.options)
            try:
                transcript = Transcript(file, backend, trial.tape_seed, answer, rows)
                _step(backend, trial, transcript)
                rows = transcript.rows
            finally:
                backend.close()
    answer(Done())


def _step(backend: VectorBackend, trial: Trial, transcript: Transcript) -> None:
    """Reset and step the backend as the trial says, until it breaks the interface."""
    info = backend.info
    tape = action_tape(info.action_space, trial.tape_seed, info.batch_size)
    for reset in trial.resets:
        transcript.begin(reset)
        backend.reset(reset.seed)
        first = backend.recv()
        at = reset.tape_at % len(tape)
        actions: Actions = Tape([*tape[at:], *tape[:at]])
        if info.fewest_rows is not None:
            actions = Fitting(actions, len(first[4]))
        receive = actions.receiving(backend.recv)
        goes_on = transcript.take(first)
        while goes_on:
            backend.send(next(actions))
            goes_on = transcript.take(receive())
        if transcript.is_broken:
            return
    transcript.end()


class Transcript:
    """Writes every batch of a trial to a file, and says when it has enough of a reset. ``rows``: those so far."""

    def __init__(
        self, file: IO[bytes], backend: VectorBackend, tape_seed: int, answer: Callable[[Answer], None], rows: int
    ) -> None:
        self.rows = rows
        self.is_broken = False
        self._file, self._backend, self._tape_seed, self._answer = file, backend, tape_seed, answer
        self._said = time.monotonic()
        frames_from = backend.frames_from if isinstance(backend, CountsFrames) else None
        self._reported = recording.about(backend.info, tape_seed, frames_from)
        recording.write(file, self._reported)

    def begin(self, reset: Reset) -> None:
        """Begin a history, which ``reset`` asks for."""
        self._info, self._reset = self._backend.info, reset
        self._number = -1
        self._made = np.full(self._info.num_envs, -1, np.int64)  # steps of each environment
        self._most, self._longest = max(reset.most, layouts.MOST_TIMES * reset.steps) + reset.steps, reset.most
        self._ends, self._has_end = 0, False
        always_all = self._info.batch_size == self._info.num_envs and self._info.fewest_rows is None
        self._silence = None if always_all else Silence(self._info.num_envs)
        self._last: tuple[Sequence[ArrayTree], list[ArrayTree]] = ((), [])
        self._until, self._end = time.process_time() + layouts.LEAST_S, time.monotonic() + layouts.WHILE_S
        recording.write(self._file, Began(reset.seed, reset.tape_at))

    def take(self, batch: Sequence[Any]) -> bool:
        """Write a batch. Returns whether another one is wanted."""
        self._number += 1
        fault = malformed(batch, self._info)
        if fault is None and not self._info.reuses_buffers and (fault := self._changed()) is not None:
            fault += ", although the adapter declares no reuse of buffers"
        if fault is None and self._silence is not None:
            fault = self._silence.note(batch[4])
        if fault is not None:
            return self.breaks(fault)
        copies = [trees.mapped(np.copy, array) for array in batch]
        self._last = batch, copies
        observations, rewards, terminated, truncated, env_ids = copies
        self._made[env_ids] += 1
        shown = np.flatnonzero(self._made[env_ids] <= self._most)  # others have to wait for one that is slow
        observations = trees.part(observations, shown)
        counted = self._backend.frames() if isinstance(self._backend, CountsFrames) else None
        frames = np.empty(0, np.int64) if counted is None else np.array(counted)
        rows = Rows(self._number, env_ids, rewards, terminated, truncated, shown, observations, frames)
        recording.write(self._file, rows)
        ends = int(np.count_nonzero(terminated | truncated))
        self._ends, self._has_end = self._ends + ends, ends > 0
        self.rows += len(env_ids)
        if time.monotonic() > self._said + _BETWEEN_S:
            self._said = time.monotonic()
            self._answer(Comparing(self.rows))
        if (fault := self._changed()) is not None:
            return self.breaks(f"{fault}, before the next actions were sent")
        return not self._has_enough()

    def breaks(self, fault: str) -> bool:
        """Write that the backend breaks the interface. Returns that no other batch is wanted."""
        recording.write(self._file, Ended(fault))
        self.is_broken = True
        return False

    def end(self) -> None:
        """Write that all resets are over, and how the backend's report about itself has changed."""
        now = recording.about(self._backend.info, self._tape_seed)
        recording.write(self._file, Ended(recording.changed(self._reported, now) or ""))

    def _has_enough(self) -> bool:
        reset, made = self._reset, int(self._made.min())
        if self._file.tell() > MOST_BYTES:
            return True
        if made < reset.steps:
            return False
        has_time = time.process_time() < self._until and time.monotonic() < self._end
        if reset.goes_on and has_time and made < layouts.MOST_TIMES * reset.steps:
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
