"""Runs both sides of a comparison in their own Pythons, and finds the first difference in their rows.

Rows are lists in the form of ``child/equality/subject.py``. ``child/equality/recording.py`` compares values.
"""

from __future__ import annotations

import copy
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import vebench
from vebench.backends import bracketed, trees
from vebench.backends.interface import ActionSpace, ActionSpaceTree
from vebench.backends.registry import RECORDED
from vebench.child.equality.recording import Comparer
from vebench.child.equality.subject import RESET, STEP, array_of
from vebench.child.process import Process, environment
from vebench.equality.shrink import Action, Case, FirstDifference, Segment, example, smallest
from vebench.errors import UsageError, one_line, shown
from vebench.interpreters import PLUGINS
from vebench.machine.guardian import TOKEN_VARIABLE
from vebench.plan.tasks import home_of
from vebench.process_guard import ProcessGuard, python_path
from vebench.reports import console
from vebench.results import store

_Answer = Mapping[str, Any]  # a side's answer to a case
_Leaf = Sequence[Any]  # ``[type, shape, data]``; infos have ``sure``, too
_SEARCH_S = 60.0  # limit for the search for a small case, and for a run of the example
_KINDS = {RESET: "reset", STEP: "step"}


class LostError(Exception):
    """The process of a side has died or does not answer, as the text says."""


class Side:
    """A side that is stepped in ``python``. ``about`` is the side's description of itself."""

    about: Mapping[str, Any]

    def __init__(self, text: str, python: str, process: Process, timeout: float) -> None:
        self.text, self.python = text, python
        self._process, self._timeout = process, timeout
        self._asks: Any = process.stdin
        self._answers: Any = process.stdout

    def ask(self, request: object) -> None:
        """Send a request. If the process has died, ``answer`` raises the error."""
        with suppress(BrokenPipeError):
            self._asks.write(f"{json.dumps(request)}\n".encode())
            self._asks.flush()

    def answer(self) -> dict[str, Any]:
        """Return the answer to the last request. Raises LostError, or UsageError if the subject cannot be stepped."""
        line, deadline = bytearray(), time.monotonic() + self._timeout
        while not line.endswith(b"\n"):
            if not select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise LostError(f"{shown(self.text)} gives no answer within {self._timeout:g} s")
            part = os.read(self._answers.fileno(), 1 << 26)
            if not part:
                raise LostError(f"the process of {shown(self.text)} {one_line(self._process.how_it_ended())}")
            line += part
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise UsageError(f"{shown(self.text)}: {one_line(found['error'])}")
        return found


def request_of(text: str) -> tuple[str, str, dict[str, Any]]:
    """Return the name, the Python and the first request of a side, from ``NAME[KEY=VALUE,...]@PYTHON``."""
    name, at, python = text.rpartition("@")
    name, python = (name, python) if at and python else (text, home_of(text) or sys.executable)
    module, values = bracketed.name_and_values(name)
    return name, python, {"name": module, "values": values, "plugins": list(PLUGINS), "packages": list(RECORDED)}


@contextmanager
def both(asked: Sequence[tuple[str, str, dict[str, Any]]], timeout: float) -> Iterator[Two]:
    """Start two sides, each from its name, Python and request. Raises UsageError if one cannot be stepped."""
    with ProcessGuard() as guard, ExitStack() as stack:
        env = environment(python_path(guard.scratch), {})
        script = Path(vebench.__path__[0]) / "child" / "equality" / "subject.py"

        def start(text: str, python: str, request: dict[str, Any]) -> Side:
            errors = stack.enter_context(tempfile.TemporaryFile(dir=guard.scratch))
            command, pipe = [python, str(script)], subprocess.PIPE
            try:
                process = stack.enter_context(guard.process(command, errors, env=env, stdin=pipe, stdout=pipe))
            except OSError as error:
                raise UsageError(f"{shown(text)}: {shown(python)} does not start: {error.strerror}") from None
            side = Side(text, python, process, timeout)
            side.ask({**request, "scratch": str(guard.scratch)})
            try:
                side.about = side.answer()
            except LostError as error:
                raise UsageError(str(error)) from None
            return side

        def start_both() -> tuple[Side, Side]:
            one, other = (start(*each) for each in asked)
            return one, other

        yield Two(start_both(), guard, start_both)


