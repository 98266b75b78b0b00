"""The command line: parse, compose, report errors. Everything heavier is imported when a command runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from vebench import __version__
from vebench.errors import UsageError, VebenchError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from vebench.reports.tables import Report

INTERRUPTED = 130
SUFFIXES = {".md": "markdown", ".markdown": "markdown", ".csv": "csv", ".json": "json", ".txt": "terminal"}

app = typer.Typer(
    help="Measure which vector-env backend is fastest on this machine, and how far to trust the figure.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> NoReturn:
    """Run the command line. Every error that a user can meet becomes one line and an exit status."""
    try:
        status = app(standalone_mode=False)
    except VebenchError as error:
        status = _fail(str(error), error.exit_status)
    except typer.TyperException as error:
        status = _fail(" ".join(error.format_message().split()), UsageError.exit_status)
    except (KeyboardInterrupt, typer.Abort):
        status = _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has seen enough, as `head` does; Python would complain once more on its way out.
        sys.stdout = None
        status = 0
    sys.exit(status)


def _fail(text: str, status: int) -> int:
    typer.echo(f"vebench: {text}", err=True)
    return status


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


@app.command()
def run(  # noqa: PLR0913 - one parameter for each option
    context: typer.Context,
    *,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", help="Environment: Pong, HalfCheetah, CartPole-v1, module:Id. Repeatable."),
    ] = None,
    workers: Annotated[
        str, typer.Option("--workers", "-w", help="Worker counts: 8, 1,2,4, 1..256 (doubles), 1..16:+5 (adds).")
    ] = "1..4",
    backend: Annotated[
        list[str] | None,
        typer.Option("--backend", "-b", help="NAME[KEY=VALUE,...] or module:Class. Repeatable. Default: all."),
    ] = None,
    envs_per_worker: Annotated[int, typer.Option(help="Environments stepped at a time for each worker.")] = 1,
    duration: Annotated[float, typer.Option(help="Seconds of one window.")] = 1.0,
    rounds: Annotated[int, typer.Option(help="Windows of each cell.")] = 6,
    warmup: Annotated[float, typer.Option(help="Seconds before the first window.")] = 1.0,
    repeats: Annotated[int, typer.Option(help="Passes over all cells, each in an order of its own.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of environments, actions and the order of cells.")] = 0,
    pin: Annotated[str, typer.Option(help="CPUs of a cell: compact, none, or a list such as 0-3,8.")] = "compact",
    timeout: Annotated[float, typer.Option(help="Seconds after which a cell is ended.")] = 300.0,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Run file. Default: in .vebench/.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Finish the run in this file; the plan comes from it.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and measure nothing.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no table.")] = False,
) -> int:
    """Measure, and print a table."""
    from vebench import session
    from vebench.plan.grammar import parse_backends, parse_workers
    from vebench.plan.spec import RunSpec

    if resume is not None:
        _refuse_beside_resume(context)
        return session.resume(resume, dry_run=dry_run, quiet=quiet)
    spec = RunSpec(
        envs=tuple(env or ()),
        workers=parse_workers(workers),
        backends=parse_backends(backend or ()),
        envs_per_worker=envs_per_worker,
        duration=duration,
        rounds=rounds,
        warmup=warmup,
        repeats=repeats,
        seed=seed,
        pin=pin,
        timeout=timeout,
    )
    return session.start(spec, output, dry_run=dry_run, quiet=quiet)


def _refuse_beside_resume(context: typer.Context) -> None:
    """Raise UsageError if an option was given that the resumed run has settled already."""
    given = {
        name
        for name in context.params
        if (source := context.get_parameter_source(name)) is not None and source.name == "COMMANDLINE"
    }
    if settled := sorted(given - {"resume", "dry_run", "quiet"}):
        options = ", ".join(f"--{name.replace('_', '-')}" for name in settled)
        raise UsageError(f"--resume takes its plan from the file: leave out {options}")


@app.command()
def report(
    files: Annotated[list[Path] | None, typer.Argument(help="Run files. Default: the newest in .vebench/.")] = None,
    *,
    form: Annotated[
        str | None, typer.Option("--format", "-f", help="terminal, markdown, csv or json. Default: by -o, or terminal.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file.")] = None,
) -> None:
    """Render runs as tables."""
    from vebench.reports.tables import Report
    from vebench.results import store

    render = _renderer(form, output)
    paths = files or [store.newest()]
    text = render(Report.of((str(path), store.read(path)) for path in paths))
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}: name another file with -o") from None


def _renderer(form: str | None, output: Path | None) -> Callable[[Report], str]:
    """Return the function that renders a report in the format that was asked for, or that the file's suffix means."""
    from vebench.reports import as_csv, as_json, as_markdown

    if form is None:
        form = "terminal" if output is None else SUFFIXES.get(output.suffix.lower())
    if form is None:
        raise UsageError(f"-o {output}: the suffix is none of {', '.join(SUFFIXES)}; name the format with -f")
    renderers: dict[str, Callable[[Report], str]] = {
        "terminal": lambda report: _on_terminal(report, to_file=output is not None),
        "markdown": as_markdown.render,
        "csv": as_csv.render,
        "json": as_json.render,
    }
    if form not in renderers:
        raise UsageError(f"-f {form}: no such format; there are {', '.join(renderers)}")
    return renderers[form]


def _on_terminal(report: Report, *, to_file: bool) -> str:
    from vebench.reports import as_terminal

    console = _console(plain=to_file)
    with console.capture() as captured:
        as_terminal.write(report, console)
    return captured.get()


def _console(*, plain: bool) -> Console:
    from rich.console import Console

    return Console(no_color=plain, force_terminal=False if plain else None, highlight=False, soft_wrap=False)


@app.command(name="list")
def list_() -> None:
    """Show what can be measured here, and why not."""
    from vebench.reports import as_terminal
    from vebench.reports.listing import list_document

    as_terminal.write_document(list_document(), _console(plain=False))


if __name__ == "__main__":
    main()
