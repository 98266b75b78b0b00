"""Steps a backend beside the reference, environment by environment, and tells where they part.

The reference is the for-loop's own stepping, one environment at a time, so that it can follow a backend that answers in
any order: what is compared is always environment i after its k-th step. Actions are keyed the same way. Loaded by the
proving child: numpy and Python 3.10.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vebench.backends.environments.atari import raw_screen_rows
from vebench.backends.environments.frames import frames_of
from vebench.backends.environments.making import make
from vebench.backends.environments.spaces import read_spaces
from vebench.backends.environments.suites import SUITES
from vebench.backends.for_loop import EnvironmentLoop
from vebench.child.proof.frames import FrameCount

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vebench.backends.interface import ActionSpace, BackendInfo, Batch, Difference, Task, VectorBackend

KEPT_ROWS = 4  # of the past, for each environment
MOST_EXCUSED = 16  # rows after a reset: a declared difference that went on for long could hide any other
# So many steps, and times as many as the slowest environment makes, are more than come of answering in any order.
MOST_AHEAD, MOST_TIMES_AHEAD = 1000, 50
FIELDS = ("observations", "rewards", "terminated", "truncated")


class Row(NamedTuple):
    """What one environment answered to one step, copied."""

    observation: NDArray[np.generic]
    reward: float
    terminated: bool
    truncated: bool

    @property
    def ended(self) -> bool:
        """Whether the episode is over."""
        return self.terminated or self.truncated


def row_of(batch: Batch, index: int) -> Row:
    """Return one row of a batch, copied."""
    return Row(
        np.array(batch.observations[index]),
        float(batch.rewards[index]),
        bool(batch.terminated[index]),
        bool(batch.truncated[index]),
    )


class Reference:
    """One environment as the for-loop steps it, with the rows that it has answered last.

    With ``same_step`` the row of an end carries the next episode's first observation, and no row is the reset's alone.
    ``fresh``: the last row carries a first observation.
    """

    def __init__(
        self, task: Task, env_id: int, seed: int, upper_rows: int | None = None, *, same_step: bool = False
    ) -> None:
        self.task = task
        self.fresh = True
        self._same_step = same_step
        self._environment = make(task) if upper_rows is None else make(task, upper_rows=upper_rows)
        spaces = read_spaces(task, self._environment.observation_space, self._environment.action_space)
        self._rows = spaces.rows(1)._replace(env_ids=np.array([env_id]))
        self._loop = EnvironmentLoop([self._environment], self._rows)
        self._loop.reset(seed)
        self.actions = spaces.actions
        self.rows: list[Row] = [row_of(self._rows, 0)]

    @property
    def frames(self) -> int | None:
        """Frames simulated in this episode, None where that cannot be told."""
        return frames_of(self.task, self._environment)

    @property
    def raw_screen_rows(self) -> int | None:
        """Rows of the emulator's raw screen, None where there is no emulator."""
        return raw_screen_rows(self._environment)

    def step(self, action: NDArray[np.generic]) -> Row:
        """Step with ``action``, or reset if the episode is over; return the row."""
        after_end = self.rows[-1].ended and not self._same_step
        self._loop.step(action[None])
        row = self._keep()
        self.fresh = after_end or (self._same_step and row.ended)
        if self._same_step and row.ended:
            self._loop.step(action[None])
            self.rows[-1] = row._replace(observation=row_of(self._rows, 0).observation)
        return self.rows[-1]

    def step_on(self, action: NDArray[np.generic]) -> Row:
        """Step with ``action`` even if the episode is over; return the row."""
        self._loop.forget_ends()
        self._loop.step(action[None])
        return self._keep()

    def _keep(self) -> Row:
        self.rows.append(row_of(self._rows, 0))
        if len(self.rows) > KEPT_ROWS:
            del self.rows[0]
        return self.rows[-1]

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()


@dataclass(frozen=True)
class Parting:
    """Where a backend's row is not the reference's: environment, its step (0 is the reset), field, both values.

    ``size`` is the largest absolute difference, None where it cannot be told.
    """

    env_id: int
    step: int
    field: str
    expected: str
    found: str
    size: float | None


