"""``vebench verify A B``: whether two implementations of anything that steps do the same work, and where they part."""

from __future__ import annotations

import contextlib
import copy
import os
import re
import subprocess
import sys
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from io import BytesIO
from itertools import chain
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from vebench.backends import trees
from vebench.backends.entry import MAX_COUNT
from vebench.backends.environments.making import sample
from vebench.backends.interface import ActionSpace
from vebench.child.equality.subject import array_of
from vebench.child.policy import parse_policy
from vebench.equality import differences as analysis
from vebench.equality.diff_page import PairPage, Verdict
from vebench.equality.differences import Case, Limit, Parting, Segment, Tally
from vebench.equality.example import example
from vebench.equality.side import LostError, Subject, started
from vebench.equality.verify import MAX_STEPS
from vebench.errors import InterruptedRunError, UsageError, one_line, shown
from vebench.files import contents
from vebench.interpreters.process_guard import ProcessGuard
from vebench.machine.guardian import TOKEN_VARIABLE
from vebench.plan.spec import check_count
from vebench.reports import console
from vebench.reports.figures import counted
from vebench.results import paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from vebench.backends.interface import ActionSpaceTree

DISTRIBUTION = "distribution"
_FAR_APART = 10_000  # seeds of segments: more than environments
_SHRINKING_S = 60.0
_LONGER, _SHORT, _MANY = 4, 20, 5  # of the layouts: times as many steps, steps, environments
_HOLDS = 20  # steps for which an action is held, at most
_FEW_ENDS = 3
_EPISODES = 200  # of each, to compare distributions
_MOST_NUMBERS = 200  # of an observation, to compare steps
_CONSTANTS = 6
_EXAMPLE_RUNS = 3  # each must fail: what one process does by chance is no example
_SCRIPTED = "hold", "sweep"
_LIMIT = re.compile(r"(?P<number>[0-9.eE+-]+)(?P<kind>%|ulp)?(?:@(?P<steps>\d+))?")


@dataclass(frozen=True)
class PairRequest:
    """Two texts, ``NAME[KEY=VALUE,...]`` with ``@PYTHON`` or without, and how they are compared.

    ``policy``: where actions come from, which is ``hold``, ``sweep``, a file or ``MODULE:FUNCTION``; by default, many.
    """

    names: Sequence[str]
    steps: int
    num_envs: int
    seed: int
    timeout: float
    within: Sequence[str] = ()
    policy: str | None = None


@dataclass
class _Two:
    """Both sides while they are compared, and all that they have in common."""

    sides: tuple[Subject, Subject]
    full: bool
    tally: Tally
    guarded: ProcessGuard
    start: Callable[[], tuple[Subject, Subject]]
    policy: str = ""  # MODULE:FUNCTION, whose actions replace those of cases
    calls: tuple[list[Any], list[Any]] = field(default_factory=lambda: ([], []))

    @cached_property
    def anew(self) -> _Two:
        """The same two in processes of their own, which have stepped nothing before."""
        return replace(self, sides=self.start())

    def step(self, case: Case, tally: Tally) -> Parting | None:
        """Step both, and return where they part."""
        one, other = self.answers([case] * 2)
        self.calls = one["calls"], other["calls"]
        return analysis.first_parting(one, other, tally)

    def parting(self, case: Case) -> Parting | None:
        """Return where the two part, in infos only if A repeats what they hold: it may be a time, or a process."""
        before = copy.deepcopy(self.tally)
        one, other = self.answers([case] * 2)
        found = analysis.first_parting(one, other, self.tally)
        if found is None or not found.field.startswith("infos/"):
            return found
        self.tally = before
        for two in (self, self.anew):
            names = analysis.unsteady(one, *two.answers([case]))
            before.not_compared |= dict.fromkeys(names, "differs between two runs of A")
        return analysis.first_parting(one, other, before)

    def keep_state(self, case: Case, found: Parting) -> bool:
        """Return whether the two part only because both keep state through ``reset(seed=)``.

        One side may have made more steps before it than the other, which had to wait for another environment.
        """
        first, last = case[0], case[found.segment]
        used, alone = self.answers([(first, last)] * 2), self.answers([(last,)] * 2)
        tally = self.tally.anew(found.field)
        if not all(map(partial(analysis.remembers, tally=tally), used, alone)):
            return False
        # As long as no episode ends, both make the same calls.
        length = min(map(analysis.before_an_end, used))
        short = replace(first, actions=tuple(lane[:length] for lane in first.actions))
        return self.step((short, last), tally) is None

    def acted(self, case: Case) -> Case:
        """Return the case with the actions that the policy takes of what A observes, if there is one."""
        if not self.policy:
            return case
        taken = self.answers([case], self.policy)[0]["taken"]  # of fewer segments if A raises
        return tuple(replace(each, actions=tuple(map(tuple, lanes))) for each, lanes in zip(case, taken, strict=False))

    def answers(self, cases: Sequence[Case], policy: str = "") -> list[dict[str, Any]]:
        """Return the rows of A for the first case, and of B for the second. A ``policy`` takes other actions."""
        asked = list(zip(self.sides, cases, strict=False))
        for side, case in asked:
            segments = [[each.seed, each.actions] for each in case]
            side.ask({"full": self.full, "policy": policy, "segments": segments})
        return [side.answer() for side, _ in asked]

    def shows(self, script: str, parting: Parting) -> bool:
        """Return whether a script fails where the two part, each time in an interpreter of its own."""
        path = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
        env = {**os.environ, "PYTHONPATH": path, TOKEN_VARIABLE: self.guarded.token}
        how: Any = {"cwd": self.guarded.scratch, "capture_output": True, "text": True, "timeout": _SHRINKING_S}
        raised = [words.partition(":")[0] for words in parting.found if words != "nothing"]
        expected = raised if parting.field == "raised" else ["they differ"]
        for _ in range(_EXAMPLE_RUNS):
            try:
                done = subprocess.run([self.sides[0].python, "-"], check=False, input=script, env=env, **how)
            except subprocess.TimeoutExpired:
                return False
            last = done.stderr.strip().rpartition("\n")[2]
            if not any(words in last for words in expected):
                return False
        return True


