"""The command line: parse, compose, report errors. Everything heavier is imported when a command runs."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from vebench import __version__, options
from vebench.backends.entry import MAX_COUNT
from vebench.errors import InterruptedRunError, UsageError, VebenchError, one_line
from vebench.options import option
from vebench.plan.spec import (
    ADVANCED,
    COMPARE_SETTINGS,
    HOW_LONG,
    MAX_WORKERS,
    OPTIONS,
    OUTPUT,
    PLAN_OF_RUN,
    SETTINGS,
    TOLERANCE,
    TUNE_SETTINGS,
    UNTIL_BUDGET,
    VERDICT,
    WHAT,
    effort,
)
from vebench.reports.formats import registry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.commands.session import World

app = typer.Typer(
    help="Measure which vector-env backend is fastest on this machine, and how far to trust the figure.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

share = typer.Typer(
    help="Submit a run for others to check, publish submissions, or quote a run.", rich_markup_mode=None
)
app.add_typer(share, name="share")

_command_of = cache(typer.main.get_command)  # with all its options, it takes a while to make


def invoke(arguments: Sequence[str], world: World | None = None) -> int:  # noqa: PLR0911 - one for each kind of end
    """Run a command line, and return the exit status. Errors that users can meet are one line on standard error."""
    command = _command_of(app)
    try:
        # Typer's own entry point would report some of its errors itself.
        with command.make_context("vebench", [*arguments], obj=partial(_world, tuple(arguments), world)) as context:
            if sys.platform == "win32":  # processes are ended by group and waited for with poll(), as in POSIX
                return _fail("Windows is not supported: use WSL, Linux or macOS", UsageError.exit_status)
            return command.invoke(context) or 0
    except typer.Exit as done:
        return done.exit_code
    except VebenchError as error:
        return _fail(str(error), error.exit_status)
    except typer.TyperException as error:
        return _fail(error.format_message(), UsageError.exit_status)
    except BrokenPipeError:  # the reader of our output has closed it, as `head` does
        _discard(sys.stdout)
        return 0
    except OSError as error:
        _discard(sys.stdout)
        return _fail(f"{error.filename or 'standard output'}: {error.strerror}", UsageError.exit_status)
    except BaseException as error:
        if not _was_interrupt(error):
            raise
        return _fail("interrupted", InterruptedRunError.exit_status)


def _world(arguments: tuple[str, ...], world: World | None) -> World:
    from vebench.commands.session import World

    return replace(world or World(), arguments=arguments)


def _was_interrupt(error: BaseException | None) -> bool:
    """Return whether an error came of Ctrl-C: Python 3.11 makes a RuntimeError of one that meets a class's making."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _fail(text: str, status: int) -> int:
    try:
        typer.echo(f"vebench: {one_line(text)}", err=True)
    except OSError:  # standard error is closed: the exit status has to be enough
        _discard(sys.stderr)
    return status


def _discard(stream: TextIO) -> None:
    from vebench.reports.console import discard

    discard(stream)


