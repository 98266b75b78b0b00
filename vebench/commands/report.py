"""``vebench report``: render run files in a format, to standard output or into a file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vebench.commands import knowing
from vebench.reports import console, plots
from vebench.reports.formats import registry
from vebench.reports.output import save, show
from vebench.reports.pages.run import RunPage
from vebench.results import paths, store
from vebench.results.records import with_current_verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vebench.reports.document import View


def report(files: Sequence[Path], form: str | None, output: str | None, view: View) -> None:
    """Render runs, by default the newest in ``.vebench/``, as ``form``, by default the format of ``output``'s suffix.

    Several runs are shown side by side. A file also has each of them alone, a terminal only where all was asked for, or
    what only a run alone shows.
    Raises UsageError for an unknown format or a file that would be overwritten, RunFileError for a file that is not a
    run file.
    """
    target = None if output is None else paths.output(output)
    chosen = registry.chosen(form, target, "run")
    sources = paths.run_files(files) if files else [paths.newest()]
    if target is not None:
        store.refuse_to_overwrite(target, sources)
    knowledge = knowing.known()
    of_each_run = view.every_finding or view.columns or view.forecast is not None
    short = target is None and chosen is registry.TERMINAL and not of_each_run
    runs = ((str(path), with_current_verdicts(store.read(path), knowledge)) for path in sources)
    page = RunPage.of(runs, replace(view, each_run=not short))
    if target is None:
        show(page, chosen)
        return
    save(page, chosen, target)
    if chosen.beside and any(document.charts for document in page.documents) and (reason := plots.missing()):
        console.note(f"{target} has no figures: {reason}")
