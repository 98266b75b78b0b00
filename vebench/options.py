"""Makes the command line's parameters from declarations of options, and declares options of several commands."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from vebench import HOME
from vebench.errors import UsageError
from vebench.plan import grammar
from vebench.plan.grammar import ADVANCED, GROUPS, HOW_LONG, OUTPUT, WHAT, Kind, Option
from vebench.plan.spec import EFFORTS, FIELDS, METRICS, MOST_WORSE, OPTIONS, TOLERANCE, RunSpec, defaults
from vebench.reports import formats

if TYPE_CHECKING:  # these load msgspec and Rich, which the help does not need
    from vebench.commands.session import World
    from vebench.reports.console import Outlet
    from vebench.reports.document import PageKind


# The pages in docs/ that help names, by section or command.
PAGES = {
    "Share": "guides/submit", "run": "guides/measure", "tune": "guides/tune", "report": "start", "check": "guides/ci",
    "compare": "guides/ci", "bisect": "guides/find-the-change", "history": "guides/find-the-change",
    "verify": "concepts/same-work", "list": "reference/backends", "install": "guides/other-backends",
    "doctor": "guides/measure",
}  # fmt: skip


class Parameter(click.Option):
    """A command's parameter, made from the declaration of an option."""

    def __init__(self, option: Option, default: Any = None, shown: Any = None) -> None:
        """Make the parameter. ``default`` is the value of an absent option. ``shown`` is the default in the help."""
        self.group, self.absent, self._option = option.group, default, option
        kind, text = option.kind, option.help
        is_switch = kind.named is not None
        if shown not in {None, (), ""} and not is_switch:
            text += f"  [default: {kind.written(shown)}]"
        settings = {"is_flag": True, "flag_value": True} if is_switch else {"metavar": option.metavar}
        super().__init__([option.name, *option.flags], help=text, multiple=kind.many, callback=self._read, **settings)

    def _read(self, _context: click.Context, _parameter: click.Parameter, given: Any) -> Any:
        if given is None or given is False or given == ():
            return self.absent
        named = self._option.kind.named
        return self._option.value(given) if named is None else named

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the last name of a list, or a path."""
        if self.metavar in {"FILE", "RUN", "DIR"}:
            return [CompletionItem(incomplete, type="dir" if self.metavar == "DIR" else "file")]
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
        from vebench.commands.session import World

        world, arguments = self._context.obj
        return replace(world or World(), arguments=arguments)

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

    def refuse_others(self, why: str, allowed: Collection[str]) -> None:
        """Raise UsageError, with the options to leave out, if the command line has options that are not ``allowed``."""
        if excess := self.given.difference(allowed):
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
            raise UsageError("--allow-code applies to --resume only: code named on the command line is always allowed")

    def outlet(self, kind: PageKind, *, measures: bool = False) -> tuple[Path | None, Outlet]:
        """Return the run file from ``-o``, or None, and the outlet for the page of the command.

        A command that measures prints the page, and also writes it if ``-o`` names a report. Other commands write the
        page if ``-o`` names a report, and print it otherwise. Raises UsageError for a file that cannot be written.
        """
        from vebench.reports.console import Outlet
        from vebench.results.store import DEFAULT_FOLDER, SUFFIX, refuse_to_overwrite

        form, files = self._context.params.get("form"), self._context.params.get("output", ())
        for path in files:
            if path.parent != DEFAULT_FOLDER and not path.parent.is_dir():
                raise UsageError(f"-o {path}: name a file in a folder that exists")
        run_files = [path for path in files if measures and path.suffix.lower() == SUFFIX]
        reports = [path for path in files if path not in run_files]
        if len(run_files) > 1 or len(reports) > 1:
            raise UsageError(f"-o {files[-1]}: name one run file and one report at most")
        run_file = run_files[0] if run_files else None
        if not reports:
            return run_file, Outlet(formats.format_for(form, None, kind))
        (report,) = reports
        fitting = formats.suffixes(kind)
        if measures and report.suffix.lower() not in fitting:
            raise UsageError(
                f"-o {report}: the suffix is not {', '.join(fitting)}, for a report, or {SUFFIX}, for a run file"
            )
        refuse_to_overwrite(report)
        printed = formats.format_for(form, None, kind) if measures else None
        return run_file, Outlet(printed, (report, formats.format_for(None if measures else form, report, kind)))


class Command(click.Command):
    """A command whose help shows options in groups. ``--help-all`` adds rare options."""

    def __init__(self, *args: Any, section: str = "", **settings: Any) -> None:
        self.section = section
        settings["help"] = settings["help"].replace("\n    Exit status:", "\n\n    Exit status:")  # a paragraph
        super().__init__(*args, **settings)
        self.page = PAGES.get(section) or PAGES[self.name or ""]
        self.epilog = f"Documentation: {HOME}/blob/HEAD/docs/{self.page}.md"
        if any(getattr(one, "group", "") == ADVANCED for one in self.params):
            how: dict[str, Any] = {"is_flag": True, "is_eager": True, "expose_value": False, "callback": _show_all}
            self.params.append(click.Option(["--help-all"], help="Show rare options, too.", **how))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. The error for the option that other libraries have names vebench's options."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name != "--num-envs":
                raise
            instead = "a backend steps --workers times --envs-per-worker environments"
            raise UsageError(f"No such option: --num-envs; {instead}") from None

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
                    formatter.write_dl([(flags, text.replace("-", "\u2011")) for flags, text in lines])

    def get_help(self, ctx: click.Context) -> str:
        """Return the help. Lines do not break at hyphens, so that readers can search for and copy all names."""
        return super().get_help(ctx).replace("\u2011", "-")


def _show_all(context: click.Context, _parameter: click.Parameter, given: bool) -> None:
    if given and not context.resilient_parsing:
        context.meta["help all"] = True
        click.echo(context.get_help())
        context.exit()


class Commands(click.Group):
    """A group of commands, whose help shows them in sections. A group in it is a section of its own."""

    command_class = Command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. Without arguments, show the help on standard error, and exit."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(UsageError.exit_status)
        return super().parse_args(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands of each section."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, one in self.commands.items():
            lines = sections.setdefault(getattr(one, "section", name.capitalize()), [])
            lines.append((name, one.get_short_help_str(80)))
        for section, lines in sections.items():
            with formatter.section(section):
                formatter.write_dl(lines, col_max=12)


def command(
    group: click.Group, section: str, *params: click.Parameter, name: str | None = None
) -> Callable[[Callable[[Call], int | None]], click.Command]:
    """Return a decorator that adds a command, with the name of its function, to a group."""

    def added(function: Callable[[Call], int | None]) -> click.Command:
        return group.command(name or function.__name__.strip("_"), section=section, params=[*params])(function)

    return added


def of_plan(command: str) -> Iterator[Parameter]:
    """Yield the parameters of a command for the fields of ``RunSpec``. Absent options have the value None."""
    always = ("timeout", "seed", "pin", "replicas", "proof")
    usual = {name: getattr(RunSpec, name) for name in always} | defaults(command)
    for name in FIELDS[command]:
        yield Parameter(OPTIONS[name], shown=usual.get(name))
    if command in {"run", "compare"}:
        levels = [
            f"{level} = {passes} x {windows} of {grammar.time_of(seconds)}{' (race)' if race else ''}"
            for level, (passes, windows, seconds, _, race) in EFFORTS[command].items()
        ]
        meaning = f"Passes x windows: {', '.join(levels)}. --passes, --windows and --duration override it."
        yield option(HOW_LONG, "--effort LEVEL", meaning, grammar.word(*EFFORTS[command]), "normal")


def option(
    group: str, flags: str, meaning: str, kind: Kind | None = None, default: Any = None, name: str = ""
) -> Parameter:
    """Return the parameter of an option that is not a field of a plan. Without a kind, it is a switch.

    ``flags``: ``--output -o FILE``, the value's name last. ``name``: the attribute of ``Call``, if not the first flag.
    """
    words = flags.split()
    typed = tuple(word for word in words if word.startswith("-"))
    metavar = " ".join(words[len(typed) :])
    name = name or typed[0].strip("-").replace("-", "_")
    if kind is None:
        kind, default = grammar.switch(), False
    return Parameter(Option(name, typed, group, metavar, meaning, kind), default, default)


def argument(name: str, metavar: str, kind: type = str, **settings: Any) -> click.Argument:
    """Return an argument, shown as ``metavar``: ``[FILE]...`` takes any number of values, ``DIR...`` at least one."""
    counts = {"nargs": -1 if metavar.endswith("...") else 1, "required": not metavar.startswith("[")}
    typed = click.Path(path_type=Path) if kind is Path else kind
    return click.Argument([name], metavar=metavar, type=typed, **{**counts, **settings})


def output(kind: PageKind, run_file: str = "") -> Parameter:
    """Return ``-o`` of a command with pages of this kind. ``run_file``: the help's words for a file of measurements."""

    def files(texts: Sequence[str]) -> tuple[Path, ...]:
        from vebench.results import store

        return tuple(map(store.output_path, texts))

    *first, last = (known.suffixes[0] for known in formats.of(kind) if known.suffixes)
    suffixes = f"{', '.join(first)} or {last}"
    meaning = f"Write a report to this file, by its suffix: {suffixes}."
    if run_file:
        meaning = f"{run_file} (.jsonl), or a report ({suffixes}). Repeat for both.  [default: a .jsonl in .vebench/]"
    return option(OUTPUT, "--output -o FILE", meaning, grammar.listed(files), ())