def limits_of(texts: Sequence[str]) -> dict[str, Limit]:
    """Return the limits of ``FIELD=1e-6``, ``FIELD=0.1%`` and ``FIELD=4ulp``, each with ``@STEPS`` or without."""
    found: dict[str, Limit] = {}
    for text in chain.from_iterable(text.split(",") for text in texts):
        name, _, value = text.strip().partition("=")
        match = _LIMIT.fullmatch(value)
        number = -1.0
        with contextlib.suppress(ValueError):
            number = float(match["number"]) if match else number
        if match is None or not 0 <= number < inf or not re.fullmatch("rewards|(observations|infos)(/.*)?", name):
            raise UsageError(
                f"--within {shown(text)}: write observations=1e-6, rewards=1%, infos/KEY=1 or observations/LEAF=4ulp, "
                f"with @STEPS for the first steps of an episode only, or {DISTRIBUTION}"
            )
        kinds = {None: {"absolute": number}, "%": {"relative": number / 100}, "ulp": {"ulps": int(number)}}
        steps = match["steps"]
        found[name] = Limit(**kinds[match["kind"]], steps=None if steps is None else int(steps))  # type: ignore[arg-type] # by kind
    return found


def compared(asked: PairRequest) -> PairPage:
    """Step both with the same seeds and actions, and return whether their rows are the same.

    Raises UsageError if one of them cannot be stepped, or if the two cannot be compared.
    """
    if len(asked.names) != len("AB"):
        raise UsageError("name two implementations, A and B, or backends with -e and -b")
    check_count("--steps", asked.steps, 1, MAX_STEPS)
    check_count("--num-envs", asked.num_envs, 1, MAX_COUNT)
    in_distribution = list(asked.within) == [DISTRIBUTION]
    if not in_distribution and any(DISTRIBUTION in text for text in asked.within):
        raise UsageError(f"--within {DISTRIBUTION} stands alone: it compares episodes, not rows")
    limits = {} if in_distribution else limits_of(asked.within)
    texts = [_with_python(text) for text in asked.names]
    try:
        with ProcessGuard() as guarded, ExitStack() as stack:

            def start() -> tuple[Subject, Subject]:
                one, other = (stack.enter_context(started(*text, asked.timeout, guarded)) for text in texts)
                return one, other

            one, other = start()
            kinds = [[leaf[:2] for leaf in side.about["observations"]] for side in (one, other)]
            full = bool(limits) or kinds[0] != kinds[1]  # digests of other types say nothing
            two = _Two((one, other), full, Tally(limits), guarded, start, _function_of(asked.policy))
            _refuse_unknown(limits, [f"observations/{name}".rstrip("/") for name, *_ in one.about["observations"]])
            try:
                verdict = _in_distribution(two, asked) if in_distribution else _same_rows(two, asked)
            except LostError as error:
                verdict = Verdict("different", two.tally, why=f"one of the two is lost: {error}")
            if verdict.word != "different" and verdict.tally.rows:
                _refuse_unknown(limits, sorted(set.union(*verdict.tally.infos)), "infos")
            abouts = one.about, other.about
    except KeyboardInterrupt:
        raise InterruptedRunError(f"interrupted: the same seed again: --seed {asked.seed}") from None
    return PairPage((asked.names[0], asked.names[1]), abouts, verdict, asked.seed, asked.policy)


