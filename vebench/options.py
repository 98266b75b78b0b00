"""Options that commands share, each written once, and the ``RunSpec`` that those of a plan ask for.

Options of a plan have the names of the spec's fields: a command lists those that it has, with its own defaults, and
``spec_from`` reads them. ``--set`` is for the fields that a command has no option for. Importing this costs little more
than typer.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from vebench.errors import UsageError, did_you_mean, shown
from vebench.plan.spec import RunSpec
from vebench.reports.formats import registry

if TYPE_CHECKING:
    from collections.abc import Collection

    from typer.models import OptionInfo

    from vebench.reports.document import Kind

Name = TypeVar("Name", bound=str)

# Groups of options in the help, in this order.
WHAT, HOW_LONG, _WHERE, VERDICT, OUTPUT = "What to measure", "How long", "Where", "Verdict", "Output and files"


class Grouped(TyperCommand):
    """A command whose help shows its options in groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's own copies of click's types
        """Write the options of each group."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in (WHAT, HOW_LONG, _WHERE, VERDICT, OUTPUT)}
        for one in self.get_params(ctx):
            if (line := one.get_help_record(ctx)) is not None:
                groups.setdefault(getattr(one, "rich_help_panel", None) or "Help", []).append(line)
        for name, lines in groups.items():
            if lines:
                with formatter.section(name):
                    formatter.write_dl(lines)


def option(group: str, metavar: str, meaning: str, *names: str, **how: Any) -> OptionInfo:  # noqa: ANN401 - as typer has it
    """Return an option of this group of the help. A flag has no metavar."""
    made: OptionInfo = typer.Option(*names, metavar=metavar or None, help=meaning, rich_help_panel=group, **how)
    return made


def duration(name: str, meaning: str, parse: str = "parse_duration") -> OptionInfo:
    """Return an option that is a time, in seconds once it is parsed. A default is in seconds already."""

    def seconds(text: str | float) -> float:
        from vebench.plan import grammar  # noqa: PLC0415 - imported on use

        found: float = getattr(grammar, parse)(name, str(text))
        return found

    return option(HOW_LONG, "TIME", meaning, name, parser=seconds)


def budget(meaning: str) -> OptionInfo:
    """Return the option for the longest time that a command may take, or add."""
    return duration("--budget", meaning, "parse_budget")


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


def _format(kind: Kind, default: str = "") -> OptionInfo:
    """Return the option that names a format for pages of this kind."""
    return option(OUTPUT, "FORMAT", f"{registry.choices(kind)}.{default}", "--format", "-f")


Texts = list[str] | None

# The plan of a run: fields of RunSpec.
Envs = Annotated[
    Texts, option(WHAT, "ENV", "Pong, 'CartPole[max_episode_steps=50]', MODULE:ID, MODULE:CALLABLE ...", "--env", "-e")
]
Backends = Annotated[
    Texts,
    option(
        *(WHAT, "NAME", "NAME[KEY=VALUE,...], NAME@PYTHON, MODULE:CLASS, all-peers. Default: the usual ones."),
        *("--backend", "-b"),
    ),
]
Workers = Annotated[
    Texts,
    option(
        *(WHAT, "COUNTS", "8 or 1..256 (doubles), 1..16:+5 (adds), 1..81:*3 (multiplies). Default: 1..4."),
        *("--workers", "-w"),
    ),
]
EnvsPerWorker = Annotated[Texts, option(WHAT, "COUNTS", "Environments of each worker. Default: 1.")]
Policy = Annotated[
    str | None,
    option(
        *(WHAT, "POLICY"),
        "mlp:64x64, nature-cnn[device=cuda], sleep:1ms, MODULE:FUNCTION. Default: tape (drawn beforehand).",
    ),
]
Learner = Annotated[
    str | None,
    option(
        WHAT, "TIME[/STEPS]", "Assumed time of learning for each batch (4ms), or for each STEPS steps (300ms/2048)."
    ),
]
Seed = Annotated[int | None, option(WHAT, "N", "Seed of all that is drawn at random.")]
Duration = Annotated[float, duration("--duration", "Length of one window.")]
Rounds = Annotated[int, option(HOW_LONG, "N", "Windows of a cell in each pass.")]
Warmup = Annotated[float, duration("--warmup", "Least time before the first window.")]
Repeats = Annotated[int, option(HOW_LONG, "N", "Passes, each in fresh processes.")]
Until = Annotated[str | None, option(HOW_LONG, "SHARE", "Add passes until intervals are this narrow, such as 2%.")]
Timeout = Annotated[float, duration("--timeout", "Longest time for one cell.")]
Pin = Annotated[
    str | None,
    option(_WHERE, "CPUS", "compact, scatter, none or 0-3,8, also compact[smt=off,reserve=2,mem=bind]."),
]
Replicas = Annotated[
    str | None,
    option(_WHERE, "N", "Copies of the backend in each cell: a number, or node for one on each memory node."),
]
OnHosts = Annotated[
    str | None,
    option(_WHERE, "HOSTS", "A replica on each of a,b or of @FILE or ray, also a,b[via=srun,count=1..8].", "--hosts"),
]
Proof = Annotated[str, option(VERDICT, "HOW", "Compare what cells returned with a plain loop: auto, full or off.")]

# Options of several commands that are no part of a plan.
OnlyEnvs = Annotated[Texts, option(WHAT, "ENV", "These only. Comma or repeat.", "--env", "-e")]
OnlyBackends = Annotated[Texts, option(WHAT, "NAME", "These only. Comma or repeat.", "--backend", "-b")]
Tolerance = Annotated[str, option(VERDICT, "SHARE", "How much slower a backend may be: 5% or 0.05.")]
Junit = Annotated[Path | None, option(OUTPUT, "FILE", "Also write the verdicts as JUnit XML.")]
RunFile = Annotated[Path | None, run_file("Run file. Default: a new one in .vebench/.")]
ReportFile = Annotated[
    Path | None, option(OUTPUT, "FILE", "Write the report to this file.", "--output", "-o", parser=_file)
]
AllowCode = Annotated[bool, option(OUTPUT, "", "Use the code, Pythons and hosts that the file names.", "--allow-code")]
_BY_SUFFIX = " Default: from the suffix of -o, or terminal."
CheckFormat = Annotated[str, _format("check")]
TuneFormat = Annotated[str, _format("tune")]
MachineFormat = Annotated[str, _format("machine")]
VerifyFormat = Annotated[str, _format("verify")]
ReportFormat = Annotated[str | None, _format("run", _BY_SUFFIX)]
HistoryFormat = Annotated[str | None, _format("history", _BY_SUFFIX)]


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
    return option(WHAT, "KEY=VALUE", meaning, "--set", callback=checked)


def spec_from(context: typer.Context, **defaults: Any) -> RunSpec:  # noqa: ANN401 - values of fields
    """Return the spec that a command's options ask for. Raises UsageError for a value that cannot be parsed.

    Parameters of the command with the names of fields are those that are read, and the list ``settings``. ``defaults``
    are those of fields that the command has no option for, or none with a default.
    """
    from vebench.plan.grammar import PARSERS  # noqa: PLC0415 - imported on use

    known = RunSpec.__dataclass_fields__
    values: dict[str, Any] = defaults | {
        # Numbers and times are parsed by typer.
        name: PARSERS[name](value) if isinstance(value, str | list) and name in PARSERS else value
        for name, value in context.params.items()
        if name in known and value not in (None, [], ())
    }
    for text in context.params.get("settings") or ():
        key, _, value = text.partition("=")
        values[key] = PARSERS[key](value)
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