def form(kind: PageKind, default: str | None = "terminal") -> Parameter:
    """Return ``--format`` of a command with pages of this kind. Without a default, the suffix of -o decides."""
    meaning = f"{formats.choices(kind)}.{'' if default else '  [default: by the suffix of -o, or terminal]'}"
    names = grammar.word(*(known.name for known in formats.of(kind)))
    return option(OUTPUT, "--format -f FORMAT", meaning, names, default, "form")


def pages(kind: PageKind, run_file: str = "") -> tuple[Parameter, Parameter]:
    """Return ``--format`` and ``-o`` of a command with pages of this kind. ``run_file``: as of ``output``."""
    return form(kind, "terminal" if run_file else None), output(kind, run_file)


NAMED = argument(
    "named", "[ENV]...", shell_complete=lambda _context, _parameter, typed: completed(OPTIONS["envs"], typed)
)
ONLY = (
    option(WHAT, "--env -e ENV", "Only these environments (A,B).", OPTIONS["envs"].kind, (), "envs"),
    option(WHAT, "--backend -b NAME", "Only these backends (A,B).", OPTIONS["backends"].kind, (), "backends"),
)
WORSE = Parameter(MOST_WORSE, MOST_WORSE.value(TOLERANCE), MOST_WORSE.value(TOLERANCE))
METRIC = Parameter(METRICS, METRICS.value("rate"), ("rate",))
ALLOW_CODE = option(ADVANCED, "--allow-code", "Trust the run file: use the code, Pythons and hosts that it names.")
OF_PAST = (
    option(WHAT, "--repo DIR", "Folder that pip installs, in a git repository.  [default: .]", grammar.FILE),
    option(WHAT, "--package NAME", "Try releases of this package, not commits. --repo adds your project.", Kind(), ""),
    option(WHAT, "--with PACKAGE", "Also install this with each. May be repeated.", grammar.listed(), (), "needed"),
)
RESUME = option(OUTPUT, "--resume FILE", "Continue the run in this file, for another --budget.", grammar.FILE)
