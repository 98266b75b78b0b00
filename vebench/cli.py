"""The command line: parse, call one command, report errors. Each command imports its own modules when it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vebench import HOME, __version__, options
from vebench.backends.entry import MAX_COUNT
from vebench.backends.training import ALGORITHMS
from vebench.errors import InterruptedRunError, UsageError, VebenchError, discard, one_line, write_error
from vebench.options import Call, argument, command, option
from vebench.plan import grammar
from vebench.plan.grammar import ADVANCED, FILE, HOW_LONG, OUTPUT, VERDICT, WHAT, Kind, listed, share, whole, word
from vebench.plan.spec import MARGIN, OPTIONS, RunSpec, asked

if TYPE_CHECKING:
    from vebench.commands.session import World


def invoke(arguments: Sequence[str], world: World | None = None) -> int:  # noqa: PLR0911 - one return for each kind of error
    """Run a command line, and return the exit status. Expected errors are one line on standard error."""
    completion = "_VEBENCH_COMPLETE"  # the variable that click's scripts for shells set
    try:
        if instruction := os.environ.get(completion):
            return click.shell_completion.shell_complete(app, {}, "vebench", completion, instruction)
        # Click's entry point would report some errors in its own form.
        with app.make_context("vebench", [*arguments], obj=(world, tuple(arguments))) as context:
            if sys.platform == "win32":  # vebench needs process groups and poll() of POSIX
                return _fail("Windows is not supported: use WSL, Linux or macOS", UsageError.exit_status)
            return app.invoke(context) or 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except VebenchError as error:
        return _fail(str(error), error.exit_status)
    except click.ClickException as error:
        return _fail(error.format_message(), UsageError.exit_status)
    except BrokenPipeError:  # the reader of the output has closed the pipe, as `head` does
        discard(sys.stdout)
        return 0
    except OSError as error:
        discard(sys.stdout)
        return _fail(f"{error.filename or 'standard output'}: {error.strerror}", UsageError.exit_status)
    except KeyboardInterrupt:
        return _fail("interrupted", InterruptedRunError.exit_status)


def _fail(text: str, status: int) -> int:
    write_error(f"vebench: {one_line(text)}\n")
    return status


@click.group(
    cls=options.Commands,
    invoke_without_command=True,
    subcommand_metavar="COMMAND ...",
    epilog=f"Documentation: {HOME}",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="vebench", message="%(prog)s %(version)s")
def app() -> None:
    """Find the fastest way to step RL environments on this machine.

    vebench COMMAND --help explains a command.
    """


@command(
    app,
    "Measure",
    options.NAMED,
    *options.of_plan("run"),
    option(HOW_LONG, "--quick", "Short for --effort low."),
    option(VERDICT, "--verify", "First compare backends with a plain loop, as vebench verify does."),
    options.output("run", "Run file"),
    option(OUTPUT, "--resume FILE", "Finish the run in this file, with its own plan.", FILE),
    options.ALLOW_CODE,
    option(OUTPUT, "--dry-run", "Print the plan and its time; measure nothing."),
    option(OUTPUT, "--quiet -q", "Show no progress and no table."),
)
def run_(call: Call) -> int:
    """Measure backends, and say which is fastest and how sure that is.

    ENV is an environment, as for --env. Separate several values by commas, or repeat the option.
    Exit status: 0 done, 1 a cell failed or did different work, 2 bad input, 3 most cells disturbed, or no rate.

    \b
    vebench run Pong
    vebench run Pong -w 1..8 --quick -o report.html
    vebench run Ant Hopper -b for-loop,envpool-sync -w 2 -o mujoco.jsonl
    """
    from vebench.commands import core

    file, outlet = call.outlet("run", measures=True)
    call.refuse_for_resume(file, "dry_run", "quiet", "budget")
    how = {"outlet": outlet, "dry_run": call.dry_run, "quiet": call.quiet}
    if call.resume is not None:
        return core.resume(call.resume, call.budget, call.world, allowed=call.allow_code, **how)
    if call.given >= {"effort", "quick"}:
        raise UsageError("--quick is --effort low: leave out one of them")
    spec = asked("run", call.plan, "low" if call.quick else call.effort)
    if spec.suite:
        fixed = {"suite", "backends", "output", "verify", "dry_run", "quiet"}
        call.refuse_others(f"--suite {spec.suite} has a plan of its own", fixed)
    return core.start(spec, file, call.world, verify=call.verify, **how)


@command(
    app,
    "Measure",
    options.NAMED,
    *options.of_plan("tune"),
    option(WHAT, "--batch N", "Rows of a batch that the learner takes.  [default: any number]", whole(1, MAX_COUNT)),
    option(WHAT, "--async ok|no", "Whether to try asynchronous backends.", word("ok", "no"), "ok", "asynchronous"),
    option(HOW_LONG, "--budget TIME", "Longest time to measure.", grammar.seconds(), 120.0),
    option(VERDICT, "--margin SHARE", "Accept this much less throughput for a simpler setup.", share(), MARGIN),
    *options.pages("tune", "Run file"),
    options.RESUME,
    options.ALLOW_CODE,
)
def tune(call: Call) -> int:
    """Recommend a backend, workers and environments, in two minutes.

    ENV is an environment, as for --env. Settings race: significantly slower ones are dropped. By default, ale-vector-*
    and installed backends of other projects take part, too. vebench report reads the run file.
    Exit status: 0 decided, 2 bad input, 3 undecided within the budget, or nothing to recommend.

    \b
    vebench tune Pong
    vebench tune mymodule:MyEnv-v0 --batch 64 --learner 4ms
    vebench tune HalfCheetah --async no --budget 5m -f json
    vebench tune Pong --for ppo --library sb3 --batch 64
    """
    from vebench.tune import race

    file, outlet = call.outlet("tune", measures=True)
    call.refuse_for_resume(file, "margin", "budget", "form")
    if call.resume is not None:
        return race.resume_tuning(call.resume, call.margin, call.budget, outlet, call.world, allowed=call.allow_code)
    spec, asynchronous = asked("tune", {**call.plan, "budget": call.budget}), call.asynchronous == "ok"
    if asynchronous and "asynchronous" in call.given and spec.algorithm and not ALGORITHMS[spec.algorithm].overlaps:
        raise UsageError(f"--async ok: {ALGORITHMS[spec.algorithm].title} needs whole batches in order")
    return race.start_tuning(spec, call.margin, call.batch, file, outlet, call.world, asynchronous=asynchronous)


@command(
    app,
    "Read",
    argument("files", "[FILE]...", Path),
    *options.pages("run"),
    option(OUTPUT, "--all", "Also show notes, the loop's cost, all numbers, and each run alone.", name="everything"),
    option(OUTPUT, "--columns NAME", "Also show these columns, such as efficiency,peak_rss.", listed(), ()),
    option(OUTPUT, "--forecast N", "Also predict rates of N workers, at most twice the measured.", whole(1, MAX_COUNT)),
)
def report_(call: Call) -> None:
    """Show runs as tables and charts, or side by side (no verdict).

    FILE is a run file or a folder of run files. Default: the newest run in .vebench/. A run that was written elsewhere,
    with -o, must be named. Several runs are shown relative to the first. -o NAME.md also writes files of charts.

    \b
    vebench report
    vebench report pong.jsonl -o pong.md
    vebench report pong.jsonl -o chart.pdf
    vebench report old-machine.jsonl new-machine.jsonl
    vebench report --all --columns efficiency,of_ceiling
    """
    from vebench.commands import core
    from vebench.reports.columns import column_names
    from vebench.reports.document import View

    view = View(column_names("--columns", call.columns), call.everything, forecast=call.forecast)
    _, outlet = call.outlet("run")
    core.report(call.files, outlet, view)


@command(
    app,
    "Regressions",
    argument("baseline", "BASELINE", Path),
    argument("candidate", "[CANDIDATE]", Path),
    *options.ONLY,
    option(HOW_LONG, "--budget TIME", "Longest time, but at least two passes are measured.", grammar.seconds(), 600.0),
    options.WORSE,
    options.METRIC,
    option(VERDICT, "--calibrate", "Given unchanged code, print the smallest tolerance that does not fail, by task."),
    option(VERDICT, "--history DIR", "Earlier runs, which show how runs differ.  [default: a usual spread]", FILE),
    *options.pages("check", "Run file of the candidate"),
    options.ALLOW_CODE,
)
def check_(call: Call) -> int:
    """Judge speed: two run files, or a run file and this machine.

    BASELINE and CANDIDATE are run files. Without a candidate, the baseline's plan is measured again here, until every
    backend has a verdict or the budget is spent.
    Exit status: 0 not slower, 1 the candidate alone is slower, fails or does different work, 2 bad input, 3 no verdict.

    \b
    vebench check before.jsonl after.jsonl
    vebench check baseline.jsonl --tolerance 15% -o check.xml
    """
    from vebench.gates import check, gate

    file, outlet = call.outlet("check", measures=True)
    if call.candidate is not None:
        measuring = {"budget", "allow_code"} | ({"output"} if file else set())
        call.refuse_others(f"nothing is measured if a candidate is given ({call.candidate})", call.given - measuring)
    names = ("tolerance", "metrics", "envs", "backends", "history", "budget", "calibrate", "allow_code")
    how = {name: getattr(call, name) for name in names}
    request = check.CheckRequest(call.baseline, call.candidate, file, **how)
    return gate.publish_verdicts(check.checked(request, call.world), outlet)


@command(
    app,
    "Regressions",
    argument("a", "PYTHON_A"),
    argument("b", "PYTHON_B"),
    *options.of_plan("compare"),
    option(HOW_LONG, "--budget TIME", "Add passes until all have a verdict, for this long at most.", grammar.seconds()),
    options.WORSE,
    options.METRIC,
    *options.pages("check", "Run files, with -a and -b added to the name"),
)
def compare_(call: Call) -> int:
    """Judge speed: two Pythons, measured here and interleaved.

    PYTHON_A and PYTHON_B are paths. Both measure the same cells on the same CPUs. Each needs version 3.10 or later, the
    simulators and numpy, but not vebench. Reference rows are not measured by default.
    Exit status: 0 B is not slower, 1 B alone is slower, fails or does different work, 2 bad input, 3 no verdict.

    \b
    vebench compare old/bin/python new/bin/python -e Pong -w 2 -b gym-async
    vebench compare old/bin/python new/bin/python -e Pong --budget 10m
    """
    from vebench.gates import check, gate

    file, outlet = call.outlet("check", measures=True)
    spec = asked("compare", call.plan, call.effort)
    how = {"tolerance": call.tolerance, "metrics": call.metrics, "budget": call.budget}
    return gate.publish_verdicts(check.compared((call.a, call.b), (spec, spec), file, call.world, **how), outlet)


@command(
    app,
    "Regressions",
    *options.of_plan("bisect"),
    option(WHAT, "--good NAME", "A commit or release from before the change.", Kind()),
    option(WHAT, "--bad NAME", "A commit or release from after the change.", Kind()),
    *options.OF_PAST,
    option(HOW_LONG, "--budget TIME", "Start no new comparison after this time.", grammar.seconds(), 3600.0),
    *options.pages("bisect", "File of steps"),
    options.RESUME,
)
def bisect_(call: Call) -> int:
    """Find the commit or release that made sampling slower or faster.

    Installs candidates into temporary environments, and compares each with the good end as vebench compare does, until
    one has made the change with a probability of 99 %. Candidates that cannot be installed or measured are skipped.
    Exit status: 0 found, 2 bad input, 3 undecided, or the ends do not differ.

    \b
    vebench bisect --good v1.0 --bad main -e CartPole -b gym-sync -w 2
    vebench bisect --package numpy --good 2.0.2 --bad 2.4.6 --with gymnasium \\
      -e CartPole -b gym-sync -w 1
    vebench bisect --package numpy --good 2.0.2 --bad 2.4.6 --repo . \\
      -e mypackage:make_env -w 1
    """
    from vebench.gates import bisect, past

    if call.good is None or call.bad is None:
        raise UsageError("--good and --bad: name a commit or release before the change, and one after it")
    file, outlet = call.outlet("bisect", measures=True)
    spec = asked("bisect", call.plan, "low")
    request = past.PastRequest(call.good, call.bad, call.repo, call.package, call.needed, spec, call.budget)
    return bisect.bisect(request, file, call.resume, outlet, call.world)


@command(
    app,
    "Regressions",
    argument("folder", "[DIR]", Path, default=Path(".vebench")),
    *options.of_plan("history"),
    option(WHAT, "--backfill A..B", "First measure commits A to B (releases, given --package) into DIR.", Kind()),
    *options.OF_PAST,
    option(HOW_LONG, "--budget TIME", "Start no further commit or release after this time.", grammar.seconds(), 3600.0),
    option(OUTPUT, "--store RUN", "First copy this run file to DIR.", FILE),
    *options.pages("history"),
)
def history_(call: Call) -> int:
    """Show rates of many runs over time, and when they changed.

    DIR is a folder of run files. Default: .vebench/. With --backfill, old commits or releases are measured there first,
    the oldest and the newest before others. Commits that cannot be measured are skipped.
    Exit status: 0 no new slowdown, 1 slower in the newest runs than before, 2 bad input, 3 too few runs to say.

    \b
    vebench history
    vebench history runs -b gym-async -f json
    vebench history runs --store run.jsonl
    vebench history runs --backfill v1.0..main -e mypackage:make_env \\
      -b for-loop -w 1 --budget 1h
    """
    from vebench.gates import history, past

    _, outlet = call.outlet("history")
    if call.backfill is None:
        shows = {"folder", "envs", "backends", "store", "form", "output"}
        call.refuse_others("without --backfill, nothing is measured", shows)
        return history.show_history(call.folder, call.envs or (), call.backends or (), call.store, outlet)
    first, _, last = call.backfill.partition("..")
    if not (first and last):
        raise UsageError(f"--backfill {call.backfill}: write A..B, such as v1.0..main")
    spec = asked("history", call.plan)
    request = past.PastRequest(first, last, call.repo, call.package, call.needed, spec, call.budget)
    past.backfill(request, call.folder, call.world)
    return history.show_history(call.folder, (), (), call.store, outlet)


@command(
    app,
    "Same results",
    argument("pair", "[A B]", nargs=-1),
    *options.of_plan("verify"),
    option(HOW_LONG, "--steps N", "Fewest steps of each environment in the first layout.", whole(1, 10**7), 400),
    option(WHAT, "--num-envs N", "Environments in the first layout, or at random one more.", whole(1, MAX_COUNT), 2),
    option(
        ADVANCED, "--within LIMIT", "A and B may differ: rewards=0.1%, FIELD=4ulp@STEPS, distribution.", listed(), ()
    ),
    option(WHAT, "--policy POLICY", "Chooses actions: MODULE:FUNCTION; for A B also hold, sweep, actions.npy.", Kind()),
    *options.pages("verify"),
)
def verify_(call: Call) -> int:
    """Judge equality: backends and a plain loop, or any A and B.

    Steps each backend in three layouts (numbers of environments) and compares all rows byte by byte: --num-envs on a
    deterministic variant of the task, then one environment, then up to eight. Layouts, lengths and actions are drawn
    anew each time, unless --seed is given. Work statuses of known backends and tasks are kept for later runs.

    A and B are two environments or vector environments, by Gymnasium's id or as module:callable, each with arguments in
    brackets and @PYTHON if it runs in another one. A callable with parameters num_envs and seed gets them. Where the
    two differ, the smallest example is written as a script to .vebench/example.py.
    Exit status: 0 the same, 1 a backend does different work or fails, 2 bad input, 3 none could be compared.

    \b
    vebench verify -e Pong
    vebench verify -e CartPole -b mymodule:MyBackend --num-envs 8 --steps 5000
    vebench verify CartPole-v1 mymodule:make_vector
    vebench verify HalfCheetah-v5 \\
      HalfCheetah-v5@other/bin/python --within observations=1e-9@100
    """
    _, outlet = call.outlet("verify")
    spec = asked("verify", call.plan)
    seed = call.plan.get("seed")
    if call.pair:
        from vebench.equality import diff

        call.refuse_others("A and B name what is compared", call.given - {"envs", "backends"})
        limits = call.steps, call.num_envs, seed, spec.timeout
        verdict = diff.compare_two(diff.PairRequest(call.pair, *limits, call.within, call.policy))
        outlet.publish(verdict)
        return verdict.status
    if call.within:
        raise UsageError("--within needs A B: backends are compared byte by byte")
    from vebench.equality import verify

    how = {"num_envs": call.num_envs, "steps": call.steps, "policy": call.policy}
    page = verify.compare_backends(spec, seed, call.world, **how)
    outlet.publish(page)
    return page.status


@app.group("share", cls=options.Commands, epilog=f"Documentation: {HOME}")
def share_group() -> None:
    """Submit a run, check or publish submissions, or quote a run."""


@command(
    share_group,
    "Share",
    argument("run", "RUN", Path),
    option(OUTPUT, "--output -o DIR", "Write the submission to this new folder.", FILE, name="folder"),
)
def make_(call: Call) -> int:
    """Make a submission of a run with a fixed plan.

    RUN is a run file of vebench run --suite. Shows whether the submission would be accepted; with -o, also writes it:
    the run, the machine, the packages, and the rates with checksums, without folders of this machine.
    Exit status: 0 accepted, 1 it would be refused, 2 bad input.

    \b
    vebench run --suite classic-3 -o classic.jsonl
    vebench share make classic.jsonl -o submissions/my-machine
    """
    from vebench.share import submissions

    return submissions.make_submission(call.run, call.folder)


@command(share_group, "Share", argument("folders", "DIR...", Path), options.form("submission"), name="check")
def share_check_(call: Call) -> int:
    """Check submissions for mistakes, and say how to correct them.

    Each DIR is a folder that vebench share make has written. Nothing in it is executed.
    Exit status: 0 all are accepted, 1 one is refused, 2 bad input.

    \b
    vebench share check submissions/*/
    """
    from vebench.share import submissions

    _, outlet = call.outlet("submission")
    return submissions.check_submissions(call.folders, outlet)


@command(
    share_group,
    "Share",
    argument("folder", "DIR", Path),
    option(OUTPUT, "--output -o DIR", "Write to this folder: a new one, or an earlier site.", FILE, name="site"),
)
def site_(call: Call) -> None:
    """Write a static site of submissions, with a page for each machine.

    DIR is a folder of folders that vebench share make has written. Damaged ones are left out, with the reason. The site
    needs no server.
    Exit status: 0 done, 2 bad input, or no submission.

    \b
    vebench share site submissions -o site
    """
    from vebench.share import publish

    if call.site is None:
        raise UsageError("-o: name the folder of the site")
    publish.build_site(call.folder, call.site)


@command(share_group, "Share", argument("run", "RUN", Path), options.output("cite"))
def cite_(call: Call) -> None:
    """Quote a run: a sentence for each task, and an entry for BibTeX.

    RUN is a run file. The text has the rates of the fastest backends, and the command that repeats them.

    \b
    vebench share cite pong.jsonl
    vebench share cite pong.jsonl -o pong.bib
    """
    from vebench.share import publish

    _, outlet = call.outlet("cite")
    publish.cite(call.run, outlet)


@command(app, "This machine", name="list")
def list_(_call: Call) -> None:
    """Show backends and tasks, and why some cannot be measured here."""
    from vebench.reports.console import show
    from vebench.reports.overview import list_page

    show(list_page())


@command(app, "This machine", argument("names", "NAME..."))
def install_(call: Call) -> int:
    """Set up backends of other projects.

    Makes a virtual environment for each NAME in the cache folder, with the same simulators as vebench's. vebench list
    shows the names; all means all of them.
    Exit status: 0 done, 1 something could not be installed, 2 bad input.

    \b
    vebench install sb3 tianshou
    vebench install all
    """
    from vebench.commands import core

    return core.install(call.names)


@command(
    app,
    "This machine",
    option(OUTPUT, "--workers -w N", "Show the CPUs that this number of workers would get.", whole(1, MAX_COUNT)),
    options.Parameter(OPTIONS["pin"], RunSpec.pin, RunSpec.pin),
    option(OUTPUT, "--sysroot DIR", "Describe another machine, from a copy of its /sys and /proc.", FILE),
    options.form("machine"),
)
def doctor_(call: Call) -> None:
    """Show CPUs, memory and settings that affect rates, and what to fix.

    Changes nothing.
    """
    from vebench.commands import core
    from vebench.reports.formats import format_for

    core.doctor(call.sysroot, call.workers, call.pin, format_for(call.form, None, "machine"))