@dataclass(frozen=True)
class Account:
    """What a comparison saw.

    ``rounded``: rewards equal in float32 only. ``allowed``: declared differences seen. ``simulated``: frames,
    ``claimed``: those that it says it simulates, ``frames_from``: who counted; None where the backend cannot be asked.
    ``rows_apart``: the reference's row and the backend's that first differ.
    """

    rows: int
    ends: int
    parting: Parting | None
    rounded: bool
    allowed: tuple[str, ...]
    simulated: int | None = None
    claimed: int | None = None
    frames_from: str | None = None
    rows_apart: tuple[Row, Row] | None = None


class Batches:
    """A backend driven with actions keyed by environment and step, its answers handed out row by row."""

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
        """Return the next batch, after sending each environment of the last one its next action."""
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
    """A batch, or what a backend says of itself, is not what the interface says; the text says why."""


def misdeclared(info: BackendInfo, task: Task, actions: ActionSpace) -> str | None:
    """Return what is wrong with what a backend says of itself before anything is stepped, None if nothing is.

    The actions that it is measured with are drawn from the space that it names, and its frames/s are its steps/s times
    the frame skip that it names; that of Atari and MuJoCo is compared with what their simulators count.
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
    """Return what is wrong with a batch by itself, None if nothing is."""
    for name in (*FIELDS, "env_ids"):
        if not isinstance(getattr(batch, name), np.ndarray):
            kind = type(getattr(batch, name)).__name__
            return f"{name} are a {kind}, not a NumPy array: what is made when looked at is not measured"
    ids = batch.env_ids.tolist()
    lengths = {name: len(getattr(batch, name)) for name in FIELDS}
    if set(lengths.values()) != {len(ids)} or len(ids) != batch_size:
        told = ", ".join(f"{count} {name}" for name, count in lengths.items())
        return f"rows counted that were not returned: {len(ids)} env_ids, {told}, in a batch of {batch_size}"
    if len(set(ids)) != len(ids):
        twice = sorted({env_id for env_id in ids if ids.count(env_id) > 1})
        return f"the same row twice in a batch: environment {twice[0]}"
    if not set(ids) <= set(range(num_envs)):
        return f"env_ids {sorted(set(ids))} that do not lie in 0..{num_envs - 1}"
    return None


def action_table(reference: Reference, steps: int, num_envs: int, seed: int) -> NDArray[np.generic]:
    """Return actions by step and environment, ``(steps, num_envs, *action_shape)``, others for each environment."""
    return reference.actions.sample(np.random.default_rng(seed), steps, num_envs)


def compare(
    backend: VectorBackend,
    references: list[Reference],
    tape: NDArray[np.generic],
    steps: int,
    seed: int,
) -> Account:
    """Step the backend until each environment has made ``steps`` steps, and compare every row on the way.

    It stops at the first row that is neither equal nor declared, or for which other frames were simulated than claimed.
    Raises MalformedError for a batch that is none, and for a backend that says of itself what is not so.
    """
    if problem := misdeclared(backend.info, references[0].task, references[0].actions):
        raise MalformedError(problem)
    frames = FrameCount(backend, references)
    ledger = Ledger(backend.info.differences)
    since_reset = [0] * len(references)
    batches = iter(Batches(backend, tape, seed))
    parting = None
    while parting is None and min(batches.steps) < steps:
        batch = next(batches)
        frames.look()
        for index, env_id in enumerate(batch.env_ids.tolist()):
            reference, step = references[env_id], int(batches.steps[env_id])
            expected = reference.rows[-1] if step == 0 else reference.step(tape[(step - 1) % len(tape), env_id])
            since_reset[env_id] = 0 if reference.fresh else since_reset[env_id] + 1
            parting = ledger.enter(env_id, step, expected, row_of(batch, index), since_reset[env_id])
            if parting is None and (wrong := frames.check(env_id, after_reset=reference.fresh, ended=expected.ended)):
                field, right, found = wrong
                parting = Parting(env_id, step, field, str(right), str(found), abs(found - right))
            if parting is not None:
                break
    return ledger.account(parting, frames)


class Ledger:
    """What has been compared so far."""

    def __init__(self, declared: tuple[Difference, ...]) -> None:
        self._declared = declared
        self._rows = self._ends = 0
        self._rounded = False
        self._allowed: dict[str, None] = {}
        self._apart: tuple[Row, Row] | None = None

    def enter(self, env_id: int, step: int, expected: Row, found: Row, since_reset: int) -> Parting | None:
        """Compare a row. Returns where it parts from the reference's, None if it is equal or as declared."""
        self._rows += 1
        self._ends += expected.ended
        for field in FIELDS:
            sameness = same(field, expected, found)
            self._rounded = self._rounded or sameness == "equal"
            if sameness != "different":
                continue
            # What no declaration excuses: steps are counted by ends.
            hidden = field in ("terminated", "truncated") and expected.ended != found.ended
            excuse = None if hidden else excused(self._declared, field, expected, since_reset)
            if excuse is None:
                self._apart = (expected, found)
                return describe(env_id, step, field, expected, found)
            self._allowed[excuse] = None
        return None

    def account(self, parting: Parting | None, frames: FrameCount) -> Account:
        """Return what it came to."""
        asked = frames.simulated is not None
        return Account(
            self._rows,
            self._ends,
            parting,
            self._rounded,
            tuple(self._allowed),
            simulated=frames.simulated,
            claimed=frames.claimed if asked else None,
            frames_from=frames.source if asked else None,
            rows_apart=self._apart,
        )


