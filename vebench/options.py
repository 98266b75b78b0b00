"""Makes the command line's parameters from declarations of options, and declares options of several commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from vebench.errors import UsageError
from vebench.plan import grammar
from vebench.plan.grammar import ADVANCED, GROUPS, HOW_LONG, OUTPUT, VERDICT, WHAT, Option
from vebench.plan.spec import EFFORTS, FIELDS, OPTIONS, TOLERANCE, RunSpec, defaults
from vebench.reports import formats

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from vebench.commands.session import World
    from vebench.reports.console import Outlet
    from vebench.reports.document import PageKind

# Sections of commands in the help, in its order.
SECTIONS = ("Measure", "Read", "Regressions", "Same results", "Share", "This machine")
MEASURE, READ, REGRESSIONS, SAME_RESULTS, SHARE, THIS_MACHINE = SECTIONS
# Options of other libraries, with hints at vebench's options.
_ENVS = "a backend steps --workers times --envs-per-worker environments"
_PATHS = {"FILE": "file", "RUN": "file", "DIR": "dir"}  # how a shell completes values with these names
_OTHERS_WORDS = {"--num-envs": _ENVS, "--n-envs": _ENVS, "--num-workers": "write --workers"}


class Parameter(click.Option):
    """A command's parameter, made from the declaration of an option."""

    def __init__(self, option: Option, default: Any = None, shown: Any = None) -> None:
        """Make the parameter. ``default`` is the value of an absent option. ``shown`` is the default in the help."""
        self.group = option.group
        self._option, self.absent = option, default
        switch = option.kind.named is not None
        text = option.help
        if shown not in {None, (), ""} and not switch:
            text += f"  [default: {option.kind.written(shown)}]"
        settings = {"is_flag": True, "flag_value": True} if switch else {"metavar": option.metavar}
        many = option.kind.many
        super().__init__([option.name, *option.flags], help=text, multiple=many, callback=self._read, **settings)

    def _read(self, _context: click.Context, _parameter: click.Parameter, given: Any) -> Any:
        if given is None or given is False or given == ():
            return self.absent
        if self._option.kind.named is not None:
            return self._option.kind.named
        return self._option.value(given)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the last name of a list, or a path."""
        if self.metavar in _PATHS:
            return [CompletionItem(incomplete, type=_PATHS[self.metavar])]
        return completed(self._option, incomplete) or super().shell_complete(ctx, incomplete)


def completed(option: Option, incomplete: str) -> list[CompletionItem]:
    """Return completions of the last name in a list."""
    before, comma, last = incomplete.rpartition(",")
    found = [name for name in option.kind.choices() if name.lower().startswith(last.lower())]
    return [CompletionItem(before + comma + name) for name in found]


class Call:
    """A call of a command. The values of its options and arguments are attributes."""

    def __init__(self, context: click.Context) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        """Return the value of an option or argument."""
        return self._context.params[name]

    @property
    def world(self) -> World:
        """Access to the machine and to other processes."""
        world: World = self._context.obj()
        return world

    @property
    def given(self) -> set[str]:
        """The names of the options and arguments on the command line."""
        typed = click.core.ParameterSource.COMMANDLINE
        return {name for name in self._context.params if self._context.get_parameter_source(name) is typed}

    @property
    def plan(self) -> dict[str, Any]:
        """The fields of a plan on the command line. Environments may be ``named`` without an option."""
        values = self._context.params
        found = {name: values[name] for name in FIELDS[self._context.command.name or ""] if values[name] is not None}
        if values.get("named"):
            found["envs"] = OPTIONS["envs"].value(self.named) + found.get("envs", ())
        return found

    def refuse_others(self, why: str, besides: Collection[str]) -> None:
        """Raise UsageError, with the options to leave out, if the command line has options not in ``besides``."""
        if excess := self.given.difference(besides):
            typed = [one for one in self._context.command.params if one.name in excess]
            options = [one.opts[0] for one in typed if isinstance(one, click.Option)]
            arguments = [str(one.metavar).strip("[].") for one in typed if isinstance(one, click.Argument)]
            raise UsageError(f"{why}: leave out {', '.join(sorted(options) + arguments)}")

    def refuse_for_resume(self, file: Path | None, *kept: str) -> None:
        """Raise UsageError for options that contradict ``--resume``, or that need it."""
        if self.resume is not None:
            reports = () if file else ("output",)
            self.refuse_others("--resume takes its plan from the file", {"resume", "allow_code", *kept, *reports})
        elif self.allow_code:
            raise UsageError("--allow-code needs --resume: what you name yourself is allowed")

    def outlet(self, kind: PageKind, *, measures: bool = False) -> tuple[Path | None, Outlet]:
        """Return the run file from ``-o``, or None, and the outlet for the page of the command.

        A command that measures prints the page, and also writes it if ``-o`` names a report. Other commands write the
        page if ``-o`` names a report, and print it otherwise. Raises UsageError for a file that cannot be written.
        """
        from vebench.reports.console import Outlet
        from vebench.results.store import DEFAULT_FOLDER, SUFFIX, refuse_to_overwrite

        values = self._context.params
        form, files = values.get("form"), values.get("output", ())
        run_files: list[Path] = []
        reports: list[Path] = []
        for path in files:
            if path.parent != DEFAULT_FOLDER and not path.parent.is_dir():
                raise UsageError(f"-o {path}: name a file in a folder that exists")
            is_run_file = measures and path.suffix.lower() == SUFFIX
            (run_files if is_run_file else reports).append(path)
        if len(run_files) > 1 or len(reports) > 1:
            raise UsageError(f"-o {files[-1]}: name one run file and one report at most")
        run_file = run_files[0] if run_files else None
        if not reports:
            return run_file, Outlet(formats.format_for(form, None, kind))
        (report,) = reports
        if measures and report.suffix.lower() not in formats.suffixes(kind):
            fitting = ", ".join(formats.suffixes(kind))
            raise UsageError(f"-o {report}: the suffix is not {fitting}, for a report, or {SUFFIX}, for a run file")
        refuse_to_overwrite(report)
        printed = formats.format_for(form, None, kind) if measures else None
        return run_file, Outlet(printed, (report, formats.format_for(None if measures else form, report, kind)))


class Command(click.Command):
    """A command whose help shows options in groups. ``--help-all`` adds rare options."""

    def __init__(self, *args: Any, section: str = "", **settings: Any) -> None:
        self.section = section
        super().__init__(*args, **settings)
        if any(getattr(one, "group", "") == ADVANCED for one in self.params):
            self.params.append(_help_all())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. The error for an option of another library names vebench's option."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if instead := _OTHERS_WORDS.get(error.option_name):
                raise UsageError(f"No such option: {error.option_name}; {instead}") from None
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Call the command."""
        return ctx.invoke(self.callback, Call(ctx)) if self.callback else None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of each group."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in GROUPS}
        for one in self.get_params(ctx):
            line = None if isinstance(one, click.Argument) else one.get_help_record(ctx)
            if line is not None:
                groups[getattr(one, "group", OUTPUT)].append(line)
        if not ctx.meta.get("help all"):
            groups[ADVANCED] = []
        for name, lines in groups.items():
            if lines:
                with formatter.section(name):
                    formatter.write_dl(lines)


