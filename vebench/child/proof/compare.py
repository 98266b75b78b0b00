"""Steps a backend beside the reference, environment by environment, and finds where they first differ.

The reference steps one environment at a time, with the for-loop's own code, so that it can follow a backend that
returns rows in any order: the comparison is always of environment i after its k-th step. Actions are keyed likewise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vebench.backends.environments.suites import SUITES
from vebench.child.answers import Proof
from vebench.child.proof.frames import FrameCount
from vebench.child.proof.rows import FIELDS, describe, digested, row_of, same

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vebench.backends.interface import ActionSpace, BackendInfo, Batch, Difference, Task, VectorBackend
    from vebench.child.answers import Mismatch, WorkVerdict
    from vebench.child.proof.reference import Reference
    from vebench.child.proof.rows import Row

MOST_EXCUSED = 16  # rows after a reset: a declared difference in more rows could hide any other difference
# Rows may come in any order, but an environment may not be further ahead of the slowest one: by MOST_AHEAD steps, plus
# MOST_TIMES_AHEAD times the rows of the slowest.
MOST_AHEAD, MOST_TIMES_AHEAD = 1000, 50


class Compared(NamedTuple):
    """The proof, and the first two rows that differ (the reference's, the backend's), None if all agree."""

    proof: Proof
    rows: tuple[Row, Row] | None


class Batches:
    """Steps a backend with actions keyed by environment and step, and iterates over its batches."""

    def __init__(self, backend: VectorBackend, tape: NDArray[np.generic], seed: int) -> None:
        self._backend = backend
        self._tape = tape
        self._seed = seed
        self.steps = np.full(backend.info.num_envs, -1)

    def __iter__(self) -> Batches:
        self._backend.reset(self._seed)
        self._ids: NDArray[np.intp] | None = None
        return self

    def __next__(self) -> Batch:
        """Send each environment of the last batch its next action, and return the next batch."""
        if self._ids is not None:
            self._backend.send(self._tape[self.steps[self._ids] % len(self._tape), self._ids])
        batch = self._backend.recv()
        problem = malformed(batch, self._backend.info.num_envs, self._backend.info.batch_size)
        if problem is not None:
            raise MalformedError(problem)
        self._ids = np.array(batch.env_ids, np.intp)
        self.steps[self._ids] += 1
        if max(self.steps) > MOST_AHEAD + MOST_TIMES_AHEAD * (1 + min(self.steps)):
            last, first = int(np.argmin(self.steps)), int(np.argmax(self.steps))
            made = f"{self.steps[last] + 1} rows, environment {first} {self.steps[first] + 1:,}"
            raise MalformedError(f"an environment is left behind: environment {last} has returned {made}")
        return batch


class MalformedError(Exception):
    """A batch, or what a backend reports about itself, breaks the interface. The text says how."""


def misdeclared(info: BackendInfo, task: Task, actions: ActionSpace) -> str | None:
    """Return what is wrong with a backend's report about itself, before any step; None if nothing is.

    A measurement draws actions from the reported space, and its frames/s are steps/s times the reported frame skip. For
    Atari and MuJoCo, the frame skip is not checked here but compared with what the simulators count.
    """
    own = info.action_space
    if own.integer != actions.integer or not (_one_bound(own.low, actions.low) and _one_bound(own.high, actions.high)):
        return "actions are drawn from another space than the task's: bounds, shape or type differ"
    if SUITES[task.suite].frames is None and info.frame_skip != task.frame_skip:
        return f"claims {info.frame_skip} frames in a step that has {task.frame_skip}"
    return None


def _one_bound(one: NDArray[np.generic], other: NDArray[np.generic]) -> bool:
    return one.shape == other.shape and bool(np.array_equal(one.astype(np.float32), other.astype(np.float32)))


def malformed(batch: Batch, num_envs: int, batch_size: int) -> str | None:
    """Return what is wrong with a batch, apart from its values; None if nothing is."""
    for name in (*FIELDS, "env_ids"):
        if not isinstance(getattr(batch, name), np.ndarray):
            kind = type(getattr(batch, name)).__name__
            return f"{name} are a {kind}, not a NumPy array: arrays made only on access are not measured"
    ids = batch.env_ids.tolist()
    lengths = {name: len(getattr(batch, name)) for name in FIELDS}
    if set(lengths.values()) != {len(ids)} or len(ids) != batch_size:
        counts = ", ".join(f"{count} {name}" for name, count in lengths.items())
        return f"rows counted that were not returned: {len(ids)} env_ids, {counts}, in a batch of {batch_size}"
    if len(set(ids)) != len(ids):
        twice = sorted({env_id for env_id in ids if ids.count(env_id) > 1})
        return f"the same row twice in a batch: environment {twice[0]}"
    if not set(ids) <= set(range(num_envs)):
        return f"env_ids {sorted(set(ids))} that are not in 0..{num_envs - 1}"
    return None


def action_table(reference: Reference, steps: int, num_envs: int, seed: int) -> NDArray[np.generic]:
    """Return actions by step and environment, ``(steps, num_envs, *action_shape)``, each drawn separately."""
    return reference.actions.sample(np.random.default_rng(seed), steps, num_envs)


def compare(
    backend: VectorBackend, references: list[Reference], tape: NDArray[np.generic], steps: int, seed: int
) -> Compared:
    """Step the backend until each environment has made ``steps`` steps, and compare every row.

    Stops at the first row that is neither equal nor excused by a declared difference, or whose frames are not as
    claimed. Raises MalformedError for a batch or a backend's report about itself that breaks the interface.
    """
    if problem := misdeclared(backend.info, references[0].task, references[0].actions):
        raise MalformedError(problem)
    frames = FrameCount(backend, references)
    tally = Tally(backend.info.differences)
    since_reset = [0] * len(references)
    batches = iter(Batches(backend, tape, seed))
    mismatch = None
    while mismatch is None and min(batches.steps) < steps:
        batch = next(batches)
        frames.look()
        for index, env_id in enumerate(batch.env_ids.tolist()):
            reference, step = references[env_id], int(batches.steps[env_id])
            expected = reference.rows[-1] if step == 0 else reference.step(tape[(step - 1) % len(tape), env_id])
            since_reset[env_id] = 0 if reference.fresh else since_reset[env_id] + 1
            mismatch = tally.compare(env_id, step, expected, row_of(batch, index), since_reset[env_id])
            if mismatch is None:
                mismatch = frames.check(env_id, step, after_reset=reference.fresh, ended=expected.ended)
            if mismatch is not None:
                break
    return Compared(tally.proof(mismatch, frames), tally.different_rows)


class Tally:
    """Counts of what was compared. ``different_rows``: the first two that differ (the reference's, the backend's)."""

    def __init__(self, declared: tuple[Difference, ...]) -> None:
        self._declared = declared
        self._rows = self._ends = 0
        self._rounded = False
        self._allowed: dict[str, None] = {}
        self.different_rows: tuple[Row, Row] | None = None

    def compare(self, env_id: int, step: int, expected: Row, found: Row, since_reset: int) -> Mismatch | None:
        """Compare a row. Returns where it differs from the reference's, None if it is equal or excused."""
        self._rows += 1
        self._ends += expected.ended
        for field in FIELDS:
            sameness = same(field, expected, found)
            self._rounded = self._rounded or sameness == "equal"
            if sameness != "different":
                continue
            # No declaration excuses a different end, because steps are counted by ends.
            hidden = field in ("terminated", "truncated") and expected.ended != found.ended
            excuse = None if hidden else excused(self._declared, field, expected, since_reset)
            if excuse is None:
                self.different_rows = (expected, found)
                return describe(env_id, step, field, expected, found)
            self._allowed[excuse] = None
        return None

    def proof(self, mismatch: Mismatch | None, frames: FrameCount) -> Proof:
        """Return the result of the comparison."""
        asked = frames.simulated is not None
        return Proof(
            self._verdict(mismatch),
            self._rows,
            self._ends,
            tuple(self._allowed),
            mismatch,
            simulated=frames.simulated,
            claimed=frames.claimed if asked else None,
            frames_from=frames.source if asked else None,
        )

    def _verdict(self, mismatch: Mismatch | None) -> WorkVerdict:
        if mismatch is not None:
            return "different"
        if self._allowed:
            return "equivalent"
        return "equal" if self._rounded else "identical"


def excused(declared: tuple[Difference, ...], field: str, expected: Row, since_reset: int) -> str | None:
    """Return the text of the declared difference that excuses this field of this row, None if there is none."""
    for difference in declared:
        if difference.field == field and covers(difference, expected, since_reset):
            return difference.text
    return None


def covers(difference: Difference, expected: Row, since_reset: int) -> bool:
    """Return whether a declared difference excuses this row. A difference declared for every row excuses none."""
    if difference.rows == "end":
        return expected.ended
    return difference.rows == "start" and since_reset < min(difference.count, MOST_EXCUSED)


def collect(backend: VectorBackend, tape: NDArray[np.generic], steps: int, seed: int) -> dict[int, list[Row]]:
    """Return the digested rows of each environment by its id: the reset's row, then one for each of ``steps``."""
    found: dict[int, list[Row]] = {}
    batches = iter(Batches(backend, tape, seed))
    while min(batches.steps) < steps:
        batch: Any = next(batches)
        for index, env_id in enumerate(batch.env_ids.tolist()):
            if len(found.setdefault(env_id, [])) <= steps:
                found[env_id].append(digested(row_of(batch, index)))
    return found
