"""``vebench history``: the levels of cells over many runs, and when they changed."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from filecmp import cmp
from math import exp, sqrt
from pathlib import Path

from vebench.backends.registry import REFERENCE
from vebench.commands.session import known
from vebench.errors import RunFileError, UsageError, one_line
from vebench.gates import gate
from vebench.gates.gate import Status
from vebench.gates.series import FEWEST, LEAST, RECENT, RunHistory, Series, history_of, run_spread
from vebench.plan.grammar import BackendChoice
from vebench.reports import console, figures
from vebench.reports.console import Outlet
from vebench.reports.document import DataPage, Document, Remark, Table, TableRow, Text
from vebench.results import store
from vebench.results.records import Run, with_current_verdicts


def show_history(
    folder: Path, envs: tuple[str, ...], backends: tuple[BackendChoice, ...], keep: Path | None, outlet: Outlet
) -> int:
    """Show the levels of these cells, by default all, over the runs in ``folder``. Returns the exit status.

    Before that, the run file ``keep`` is stored in the folder. Raises UsageError for a folder without runs.
    """
    if keep is not None:
        _store_run(keep, folder)
    runs = ((one_line(str(path)), run) for path, run in runs_in(folder))
    page = HistoryPage(history_of(runs, choose=lambda cells: gate.chosen(cells, envs, backends, f"{folder}/")))
    outlet.publish(page)
    return page.status


def runs_in(folder: Path) -> Iterator[tuple[Path, Run]]:
    """Yield the runs in ``folder``. Without runs, yield sides of comparisons whose other side is missing.

    A note on standard error names each run file that cannot be read. Raises UsageError if there is no run.
    """
    if folder.is_file():
        raise UsageError(f"{folder}: is a file: name the folder that holds the runs")
    knowledge = known()
    sides: dict[tuple[str, str], list[tuple[Path, Run]]] = {}  # the sides of each comparison
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
            sides.setdefault((run.header.command, run.header.started), []).append((path, run))
    alone = [both[0] for both in sides.values() if len(both) == 1]
    if not found:
        yield from alone
    if not found and not alone:
        raise UsageError(f"no run in {folder}/ that a history can be made of: vebench run writes them")


def _store_run(run: Path, folder: Path) -> None:
    """Copy a run file to ``folder``, and commit it if the folder is the root of a git work tree. Raises UsageError."""
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

    done = git("add")
    if not done.returncode and git("diff", "--cached", "--quiet").returncode:
        done = git("commit", "--quiet", "--message", f"Add {run.name}")
    if done.returncode:
        git("reset", "--quiet")
        if copied:
            target.unlink()
        raise UsageError(f"--store: git failed in {folder}: {one_line(done.stderr or done.stdout)}")


@dataclass(frozen=True)
class HistoryPage(DataPage):
    """A history as a page: each series with its current level, its levels over time, and its changes."""

    history: RunHistory
    kind = "history"

    @property
    def status(self) -> Status:
        """The exit status of the command."""
        if self.history.slower:
            return Status.WORSE
        return Status.DONE if self.history.decided else Status.UNDECIDED

    @property
    def outcome(self) -> str:
        """The outcome in a few words: ``slower since run 41 of 60, 2026-11-20: 2 of 54 series``."""
        found = self.history
        many = f"{len(found.current)} series"
        if found.slower:
            first = min(series.runs[series.changes[-1].at] for series in found.slower)
            return f"slower since {self._run(first)}: {len(found.slower)} of {many}"
        if not found.decided:
            return f"too few runs: a series needs {FEWEST} to show a change"
        new = "new change for the worse" if any(series.changes for series in found.current) else "change"
        return f"no {new} in {many} over {figures.counted(len(found.runs), 'run')}"

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: a table for each task under each set of conditions, and the changes."""
        found = self.history
        several = len({run.conditions for run in found.runs}) > 1
        where = "all on one machine" if found.machines == 1 else f"on {found.machines} machines"
        what = "frames/s" if found.metric == "fps" else f"speedup over {REFERENCE} with one worker of the same run"
        counts = ", ".join(f"{count} {reason}" for reason, count in found.left_out.items())
        facts = (
            ("runs", f"{len(found.runs)}, from {one_line(found.runs[0].name)} to {one_line(found.runs[-1].name)}"),
            ("metric", f"{what}; the runs are {where}"),
            ("left out", f"{figures.counted(sum(found.left_out.values()), 'point')}: {counts}" if counts else ""),
        )
        newest = {run.conditions: index for index, run in enumerate(found.runs)}
        newest_first = sorted(found.series, key=lambda series: -newest[series.conditions])
        unit = "frames/s" if found.metric == "fps" else "speedup"
        tables = []
        by_task = figures.by_key(((one.conditions, one.cell.env), one) for one in newest_first)
        for (conditions, env), its in by_task.items():
            title = one_line(f"{env}: {unit}{f', {conditions}' if several else ''}")
            rows = tuple(TableRow(one_line(f"{one.cell.backend}, {one.cell.size}"), self._texts(one)) for one in its)
            tables.append(Table(title, ("runs", "level now", "newest change", "run to run", "levels"), rows))
        document = Document(
            title=f"History: {self.outcome}",
            facts=tuple((name, text) for name, text in facts if text),
            tables=tuple(tables),
            legend=(
                "level now: the level since the newest change. ±: its 95 % confidence interval.",
                "run to run: the standard deviation of a run around its level. levels: the oldest run first.",
                f"A change is {LEAST:.0%} or more, and significant after correcting for all series.",
                f"new: the runs before the newest {RECENT} do not show it.",
            ),
            explanations=tuple(self._explanations(newest_first)),
        )
        return (document,)

    def _texts(self, series: Series) -> tuple[Text, ...]:
        level, runs, residual = series.level_now, len(series.levels), series.residual
        shown = figures.rate(level) if self.history.metric == "fps" else figures.times(level)
        change = Text(("none" if runs >= FEWEST else "too few runs",))
        if series.changes:
            newest = series.changes[-1]
            new = newest is series.news
            lines = f"{'new, ' if new else ''}{figures.change(newest.ratio.median)}", self._run(series.runs[newest.at])
            change = Text(lines, "missing" if new and newest.worse else "plain", newest.ratio)
        spread = sqrt(residual.variance) if residual.freedom else None
        return (
            Text((str(runs),), value=runs),
            Text((shown,), value=level),
            change,
            Text((figures.DASH if spread is None else f"{spread:.1%}",), value=spread),
            Text((figures.sparkline(series.levels),)),
        )

    def _explanations(self, newest_first: Sequence[Series]) -> Iterator[Remark]:
        """Yield each change once, with the series that show it. The newest change comes first."""
        found = self.history
        metric = "" if found.metric == "fps" else f" --metric {found.metric}"
        changes: dict[tuple[int, int, bool, bool], list[str]] = {}
        for series in newest_first:
            for change in series.changes:
                key = series.runs[change.at], series.runs[change.at - 1], change.worse, change is series.news
                ratio = figures.in_sentence(change.ratio, "x")
                changes.setdefault(key, []).append(f"{figures.cell_name(series.cell)}: {ratio} the level before")
        for (after, before, worse, new), places in sorted(changes.items(), reverse=True):
            files = shlex.join(found.runs[index].name for index in (before, after))
            yield Remark(
                "slower" if worse else "faster",
                one_line(f"{'new, ' if new else ''}since {self._run(after)}: {found.runs[after].name}"),
                tuple(places),
                "compare it with the run before:",
                one_line(f"vebench check {files}{metric}"),
            )

    def _run(self, index: int) -> str:
        """Return the number of a run, counted from 1, and its day: ``run 41 of 60, 2026-11-20``."""
        day = one_line(self.history.runs[index].started)[:10]
        return f"run {index + 1} of {len(self.history.runs)}{', ' if day else ''}{day}"

    @property
    def data(self) -> dict[str, object]:
        """The history for programs. Points and changes refer to ``runs`` by index."""
        found = self.history
        spread = run_spread(found.current)
        series = []
        for one in found.series:
            changes = []
            for change in one.changes:
                run = one.runs[change.at]
                new = change is one.news
                changes.append({"run": run, "file": found.runs[run].name, "ratio": change.ratio, "new": new})
            values = [{"run": run, "value": exp(level)} for run, level in zip(one.runs, one.levels, strict=True)]
            series.append(
                {
                    **{name: getattr(one.cell, name) for name in ("env", "backend", "workers", "envs_per_worker")},
                    "conditions": one.conditions,
                    "level": one.level_now,
                    "run_to_run": sqrt(one.residual.variance) if one.residual.freedom else None,
                    "points": values,
                    "changes": changes,
                }
            )
        return {
            "metric": found.metric,
            "status": self.status,
            "outcome": self.outcome,
            "runs": [{"file": run.name, "started": run.started, "conditions": run.conditions} for run in found.runs],
            "left_out": dict(found.left_out),
            "run_to_run": None if spread is None else sqrt(spread.variance),
            "series": series,
        }
