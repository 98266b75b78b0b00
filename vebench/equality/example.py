"""The smallest example of where two implementations part, as a script that needs them, numpy and Gymnasium alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends import trees
from vebench.backends.environments.suites import SUITES
from vebench.child.equality.subject import array_of
from vebench.errors import one_line
from vebench.reports.figures import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vebench.equality.differences import Case, Parting
    from vebench.equality.side import Subject

_PLACES = {"observations": 0, "rewards": 1, "terminated": 2, "truncated": 3}
_INFO = """
def info(infos, path, index=None):
    for name, value in infos.items():
        if index is not None and f"_{name}" in infos and not infos[f"_{name}"][index]:
            continue
        if path == f"{name}":
            return value if index is None or isinstance(value, (str, bytes)) else value[index]
        if path.startswith(f"{name}/") and isinstance(value, dict):
            return info(value, path[len(name) + 1 :], index)
"""  # and None if an environment has no such value


def place(case: Case, parting: Parting) -> str:
    """Return in words after how many actions the two part, and whether in a reset."""
    after = f"after {counted(made(case, parting), 'action')}"
    return f"in the reset {after}" if parting.needs > parting.step or not parting.step else after


def made(case: Case, parting: Parting) -> int:
    """Return how many actions the environment has taken where the two part."""
    return sum(each.length for each in case[: parting.segment]) + parting.step


def example(sides: Sequence[Subject], case: Case, parting: Parting, calls: Sequence[Sequence[Any]]) -> str:
    """Return the script. It fails where the two part, and prints what each of them has there.

    ``calls`` are those that the case made of each side, up to the one that returned the row and beyond.
    """
    shown = parting.field not in ("raised", "resets")
    codes = []
    names = "ab" if sides[0].python == sides[1].python else ("env", "env")
    for name, side, listed, last in zip(names, sides, calls, parting.calls, strict=True):
        imports, making = _made(side.about, len(case[0].actions), case[0].seed)
        made = _calls(name, side.about, listed if last is None else listed[: last + 1], parting.env)
        codes.append((imports, [f"{name} = {making}", *made], _found(f"{name}_row", side.about, parting)))
    first, second = (one_line(words) for words in parting.found)
    lines = [
        f'"""{sides[0].text} and {sides[1].text} part in {parting.field} {place(case, parting)}.',
        "",
        f"The first has {first}, the second {second}.",
        '"""',
    ]
    if parting.field.startswith("infos/"):
        codes = [([*imports, _INFO], made, found) for imports, made, found in codes]
    if sides[0].python != sides[1].python:
        lines += _in_two_pythons([(side.python, code) for side, code in zip(sides, codes, strict=True)], shown=shown)
        return "\n".join(lines) + "\n"
    lines += [*sorted({*codes[0][0], *codes[1][0]}), "import numpy as np", "", *codes[0][1], *codes[1][1]]
    if shown:
        lines += [
            f"one, other = {codes[0][2]}, {codes[1][2]}",
            "print(one, other, sep='\\n')",
            "assert one.dtype == other.dtype and np.array_equal(one, other), 'they differ'",
        ]
    return "\n".join(lines) + "\n"


def _in_two_pythons(sides: Sequence[tuple[str, tuple[list[str], list[str], str]]], *, shown: bool) -> Iterator[str]:
    """Yield lines that run each side in its Python, and compare what they print."""
    yield "import subprocess"
    yield ""
    codes = []
    for number, (_, (imports, made, found)) in enumerate(sides):
        last = [f"print(({found}).dtype, ({found}).tolist())"] if shown else []
        codes.append([*imports, "import numpy as np", *made, *last])
        if number == 0 or codes[1] != codes[0]:
            yield f'{"ab"[number]} = r"""'
            yield from codes[number]
            yield '"""'
    names = "a", "a" if codes[0] == codes[1] else "b"
    yield "rows = ["
    yield '    subprocess.run([python, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout'
    yield f"    for python, code in [({sides[0][0]!r}, {names[0]}), ({sides[1][0]!r}, {names[1]})]"
    yield "]"
    yield "print(*rows, sep='\\n')"
    yield "assert rows[0] == rows[1], 'they differ'"


