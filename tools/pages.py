"""Writes the pages of docs/reference that are made from tables in the source: ``python tools/pages.py``."""

import ast
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from inspect import cleandoc
from pathlib import Path

import click
import evidence
from evidence import wrapped

from vebench import cli
from vebench.analysis.cell import Code, Gravity
from vebench.backends import interface as written
from vebench.backends.environments.suites import SUITES, short_name
from vebench.backends.interface import Task
from vebench.backends.registry import ENTRIES
from vebench.options import Command
from vebench.plan.grammar import ADVANCED, GROUPS, OUTPUT
from vebench.reports.columns import COLUMNS, RateColumn
from vebench.reports.figures import by_key

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
STEPPERS = {
    "caller": "the caller", "process each": "a process for each environment", "threads": "one thread per CPU",
    "process per worker": "a process for each worker", "processes": "a process for each CPU",
}  # fmt: skip
INTERFACE = (
    "VectorBackend", "Setup", "Task", "BackendInfo", "ActionSpace", "Difference", "Engine", "Batch", "CountsFrames",
)  # fmt: skip
COLUMN_NOTES = """
- CSV has a line for each cell, JSON an object. Missing values are empty in CSV, null in JSON.
- Names never change. New columns come last.
- A column with an interval (±) is an object in JSON: `{"median": 2.31, "low": 2.27, "high": 2.36}`.
  In CSV it has three columns, such as `speedup`, `speedup_low` and `speedup_high`.
- With 95 % confidence, the mean of many runs on this machine is between low and high. Both may be
  missing.
- In CSV, a single quote precedes texts that a spreadsheet could run (first `=`, `+`, `-` or `@`).
- `vebench report --columns efficiency,peak_rss` shows columns as tables. Names may be shortened.

| column | unit | meaning |
| --- | --- | --- |
| `file` | | the run file, as it was named |
| `env` | | the task's full name |
| `backend` | | the backend as a user writes it, options included; in JSON without them |
| `options` | | the backend's options, in JSON only |
| `workers` | workers | how many workers were requested |
| `envs_per_worker` | environments | how many environments of each worker were requested |
"""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown of cells that may have bars."""
    return evidence.table(heads, ([cell.replace("|", r"\|") for cell in row] for row in rows))


def command_parts(name: str, command: Command) -> Iterator[str]:
    """Yield the parts of a command's section."""
    context = click.Context(command, info_name=f"vebench {name}")
    summary, *details = cleandoc(command.help or "").split("\n\n")
    yield f"## vebench {name}\n\n{wrapped(f'{summary} See also [{command.page}](../{command.page}.md).')}"
    yield f"```text\n{command.get_usage(context).removeprefix('Usage: ')}\n```"
    for part in details:
        if part.startswith("\b"):
            yield f"Examples:\n\n<!-- cannot run: files of yours -->\n```bash\n{part.strip(chr(8)).strip()}\n```"
        else:
            yield wrapped(part)
    groups: dict[str, list[str]] = {group: [] for group in GROUPS}
    for one in command.params:
        flags, text = (isinstance(one, click.Option) and one.get_help_record(context)) or ("", "")
        if flags and "--help" not in flags:
            text = re.sub(r"  \[default: (.*)\]$", r" Default: `\1`.", text)
            groups[getattr(one, "group", OUTPUT)].append(wrapped(f"`{flags}`: {text}", "- "))
    for group, items in groups.items():
        if items:
            yield f"{group}{' (`--help-all`)' if group == ADVANCED else ''}:\n\n" + "\n".join(items)


def commands() -> Iterator[str]:
    """Yield the parts of the page on the command line."""
    yield "# Command line\n\nAll commands with their options, defaults, examples and exit statuses."
    yield "[Values](values.md) explains how to write numbers, times, shares, and names with brackets."
    found = {}
    for name, command in cli.app.commands.items():
        inner = getattr(command, "commands", {})
        found.update({f"{name} {each}": one for each, one in inner.items()} or {name: command})
    rows = [(f"[{name}](#vebench-{name.replace(' ', '-')})", one.get_short_help_str(99)) for name, one in found.items()]
    yield table(("command", "what it is for"), rows)
    for name, command in found.items():
        yield from command_parts(name, command)


def findings() -> Iterator[str]:
    """Yield the parts of the page on findings."""
    yield "# Findings\n\nWhat a finding in a report means, and what to do. JSON and CSV have the codes."
    yield "After a fault, do not use the rate. After a warning, it is uncertain. After a note, it is valid."
    for gravity in Gravity:
        rows = [(f"`{one}`", one.meaning, one.remedy) for one in Code if one.gravity is gravity]
        yield f"## {gravity.capitalize()}s\n\n{table(('code', 'what was found', 'what to do'), rows)}"


