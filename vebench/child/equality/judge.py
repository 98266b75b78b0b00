"""Follows the environments of a recording and of a reference, up to the first row that differs.

The judge does not run in the backend's process, and gets only the records from there. A reference steps one environment
at a time, as the for-loop does. Rows are compared by environment and number of steps, so their order in the backend's
batches does not matter.
"""

from __future__ import annotations

import random
from array import array
from collections import deque
from collections.abc import Callable, Iterable
from hashlib import blake2b
from math import isnan
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vebench.backends import trees
from vebench.backends.environments.making import make, read_spaces
from vebench.backends.environments.suites import SUITES
from vebench.backends.for_loop import EnvironmentLoop
from vebench.backends.interface import ActionSpaceTree, ArrayTree, BackendInfo, Batch, Difference, Task
from vebench.child.actions import action_tape
from vebench.child.answers import Mismatch, Proof, WorkVerdict
from vebench.child.equality import recording
from vebench.child.equality.recording import About, Acted, Began, BrokenInterfaceError, CutOffError, Order, Rows

_MOST_EXCUSED = 16  # rows after a reset that a declared difference may excuse; more could hide other faults
_KEPT = 4096  # last rows kept for each environment, to name a fault
_MOST_SHARED = 1 << 17  # steps of a trajectory that several recordings may share
# Cells and their judges are forked from one process. Environments must not draw the same numbers in both by chance.
random.seed()
np.random.seed()  # noqa: NPY002 - the generator that environments may use
_shared_state = np.random.get_state  # the state of numpy's global generator
_AT_FIRST = repr(_shared_state())


# Why new references do not repeat the rows of an environment.
VARIES = "with the same seed and actions, its results vary between runs or with other environments present"
SURVIVES = "the environment has state that survives reset(seed=): what follows later resets was not compared"


def varies() -> str:
    """Return the reason ``VARIES``, with its cause if environments have used numpy's global generator."""
    drawn = repr(_shared_state()) != _AT_FIRST
    return f"{VARIES}{': it draws from the global np.random; use self.np_random' if drawn else ''}"


class Row(NamedTuple):
    """A copy of one environment's answer to one step. A digested row has a digest in place of its observation."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool

    @property
    def ended(self) -> bool:
        """Whether the episode is over."""
        return self.terminated or self.truncated


def alike(one: Row, other: Row) -> bool:
    """Return whether two digested rows are the same. Rewards that are NaN are the same."""
    same_rewards = one.reward == other.reward or (isnan(one.reward) and isnan(other.reward))
    return same_rewards and one[2:] == other[2:] and one.observation == other.observation


def digested(row: Row) -> Row:
    """Return the digested row, to save memory. Digests cover the name, type, shape and bytes of each leaf."""
    digests = b""
    for name, leaf in trees.named_leaves(row.observation):
        whole = blake2b(f"{name} {leaf.dtype.str} {leaf.shape}".encode(), digest_size=16)
        whole.update(leaf.tobytes())
        digests += whole.digest()
    return row._replace(observation=digests)


class _Checked:
    """Checks an environment's values before the loop writes them into arrays, because arrays cast silently."""

    def __init__(self, environment: Any, declared: trees.Tree) -> None:
        self.invalid: str | None = None  # the first value outside the declared spaces, with its step
        self._environment, self._declared, self._step = environment, declared, 0

    def reset(self, **seed: int) -> tuple[Any, dict[str, Any]]:
        self._step = 0
        observation, info = self._environment.reset(**seed)
        self._check(observation, 0.0)
        return observation, info

    def step(self, action: Any) -> tuple[Any, ...]:
        self._step += 1
        row: tuple[Any, ...] = self._environment.step(action)
        self._check(*row[:2])
        return row

    def _check(self, observation: Any, reward: Any) -> None:
        if self.invalid is not None:
            return
        wrong = f"the reward is {reward}" if reward is None or not np.isfinite(reward).all() else None
        for name, space in trees.named_leaves(self._declared, "observations"):
            leaf = observation
            for key in name.split("/")[1:]:
                leaf = leaf[int(key) if isinstance(leaf, tuple) else key]
            leaf = np.asarray(leaf)
            if leaf.shape != space.shape or not np.can_cast(leaf.dtype, space.dtype):
                wrong = f"{name} are {leaf.dtype}{leaf.shape}, not {space.dtype}{space.shape} as declared"
            elif leaf.dtype.kind == "f" and np.isnan(leaf).any():
                wrong = f"{name} hold NaN"
        if wrong is not None:
            self.invalid = f"{wrong}, in {f'step {self._step} after a reset' if self._step else 'a reset'}"