class Commands(click.Group):
    """A group of commands, whose help shows them in sections."""

    command_class = Command

    def __init__(self, *args: Any, section: str = "", **settings: Any) -> None:
        self.section = section
        super().__init__(*args, **settings)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. Without arguments, show the help on standard error, and exit."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(UsageError.exit_status)
        return super().parse_args(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands of each section."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            sections.setdefault(getattr(command, "section", "Commands"), []).append(
                (name, command.get_short_help_str(80))
            )
        for section, lines in sections.items():
            with formatter.section(section):
                formatter.write_dl(lines, col_max=12)


def _help_all() -> click.Option:
    def show(context: click.Context, _parameter: click.Parameter, given: bool) -> None:
        if given and not context.resilient_parsing:
            context.meta["help all"] = True
            click.echo(context.get_help())
            context.exit()

    return click.Option(
        ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=show, help="Show rare options, too."
    )


def command(
    group: click.Group, section: str, *params: click.Parameter, name: str | None = None
) -> Callable[[Callable[[Call], int | None]], click.Command]:
    """Return a decorator that adds a command, with the name of its function, to a group."""

    def added(function: Callable[[Call], int | None]) -> click.Command:
        return group.command(name or function.__name__.strip("_"), section=section, params=[*params])(function)

    return added


