"""Generates cases for both sides of a comparison, shrinks a case in which they differ, and writes it as a script.

A case is a few segments. A segment is a reset with a seed, and then an action for each step of each environment. An
action is a list of arrays in the form of ``child/equality/subject.py``. This module steps no environment. The script
needs only the two implementations, numpy and Gymnasium. The script of an adapter also needs vebench.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vebench.backends import trees
from vebench.backends.environments.making import sample
from vebench.backends.environments.suites import SUITES
from vebench.backends.interface import ActionSpaceTree, Task
from vebench.child.equality.subject import array_of, leaves_of_all, plain
from vebench.errors import one_line
from vebench.reports.figures import counted

Action = Any

_MOST_RUNS = 400  # the most cases that are stepped to find a small one
_SEEDS = 20  # seeds that are tried for a smaller example
_FAR_APART = 10_000  # the distance between the seeds of segments, since environments add their numbers to seeds
_SHORT = 20  # the number of steps in short cases. An action is held for fewer steps.
FEW_ENDS = 3  # With fewer ends of episodes, longer cases are stepped.
PLACES = {"observations": 0, "rewards": 1, "terminated": 2, "truncated": 3}  # of the fields that ``step`` returns
# The function for scripts returns None if an environment has no value of this name.
_INFO = """
def info(infos, path, index=None):
    for name, value in infos.items():
        if index is not None and f"_{name}" in infos and not infos[f"_{name}"][index]:
            continue
        if path == f"{name}":
            return value if index is None or isinstance(value, (str, bytes)) else value[index]
        if path.startswith(f"{name}/") and isinstance(value, dict):
            return info(value, path[len(name) + 1 :], index)