@app.callback(invoke_without_command=True)
def vebench(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Measure which vector-env backend is fastest on this machine, and how far to trust the figure."""
    if version:
        typer.echo(f"vebench {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(UsageError.exit_status)


@app.command(
    cls=options.with_plan(
        *(one for one in OPTIONS if one not in SETTINGS), settings=SETTINGS, efforts="run", **PLAN_OF_RUN
    ),
    context_settings={"allow_extra_args": True},  # so that the error can say how to name an environment
)
def run(
    context: typer.Context,
    *,
    verify: Annotated[bool, option(VERDICT, "", "First compare backends with a plain loop.", "--verify")] = False,
    output: Annotated[Path | None, options.output_option("run", "Run file")] = None,
    resume: Annotated[Path | None, option(OUTPUT, "FILE", "Finish the run in this file, by its own plan.")] = None,
    allow_code: Annotated[bool, option(ADVANCED, "", options.ALLOWED + " and hosts.", "--allow-code")] = False,
    dry_run: Annotated[bool, option(OUTPUT, "", "Print the plan; measure and write nothing.", "--dry-run")] = False,
    quiet: Annotated[bool, option(OUTPUT, "", "No progress and no table.", "--quiet", "-q")] = False,
) -> int:
    """Measure, and print a table and an answer.

    Join several environments, backends or counts by commas, or repeat the option. Exit status: 0 done, 1 a cell failed
    or did other work, 2 bad input, 3 other processes disturbed most cells.

    \b
    vebench run -e Pong -w 1..8
    vebench run -e Pong --quick -o report.html
    vebench run -e Ant,Hopper -b for-loop,envpool-sync -w 2 -o mujoco.jsonl
    """
    from vebench.commands import run as command

    if context.args:
        raise UsageError(f"{context.args[0]}: unexpected argument; to name an environment: --env {context.args[0]}")
    file, outlet = options.outlet("run", output)
    if resume is not None:
        kept = {"resume", "allow_code", "dry_run", "quiet", *(["output"] if outlet.report else [])}
        options.refuse_plan(context, "--resume takes its plan from the file", kept)
        return command.resume(resume, context.obj(), outlet=outlet, dry_run=dry_run, allowed=allow_code, quiet=quiet)
    if allow_code:
        raise UsageError("--allow-code needs --resume: what you name yourself is allowed")
    until = UNTIL_BUDGET if context.params["budget"] is not None else None
    spec = options.spec_from(context, **PLAN_OF_RUN, until=until)
    if spec.suite:
        fixed = {"suite", "backends", "output", "verify", "dry_run", "quiet"}
        options.refuse_plan(context, f"--suite {spec.suite} has a plan of its own", fixed)
        spec = command.of_suite(spec.suite, spec.backends, context.obj())
    return command.start(spec, file, context.obj(), outlet=outlet, verify=verify, dry_run=dry_run, quiet=quiet)


@app.command()
def report(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", hidden=True),  # described below, without the name of its Python type
    ] = None,
    *,
    form: Annotated[str | None, options.format_option("run")] = None,
    output: Annotated[Path | None, options.output_option("run")] = None,
    every_finding: Annotated[
        bool,
        typer.Option("--all", help="Also show notes, the measuring loop's cost, all figures, and each run separately."),
    ] = False,
    columns: Annotated[
        list[str] | None,
        option(OUTPUT, "NAME", "Also show these in tables: efficiency, peak_rss, startup ... Comma or repeat."),
    ] = None,
    forecast: Annotated[
        int | None,
        option(OUTPUT, "N", "Also predict rates of N workers, at most twice those measured.", min=1, max=MAX_COUNT),
    ] = None,
) -> None:
    """Render a run as tables and figures, or compare several runs.

    FILE is a run file or a folder of run files. Default: the newest run in .vebench/. A run that was written elsewhere,
    with -o, must be named. Several runs are shown side by side, relative to the first. -o NAME.md also writes figures
    to files next to it.

    \b
    vebench report
    vebench report pong.jsonl -o pong.md
    vebench report pong.jsonl -o figure.pdf
    vebench report old-machine.jsonl new-machine.jsonl
    vebench report --all --columns efficiency,of_ceiling
    """
    from vebench.commands import report as command
    from vebench.reports.columns import column_names
    from vebench.reports.document import View

    chosen = column_names("--columns", columns or ())
    view = View(chosen, every_finding, forecast=forecast)
    _, outlet = options.outlet("run", output, form, measures=False)
    command.report(files or (), outlet, view)


@app.command(cls=options.Grouped)
def check(
    context: typer.Context,
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", hidden=True)],  # described below
    *,
    envs: options.OnlyEnvs = None,
    backends: options.OnlyBackends = None,
    budget: Annotated[float, options.budget("Longest time to measure, from two passes on.")] = 600.0,
    tolerance: options.Tolerance = f"{TOLERANCE:.0%}",
    metric: Annotated[
        str, option(VERDICT, "METRIC", "yardstick (rates over fixed work), speedup or fps.")
    ] = "yardstick",
    history: Annotated[
        Path | None,
        option(VERDICT, "DIR", "Earlier runs, which show by how much runs differ.  [default: an assumption]"),
    ] = None,
    allow_different_host: Annotated[
        bool, option(ADVANCED, "", "Compare even if machines or simulators differ.", "--allow-different-host")
    ] = False,
    form: Annotated[str, options.format_option("check")] = "terminal",
    output: Annotated[Path | None, options.output_option("check", "Run file of the candidate")] = None,
    allow_code: options.AllowCode = False,
) -> int:
    """Judge whether a run is slower than a baseline.

    Each RUN is a run file: the baseline, then the candidate. Without a candidate, the baseline's plan is measured again
    here, until every backend has a verdict or the budget is spent. Exit status: 0 not slower, 1 slower, or a cell
    failed or did other work in the candidate alone, 2 bad input, 3 not comparable or inconclusive.

    \b
    vebench check before.jsonl after.jsonl
    vebench check baseline.jsonl --tolerance 15% -o check.xml
    """
    from vebench.gates import check as command
    from vebench.plan.grammar import parse_backends, parse_envs, parse_share

    baseline, *candidates = runs
    file, outlet = options.outlet("check", output, form)
    if len(candidates) > 1:
        raise UsageError(f"{candidates[1]}: give a baseline and at most one candidate")
    if candidates:
        judging = context.params.keys() - {"budget", "allow_code", *([] if outlet.report else ["output"])}
        options.refuse_plan(context, f"nothing is measured if a candidate is given ({candidates[0]})", judging)
    request = command.CheckRequest(
        baseline,
        candidates[0] if candidates else None,
        file,
        parse_share("--tolerance", tolerance),
        options.one_of("--metric", metric, ("yardstick", "speedup", "fps")),
        parse_envs(envs or ()),
        parse_backends(backends or ()),
        allow_different_host,
        history,
        budget,
        allow_code,
    )
    return command.run(request, context.obj(), outlet=outlet)


@app.command(
    cls=options.with_plan(
        "envs", "backends", "workers", "passes", settings=COMPARE_SETTINGS, efforts="compare", **effort("compare")
    )
)
def compare(
    context: typer.Context,
    a: Annotated[str, typer.Argument(metavar="PYTHON_A", hidden=True)],  # described below
    b: Annotated[str, typer.Argument(metavar="PYTHON_B", hidden=True)],
    *,
    # A plan has a budget, too.
    deciding: Annotated[float | None, options.budget("Add passes until all have a verdict, this long at most.")] = None,
    tolerance: options.Tolerance = f"{TOLERANCE:.0%}",
    form: Annotated[str, options.format_option("check")] = "terminal",
    output: Annotated[Path | None, options.output_option("check", "Run files, with -a and -b added to it")] = None,
) -> int:
    """Measure two Pythons in turn, and judge whether B is slower.

    Both measure the same cells on the same CPUs. Each needs the simulators and numpy, but not vebench, and version 3.10
    or later. By default, the usual backends are measured, without reference rows. Exit status: 0 B is not slower than
    A, 1 slower, or a cell failed or did other work in B alone, 2 bad input, 3 not comparable or inconclusive.

    \b
    vebench compare old/bin/python new/bin/python -e Pong -w 2 -b gym-async
    vebench compare old/bin/python new/bin/python -e Pong --budget 10m
    """
    from vebench.gates import compare as command
    from vebench.plan.grammar import parse_share

    file, outlet = options.outlet("check", output, form)
    spec, share = options.spec_from(context, proof="auto"), parse_share("--tolerance", tolerance)
    return command.start((a, b), spec, file, context.obj(), tolerance=share, budget=deciding, outlet=outlet)


@app.command(cls=options.with_plan("envs", "backends", "workers", settings=COMPARE_SETTINGS))
def bisect(
    context: typer.Context,
    *,
    good: Annotated[str, option(WHAT, "NAME", "A commit or release before the change.", "--good")],
    bad: Annotated[str, option(WHAT, "NAME", "A later one after it.", "--bad")],
    repository: Annotated[Path, option(WHAT, "DIR", "What pip installs, in a git repository.", "--repo")] = Path(),
    package: Annotated[str, option(WHAT, "NAME", "Bisect the releases of this package instead.", "--package")] = "",
    needed: Annotated[
        list[str] | None, option(WHAT, "PACKAGE", "Also install this with each candidate. Repeat.", "--with")
    ] = None,
    # A plan has a budget, too.
    deciding: Annotated[float, options.budget("Longest time to begin steps.")] = 3600.0,
    form: Annotated[str, options.format_option("bisect")] = "terminal",
    output: Annotated[Path | None, options.output_option("bisect", "File of steps")] = None,
    resume: Annotated[Path | None, option(OUTPUT, "FILE", "Go on with this file, for another --budget.")] = None,
) -> int:
    """Find the commit or release that made sampling slower, or faster.

    Installs candidates into temporary environments, and compares each with the good end as vebench compare does, until
    one has made the change with a probability of 99 %. Candidates that cannot be installed or measured are skipped.
    Exit status: 0 found, 2 bad input, 3 undecided, or the ends do not differ.

    \b
    vebench bisect --good v1.0 --bad main -e CartPole -b gym-sync -w 2
    vebench bisect --package numpy --good 2.0.2 --bad 2.4.6 -e CartPole -b gym-sync -w 1 --with gymnasium
    """
    from vebench.gates import bisect as command

    file, outlet = options.outlet("bisect", output, form)
    spec = options.spec_from(context, proof="auto", **effort("compare", "low"))
    request = command.BisectRequest(good, bad, repository, package, tuple(needed or ()), spec, deciding)
    return command.start(request, file, resume, outlet, context.obj())


@app.command()
def history(
    folder: Annotated[Path, typer.Argument(metavar="DIR", hidden=True)] = Path(".vebench"),  # described below
    *,
    env: options.OnlyEnvs = None,
    backend: options.OnlyBackends = None,
    keep: Annotated[
        Path | None,
        option(OUTPUT, "RUN", "Copy this run file to DIR first, and commit it if DIR is a git work tree.", "--store"),
    ] = None,
    form: Annotated[str | None, options.format_option("history")] = None,
    output: Annotated[Path | None, options.output_option("history")] = None,
) -> int:
    """Show the rates of many runs over time, and when they changed.

    DIR is a folder of run files. Default: .vebench/. Exit status: 0 no new change for the worse, 1 slower in the newest
    runs than before, 2 bad input, 3 too few runs to say.

    \b
    vebench history
    vebench history runs -b gym-async -f json
    vebench history runs --store run.jsonl
    """
    from vebench.gates import history as command
    from vebench.plan.grammar import parse_backends, parse_envs

    _, outlet = options.outlet("history", output, form, measures=False)
    return command.history(folder, parse_envs(env or ()), parse_backends(backend or ()), keep, outlet)


@app.command(cls=options.with_plan("envs", "backends", "learner", settings=TUNE_SETTINGS))
def tune(
    context: typer.Context,
    *,
    batch: Annotated[int | None, option(WHAT, "N", "Rows that the learner takes.  [default: any number]")] = None,
    asynchronous: Annotated[str, option(WHAT, "ok|no", "Allow asynchronous backends.", "--async")] = "ok",
    budget: Annotated[float, options.budget("Longest time to measure.")] = 120.0,
    margin: Annotated[str, option(VERDICT, "SHARE", "Accept this much less throughput for a simpler setup.")] = "5%",
    form: Annotated[str, options.format_option("tune")] = "terminal",
    output: Annotated[Path | None, options.output_option("tune", "Run file")] = None,
    resume: Annotated[Path | None, option(OUTPUT, "FILE", "Go on with this file for another --budget.")] = None,
    allow_code: options.AllowCode = False,
) -> int:
    """Find which backend, workers and environments to use.

    Settings race: significantly slower ones are dropped. Here, the usual backends include ale-vector-* and those of
    other projects, as far as they are installed. `vebench report` reads the run file. Exit status: 0 decided, 2 bad
    input, 3 undecided within the budget, or nothing to recommend.

    \b
    vebench tune --env Pong
    vebench tune -e mymodule:MyEnv-v0 --batch 64 --learner 4ms
    vebench tune -e HalfCheetah --async no --budget 5m -f json
    """
    from vebench.tune import command

    file, outlet = options.outlet("tune", output, form)
    wanted = command.constraints(batch, asynchronous, margin)
    if resume is not None:
        kept = {"resume", "margin", "budget", "allow_code", "form", *(["output"] if outlet.report else [])}
        options.refuse_plan(context, "--resume takes its plan from the file", kept)
        return command.resume(resume, wanted, budget, outlet, context.obj(), allowed=allow_code)
    if allow_code:
        raise UsageError("--allow-code needs --resume: what you name yourself is allowed")
    return command.start(options.spec_from(context), wanted, file, outlet, context.obj())


@app.command(cls=options.with_plan("envs", "backends", "seed", "timeout", settings=(), timeout=300.0))
def verify(
    context: typer.Context,
    pair: Annotated[list[str] | None, typer.Argument(metavar="A B", hidden=True)] = None,  # described below
    *,
    steps: Annotated[int, option(HOW_LONG, "N", "Least steps of each environment in the first layout.")] = 400,
    num_envs: Annotated[int, option(WHAT, "N", "Environments in the first layout, or one more.")] = 2,
    within: Annotated[
        list[str] | None,
        option(ADVANCED, "LIMIT", "For A B: observations=1e-6, rewards=0.1%, FIELD=4ulp@STEPS; or distribution."),
    ] = None,
    policy: Annotated[
        str | None, option(WHAT, "POLICY", "Of A B: hold, sweep, actions.npy or MODULE:FUNCTION (default: mixed).")
    ] = None,
    form: Annotated[str | None, options.format_option("verify")] = None,
    output: Annotated[Path | None, options.output_option("verify")] = None,
) -> int:
    """Compare what backends return with what a plain loop returns, or any two implementations with each other.

    Steps each backend in three layouts (numbers of environments) and compares all rows byte by byte: --num-envs on a
    deterministic variant of the task, then one environment, then four to six. Layouts, lengths and actions are drawn
    anew each time, unless --seed is given. Verdicts on known backends and tasks are kept for later runs. Exit status: 0
    the same, 1 a backend does other work or fails, 2 bad input, 3 none could be compared.

    A and B are two environments or vector environments, by Gymnasium's id or as module:callable, each with arguments in
    brackets and @PYTHON if it runs in another one. A callable with parameters num_envs and seed gets them. Where the
    two part, the smallest example is written as a script to .vebench/example.py.

    \b
    vebench verify -e Pong
    vebench verify -e CartPole -b mymodule:MyBackend --num-envs 8 --steps 5000
    vebench verify CartPole-v1 mymodule:make_vector
    vebench verify HalfCheetah-v5 HalfCheetah-v5@other/bin/python --within observations=1e-9@100
    """
    _, outlet = options.outlet("verify", output, form, measures=False)
    if pair:
        from vebench.commands.proving import drawn_seed
        from vebench.equality import diff as of_two

        options.refuse_plan(context, "A and B name what is compared", set(context.params) - {"envs", "backends"})
        seed = drawn_seed() if context.params["seed"] is None else context.params["seed"]
        asked = of_two.PairRequest(pair, steps, num_envs, seed, context.params["timeout"], within or (), policy)
        verdict = of_two.compared(asked)
        outlet.publish(verdict)
        return of_two.status(verdict)
    for name, given in (("--within", within), ("--policy", policy)):
        if given:
            raise UsageError(f"{name} needs A B: backends are compared byte by byte, with random actions")
    from vebench.equality import verify as command

    spec = options.spec_from(context)
    seed = context.params["seed"]
    page = command.compared(spec, seed, context.obj(), num_envs=num_envs, steps=steps)
    outlet.publish(page)
    return command.status(page.proofs)


@share.command()
def make(
    run: Annotated[Path, typer.Argument(metavar="RUN", hidden=True)],  # described below
    *,
    output: Annotated[
        Path | None, option(OUTPUT, "DIR", "Write the submission to this new folder.", "--output", "-o")
    ] = None,
) -> int:
    """Make a submission of a run with a fixed plan.

    RUN is a run file of vebench run --suite. Shows whether the submission would be accepted; with -o, also writes it:
    the run, the machine, the packages, and the rates with checksums, without folders of this machine. Exit status: 0
    accepted, 1 it would be refused, 2 bad input.

    \b
    vebench run --suite classic-3 -o classic.jsonl
    vebench share make classic.jsonl -o submissions/my-machine
    """
    from vebench.share import make as command

    return command.make(run, output)


@share.command(name="check")
def share_check(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR", hidden=True)],  # described below
    *,
    form: Annotated[str, options.format_option("submission")] = "terminal",
) -> int:
    """Check submissions for mistakes, and say how to correct them.

    Each DIR is a folder that vebench share make has written. Nothing in it is executed. Exit status: 0 all are
    accepted, 1 one is refused, 2 bad input.

    \b
    vebench share check submissions/*/
    """
    from vebench.share import check as command

    _, outlet = options.outlet("submission", None, form, measures=False)
    return command.check(folders, outlet)


@share.command()
def site(
    folder: Annotated[Path, typer.Argument(metavar="DIR", hidden=True)],  # described below
    *,
    output: Annotated[
        Path, option(OUTPUT, "DIR", "Write to this folder: a new one, or an earlier site.", "--output", "-o")
    ],
) -> int:
    """Write a static site of submissions: an index, and a page for each machine.

    DIR is a folder of folders that vebench share make has written. Damaged ones are left out, with the reason. The site
    needs no server. Exit status: 0 done, 2 bad input, or no submission.

    \b
    vebench share site submissions -o site
    """
    from vebench.share import site as command

    return command.build(folder, output)


@share.command()
def cite(
    run: Annotated[Path, typer.Argument(metavar="RUN", hidden=True)],  # described below
    *,
    output: Annotated[Path | None, options.output_option("cite")] = None,
) -> None:
    """Show how to quote a run: a sentence for each task, and an entry for BibTeX.

    RUN is a run file. The rates are those of the fastest backends, with what is needed to repeat them.

    \b
    vebench share cite pong.jsonl
    vebench share cite pong.jsonl -o pong.bib
    """
    from vebench.share import cite as command

    _, outlet = options.outlet("cite", output, measures=False)
    command.cite(run, outlet)


@app.command(name="list")
def list_() -> None:
    """Show what can be measured here, and why the rest cannot."""
    from vebench.reports.console import show
    from vebench.reports.pages.list import list_page

    show(list_page())


@app.command()
def peers(words: Annotated[list[str] | None, typer.Argument(metavar="setup NAME", hidden=True)] = None) -> int:
    """Show or set up the backends of other projects.

    Shows what each needs. Setting up makes a virtual environment for each project in the cache folder, with the same
    simulators as vebench's. Exit status: 0 done, 1 something could not be installed, 2 bad input.

    \b
    vebench peers
    vebench peers setup sb3 tianshou
    vebench peers setup all
    """
    from vebench.commands import peers as command

    return command.peers(words or [])


@app.command()
def doctor(
    workers: Annotated[
        int | None,
        typer.Option("--workers", "-w", metavar="N", help="Show where this many would be.", min=1, max=MAX_WORKERS),
    ] = None,
    pin: Annotated[str | None, options.of_plan("pin")] = None,
    sysroot: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Show a copy of another's /sys and /proc.")
    ] = None,
    form: Annotated[str, options.format_option("machine")] = "terminal",
) -> int:
    """Show CPUs, caches and memory nodes as vebench sees them, and what to fix. Changes nothing."""
    from vebench.commands import doctor as command
    from vebench.plan.grammar import parse_pin

    return command.examine(sysroot, workers, parse_pin(pin or "compact"), registry.format_named(form, "machine"))
