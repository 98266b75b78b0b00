"""What ``check``, ``compare`` and ``history`` share: what they look at, when a gate stops, where its verdicts go."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

from vebench.analysis.cell import in_report_order
from vebench.analysis.rules import unusable
from vebench.analysis.summary import summarise
from vebench.backends.environments.suites import short_name
from vebench.commands.planning import known
from vebench.errors import RunFileError, UsageError, did_you_mean, one_line, shown
from vebench.gates.sequential import Decisions, passes_until_next_look, undecided
from vebench.reports import console
from vebench.reports.console import save
from vebench.reports.formats.data import workflow_commands
from vebench.reports.formats.registry import MARKDOWN
from vebench.results import paths, store
from vebench.results.records import with_current_verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.comparison import Comparison
    from vebench.analysis.pairing import SpeedVerdict
    from vebench.gates.check_page import CheckPage
    from vebench.plan.cells import CellKey
    from vebench.plan.grammar import BackendChoice
    from vebench.reports.console import Outlet
    from vebench.results.records import Run

    # Judges what there is so far with this part of the levels.
    Look = Callable[[float], Comparison]
    # Measures one more pass over these cells, without repeats. Returns whether there was anything to measure.
    OnePass = Callable[[frozenset[CellKey]], bool]

DONE, WORSE, UNDECIDED = 0, 1, 3
FEWEST_PASSES = 2  # with fewer, no side shows how its processes differ
NO_ANSWER: tuple[SpeedVerdict, ...] = ("missing", "not comparable")
_MOST_TOLERANCE = 0.9


def runs_in(folder: Path) -> Iterator[tuple[Path, Run]]:
    """Yield the runs in ``folder``, or else those sides of ``vebench compare`` whose other side is not there.

    What both sides measured is not one series. A run file that cannot be read is named on standard error; other files
    are passed over. Raises UsageError if there is no run.
    """
    if folder.is_file():
        raise UsageError(f"{folder}: is a file: name the folder that holds the runs")
    knowledge = known()
    whole, sides = 0, []
    for path in filter(store.holds_run, paths.run_files_in(folder)):
        try:
            run = store.read(path)
        except RunFileError as error:
            console.note(f"left out: {error}")
            continue
        if run.header.interpreter is None:
            whole += 1
            yield path, with_current_verdicts(run, knowledge)
        else:
            sides.append((path, run))
    if whole:
        return
    pairs = Counter((run.header.command, run.header.started) for _, run in sides)
    alone = [(path, run) for path, run in sides if pairs[run.header.command, run.header.started] == 1]
    yield from ((path, with_current_verdicts(run, knowledge)) for path, run in alone)
    if not alone:
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


def cells_of(run: Run, path: Path) -> tuple[CellSummary, ...]:
    """Return a run's cells in the order of reports. Findings quote the name of its file."""
    return in_report_order(summarise(run, one_line(str(path))), run.header.spec)


def unusable_run(path: Path, cells: Sequence[CellSummary]) -> str:
    """Return that the run in ``path`` is unusable, and why, in one line; empty if it may be used."""
    finding = unusable(cells)
    return "" if finding is None else f"{path} is {finding.code}: {finding.message}; {finding.remedy}"


def classes_that_differ(one: Sequence[CellSummary], other: Sequence[CellSummary]) -> tuple[str, ...]:
    """Return, in words and each once, which cells of the two runs stepped other classes: own ones or Gymnasium's."""
    before = {cell.key: cell.own_classes for cell in one}
    texts = (
        f"{cell.label} on {cell.env}: {first.words} against {second.words}"
        for cell in other
        if (first := before.get(cell.key)) and (second := cell.own_classes) and first.words != second.words
    )
    return tuple(dict.fromkeys(texts))


def check_tolerance(share: float) -> None:
    """Raise UsageError for a tolerance with which every cell, or none, would pass."""
    if not 0 < share <= _MOST_TOLERANCE:
        raise UsageError(f"--tolerance {share:.4g}: must be above 0 and at most {_MOST_TOLERANCE:.0%}")


def until_decided(  # noqa: PLR0913, PLR0917 - what a decision depends on
    look: Look,
    one_pass: OnePass,
    first: int,
    cells: frozenset[CellKey],
    started: float,
    budget: float,
    clock: Callable[[], float],
    enough: int | None = None,
) -> Comparison:
    """Look, and add passes, until every backend is decided or ``budget`` seconds are spent. Returns the verdicts.

    ``FEWEST_PASSES`` of the ``cells`` were measured since ``started``, by ``clock``, which counts seconds; they are
    part of the budget. There are ``first`` before the first look if there is time. No pass is begun that would hardly
    end in time. If it is known that more than ``enough`` passes would not help, there are no more, and no looks on the
    way: each would cost some of the level.
    """
    decisions = Decisions()
    now, passes, left = clock(), min(first, FEWEST_PASSES), cells
    deadline, longest, wanted = started + budget, (now - started) / passes, first - passes
    while True:
        added = 0
        while added < wanted and now + longest <= deadline and one_pass(left):
            added += 1
            since, now = now, clock()
            longest = max(longest, now - since)
        passes += added
        over = now + longest > deadline or (enough is not None and passes >= enough) or added < wanted
        used = max((now - started) / budget, 0.0 if enough is None else passes / enough)
        found = decisions.after(look(decisions.part(1.0 if over else used)))
        left = undecided(found)
        if not left or over:
            return found
        wanted = passes_until_next_look(passes) if enough is None else enough - passes


def exit_status(found: Comparison) -> int:
    """Return the exit status: 1 if a backend is slower, or a cell failed that did not in the baseline.

    It is 3 if a cell or a backend has no answer, or if there is none at all, and 0 otherwise.
    """
    verdicts = {group.verdict for group in found.groups}
    if "slower" in verdicts or any(cell.failed for cell in found.cells):
        return WORSE
    unanswered = not verdicts or (verdicts | {cell.verdict for cell in found.cells}) & set(NO_ANSWER)
    return UNDECIDED if unanswered or "inconclusive" in verdicts else DONE


def publish(page: CheckPage, outlet: Outlet) -> None:
    """Write the verdicts to the places where CI services expect them, and to the outlet."""
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        save(page, MARKDOWN, paths.output(summary), "$GITHUB_STEP_SUMMARY", append=True)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        console.write_error(workflow_commands(page))
    outlet.publish(page)