def excused(declared: tuple[Difference, ...], field: str, expected: Row, since_reset: int) -> str | None:
    """Return the declared difference that may show in this field of this row, None if there is none."""
    for difference in declared:
        if difference.field == field and covers(difference, expected, since_reset):
            return difference.text
    return None


def covers(difference: Difference, expected: Row, since_reset: int) -> bool:
    """Return whether a declared difference may show in this row. One that shows in every row excuses none."""
    if difference.rows == "end":
        return expected.ended
    return difference.rows == "start" and since_reset < min(difference.count, MOST_EXCUSED)


def same(field: str, expected: Row, found: Row) -> str:
    """Return ``identical``, ``equal`` (a reward, in float32), or ``different``."""
    if field == "observations":
        one, other = expected.observation, found.observation
        alike = one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()
        return "identical" if alike else "different"
    if field == "rewards":
        if expected.reward == found.reward or (np.isnan(expected.reward) and np.isnan(found.reward)):
            return "identical"
        return "equal" if np.float32(expected.reward) == np.float32(found.reward) else "different"
    return "identical" if getattr(expected, field) == getattr(found, field) else "different"


def describe(env_id: int, step: int, field: str, expected: Row, found: Row) -> Parting:
    """Return both values of the field that differs, briefly, and by how much."""
    if field != "observations":
        name = "reward" if field == "rewards" else field
        one, other = getattr(expected, name), getattr(found, name)
        return Parting(env_id, step, field, repr(one), repr(other), _finite(abs(float(one) - float(other))))
    one, other = expected.observation, found.observation
    if one.shape != other.shape or one.dtype != other.dtype:
        return Parting(env_id, step, field, f"{one.dtype}{one.shape}", f"{other.dtype}{other.shape}", None)
    gap = _gap(one.astype(np.float64), other.astype(np.float64))
    where = np.unravel_index(int(np.argmax(gap)), gap.shape)
    place = f" at {list(map(int, where))}" if where else ""
    return Parting(env_id, step, field, f"{one[where]}{place}", f"{other[where]}{place}", _finite(float(gap[where])))


def _gap(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how far two arrays are apart, place by place: infinitely where only one is a finite number."""
    with np.errstate(invalid="ignore"):
        gap = np.abs(one - other)
    alike = (one == other) | (np.isnan(one) & np.isnan(other))
    return np.where(alike, 0.0, np.where(np.isnan(gap), np.inf, gap))


def _finite(size: float) -> float | None:
    return size if np.isfinite(size) else None


def digested(row: Row) -> Row:
    """Return the row with a digest in place of its observation: a thousand rows of Atari then fit in a pocket."""
    digest = blake2b(row.observation.tobytes(), digest_size=16).digest()
    return row._replace(observation=np.frombuffer(digest, np.uint8))


def collect(backend: VectorBackend, tape: NDArray[np.generic], steps: int, seed: int) -> dict[int, list[Row]]:
    """Return the digested rows of every environment for so many steps, the reset's first, by environment id."""
    found: dict[int, list[Row]] = {}
    batches = iter(Batches(backend, tape, seed))
    while min(batches.steps) < steps:
        batch: Any = next(batches)
        for index, env_id in enumerate(batch.env_ids.tolist()):
            if len(found.setdefault(env_id, [])) <= steps:
                found[env_id].append(digested(row_of(batch, index)))
    return found