def _made(about: dict[str, Any], num_envs: int, seed: int) -> tuple[list[str], str]:
    """Return the lines that import what makes a side, and the expression that makes it."""
    given = {"num_envs": num_envs, "seed": seed}
    values = {**about["values"], **{name: given[name] for name in about["takes"]}}
    if about["called"]:
        module, _, name = about["called"].partition(":")
        words = ", ".join(f"{key}={value!r}" for key, value in values.items())
        return [f"import {module}"], f"{module}.{name}({words})"
    words = ", ".join([repr(values.pop("id")), *(f"{key}={value!r}" for key, value in values.items())])
    plugins = [
        suite.plugin
        for suite in SUITES.values()
        if suite.plugin and suite.namespace and words.startswith(f"'{suite.namespace}")
    ]
    return ["import gymnasium", *(f"import {plugin}  # registers it" for plugin in plugins)], f"gymnasium.make({words})"


def _calls(name: str, about: dict[str, Any], calls: Sequence[Any], env: int) -> list[str]:
    """Return lines that make these calls: a loop over actions where they are several in a row."""
    kept = [call for call in calls if call[0] in (None, env)]
    lines: list[str] = []
    actions: list[str] = []

    def flush() -> None:
        if len(actions) == 1:
            lines.append(f"{name}_row = {name}.step({actions[0]})")
        elif actions:
            same = len(set(actions)) == 1
            listed = f"[{actions[0]}] * {len(actions)}" if same else f"[{', '.join(actions)}]"
            lines.append(f"for action in {listed}:")
            lines.append(f"    {name}_row = {name}.step(action)")
        actions.clear()

    for _, kind, value in kept:
        if kind == "step":
            actions.append(_literal(value, vector=about["vector"]))
            continue
        flush()
        if kind == "mask":
            lines.append(f"{name}_row = {name}.reset(options={{'reset_mask': np.array({value})}})")
        else:
            lines.append(f"{name}_row = {name}.reset({'' if value is None else f'seed={value}'})")
    flush()
    return lines


def _literal(action: Any, *, vector: bool) -> str:  # noqa: ANN401 - as a subject takes it: one tree, or one of each
    """Return an action, or a batch of them, as Python code."""
    actions = action if vector else [action]
    columns = [list(map(array_of, trees.leaves(each))) for each in actions]
    leaves = [np.stack(leaf) if vector else leaf[0] for leaf in zip(*columns, strict=True)]
    texts = iter([_number(leaf) for leaf in leaves])
    return _written(trees.form(actions[0]), texts)


def _number(leaf: np.ndarray[Any, Any]) -> str:
    if not leaf.shape and leaf.dtype.kind in "iu":
        return str(leaf.item())
    kind = "" if leaf.dtype == np.int64 else f", np.{leaf.dtype}"
    return f"np.array({leaf.tolist()}{kind})"


def _written(form: Any, texts: Any) -> str:  # noqa: ANN401 - a form as JSON has it
    if isinstance(form, dict):
        return f"{{{', '.join(f'{key!r}: {_written(part, texts)}' for key, part in form.items())}}}"
    return f"({''.join(f'{_written(part, texts)}, ' for part in form)})" if isinstance(form, list) else next(texts)


def _found(row: str, about: dict[str, Any], parting: Parting) -> str:
    """Return the value of the field in a row, as Python code."""
    field, _, leaf = parting.field.partition("/")
    final = about["mode"] == "same_step" and parting.final
    if field == "infos":
        of_end = f"{row}[-1] | " * leaf.startswith("episode/") + f"{row}[-1]['final_info']"  # a wrapper puts it beside
        index = f", {parting.env}" if about["vector"] else ""
        return f"np.asarray(info({of_end if final else f'{row}[-1]'}, {leaf!r}{index}))"
    if field not in _PLACES:
        return ""
    index = f"[{parting.env}]" if about["vector"] else ""
    inner = "".join(f"[{part}]" if part.isdigit() else f"[{part!r}]" for part in leaf.split("/") if part)
    last = field == "observations" and final
    place = f"[4]['final_obs']{index}{inner}" if last else f"[{_PLACES[field]}]{inner}{index}"
    return f"np.asarray({row}{place})"
