"""Options that commands share, each written once, and the ``RunSpec`` that those of a plan ask for.

Options of a plan have the names of the spec's fields: a command lists those that it has, with its own defaults, and
``spec_from`` reads them. ``--set`` is for the fields that a command has no option for. Importing this costs little more
than typer.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from vebench.errors import UsageError, did_you_mean, shown
from vebench.plan.spec import MAX_SEED, RunSpec, check_seconds
from vebench.reports.formats import registry

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from typer.models import OptionInfo

    from vebench.reports.page import Kind

Name = TypeVar("Name", bound=str)

# Groups of options in the help, in this order.
WHAT, HOW_LONG, WHERE, VERDICT, OUTPUT = "What to measure", "How long", "Where", "Verdict", "Output and files"


class Grouped(TyperCommand):
    """A command whose help shows its options in groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's own copies of click's types
        """Write the options of each group."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in (WHAT, HOW_LONG, WHERE, VERDICT, OUTPUT)}
        for one in self.get_params(ctx):
            if (line := one.get_help_record(ctx)) is not None:
                groups.setdefault(getattr(one, "rich_help_panel", None) or "Options", []).append(line)
        for name, lines in groups.items():
            if lines:
                with formatter.section(name):
                    formatter.write_dl(lines)


def _duration(name: str, meaning: str, group: str = HOW_LONG) -> OptionInfo:
    """Return an option that is a time, in seconds once it is parsed. A default is in seconds already."""

    def parse(text: str | float) -> float:
        from vebench.plan.grammar import parse_duration  # noqa: PLC0415 - imported on use

        return parse_duration(name, str(text))

    return _option(name, metavar="TIME", help=meaning, parser=parse, rich_help_panel=group)


def _option(*names: str, **how: Any) -> OptionInfo:  # noqa: ANN401 - as typer has it
    option: OptionInfo = typer.Option(*names, **how)
    return option


def _format(kind: Kind, default: str = "") -> OptionInfo:
    """Return the option that names a format for pages of this kind."""
    meaning = f"{registry.choices(kind)}.{default}"
    return _option("--format", "-f", metavar="FORMAT", help=meaning, rich_help_panel=OUTPUT)


# The plan of a run: fields of RunSpec.
Envs = Annotated[
    list[str] | None,
    _option(
        *("--env", "-e"),
        metavar="ENV",
        help="Pong, 'CartPole[max_episode_steps=50]', MODULE:ID, MODULE:CALLABLE ...",
        rich_help_panel=WHAT,
    ),
]
Backends = Annotated[
    list[str] | None,
    _option(
        *("--backend", "-b"),
        metavar="NAME",
        help="NAME[KEY=VALUE,...], NAME@PYTHON, MODULE:CLASS, all-peers. Default: the usual ones.",
        rich_help_panel=WHAT,
    ),
]
Workers = Annotated[
    list[str] | None,
    _option(
        *("--workers", "-w"),
        metavar="COUNTS",
        help="8 or 1..256 (doubles), 1..16:+5 (adds), 1..81:*3 (multiplies). Default: 1..4.",
        rich_help_panel=WHAT,
    ),
]
EnvsPerWorker = Annotated[
    list[str] | None,
    _option(metavar="COUNTS", help="Environments of each worker. Default: 1.", rich_help_panel=WHAT),
]
Policy = Annotated[
    str | None,
    _option(
        metavar="POLICY",
        help="mlp:64x64, nature-cnn[device=cuda], sleep:1ms, MODULE:FUNCTION. Default: tape (drawn beforehand).",
        rich_help_panel=WHAT,
    ),
]
Learner = Annotated[
    str | None,
    _option(
        metavar="TIME[/STEPS]",
        help="Assumed time of learning for each batch (4ms), or for each STEPS steps (300ms/2048).",
        rich_help_panel=WHAT,
    ),
]
Seed = Annotated[int | None, _option(metavar="N", help="Seed of all that is drawn at random.", rich_help_panel=WHAT)]
Duration = Annotated[float, _duration("--duration", "Length of one window.")]
Rounds = Annotated[int, _option(metavar="N", help="Windows of a cell in each pass.", rich_help_panel=HOW_LONG)]
Warmup = Annotated[float, _duration("--warmup", "Least time before the first window.")]
Repeats = Annotated[int, _option(metavar="N", help="Passes, each in fresh processes.", rich_help_panel=HOW_LONG)]
Until = Annotated[
    str | None,
    _option(metavar="SHARE", help="Add passes until intervals are this narrow, such as 2%.", rich_help_panel=HOW_LONG),
]
Timeout = Annotated[float, _duration("--timeout", "Longest time for one cell.")]
Pin = Annotated[
    str | None,
    _option(
        metavar="CPUS",
        help="compact, scatter, none or 0-3,8, also compact[smt=off,reserve=2,mem=bind].",
        rich_help_panel=WHERE,
    ),
]
Replicas = Annotated[
    str | None,
    _option(
        metavar="N",
        help="Copies of the backend in each cell: a number, or node for one on each memory node.",
        rich_help_panel=WHERE,
    ),
]
OnHosts = Annotated[
    str | None,
    _option(
        "--hosts",
        metavar="HOSTS",
        help="A replica on each of a,b or of @FILE or ray, also a,b[via=srun,count=1..8].",
        rich_help_panel=WHERE,
    ),
]
Proof = Annotated[
    str,
    _option(
        metavar="HOW",
        help="Compare what cells returned with a plain loop: auto, full or off.",
        rich_help_panel=VERDICT,
    ),
]

# Options of several commands that are no part of a plan.
OnlyEnvs = Annotated[
    list[str] | None, _option("--env", "-e", metavar="ENV", help="These only. Comma or repeat.", rich_help_panel=WHAT)
]
OnlyBackends = Annotated[
    list[str] | None,
    _option("--backend", "-b", metavar="NAME", help="These only. Comma or repeat.", rich_help_panel=WHAT),
]
Tolerance = Annotated[
    str, _option(metavar="SHARE", help="How much slower a backend may be: 5% or 0.05.", rich_help_panel=VERDICT)
]
Junit = Annotated[
    Path | None, _option(metavar="FILE", help="Also write the verdicts as JUnit XML.", rich_help_panel=OUTPUT)
]
RunFile = Annotated[
    str | None,
    _option(
        "--output", "-o", metavar="FILE", help="Run file. Default: a new one in .vebench/.", rich_help_panel=OUTPUT
    ),
]
ReportFile = Annotated[
    str | None, _option("--output", "-o", metavar="FILE", help="Write the report to this file.", rich_help_panel=OUTPUT)
]
AllowCode = Annotated[
    bool,
    _option("--allow-code", help="Use the code, Pythons and hosts that the file names.", rich_help_panel=OUTPUT),
]
_BY_SUFFIX = " Default: from the suffix of -o, or terminal."
CheckFormat = Annotated[str, _format("check")]
TuneFormat = Annotated[str, _format("tune")]
MachineFormat = Annotated[str, _format("machine")]
VerifyFormat = Annotated[str, _format("verify")]
ReportFormat = Annotated[str | None, _format("run", _BY_SUFFIX)]
HistoryFormat = Annotated[str | None, _format("history", _BY_SUFFIX)]


def budget(meaning: str) -> OptionInfo:
    """Return the option for the longest time that a command may take, or add."""

    def parse(text: str | float) -> float:
        from vebench.plan.grammar import parse_duration  # noqa: PLC0415 - imported on use

        seconds = parse_duration("--budget", str(text))
        check_seconds("--budget", seconds)
        return seconds

    return _option("--budget", metavar="TIME", help=meaning, parser=parse, rich_help_panel=HOW_LONG)


def settings(*names: str) -> OptionInfo:
    """Return the option that sets these fields of a spec, for which a command has no option of their own."""

    def checked(given: list[str] | None) -> list[str]:
        for text in given or []:
            key, equals, _ = text.partition("=")
            if key not in names or not equals:
                near = did_you_mean(key, names)
                raise UsageError(f"--set {shown(text)}: write KEY=VALUE{near}; keys are {', '.join(names)}")
        return given or []

    meaning = f"Another setting: {', '.join(names)}. Repeat."
    return _option("--set", metavar="KEY=VALUE", help=meaning, callback=checked)


def spec_from(context: typer.Context, **defaults: Any) -> RunSpec:  # noqa: ANN401 - values of fields
    """Return the spec that a command's options ask for. Raises UsageError for a value that cannot be parsed.

    Parameters of the command with the names of fields are those that are read, and the list ``settings``. ``defaults``
    are those of fields that the command has no option for, or none with a default.
    """
    from vebench.plan import grammar  # noqa: PLC0415 - imported on use

    parsers: dict[str, Callable[[Any], object]] = {
        "envs": grammar.parse_envs,
        "workers": grammar.parse_workers,
        "backends": grammar.parse_backends,
        "envs_per_worker": grammar.parse_envs_per_worker,
        "until": partial(grammar.parse_share, "--until"),
        "pin": grammar.parse_pin,
        "replicas": grammar.parse_replicas,
        "hosts": grammar.parse_hosts,
        "policy": grammar.parse_policy,
        "learner": partial(grammar.parse_learner, "--learner"),
    }
    of_settings: dict[str, Callable[[str], object]] = {
        "base": partial(grammar.parse_flag, "--set base"),
        "interleave": partial(grammar.parse_flag, "--set interleave"),
        "memory": partial(grammar.parse_memory, "--set memory"),
        "proof": str,
        "seed": partial(grammar.parse_whole, "--set seed", most=MAX_SEED),
        "timeout": partial(grammar.parse_duration, "--set timeout"),
        "warmup": partial(grammar.parse_duration, "--set warmup"),
    }
    known = RunSpec.__dataclass_fields__
    values: dict[str, Any] = defaults | {
        name: parsers[name](value) if name in parsers else value
        for name, value in context.params.items()
        if name in known and value not in (None, [], ())
    }
    for text in context.params.get("settings") or ():
        key, _, value = text.partition("=")
        values[key] = (of_settings | parsers)[key](value)
    return RunSpec(**{"envs": (), **values})


def given(context: typer.Context) -> set[str]:
    """Return the names of the parameters that were given on the command line."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def refuse_plan(context: typer.Context, why: str, besides: Collection[str]) -> None:
    """Raise UsageError, which names what to leave out, if any parameter was given but those ``besides``."""
    excess = given(context).difference(besides)
    if excess:
        names = {one.name: one.opts[0] for one in context.command.params}
        raise UsageError(f"{why}: leave out {', '.join(names[name] for name in sorted(excess))}")


def one_of(option: str, text: str, names: tuple[Name, ...]) -> Name:
    """Return the one of ``names`` that equals ``text``. Raises UsageError if there is none."""
    for name in names:
        if name == text:
            return name
    raise UsageError(f"{option} {text}: must be one of {', '.join(names)}")
