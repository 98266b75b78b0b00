"""``vebench share cite``: how to quote a run."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from vebench.analysis.summary import summarise
from vebench.commands.planning import known
from vebench.errors import UsageError, one_line
from vebench.results import store
from vebench.results.records import with_current_verdicts
from vebench.share.cite_page import CitePage

if TYPE_CHECKING:
    from pathlib import Path

    from vebench.reports.console import Outlet


def cite(file: Path, outlet: Outlet) -> None:
    """Show how to quote the fastest backend of each task of a run. Raises UsageError if there is none to quote."""
    run = with_current_verdicts(store.read(file), known())
    page = CitePage.of(run, summarise(run, str(file)))
    if not page.quotes:
        raise UsageError(f"{one_line(str(file))}: has no rate to quote: see vebench report {shlex.quote(str(file))}")
    outlet.publish(page)
