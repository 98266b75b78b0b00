"""``vebench history``: the levels of cells over many runs, and when they changed."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from filecmp import cmp
from pathlib import Path

from vebench.commands.planning import known
from vebench.errors import RunFileError, UsageError, one_line
from vebench.gates import gate
from vebench.gates.gate import Status
from vebench.gates.history_page import HistoryPage
from vebench.gates.series import history as history_of
from vebench.plan.grammar import BackendChoice
from vebench.reports import console
from vebench.reports.console import Outlet
from vebench.results import store
from vebench.results.records import Run, with_current_verdicts


def history(
    folder: Path, envs: tuple[str, ...], backends: tuple[BackendChoice, ...], keep: Path | None, outlet: Outlet
) -> int:
    """Show the levels of these cells, by default all, over the runs in ``folder``. Returns the exit status.

    It is 1 if a series of the newest run has a new change for the worse, 3 if there are too few runs to say. The run
    file ``keep`` is stored in the folder first. Raises UsageError for a folder without runs, and for an unknown name.
    """
    if keep is not None:
        store_run(keep, folder)
    runs = ((one_line(str(path)), run) for path, run in runs_in(folder))
    found = history_of(runs, choose=lambda cells: gate.chosen(cells, envs, backends, f"{folder}/"))
    status = Status.DONE if found.decided else Status.UNDECIDED
    page = HistoryPage(found, Status.WORSE if found.slower else status)
    outlet.publish(page)
    return page.status


def runs_in(folder: Path) -> Iterator[tuple[Path, Run]]:
    """Yield the runs in ``folder``. If there are none, yield the sides of comparisons whose other side is not there.

    Two sides of one comparison are no series. A run file that cannot be read is named on standard error; other files
    are ignored. Raises UsageError if there is no run.
    """
    if folder.is_file():
        raise UsageError(f"{folder}: is a file: name the folder that holds the runs")
    knowledge = known()
    sides = []
    found = False
    for path in filter(store.holds_run, store.run_files_in(folder)):
        try:
            run = with_current_verdicts(store.read(path), knowledge)
        except RunFileError as error:
            console.note(f"left out: {error}")
            continue
        if run.header.interpreter is None:
            found = True
            yield path, run
        else:
            sides.append((path, run))
    if found:
        return
    pairs = Counter((run.header.command, run.header.started) for _, run in sides)
    alone = [(path, run) for path, run in sides if pairs[run.header.command, run.header.started] == 1]
    if not alone:
        raise UsageError(f"no run in {folder}/ that a history can be made of: vebench run writes them")
    yield from alone


def store_run(run: Path, folder: Path) -> None:
    """Copy a run file to ``folder``, and commit it there if the folder is the root of a git work tree.

    A file with the same content stays, and is committed if it is not yet. Raises RunFileError if ``run`` is not a run
    file. Raises UsageError for another run of this name, a folder that cannot be written, and if git fails. Then the
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
    # A commit of named files that fails leaves the index alone, but it takes no file that is not in it.
    done = git("ls-files") if in_index else git("add")
    if not done.returncode:
        done = git("commit", "--quiet", "--message", f"Add {run.name}")
    if done.returncode:
        if not in_index:
            git("rm", "--cached", "--force", "--quiet")
        if copied:
            target.unlink()
        raise UsageError(f"--store: git failed in {folder}: {one_line(done.stderr or done.stdout)}")
