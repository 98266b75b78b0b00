"""Where two implementations part: rows are compared in pairs, and the case in which they differ is made small.

A case is a few segments: each is a reset with a seed, and then an action for each step of each environment. Actions
and rows are plain objects, as ``child/equality/subject.py`` sends them. Pure functions: who steps a case is given.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import ks_2samp

from vebench.backends import trees
from vebench.child.equality.subject import RESET, STEP, array_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Action = Any
    Answer = Mapping[str, Any]  # of ``child/equality/subject.py`` to a case
    # The observation at its start; for each step, the observation before, the action, the next one, reward and flags.
    Episode = tuple[list[float], list[list[float]]]

_MOST_RUNS = 400  # of cases, to find a small one
_SEEDS = 20  # tried for a smaller example
_FLAGS = ("rewards", "terminated", "truncated")
LEVEL, _TESTS = 0.05, 4  # of the tests of distributions, all together, and how many they are
_POWER = 1.645  # standard errors from a significant difference to one that 95 % of runs show
_SHUFFLES = 999
_FLOOR = 1e-4  # standard deviations of an outcome: less may be rounding
_MOST_STEPS, _FEW, _MOST_COLUMNS = 20_000, 20, 24


@dataclass(frozen=True)
class Segment:
    """A reset with ``seed``, which environment i adds its number to, and the ``actions`` of each environment."""

    seed: int
    actions: tuple[tuple[Action, ...], ...]

    @property
    def length(self) -> int:
        """The number of actions of each environment."""
        return len(self.actions[0])


Case = tuple[Segment, ...]


@dataclass(frozen=True)
class Limit:
    """How far numbers may be apart: absolutely, relative to the first, or in units in the last place (ulps).

    It holds for the first ``steps`` steps of an episode. Later ones are not compared: physics may be chaotic.
    """

    absolute: float = 0.0
    relative: float = 0.0
    ulps: int = 0
    steps: int | None = None

    def allows(self, one: NDArray[Any], other: NDArray[Any]) -> bool:
        """Return whether all numbers are near enough; equal ones and pairs of NaN are."""
        first, second = one.astype(np.float64), other.astype(np.float64)
        kind = one.dtype if one.dtype.kind == "f" else np.dtype(np.float64)
        spacing = np.abs(np.spacing(np.abs(one).astype(kind))).astype(np.float64)
        room = np.maximum(np.maximum(self.absolute, self.relative * np.abs(first)), self.ulps * spacing)
        with np.errstate(invalid="ignore"):
            near = (np.abs(first - second) <= room) | (first == second)
        return bool(np.all(near | (np.isnan(first) & np.isnan(second))))


@dataclass(frozen=True)
class Parting:
    """The first row that differs: of environment ``env``, after ``step`` actions of a segment, and seen with ``needs``.

    ``field`` is ``observations/LEAF``, ``infos/KEY``, ``rewards``, ``terminated``, ``truncated``, ``resets`` if one has
    a row of a reset where the other has a step, or ``raised``. ``found`` is what the two have there, in words,
    ``calls`` are the numbers of the calls that returned the rows. ``row`` counts the rows of the environment before it.
    ``final``: the row ends an episode.
    """

    env: int
    segment: int
    step: int
    needs: int
    row: int
    field: str
    found: tuple[str, str]
    calls: tuple[int | None, int | None] = (None, None)
    final: bool = False


@dataclass
class Tally:
    """What was compared: rows, ends of episodes and how many of them by truncation, and what made rows equal."""

    limits: Mapping[str, Limit] = field(default_factory=dict)
    rows: int = 0
    ends: int = 0
    truncated: int = 0
    longest: int = 0  # steps of an episode
    casts: Counter[str] = field(default_factory=Counter)  # in words, and the arrays that needed them
    furthest: dict[str, float] = field(default_factory=dict)  # how far numbers within a limit were apart
    skipped: int = 0  # arrays beyond the steps of their limit
    infos: tuple[set[str], set[str]] = field(default_factory=lambda: (set(), set()))  # names that each has
    not_compared: dict[str, str] = field(default_factory=dict)  # infos, and why
    only: str = ""  # of infos, compare this field
    raised: str = ""  # what both raised, so that no more rows could be compared
    kept: str = ""  # a field that shows that both keep state through ``reset(seed=)``: it is compared in fresh copies

    def anew(self, only: str) -> Tally:
        """Return a tally of other rows of the same two, whose infos are compared if they are this field."""
        return Tally(self.limits, infos=self.infos, not_compared=self.not_compared, only=only)

    def limit_of(self, name: str) -> Limit | None:
        """Return the limit of a field, or of what it is a leaf of."""
        return next((limit for of, limit in self.limits.items() if name == of or name.startswith(f"{of}/")), None)


def first_parting(one: Answer, other: Answer, tally: Tally) -> Parting | None:
    """Compare two answers to a case, and return the row that differs after the fewest actions, None if none does."""
    for names, answer in zip(tally.infos, (one, other), strict=True):
        names.update(f"infos/{leaf[0]}" for rows in answer["rows"] for row in rows for leaf in row[6] or ())
    found = [
        parting
        for env, rows in enumerate(zip(one["rows"], other["rows"], strict=True))
        if (parting := _of_environment(env, *rows, (one["raised"], other["raised"]), tally)) is not None
    ]
    if one["raised"] and other["raised"]:
        tally.raised = one["raised"]
    return min(found, key=lambda each: (each.segment, each.step, each.row, each.env), default=None)


def _of_environment(
    env: int, one: Sequence[Any], other: Sequence[Any], raised: tuple[str, str], tally: Tally
) -> Parting | None:
    segment = step = age = 0
    for number in range(max(len(one), len(other))):
        pair = [rows[number] if number < len(rows) else None for rows in (one, other)]
        known = next(row for row in pair if row is not None)
        step, age = (step if known[0] == segment else 0) + (known[1] == STEP), 0 if known[1] == RESET else age + 1
        segment = known[0]
        # A reset after an episode is made only if an action comes after it.
        at = env, segment, step, step + (known[1] == RESET and step > 0), number
        calls = tuple(None if row is None else row[7] for row in pair)
        a, b = pair
        if a is None or b is None:
            if not any(raised):
                return Parting(*at, "resets", ("no row" if a is None else "a row", "no row" if b is None else "a row"))
            return Parting(*at, "raised", (raised[0] or "nothing", raised[1] or "nothing"))
        if a[:2] != b[:2]:
            names = ("reset", "step")
            return Parting(*at, "resets", (names[a[1]], names[b[1]]), (calls[0], calls[1]))
        tally.rows += 1
        tally.longest = max(tally.longest, age)
        tally.ends += a[4] or a[5]
        tally.truncated += a[5] and not a[4]
        for name, first, second in (*_fields(a, b), *_infos(a, b, tally)):
            words = _apart(name, first, second, age, tally)
            if words is not None:
                return Parting(*at, name, words, (calls[0], calls[1]), a[1] == STEP and (a[4] or a[5]))
    if bool(raised[0]) != bool(raised[1]):
        return Parting(env, segment, step, step, len(one), "raised", (raised[0] or "nothing", raised[1] or "nothing"))
    return None


def _fields(a: Sequence[Any], b: Sequence[Any]) -> Iterator[tuple[str, Any, Any]]:
    yield from zip(_FLAGS, a[3:6], b[3:6], strict=True)
    if a[2] is not None and b[2] is not None:
        yield from _pairs("observations", a[2], b[2])
    elif a[2] is not b[2]:  # one gives no terminal observation
        yield "observations", a[2], b[2]


def _pairs(kind: str, *leaves: Sequence[Any]) -> Iterator[tuple[str, Any, Any]]:
    ours, theirs = ({f"{kind}/{name}".rstrip("/"): leaf for name, *leaf in each} for each in leaves)
    yield from ((name, ours.get(name), theirs.get(name)) for name in sorted({*ours, *theirs}))


def _infos(a: Sequence[Any], b: Sequence[Any], tally: Tally) -> Iterator[tuple[str, Any, Any]]:
    """Yield what infos hold and can be compared. That one side lacks it in this row counts if it has it in others."""
    for name, *pair in _pairs("infos", a[6], b[6]) if a[6] is not None and b[6] is not None else ():
        if name in tally.not_compared or tally.only not in ("", name):
            continue
        given = [leaf for leaf in pair if leaf is not None]
        kinds = {leaf[0] for leaf in given}
        if "" in kinds or (len(kinds - {"object"}) > 1 and any(_array(leaf) is None for leaf in given)):
            tally.not_compared[name] = "arrays of two types, and long" if all(kinds) else "neither numbers nor text"
        elif len(given) > 1 or (given[0][3] and name in tally.infos[0] & tally.infos[1]):
            yield name, *(leaf and leaf[:3] for leaf in pair)


def remembers(used: Answer, alone: Answer, tally: Tally) -> bool:
    """Return whether the second segment of a case gives other rows than the same segment alone."""
    rows = [[(0, *row[1:]) for row in each if row[0]] for each in used["rows"]]
    return first_parting({**used, "rows": rows}, alone, tally) is not None


def before_an_end(answer: Answer) -> int:
    """Return after how many steps of the first segment no environment has ended."""
    flags = [[row[4] or row[5] for row in rows if row[:2] == (0, STEP)] for rows in answer["rows"]]
    return min([*ended, True].index(True) for ended in flags)


def unsteady(one: Answer, again: Answer) -> set[str]:
    """Return the names of infos that differ between two answers of one side, such as how long an episode took."""
    found: set[str] = set()
    for a, b in zip(chain(*one["rows"]), chain(*again["rows"]), strict=False):
        tally = Tally()
        found.update(
            name for name, one_has, other_has in _infos(a, b, tally) if _apart(name, one_has, other_has, 0, tally)
        )
    return found


def _apart(name: str, one: Any, other: Any, age: int, tally: Tally) -> tuple[str, str] | None:  # noqa: ANN401 - a flag or a leaf
    """Return in words what the two have, None if that is the same, or near enough."""
    if one == other or (name == "rewards" and math.isnan(one) and math.isnan(other)):
        return None
    if one is None or other is None:
        return ("nothing" if one is None else "a value", "nothing" if other is None else "a value")
    if name in ("terminated", "truncated"):
        return str(one), str(other)
    if name != "rewards" and tuple(one[1]) != tuple(other[1]):
        return f"shape {tuple(one[1])}", f"shape {tuple(other[1])}"
    first, second = (np.asarray(value) if name == "rewards" else _array(value) for value in (one, other))
    if first is None or second is None:
        return _bytes_of(one), _bytes_of(other)
    return _numbers_apart(name, first, second, age, tally)


def _numbers_apart(name: str, one: NDArray[Any], other: NDArray[Any], age: int, tally: Tally) -> tuple[str, str] | None:
    narrow, wide = sorted((one.dtype, other.dtype), key=lambda kind: kind.itemsize)
    with np.errstate(all="ignore"):
        if name == "rewards":  # which come as Python's numbers: one side may have rounded them
            narrow = np.dtype(np.float32)
            same = one in (other, float(np.float32(other))) or other == float(np.float32(one))
        else:
            if narrow.kind != wide.kind:  # a cast to integers would lose what is behind the point
                narrow = np.result_type(narrow, wide)
            same = np.array_equal(one.astype(narrow), other.astype(narrow), equal_nan=narrow.kind in "fc")
    if same:
        if narrow != wide and not (name.startswith("infos/") and np.array_equal(one, other)):
            tally.casts[f"{name} as {narrow}"] += 1
        return None
    limit = tally.limit_of(name)
    if limit is not None and limit.steps is not None and age > limit.steps:
        tally.skipped += 1
        return None
    with np.errstate(all="ignore"):
        gaps = np.abs(one.astype(np.float64) - other.astype(np.float64))
    equal = (one == other) | ((one != one) & (other != other))  # noqa: PLR0124 - NaN, of any type
    gaps = np.where(equal, 0.0, np.nan_to_num(gaps, nan=np.inf))
    if limit is not None and limit.allows(one, other):
        tally.furthest[name] = max(float(gaps.max()), tally.furthest.get(name, 0.0))
        return None
    place = np.unravel_index(int(gaps.argmax()), one.shape)
    at = f" at {[int(index) for index in place]}" if one.shape else ""
    more = f", {np.count_nonzero(gaps):,} of {one.size:,} numbers differ" if one.size > 1 else ""
    return f"{one[place]}{at}", f"{other[place]}{more}"


def _array(leaf: Any) -> NDArray[Any] | None:  # noqa: ANN401 - a leaf as it was sent
    kind, shape, data = leaf[:3]
    if kind == "object" or len(data) != np.dtype(kind).itemsize * math.prod(shape):
        return None  # text, or a digest
    return array_of(leaf[:3])


def _bytes_of(leaf: Any) -> str:  # noqa: ANN401 - a leaf as it was sent
    return (
        leaf[2].decode(errors="replace")[:60] if leaf[0] == "object" else f"{leaf[0]} with digest {leaf[2][:4].hex()}"
    )


def smallest(  # noqa: PLR0913 - the case, how it is stepped, and what bounds the search
    case: Case,
    parting: Parting,
    stepped: Callable[[Case], Parting | None],
    constants: Sequence[Action],
    *,
    fixed: bool,
    timely: Callable[[], bool],
) -> tuple[Case, Parting]:
    """Return a small case in which the two still part, and where.

    Environments go first, then segments and actions. Actions become the first of the ``constants``; a seed becomes,
    of twenty seeds, the one that needs the fewest actions.
    With ``fixed``, the number of environments cannot change. It goes on while it is ``timely``, for 400 cases at most.
    """
    best, runs = (case, parting), 0

    def better(candidates: Iterable[Case]) -> bool:
        """Take the first candidate that parts and is smaller, without the actions after the row that differs."""
        nonlocal best, runs
        for candidate in candidates:
            if runs >= _MOST_RUNS or not timely():
                return False
            runs += 1
            found = stepped(candidate)
            if found is None:
                continue
            # Other environments may need their actions after the cut: some make more calls than others.
            cut = _cut(candidate, found)
            if cut != candidate and (parts := stepped(cut)) is not None:
                candidate, found = cut, parts  # noqa: PLW2901 - it is the same one, shorter
            if _size(candidate, constants) < _size(best[0], constants):
                best = candidate, found
                return True
        return False

    better([_cut(case, parting)])
    orders = _fewer_environments, _fewer_segments, _constant, _fewer_actions, _simpler_actions, _other_seeds
    again = True
    while again:
        again = False
        for candidates in orders:
            while better(candidates(*best, constants, fixed)):
                again = True
    return best


def _cut(case: Case, parting: Parting) -> Case:
    """Return the case up to the row that differs."""
    *before, last = case[: parting.segment + 1]
    return (*before, replace(last, actions=tuple(lane[: parting.needs] for lane in last.actions)))


def _size(case: Case, constants: Sequence[Action]) -> tuple[int, ...]:
    simple = {repr(action): place for place, action in enumerate(constants)}
    places = [simple.get(repr(action), len(simple)) for each in case for lane in each.actions for action in lane]
    seeds = sum(min(each.seed, _SEEDS) for each in case)
    return len(case[0].actions), len(case), sum(each.length for each in case), sum(places), seeds


def _fewer_environments(case: Case, parting: Parting, _: Sequence[Action], fixed: bool) -> Iterator[Case]:
    count = len(case[0].actions)
    for width in range(1, 1 if fixed else count):
        for first in range(max(0, parting.env - width + 1), min(parting.env, count - width) + 1):
            yield tuple(Segment(each.seed + first, each.actions[first : first + width]) for each in case)


def _fewer_segments(case: Case, *_: object) -> Iterator[Case]:
    for gone in range(len(case) - 1):
        yield case[:gone] + case[gone + 1 :]
    for at, each in enumerate(case[:-1]):
        for length in sorted({0, 1, each.length // 2}):
            if length < each.length:
                short = replace(each, actions=tuple(lane[:length] for lane in each.actions))
                yield (*case[:at], short, *case[at + 1 :])


def _constant(case: Case, _: Parting, constants: Sequence[Action], __: bool) -> Iterator[Case]:
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


def _simpler_actions(case: Case, _: Parting, constants: Sequence[Action], __: bool) -> Iterator[Case]:
    for at, each in enumerate(case):
        for number, lane in enumerate(each.actions):
            for step, action in enumerate(lane):
                for simple in constants:
                    if repr(simple) == repr(action):
                        break
                    changed = (*lane[:step], simple, *lane[step + 1 :])
                    lanes = (*each.actions[:number], changed, *each.actions[number + 1 :])
                    yield (*case[:at], replace(each, actions=lanes), *case[at + 1 :])


def _other_seeds(case: Case, *_: object) -> Iterator[Case]:
    """Yield the case with other seeds, also without its first action: with some, the two part after fewer."""
    for at, each in enumerate(case):
        for seed in range(_SEEDS):
            for skipped in range(min(2, each.length)):
                changed = Segment(seed, tuple(lane[skipped:] for lane in each.actions))
                yield (*case[:at], changed, *case[at + 1 :])


def episodes(answer: Answer, lanes: Sequence[Sequence[Action]], *, seen: bool) -> list[Episode]:
    """Return the episodes of environments that took the actions of ``lanes``; without observations if not ``seen``."""
    found: list[Episode] = []
    for rows, lane in zip(answer["rows"], lanes, strict=True):
        actions, before = iter(lane), list[float]()
        for _, kind, leaves, *flags, _, _ in rows:
            numbers = [number for _, *leaf in leaves or () if seen for number in array_of(leaf).ravel().tolist()]
            if kind == RESET:
                found.append((numbers, []))
            else:
                taken = [number for leaf in trees.leaves(next(actions)) for number in array_of(leaf).ravel().tolist()]
                found[-1][1].append([*before, *taken, *(numbers or before), *flags])  # the last one may be missing
            before = numbers
    return found


def distributions(one: Sequence[Episode], other: Sequence[Episode]) -> tuple[list[tuple[str, float]], str]:
    """Return p-values, each times the number of tests, and in words what would show in 95 % of runs.

    Returns and lengths are tested by Kolmogorov and Smirnov, starts and steps by shuffling episodes.
    """
    whole = [[steps for _, steps in side if steps and any(steps[-1][-2:])] for side in (one, other)]
    returns = ([sum(step[-3] for step in steps) for steps in side] for side in whole)
    lengths = ([len(steps) for steps in side] for side in whole)
    # The distance that is significant, and two standard errors of what is seen of it at one point.
    spread = math.sqrt(sum(1 / len(side) for side in whole))
    far = (math.sqrt(-0.5 * math.log(LEVEL / _TESTS / 2)) + _POWER / 2) * spread
    taken = [each for each in (*one, *other) if each[1]]
    labels = np.repeat([1.0, 0.0], [sum(bool(steps) for _, steps in side) for side in (one, other)])
    starts = _predictors(np.array([start for start, _ in taken], np.float64))
    steps, shift = _steps_apart([steps for _, steps in taken], labels, len(taken[0][0]))
    tests = {
        "returns": float(ks_2samp(*returns, method="asymp").pvalue),
        "lengths": float(ks_2samp(*lengths, method="asymp").pvalue),
        "starts": _shuffled(starts, labels)[0],
        "steps": steps,
    }
    words = f"a distance of {far:.2f} between returns, and steps with outcomes {shift:.2g} standard deviations off"
    return [(name, min(1.0, _TESTS * chance)) for name, chance in tests.items()], words


def _steps_apart(episodes: Sequence[list[list[float]]], labels: NDArray[Any], width: int) -> tuple[float, float]:
    """Return the p-value of step outcomes, and the shift of an outcome that 95 % of runs show, in standard deviations.

    One regression for both sides predicts outcomes from the observation, of ``width`` numbers, and the action. Its
    residuals are added up over each episode: times each predictor, and squared.
    """
    every = 1 + sum(map(len, episodes)) // _MOST_STEPS
    kept = [np.array(each[number % every % len(each) :: every]) for number, each in enumerate(episodes)]
    table = np.nan_to_num(np.concatenate(kept))
    places = np.cumsum([len(each) for each in kept])[:-1]
    outcomes = table[:, -width - len(_FLAGS) :]
    outcomes[:, :width] -= table[:, :width]  # changes are predicted better than what is observed
    outcomes = (outcomes - outcomes.mean(0)) / np.maximum(outcomes.std(0), _FLOOR)
    inputs = _predictors(table[:, : -width - len(_FLAGS)])
    left = outcomes - inputs @ np.linalg.lstsq(inputs, outcomes, rcond=None)[0]
    left = np.sign(left) * np.maximum(np.abs(left) - _FLOOR, 0)
    pairs = zip(np.split(inputs, places), np.split(left, places), strict=True)
    scores = np.array([np.append(given.T @ rest, (rest**2).sum(0)) for given, rest in pairs])
    chance, least = _shuffled(scores, labels)
    least += _POWER * math.sqrt(1 / labels.sum() + 1 / (1 - labels).sum())
    return chance, _FLOOR + least * float(scores[:, : left.shape[1]].std(0).max()) * len(kept) / len(table)


def _predictors(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return columns that predict: a constant, each number, or which of a few values it has, and products of two."""
    columns = [np.ones(len(numbers))]
    for number in numbers.T:
        values = np.unique(number)
        if 2 < len(values) <= _FEW and numbers.shape[1] <= _FEW:  # noqa: PLR2004 - of two values, both are a line
            columns += [number == value for value in values[1:]]
        elif len(values) > 1:
            columns.append((number - number.mean()) / number.std())
    all_pairs = len(columns) <= _MOST_COLUMNS
    pairs = [(i, j) for i in range(len(columns)) for j in range(i, len(columns)) if i in (0, j) or all_pairs]
    return np.stack([columns[i] * columns[j] for i, j in pairs], 1)


def _shuffled(scores: NDArray[Any], labels: NDArray[Any]) -> tuple[float, float]:
    """Return the p-value of the largest difference between the means of two groups, and which one is significant.

    Differences are in standard deviations of each column. Shuffled labels show what chance does: scores of episodes
    may have any distribution.
    """
    spread = scores.std(0)
    scores = (scores - scores.mean(0))[:, spread > _FLOOR] / spread[spread > _FLOOR]
    if not scores.size:
        return 1.0, 0.0
    rng = np.random.default_rng(0)
    groups = np.array([labels, *(rng.permutation(labels) for _ in range(_SHUFFLES))])
    weights = groups / labels.sum() - (1 - groups) / (1 - labels).sum()
    largest = np.abs(weights @ scores).max(1)
    return float(np.mean(largest >= largest[0])), float(np.quantile(largest, 1 - LEVEL / _TESTS))
