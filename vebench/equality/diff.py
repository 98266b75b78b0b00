"""``vebench verify A B``: whether two implementations do the same work, and where they differ."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from vebench.backends.entry import MAX_COUNT
from vebench.backends.interface import ActionSpace, ActionSpaceTree
from vebench.child.answers import WorkVerdict
from vebench.child.equality.distribution import Episode, Row, compared, complete, episodes, numbers
from vebench.child.equality.recorder import EPISODES
from vebench.child.equality.recording import Tolerance
from vebench.child.equality.subject import RESET, array_of
from vebench.commands.proving import drawn_seed
from vebench.equality.shrink import FEW_ENDS, Case, FirstDifference, Source, made, place_of
from vebench.equality.sides import DiffStats, Example, LostError, Two, both, request_of
from vebench.equality.verify import MAX_STEPS
from vebench.errors import InterruptedRunError, UsageError, one_line, shown
from vebench.files import contents
from vebench.interpreters import with_ours
from vebench.plan.spec import check_count
from vebench.plan.tasks import recorded_task
from vebench.plan.verdicts import KnownVerdict, keep, key_of_pair, other_implementations
from vebench.reports import console, figures
from vebench.reports.document import AnswerText, Document, Page
from vebench.reports.figures import counted

_DISTRIBUTION = "distribution"
_LIMIT = r"(rewards|(?:observations|infos)(?:/.*)?)=((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(%|ulp)?(?:@(\d+))?"
_SCRIPTED = "hold", "sweep"
_MEANINGS = {
    "identical": "the same bytes of observations, the same rewards, flags and infos, in all rows that were compared",
    "equal": "the same after a cast of numbers, which the table names",
    "within limits": "no further apart than --within allows",
    "same distribution": "no significant difference in starts, steps, returns or lengths of episodes (5 % level)",
    "different": "different work",
    "unverified": "the comparison has no result",
}
_AGREE = "identical", "equal", "within limits"


@dataclass(frozen=True)
class PairRequest:
    """Two implementations, and how they are compared."""

    names: Sequence[str]  # ``NAME[KEY=VALUE,...]``, with ``@PYTHON`` or without
    steps: int
    num_envs: int
    seed: int | None  # None: a random one
    timeout: float
    within: Sequence[str] = ()
    policy: str | None = None  # ``hold``, ``sweep``, a file or ``MODULE:FUNCTION``; None for a mixture


@dataclass(frozen=True)
class Verdict:
    """The verdict on two implementations, and its basis."""

    word: str
    stats: DiffStats
    example: Example | None = None
    why: str = ""


def limits_of(texts: Sequence[str]) -> dict[str, Tolerance]:
    """Return limits by field, from texts such as ``FIELD=1e-6``, ``FIELD=0.1%`` or ``FIELD=4ulp@STEPS``."""
    found: dict[str, Tolerance] = {}
    for text in chain.from_iterable(text.split(",") for text in texts):
        match = re.fullmatch(_LIMIT, text.strip())
        if match is None or (number := float(match[2])) == inf:
            raise UsageError(
                f"--within {shown(text)}: write observations=1e-6, rewards=1%, infos/KEY=1 or observations/LEAF=4ulp, "
                f"with @STEPS for the first steps of an episode only, or {_DISTRIBUTION}"
            )
        steps = None if match[4] is None else int(match[4])
        limits = {None: Tolerance(number), "%": Tolerance(0, number / 100), "ulp": Tolerance(ulps=int(number))}
        found[match[1]] = replace(limits[match[3]], steps=steps)
    return found


def compare_two(asked: PairRequest) -> PairPage:
    """Step both implementations, and return whether their rows, or the distributions of their episodes, are the same.

    Raises UsageError if one implementation cannot be stepped, or if the two cannot be compared.
    """
    asked = replace(asked, seed=drawn_seed() if asked.seed is None else asked.seed)
    if len(asked.names) != len("AB"):
        raise UsageError("name two implementations, A and B, or backends with -e and -b")
    check_count("--steps", asked.steps, 1, MAX_STEPS)
    check_count("--num-envs", asked.num_envs, 1, MAX_COUNT)
    in_distribution = list(asked.within) == [_DISTRIBUTION]
    if not in_distribution and any(_DISTRIBUTION in text for text in asked.within):
        raise UsageError(f"--within {_DISTRIBUTION} stands alone: it compares episodes, not rows")
    limits = {} if in_distribution else limits_of(asked.within)
    policy = asked.policy or ""
    if policy in ("", *_SCRIPTED) or policy.endswith(".npy"):
        policy = ""
    elif not re.fullmatch(r"[\w.]+:\w+", policy) or policy.startswith("mlp:"):
        raise UsageError(f"--policy {shown(policy)}: for A B, write hold, sweep, actions.npy or MODULE:FUNCTION")
    try:
        with both([request_of(text) for text in asked.names], asked.timeout) as two:
            one, other = (side.about for side in two.sides)
            two.policy = policy
            two.stats.comparer.limits = limits
            _refuse_unknown(limits, [f"observations/{name}".rstrip("/") for name, *_ in one["observations"]])
            try:
                verdict = _in_distribution(two, asked) if in_distribution else _same_rows(two, asked)
            except LostError as error:
                verdict = Verdict("different", two.stats, why=f"one of the two is lost: {error}")
            if verdict.word != "different" and verdict.stats.rows:
                _refuse_unknown(limits, sorted(set.union(*verdict.stats.infos)), "infos")
    except KeyboardInterrupt:
        raise InterruptedRunError(f"interrupted: to repeat with the same seed: --seed {asked.seed}") from None
    if in_distribution and verdict.stats.ends and verdict.word != "unverified":  # neither side was lost
        _keep(asked, (one, other), verdict)
    return PairPage(asked, (one, other), verdict)


def _keep(asked: PairRequest, abouts: Sequence[Mapping[str, Any]], verdict: Verdict) -> None:
    """Keep the verdict for runs that have both tasks, if these are two implementations of one task."""
    tasks = [recorded_task(request_of(text)[0], 1, ()) for text in asked.names]
    packages = {task.id: with_ours(about["packages"]) for task, about in zip(tasks, abouts, strict=True)}
    for one, other in other_implementations(tasks):
        entry = key_of_pair(one, other, [packages[one.id], packages[other.id]], asked.policy or "")
        with suppress(OSError):  # the page has the verdict
            keep(entry, KnownVerdict(msgspec.convert(verdict.word, WorkVerdict), "", asked.steps, asked.num_envs))


def _refuse_unknown(limits: Mapping[str, Tolerance], leaves: Sequence[str], kind: str = "observations") -> None:
    """Raise UsageError if a limit names a field of this kind that is not in ``leaves``."""
    for of in limits:
        if of.startswith(f"{kind}/") and not any(f"{leaf}/".startswith(f"{of}/") for leaf in leaves):
            raise UsageError(f"--within {shown(of)}: no such field; observed are {shown(', '.join(leaves) or 'none')}")


def _read(path: str, space: ActionSpaceTree) -> NDArray[Any]:
    """Return the actions of a file, ``(steps, environments, *action_shape)``. Raises UsageError."""
    what = f"--policy {shown(path)}"
    if not isinstance(space, ActionSpace):
        raise UsageError(f"{what}: a file has one array, but an action here has several: use MODULE:FUNCTION")
    try:
        array = np.atleast_1d(np.load(BytesIO(contents(Path(path))), allow_pickle=False))
    except Exception as error:  # noqa: BLE001 - numpy raises many kinds
        raise UsageError(f"{what} cannot be read: {one_line(str(error))}") from None
    low, high, kinds = space.low, space.high, "biu" if space.integer else "iuf"
    array = array[:, None] if array.shape[1:] == low.shape else array
    fits = array.size and array.shape[2:] == low.shape and array.dtype.kind in kinds
    if not fits or not np.all((array >= low) & (array <= high)):
        shape = ", ".join(["(steps[, environments]", *map(str, low.shape)])
        raise UsageError(f"{what}: actions are {low.dtype} from {low.tolist()} to {high.tolist()}, of shape {shape})")
    check_count(f"{what}: steps", array.shape[0], 1, MAX_STEPS)
    check_count(f"{what}: environments", array.shape[1], 1, MAX_COUNT)
    return np.asarray(array, low.dtype)


def _source(two: Two, asked: PairRequest) -> tuple[Source, int, int, bool]:
    """Return the source of actions, the number of steps, the number of environments, and whether the latter is fixed.

    Raises UsageError if the file of actions is unusable, or if the sides have different fixed numbers.
    """
    space, policy = two.space, asked.policy or ""
    given = _read(policy, space) if policy.endswith(".npy") else None
    source = Source(space, asked.seed, policy if policy in _SCRIPTED else "", given)
    steps, num_envs = (asked.steps, asked.num_envs) if given is None else given.shape[:2]
    fixed = {side.about["num_envs"] for side in two.sides} - {None}
    if len(fixed) > 1:
        raise UsageError(f"the two have {' and '.join(map(str, sorted(fixed)))} environments, and need the same number")
    return source, steps, fixed.pop() if fixed else num_envs, bool(fixed)


def _same_rows(two: Two, asked: PairRequest) -> Verdict:
    say = console.for_progress().print
    source, steps, count, fixed = _source(two, asked)
    cases = deque(source.cases(count, steps, fixed=fixed))
    while cases:
        planned = cases.popleft()
        if planned[0].length > steps and two.stats.ends >= FEW_ENDS:
            break
        say(f"comparing {counted(len(planned[0].actions), 'environment')} over {planned[0].length:,} steps")
        case = two.acted(planned)
        found = two.first_difference(case)
        if found is None:
            continue
        if not found.segment or not two.keep_state(case, found):
            return _different(two, case, found, source, fixed=fixed)
        two.stats.kept = found.field
        cases.extendleft((each,) for each in reversed(case))
    stats = two.stats
    if stats.raised:
        return Verdict("unverified", stats, why=f"both raise: {stats.raised}")
    limits = {side.about["spec"].get("max_episode_steps", inf) for side in two.sides}
    if len(limits) > 1 and stats.longest < min(limits) and inf not in limits:
        words = " and ".join(map(str, sorted(limits)))
        why = f"episodes are limited to {words} steps, and the longest that was compared had {stats.longest}"
        return Verdict("unverified", stats, why=f"{why}: use a --policy that gets further")
    if stats.comparer.skipped or stats.comparer.furthest:
        return Verdict("within limits", stats)
    return Verdict("equal" if stats.comparer.casts else "identical", stats)


def _different(two: Two, case: Case, found: FirstDifference, source: Source, *, fixed: bool) -> Verdict:
    """Return the verdict on two sides that differ, with the smallest example if both sides are repeatable."""
    if names := two.unrepeated(case, found):
        verb, word = ("give", "unverified") if len(names) > 1 else ("gives", "different")
        why = f"{' and '.join(names)} {verb} different rows when the case is repeated: the seed does not determine them"
        return Verdict(word, two.stats, why=f"{why}; --within {_DISTRIBUTION} compares episodes")
    example = two.smallest(case, found, source.constants(), fixed=fixed)
    if not example.script:
        why = "the difference is not reproducible: the example did not fail each time in a fresh interpreter"
        return Verdict("different", two.stats, example, why)
    example.write()
    return Verdict("different", two.stats, example)


def _in_distribution(two: Two, asked: PairRequest) -> Verdict:
    """Compare distributions of episodes, for implementations whose rows cannot be the same."""
    say = console.for_progress().print
    source, _, count, _ = _source(two, asked)
    until = time.monotonic() + asked.timeout
    sizes = {sum(int(np.prod(leaf[2])) for leaf in side.about["observations"]) for side in two.sides}
    one: list[Episode] = []
    other: list[Episode] = []
    ends = 0
    while ends < EPISODES and time.monotonic() < until:
        say(f"{ends} of {EPISODES} episodes")
        # Each side has its own seeds and actions, because the tests need independent samples.
        cases = [(source.segment(count, asked.steps),) for _ in two.sides]
        answers = two.answers(cases, two.policy)
        finals = all(row[2] is not None for answer in answers for rows in answer["rows"] for row in rows)
        for name, answer, (segment,), found in zip("AB", answers, cases, (one, other), strict=True):
            if answer["raised"]:
                return Verdict("different", two.stats, why=f"{name} raises {answer['raised']}")
            rows = _rows(answer, answer["taken"][0] or segment.actions, seen=len(sizes) == 1)
            found.extend(episodes(rows, finals=finals))
        ends = min(len(complete(side)) for side in (one, other))
    two.stats.ends = ends
    word, _, why = compared(one, other)
    return Verdict(word, two.stats, why=why)


def _rows(answer: Mapping[str, Any], lanes: Sequence[Sequence[Any]], *, seen: bool) -> Iterator[Row]:
    """Yield the rows of one environment after another. Their actions are in ``lanes``. ``seen``: with observations."""
    for rows, lane in zip(answer["rows"], lanes, strict=True):
        actions = iter(lane)
        for _, kind, leaves, reward, terminated, truncated, _, _ in rows:
            action = [] if kind == RESET else numbers(map(array_of, next(actions)))
            observation = numbers(array_of(leaf) for _, *leaf in leaves or () if seen)
            yield kind == RESET, action, observation, (reward, terminated, truncated)


@dataclass(frozen=True)
class PairPage(Page):
    """The page with the verdict on two implementations."""

    asked: PairRequest
    abouts: tuple[Mapping[str, Any], Mapping[str, Any]]  # the answer of each side about itself
    verdict: Verdict
    kind = "verify"

    @property
    def status(self) -> int:
        """The exit status: 1 if the two differ, 3 if the verdict is ``unverified``, otherwise 0."""
        return {"different": 1, "unverified": 3}.get(self.verdict.word, 0)

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: the verdict, the facts behind it, and the script that reproduces a difference."""
        verdict, stats = self.verdict, self.verdict.stats
        code = () if verdict.example is None else tuple(verdict.example.script.splitlines())
        sentence = "Run the smallest example with PYTHONPATH=. python .vebench/example.py"
        answers = (AnswerText("", (sentence,), code),) if code else ()
        facts = tuple((name, one_line(text)) for name, text in self._facts() if text)
        legend = [f"{verdict.word}: {_MEANINGS[verdict.word]}."]
        if verdict.word in _AGREE and not stats.ends:
            legend.append("No episode ended, so resets after an end were not compared: use more --steps.")
        title = "; ".join([f"{' and '.join(self.asked.names)}: {verdict.word}", *self._not_covered()])
        return (Document(title=one_line(title), facts=facts, tables=(), legend=tuple(legend), answers=answers),)

    def _not_covered(self) -> list[str]:
        """Return in words the parts of the work that a verdict on rows does not cover."""
        stats, found = self.verdict.stats, list[str]()
        if self.verdict.word not in _AGREE:
            return found
        if not stats.truncated:
            found.append("no truncation was seen" if stats.ends else "no end was seen")
        if stats.kept:
            found.append("each reset(seed=) was compared in new copies")
        first, second = stats.infos
        only = {"A": ", ".join(sorted(first - second)), "B": ", ".join(sorted(second - first))}
        return found + [f"only {name} has {names}" for name, names in only.items() if names]

    def _facts(self) -> Iterator[tuple[str, str]]:
        """Yield the facts behind the verdict. A fact that does not apply is empty."""
        verdict, stats, example = self.verdict, self.verdict.stats, self.verdict.example
        if example is not None:
            found, case = example.difference, example.case
            count = figures.counted(len(case[0].actions), "environment")
            yield "differ in", f"{found.field} {place_of(case, found)}, environment {found.env}"
            yield "A has", found.found[0]
            yield "B has", found.found[1]
            yield "example", f"{count}, {figures.counted(made(case, found), 'action')}, seed {case[0].seed}"
        ends = f"{stats.ends:,} ends, {stats.truncated:,} of them truncated"
        specs = [about["spec"] for about in self.abouts]
        values = [(name, specs[0][name], specs[1][name]) for name in sorted(specs[0].keys() & specs[1].keys())]
        yield "why", verdict.why
        yield "compared", f"{stats.rows:,} rows, {ends}" if stats.rows else ""
        yield from (("equal by", f"{cast}: {times:,} times") for cast, times in sorted(stats.comparer.casts.items()))
        yield from (("furthest", f"{of}: {far:.3g} apart") for of, far in sorted(stats.comparer.furthest.items()))
        yield "left out", f"{stats.comparer.skipped:,} arrays after @STEPS" if stats.comparer.skipped else ""
        yield from (("env.spec", f"{name}: {a or 'none'} and {b or 'none'}") for name, a, b in values if a != b)
        compared = sorted(stats.not_compared.keys() & stats.infos[0] & stats.infos[1])
        yield from (("not compared", f"{name}: {stats.not_compared[name]}") for name in compared)
        yield "actions", f"--policy {self.asked.policy}" if self.asked.policy else ""
        yield "drawn from", f"--seed {self.asked.seed}"

    @property
    def data(self) -> dict[str, object]:
        """The verdict as an object."""
        verdict, stats, example = self.verdict, self.verdict.stats, self.verdict.example
        return {
            "a": self.asked.names[0],
            "b": self.asked.names[1],
            "verdict": verdict.word,
            "why": verdict.why or None,
            "rows": stats.rows,
            "ends": stats.ends,
            "truncated": stats.truncated,
            "equal_by": dict(stats.comparer.casts),
            "furthest": dict(stats.comparer.furthest),
            "left_out": stats.comparer.skipped,
            "not_compared": dict(stats.not_compared),
            "state": stats.kept or None,
            "beside": self._not_covered(),
            "specs": [about["spec"] for about in self.abouts],
            "field": None if example is None else example.difference.field,
            "found": None if example is None else list(example.difference.found),
            "environments": None if example is None else len(example.case[0].actions),
            "actions": None if example is None else made(example.case, example.difference),
            "seed": self.asked.seed,
            "policy": self.asked.policy,
            "script": (example and example.script) or None,
        }