def backends() -> Iterator[str]:
    """Yield the parts of the page on backends."""
    yield "# Backends\n\nAll backends and their options. `vebench list` shows which can be measured on your machine."
    groups = []
    common = {suite.title for suite in SUITES.values() if not suite.installation}
    for entry in ENTRIES:
        able = []
        for suite in SUITES.values():
            tasks = [Task(name, suite.name, skip) for name, skip in suite.tasks.items()] or [Task("any", suite.name, 1)]
            if count := sum(map(entry.has, tasks)):
                able.append(suite.title if count == len(tasks) else f"{count} of {len(tasks)} {suite.title} tasks")
        needs = ", ".join(package.name for package in entry.library.packages)
        title = "Measured by default" if entry.by_default else "Measured if named with -b"
        if entry.library.installation:
            title, needs = "Backends of other projects", f"`vebench install {entry.library.installation.name}`"
        names = "any" if common.issubset(able) else ", ".join(able)
        row = f"`{entry.name}`", entry.summary, "" if entry.reference_row else STEPPERS[entry.steppers], names, needs
        groups.append(("Reference rows" if entry.reference_row else title, row))
    for title, rows in by_key(groups).items():
        yield f"## {title}\n\n{table(('name', 'what it is', 'what steps', 'tasks', 'needs'), rows)}"
    every = [(entry.name, key, one) for entry in ENTRIES for key, one in entry.options.items()]
    known = by_key(((f"`{key}`", one.meaning, str(one.default or "").lower()), name) for name, key, one in every)
    rows = [(*facts, ", ".join(names)) for facts, names in known.items()]
    yield f"## Options\n\n`-b 'NAME[KEY=VALUE]'`.\n\n{table(('key', 'meaning', 'default', 'backends'), rows)}"
    yield "## Tasks\n\nFull ids such as `ALE/Pong-v5` work, too."
    for suite in SUITES.values():
        names = ", ".join([*map(short_name, suite.tasks), *([suite.otherwise] if suite.otherwise else [])])
        yield wrapped(f"**{suite.title}**: {names}.")


def columns() -> Iterator[str]:
    """Yield the parts of the page on columns."""
    yield "# Columns of CSV and JSON\n\nNames, units and meanings of the data of `vebench report -f csv` and `-f json`."
    lines = [COLUMN_NOTES.strip()]
    for one in COLUMNS:
        interval = " ±" if isinstance(one, RateColumn) else ""
        lines.append(f"| `{one.name}`{interval} | {one.unit} | {one.meaning} |")
    yield "\n".join(lines)


def interface() -> Iterator[str]:
    """Yield the parts of the page on the interface of backends: its docstrings, fields and comments."""
    source = inspect.getsource(written)
    tree, lines = ast.parse(source), source.splitlines()
    _, call_order, *_ = str(ast.get_docstring(tree)).split("\n\n")
    yield "# Interface of a backend\n\nAll members that an adapter defines, and all fields that it reads or fills."
    yield wrapped(f"{call_order} See also [Write a backend](../guides/write-a-backend.md).".replace("``", "`"))
    for each in (each for name in INTERFACE for each in tree.body if getattr(each, "name", "") == name):
        rows = []
        for member in each.body:
            if isinstance(member, ast.FunctionDef):
                call = "" if "property" in map(ast.unparse, member.decorator_list) else f"({ast.unparse(member.args)})"
                facts = f"{member.name}{re.sub('(self|cls)(, )?', '', call)}", ast.unparse(member.returns), ""
                rows.append((facts, ast.get_docstring(member)))
            elif isinstance(member, ast.AnnAssign):  # a field; its comment follows, or stands above
                facts = (ast.unparse(part) if part else "" for part in (member.target, member.annotation, member.value))
                above = re.search(r"(\n +# .*)*\Z", "\n" + "\n".join(lines[: member.lineno - 1]))[0]
                rows.append((facts, " ".join(re.findall("# (.*)", f"{above}\n{lines[member.lineno - 1]}"))))
        cells = [(*(f"`{fact}`" if fact else "" for fact in facts), " ".join(note.split())) for facts, note in rows]
        text = table(("name", "type", "default", "meaning"), cells)
        yield f"## {each.name}\n\n{wrapped(ast.get_docstring(each))}\n\n{text}".replace("``", "`")


PAGES = {
    "commands": commands, "findings": findings, "backends": backends, "columns": columns, "interface": interface,
}  # fmt: skip


def page(name: str) -> str:
    """Return a page. A line after the first paragraph says where it comes from."""
    first, *rest = PAGES[name]()
    return "\n\n".join((first, "Generated by `python tools/pages.py`.", *rest)) + "\n"


if __name__ == "__main__":
    for each in PAGES:
        FOLDER.joinpath(f"{each}.md").write_text(page(each), encoding="utf-8")
