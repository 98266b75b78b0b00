"""The reference: one environment, stepped as the for-loop steps it, and how it follows an environment of a backend.

``History`` knows which actions the environments of a backend got, and ``Followed`` steps a reference with those of one.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from hashlib import blake2b
from math import isnan
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vebench.backends import trees
from vebench.backends.environments.making import frames_of, make, read_spaces
from vebench.backends.for_loop import loop_over
from vebench.child.equality.compare import leaves_of
from vebench.child.equality.recording import NO_ROW, OUT_OF_ORDER, CutOffError, out_of_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from vebench.backends.interface import ActionSpaceTree, ArrayTree, Batch, Task
    from vebench.backends.trees import Tree
    from vebench.child.equality.recording import About, Acted, Began

_DIGEST = 16  # bytes of the digest of one leaf
# What a declared difference may excuse: rows after a reset. More could hide any other fault.
MOST_EXCUSED = 16
_KEPT = 4096  # the last steps of each environment
_MOST_KNOWN = 1 << 18  # steps that several recordings may share: about 100 MB
NOT_REPEATABLE = "with the same seed and actions, its results vary between runs or with other environments present"
SURVIVES = "the environment has state that survives reset(seed=): what follows later resets was not compared"
_shared_state = np.random.get_state  # of the generator that all environments of a process share
_AT_FIRST = repr(_shared_state())


def not_repeatable() -> str:
    """Return ``NOT_REPEATABLE``, with the cause if environments have drawn from numpy's global generator."""
    drawn = repr(_shared_state()) != _AT_FIRST
    return NOT_REPEATABLE + ": it draws from the global np.random; use self.np_random" * drawn


class Row(NamedTuple):
    """One environment's answer to one step, copied."""

    observation: Tree
    reward: float
    terminated: bool
    truncated: bool

    @property
    def ended(self) -> bool:
        """Whether the episode is over."""
        return self.terminated or self.truncated

    def beside(self, other: Row) -> Iterator[tuple[str, Any, Any]]:
        """Yield the fields of two rows in pairs, with each leaf of their observations."""
        yield from leaves_of("observations", self.observation, other.observation)
        yield "rewards", self.reward, other.reward
        yield "terminated", self.terminated, other.terminated
        yield "truncated", self.truncated, other.truncated


def row_of(batch: Batch, index: int) -> Row:
    """Return a copy of one row of a batch."""
    return Row(
        trees.mapped(lambda array: np.array(array[index]), batch.observations),
        float(batch.rewards[index]),
        bool(batch.terminated[index]),
        bool(batch.truncated[index]),
    )


def alike(one: Row, other: Row) -> bool:
    """Return whether two digested rows are the same. A reward that is no number is the same as another such one."""
    if one[2:] != other[2:] or one.observation != other.observation:
        return False
    return one.reward == other.reward or (isnan(one.reward) and isnan(other.reward))


def digested(row: Row) -> Row:
    """Return the row with a digest instead of its observation, so that thousands of Atari rows need little memory."""
    return row._replace(observation=digest(row.observation))


def digest(observation: ArrayTree) -> bytes:
    """Return the digests of an observation's leaves, of their names, types and shapes too, one after another."""
    digests = b""
    for name, leaf in trees.named_leaves(observation):
        whole = blake2b(f"{name} {leaf.dtype.str} {leaf.shape}".encode(), digest_size=_DIGEST)
        whole.update(leaf.tobytes())
        digests += whole.digest()
    return digests


class Checked:
    """An environment whose values are checked before the loop writes them into arrays, which casts them silently.

    ``invalid``: the first reward that is no finite number, or observation that is not of its declared shape and type
    or holds NaN, and the step in which it came; None so far.
    """

    def __init__(self, environment: Any, declared: Tree) -> None:  # noqa: ANN401 - a Gymnasium environment
        self.action_space = environment.action_space
        self.invalid: str | None = None
        self._environment = environment
        self._declared = declared
        self._step = 0

    def reset(self, **seed: int) -> tuple[Any, dict[str, Any]]:
        """Reset the environment."""
        self._step = 0
        observation, info = self._environment.reset(**seed)
        self._check(observation, 0.0)
        return observation, info

    def step(self, action: Any) -> tuple[Any, ...]:  # noqa: ANN401 - as the environment takes it
        """Step the environment."""
        self._step += 1
        made: tuple[Any, ...] = self._environment.step(action)
        self._check(made[0], made[1])
        return made

    def _check(self, observation: Any, reward: Any) -> None:  # noqa: ANN401 - whatever was returned
        if self.invalid is not None:
            return
        wrong = _undeclared("observations", self._declared, observation)
        if wrong is None and (reward is None or not np.isfinite(reward).all()):
            wrong = f"the reward is {reward}"
        if wrong is not None:
            self.invalid = f"{wrong}, in {f'step {self._step} after a reset' if self._step else 'a reset'}"


