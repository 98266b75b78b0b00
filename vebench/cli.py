"""The command line: parse, compose, report errors. Everything heavier is imported when a command runs."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from vebench import __version__, options
from vebench.backends.entry import MAX_COUNT
from vebench.errors import InterruptedRunError, UsageError, VebenchError, one_line
from vebench.reports.formats import registry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.commands.world import World

app = typer.Typer(
    help="Measure which vector-env backend is fastest on this machine, and how far to trust the figure.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# Options of a run that other commands do not have: they measure on this machine.
ON_HOSTS = ("hosts", "hosts_file", "via", "ray", "host_python", "deliver", "unlike_hosts")

_command_of = cache(typer.main.get_command)  # with all its options, it takes a while to make


def main() -> NoReturn:
    """Run the command line of this process."""
    sys.exit(invoke(sys.argv[1:]))


def invoke(arguments: Sequence[str], world: World | None = None) -> int:
    """Run a command line in ``world``, by default the real one. Returns the exit status.

    Every error that a user can meet becomes one line on standard error.
    """
    try:
        return _invoke(arguments, world)
    except VebenchError as error:
        return _fail(str(error), error.exit_status)
    except typer.TyperException as error:
        return _fail(error.format_message(), UsageError.exit_status)
    except BrokenPipeError:  # the reader of our output has closed it, as `head` does
        _discard_output()
        return 0
    except OSError as error:
        _discard_output()
        return _fail(f"{error.filename or 'standard output'}: {error.strerror}", UsageError.exit_status)
    except BaseException as error:
        if not _was_interrupt(error):
            raise
        return _fail("interrupted", InterruptedRunError.exit_status)


def _invoke(arguments: Sequence[str], world: World | None) -> int:
    """Return the exit status of the command. Typer's own entry point would report some of its errors itself."""
    command = _command_of(app)
    try:
        with command.make_context("vebench", [*arguments], obj=_Call(tuple(arguments), world)) as context:
            return command.invoke(context) or 0
    except typer.Exit as done:
        return done.exit_code


