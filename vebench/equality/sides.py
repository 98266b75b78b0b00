"""Both sides of a comparison: processes in their own Pythons that step the same cases."""

from __future__ import annotations

import copy
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

import vebench
from vebench.backends import bracketed, trees
from vebench.backends.interface import ActionSpace
from vebench.child.equality.subject import array_of, message
from vebench.child.process import Process
from vebench.equality import rows, shrink
from vebench.equality.example import Shown, example
from vebench.equality.rows import DiffStats, FirstDifference
from vebench.equality.shrink import Case, Segment
from vebench.errors import UsageError, one_line, shown
from vebench.interpreters.interpreter import PLUGINS
from vebench.interpreters.process_guard import ProcessGuard, python_path
from vebench.machine.guardian import TOKEN_VARIABLE
from vebench.reports import console
from vebench.results import store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from vebench.backends.interface import ActionSpaceTree
    from vebench.equality.shrink import Action

_SCRIPT = Path(vebench.__path__[0]) / "child" / "equality" / "subject.py"
SEARCH_S = 60.0  # for a small case
_EXAMPLE_RUNS = 3  # each must fail: a difference that one process shows by chance is no example


class LostError(Exception):
    """The process has died or does not answer; the text says which."""


class Side:
    """A side that is stepped in ``python``. ``about`` is its answer about itself."""

    def __init__(self, text: str, python: str, process: Process, timeout: float) -> None:
        self.text, self.python = text, python
        self.about: dict[str, Any] = {}
        self._process, self._timeout = process, timeout

    def ask(self, request: object) -> None:
        """Send a request. If the process does not take it, ``answer`` says why."""
        with suppress(BrokenPipeError):
            _stream(self._process.stdin).write(message(request))
            _stream(self._process.stdin).flush()

    def answer(self) -> dict[str, Any]:
        """Return the answer to the last request. Raises LostError, UsageError if the subject cannot be stepped."""
        line = self._line(time.monotonic() + self._timeout)
        if not line.endswith(b"\n"):
            raise LostError(f"the process of {shown(self.text)} {one_line(self._process.how_it_ended())}")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise UsageError(f"{shown(self.text)}: {one_line(found['error'])}")
        return found

    def _line(self, deadline: float) -> bytes:
        """Return the next line, without its end if the process has ended. Raises LostError after the deadline."""
        descriptor, parts = _stream(self._process.stdout).fileno(), list[bytes]()
        while not parts or not parts[-1].endswith(b"\n"):
            if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise LostError(f"{shown(self.text)} gives no answer within {self._timeout:g} s")
            parts.append(os.read(descriptor, 1 << 20))
            if not parts[-1]:
                break
        return b"".join(parts)