def of_plan(command: str) -> Iterator[Parameter]:
    """Yield the parameters of a command for the fields of ``RunSpec``. Absent options have the value None."""
    usual = {"timeout": RunSpec.timeout, **defaults(command)}
    for name in FIELDS[command]:
        yield Parameter(OPTIONS[name], shown=usual.get(name))
    if command in {"run", "compare"}:
        yield declared("effort", HOW_LONG, "LEVEL", _levels(command), grammar.word(*EFFORTS[command]), default="normal")


def _levels(command: str) -> str:
    levels = []
    for level, (passes, windows, seconds, _, race) in EFFORTS[command].items():
        levels.append(f"{level} = {passes} x {windows} of {grammar.time_of(seconds)}{' (race)' if race else ''}")
    return f"Passes x windows: {', '.join(levels)}. Explicit numbers win."


def declared(
    name: str, group: str, metavar: str, meaning: str, kind: Any, *flags: str, default: Any = None
) -> Parameter:
    """Return the parameter of an option that is not a field of a plan. Its flag defaults to its name."""
    flags = flags or (f"--{name.replace('_', '-')}",)
    return Parameter(Option(name, flags, group, metavar, meaning, kind), default, default)


def argument(name: str, metavar: str, kind: Any = str, **settings: Any) -> click.Argument:
    """Return an argument of a command, shown as ``metavar``."""
    return click.Argument([name], metavar=metavar, type=kind, **settings)


def switch(name: str, group: str, meaning: str, *flags: str) -> Parameter:
    """Return an option without a value."""
    return declared(name, group, "", meaning, grammar.switch(), *flags, default=False)


def budget(meaning: str, default: float | None = None) -> Parameter:
    """Return the option ``--budget``, which limits the time of a command."""
    return declared("budget", HOW_LONG, "TIME", meaning, grammar.seconds(), default=default)


def output(kind: PageKind, run_file: str = "") -> Parameter:
    """Return ``-o`` of a command with pages of this kind. ``run_file``: the help's words for a file of measurements."""
    *first, last = (known.suffixes[0] for known in formats.of(kind) if known.suffixes)
    meaning = f"Write a report to this file, by its suffix: {', '.join(first)} or {last}."
    if run_file:
        meaning = f"{run_file} (.jsonl; default: in .vebench/), or a report ({', '.join(first)} or {last}), or both."
    return declared("output", OUTPUT, "FILE", meaning, grammar.listed(_files), "--output", "-o", default=())


def _files(texts: Sequence[str]) -> tuple[Path, ...]:
    from vebench.results import store

    return tuple(map(store.output, texts))


def form(kind: PageKind, default: str | None = "terminal") -> Parameter:
    """Return ``--format`` of a command with pages of this kind. Without a default, the suffix of -o decides."""
    meaning = f"{formats.choices(kind)}.{'' if default else '  [default: by the suffix of -o, or terminal]'}"
    return declared(
        "form",
        OUTPUT,
        "FORMAT",
        meaning,
        grammar.word(*(known.name for known in formats.of(kind))),
        "--format",
        "-f",
        default=default,
    )


NAMED = argument(
    "named", "[ENV]...", nargs=-1, shell_complete=lambda _context, _parameter, typed: completed(OPTIONS["envs"], typed)
)
ONLY_ENVS = declared(
    "envs", WHAT, "ENV", "These only. Comma or repeat.", OPTIONS["envs"].kind, "--env", "-e", default=()
)
ONLY_BACKENDS = declared(
    "backends", WHAT, "NAME", "These only. Comma or repeat.", OPTIONS["backends"].kind, "--backend", "-b", default=()
)
MOST_SLOWER = declared(
    "tolerance", VERDICT, "SHARE", "How much slower a backend may be: 5% or 0.05.", grammar.share(), default=TOLERANCE
)
ALLOW_CODE = switch("allow_code", ADVANCED, "Trust the file: use its code, Pythons and hosts.")
RESUME = declared("resume", OUTPUT, "FILE", "Go on with this file, for another --budget.", grammar.FILE)
NEEDED = declared(
    "needed", WHAT, "PACKAGE", "Also install this with each candidate. Repeat.", grammar.listed(), "--with", default=()
)
