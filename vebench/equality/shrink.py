"""Draws the cases that both sides of a comparison step, and shrinks a case in which they differ.

A case is a few segments. A segment is a reset with a seed, and then an action for each step of each environment. An
action is a list of arrays as ``child/equality/subject.py`` takes them. Nothing here steps anything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends import trees
from vebench.backends.environments.making import sample
from vebench.child.equality.subject import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from vebench.backends.interface import ActionSpaceTree
    from vebench.equality.rows import FirstDifference

    Action = Any

_MOST_RUNS = 400  # of cases, to find a small one
_SEEDS = 20  # tried for a smaller example
_FAR_APART = 10_000  # seeds of segments: more than environments
_LONGER, _SHORT, _MANY = 4, 20, 5  # of the layouts: factor of steps, steps, environments
_HOLDS = 20  # steps for which an action is held, at most
_CONSTANTS = 6
FEW_ENDS = 3  # of episodes; without them, longer cases are stepped


@dataclass(frozen=True)
class Segment:
    """A reset, and an action for each step of each environment."""

    seed: int  # environment i adds its number
    actions: tuple[tuple[Action, ...], ...]  # of each environment

    @property
    def length(self) -> int:
        """The number of actions of each environment."""
        return len(self.actions[0])

    def cut(self, length: int) -> Segment:
        """Return the segment with this many actions at most."""
        return replace(self, actions=tuple(lane[:length] for lane in self.actions))


Case = tuple[Segment, ...]


class Source:
    """Draws the actions and seeds of cases from a seed.

    ``how``: ``hold`` or ``sweep`` for all cases, empty for a mixture. ``given``: actions of a user's file, which are
    repeated, ``(steps, environments, *action_shape)``.
    """

    def __init__(
        self, space: ActionSpaceTree, seed: int, how: str = "", given: NDArray[np.generic] | None = None
    ) -> None:
        self.given = given
        self._space, self._how = space, how
        self._rng = np.random.default_rng(seed)

    def constants(self) -> list[Action]:
        """Return simple actions, the simplest first: zeros or the least, then the others or the bounds."""
        leaves = trees.leaves(self._space)
        numbers = range(_CONSTANTS) if all(leaf.integer for leaf in leaves) else (0, 1, -1)
        found: list[Action] = []
        for number in numbers:
            action = [plain(np.clip(number, leaf.low, leaf.high).astype(leaf.low.dtype)) for leaf in leaves]
            if action not in found:
                found.append(action)
        return found

    def segment(self, num_envs: int, steps: int, how: str = "", seed: int | None = None) -> Segment:
        """Return a segment of this size, with a seed that no environment of another segment has.

        With ``hold``, each action is held for some steps, to get further. With ``sweep``, every third environment
        sweeps through simple actions, and the others hold one.
        """
        seed = int(self._rng.integers(1, 1 << 16)) * _FAR_APART if seed is None else seed
        return Segment(seed, tuple(self._lane(number, steps, self._how or how) for number in range(num_envs)))

    def cases(self, num_envs: int, steps: int, *, fixed: bool) -> Iterator[Case]:
        """Yield cases of ``num_envs`` environments, and of one and of many unless the number is ``fixed``.

        The first cases have the layouts asked for, one and many. The last ones are longer, and not needed if episodes
        have ended.
        """
        many = num_envs if fixed else max(_MANY, num_envs)
        one = num_envs if fixed else 1
        short = min(steps, _SHORT)
        yield self.segment(num_envs, steps), self.segment(num_envs, short, seed=0)
        yield (self.segment(one, steps, "hold"),)
        yield (self.segment(many, min(steps, 2 * _SHORT), "hold"),)
        yield self.segment(many, steps, "sweep"), self.segment(many, short)
        for _ in range(FEW_ENDS):
            yield (self.segment(one, _LONGER * steps, "hold"),)

    def _lane(self, number: int, steps: int, how: str) -> tuple[Action, ...]:
        lane: list[Action] = []
        simple = self.constants()
        while len(lane) < steps:
            if self.given is not None:
                row = self.given[len(lane) % len(self.given)]
                lane.append([plain(row[number % len(row)])])
            elif how == "sweep":
                lane.append(simple[(number if number % 3 else len(lane) // _HOLDS) % len(simple)])
            else:
                action = [plain(leaf) for leaf in trees.leaves(sample(self._space, self._rng))]
                lane += [action] * (int(self._rng.integers(1, _HOLDS)) if how == "hold" else 1)
        return tuple(lane[:steps])


def smallest(
    case: Case,
    difference: FirstDifference,
    stepped: Callable[[Case], FirstDifference | None],
    constants: Sequence[Action],
    *,
    fixed: bool,
    timely: Callable[[], bool],
) -> tuple[Case, FirstDifference]:
    """Return a small case in which the two still differ, and where.

    Environments go first, then segments and actions. Actions become the first of the ``constants``. A seed becomes the
    one of twenty that needs the fewest actions. With ``fixed``, the number of environments does not change. The search
    goes on while it is ``timely``, for 400 cases at most.
    """
    best, runs = (case, difference), 0

    def better(candidates: Iterable[Case]) -> bool:
        """Take the first candidate that differs and is smaller, without the actions after the row that differs."""
        nonlocal best, runs
        for candidate in candidates:
            if runs >= _MOST_RUNS or not timely():
                return False
            runs += 1
            found = stepped(candidate)
            if found is None:
                continue
            smaller = candidate, found
            # Other environments may need their actions after the cut: some make more calls than others.
            cut = _cut(*smaller)
            if cut != candidate and (again := stepped(cut)) is not None:
                smaller = cut, again
            if _size(smaller[0], constants) < _size(best[0], constants):
                best = smaller
                return True
        return False

    better([_cut(case, difference)])
    orders = _fewer_environments, _fewer_segments, _constant, _fewer_actions, _simpler_actions, _other_seeds
    again = True
    while again:
        again = False
        for candidates in orders:
            while better(candidates(*best, constants, fixed)):
                again = True
    return best


def _cut(case: Case, difference: FirstDifference) -> Case:
    """Return the case up to the row that differs."""
    *before, last = case[: difference.segment + 1]
    return (*before, last.cut(difference.needs))


def _size(case: Case, constants: Sequence[Action]) -> tuple[int, ...]:
    """Return the measures by which cases are compared, the most important first."""
    simple = {repr(action): place for place, action in enumerate(constants)}
    actions = [action for each in case for lane in each.actions for action in lane]
    places = sum(simple.get(repr(action), len(simple)) for action in actions)
    seeds = sum(min(each.seed, _SEEDS) for each in case)
    return len(case[0].actions), len(case), sum(each.length for each in case), places, seeds


def _fewer_environments(case: Case, difference: FirstDifference, _: Sequence[Action], fixed: bool) -> Iterator[Case]:
    count = len(case[0].actions)
    for width in range(1, 1 if fixed else count):
        for first in range(max(0, difference.env - width + 1), min(difference.env, count - width) + 1):
            yield tuple(Segment(each.seed + first, each.actions[first : first + width]) for each in case)


def _fewer_segments(case: Case, *_: object) -> Iterator[Case]:
    for gone in range(len(case) - 1):
        yield case[:gone] + case[gone + 1 :]
    for at, each in enumerate(case[:-1]):
        for length in sorted({0, 1, each.length // 2}):
            if length < each.length:
                yield (*case[:at], each.cut(length), *case[at + 1 :])


def _constant(case: Case, _: FirstDifference, constants: Sequence[Action], __: bool) -> Iterator[Case]:
    *before, last = case
    for action in constants:
        yield (*before, replace(last, actions=tuple((action,) * last.length for _ in last.actions)))


def _fewer_actions(case: Case, *_: object) -> Iterator[Case]:
    *before, last = case
    chunk = last.length // 2
    while chunk:
        for first in range(0, last.length, chunk):
            kept = tuple(lane[:first] + lane[first + chunk :] for lane in last.actions)
            yield (*before, replace(last, actions=kept))
        chunk //= 2


def _simpler_actions(case: Case, _: FirstDifference, constants: Sequence[Action], __: bool) -> Iterator[Case]:
    for at, each in enumerate(case):
        for number, lane in enumerate(each.actions):
            for step, action in enumerate(lane):
                for simple in constants:
                    if simple == action:
                        break
                    changed = (*lane[:step], simple, *lane[step + 1 :])
                    lanes = (*each.actions[:number], changed, *each.actions[number + 1 :])
                    yield (*case[:at], replace(each, actions=lanes), *case[at + 1 :])


def _other_seeds(case: Case, *_: object) -> Iterator[Case]:
    """Yield the case with other seeds, also without its first action: with some, the two differ after fewer."""
    for at, each in enumerate(case):
        for seed in range(_SEEDS):
            for skipped in range(min(2, each.length)):
                changed = Segment(seed, tuple(lane[skipped:] for lane in each.actions))
                yield (*case[:at], changed, *case[at + 1 :])
