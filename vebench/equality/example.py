"""The smallest example of a difference, as a script that needs the two implementations, numpy and Gymnasium alone.

The example of an adapter needs vebench, too.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vebench.backends.environments.suites import SUITES
from vebench.backends.interface import Task
from vebench.child.equality.subject import array_of, leaves_of_all
from vebench.errors import one_line
from vebench.reports.figures import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vebench.equality.rows import FirstDifference
    from vebench.equality.shrink import Case

_DEFAULTS = {field.name: field.default for field in fields(Task)}
_PLACES = {"observations": 0, "rewards": 1, "terminated": 2, "truncated": 3}
# The second function returns None if an environment has no such value.
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


class Shown(NamedTuple):
    """A side as the example shows it."""

    text: str
    python: str
    about: dict[str, Any]  # the answer of ``child/equality/subject.py`` about itself


class _Code(NamedTuple):
    """The code of one side."""

    imports: list[str]
    lines: list[str]  # make the side and step it
    value: str  # an expression: the value that differs


def place(case: Case, difference: FirstDifference) -> str:
    """Return in words after how many actions the two differ, and whether in a reset."""
    after = f"after {counted(made(case, difference), 'action')}"
    return f"in the reset {after}" if difference.needs > difference.step or not difference.step else after


def made(case: Case, difference: FirstDifference) -> int:
    """Return how many actions the environment has taken where the two differ."""
    return sum(each.length for each in case[: difference.segment]) + difference.step


def example(sides: Sequence[Shown], case: Case, difference: FirstDifference, calls: Sequence[Sequence[Any]]) -> str:
    """Return the script. It fails where the two differ, and prints both values.

    ``calls``: the calls that the case made of each side, up to the call that returned the row and beyond.
    """
    alone = sides[0].python != sides[1].python
    names = ("env", "env") if alone else ("a", "b")
    codes = []
    for name, side, listed, last in zip(names, sides, calls, difference.calls, strict=True):
        kept = listed if last is None else listed[: last + 1]
        codes.append(_code(name, side.about, case, kept, difference))
    first, second = (one_line(words) for words in difference.found)
    lines = [
        f'"""{sides[0].text} and {sides[1].text} differ in {difference.field} {place(case, difference)}.',
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
    """Yield lines that run each side in its Python, and compare what they print."""
    yield "import subprocess"
    yield ""
    texts = []
    for _, code in sides:
        last = [f"print(({code.value}).dtype, ({code.value}).tolist())"] if has_value else []
        texts.append([*code.imports, "import numpy as np", *code.lines, *last])
    names = "a", "a" if texts[0] == texts[1] else "b"
    for name, text in dict(zip(names, texts, strict=True)).items():
        yield f'{name} = r"""'
        yield from text
        yield '"""'
    yield "rows = ["
    yield '    subprocess.run([python, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout'
    yield f"    for python, code in [({sides[0][0]!r}, {names[0]}), ({sides[1][0]!r}, {names[1]})]"
    yield "]"
    yield "print(*rows, sep='\\n')"
    yield "assert rows[0] == rows[1], 'they differ'"


def _code(name: str, about: dict[str, Any], case: Case, calls: Sequence[Any], difference: FirstDifference) -> _Code:
    num_envs = len(case[0].actions)
    kept = [call for call in calls if call[0] in (None, difference.env)]
    if about["adapter"]:
        module, _, kind = about["adapter"].partition(":")
        imports = [f"from {module} import {kind}", "from vebench.backends.interface import Setup, Task"]
        stated = [f"{key}={value!r}" for key, value in about["task"].items() if value != _DEFAULTS.get(key)]
        task = f"Task({', '.join(stated)})"
        options = "".join(f", {key}={value!r}" for key, value in about["options"].items())
        made = f"{kind}(Setup({task}, workers={num_envs}, seed={case[0].seed}){options})"
        value = _value_of_adapter(f"{name}_row", difference)
    else:
        imports, made = _made(about, num_envs, case[0].seed)
        value = _value(f"{name}_row", about, difference)
    if difference.field.startswith("infos/"):
        imports.append(_INFO)
    return _Code(imports, [f"{name} = {made}", *_calls(name, about, kept)], value)