def status(page: PairPage) -> int:
    """Return the exit status: 1 if the two differ, 3 if that cannot be told."""
    return {"different": 1, "unverified": 3}.get(page.verdict.word, 0)


def _with_python(text: str) -> tuple[str, str]:
    """Return what is stepped, and in which Python."""
    name, at, python = text.rpartition("@")
    return (name, python) if at and python else (text, sys.executable)


def _refuse_unknown(limits: Mapping[str, Limit], leaves: Sequence[str], kind: str = "observations") -> None:
    """Raise UsageError for a limit of a leaf of this kind that neither side has."""
    for of in limits:
        if of.startswith(f"{kind}/") and not any(f"{leaf}/".startswith(f"{of}/") for leaf in leaves):
            raise UsageError(f"--within {shown(of)}: no such field; observed are {shown(', '.join(leaves) or 'none')}")


def _function_of(policy: str | None) -> str:
    """Return the policy if it is a function, and refuse what is no source of actions. Raises UsageError."""
    if policy is None or policy in _SCRIPTED or policy.endswith(".npy"):
        return ""
    with contextlib.suppress(ValueError):
        if (target := parse_policy(policy).target) == policy:
            return target
    raise UsageError(f"--policy {shown(policy)}: for A B, write hold, sweep, actions.npy or MODULE:FUNCTION")


def _spaces(two: _Two) -> ActionSpaceTree:
    """Return the space of actions, which must be the same. Raises UsageError."""
    spaces = []
    for side in two.sides:
        leaves = [ActionSpace(array_of(low), array_of(high)) for _, low, high in side.about["actions"]]
        spaces.append(leaves)
    forms = [side.about["action_form"] for side in two.sides]
    same = forms[0] == forms[1] and all(
        a.integer == b.integer and a.low.shape == b.low.shape and np.array_equal(a.low, b.low)
        and np.array_equal(a.high, b.high)
        for a, b in zip(*spaces, strict=True)
    )  # fmt: skip
    if not same:
        words = (", ".join(f"{one.low.tolist()} to {one.high.tolist()}" for one in leaves) for leaves in spaces)
        raise UsageError(f"the two take different actions: {' and '.join(map(shown, words))}")
    tree: ActionSpaceTree = trees.filled(forms[0], spaces[0])
    return tree


def _count(two: _Two, asked: int) -> tuple[int, bool]:
    """Return how many environments are stepped, and whether no other number is possible. Raises UsageError."""
    fixed = {side.about["num_envs"] for side in two.sides} - {None}
    if len(fixed) > 1:
        raise UsageError(f"the two have {' and '.join(map(str, sorted(fixed)))} environments: they must have as many")
    return (fixed.pop(), True) if fixed else (asked, False)


def _read(path: str, space: ActionSpaceTree) -> NDArray[Any]:
    """Return the actions of a file, ``(steps, environments, *action_shape)``. Raises UsageError."""
    what = f"--policy {shown(path)}"
    if not isinstance(space, ActionSpace):
        raise UsageError(f"{what}: a file has one array, and these actions are several: use MODULE:FUNCTION")
    try:
        array = np.atleast_1d(np.load(BytesIO(contents(Path(path))), allow_pickle=False))
    except (OSError, ValueError, EOFError, MemoryError, BadZipFile) as error:
        raise UsageError(f"{what} cannot be read: {one_line(str(error))}") from None
    low, high, kinds = space.low, space.high, "biu" if space.integer else "iuf"
    found = f"{array.dtype} of shape {array.shape}"
    if array.shape[1:] == low.shape:
        array = array[:, None]
    fits = array.size and array.shape[2:] == low.shape and array.dtype.kind in kinds
    if not fits or not np.all((array >= low) & (array <= high)):
        axes = (", ".join(map(str, (*axes, *low.shape))) for axes in (["steps"], ["steps", "environments"]))
        actions = f"{low.dtype} from {low.tolist()} to {high.tolist()}, of shape ({') or ('.join(axes)})"
        raise UsageError(f"{what} has {found}: actions are {actions}")
    check_count(f"{what}: steps", array.shape[0], 1, MAX_STEPS)
    check_count(f"{what}: environments", array.shape[1], 1, MAX_COUNT)
    return np.asarray(array, low.dtype)


