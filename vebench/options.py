"""The options of a plan, as ``plan.spec.OPTIONS`` declares them, and those that several commands share.

``--set`` is for fields of the spec that a command has no option for. Importing this costs little more than typer.
"""

from __future__ import annotations

from dataclasses import field, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from vebench.errors import UsageError, did_you_mean, shown
from vebench.plan import spec
from vebench.plan.spec import ADVANCED, EFFORTS, GROUPS, HOW_LONG, OPTIONS, OUTPUT, VERDICT, WHAT, RunSpec, effort
from vebench.reports.formats import registry

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from typer.models import OptionInfo

    from vebench.reports.console import Outlet
    from vebench.reports.document import PageKind

Name = TypeVar("Name", bound=str)

_FIELDS = RunSpec.__dataclass_fields__
# What other libraries call these.
_ENVS = "a backend steps --workers times --envs-per-worker environments"
_OTHERS_WORDS = {"num_envs": _ENVS, "n_envs": _ENVS, "num_workers": "write --workers"}


class Grouped(TyperCommand):
    """A command whose help shows its options in groups, and defaults that are times with their units."""

    def __init__(self, *args: Any, params: Sequence[Any], **how: Any) -> None:  # noqa: ANN401 - as typer has it
        for one in params:
            if one.metavar == "TIME" and one.default is not None:
                one.default = time_of(one.default)
        super().__init__(*args, params=[*params], **how)

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's own copies of click's types
        """Write the options of each group."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in GROUPS}
        for one in self.get_params(ctx):
            if (line := one.get_help_record(ctx)) is not None:
                groups[getattr(one, "rich_help_panel", None) or OUTPUT].append(line)
        for name, lines in groups.items():
            if lines:
                with formatter.section(name):
                    formatter.write_dl(lines)


def time_of(seconds: float) -> str:
    """Return a time as a user writes it: ``500ms``, ``90s``, ``5m``."""
    minutes, rest = divmod(seconds, 60)
    if minutes and not rest:
        return f"{minutes:g}m"
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"


def with_plan(
    *fields: str,
    settings: Collection[str],
    efforts: str = "",
    **defaults: Any,  # noqa: ANN401 - values of fields
) -> type[Grouped]:
    """Return the class of a command that also has the options of these fields, and ``--set`` for the ``settings``.

    They are no parameters of its function, which gets the spec by ``spec_from``. ``efforts`` is the command in the
    table of ``--effort``, empty for one without.
    """

    class Planned(Grouped):
        def __init__(self, *args: Any, params: Sequence[Any], **how: Any) -> None:  # noqa: ANN401 - as typer has it
            made: list[Any] = []
            if efforts:
                levels = ", ".join(
                    f"{level} = {passes} x {windows} of {time_of(seconds)}{' (race)' if race else ''}"
                    for level, (passes, windows, seconds, _, race) in EFFORTS[efforts].items()
                )
                meaning = f"Passes x windows: {levels}. Explicit numbers win."
                level = option(HOW_LONG, "LEVEL", meaning, "--effort")
                made.append(("effort", Annotated[str, level], field(default="normal")))
            if efforts == "run":
                quick = option(HOW_LONG, "", "The same as --effort low.", "--quick")
                made.append(("quick", Annotated[bool, quick], field(default=False)))
            made += [(one, Annotated[_kind(one), of_plan(one)], field(default=defaults.get(one))) for one in fields]
            if settings:
                made.append(("settings", Annotated[list[str] | None, _settings(settings)], field(default=None)))
            app = typer.Typer(add_completion=False)
            app.command()(make_dataclass("Plan", made))
            self.of_plan = typer.main.get_command(app).params
            super().__init__(*args, params=[*self.of_plan, *params], **how)

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - as typer has it
            try:
                return super().parse_args(ctx, args)
            except typer.TyperException as error:
                option: str = getattr(error, "option_name", "")
                key = option.removeprefix("--").replace("-", "_")
                if instead := {**_OTHERS_WORDS, **{name: f"write --set {name}=VALUE" for name in settings}}.get(key):
                    raise UsageError(f"No such option: {option}; {instead}") from None
                raise

        def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - as typer has it
            names = {one.name for one in self.of_plan}
            try:
                return ctx.invoke(self.callback, **{name: one for name, one in ctx.params.items() if name not in names})
            except UsageError as error:
                raise UsageError(spec.as_settings(str(error), settings)) from None

    return Planned


def of_plan(name: str) -> OptionInfo:
    """Return the option of a field of ``RunSpec``."""
    group, metavar, meaning, *flags = OPTIONS[name]
    how = {"parser": _parsed("parse_duration", flags[0])} if metavar == "TIME" else {}
    return option(group, metavar, meaning, *flags, **how)


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
    return option(ADVANCED, "KEY=VALUE", meaning, "--set", callback=checked)


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
    if "effort" in context.params:
        given, level = _given(context), context.params["effort"]
        if given >= {"effort", "quick"}:
            raise UsageError("--quick is --effort low: leave out one of them")
        values |= effort(str(context.info_name), "low" if "quick" in given else level, given)
    for text in context.params.get("settings") or ():
        key, _, value = text.partition("=")
        values[key] = PARSERS[key]([value] if _kind(key) == list[str] else value)
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


def budget(meaning: str) -> OptionInfo:
    """Return the option for the longest time that a command may take, or add."""
    return option(HOW_LONG, "TIME", meaning, "--budget", parser=_parsed("parse_budget", "--budget"))


def _file(text: str) -> Path:
    """Return the file that ``-o`` names. Raises UsageError for a name of no file."""
    from vebench.results.paths import output  # noqa: PLC0415 - imported on use

    return output(text)


def output_option(kind: PageKind, run_file: str = "") -> OptionInfo:
    """Return ``-o`` of a command with pages of this kind. ``run_file``: what it is for a command that measures."""
    *first, last = (known.suffixes[0] for known in registry.of(kind) if known.suffixes)
    suffixes = f"{', '.join(first)} or {last}"
    meaning = f"Write to this file, in the format of its suffix: {suffixes}."
    if run_file:
        meaning = f"{run_file}. With the suffix {suffixes}, a report; run files go to .vebench/, as by default."
    return option(OUTPUT, "FILE", meaning, "--output", "-o", parser=_file)


def outlet(
    kind: PageKind, output: Path | None, form: str | None = None, *, measures: bool = True
) -> tuple[Path | None, Outlet]:
    """Return the run file that ``-o`` names, None if it names none, and where the page of a command goes.

    A command that measures prints the page, and writes it where ``-o`` has the suffix of a report; other commands do
    either. Raises UsageError for a file that cannot be written.
    """
    from vebench.reports.console import Outlet  # noqa: PLC0415 - imported on use
    from vebench.results.paths import DEFAULT_FOLDER  # noqa: PLC0415 - imported on use
    from vebench.results.store import refuse_to_overwrite  # noqa: PLC0415 - imported on use

    if output is not None and output.parent != DEFAULT_FOLDER and not output.parent.is_dir():
        raise UsageError(f"-o {output}: name a file in a folder that exists")
    if output is None or (measures and output.suffix.lower() not in registry.suffixes()):
        return output, Outlet(registry.format_for(form, None, kind))
    if measures and output.suffix.lower() not in registry.suffixes(kind):
        fitting = ", ".join(registry.suffixes(kind))
        raise UsageError(f"-o {output}: the suffix is none of {fitting}, for a report, nor .jsonl, for a run file")
    refuse_to_overwrite(output)
    printed = registry.format_for(form, None, kind) if measures else None
    return None, Outlet(printed, (output, registry.format_for(None if measures else form, output, kind)))


def format_option(kind: PageKind) -> OptionInfo:
    """Return the option that names a format for pages of this kind."""
    default = "  [default: by the suffix of -o, or terminal]" if kind in ("run", "history", "verify") else ""
    return option(OUTPUT, "FORMAT", f"{registry.choices(kind)}.{default}", "--format", "-f")


def one_of(option: str, text: str, names: tuple[Name, ...]) -> Name:
    """Return the one of ``names`` that equals ``text``. Raises UsageError if there is none."""
    for name in names:
        if name == text:
            return name
    raise UsageError(f"{option} {text}: must be one of {', '.join(names)}")


def refuse_plan(context: typer.Context, why: str, besides: Collection[str]) -> None:
    """Raise UsageError, which names what to leave out, if any parameter was given but those ``besides``."""
    if excess := _given(context).difference(besides):
        names = {one.name: one.opts[0] for one in context.command.params}
        raise UsageError(f"{why}: leave out {', '.join(names[name] for name in sorted(excess))}")


def _given(context: typer.Context) -> set[str]:
    """Return the names of the parameters that the command line has."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


# Options of several commands that are no part of a plan.
_Texts = list[str] | None
OnlyEnvs = Annotated[_Texts, option(WHAT, "ENV", "These only. Comma or repeat.", "--env", "-e")]
OnlyBackends = Annotated[_Texts, option(WHAT, "NAME", "These only. Comma or repeat.", "--backend", "-b")]
Tolerance = Annotated[str, option(VERDICT, "SHARE", "How much slower a backend may be: 5% or 0.05.")]
ALLOWED = "Trust the file: use its code, Pythons"
AllowCode = Annotated[bool, option(ADVANCED, "", "Trust the file: use its code and Pythons.", "--allow-code")]