class Reference:
    """One environment, stepped as the for-loop steps it, with its last row.

    With ``same_step``, the row of an end has the first observation of the next episode, and a reset has no row.
    """

    fresh = True  # whether the last row has the first observation of an episode

    def __init__(self, task: Task, *, same_step: bool = False) -> None:
        self._same_step = same_step
        environment = make(task)
        spaces = read_spaces(task, environment.observation_space, environment.action_space)
        self.actions: ActionSpaceTree = spaces.actions  # the space of one action
        self._batch: Batch = spaces.rows(1)
        self.checked = _Checked(environment, spaces.observations)
        environments: Any = [self.checked]
        self._loop = EnvironmentLoop(environments, self._batch)

    def reset(self, seed: int, env_id: int) -> Row:
        """Reset with ``seed`` to take the part of environment ``env_id``. Return the first row."""
        self._batch.env_ids[0] = env_id
        self._loop.reset(seed)
        self.fresh = True
        self.row = self._read()
        return self.row

    def step(self, action: ArrayTree) -> Row:
        """Step with ``action``, or reset if the episode is over. Return the row."""
        after_end = self.row.ended and not self._same_step
        batch: ArrayTree = trees.mapped(lambda leaf: leaf[None], action)
        self._loop.step(batch)
        self.row = self._read()
        self.fresh = after_end or (self._same_step and self.row.ended)
        if self._same_step and self.row.ended:
            self._loop.step(batch)
            self.row = self.row._replace(observation=self._read().observation)
        return self.row

    def _read(self) -> Row:
        batch = self._batch
        observation = trees.mapped(lambda leaf: np.array(leaf[0]), batch.observations)
        return Row(observation, float(batch.rewards[0]), bool(batch.terminated[0]), bool(batch.truncated[0]))


class _Made(NamedTuple):
    """One step of a reference."""

    row: Row  # digested
    fresh: bool
    ns: int  # duration of the step


class Trajectory:
    """The steps of one environment's reference since a reset. Recordings with the same actions share them."""

    def __init__(self, reference: Reference, seed: int, env_id: int) -> None:
        self.reference = reference
        self.made = 0  # the number of steps made
        self._kept = [_Made(digested(reference.reset(seed, env_id)), True, 0)]

    def step(self, number: int, action: Any = None) -> _Made | None:
        """Return a step, or None if it was made but not kept. Make it if it is the next one. Step 0 is the reset."""
        if number <= self.made:
            return self._kept[number] if number < len(self._kept) else None
        began = perf_counter_ns()
        row = digested(self.reference.step(action))
        made = _Made(row, self.reference.fresh, perf_counter_ns() - began)
        self.made += 1
        if len(self._kept) < _MOST_SHARED:
            self._kept.append(made)
        return made


class History:
    """The batches since a reset: where the rows of some environments are, and their actions."""

    def __init__(self, info: BackendInfo, began: Began, tape: list[ArrayTree], env_ids: Iterable[int]) -> None:
        self.seed, self.in_order = began.seed, info.in_order
        self.acted: list[ArrayTree] = []  # batches of actions that replace the tape
        self._num_envs, self._tape, self._tape_at = info.num_envs, tape, began.tape_at
        self._known = 0  # batches
        self._places = {env_id: array("q") for env_id in env_ids}  # batch and place of each row

    def add(self, first: int, env_ids: NDArray[np.integer]) -> None:
        """Add the ids of batches from ``first`` on, ``(batches, batch_size)``. Known batches are ignored."""
        if self.in_order:
            if any(recording.out_of_order(ids, self._num_envs) for ids in env_ids):
                raise BrokenInterfaceError(f"{recording.OUT_OF_ORDER}: batch {first} is not")
        elif first > self._known:
            raise CutOffError(f"the environments of batch {self._known} were not recorded")
        elif first + len(env_ids) > self._known:
            for env_id, places in self._places.items():
                found = np.argwhere(env_ids[self._known - first :] == env_id) + np.array([self._known, 0])
                places.frombytes(found.tobytes())
            self._known = first + len(env_ids)

    def place(self, env_id: int, step: int) -> tuple[int, int] | None:
        """Return the batch and place of an environment's row, None if the environment has no further row."""
        if self.in_order:
            return step, env_id
        places = self._places[env_id]
        return (places[2 * step], places[2 * step + 1]) if 2 * step < len(places) else None

    def action(self, env_id: int, step: int) -> ArrayTree:
        """Return the action that answered an environment's row."""
        number, place = self.place(env_id, step) or (0, 0)
        action: ArrayTree
        if not self.acted:
            action = trees.part(self._tape[(self._tape_at + number) % len(self._tape)], place)
        elif number < len(self.acted):
            action = trees.part(self.acted[number], place)
        else:
            raise CutOffError(f"the actions for batch {number} were not recorded")
        return action


