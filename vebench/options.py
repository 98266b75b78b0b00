"""Command-line options: those made from the fields of a run's spec, and others that several commands share.

Importing this costs little more than typer.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_type_hints

import typer

from vebench.errors import UsageError
from vebench.plan.spec import RunSpec
from vebench.reports.formats import registry

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from dataclasses import Field

    from typer.models import OptionInfo

    from vebench.plan.spec import Option
    from vebench.reports.page import Kind

Name = TypeVar("Name", bound=str)


def _format(kind: Kind, default: str = "") -> OptionInfo:
    """Return the option that names a format for pages of this kind."""
    option: OptionInfo = typer.Option("--format", "-f", metavar="FORMAT", help=f"{registry.choices(kind)}.{default}")
    return option


OnlyEnvs = Annotated[
    list[str] | None,
    typer.Option("--env", "-e", metavar="ENV", help="These only. Comma or repeat. Default: all."),
]
OnlyBackends = Annotated[
    list[str] | None,
    typer.Option("--backend", "-b", metavar="NAME", help="These only. Comma or repeat. Default: all."),
]
Tolerance = Annotated[str, typer.Option(metavar="SHARE", help="How much slower a backend may be, such as 5% or 0.05.")]
IfInconclusive = Annotated[
    str | None,
    typer.Option(metavar="WHAT", help="pass or fail if the data cannot decide. Default: exit status 3."),
]
Junit = Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the verdicts as JUnit XML.")]

_BY_SUFFIX = " Default: from the suffix of -o, or terminal."
CheckFormat = Annotated[str, _format("check")]
TuneFormat = Annotated[str | None, _format("tune", _BY_SUFFIX)]
VerifyFormat = Annotated[str, _format("verify")]
ReportFormat = Annotated[str | None, _format("run", _BY_SUFFIX)]
HistoryFormat = Annotated[str | None, _format("history", _BY_SUFFIX)]
OutputFile = Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file.")]
UntilDecided = Annotated[
    bool, typer.Option("--until-decided", help="Add passes until every backend has its verdict, or --budget is spent.")
]


def duration(option: str) -> Callable[[str | float], float]:
    """Return what parses the value of an option that is a time: the seconds. A default is in seconds already."""

    def parse(text: str | float) -> float:
        from vebench.plan.grammar import parse_duration  # noqa: PLC0415 - imported on use

        return parse_duration(option, str(text))

    return parse


DecisionBudget = Annotated[
    float,
    typer.Option(
        "--budget",
        metavar="TIME",
        help="Longest time with --until-decided, first passes included.",
        parser=duration("--budget"),
    ),
]
AllowCode = Annotated[
    bool,
    typer.Option("--allow-code", help="Trust the file: use all code, Pythons and hosts that it names."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]

ASKED = f"{__name__}.asked"  # where a command's context has the names of the fields for which it has options


def asks_for_spec(
    *,
    only: Collection[str] = (),
    without: Collection[str] = (),
    instead: str = "",
    first: Collection[str] = (),
    **defaults: object,
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return a decorator that gives a command the options of a ``RunSpec``. The command reads them with ``spec_from``.

    ``only`` names the fields for which the command has options; by default it has all but ``without``. ``instead`` is
    the option that makes required ones superfluous. ``first`` names parameters of the command's own that its help shows
    before the spec's, as it does with those that are required. ``defaults`` replace defaults of the spec.
    """

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        signature, hints = inspect.signature(command), get_type_hints(command, include_extras=True)
        kinds = get_type_hints(RunSpec)
        asked = [item for item in fields(RunSpec) if item.name in (only or kinds) and item.name not in without]
        added = [_parameter(item, kinds[item.name], defaults.get(item.name, item.default), instead) for item in asked]

        @functools.wraps(command)
        def with_spec(**given: Any) -> int:  # noqa: ANN401 - the values of all parameters
            given[context.name].meta[ASKED] = {item.name for item in asked}
            return command(**{name: value for name, value in given.items() if name in signature.parameters})

        context, *own = (one.replace(annotation=hints[one.name]) for one in signature.parameters.values())
        leading = [one for one in own if one.default is one.empty or one.name in first]
        parameters = [context, *leading, *added, *(one for one in own if one not in leading)]
        # What typer reads.
        with_spec.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        with_spec.__annotations__ = {one.name: one.annotation for one in parameters}
        return with_spec

    return decorate