def _stream(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # noqa: S101 - the process was started with pipes
    return pipe


def named(text: str) -> tuple[str, str, dict[str, Any]]:
    """Return the first arguments of ``started`` for ``NAME[KEY=VALUE,...]``, with ``@PYTHON`` or without."""
    name, at, python = text.rpartition("@")
    name, python = (name, python) if at and python else (text, sys.executable)
    module, values = bracketed.name_and_values(name)
    return name, python, {"name": module, "values": values, "plugins": list(PLUGINS)}


@contextmanager
def started(text: str, python: str, request: dict[str, Any], timeout: float, guard: ProcessGuard) -> Iterator[Side]:
    """Start a side in a Python. Raises UsageError if it cannot be stepped."""
    env = {**os.environ, "PYTHONPATH": python_path(guard.scratch)}
    with ExitStack() as stack:
        errors = stack.enter_context(tempfile.TemporaryFile(dir=guard.scratch))
        command, pipe = [python, str(_SCRIPT)], subprocess.PIPE
        try:
            process = stack.enter_context(guard.process(command, errors, env=env, stdin=pipe, stdout=pipe))
        except OSError as error:
            raise UsageError(f"{shown(text)}: {shown(python)} does not start: {error.strerror}") from None
        stack.enter_context(_stream(process.stdout))
        stack.callback(_close, process.stdin)
        side = Side(text, python, process, timeout)
        side.ask({**request, "scratch": str(guard.scratch)})
        try:
            side.about = side.answer()
        except LostError as error:
            raise UsageError(str(error)) from None
        yield side


def _close(pipe: IO[bytes] | None) -> None:
    with suppress(BrokenPipeError):  # a process that has died did not take all requests
        _stream(pipe).close()


@dataclass(frozen=True)
class Example:
    """The smallest case in which two sides differ. ``script`` is empty if it does not show the difference by itself."""

    case: Case
    difference: FirstDifference
    script: str = ""


@dataclass
class Two:
    """Both sides while they are compared."""

    sides: tuple[Side, Side]
    guard: ProcessGuard
    start: Callable[[], tuple[Side, Side]]  # the same two in other processes
    stats: DiffStats = field(default_factory=DiffStats)
    full: bool = False  # whether long arrays are sent as they are
    policy: str = ""  # MODULE:FUNCTION, whose actions replace the actions of cases
    calls: tuple[list[Any], list[Any]] = field(default_factory=lambda: ([], []))  # of the last case

    @cached_property
    def anew(self) -> Two:
        """The same two in processes of their own, which have stepped nothing before."""
        return replace(self, sides=self.start())

    @property
    def space(self) -> ActionSpaceTree:
        """The space of actions, which must be the same. Raises UsageError if it is not."""
        one, other = (
            [ActionSpace(array_of(low), array_of(high)) for _, low, high in side.about["actions"]]
            for side in self.sides
        )
        forms = [side.about["action_form"] for side in self.sides]
        if forms[0] != forms[1] or not all(map(_are_same, one, other)):
            words = (", ".join(f"{box.low.tolist()} to {box.high.tolist()}" for box in boxes) for boxes in (one, other))
            raise UsageError(f"the two take different actions: {' and '.join(map(shown, words))}")
        tree: ActionSpaceTree = trees.filled(forms[0], one)
        return tree

    def answers(self, cases: Sequence[Case], policy: str = "") -> list[dict[str, Any]]:
        """Return the rows of A for the first case, and of B for the second. A ``policy`` takes other actions."""
        asked = list(zip(self.sides, cases, strict=False))
        for side, case in asked:
            segments = [[each.seed, each.actions] for each in case]
            side.ask({"full": self.full, "policy": policy, "segments": segments})
        return [side.answer() for side, _ in asked]

    def step(self, case: Case, stats: DiffStats) -> FirstDifference | None:
        """Step both, and return the first row that differs."""
        one, other = self.answers([case] * 2)
        self.calls = one["calls"], other["calls"]
        return rows.first_difference(one, other, stats)

    def first_difference(self, case: Case) -> FirstDifference | None:
        """Return the first row that differs. A difference in infos counts only if A repeats that info."""
        before = copy.deepcopy(self.stats)
        one, other = self.answers([case] * 2)
        found = rows.first_difference(one, other, self.stats)
        if found is None or not found.field.startswith("infos/"):
            return found
        self.stats = before
        for two in (self, self.anew):
            names = rows.unsteady(one, *two.answers([case]))
            before.not_compared |= dict.fromkeys(names, "differs between two runs of A")
        return rows.first_difference(one, other, before)

    def keep_state(self, case: Case, found: FirstDifference) -> bool:
        """Return whether the two differ only because both keep state through ``reset(seed=)``.

        One side may have made more steps before it than the other, which had to wait for another environment.
        """
        first, last = case[0], case[found.segment]
        used, alone = self.answers([(first, last)] * 2), self.answers([(last,)] * 2)
        stats = self.stats.anew(found.field)
        if not all(map(partial(rows.remembers, stats=stats), used, alone)):
            return False
        # As long as no episode ends, both make the same calls.
        return self.step((first.cut(min(map(rows.before_an_end, used))), last), stats) is None

    def acted(self, case: Case) -> Case:
        """Return the case with the actions of the policy, which sees the observations of A, if there is one."""
        if not self.policy:
            return case
        taken = self.answers([case], self.policy)[0]["taken"]  # of fewer segments if A raises
        return tuple(Segment(each.seed, tuple(map(tuple, lanes))) for each, lanes in zip(case, taken, strict=False))

    def unrepeated(self, case: Case, found: FirstDifference) -> list[str]:
        """Return which sides, A or B, give other rows if the same case is stepped again."""
        runs, again = self.answers([case] * 2), self.anew.answers([case] * 2)
        pairs = zip("AB", runs, again, strict=True)
        return [name for name, one, other in pairs if rows.first_difference(one, other, DiffStats(only=found.field))]

    def smallest(
        self,
        case: Case,
        found: FirstDifference,
        constants: Sequence[Action],
        *,
        fixed: bool,
        seconds: float = SEARCH_S,
    ) -> Example:
        """Return the smallest case in which the two differ, as a script that was seen to fail.

        The search ends after this many ``seconds``. With ``fixed``, the number of environments does not change.
        """
        console.for_progress().print("looking for the smallest example")
        until, only = time.monotonic() + seconds, found.field
        case, found = shrink.smallest(
            case,
            found,
            lambda smaller: self.step(smaller, self.stats.anew(only)),
            constants,
            fixed=fixed,
            timely=lambda: time.monotonic() < until,
        )
        self.full = True
        found = self.step(case, self.stats.anew(only)) or found
        sides = [Shown(side.text, side.python, side.about) for side in self.sides]
        script = example(sides, case, found, self.calls)
        return Example(case, found, script if self._shows(script, found) else "")

    def _shows(self, script: str, found: FirstDifference) -> bool:
        """Return whether a script fails where the two differ, each time in an interpreter of its own."""
        path = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
        env = {**os.environ, "PYTHONPATH": path, TOKEN_VARIABLE: self.guard.token}
        how: Any = {"cwd": self.guard.scratch, "capture_output": True, "text": True, "timeout": SEARCH_S}
        raised = [words.partition(":")[0] for words in found.found if words != "nothing"]
        expected = raised if found.field == "raised" else ["they differ"]
        for _ in range(_EXAMPLE_RUNS):
            try:
                done = subprocess.run([self.sides[0].python, "-"], check=False, input=script, env=env, **how)
            except subprocess.TimeoutExpired:
                return False
            last = done.stderr.strip().rpartition("\n")[2]
            if not done.returncode or not any(words in last for words in expected):
                return False
        return True


def _are_same(one: ActionSpace, other: ActionSpace) -> bool:
    bounds = (one.low, other.low), (one.high, other.high)
    return one.integer == other.integer and all(np.array_equal(*pair) for pair in bounds)


def write_example(script: str, name: str = "example.py") -> None:
    """Write a script into the folder of run files. A note says if that is not possible."""
    path = store.DEFAULT_FOLDER / name
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_text(script, encoding="utf-8")
    except OSError as error:
        console.note(f"{path} is not written: {error.strerror}")
