"""The options of a plan, as ``plan.spec.OPTIONS`` declares them, and those that several commands share.

``--set`` is for fields of the spec that a command has no option for. Importing this costs little more than typer.
"""

from __future__ import annotations

from dataclasses import field, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from vebench.errors import UsageError, did_you_mean, shown
from vebench.plan.spec import HOW_LONG, OPTIONS, VERDICT, WHAT, WHERE, RunSpec
from vebench.reports.formats import registry

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from typer.models import OptionInfo

    from vebench.reports.document import PageKind

Name = TypeVar("Name", bound=str)

OUTPUT = "Output and files"  # a group of the help, after those of a plan
_FIELDS = RunSpec.__dataclass_fields__


class Grouped(TyperCommand):
    """A command whose help shows its options in groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's own copies of click's types
        """Write the options of each group."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in (WHAT, HOW_LONG, WHERE, VERDICT, OUTPUT)}
        for one in self.get_params(ctx):
            if (line := one.get_help_record(ctx)) is not None:
                groups.setdefault(getattr(one, "rich_help_panel", None) or "Help", []).append(line)
        for name, lines in groups.items():
            if lines:
                with formatter.section(name):
                    formatter.write_dl(lines)


def with_plan(*fields: str, settings: Collection[str], **defaults: Any) -> type[Grouped]:  # noqa: ANN401 - values of fields
    """Return the class of a command that also has the options of these fields, and ``--set`` for the ``settings``.

    They are no parameters of its function, which gets the spec by ``spec_from``.
    """

    class Planned(Grouped):
        def __init__(self, *args: Any, params: Sequence[Any], **how: Any) -> None:  # noqa: ANN401 - as typer has it
            made = [(name, Annotated[_kind(name), of_plan(name)], field(default=defaults.get(name))) for name in fields]
            others = ("settings", Annotated[list[str] | None, _settings(settings)], field(default=None))
            app = typer.Typer(add_completion=False)
            app.command()(make_dataclass("Plan", [*made, others] if settings else made))
            self.of_plan = typer.main.get_command(app).params
            super().__init__(*args, params=[*self.of_plan, *params], **how)

        def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - as typer has it
            names = {one.name for one in self.of_plan}
            return ctx.invoke(self.callback, **{name: one for name, one in ctx.params.items() if name not in names})

    return Planned


def of_plan(name: str) -> OptionInfo:
    """Return the option of a field of ``RunSpec``."""
    group, metavar, meaning, *flags = OPTIONS[name]
    return time_option(flags[0], meaning) if _kind(name) is float else option(group, metavar, meaning, *flags)


def _kind(name: str) -> Any:  # noqa: ANN401 - a type
    """Return what typer makes of an option's text: a number, a time in seconds, or what ``spec_from`` parses."""
    kind = str(_FIELDS[name].type)
    return list[str] if kind.startswith("tuple") else {"int": int, "float": float}.get(kind, str)


def _settings(names: Collection[str]) -> OptionInfo:
    def checked(given: list[str] | None) -> list[str]:
        for text in given or []:
            key, equals, _ = text.partition("=")
            if key not in names or not equals:
                near = did_you_mean(key, names)
                raise UsageError(f"--set {shown(text)}: write KEY=VALUE{near}; keys are {', '.join(names)}")
        return given or []

    meaning = f"Another setting: {', '.join(names)}. Repeat."
    return option(WHAT, "KEY=VALUE", meaning, "--set", callback=checked)


def spec_from(context: typer.Context, **defaults: Any) -> RunSpec:  # noqa: ANN401 - values of fields
    """Return the spec that a command's options ask for. Raises UsageError for a value that cannot be parsed.

    ``defaults`` are those of fields that the command has no option for, or none with a default.
    """
    from vebench.plan.grammar import PARSERS  # noqa: PLC0415 - imported on use

    values: dict[str, Any] = defaults | {
        # Numbers and times are parsed by typer.
        name: PARSERS[name](value) if isinstance(value, str | list) and name in PARSERS else value
        for name, value in context.params.items()
        if name in _FIELDS and value not in (None, [], ())
    }
    for text in context.params.get("settings") or ():
        key, _, value = text.partition("=")
        values[key] = PARSERS[key](value)
    return RunSpec(**{"envs": (), **values})


