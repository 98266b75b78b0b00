"""``vebench report`` and ``vebench history``: render run files in a format, to standard output or into a file."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from filecmp import cmp
from typing import TYPE_CHECKING

from vebench.analysis.history import history as history_of
from vebench.commands import gate
from vebench.commands.planning import known
from vebench.errors import UsageError, one_line
from vebench.reports.formats.registry import TERMINAL
from vebench.reports.pages.history import HistoryPage
from vebench.reports.pages.run import RunPage
from vebench.results import paths, store
from vebench.results.records import with_current_verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vebench.plan.spec import BackendChoice
    from vebench.reports.console import Outlet
    from vebench.reports.document import View


def report(files: Sequence[Path], outlet: Outlet, view: View) -> None:
    """Render runs, by default the newest in ``.vebench/``.

    Several runs are shown side by side. A file also has each of them alone, a terminal only where all was asked for, or
    what only a run alone shows.
    Raises RunFileError for a file that is not a run file.
    """
    sources = paths.run_files(files) if files else [paths.newest()]
    knowledge = known()
    of_each_run = view.every_finding or view.columns or view.forecast is not None
    short = outlet.printed is TERMINAL and not of_each_run
    runs = ((str(path), with_current_verdicts(store.read(path), knowledge)) for path in sources)
    outlet.publish(RunPage.of(runs, replace(view, each_run=not short)))


def keep(run: Path, folder: Path) -> None:
    """Copy a run file to ``folder``, and commit it there if the folder is the root of a git work tree.

    A file that is there with the same content stays, and is committed if it is not yet. Raises RunFileError for what is
    not a run file, UsageError for another run of this name, a folder that cannot be written, or if git fails. Then the
    folder and git's index are as they were.
    """
    store.read(run)
    target = folder / run.name
    try:
        folder.mkdir(exist_ok=True)
        copied = not (target.exists() and cmp(target, run, shallow=False))
        if copied:
            store.refuse_to_overwrite(target, "--store")
            shutil.copyfile(run, target)
    except OSError as error:
        raise UsageError(f"--store: cannot write {target}: {error.strerror}") from None
    if not (folder / ".git").exists():
        return

    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["git", *arguments, "--", run.name]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

    in_index = bool(git("ls-files").stdout)
    if in_index and git("diff", "--quiet", "HEAD").returncode == 0:
        return
    # A commit of named files that fails leaves the index alone, but it takes no file that is not in there.
    for arguments in ([] if in_index else [["add"]]) + [["commit", "--quiet", "--message", f"Add {run.name}"]]:
        done = git(*arguments)
        if done.returncode:
            if not in_index:
                git("rm", "--cached", "--force", "--quiet")
            if copied:
                target.unlink()
            raise UsageError(f"--store: git {arguments[0]} failed in {folder}: {one_line(done.stderr or done.stdout)}")


def history(
    folder: Path,
    envs: tuple[str, ...],
    backends: tuple[BackendChoice, ...],
    outlet: Outlet,
) -> int:
    """Show the levels of these cells, by default all, over the runs in ``folder``. Returns the exit status.

    It is 1 if a series of the newest run has a new change for the worse, 3 if there are too few runs to say. Raises
    UsageError for a folder without runs, and for an unknown name.
    """
    runs = ((one_line(str(path)), run) for path, run in gate.runs_in(folder))
    found = history_of(runs, choose=lambda cells: gate.chosen(cells, envs, backends, f"{folder}/"))
    status = gate.DONE if found.decided else gate.UNDECIDED
    page = HistoryPage(found, gate.WORSE if found.slower else status)
    outlet.publish(page)
    return page.status