class _Tape:
    """Draws actions, plain as a subject takes them; those of a file are ``given``, and repeated."""

    def __init__(self, two: _Two, asked: PairRequest) -> None:
        self._space, self._rng = _spaces(two), np.random.default_rng(asked.seed)
        policy = asked.policy or ""
        self._how = policy if policy in _SCRIPTED else ""
        self.given = _read(policy, self._space) if policy.endswith(".npy") else None

    def seed(self) -> int:
        """Return a seed so far from others that no two environments have the same."""
        return int(self._rng.integers(1, 1 << 16)) * _FAR_APART

    def constants(self) -> list[Any]:
        """Return simple actions, the simplest first: zeros or the least, then the others or the bounds."""
        leaves = trees.leaves(self._space)
        integers = all(one.integer for one in leaves)
        found = [
            [np.clip(number, one.low, one.high).astype(one.low.dtype) for one in leaves]
            for number in (range(_CONSTANTS) if integers else (0, 1, -1))
        ]
        plain = [self._plain(each) for each in found]
        return [each for number, each in enumerate(plain) if each not in plain[:number]]

    def drawn(self, num_envs: int, steps: int, how: str = "") -> tuple[tuple[Any, ...], ...]:
        """Return so many random actions for each environment.

        With ``hold``, each is held for some steps, to get further. With ``sweep``, one environment of three sweeps
        through simple actions, and the others hold one.
        """
        how, simple = self._how or how, self.constants()
        lanes = []
        for number in range(num_envs):
            lane: list[Any] = []
            while len(lane) < steps:
                if self.given is not None:
                    row = self.given[len(lane) % len(self.given)]
                    lane.append(self._plain([row[number % len(row)]]))
                elif how == "sweep":
                    lane.append(simple[(number if number % 3 else len(lane) // _HOLDS) % len(simple)])
                else:
                    action = self._plain(trees.leaves(sample(self._space, self._rng)))
                    lane += [action] * (int(self._rng.integers(1, _HOLDS)) if how == "hold" else 1)
            lanes.append(tuple(lane[:steps]))
        return tuple(lanes)

    def _plain(self, leaves: Sequence[NDArray[Any]]) -> Any:  # noqa: ANN401 - a tree of lists
        arrays = [np.asarray(leaf) for leaf in leaves]
        return trees.filled(trees.form(self._space), [[one.dtype.str, one.shape, one.tobytes()] for one in arrays])


def _cases(tape: _Tape, num_envs: int, steps: int, *, fixed: bool) -> Iterator[Case]:
    """Yield what is stepped: the layout asked for with two resets, one environment and many with actions that are held.

    Then each of many holds one action, or sweeps through them, with a reset in the middle. Last, one environment for
    longer, a few times, which is not needed if episodes have ended.
    """
    many = num_envs if fixed else max(_MANY, num_envs)
    one = num_envs if fixed else 1
    yield (
        Segment(tape.seed(), tape.drawn(num_envs, steps)),
        Segment(0, tape.drawn(num_envs, min(steps, _SHORT))),
    )
    yield (Segment(tape.seed(), tape.drawn(one, steps, "hold")),)
    yield (Segment(tape.seed(), tape.drawn(many, min(steps, 2 * _SHORT), "hold")),)
    yield (
        Segment(tape.seed(), tape.drawn(many, steps, "sweep")),
        Segment(tape.seed(), tape.drawn(many, min(steps, _SHORT))),
    )
    for _ in range(_FEW_ENDS):
        yield (Segment(tape.seed(), tape.drawn(one, _LONGER * steps, "hold")),)


def _same_rows(two: _Two, asked: PairRequest) -> Verdict:
    say = console.for_progress().print
    tape = _Tape(two, asked)
    steps, num_envs = (asked.steps, asked.num_envs) if tape.given is None else tape.given.shape[:2]
    count, fixed = _count(two, num_envs)
    cases = deque(_cases(tape, count, steps, fixed=fixed))
    while cases:
        planned = cases.popleft()
        if planned[0].length > steps and two.tally.ends >= _FEW_ENDS:
            break
        say(f"comparing {counted(len(planned[0].actions), 'environment')} over {planned[0].length:,} steps")
        case = two.acted(planned)
        found = two.parting(case)
        if found is None:
            continue
        if not found.segment or not two.keep_state(case, found):
            return _parted(two, case, found, tape.constants(), fixed=fixed)
        two.tally.kept = found.field
        cases.extendleft((each,) for each in reversed(case))
    tally = two.tally
    limits = {side.about["spec"].get("max_episode_steps", inf) for side in two.sides}
    if tally.raised:
        return Verdict("unverified", tally, why=f"both raise: {tally.raised}")
    if len(limits) > 1 and tally.longest < min(limits) and inf not in limits:
        words = " and ".join(map(str, sorted(limits)))
        why = f"episodes are limited to {words} steps, and the longest that was compared had {tally.longest}"
        return Verdict("unverified", tally, why=f"{why}: use a --policy that gets further")
    if tally.skipped or tally.furthest:
        return Verdict("within limits", tally)
    return Verdict("equal" if tally.casts else "identical", tally)


def _parted(two: _Two, case: Case, found: Parting, constants: list[Any], *, fixed: bool) -> Verdict:
    """Return the verdict on two that part: whether each repeats itself, and the smallest case in which they do."""
    tally, only, say = two.tally, found.field, console.for_progress().print
    runs, again = two.answers([case] * 2), two.anew.answers([case] * 2)
    pairs = zip("AB", runs, again, strict=True)
    names = [name for name, one, other in pairs if analysis.first_parting(one, other, Tally(only=only))]
    if names:
        verb = "give" if len(names) > 1 else "gives"
        why = f"{' and '.join(names)} {verb} other rows if the same is stepped again: the seed does not decide them"
        more = f"; --within {DISTRIBUTION} compares episodes"
        return Verdict("unverified" if len(names) > 1 else "different", tally, why=why + more)
    until = time.monotonic() + _SHRINKING_S
    say("looking for the smallest example")
    case, found = analysis.smallest(
        case,
        found,
        lambda smaller: two.step(smaller, tally.anew(only)),
        constants,
        fixed=fixed,
        timely=lambda: time.monotonic() < until,
    )
    two.full = True
    found = two.step(case, tally.anew(only)) or found
    script = example(two.sides, case, found, two.calls)
    if not two.shows(script, found):
        why = "they part here only: the example did not fail each time in an interpreter of its own"
        return Verdict("different", tally, found, case, why=why)
    path = paths.DEFAULT_FOLDER / "example.py"
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_text(script, encoding="utf-8")
    except OSError as error:
        console.note(f"{path} is not written: {error.strerror}")
    return Verdict("different", tally, found, case, script=script)


def _in_distribution(two: _Two, asked: PairRequest) -> Verdict:
    """Compare distributions, which say something where rows cannot be the same."""
    tape, say = _Tape(two, asked), console.for_progress().print
    count, _ = _count(two, asked.num_envs)
    until = time.monotonic() + asked.timeout
    sizes = {sum(int(np.prod(leaf[2])) for leaf in side.about["observations"]) for side in two.sides}
    two.full = len(sizes) == 1 and max(sizes) <= _MOST_NUMBERS
    one: list[analysis.Episode] = []
    other: list[analysis.Episode] = []
    ends = 0
    while ends < _EPISODES and time.monotonic() < until:
        say(f"{ends} of {_EPISODES} episodes")
        # Other seeds and actions: tests need samples that are independent.
        cases = [(Segment(tape.seed(), tape.drawn(count, asked.steps)),) for _ in two.sides]
        answers = two.answers(cases, two.policy)
        for name, answer, (segment,), found in zip("AB", answers, cases, (one, other), strict=True):
            if answer["raised"]:
                return Verdict("different", two.tally, why=f"{name} raises {answer['raised']}")
            found.extend(analysis.episodes(answer, answer["taken"][0] or segment.actions, seen=two.full))
        ends = min(sum(any(step[-2:]) for _, steps in side for step in steps) for side in (one, other))
    two.tally.ends = ends
    if ends < _EPISODES // 10:
        return Verdict("unverified", two.tally, why=f"only {ends} episodes ended: more --steps")
    tests, shows = analysis.distributions(one, other)
    words = ", ".join(f"{name} p = {chance:.3f}" for name, chance in tests)
    why = f"{len(one):,} and {len(other):,} episodes: {words}; in 95 % of runs would show {shows}"
    alike = all(chance > analysis.LEVEL for _, chance in tests)
    return Verdict("same distribution" if alike else "different", two.tally, why=why)