@dataclass
class DiffStats:
    """Counts of compared rows."""

    comparer: Comparer = field(default_factory=lambda: Comparer(may_cast=True))
    rows: int = 0
    ends: int = 0
    truncated: int = 0  # number of ends by truncation
    longest: int = 0  # steps of the longest episode
    infos: tuple[set[str], set[str]] = field(default_factory=lambda: (set(), set()))  # names of infos of each side
    not_compared: dict[str, str] = field(default_factory=dict)  # reason by name of an info
    only: str = ""  # name of the only info to compare, empty for all
    raised: str = ""  # exception of A if both sides raised one, which ended the comparison of rows
    kept: str = ""  # the field that shows that both sides keep state through ``reset(seed=)``
    finals: bool = True  # whether both sides should return the final observation of an episode

    def anew(self, only: str) -> DiffStats:
        """Return empty stats for other rows of the same two sides. Of infos, only this field is compared."""
        comparer = Comparer(self.comparer.limits, self.comparer.may_cast)
        return DiffStats(comparer, infos=self.infos, not_compared=self.not_compared, only=only, finals=self.finals)


def first_difference(one: _Answer, other: _Answer, stats: DiffStats) -> FirstDifference | None:
    """Compare two answers to a case. Return the difference after the fewest actions, None if there is none."""
    for names, answer in zip(stats.infos, (one, other), strict=True):
        names.update(f"infos/{leaf[0]}" for rows in answer["rows"] for row in rows for leaf in row[6] or ())
    raised = one["raised"], other["raised"]
    pairs = enumerate(zip(one["rows"], other["rows"], strict=True))
    found = [_of_environment(env, *rows, raised, stats) for env, rows in pairs]
    if all(raised):
        stats.raised = one["raised"]
    there = (each for each in found if each is not None)
    return min(there, key=lambda each: (each.segment, each.step, each.row, each.env), default=None)


def _of_environment(
    env: int, one: Sequence[Any], other: Sequence[Any], raised: tuple[str, str], stats: DiffStats
) -> FirstDifference | None:
    segment = step = age = 0
    what_raised = raised[0] or "nothing", raised[1] or "nothing"
    for number in range(max(len(one), len(other))):
        a, b = (rows[number] if number < len(rows) else None for rows in (one, other))
        known: Sequence[Any] = a or b  # type: ignore[assignment] # one of the two is there
        step = (step if known[0] == segment else 0) + (known[1] == STEP)
        age = 0 if known[1] == RESET else age + 1
        segment = known[0]
        # A row of a reset after an episode exists only if an action follows.
        at = env, segment, step, step + (known[1] == RESET and step > 0), number
        if a is None or b is None:
            if any(raised):
                return FirstDifference(*at, "raised", what_raised)
            return FirstDifference(*at, "resets", ("a row" if a else "no row", "a row" if b else "no row"))
        if a[:2] != b[:2]:
            return FirstDifference(*at, "resets", (_KINDS[a[1]], _KINDS[b[1]]), (a[7], b[7]))
        stats.rows += 1
        stats.longest = max(stats.longest, age)
        stats.ends += a[4] or a[5]
        stats.truncated += a[5] and not a[4]
        gap = next(stats.comparer.gaps(_values(a, b, stats), age), None)
        if gap is not None:
            words = gap.expected, f"{gap.found}, {gap.how_many}" if gap.how_many else gap.found
            return FirstDifference(*at, gap.field, words, (a[7], b[7]), a[1] == STEP and (a[4] or a[5]))
    if bool(raised[0]) != bool(raised[1]):
        return FirstDifference(env, segment, step, step, len(one), "raised", what_raised)
    return None


