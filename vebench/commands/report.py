"""``vebench report``: render run files in a format, to standard output or into a file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vebench.commands.planning import known
from vebench.reports.formats import TERMINAL
from vebench.reports.run import RunPage
from vebench.results import store
from vebench.results.records import with_current_verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vebench.reports.console import Outlet
    from vebench.reports.document import View


def report(files: Sequence[Path], outlet: Outlet, view: View) -> None:
    """Render runs, by default the newest in ``.vebench/``.

    Several runs are shown side by side. Each run is also shown separately. On the terminal, this needs ``--all``,
    ``--columns`` or ``--forecast``. Raises RunFileError for a file that is not a run file.
    """
    sources = store.run_files(files) if files else [store.run_files_in()[-1]]
    knowledge = known()
    of_each_run = view.every_finding or view.columns or view.forecast is not None
    short = outlet.printed is TERMINAL and not of_each_run
    runs = ((str(path), with_current_verdicts(store.read(path), knowledge)) for path in sources)
    outlet.publish(RunPage.of(runs, replace(view, each_run=not short)))