class Followed:
    """One environment of the backend since the last reset, and the trajectory that follows it."""

    def __init__(
        self, env_id: int, trajectory: Trajectory, history: History, make_reference: Callable[[], Reference]
    ) -> None:
        self.env_id = env_id
        self.step = -1  # steps since the reset; -1 before the row of the reset
        self.ends = 0
        self.age = 0  # rows since the first row of the episode
        self.applied = 0  # steps to which declared differences apply, except in the first episode
        self.frames_at: int | None = None  # the backend's last reported count of frames in this episode
        self.steps_since = 0  # steps since this report
        self.spent_ns = 0
        self.times = array("q")  # the nanoseconds of each row but the first; of a reset, a negative number
        # The last rows of the reference and of the backend, digested, by step:
        self.expected: dict[int, Row] = {}
        self.found: dict[int, Row] = {}
        self._trajectory, self._history, self._make = trajectory, history, make_reference

    def go_to(self, number: int, declared: tuple[Difference, ...]) -> Row:
        """Step the reference up to batch ``number``, and return its row there, digested."""
        at = -1  # the batch of the last row
        while (place := self._history.place(self.env_id, self.step + 1)) is not None and place[0] <= number:
            at = place[0]
            action = self._history.action(self.env_id, self.step) if self.step >= 0 else None
            made = self._trajectory.step(self.step + 1, action)
            if made is None:
                self._go_alone()
                made = self._trajectory.step(self.step + 1, action)
            assert made is not None  # noqa: S101 - an unshared trajectory makes each next step
            self.spent_ns += made.ns
            self.step += 1
            self.expected[self.step] = made.row
            self.expected.pop(self.step - _KEPT, None)
            if self.step:
                self._count(made, declared)
                self.times.append(-made.ns if made.fresh else made.ns)
        if at != number:
            raise CutOffError(f"environment {self.env_id} is not in batch {number}")
        return self.expected[self.step]

    def _go_alone(self) -> None:
        """Repeat the steps with a new reference, because other recordings have stepped the shared one further."""
        self._trajectory = Trajectory(self._make(), self._history.seed, self.env_id)
        for step in range(self.step):
            self._trajectory.step(step + 1, self._history.action(self.env_id, step))

    def last(self) -> Row:
        """Return the reference's last row with its observation. Raises CutOffError if the row is not repeatable."""
        if self._trajectory.made != self.step:
            self._go_alone()
        row = self._trajectory.reference.row
        if not alike(digested(row), self.expected[self.step]):
            raise CutOffError(varies())
        return row

    def unrepeatable(self) -> str | None:
        """Return why new references do not repeat the rows, None if they do. All tasks of vebench are repeatable."""

        def rows(count: int) -> deque[Row]:
            made = [self._make() for _ in range(count)]
            for place, reference in enumerate(made):
                reference.reset(self._history.seed, self.env_id + place)
            found = deque([digested(made[0].row)], maxlen=_KEPT)
            for step in range(self.step):
                for reference in made[::-1]:
                    reference.step(self._history.action(self.env_id, step))
                found.append(digested(made[0].row))
            return found

        # Environments that draw from a global generator depend on the other environments of their process.
        with_another = rows(2)
        if all(map(alike, self.expected.values(), with_another)):
            return None
        return SURVIVES if all(map(alike, with_another, rows(1))) else varies()

    def _count(self, made: _Made, declared: tuple[Difference, ...]) -> None:
        if self.ends:
            self.applied += any(_applies(each, self.age + 1, made.row) for each in declared)
        self.ends += made.row.ended
        self.age += 1
        if made.fresh:
            self.age, self.frames_at, self.steps_since = 0, None, 0
        else:
            self.steps_since += 1


def _applies(difference: Difference, age: int, expected: Row) -> bool:
    """Return whether a declared difference applies to a row. Differences in every row never apply."""
    if difference.rows == "start":
        return age < min(difference.count, _MOST_EXCUSED)
    return difference.rows == "end" and expected.ended


