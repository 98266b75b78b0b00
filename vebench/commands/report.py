"""``vebench report`` and ``vebench history``: render run files in a format, to standard output or into a file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from vebench.analysis.history import history as history_of
from vebench.commands import gate
from vebench.commands.planning import known
from vebench.errors import one_line
from vebench.reports import console, plots
from vebench.reports.console import save, show
from vebench.reports.formats import registry
from vebench.reports.pages.history import HistoryPage
from vebench.reports.pages.run import RunPage
from vebench.results import paths, store
from vebench.results.records import with_current_verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vebench.analysis.pairing import Metric
    from vebench.plan.spec import BackendChoice
    from vebench.reports.document import Page, View


def report(files: Sequence[Path], form: str | None, output: Path | None, view: View) -> None:
    """Render runs, by default the newest in ``.vebench/``, as ``form``, by default the format of ``output``'s suffix.

    Several runs are shown side by side. A file also has each of them alone, a terminal only where all was asked for, or
    what only a run alone shows.
    Raises UsageError for an unknown format or a file that would be overwritten, RunFileError for a file that is not a
    run file.
    """
    chosen = registry.format_for(form, output, "run")
    sources = paths.run_files(files) if files else [paths.newest()]
    if output is not None:
        store.refuse_to_overwrite(output, sources)
    knowledge = known()
    of_each_run = view.every_finding or view.columns or view.forecast is not None
    short = output is None and chosen is registry.TERMINAL and not of_each_run
    runs = ((str(path), with_current_verdicts(store.read(path), knowledge)) for path in sources)
    page = RunPage.of(runs, replace(view, each_run=not short))
    _write(page, chosen, output)
    if output is not None and chosen.beside and any(one.charts for one in page.documents) and (why := plots.missing()):
        console.note(f"{output} has no figures: {why}")


def history(  # noqa: PLR0913, PLR0917 - one parameter for each option
    folder: Path,
    metric: Metric | Literal["auto"],
    envs: tuple[str, ...],
    backends: tuple[BackendChoice, ...],
    form: str | None,
    output: Path | None,
) -> int:
    """Show the levels of these cells, by default all, over the runs in ``folder``. Returns the exit status.

    It is 1 if a series of the newest run has a new change for the worse, 3 if there are too few runs to say. ``auto``:
    the machines of the runs decide, see ``vebench.analysis.history``. Raises UsageError for a folder without runs, an
    unknown format or name, or a file that would be overwritten.
    """
    chosen = registry.format_for(form, output, "history")
    runs = [(one_line(str(path)), run) for path, run in gate.runs_in(folder)]
    if output is not None:
        store.refuse_to_overwrite(output, ())
    keys = dict.fromkeys(cell.key.without_repeat for _, run in runs for cell in run.cells)
    found = history_of(
        runs, None if metric == "auto" else metric, set(gate.chosen([*keys], envs, backends, f"{folder}/"))
    )
    status = gate.DONE if found.decided else gate.UNDECIDED
    page = HistoryPage(found, gate.WORSE if found.slower else status)
    _write(page, chosen, output)
    return page.status


def _write(page: Page, form: registry.Format, output: Path | None) -> None:
    if output is None:
        show(page, form)
    else:
        save(page, form, output)
