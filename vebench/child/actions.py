"""The actions of the timed loop: a tape drawn beforehand, or a policy that sees the observations."""

from __future__ import annotations

import contextlib
import importlib
import time
from itertools import cycle
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from vebench.backends import trees
from vebench.backends.environments.making import sample
from vebench.machine import pinning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from vebench.backends.interface import ActionSpace, ActionSpaceTree, ArrayTree, BackendInfo, Batch
    from vebench.child.policy import PolicyChoice

    Receive = Callable[[], Batch]

# A tape is repeated while the cell runs. It is long enough that no environment gets a short pattern of actions, and
# small enough to leave the caches to the environments.
_MOST_TAPE_BATCHES = 1024
FEWEST_TAPE_BATCHES = 32
MOST_TAPE_BYTES = 8 << 20


def action_tape(spaces: ActionSpaceTree, seed: int, batch_size: int) -> list[ArrayTree]:
    """Return the batches of actions, each ``(batch_size, *action_shape)``, that every backend of a run gets.

    They depend only on the arguments. Until tapes repeat, a row has the same actions for any batch size.
    """
    bytes_per_batch = 8 * batch_size * sum(max(1, space.low.size) for space in trees.leaves(spaces))
    count = min(_MOST_TAPE_BATCHES, max(FEWEST_TAPE_BATCHES, MOST_TAPE_BYTES // bytes_per_batch))
    drawn = sample(spaces, np.random.default_rng(seed), batch_size, count)
    return list(trees.as_rows(trees.mapped(lambda leaf: np.ascontiguousarray(leaf.swapaxes(0, 1)), drawn)))


class Actions:
    """The actions of a loop: an endless iterator over batches."""

    taken = 0  # how many batches were taken; tapes do not count
    _last: ArrayTree | None = None

    def __iter__(self) -> Iterator[ArrayTree]:
        return self

    def __next__(self) -> ArrayTree:
        """Return the next batch of actions, ``(rows, *action_shape)``."""
        raise NotImplementedError

    def receiving(self, recv: Receive) -> Receive:
        """Return the function that the loop calls for a batch, given the backend's."""
        return recv

    def is_at(self, number: int, actions: ArrayTree) -> bool:
        """Return whether these are the actions that batch ``number`` answers."""
        return number == self.taken and actions is self._last

    def begins(self) -> None:
        """Begin a stretch."""

    def times(self) -> dict[str, int]:
        """Return the counts since ``begins``, by the names of fields of ``Window``."""
        return {}


class Tape(Actions):
    """Repeats actions that were drawn beforehand. It costs the loop nothing."""

    def __init__(self, batches: Sequence[ArrayTree]) -> None:
        self._batches = batches
        self._running = cycle(batches)

    def __iter__(self) -> Iterator[ArrayTree]:
        return self._running

    def __next__(self) -> ArrayTree:
        return next(self._running)

    def is_at(self, number: int, actions: ArrayTree) -> bool:
        """Return whether these are the actions that batch ``number`` answers."""
        return self._batches[(number - 1) % len(self._batches)] is actions


class Acting(Actions):
    """The actions of a policy, which sees the batch before, and the times of its parts.

    To act, the calling thread moves to ``cpus``, if there are any, and then back to ``home``. ``note`` gets each batch
    of actions. The latency of a batch is the time from its actions to its rows. The age of a row is how often the
    policy has acted between choosing the row's action and getting the row; with a synchronous backend it is 0.
    """

    def __init__(
        self,
        policy: Policy,
        first: Batch,
        info: BackendInfo,
        clock: Callable[[], int],
        note: Callable[[ArrayTree], None] | None = None,
        *,
        cpus: tuple[int, ...] = (),
        home: tuple[int, ...] = (),
    ) -> None:
        self._policy, self._clock, self._note = policy, clock, note
        self._cpus, self._home = cpus, home
        self._observations: Any = first.observations
        self._sent = 0
        self._ahead = info.num_envs > info.batch_size
        self._seen = np.zeros(info.num_envs, np.int64)  # the batch in which each environment was last
        self._ids: list[NDArray[np.integer]] = []
        self._first_of_stretch = 1
        self.begins()

    def __next__(self) -> ArrayTree:
        clock, policy = self._clock, self._policy
        began = clock()
        if self._cpus:
            pinning.restrict(self._cpus)
        there = policy.upload(self._observations)
        uploaded = clock()
        chosen = policy.infer(there)
        inferred = clock()
        actions = policy.download(chosen)
        if self._cpus:
            pinning.restrict(self._home)
        self.taken += 1
        self._last = actions
        if self._note is not None:
            self._note(actions)
        self._sent = sent = clock()
        self._copied += uploaded - began + sent - inferred
        self._inferred += inferred - uploaded
        return actions

    def receiving(self, recv: Receive) -> Receive:
        """Return a function that receives a batch for the loop, and keeps it for the policy."""

        def receive() -> Batch:
            batch = recv()
            self._waits.append(self._clock() - self._sent)
            self._observations = batch[0]
            if self._ahead:
                self._ids.append(np.array(batch[4]))
            return batch

        return receive

    def begins(self) -> None:
        """Begin a stretch."""
        self._remember()
        self._copied = self._inferred = 0
        self._waits: list[int] = []

    def times(self) -> dict[str, int]:
        """Return the nanoseconds of each part of the stretch, latencies of batches, and the sum of the rows' ages."""
        typical, late = np.percentile(self._waits, (50, 99)) if self._waits else (0, 0)
        return {
            "waited_ns": sum(self._waits),
            "inferred_ns": self._inferred,
            "copied_ns": self._copied,
            "latency_p50_ns": round(typical),
            "latency_p99_ns": round(late),
            "aged": self._remember(),
        }

    def _remember(self) -> int:
        """Remember in which batch each environment was last. Returns the sum of the ages of all rows since."""
        ids, self._ids = self._ids, []
        if not ids:
            self._first_of_stretch = self.taken + 1
            return 0
        with contextlib.suppress(IndexError, ValueError):  # malformed batches, which are noticed elsewhere
            return self._aged(ids)
        return 0

    def _aged(self, ids: list[NDArray[np.integer]]) -> int:
        numbers = np.arange(self._first_of_stretch, self._first_of_stretch + len(ids))
        self._first_of_stretch += len(ids)
        flat = np.concatenate(ids)
        batches = np.repeat(numbers, [len(each) for each in ids])
        order = np.argsort(flat, kind="stable")
        env_ids, at = flat[order], batches[order]
        before = np.empty_like(at)
        before[1:] = at[:-1]
        first = np.ones(len(at), np.bool_)
        first[1:] = env_ids[1:] != env_ids[:-1]
        before[first] = self._seen[env_ids[first]]
        last = np.append(np.flatnonzero(first)[1:] - 1, len(at) - 1)
        self._seen[env_ids[last]] = at[last]
        return int((at - before - 1).sum())


class Fitting(Actions):
    """Actions for a backend whose batches vary in size: one for each row of the last batch, at first ``rows``."""

    def __init__(self, actions: Actions, rows: int) -> None:
        self._actions, self._rows = actions, rows
        self._lengths: list[int] = []

    def __next__(self) -> ArrayTree:
        self.taken += 1
        actions: ArrayTree = trees.as_rows(next(self._actions))[: self._rows]
        self._last = actions
        return actions

    def receiving(self, recv: Receive) -> Receive:
        """Return a function that receives a batch, and notes how many rows it has."""
        receives = self._actions.receiving(recv)

        def receive() -> Batch:
            batch = receives()
            self._rows = rows = len(batch[4])
            self._lengths.append(rows)
            return batch

        return receive

    def begins(self) -> None:
        """Begin a stretch."""
        self._lengths.clear()
        self._actions.begins()

    def times(self) -> dict[str, int]:
        """Return the number of batches, quantiles of their rows, and the counts of the wrapped actions."""
        few, typical, many = map(round, np.percentile(self._lengths or (0,), (5, 50, 95)))
        rows = {"rows_p5": few, "rows_p50": typical, "rows_p95": many}
        return {**self._actions.times(), "batches": len(self._lengths), **rows}


class Policy(Protocol):
    """Chooses actions in three steps, whose times are reported separately. Each returns when it is done."""

    def upload(self, observations: ArrayTree) -> Any:
        """Bring observations, ``(rows, *observation_shape)`` or a dict or tuple of such, to the policy's device."""
        return observations

    def infer(self, there: Any) -> Any:
        """Choose actions for what ``upload`` returned."""

    def download(self, chosen: Any) -> ArrayTree:
        """Return the actions, ``(rows, *action_shape)``, of the action space's type, in an array of their own."""
        actions: ArrayTree = chosen
        return actions


class _Called(Policy):
    """A user's function from observations to actions. Copying is part of its time.

    Where observations or actions are a dict or tuple, it takes or returns a dict or tuple of arrays.
    """

    def __init__(self, function: Callable[[ArrayTree], Any], spaces: ActionSpaceTree) -> None:
        self._function, self._spaces = function, spaces

    def infer(self, there: ArrayTree) -> ArrayTree:
        """Return the function's actions. Raises ValueError if these are not one for each row."""
        rows = _length(there)

        def checked(space: ActionSpace, actions: Any) -> NDArray[np.generic]:
            low = space.low
            given = np.array(actions, dtype=low.dtype)  # a copy: the function may use its array again
            if given.shape != (rows, *low.shape):
                raise ValueError(f"the policy returned actions of shape {given.shape}, not {(rows, *low.shape)}")
            return given

        try:
            chosen: ArrayTree = trees.mapped(checked, self._spaces, self._function(there))
        except (KeyError, IndexError, TypeError) as error:
            words = trees.in_words(trees.form(self._spaces))
            raise ValueError(f"the policy did not return actions as {words}: {error!r}") from error
        return chosen


class _Sleeping(Policy):
    """Sleeps, as a process does while its device computes, and takes its actions from a tape."""

    def __init__(self, seconds: float, tape: Sequence[ArrayTree]) -> None:
        self._seconds, self._actions = seconds, cycle(tape)

    def infer(self, there: ArrayTree) -> ArrayTree:
        time.sleep(self._seconds)
        actions: ArrayTree = trees.part(next(self._actions), slice(_length(there)))
        return actions


def _length(observations: ArrayTree) -> int:
    return len(trees.leaves(observations)[0])


def make_policy(
    chosen: PolicyChoice, spaces: ActionSpaceTree, observations: ArrayTree, seed: int, tape: Sequence[ArrayTree]
) -> Policy:
    """Return the policy that was chosen, for observations like these, ``(rows, *observation_shape)``.

    Its weights are drawn from ``seed``. Raises ValueError if it does not fit the environment or the machine.
    """
    if chosen.kind == "sleep":
        return _Sleeping(chosen.seconds, tape)
    if chosen.kind == "function":
        module, _, path = chosen.target.partition(":")
        function: Any = importlib.import_module(module)
        for part in path.split("."):
            function = getattr(function, part)
        return _Called(function, spaces)
    if isinstance(observations, (dict, tuple)) or isinstance(spaces, (dict, tuple)):
        taken = [trees.in_words(trees.form(tree)) for tree in (observations, spaces)]
        raise ValueError(  # noqa: TRY004 - by contract
            f"policy {chosen.name} takes one array of observations and one of actions, "
            f"not {taken[0]} and {taken[1]}: use MODULE:FUNCTION, or sleep:TIME"
        )
    from vebench.child.network import Network

    return Network(chosen, spaces, observations, seed)
