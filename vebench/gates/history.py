"""``vebench history``: the levels of cells over many runs, and when they changed."""

from __future__ import annotations

import shutil
import subprocess
from filecmp import cmp
from typing import TYPE_CHECKING

from vebench.errors import UsageError, one_line
from vebench.gates import gate
from vebench.gates.history_page import HistoryPage
from vebench.gates.series import history as history_of
from vebench.results import store

if TYPE_CHECKING:
    from pathlib import Path

    from vebench.plan.grammar import BackendChoice
    from vebench.reports.console import Outlet


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