def _values(a: Sequence[Any], b: Sequence[Any], stats: DiffStats) -> Iterator[tuple[str, Any, Any]]:
    yield from zip(("rewards", "terminated", "truncated"), a[3:6], b[3:6], strict=True)
    if a[2] is not None and b[2] is not None:
        pairs = _in_pairs("observations", a[2], b[2])
        yield from ((name, _value(one), _value(other)) for name, one, other in pairs if one != other)
    elif stats.finals:
        yield "observations", a[2], b[2]
    yield from _infos(a, b, stats)


def _infos(a: Sequence[Any], b: Sequence[Any], stats: DiffStats) -> Iterator[tuple[str, Any, Any]]:
    """Yield the infos that can be compared.

    A key missing on one side counts as a difference only if this side has it in other rows.
    """
    if a[6] is None or b[6] is None:
        return
    for name, one, other in _in_pairs("infos", a[6], b[6]):
        if name in stats.not_compared or stats.only not in ("", name):
            continue
        given = [leaf for leaf in (one, other) if leaf is not None]
        if any(not leaf[0] for leaf in given):
            stats.not_compared[name] = "neither numbers nor text"
        elif len(given) > 1 or (given[0][3] and name in stats.infos[0] & stats.infos[1]):
            yield name, _value(one), _value(other)


def _in_pairs(kind: str, *leaves: Sequence[Any]) -> Iterator[tuple[str, _Leaf | None, _Leaf | None]]:
    ours, theirs = ({f"{kind}/{name}".rstrip("/"): leaf for name, *leaf in each} for each in leaves)
    for name in sorted({*ours, *theirs}):
        yield name, ours.get(name), theirs.get(name)


def _value(leaf: _Leaf | None) -> Any:
    """Return the array or text of a leaf."""
    if leaf is None:
        return None
    return leaf[2] if leaf[0] == "object" else array_of(leaf[:3])


@dataclass(frozen=True)
class Example:
    """The smallest case in which two sides differ. ``script`` is empty if it did not reproduce the difference."""

    case: Case
    difference: FirstDifference
    script: str = ""

    def write(self, name: str = "example.py") -> None:
        """Write the script into the folder of run files. A note says if that is not possible."""
        path = store.DEFAULT_FOLDER / name
        try:
            path.parent.mkdir(exist_ok=True)
            path.write_text(self.script, encoding="utf-8")
        except OSError as error:
            console.note(f"{path} is not written: {error.strerror}")