def _parameter(item: Field[Any], kind: Any, default: object, instead: str) -> inspect.Parameter:  # noqa: ANN401 - any type
    option: Option = item.metadata["option"]
    names = option.names or (f"--{item.name.replace('_', '-')}",)
    if option.parse:
        kind, default = (list[str] | None if option.repeated else str | None), None
    meaning = option.meaning
    parser = duration(names[0]) if option.metavar == "TIME" else None
    if item.default is MISSING and not option.otherwise:
        meaning += f" Required without {instead}." if instead else " Required."
    declared = Annotated[kind, typer.Option(*names, metavar=option.metavar or None, help=meaning, parser=parser)]
    return inspect.Parameter(item.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=declared)


def spec_from(context: typer.Context) -> RunSpec:
    """Return the spec that a command's options ask for. Raises UsageError for a value that cannot be parsed."""
    values: dict[str, Any] = {}
    for item in fields(RunSpec):
        # A parameter of the command's own may have the name of a field, and mean something else.
        texts_or_value = context.params[item.name] if item.name in context.meta[ASKED] else None
        if texts_or_value in (None, [], ()):  # not given
            if item.default is not MISSING:
                continue
            texts_or_value = item.metadata["option"].otherwise
        values[item.name] = _parsed(item, texts_or_value)
    return RunSpec(**values)


def _parsed(item: Field[Any], given: Any) -> object:  # noqa: ANN401 - of the option's type
    from vebench.plan import grammar  # noqa: PLC0415 - imported on use

    option: Option = item.metadata["option"]
    if not option.parse:
        return given
    parse = getattr(grammar, option.parse)
    return parse(given) if option.repeated else parse(f"--{item.name}", given)


def given(context: typer.Context) -> set[str]:
    """Return the names of the parameters that were given on the command line."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def names_of(context: typer.Context, parameters: Sequence[str]) -> list[str]:
    """Return the options of these parameters as a user writes them, such as ``--env`` for ``envs``."""
    names = {
        one.name: one.secondary_opts[0] if one.secondary_opts and not context.params[str(one.name)] else one.opts[0]
        for one in context.command.params
    }
    return [names[parameter] for parameter in parameters]


def refuse_plan(context: typer.Context, why: str, besides: Collection[str]) -> None:
    """Raise UsageError, which names what to leave out, if any parameter was given but those ``besides``."""
    excess = given(context).difference(besides)
    if excess:
        raise UsageError(f"{why}: leave out {', '.join(names_of(context, sorted(excess)))}")


def check_budget(context: typer.Context, *, needs: str, wanted: bool) -> None:
    """Raise UsageError if ``--budget`` was given without the option that it ``needs``, or is no time."""
    from vebench.plan.spec import check_seconds  # noqa: PLC0415 - imported on use

    if "budget" in given(context) and not wanted:
        raise UsageError(f"--budget {context.params['budget']:g} needs {needs}: it limits what that adds")
    check_seconds("--budget", context.params["budget"])


def inconclusive_from(text: str | None) -> Literal["default", "pass", "fail"]:
    """Return what ``--inconclusive`` asks for. Raises UsageError for an unknown word."""
    return "default" if text is None else one_of("--inconclusive", text, ("pass", "fail"))


def one_of(option: str, text: str, names: tuple[Name, ...]) -> Name:
    """Return the one of ``names`` that equals ``text``. Raises UsageError if there is none."""
    for name in names:
        if name == text:
            return name
    raise UsageError(f"{option} {text}: must be one of {', '.join(names)}")