"""


@dataclass(frozen=True)
class FirstDifference:
    """The first row that differs."""

    env: int
    segment: int
    step: int  # actions of the segment before the row
    needs: int  # how many actions the segment must keep to reach the row
    row: int  # rows of the environment before this one
    # ``observations/LEAF``, ``infos/KEY``, ``rewards``, ``terminated``, ``truncated`` or ``raised``; ``resets`` if only
    # one side has a row here, or if one side has a reset and the other side a step.
    field: str
    found: tuple[str, str]  # both values in words
    calls: tuple[int | None, int | None] = (None, None)  # the numbers of the calls that returned the row
    final: bool = False  # whether the row ends an episode


@dataclass(frozen=True)
class Segment:
    """A reset, and an action for each step of each environment."""

    seed: int  # the seed of environment 0. Environment i has seed + i.
    actions: tuple[tuple[Action, ...], ...]  # the actions of each environment

    @property
    def length(self) -> int:
        """The number of actions of each environment."""
        return len(self.actions[0])

    def cut(self, length: int) -> Segment:
        """Return the segment with this many actions at most."""
        return replace(self, actions=tuple(lane[:length] for lane in self.actions))


Case = tuple[Segment, ...]


class Source:
    """Generates the actions and seeds of cases from a seed.

    ``how``: ``hold`` or ``sweep`` for all cases, empty for a mixture. ``given``: actions of a user's file, ``(steps,
    environments, *action_shape)``. They are repeated.
    """

    def __init__(
        self, space: ActionSpaceTree, seed: int | None, how: str = "", given: NDArray[np.generic] | None = None
    ) -> None:
        self.given = given
        self._space, self._how = space, how
        self._rng = np.random.default_rng(seed)

    def constants(self) -> list[Action]:
        """Return simple actions, the simplest first: the numbers 0, 1, ... clipped to the space, without duplicates."""
        leaves = trees.leaves(self._space)
        numbers = range(6) if all(leaf.integer for leaf in leaves) else (0, 1, -1)
        found: list[Action] = []
        for number in numbers:
            action = [plain(np.clip(number, leaf.low, leaf.high).astype(leaf.low.dtype)) for leaf in leaves]
            if action not in found:
                found.append(action)
        return found

    def segment(self, num_envs: int, steps: int, how: str = "", seed: int | None = None) -> Segment:
        """Return a segment of this size. Random seeds are multiples of _FAR_APART.

        With ``hold``, each action is held for some steps, to get further. With ``sweep``, every third environment
        sweeps through simple actions, and each other environment holds one action.
        """
        seed = int(self._rng.integers(1, 1 << 16)) * _FAR_APART if seed is None else seed
        return Segment(seed, tuple(self._lane(number, steps, self._how or how) for number in range(num_envs)))

    def cases(self, num_envs: int, steps: int, *, fixed: bool) -> Iterator[Case]:
        """Yield cases of ``num_envs`` environments, of one, and of many. If ``fixed``, all have ``num_envs``.

        The last FEW_ENDS cases are longer. They are not needed if episodes have ended.
        """
        many = num_envs if fixed else max(5, num_envs)
        one = num_envs if fixed else 1
        short = min(steps, _SHORT)
        yield self.segment(num_envs, steps), self.segment(num_envs, short, seed=0)
        yield (self.segment(one, steps, "hold"),)
        yield (self.segment(many, min(steps, 2 * _SHORT), "hold"),)
        yield self.segment(many, steps, "sweep"), self.segment(many, short)
        for _ in range(FEW_ENDS):
            yield (self.segment(one, 4 * steps, "hold"),)

    def _lane(self, number: int, steps: int, how: str) -> tuple[Action, ...]:
        lane: list[Action] = []
        simple = self.constants()
        while len(lane) < steps:
            if self.given is not None:
                row = self.given[len(lane) % len(self.given)]
                lane.append([plain(row[number % len(row)])])
            elif how == "sweep":
                lane.append(simple[(number if number % 3 else len(lane) // _SHORT) % len(simple)])
            else:
                action = [plain(leaf) for leaf in trees.leaves(sample(self._space, int(self._rng.integers(1 << 31))))]
                lane += [action] * (int(self._rng.integers(1, _SHORT)) if how == "hold" else 1)
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
    """Return a small case in which the two still differ, and the first difference in it.

    Actions are replaced by the first of the ``constants`` that works. With ``fixed``, the number of environments does
    not change. The search ends when it is no longer ``timely``, or after _MOST_RUNS cases.
    """
    tried: set[str] = set()

    def better(candidates: Iterable[Case]) -> bool:
        """Take the first smaller candidate that differs. Cut the actions after the row that differs if possible."""
        nonlocal case, difference
        for candidate in candidates:
            if len(tried) >= _MOST_RUNS or not timely():
                return False
            if _size(candidate, constants) >= _size(case, constants) or repr(candidate) in tried:
                continue
            tried.add(repr(candidate))
            found = stepped(candidate)
            if found is None:
                continue
            # Without the actions after the row, other environments may make fewer calls, and hide the difference.
            cut = _cut(candidate, found)
            again = stepped(cut) if cut != candidate else None
            case, difference = (candidate, found) if again is None else (cut, again)
            return True
        return False

    better([_cut(case, difference)])
    while better(_candidates(case, difference, constants, fixed=fixed)):
        pass
    return case, difference


def _cut(case: Case, difference: FirstDifference) -> Case:
    """Return the case up to the row that differs."""
    *before, last = case[: difference.segment + 1]
    return (*before, last.cut(difference.needs))


def _size(case: Case, constants: Sequence[Action]) -> tuple[int, ...]:
    """Return the measures of a case's size, the most important first."""
    simple = {repr(action): place for place, action in enumerate(constants)}
    actions = [action for each in case for lane in each.actions for action in lane]
    places = sum(simple.get(repr(action), len(simple)) for action in actions)
    seeds = sum(min(each.seed, _SEEDS) for each in case)
    return len(case[0].actions), len(case), sum(each.length for each in case), places, seeds