@dataclass
class Two:
    """Both sides while they are compared."""

    sides: tuple[Side, Side]
    guard: ProcessGuard
    start: Callable[[], tuple[Side, Side]]  # starts the same two sides in other processes
    stats: DiffStats = field(default_factory=DiffStats)
    policy: str = ""  # MODULE:FUNCTION, whose actions replace the actions of cases
    calls: tuple[list[Any], list[Any]] = field(default_factory=lambda: ([], []))  # calls in the last ``step``

    @cached_property
    def anew(self) -> Two:
        """The same two sides in new processes."""
        return replace(self, sides=self.start())

    @property
    def space(self) -> ActionSpaceTree:
        """The space of actions. Raises UsageError if the sides have different ones."""
        found = []
        for side in self.sides:
            boxes = [ActionSpace(array_of(low), array_of(high)) for _, low, high in side.about["actions"]]
            words = ", ".join(f"{box.low.tolist()} to {box.high.tolist()}" for box in boxes)
            found.append((side.about["action_form"], words, boxes))
        if found[0][:2] != found[1][:2]:
            raise UsageError(f"the two take different actions: {' and '.join(shown(words) for _, words, _ in found)}")
        tree: ActionSpaceTree = trees.filled(found[0][0], found[0][2])
        return tree

    def answers(self, cases: Sequence[Case], policy: str = "") -> list[dict[str, Any]]:
        """Return the answers of A to the first case, and of B to the second. A ``policy`` replaces the actions."""
        asked = list(zip(self.sides, cases, strict=False))
        for side, case in asked:
            side.ask({"policy": policy, "segments": [[each.seed, each.actions] for each in case]})
        return [side.answer() for side, _ in asked]

    def step(self, case: Case, stats: DiffStats) -> FirstDifference | None:
        """Step a case on both sides, and return the first difference."""
        one, other = self.answers([case] * 2)
        self.calls = one["calls"], other["calls"]
        return first_difference(one, other, stats)

    def first_difference(self, case: Case) -> FirstDifference | None:
        """Return the first difference. A difference in an info counts only if A repeats the info."""
        before = copy.deepcopy(self.stats)
        one, other = self.answers([case] * 2)
        found = first_difference(one, other, self.stats)
        if found is None or not found.field.startswith("infos/"):
            return found
        self.stats = before
        for two in (self, self.anew):
            (again,) = two.answers([case])
            for a, b in zip(chain(*one["rows"]), chain(*again["rows"]), strict=False):
                for gap in Comparer(may_cast=True).gaps(_infos(a, b, DiffStats())):
                    before.not_compared[gap.field] = "differs between two runs of A"
        return first_difference(one, other, before)

    def keep_state(self, case: Case, found: FirstDifference) -> bool:
        """Return whether the two differ only because both keep state through ``reset(seed=)``.

        Before the reset, the sides may have made different numbers of steps, if one waited for another environment.
        """
        first, last = case[0], case[found.segment]
        used, alone = self.answers([(first, last)] * 2), self.answers([(last,)] * 2)
        stats = self.stats.anew(found.field)
        lengths = [first.length]
        for answer, by_itself in zip(used, alone, strict=True):
            second = [[(0, *row[1:]) for row in rows if row[0]] for rows in answer["rows"]]
            if first_difference({**answer, "rows": second}, by_itself, stats) is None:
                return False
            for rows in answer["rows"]:
                ends = [row[4] or row[5] for row in rows if row[:2] == [0, STEP]]
                lengths.append([*ends, True].index(True))
        # Up to the first end of an episode, both sides make the same calls.
        return self.step((first.cut(min(lengths)), last), stats) is None

    def acted(self, case: Case) -> Case:
        """Return the case with the actions of the policy, if there is one. The policy sees the observations of A."""
        if not self.policy:
            return case
        taken = self.answers([case], self.policy)[0]["taken"]  # fewer segments if A raises
        return tuple(Segment(each.seed, tuple(map(tuple, lanes))) for each, lanes in zip(case, taken, strict=False))

    def unrepeated(self, case: Case, found: FirstDifference) -> list[str]:
        """Return the names of the sides, A or B, whose rows are different when the case is repeated."""
        runs, again = self.answers([case] * 2), self.anew.answers([case] * 2)
        pairs = zip("AB", runs, again, strict=True)
        return [name for name, one, other in pairs if first_difference(one, other, DiffStats(only=found.field))]

    def smallest(
        self, case: Case, found: FirstDifference, actions: Sequence[Action], *, fixed: bool, seconds: float = _SEARCH_S
    ) -> Example:
        """Return the smallest case that is found, with a script if it reproduces the difference. See ``shrink``."""
        console.for_progress().print("looking for the smallest example")
        until, only = time.monotonic() + seconds, found.field

        def stepped(smaller: Case) -> FirstDifference | None:
            return self.step(smaller, self.stats.anew(only))

        case, found = smallest(case, found, stepped, actions, fixed=fixed, timely=lambda: time.monotonic() < until)
        found = stepped(case) or found
        script = example(self.sides, case, found, self.calls)
        return Example(case, found, script if self._shows(script, found) else "")

    def _shows(self, script: str, found: FirstDifference) -> bool:
        """Return whether a script fails where the two differ. It must fail in each of three new interpreters."""
        path = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
        env = {**os.environ, "PYTHONPATH": path, TOKEN_VARIABLE: self.guard.token}
        how: Any = {"cwd": self.guard.scratch, "capture_output": True, "text": True, "timeout": _SEARCH_S}
        raised = [words.partition(":")[0] for words in found.found if words != "nothing"]
        expected = raised if found.field == "raised" else ["they differ"]
        for _ in range(3):
            try:
                done = subprocess.run([self.sides[0].python, "-"], check=False, input=script, env=env, **how)
            except subprocess.TimeoutExpired:
                return False
            last = done.stderr.strip().rpartition("\n")[2]
            if not done.returncode or not any(words in last for words in expected):
                return False
        return True