def option(group: str, metavar: str, meaning: str, *names: str, **how: Any) -> OptionInfo:  # noqa: ANN401 - as typer has it
    """Return an option of this group of the help. A flag has no metavar."""
    made: OptionInfo = typer.Option(*names, metavar=metavar or None, help=meaning, rich_help_panel=group, **how)
    return made


def _parsed(parse: str, *before: str) -> Callable[[str | float], Any]:
    """Return what a function of ``plan.grammar``, with these arguments first, makes of an option's text.

    Typer also hands it the default, which may be the value already.
    """

    def value(text: str | float) -> Any:  # noqa: ANN401 - what that function returns
        from vebench.plan import grammar  # noqa: PLC0415 - imported on use

        return getattr(grammar, parse)(*before, str(text))

    return value


def time_option(name: str, meaning: str, parse: str = "parse_duration") -> OptionInfo:
    """Return an option that is a time, in seconds once it is parsed. A default is in seconds already."""
    return option(HOW_LONG, "TIME", meaning, name, parser=_parsed(parse, name))


def budget(meaning: str) -> OptionInfo:
    """Return the option for the longest time that a command may take, or add."""
    return time_option("--budget", meaning, "parse_budget")


def _file(text: str) -> Path:
    """Return the file that ``-o`` names. Raises UsageError for a name of no file."""
    from vebench.results.paths import output  # noqa: PLC0415 - imported on use

    return output(text)


def _run_file(text: str) -> Path:
    """Return the run file that ``-o`` names. Raises UsageError for the name of a report, or a name of no file."""
    suffix = Path(text).suffix.lower()
    if text == "-" or suffix in registry.suffixes("run"):
        raise UsageError(
            f"-o {text}: -o is the run file (JSON Lines), such as run.jsonl; "
            f"a table comes from vebench report -o report{suffix or '.md'}"
        )
    return _file(text)


def run_file(meaning: str) -> OptionInfo:
    """Return the option that names a file to measure into."""
    return option(OUTPUT, "FILE", meaning, "--output", "-o", parser=_run_file)


def format_option(kind: PageKind) -> OptionInfo:
    """Return the option that names a format for pages of this kind."""
    default = " Default: from the suffix of -o, or terminal." if kind in ("run", "history") else ""
    return option(OUTPUT, "FORMAT", f"{registry.choices(kind)}.{default}", "--format", "-f")


def one_of(option: str, text: str, names: tuple[Name, ...]) -> Name:
    """Return the one of ``names`` that equals ``text``. Raises UsageError if there is none."""
    for name in names:
        if name == text:
            return name
    raise UsageError(f"{option} {text}: must be one of {', '.join(names)}")


def refuse_plan(context: typer.Context, why: str, besides: Collection[str]) -> None:
    """Raise UsageError, which names what to leave out, if any parameter was given but those ``besides``."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}
    if excess := given.difference(besides):
        names = {one.name: one.opts[0] for one in context.command.params}
        raise UsageError(f"{why}: leave out {', '.join(names[name] for name in sorted(excess))}")


# Options of several commands that are no part of a plan.
_Texts = list[str] | None
OnlyEnvs = Annotated[_Texts, option(WHAT, "ENV", "These only. Comma or repeat.", "--env", "-e")]
OnlyBackends = Annotated[_Texts, option(WHAT, "NAME", "These only. Comma or repeat.", "--backend", "-b")]
Tolerance = Annotated[str, option(VERDICT, "SHARE", "How much slower a backend may be: 5% or 0.05.")]
Junit = Annotated[Path | None, option(OUTPUT, "FILE", "Also write the verdicts as JUnit XML.")]
RunFile = Annotated[Path | None, run_file("Run file. Default: a new one in .vebench/.")]
ReportFile = Annotated[
    Path | None, option(OUTPUT, "FILE", "Write the report to this file.", "--output", "-o", parser=_file)
]
AllowCode = Annotated[bool, option(OUTPUT, "", "Use the code, Pythons and hosts that the file names.", "--allow-code")]
