"""What commands choose among what was measured already: runs of a folder, and cells by ``--env`` and ``--backend``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.backends.environments.suites import short_name
from vebench.commands import knowing
from vebench.errors import RunFileError, UsageError, did_you_mean, shown
from vebench.reports import console
from vebench.results import paths, store
from vebench.results.records import with_current_verdicts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from vebench.plan.cells import CellKey
    from vebench.plan.spec import BackendChoice
    from vebench.results.records import Run


def runs_in(folder: Path) -> Iterator[tuple[Path, Run]]:
    """Yield the runs in ``folder``, without those of ``vebench compare``: what they measured is not one series.

    A run file that cannot be read is named on standard error; other files are passed over. Raises UsageError if there
    is no run.
    """
    if folder.is_file():
        raise UsageError(f"{folder}: is a file: name the folder that holds the runs")
    knowledge = knowing.known()
    whole = 0
    for path in filter(store.holds_run, paths.run_files_in(folder)):
        try:
            run = store.read(path)
        except RunFileError as error:
            console.note(f"left out: {error}")
            continue
        if run.header.interpreter is None:
            whole += 1
            yield path, with_current_verdicts(run, knowledge)
    if not whole:
        raise UsageError(f"no run in {folder}/ that a history can be made of: vebench run writes them")


def chosen(
    cells: Sequence[CellKey], envs: Sequence[str], backends: Sequence[BackendChoice], source: str
) -> list[CellKey]:
    """Return the cells of these tasks and backends; empty ``envs`` or ``backends`` mean all.

    A task goes by its full name or its short one. A backend without options means all choices of its options.
    ``source`` is where the cells come from. Raises UsageError for a name that none of them has.
    """
    names = {cell.env: {cell.env.casefold(), short_name(cell.env).casefold()} for cell in cells}
    for env in envs:
        if not any(env.casefold() in known for known in names.values()):
            near = did_you_mean(env, map(short_name, names))
            raise UsageError(f"--env {shown(env)}: not in {source}{near}")
    for choice in backends:
        if not any(_means(choice, cell) for cell in cells):
            near = did_you_mean(choice.label, (cell.backend for cell in cells))
            raise UsageError(f"--backend {shown(choice.label)}: not in {source}{near}")
    wanted = {env.casefold() for env in envs}
    here = [cell for cell in cells if not wanted or names[cell.env] & wanted]
    return [cell for cell in here if not backends or any(_means(choice, cell) for choice in backends)]


def _means(choice: BackendChoice, cell: CellKey) -> bool:
    return cell.backend == choice.label or (not choice.options and cell.backend.partition("[")[0] == choice.name)
