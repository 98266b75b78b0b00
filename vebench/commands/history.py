"""``vebench history``: the levels of a folder of runs over time, and where they changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from vebench.analysis.history import history
from vebench.commands import choosing
from vebench.commands.gating import DONE, UNDECIDED, WORSE
from vebench.errors import one_line
from vebench.reports.formats import registry
from vebench.reports.output import save, show
from vebench.reports.pages.history import HistoryPage
from vebench.results import paths, store

if TYPE_CHECKING:
    from pathlib import Path

    from vebench.analysis.history import History
    from vebench.analysis.pairing import Metric
    from vebench.plan.cells import CellKey
    from vebench.plan.spec import BackendChoice
    from vebench.results.records import Run


@dataclass(frozen=True)
class HistoryRequest:
    """Which cells of the runs in ``folder`` to look at, and by which metric.

    ``auto``: the machines of the runs decide, see ``vebench.analysis.history``. Without ``envs`` or ``backends``: all.
    """

    folder: Path
    metric: Metric | Literal["auto"] = "auto"
    envs: tuple[str, ...] = ()
    backends: tuple[BackendChoice, ...] = ()


def run(request: HistoryRequest, form: str | None, output: str | None) -> int:
    """Show the history as ``form``, by default the format of ``output``'s suffix. Returns the exit status.

    It is 1 if a series of the newest run has a new change for the worse, 3 if there are too few runs to say. Raises
    UsageError for a folder without runs, an unknown format or name, or a file that would be overwritten.
    """
    target = None if output is None else paths.output(output)
    chosen = registry.chosen(form, target, "history")
    runs = list(choosing.runs_in(request.folder))
    if target is not None:
        store.refuse_to_overwrite(target, ())
    found = history(
        ((one_line(str(path)), run) for path, run in runs),
        None if request.metric == "auto" else request.metric,
        _chosen(request, [run for _, run in runs]),
    )
    page = HistoryPage(found, _status(found))
    if target is None:
        show(page, chosen)
    else:
        save(page, chosen, target)
    return page.status


def _chosen(request: HistoryRequest, runs: list[Run]) -> set[CellKey]:
    keys = dict.fromkeys(cell.key.without_repeat for run in runs for cell in run.cells)
    return set(choosing.chosen(list(keys), request.envs, request.backends, f"{request.folder}/"))


def _status(found: History) -> int:
    if found.slower:
        return WORSE
    return DONE if found.decided else UNDECIDED