def _undeclared(name: str, declared: Tree, value: Any) -> str | None:  # noqa: ANN401 - same reason
    """Return what is wrong with an observation, None if it is of the shape and type that its space declares."""
    if not trees.is_leaf(declared):
        parts = declared.items() if isinstance(declared, dict) else enumerate(declared)
        return next(filter(None, (_undeclared(f"{name}/{key}", part, value[key]) for key, part in parts)), None)
    array = np.asarray(value)
    if array.shape != declared.shape:
        return f"{name} have the shape {array.shape}, not {declared.shape} as declared"
    if not np.can_cast(array.dtype, declared.dtype):
        return f"{name} are {array.dtype}, not {declared.dtype} as declared"
    return f"{name} hold NaN" if array.dtype.kind == "f" and np.isnan(array).any() else None


class Reference:
    """One environment, stepped as the for-loop steps it, with its last row. Without ``seed`` it is not reset yet.

    With ``same_step``, the row of an end has the next episode's first observation, and resets have no rows of their
    own. ``fresh``: whether the last row has the first observation of an episode.
    """

    def __init__(self, task: Task, env_id: int, seed: int | None = None, *, same_step: bool = False) -> None:
        self._task = task
        self.fresh = True
        self._same_step = same_step
        self._environment = make(task)
        spaces = read_spaces(task, self._environment.observation_space, self._environment.action_space)
        self.actions: ActionSpaceTree = spaces.actions  # the space of one action
        self._batch = spaces.rows(1)._replace(env_ids=np.array([env_id]))
        self._checked = Checked(self._environment, spaces.observations)
        environments: Any = [self._checked]
        self._loop = loop_over(environments, self._batch)
        if seed is not None:
            self.reset(seed)

    def reset(self, seed: int, env_id: int | None = None) -> Row:
        """Begin again, with ``seed`` plus the environment's id; return the first row.

        With ``env_id``, it is another environment from now on, since it takes time to make one.
        """
        if env_id is not None:
            self._batch.env_ids[0] = env_id
        self._loop.reset(seed)
        self.fresh = True
        self.row = row_of(self._batch, 0)
        return self.row

    @property
    def invalid(self) -> str | None:
        """The first value of the environment that its spaces do not allow, None so far."""
        return self._checked.invalid

    @property
    def frames(self) -> int | None:
        """Frames simulated in this episode, None if unknown."""
        return frames_of(self._task, self._environment)

    @property
    def last(self) -> Row:
        """The last row, digested."""
        return digested(self.row)

    def step(self, action: ArrayTree) -> Row:
        """Step with ``action``, or reset if the episode is over; return the row."""
        after_end = self.row.ended and not self._same_step
        batch: ArrayTree = trees.mapped(lambda array: array[None], action)
        self._loop.step(batch)
        self.row = row_of(self._batch, 0)
        self.fresh = after_end or (self._same_step and self.row.ended)
        if self._same_step and self.row.ended:
            self._loop.step(batch)
            self.row = self.row._replace(observation=row_of(self._batch, 0).observation)
        return self.row

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()


class Known:
    """Steps that references of one task have made, for several recordings to share.

    What an environment returns follows from its seed and actions. ``steps`` has their hash, and what came of them: the
    row, digested; whether it begins an episode; frames; nanoseconds. ``there`` are references that have made just these
    steps. By ``clock``, a shared step takes as long as when it was made, so that no less of a recording is compared.
    """

    def __init__(self, now: Callable[[], int], spare: list[Reference]) -> None:
        self.steps: dict[int, tuple[Row, bool, int | None, int]] = {}
        self.there: dict[int, Reference] = {}
        self.used: list[Reference] = []
        self.spare = spare
        self.now, self.saved_ns = now, 0

    def clock(self) -> int:
        """Return the time in nanoseconds, with that of the steps that were shared."""
        return self.now() + self.saved_ns