def _candidates(case: Case, difference: FirstDifference, constants: Sequence[Action], *, fixed: bool) -> Iterator[Case]:
    """Yield cases with fewer environments, fewer segments, one simple action, fewer actions, or small seeds."""
    *before, last = case
    count = len(case[0].actions)
    for width in range(1, 1 if fixed else count):
        for first in range(max(0, difference.env - width + 1), min(difference.env, count - width) + 1):
            yield tuple(Segment(each.seed + first, each.actions[first : first + width]) for each in case)
    for at, each in enumerate(before):
        yield case[:at] + case[at + 1 :]
        yield from ((*case[:at], each.cut(length), *case[at + 1 :]) for length in (0, 1, each.length // 2))
    for action in constants:
        yield (*before, replace(last, actions=((action,) * last.length,) * count))
    chunk = last.length // 2
    while chunk:
        for first in range(0, last.length, chunk):
            kept = tuple(lane[:first] + lane[first + chunk :] for lane in last.actions)
            yield (*before, replace(last, actions=kept))
        chunk //= 2
    for at, each in enumerate(case):
        yield from ((*case[:at], replace(each, seed=seed), *case[at + 1 :]) for seed in range(_SEEDS))


class _Code(NamedTuple):
    """The code of one side."""

    imports: list[str]
    lines: list[str]  # statements that make the side and step it
    value: str  # an expression for the value that differs


def place_of(case: Case, difference: FirstDifference) -> str:
    """Return in words the number of actions before the difference, and whether it is in a reset."""
    after = f"after {counted(made(case, difference), 'action')}"
    return f"in the reset {after}" if difference.needs > difference.step or not difference.step else after


def made(case: Case, difference: FirstDifference) -> int:
    """Return the number of the environment's actions before the difference."""
    return sum(each.length for each in case[: difference.segment]) + difference.step


def example(sides: Sequence[Any], case: Case, difference: FirstDifference, calls: Sequence[Sequence[Any]]) -> str:
    """Return the script. It fails where the two differ, and prints both values.

    ``sides``: with the ``text``, ``python`` and ``about`` of ``Side``. ``calls``: all calls to each side in the case.
    """
    alone = sides[0].python != sides[1].python
    names = ("env", "env") if alone else ("a", "b")
    codes = []
    for name, side, listed, last in zip(names, sides, calls, difference.calls, strict=True):
        kept = listed if last is None else listed[: last + 1]
        codes.append(_code(name, side.about, case, kept, difference))
    first, second = (one_line(words) for words in difference.found)
    lines = [
        f'"""{sides[0].text} and {sides[1].text} differ in {difference.field} {place_of(case, difference)}.',
        "",
        f"The first has {first}, the second {second}.",
        '"""',
    ]
    has_value = difference.field not in ("raised", "resets")
    if alone:
        lines += _in_two_pythons([(side.python, code) for side, code in zip(sides, codes, strict=True)], has_value)
    else:
        one, other = codes
        lines += [*sorted({*one.imports, *other.imports}), "import numpy as np", "", *one.lines, *other.lines]
        if has_value:
            lines += [
                f"one, other = {one.value}, {other.value}",
                "print(one, other, sep='\\n')",
                "assert one.dtype == other.dtype and np.array_equal(one, other), 'they differ'",
            ]
    return "\n".join(lines) + "\n"


def _in_two_pythons(sides: Sequence[tuple[str, _Code]], has_value: bool) -> Iterator[str]:
    """Yield lines that run each side in its Python, and compare the output of both."""
    yield "import subprocess"
    yield ""
    for name, (_, code) in zip("ab", sides, strict=True):
        yield f'{name} = r"""'
        yield from (*code.imports, "import numpy as np", *code.lines)
        if has_value:
            yield f"print(({code.value}).dtype, ({code.value}).tolist())"
        yield '"""'
    yield "rows = ["
    yield '    subprocess.run([python, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout'
    yield f"    for python, code in [({sides[0][0]!r}, a), ({sides[1][0]!r}, b)]"
    yield "]"
    yield "print(*rows, sep='\\n')"
    yield "assert rows[0] == rows[1], 'they differ'"


def _code(name: str, about: Mapping[str, Any], case: Case, calls: Sequence[Any], difference: FirstDifference) -> _Code:
    given = {"num_envs": len(case[0].actions), "seed": case[0].seed}
    if about["adapter"]:
        module, _, kind = about["adapter"].partition(":")
        imports = [f"from {module} import {kind}", "from vebench.backends.interface import Setup, Task"]
        defaults = {field.name: field.default for field in fields(Task)}
        task = _in_words({key: value for key, value in about["task"].items() if value != defaults[key]})
        setup = f"Setup(Task({task}), workers={given['num_envs']}, seed={given['seed']})"
        made = f"{kind}({', '.join(filter(None, [setup, _in_words(about['options'])]))})"
    else:
        values = {**about["values"], **{name: given[name] for name in about["takes"]}}
        module, _, kind = about["called"].partition(":")
        imports, made = [f"import {module}"], f"{module}.{kind}({_in_words(values)})"
        if not module:
            words = ", ".join(filter(None, [repr(values.pop("id")), _in_words(values)]))
            suites = [suite for suite in SUITES.values() if suite.plugin and suite.namespace]
            plugins = [suite.plugin for suite in suites if words.startswith(f"'{suite.namespace}")]
            imports = ["import gymnasium", *(f"import {plugin}  # registers it" for plugin in plugins)]
            made = f"gymnasium.make({words})"
    if difference.field.startswith("infos/"):
        imports.append(_INFO)
    kept = [call for call in calls if call[0] in (None, difference.env)]
    return _Code(imports, [f"{name} = {made}", *_calls(name, about, kept)], _value(f"{name}_row", about, difference))


def _in_words(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in values.items())


def _calls(name: str, about: Mapping[str, Any], calls: Sequence[Any]) -> list[str]:
    """Return lines that make these calls. Consecutive steps are a loop over their actions."""
    lines: list[str] = []
    receive = f"{name}_row = {name}.recv()"
    step = [f"{name}.send(action)", receive] if about["adapter"] else [f"{name}_row = {name}.step(action)"]
    for kind, group in groupby(calls, key=itemgetter(1)):
        values = [value for _, _, value in group]
        if kind == "step":
            actions = [_literal(about, value) for value in values]
            same = len(set(actions)) == 1
            listed = f"[{actions[0]}] * {len(actions)}" if same else f"[{', '.join(actions)}]"
            loop = [f"for action in {listed}:", *(f"    {line}" for line in step)]
            lines += loop if len(actions) > 1 else [line.replace("(action)", f"({actions[0]})") for line in step]
        for value in values:
            if kind == "mask":
                lines.append(f"{name}_row = {name}.reset(options={{'reset_mask': np.array({value})}})")
            elif kind == "reset" and about["adapter"]:
                lines += [f"{name}.reset({value})", receive]
            elif kind == "reset":
                lines.append(f"{name}_row = {name}.reset({'' if value is None else f'seed={value}'})")
    return lines


def _literal(about: Mapping[str, Any], action: Any) -> str:
    """Return an action, or a batch of them, as Python code."""
    if about["vector"]:
        leaves = [np.stack(leaf) for leaf in leaves_of_all(action)]
    else:
        leaves = [array_of(leaf) for leaf in action]
    texts = []
    for leaf in leaves:
        kind = "" if leaf.dtype == np.int64 else f", np.{leaf.dtype}"
        is_number = not leaf.shape and leaf.dtype.kind in "iu"
        texts.append(str(leaf.item()) if is_number else f"np.array({leaf.tolist()}{kind})")
    return _written(about["action_form"], iter(texts))


def _written(form: Any, texts: Iterator[str]) -> str:
    if isinstance(form, dict):
        return f"{{{', '.join(f'{key!r}: {_written(part, texts)}' for key, part in form.items())}}}"
    return f"({''.join(f'{_written(part, texts)}, ' for part in form)})" if isinstance(form, list) else next(texts)


def _value(row: str, about: Mapping[str, Any], difference: FirstDifference) -> str:
    """Return the value of the field in a row, as Python code."""
    field, _, leaf = difference.field.partition("/")
    inner = "".join(f"[{part}]" if part.isdigit() else f"[{part!r}]" for part in leaf.split("/") if part)
    index = f"[{difference.env}]" if about["vector"] else ""
    final = about["mode"] == "same_step" and difference.final
    if field == "infos":
        # A wrapper puts the statistics of an episode next to ``final_info``.
        of_end = f"{row}[-1] | {row}[-1]['final_info']" if leaf.startswith("episode/") else f"{row}[-1]['final_info']"
        index = f", {difference.env}" if about["vector"] else ""
        return f"np.asarray(info({of_end if final else f'{row}[-1]'}, {leaf!r}{index}))"
    if field not in PLACES:
        return ""
    if about["adapter"]:
        return f"{row}.{field}{inner}[{row}.env_ids == {difference.env}]"
    if field == "observations" and final:
        return f"np.asarray({row}[4]['final_obs']{index}{inner})"
    return f"np.asarray({row}[{PLACES[field]}]{inner}{index})"