def _was_interrupt(error: BaseException | None) -> bool:
    """Return whether an error came of Ctrl-C: Python 3.11 makes a RuntimeError of one that meets a class's making."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


class _Call:
    """A command line and its world. The world is made when a command asks for it."""

    def __init__(self, arguments: tuple[str, ...], world: World | None) -> None:
        self._arguments = arguments
        self._world = world

    @property
    def world(self) -> World:
        from vebench.commands.world import World

        return replace(self._world or World(), arguments=self._arguments)


def _fail(text: str, status: int) -> int:
    try:
        typer.echo(f"vebench: {one_line(text)}", err=True)
    except OSError:  # nobody reads standard error: the exit status has to be enough
        from vebench.reports.console import discard

        discard(sys.stderr)
    return status


def _discard_output() -> None:
    from vebench.reports.console import discard

    discard(sys.stdout)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"vebench {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def vebench(
    context: typer.Context,
    *,
    version: Annotated[  # noqa: ARG001 - its callback acts
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Measure which vector-env backend is fastest on this machine, and how far to trust the figure."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(UsageError.exit_status)


@app.command(context_settings={"allow_extra_args": True})  # so that the error can say how to name an environment
# Several processes of few windows, since processes differ more than windows do: docs/method.md has how this was chosen.
@options.asks_for_spec(
    instead="--resume", base=True, rounds=2, repeats=3, duration=0.5, warmup=0.5, interleave=True, proof="auto"
)
def run(  # noqa: PLR0913 - one parameter for each option
    context: typer.Context,
    *,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Run file, such as pong.jsonl. Default: a new one in .vebench/."
        ),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Finish the run in this file; the plan comes from it.")
    ] = None,
    allow_code: options.AllowCode = False,
    overlap: Annotated[
        str | None,
        typer.Option(metavar="WHAT", help="Backends that let none, half or any environments step while --policy acts."),
    ] = None,
    recv_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="TIME",
            help="Let backends that can return what is there after so long.",
            parser=options.duration("--recv-timeout"),
        ),
    ] = None,
    recv_min: Annotated[
        str | None, typer.Option(metavar="ROWS", help="Rows that they then return at the least. Default: 1.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and measure nothing.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="First compare the backends briefly, even if verdicts are known.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no table.")] = False,
) -> int:
    """Measure, and print a table. Exit status: 0 done, 1 a cell failed, 2 bad input, 3 others disturbed most cells.

    \b
    vebench run -e Pong -w 1..8
    vebench run -e Ant,Hopper -b for-loop,envpool-sync -w 2 -o mujoco.jsonl
    """  # noqa: D301 - the backspace character makes click keep the lines below it as they are
    from vebench.commands import run as command
    from vebench.commands import run_file
    from vebench.plan.overlapping import overlapping

    if context.args:
        raise UsageError(f"{context.args[0]}: unexpected argument; to name an environment: --env {context.args[0]}")
    given = options.given(context)
    if resume is not None:
        kept = {"resume", "allow_code", "dry_run", "quiet"}
        options.refuse_plan(context, "--resume takes its plan from the file", kept)
        return command.resume(resume, context.obj.world, dry_run=dry_run, allowed=allow_code, quiet=quiet)
    if allow_code:
        raise UsageError("--allow-code needs --resume: what you name yourself is allowed")
    if "budget" in given and "until" not in given:
        budget = context.params["budget"]
        raise UsageError(f"--budget {budget:g} needs --until, such as --until 5%: it limits what --until adds")
    path = None if output is None else run_file.named(output)
    spec = overlapping(options.spec_from(context), overlap, recv_timeout, recv_min)
    return command.start(spec, path, context.obj.world, verify=verify, dry_run=dry_run, quiet=quiet)


@app.command()
def report(  # noqa: PLR0913 - one parameter for each option
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", hidden=True),  # described below, without the name of its Python type
    ] = None,
    *,
    form: options.ReportFormat = None,
    output: options.OutputFile = None,
    every_finding: Annotated[
        bool,
        typer.Option("--all", help="Also show notes, the cost of the measuring loop, and each of several runs alone."),
    ] = False,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Also show these, such as efficiency, peak_rss or startup, in tables of their own. Comma or repeat.",
        ),
    ] = None,
    forecast: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=MAX_COUNT,
            help="Also predict the rates of N workers from those measured, at most twice as many.",
        ),
    ] = None,
    published: Annotated[
        bool, typer.Option("--published", help="Also show what others have published for these tasks, apart.")
    ] = False,
) -> None:
    """Render runs as tables and figures, several side by side: how much faster each is than the first.

    FILE is a run file or a folder of run files. Default: the newest run in .vebench/. A run that was written elsewhere,
    with -o, must be named. Markdown that is written to a file has its figures beside it.

    \b
    vebench report
    vebench report pong.jsonl -o pong.md
    vebench report pong.jsonl -o figures.pdf
    vebench report old-machine.jsonl new-machine.jsonl
    vebench report --all --columns efficiency,of_ceiling
    """  # noqa: D301 - as above
    from vebench.commands import report as command
    from vebench.reports.columns import names
    from vebench.reports.page import View

    chosen = names("--columns", columns or ())
    view = View(chosen, every_finding, published=published, forecast=forecast)
    command.report(files or (), form, output, view)


@app.command()
def check(  # noqa: PLR0913 - one parameter for each option
    context: typer.Context,
    baseline: Annotated[Path, typer.Argument(metavar="BASELINE", hidden=True)],  # described below
    candidate: Annotated[Path | None, typer.Argument(metavar="CANDIDATE", hidden=True)] = None,
    *,
    tolerance: options.Tolerance = "10%",
    metric: Annotated[
        str,
        typer.Option(
            metavar="METRIC",
            help="yardstick: rates relative to fixed work of vebench's own; does not see what affects that otherwise "
            "than environments, such as caches or another CPU model. speedup: relative to for-loop; does not see what "
            "slows that, too, so for-loop itself is judged by the yardstick. fps: cannot tell code from machine.",
        ),
    ] = "yardstick",
    env: options.OnlyEnvs = None,
    backend: options.OnlyBackends = None,
    inconclusive: options.IfInconclusive = None,
    allow_different_host: Annotated[
        bool, typer.Option("--allow-different-host", help="Compare even if machines or simulators differ.")
    ] = False,
    history: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Earlier runs, which show by how much runs differ. Default: an assumption."),
    ] = None,
    budget: Annotated[
        float,
        typer.Option(
            metavar="TIME",
            help="Longest time that a new run takes until all is decided.",
            parser=options.duration("--budget"),
        ),
    ] = 600.0,
    allow_code: options.AllowCode = False,
    junit: options.Junit = None,
    form: options.CheckFormat = "terminal",
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Run file for a new run. Default: one in .vebench/."),
    ] = None,
    quiet: options.Quiet = False,
) -> int:
    """Compare a run with a baseline: slower, not slower, or inconclusive.

    BASELINE and CANDIDATE are run files. Without CANDIDATE, the baseline's plan is measured again here, until all is
    decided or the budget is spent. Exit status: 0 not slower, 1 slower, or a cell failed in the candidate alone, 2 bad
    input, 3 not comparable or inconclusive.

    \b
    vebench check before.jsonl after.jsonl
    vebench check baseline.jsonl --tolerance 15% --junit check.xml
    """  # noqa: D301 - as above
    from vebench.commands import check as command
    from vebench.commands import run_file
    from vebench.plan.grammar import parse_backends, parse_envs, parse_share

    if candidate is not None and output is not None:
        raise UsageError(f"-o {output}: nothing is measured if a candidate is given ({candidate})")
    if candidate is not None and allow_code:
        raise UsageError(f"--allow-code: nothing is run if a candidate is given ({candidate})")
    options.check_budget(context, needs="a baseline alone", wanted=candidate is None)
    request = command.CheckRequest(
        baseline,
        candidate,
        None if output is None else run_file.named(output),
        parse_share("--tolerance", tolerance),
        options.one_of("--metric", metric, ("yardstick", "speedup", "fps")),
        parse_envs(env or ()),
        parse_backends(backend or ()),
        allow_different_host,
        options.inconclusive_from(inconclusive),
        history,
        budget,
        allow_code,
    )
    return command.run(request, context.obj.world, form=registry.named(form, "check"), junit=junit, quiet=quiet)


@app.command()
@options.asks_for_spec(
    without=("until", "budget", "interleave", "base", *ON_HOSTS),
    instead="--resume",
    first=("a", "b"),
    rounds=3,
    repeats=5,
    proof="auto",
)
def compare(  # noqa: PLR0913 - one parameter for each option
    context: typer.Context,
    *,
    a: Annotated[
        str | None,
        typer.Option(
            "--a", metavar="PYTHON", help="Python to compare with, such as old/bin/python. Required without --resume."
        ),
    ] = None,
    b: Annotated[
        str | None,
        typer.Option(
            "--b", metavar="PYTHON", help="Python to judge, such as new/bin/python. Required without --resume."
        ),
    ] = None,
    tolerance: options.Tolerance = "5%",
    until_decided: options.UntilDecided = False,
    budget: options.DecisionBudget = 600.0,
    inconclusive: options.IfInconclusive = None,
    junit: options.Junit = None,
    form: options.CheckFormat = "terminal",
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Run files; -a and -b are added to the name."),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Finish the comparison of this run file; what it measures comes from the file.",
        ),
    ] = None,
    allow_code: options.AllowCode = False,
    quiet: options.Quiet = False,
) -> int:
    """Measure the same cells in two Pythons, in turn on the same CPUs, and judge which is slower.

    Each needs the simulators and numpy, but not vebench, and Python 3.10 or later. By default, all backends are
    measured, but no reference rows. Exit status: 0 B is not slower than A, 1 slower, or a cell failed in B alone, 2 bad
    input, 3 not comparable or inconclusive.

    \b
    vebench compare --a old/bin/python --b new/bin/python -e Pong -w 2 -b gym-async
    vebench compare --resume pong-a.jsonl --allow-code
    """  # noqa: D301 - as above
    from vebench.commands import compare as command
    from vebench.commands import run_file
    from vebench.plan.grammar import parse_share

    options.check_budget(context, needs="--until-decided", wanted=until_decided)
    gate = command.Gate(
        registry.named(form, "check"),
        junit,
        parse_share("--tolerance", tolerance),
        options.inconclusive_from(inconclusive),
        until_decided,
        budget,
    )
    if resume is not None:
        judging = {"resume", "tolerance", "until_decided", "budget", "inconclusive", "junit", "form", "quiet"}
        judging |= {"allow_code"}
        options.refuse_plan(context, "--resume takes its plan and its Pythons from the file", judging)
        return command.resume(resume, gate, context.obj.world, allowed=allow_code, quiet=quiet)
    if allow_code:
        raise UsageError("--allow-code needs --resume: what you name yourself is allowed")
    if a is None or b is None:
        raise UsageError("--a and --b are required: --a old/bin/python --b new/bin/python")
    path = None if output is None else run_file.named(output)
    return command.start((a, b), options.spec_from(context), path, gate, context.obj.world, quiet=quiet)


@app.command()
def history(  # noqa: PLR0913 - one parameter for each option
    folder: Annotated[Path, typer.Argument(metavar="DIR", hidden=True)] = Path(".vebench"),  # described below
    *,
    metric: Annotated[
        str,
        typer.Option(
            metavar="METRIC",
            help="fps, or speedup over for-loop in the same run. auto: fps if all runs are of one machine.",
        ),
    ] = "auto",
    env: options.OnlyEnvs = None,
    backend: options.OnlyBackends = None,
    form: options.HistoryFormat = None,
    output: options.OutputFile = None,
) -> int:
    """Show the levels of many runs over time, and where they changed.

    DIR is a folder of run files. Default: .vebench/. Exit status: 0 no new change for the worse, 1 slower in the newest
    runs than before, 2 bad input, 3 too few runs to say.

    \b
    vebench history
    vebench history runs -b gym-async -f json
    """  # noqa: D301 - as above
    from vebench.commands import history as command
    from vebench.plan.grammar import parse_backends, parse_envs

    request = command.HistoryRequest(
        folder,
        options.one_of("--metric", metric, ("auto", "fps", "speedup")),
        parse_envs(env or ()),
        parse_backends(backend or ()),
    )
    return command.run(request, form, output)


@app.command()
@options.asks_for_spec(
    without=("backends", "until", "budget", "base", "interleave", "replicas", "learner", *ON_HOSTS),
    first=("name",),
    changing=True,
)
def study(  # noqa: PLR0913 - one parameter for each option
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="NAME", hidden=True)] = None,  # described below
    *,
    list_: Annotated[bool, typer.Option("--list", help="Show the studies with their questions.")] = False,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="New folder for the run files. Default: one in .vebench/."),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Finish the study in this folder; its plan comes from there.")
    ] = None,
    from_: Annotated[
        Path | None,
        typer.Option("--from", metavar="DIR", help="Measure nothing: answer from the run files in this folder."),
    ] = None,
    allow_code: options.AllowCode = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plans and measure nothing.")] = False,
    form: options.StudyFormat = None,
    output: options.OutputFile = None,
    quiet: options.Quiet = False,
) -> int:
    """Measure what answers a question, and answer it in a sentence with intervals.

    NAME is a study of vebench, or MODULE:NAME, one of your own. Without one, they are listed. Each part of a study is
    an ordinary run file. Options of its plan change all parts. Exit status: 0 answered, 1 also, but a cell failed or
    did other work, 2 bad input, 3 nothing can be concluded.

    \b
    vebench study --list
    vebench study exchange --env mymodule:MyEnv-v0
    vebench study overlap --policy mlp:256x256 --workers 4 -o overlap.md
    vebench study exchange --from .vebench/study-exchange-20261121T081500Z -f json
    """  # noqa: D301 - as above
    from vebench.commands import study as command
    from vebench.commands.target import Target

    given = options.given(context)
    if list_ or name is None:
        if name is not None:
            raise UsageError(f"--list shows all studies: leave out {name}")
        options.refuse_plan(context, "without a NAME, studies are listed", {"list_"})
        return command.show_studies()
    target = Target.of(form, output, "study")
    shown = {"name", "form", "output"}
    if from_ is not None:
        options.refuse_plan(context, "--from measures nothing", {*shown, "from_"})
        return command.conclude(name, from_, target)
    if resume is not None:
        kept = {*shown, "resume", "allow_code", "dry_run", "quiet"}
        options.refuse_plan(context, "--resume takes its plan from the folder", kept)
        return command.resume(name, resume, target, context.obj.world, dry_run=dry_run, allowed=allow_code, quiet=quiet)
    if "allow_code" in given:
        raise UsageError("--allow-code needs --resume: what you name yourself is allowed")
    changes = options.changes_from(context)
    return command.start(name, changes, folder, target, context.obj.world, dry_run=dry_run, quiet=quiet)


@app.command()
@options.asks_for_spec(
    only=(
        *("envs", "backends", "seed", "pin", "membind", "smt", "reserve_cpus", "memory"),
        *("timeout", "policy", "device", "torch_threads"),
    ),
    instead="--resume",
)
def tune(  # noqa: PLR0913 - one parameter for each option
    context: typer.Context,
    *,
    batch: Annotated[
        int | None, typer.Option(metavar="N", help="Rows of a batch, as the learner takes them. Default: any number.")
    ] = None,
    learner: Annotated[
        str | None,
        typer.Option(metavar="TIME[/STEPS]", help="What learning takes for each batch, or each STEPS steps: 4ms."),
    ] = None,
    asynchronous: Annotated[
        str,
        typer.Option("--async", metavar="ok|no", help="Whether rows may come from whichever environments are ready."),
    ] = "ok",
    budget: Annotated[str, typer.Option(metavar="TIME", help="Longest time to measure: 90s, 2m.")] = "2m",
    tolerance: Annotated[
        str, typer.Option(metavar="SHARE", help="What may be given up for something simpler, and left undecided.")
    ] = "5%",
    resume: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Go on with the race in this run file, for as long again.")
    ] = None,
    allow_code: options.AllowCode = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be tried and measure nothing.")] = False,
    form: options.TuneFormat = None,
    output: options.OutputFile = None,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="New run file for all that is measured. Default: in .vebench/.")
    ] = None,
    quiet: options.Quiet = False,
) -> int:
    """Say which backend to use here, with how many workers and environments, and how sure that is.

    Settings race against each other: what is slower beyond doubt is measured no more. The run file is an ordinary one.
    Exit status: 0 answered, 2 bad input, 3 the time did not suffice, or nothing can be recommended.

    \b
    vebench tune --env Pong
    vebench tune -e mymodule:MyEnv-v0 --batch 64 --learner 4ms
    vebench tune -e HalfCheetah --async no --budget 5m -f json
    """  # noqa: D301 - as above
    from vebench.commands import tune as command
    from vebench.commands.target import Target

    target = Target.of(form, output, "tune")
    wish = command.wish(batch, asynchronous, tolerance)
    if resume is not None:
        kept = {"resume", "tolerance", "budget", "allow_code", "form", "output", "quiet"}
        options.refuse_plan(context, "--resume takes its plan from the file", kept)
        seconds = command.seconds(budget)
        return command.resume(resume, wish, seconds, target, context.obj.world, allowed=allow_code, quiet=quiet)
    if "allow_code" in options.given(context):
        raise UsageError("--allow-code needs --resume: what you name yourself is allowed")
    spec = command.short(options.spec_from(context), command.seconds(budget), learner)
    return command.start(spec, wish, file, target, context.obj.world, dry_run=dry_run, quiet=quiet)


@app.command()
@options.asks_for_spec(only=("envs", "backends", "timeout"))
def verify(  # noqa: PLR0913 - one parameter for each option
    context: typer.Context,
    *,
    steps: Annotated[
        int, typer.Option(metavar="N", help="Steps of each environment in the first layout, at least.")
    ] = 400,
    num_envs: Annotated[
        int, typer.Option(metavar="N", help="Environments stepped at a time in the first layout, or one more.")
    ] = 2,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="What layouts, lengths, seeds and actions are drawn from. Default: drawn anew."),
    ] = None,
    form: options.VerifyFormat = "terminal",
    save_frames: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="If pictures differ, write both and their difference here, as PNG."),
    ] = None,
) -> int:
    """Compare what backends return with what a plain loop returns.

    Steps each backend in three layouts, the first on a variant of the task without chance, and compares rows byte by
    byte: all of the layout asked for, then those of one environment, then of three among four to six. Exit status: 0
    the same, 1 a backend does other work or fails, 2 bad input, 3 none could be compared. Verdicts on known backends
    and tasks are kept for later runs.

    \b
    vebench verify -e Pong
    vebench verify -e CartPole -b mymodule:MyBackend --num-envs 8 --steps 5000
    """  # noqa: D301 - as above
    from vebench.commands import verify as command

    spec = command.with_seed(options.spec_from(context), seed)
    return command.verify(
        spec, context.obj.world, num_envs=num_envs, steps=steps, form=registry.named(form, "verify"), frames=save_frames
    )


@app.command(name="list")
def list_() -> None:
    """Show what can be measured here, and why the rest cannot."""
    from vebench.commands import list as command

    command.show_list()


@app.command()
def peers(
    words: Annotated[list[str] | None, typer.Argument(metavar="[setup NAME...]")] = None,
    *,
    python: Annotated[
        str | None, typer.Option(metavar="PYTHON", help="Set up with this Python. Default: the first that fits.")
    ] = None,
) -> int:
    """Show other projects' backends and what they need, or set up interpreters that have them.

    An interpreter is a virtual environment of its own in the cache folder, with the same simulators as vebench's.
    Exit status: 0 done, 1 something could not be had, 2 bad input.

    \b
    vebench peers
    vebench peers setup sb3 tianshou
    vebench peers setup all
    """  # noqa: D301 - as above
    from vebench.commands import peers as command

    return command.peers(words or [], python)


@app.command()
@options.asks_for_spec(only=("pin", "smt"))
def doctor(
    context: typer.Context,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print it for other programs.")] = False,
    sysroot: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Show another machine: a folder with a copy of its /sys and /proc."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", "-w", metavar="N", help="Show where this many workers would be placed.")
    ] = None,
) -> int:
    """Show the machine as vebench sees it: CPUs, caches, memory nodes, what may be used, and what to fix.

    Changes nothing.
    """
    from vebench.commands import doctor as command

    return command.examine(sysroot, workers, context.params["pin"], context.params["smt"], as_json=as_json)


if __name__ == "__main__":
    main()