class Shared:
    """A reference that makes only the steps that are not ``known``."""

    def __init__(self, known: Known, make: Callable[[], Reference]) -> None:
        self._known, self._make = known, make

    def reset(self, seed: int, env_id: int) -> None:
        """Follow this environment, from a reset with ``seed`` plus its id on."""
        known, self._of, self._key = self._known, (seed, env_id), hash(seed + env_id)
        self._actions: list[ArrayTree] = []
        if self._key not in known.steps:
            reference = known.there[self._key] = known.spare.pop() if known.spare else self._make()
            known.used.append(reference)
            reference.reset(seed, env_id)
            known.steps[self._key] = reference.last, reference.fresh, reference.frames, 0
        self.last, self.fresh, self.frames, _ = known.steps[self._key]

    def step(self, action: ArrayTree) -> None:
        """Step with ``action``, or reset if the episode is over."""
        known, key = self._known, hash((self._key, *(leaf.tobytes() for leaf in trees.leaves(action))))
        reference = known.there.get(self._key) if key in known.steps else self._reference()
        if reference is None:
            step = known.steps[key]
            known.saved_ns += step[-1]
        else:
            began = known.now()
            reference.step(action)
            step = reference.last, reference.fresh, reference.frames, known.now() - began
            known.there[key] = known.there.pop(self._key)
            if len(known.steps) < _MOST_KNOWN:
                known.steps[key] = step
        self._actions.append(action)
        self._key, (self.last, self.fresh, self.frames, _) = key, step

    def _reference(self) -> Reference:
        """Return a reference that has made the same steps. Raises CutOffError if these give another row now."""
        there = self._known.there
        if self._key not in there:
            again = self._make()
            again.reset(*self._of)
            for action in self._actions:
                again.step(action)
            if not alike(again.last, self.last):
                raise CutOffError(not_repeatable())
            there[self._key] = again
        return there[self._key]

    @property
    def row(self) -> Row:
        """The last row."""
        return self._reference().row


class FaultError(Exception):
    """What was recorded breaks the interface. The text says how."""


class History:
    """The batches since a reset: which environments are in which, and which actions they got."""

    def __init__(self, about: About, began: Began, tape: list[ArrayTree]) -> None:
        self.seed = began.seed
        self.in_order = about.in_order
        self.blocks: list[tuple[int, NDArray[np.integer]]] = []  # the first batch of each, and the ids of its batches
        self.tape_at = began.tape_at
        self._about = about
        self._tape = tape
        self._known = 0
        self._acted: ArrayTree | None = None
        self._batches_acted = 0

    def act(self, acted: Acted) -> None:
        """Take these actions, and not those of the tape. Raises CutOffError if they are no actions of this backend."""
        if trees.form(acted.actions) != trees.form(self._tape[0]):
            raise CutOffError(f"actions are {trees.in_words(trees.form(acted.actions))}")
        for actions, known in zip(trees.leaves(acted.actions), trees.leaves(self._tape[0]), strict=True):
            expected = (self._about.batch_size, *known.shape[1:])
            if actions.shape[1:] != expected or actions.dtype != known.dtype:
                raise CutOffError(f"actions of {actions.dtype} and shape {actions.shape[1:]}, not {expected}")
        self._acted = acted.actions
        self._batches_acted = len(trees.leaves(acted.actions)[0])

    def add(self, first: int, env_ids: NDArray[np.integer]) -> None:
        """Add the ids of batches from ``first`` on, ``(batches, batch_size)``. What is known already may come again."""
        if self.in_order:
            if any(out_of_order(ids, self._about.num_envs) for ids in env_ids):
                raise FaultError(f"{OUT_OF_ORDER}: batch {first} is not")
            return
        if first > self._known:
            raise CutOffError(f"the environments of batch {self._known} were not recorded")
        if self._about.fewest_rows is not None and env_ids.shape[-1] < self._about.batch_size:
            missing = self._about.batch_size - env_ids.shape[-1]
            env_ids = np.pad(env_ids.astype(np.int64), ((0, 0), (0, missing)), constant_values=NO_ROW)
        if env_ids.ndim != 2 or env_ids.shape[1] != self._about.batch_size:  # noqa: PLR2004 - batches and rows
            raise FaultError(f"a batch of {env_ids.shape[-1]} rows instead of {self._about.batch_size}")
        news = env_ids[self._known - first :]
        if not len(news):
            return
        least = 0 if self._about.fewest_rows is None else NO_ROW
        if news.min() < least or news.max() >= self._about.num_envs:
            raise FaultError(f"env_ids outside 0..{self._about.num_envs - 1}")
        ascending = np.sort(news, axis=1)
        twice = ascending[:, 1:][(ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] != NO_ROW)]
        if twice.size:
            raise FaultError(f"the same row twice in a batch: environment {twice[0]}")
        self.blocks.append((self._known, news))
        self._known += len(news)

    def action(self, number: int, place: int) -> ArrayTree:
        """Return the action that answered row ``place`` of batch ``number``."""
        if self._acted is not None:
            if number >= self._batches_acted:
                raise CutOffError(f"the actions for batch {number} were not recorded")
            chosen: ArrayTree = trees.part(self._acted, (number, place))
            return chosen
        action: ArrayTree = trees.part(self._tape[(self.tape_at + number) % len(self._tape)], place)
        return action