def _made(about: dict[str, Any], num_envs: int, seed: int) -> tuple[list[str], str]:
    """Return the lines that import what makes a side, and the expression that makes it."""
    given = {"num_envs": num_envs, "seed": seed}
    values = {**about["values"], **{name: given[name] for name in about["takes"]}}
    if about["called"]:
        module, _, name = about["called"].partition(":")
        words = ", ".join(f"{key}={value!r}" for key, value in values.items())
        return [f"import {module}"], f"{module}.{name}({words})"
    words = ", ".join([repr(values.pop("id")), *(f"{key}={value!r}" for key, value in values.items())])
    suites = [suite for suite in SUITES.values() if suite.plugin and suite.namespace]
    plugins = [suite.plugin for suite in suites if words.startswith(f"'{suite.namespace}")]
    return ["import gymnasium", *(f"import {plugin}  # registers it" for plugin in plugins)], f"gymnasium.make({words})"


def _calls(name: str, about: dict[str, Any], calls: Sequence[Any]) -> list[str]:
    """Return lines that make these calls: a loop over actions where several follow each other."""
    lines: list[str] = []
    actions: list[str] = []
    adapter = bool(about["adapter"])

    def stepped(action: str) -> list[str]:
        if adapter:
            return [f"{name}.send({action})", f"{name}_row = {name}.recv()"]
        return [f"{name}_row = {name}.step({action})"]

    def flush() -> None:
        if len(actions) == 1:
            lines.extend(stepped(actions[0]))
        elif actions:
            same = len(set(actions)) == 1
            listed = f"[{actions[0]}] * {len(actions)}" if same else f"[{', '.join(actions)}]"
            lines.append(f"for action in {listed}:")
            lines.extend(f"    {line}" for line in stepped("action"))
        actions.clear()

    for _, kind, value in calls:
        if kind == "step":
            actions.append(_literal(about, value))
            continue
        flush()
        if kind == "mask":
            lines.append(f"{name}_row = {name}.reset(options={{'reset_mask': np.array({value})}})")
        elif adapter:
            lines += [f"{name}.reset({value})", f"{name}_row = {name}.recv()"]
        else:
            lines.append(f"{name}_row = {name}.reset({'' if value is None else f'seed={value}'})")
    flush()
    return lines


def _literal(about: dict[str, Any], action: Any) -> str:
    """Return an action, or a batch of them, as Python code."""
    if about["vector"]:
        leaves = [np.stack(leaf) for leaf in leaves_of_all(action)]
    else:
        leaves = [array_of(leaf) for leaf in action]
    return _written(about["action_form"], iter([_number(leaf) for leaf in leaves]))


def _number(leaf: np.ndarray[Any, Any]) -> str:
    if not leaf.shape and leaf.dtype.kind in "iu":
        return str(leaf.item())
    kind = "" if leaf.dtype == np.int64 else f", np.{leaf.dtype}"
    return f"np.array({leaf.tolist()}{kind})"


def _written(form: Any, texts: Iterator[str]) -> str:
    if isinstance(form, dict):
        return f"{{{', '.join(f'{key!r}: {_written(part, texts)}' for key, part in form.items())}}}"
    return f"({''.join(f'{_written(part, texts)}, ' for part in form)})" if isinstance(form, list) else next(texts)


def _value(row: str, about: dict[str, Any], difference: FirstDifference) -> str:
    """Return the value of the field in a row, as Python code."""
    field, _, leaf = difference.field.partition("/")
    final = about["mode"] == "same_step" and difference.final
    if field == "infos":
        # A wrapper puts the statistics of an episode next to ``final_info``.
        of_end = f"{row}[-1] | {row}[-1]['final_info']" if leaf.startswith("episode/") else f"{row}[-1]['final_info']"
        index = f", {difference.env}" if about["vector"] else ""
        return f"np.asarray(info({of_end if final else f'{row}[-1]'}, {leaf!r}{index}))"
    if field not in _PLACES:
        return ""
    index = f"[{difference.env}]" if about["vector"] else ""
    inner = _inner(leaf)
    if field == "observations" and final:
        return f"np.asarray({row}[4]['final_obs']{index}{inner})"
    return f"np.asarray({row}[{_PLACES[field]}]{inner}{index})"


def _value_of_adapter(row: str, difference: FirstDifference) -> str:
    """Return the value of the field in the row of an environment, as Python code."""
    field, _, leaf = difference.field.partition("/")
    if field not in _PLACES:
        return ""
    return f"{row}.{field}{_inner(leaf)}[{row}.env_ids == {difference.env}]"


def _inner(leaf: str) -> str:
    """Return the code that takes a leaf from a tree."""
    return "".join(f"[{part}]" if part.isdigit() else f"[{part!r}]" for part in leaf.split("/") if part)