class Judge:
    """Follows the environments ``env_ids`` of a recording, and finds the first row that differs.

    ``shared``: trajectories that recordings of the same task share, by seeds and other sources of their actions.
    """

    info: BackendInfo  # the backend's description of itself
    _about: About
    _history: History

    def __init__(
        self, task: Task, env_ids: tuple[int, ...], shared: dict[tuple[Any, ...], Trajectory] | None = None
    ) -> None:
        self.task = task
        self.mismatch: Mismatch | None = None
        self.followed: dict[int, Followed] = {}  # since the last reset, by environment
        self.seeds: list[int] = []  # the seeds of the resets
        self.batch = -1  # number of the last batch since the last reset
        self.furthest = 0  # the highest number of a batch
        self._env_ids, self._shared = env_ids, shared
        self._own: dict[int, Reference] = {}  # by environment. Kept through resets, because state may survive them.
        self._references: list[Reference] = []
        self._tape: list[ArrayTree] = []
        self._allowed: dict[str, None] = {}  # declared differences that occurred
        self._first_excused: Mismatch | None = None
        self._comparer = recording.Comparer()
        self._claimed = 0  # frames that the backend claims to have simulated
        self._simulated: int | None = None  # frames that it has counted
        self._rows = self._ends = self._cut_off = self._fewest_ends = self._excused = self._applied = self._steps = 0

    @property
    def spent_ns(self) -> int:
        """Time of the references' steps since the last reset. It includes steps that another recording paid for."""
        return sum(each.spent_ns for each in self.followed.values())

    def take(self, record: recording.Record) -> None:
        """Judge one record. Raises BrokenInterfaceError for a broken interface, CutOffError for a damaged recording."""
        if isinstance(record, Began):
            self._count_steps()
            self._history = History(self.info, record, self._tape, self._env_ids)
            self.seeds.append(record.seed)
            self.batch = -1
            self.followed.clear()
        elif isinstance(record, About):
            self._about, self.info = record, record.info
            self._tape = action_tape(record.info.action_space, record.tape_seed, record.info.batch_size)
        elif isinstance(record, Rows):
            self._compare(record)
        elif isinstance(record, Order):
            self._history.add(record.first, record.env_ids)
        elif isinstance(record, Acted):
            self._history.acted.extend(record.batches)
        elif record.fault:
            raise BrokenInterfaceError(record.fault)

    def _reference(self) -> Reference:
        self._references.append(Reference(self.task, same_step=self.info.autoreset == "same_step"))
        return self._references[-1]

    def _follow(self, env_id: int) -> Followed:
        """Start to follow an environment from its reset on."""
        earlier, history = self.seeds[:-1], self._history
        if self._shared is None or earlier or history.acted or not history.in_order:
            if env_id not in self._own:
                self._own[env_id] = self._reference()
                for seed in earlier:  # before these resets, a shared reference was followed
                    self._own[env_id].reset(seed, env_id)
            trajectory = Trajectory(self._own[env_id], history.seed, env_id)
        else:
            key = history.seed, env_id, self._about.tape_seed, len(self._tape), repr(self.info.action_space)
            if key not in self._shared:
                self._shared[key] = Trajectory(self._reference(), history.seed, env_id)
            trajectory = self._shared[key]
            self._references.append(trajectory.reference)
        check_claims(self.info, self.task, trajectory.reference.actions)
        self.followed[env_id] = Followed(env_id, trajectory, history, self._reference)
        return self.followed[env_id]

    def _count_steps(self) -> None:
        """Add up the steps since the last reset. The fewest ends are the largest minimum of any reset."""
        followed = self.followed.values()
        self._fewest_ends = max(self._fewest_ends, min((each.ends for each in followed), default=0))
        self._applied += sum(each.applied for each in followed)
        self._steps += sum(each.step for each in followed)

    def _compare(self, rows: Rows) -> None:
        """Compare a batch up to its first difference. Rows after the difference are kept to name the fault."""
        self.batch = rows.number
        self.furthest = max(self.furthest, rows.number)
        self._history.add(rows.number, rows.env_ids[None])
        places = {int(index): place for place, index in enumerate(rows.shown)}
        for index, env_id in enumerate(rows.env_ids.tolist()):
            shown = index in places and env_id in self._env_ids
            if not shown and (self.mismatch is None or env_id != self.mismatch.env_id):
                continue
            followed = self.followed.get(env_id) or self._follow(env_id)
            expected = followed.go_to(rows.number, self.info.differences)
            seen = trees.part(rows.observations, places[index]) if shown else None
            found = Row(seen, float(rows.rewards[index]), bool(rows.terminated[index]), bool(rows.truncated[index]))
            brief = digested(found) if shown else found._replace(observation=b"")
            followed.found[followed.step] = brief
            followed.found.pop(followed.step - _KEPT, None)
            if self.mismatch is not None:
                continue
            self._rows += 1
            self._ends += expected.ended
            self._cut_off += expected.truncated
            if not alike(expected, brief):
                self.mismatch = self._difference(followed, found)
            self.mismatch = self.mismatch or self._miscount(followed, rows)

    def _difference(self, followed: Followed, found: Row) -> Mismatch | None:
        """Return the mismatch of a row and the reference's row, None if the row is equal or excused."""
        expected = followed.last()
        ours, theirs = (dict(trees.named_leaves(row.observation, "observations")) for row in (expected, found))
        pairs = [(leaf, ours.get(leaf), theirs.get(leaf)) for leaf in sorted({*ours, *theirs})]
        pairs += zip(("rewards", "terminated", "truncated"), expected[1:], found[1:], strict=True)
        gaps = [*self._comparer.gaps(pairs)]
        for gap in gaps:
            field, _, leaf = gap.field.partition("/")
            mismatch = Mismatch(followed.env_id, followed.step, field, gap.expected, gap.found, gap.size, leaf)
            # No declaration excuses a different end, because steps are counted by ends.
            hidden = field in ("terminated", "truncated") and expected.ended != found.ended
            declared = (one for one in self.info.differences if one.field == field)
            excuse = next((one for one in declared if _applies(one, followed.age, expected)), None)
            if excuse is None or hidden:
                return mismatch
            self._first_excused = self._first_excused or mismatch
            self._allowed[excuse.text] = None
        self._excused += bool(gaps)
        return None

    def _miscount(self, followed: Followed, rows: Rows) -> Mismatch | None:
        """Check the backend's counts of frames and ends. Return a mismatch, None if they are right."""
        env_id, step, claim = followed.env_id, followed.step, self.info.frame_skip
        if SUITES[self.task.suite].frames is not None and rows.frames is not None:
            steps, followed.steps_since = followed.steps_since, 0
            now, before = int(rows.frames[env_id]), followed.frames_at
            followed.frames_at = now
            if before is not None and steps:
                most, made = claim * steps, now - before
                self._claimed += most
                self._simulated = (self._simulated or 0) + max(0, made)
                least = most - (claim - 1 if followed.expected[step].ended else 0)  # an end cuts a step short
                if not least <= made <= most:
                    return Mismatch(env_id, step, "frames", str(most), str(made), abs(made - most))
        ends = followed.ends if rows.ends is None else int(rows.ends[env_id])
        if ends != followed.ends:
            return Mismatch(env_id, step, "ends", str(followed.ends), str(ends), abs(ends - followed.ends))
        return None

    def proof(self) -> Proof:
        """Return the result so far, without the name of the fault."""
        self._count_steps()
        verdict: WorkVerdict = "equivalent" if self._allowed else "equal" if self._comparer.casts else "identical"
        mismatch, fault = self.mismatch, None
        if mismatch is None and self._allowed and self._applied > 0.2 * self._steps:  # more could hide any other fault
            mismatch = self._first_excused
            share = f"{self._applied / self._steps:.0%}"
            fault = f"declared differences affect {share} of all rows; at most 20% are allowed"
        return Proof(
            verdict if mismatch is None else "different",
            self._rows,
            self._ends,
            tuple(self._allowed),
            mismatch,
            fault,
            engines=self.info.engines,
            own_classes=self.info.own_classes,
            simulated=self._simulated,
            claimed=None if self._simulated is None else self._claimed,
            fewest_ends=self._fewest_ends,
            cut_off=self._cut_off,
            excused=self._excused,
            invalid=next(filter(None, (reference.checked.invalid for reference in self._references)), None),
        )


def check_claims(info: BackendInfo, task: Task, actions: ActionSpaceTree) -> None:
    """Raise BrokenInterfaceError if the reported space of actions or frame skip is not the task's.

    Measured actions are samples of the space. Frames/s are steps/s times the frame skip.
    """
    forms = [trees.form(info.action_space), trees.form(actions)]
    why = "" if forms[0] == forms[1] else ", not ".join(map(trees.in_words, forms))
    for (name, one), other in zip(trees.named_leaves(info.action_space), trees.leaves(actions), strict=False):
        alike = one.integer == other.integer and one.low.shape == other.low.shape
        if not alike or not np.allclose((one.low, one.high), (other.low, other.high), rtol=1e-6, atol=0):
            why = why or f"bounds, shape or type differ{f' ({name})' if name else ''}"
    if why:
        raise BrokenInterfaceError(f"the action space is not the task's: {why}")
    if info.frame_skip != task.frame_skip:
        raise BrokenInterfaceError(f"claims {info.frame_skip} frames per step instead of {task.frame_skip}")