class Followed:
    """One environment of the backend since the last reset, and the reference that follows it.

    ``step``: steps since the reset, -1 before the row of the reset. ``fresh_for``: rows since the first of an episode.
    ``expected`` and ``found``: the last rows of both, digested; ``found`` by step.
    """

    def __init__(self, env_id: int, reference: Reference | Shared, history: History) -> None:
        self.env_id = env_id
        self.reference = reference
        self.step = -1
        self.ends = self.fresh_for = 0
        self.frames_at: int | None = None  # the backend's count when it was last looked at in this episode
        self.steps_since = 0  # transitions since then
        self.ages: Counter[int] = Counter()  # steps by the rows since the first of their episode
        self.miscounted: tuple[int, int] | None = None  # a step, and the frames that the reference made in it
        self.expected: deque[Row] = deque(maxlen=_KEPT)
        self.found: dict[int, Row] = {}
        self._frames: int | None = None  # of the reference, after its last row
        self._places = array("q")  # batch and place of each row
        self._coming: deque[tuple[int, int]] = deque()
        self._blocks = 0
        self._next = 0
        reference.reset(history.seed, env_id)

    def unrepeatable(self, history: History, make: Callable[[], Reference]) -> str | None:
        """Return why new references do not give the same rows for the same actions, None if they do."""

        def rows(count: int) -> deque[Row]:
            made = [make() for _ in range(count)]
            for place, reference in enumerate(made):
                reference.reset(history.seed, self.env_id + place)
            found = deque([made[0].last], _KEPT)
            for at in range(0, 2 * self.step, 2):
                action = history.action(self._places[at], self._places[at + 1])
                for reference in made[::-1]:
                    reference.step(action)
                found.append(made[0].last)
            for reference in made:
                reference.close()
            return found

        # Environments that draw from a generator of their process depend on what else is there.
        if all(map(alike, self.expected, beside_another := rows(2))):
            return None
        return SURVIVES if all(map(alike, beside_another, rows(1))) else not_repeatable()

    def expected_at(self, step: int) -> Row | None:
        """Return the reference's row of a step, digested; None if it is not kept any more, or not there yet."""
        at = step - (self.step - len(self.expected) + 1)
        return self.expected[at] if 0 <= at < len(self.expected) else None

    def go_to(self, number: int, history: History, claim: int | None) -> Row:
        """Go as far as the environment is in batch ``number``, and return the reference's row there, digested.

        ``claim``: the frames that the backend claims to simulate in each step, None if not counted.
        """
        for at, place in self._rows_up_to(number, history):
            if self.step >= 0:
                self.reference.step(history.action(self._places[-2], self._places[-1]))
            self.expected.append(self.reference.last)
            if self.step >= 0:
                self._count(claim)
            self._places.extend((at, place))
            self.step += 1
            self._frames = self.reference.frames
        if not self._places or self._places[-2] != number:
            raise CutOffError(f"environment {self.env_id} is not in batch {number}")
        return self.expected[-1]

    def _rows_up_to(self, number: int, history: History) -> Iterator[tuple[int, int]]:
        if history.in_order:
            for at in range(self._next, number + 1):
                yield at, self.env_id
            self._next = number + 1
            return
        for first, env_ids in history.blocks[self._blocks :]:
            self._coming.extend((first + int(at), int(place)) for at, place in np.argwhere(env_ids == self.env_id))
        self._blocks = len(history.blocks)
        while self._coming and self._coming[0][0] <= number:
            yield self._coming.popleft()

    def _count(self, claim: int | None) -> None:
        ended = self.expected[-1].ended
        self.ends += ended
        self.fresh_for += 1
        if self.reference.fresh:
            self.fresh_for, self.frames_at, self.steps_since = 0, None, 0
        self.ages[min(self.fresh_for, MOST_EXCUSED)] += 1
        if self.reference.fresh:
            return
        self.steps_since += 1
        frames = self.reference.frames
        if claim is None or frames is None or self._frames is None or self.miscounted is not None:
            return
        count = frames - self._frames
        if not (1 if ended else claim) <= count <= claim:
            self.miscounted = self.step + 1, count

    def keep(self, found: Row) -> None:
        """Keep a row of the backend's, digested."""
        self.found[self.step] = found
        self.found.pop(self.step - _KEPT, None)
