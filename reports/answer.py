"""The conclusion of a run in words: the winner of each task with its number of workers, or why there is none.

``vebench.analysis.answer`` decides; this module writes a few short sentences for each task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench.analysis.answer import Reason
from vebench.analysis.cell import Exclusion
from vebench.analysis.findings import Code
from vebench.analysis.rules import WIDE, why_never
from vebench.analysis.statistics import Estimate, ratio
from vebench.backends.entry import Built
from vebench.backends.environments.suites import short_name
from vebench.backends.registry import REFERENCE
from vebench.errors import one_line
from vebench.plan.tasks import recorded_task
from vebench.plan.verdicts import DISTRIBUTION
from vebench.reports import figures
from vebench.reports.document import AnswerText

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from vebench.analysis.answer import TaskAnswer
    from vebench.analysis.cell import CellSummary
    from vebench.analysis.findings import Finding
    from vebench.plan.spec import RunSpec
    from vebench.results.records import RunRecord

RULE = "Named is the simplest of those not distinguishable from the fastest"
_MOST_SENTENCES = 4  # of a winner, besides one about a wide interval
_MOST_NAMED = 3  # backends in a sentence; of others only the number
_FEWEST_PASSES = 3
_USUAL_ENVS = 2  # environments that vebench verify steps at a time unless more are asked for
_NARROW_ENOUGH = "10%"  # for --until: half of the width that makes an interval too wide

# In the singular and in the plural.
DOUBTS = {
    Exclusion.OTHER_WORK: ("does other work", "do other work"),
    Exclusion.UNVERIFIED: ("is not known to do the same work", "are not known to do the same work"),
    Exclusion.ABOVE_CEILING: (
        "is significantly faster than the bare simulator",
        "are significantly faster than the bare simulator",
    ),
    Exclusion.BELOW_SIMULATOR: (
        "takes less CPU time than the bare simulator",
        "take less CPU time than the bare simulator",
    ),
    Exclusion.NOT_PINNED: ("was not pinned to its CPUs", "were not pinned to their CPUs"),
    Exclusion.CONTESTED: (
        "polls on CPUs that other processes used, so its rate is not valid",
        "poll on CPUs that other processes used, so their rates are not valid",
    ),
    Exclusion.NO_INTERVAL: ("has only one window", "have only one window"),
}


@dataclass(frozen=True)
class RunFacts:
    """The header of a run, the name of its file, and the findings on the run as a whole."""

    head: RunRecord
    file: str
    findings: tuple[Finding, ...]

    @property
    def goes_on(self) -> str:
        """How to measure what is missing."""
        return f"Measure with: {one_line(self.head.resume_command(self.file))}"

    @property
    def incomplete(self) -> Finding | None:
        """The finding that cells are missing."""
        return self.finding(Code.INCOMPLETE)

    def finding(self, code: Code) -> Finding | None:
        """Return the finding with this code."""
        return next((finding for finding in self.findings if finding.code is code), None)


def answers(found: Mapping[str, TaskAnswer], run: RunFacts) -> tuple[AnswerText, ...]:
    """Return the conclusion about each task; one for the whole run if it has no cells or is unusable."""
    if not found:
        return (AnswerText("", ("No winner: nothing has been measured yet.", run.goes_on), settled=False),)
    texts = []
    if any(answer.reason is Reason.UNUSABLE for answer in found.values()):
        finding = run.finding(Code.UNUSABLE)
        remedy = finding.remedy if finding else "measure again"  # the notice says why
        again = f"{remedy[0].upper()}{remedy[1:]}."
        texts.append(AnswerText("", ("No winner: this run is unusable.", again), settled=False))
    short = [short_name(env) for env in found]
    for (env, answer), name in zip(found.items(), short, strict=True):
        if answer.reason is Reason.UNUSABLE:
            continue
        task = one_line(env if short.count(name) > 1 else name)
        if answer.winner is None:
            texts.append(AnswerText(one_line(env), _without_winner(task, answer, run), settled=False))
        else:
            sentences = _of_winner(task, answer.winner, answer, run)
            texts.append(AnswerText(one_line(env), sentences, code_of(answer.winner, run.head.spec)))
    return tuple(texts)


def _of_winner(name: str, winner: CellSummary, answer: TaskAnswer, run: RunFacts) -> tuple[str, ...]:
    caveat = tied = perhaps = ""
    excluded = next(iter(answer.doubted), None)  # the fastest
    if excluded is not None and excluded[0].rate > winner.rate:
        cell, why = excluded
        caveat = f"Excluded although faster: {setting_of(cell)}, {rate_of(cell)}; it {DOUBTS[why][0]}."
    alone = winner.label == REFERENCE and not answer.tied and not caveat
    loop = ", and nothing is faster than this plain loop" if alone else ""
    first = f"{name} {_where(run)}: {_in_full(winner)}{loop}."
    if not caveat and winner.conditions.throttled:
        caveat = "A CPU quota held it back: with more CPUs it may be faster."
    elif not caveat and winner.conditions.disturbed:
        caveat = "Others took CPU time while it was measured: it may be faster still."
    if answer.tied:
        shares = [ratio(cell.sample, winner.sample) for cell in answer.tied]
        most = max((share.high for share in shares if share is not None and share.high is not None), default=1.0)
        faster = f" (at most {figures.number(most)}x as fast)" if most > 1 else ""
        tied = f"{RULE}; the others{faster}: {_listed([setting_of(cell) for cell in answer.tied])}."
    if answer.perhaps:
        perhaps = f"With {answer.perhaps.key.size} it may be faster: {rate_of(answer.perhaps)}."
    workers = _workers(winner, answer, run)
    every = (first, caveat, tied, perhaps, workers, _without_leaving_gymnasium(winner, answer))
    sentences = [text for text in every if text]
    for least in (workers, perhaps):
        if len(sentences) > _MOST_SENTENCES and least:
            sentences.remove(least)
    if winner.half_width is not None and winner.half_width > WIDE:
        whose = "all others measured so far" if run.incomplete else "all other backends"
        wide = f"Its interval is wide, but {whose} are significantly slower."
        if winner is answer.known:
            wide = "Its interval is wide because passes differed; in ratios of backends this cancels."
        sentences.insert(1, wide)
    return tuple(sentences)


def _where(run: RunFacts, verdict: str = "") -> str:
    hosts, missing = run.head.hosts, run.incomplete
    where = "on these hosts" if len(hosts) > 1 else f"on {one_line(*hosts)}" if hosts else "on this machine"
    return f"{where}{verdict}{f', so far ({one_line(missing.message)})' if missing else ''}"


def _without_winner(name: str, answer: TaskAnswer, run: RunFacts) -> tuple[str, ...]:
    """Return why there is no winner, the best rate if there is one, and finally what to do.

    A command ends the last sentence, without a full stop, which would be copied with it.
    """
    why, remedy = _why_none(answer, run)
    sentences = [f"{name} {_where(run, ', no winner')}: {why}."]
    cell = answer.known if answer.reason is Reason.WIDE else answer.best
    if cell is not None:
        sentences.append(f"{_rank(cell, answer)}: {_in_full(cell)}.")
        if answer.reason is Reason.ALONE:
            sentences.append(_workers(cell, answer, run))
    return tuple(text for text in (*sentences, remedy) if text)


def _rank(cell: CellSummary, answer: TaskAnswer) -> str:
    """Return what is special about a cell that is named although it does not win."""
    if answer.reason is Reason.WIDE or answer.perhaps:
        return "The fastest with a usable interval"
    if answer.reason is Reason.ALONE:  # the loop that is there for speedups may be faster
        return "Its highest rate"
    higher = any(other.rate > cell.rate for other, _ in answer.doubted)
    return "The highest rate that counts" if higher else "The highest rate"


def _why_none(answer: TaskAnswer, run: RunFacts) -> tuple[str, str]:
    """Return why there is no winner, and what to do."""
    best, spec = answer.best, run.head.spec
    # The only backend to choose from; the loop if only that is there, whatever it is for.
    left = "".join(map(one_line, answer.contestants or ((best.label,) if best else ())))
    found = "no cell has a rate yet", run.goes_on
    match answer.reason:
        case Reason.NO_BACKEND:
            found = "only reference rows were measured", "Measure backends, too: leave out --backend."
        case Reason.FAILED if not spec.only:  # a race may have had no time
            found = "no backend could be measured", f"After fixing what the findings name, m{run.goes_on[1:]}"
        case Reason.DOUBTED:
            found = _excluded(answer, left, run)
        case Reason.ALONE if sum(not choice.entry.reference_row for choice in spec.backends) == 1:
            found = f"only {left} was measured", "Measure other backends, too: leave out --backend, or name more."
        case Reason.ALONE:
            found = f"only {left} has a rate", run.goes_on
        case Reason.WIDE if best:
            others = _listed([one_line(cell.label) for cell in answer.tied])
            rate = f"{setting_of(best)} has the highest rate, {rate_of(best)}"
            until = run.goes_on if spec.until else f"Measure again with --until {_NARROW_ENOUGH}."
            has_no_until = run.head.interpreter is not None  # vebench compare
            remedy = _more(run) if has_no_until or run.incomplete else until
            found = f"{rate}, too uncertain to distinguish it from {others}", remedy
        case Reason.AGED:
            changes = "its environments change speed as they are stepped"
            why = f"{changes}, and the cells' had made different numbers of steps"
            found = why, "End what grows in them, or compare backends at one number of environments in each run."
    return found


def _more(run: RunFacts) -> str:
    """Return how to measure missing cells, or if there are none, twice as many passes."""
    if run.incomplete:
        return run.goes_on
    return f"Measure again with --passes {2 * max(run.head.spec.passes, _FEWEST_PASSES)}."


def _excluded(answer: TaskAnswer, left: str, run: RunFacts) -> tuple[str, str]:
    """Return which backends are excluded and why, and what removes the first reason."""
    excluded = [(cell, why) for cell, why in answer.doubted if one_line(cell.label) != left] or answer.doubted
    by_reason: dict[Exclusion, dict[str, None]] = {}
    for cell, exclusion in excluded:
        by_reason.setdefault(exclusion, {})[cell.label] = None
    whys = [f"{_listed([*map(one_line, names)])} {DOUBTS[one][len(names) > 1]}" for one, names in by_reason.items()]
    why = f"{f'only {left} is left' if left else 'no rate counts'}, since {' and '.join(whys)}"
    cell, first = excluded[0]
    if first in (Exclusion.ABOVE_CEILING, Exclusion.BELOW_SIMULATOR, Exclusion.NO_INTERVAL, Exclusion.CONTESTED):
        return why, _more(run)
    if first is Exclusion.UNVERIFIED and (never := why_never(cell, run.head)):
        return why, f"The work of {one_line(cell.label)} cannot be compared: {never}."
    compares = run.head.interpreter is not None  # one side of vebench compare, which has fewer options
    if first is Exclusion.UNVERIFIED and not (cell.work.reason or compares or run.incomplete):
        return why, "Measure again with --verify."
    return why, f"Compare the work with: {_verify(cell, by_reason[first], run)}"


def _verify(cell: CellSummary, labels: Iterable[str], run: RunFacts) -> str:
    """Return the command that compares the work of these backends on the task of a cell."""
    count = cell.key.workers * cell.key.envs_per_worker
    more = ("--num-envs", str(count)) if count > _USUAL_ENVS else ()
    return run.head.verify_command(cell.env, labels, *more)


def _in_full(cell: CellSummary) -> str:
    """Return a cell with its rate and, if it was measured, its speedup over a plain loop."""
    on = f" on {figures.counted(cell.built.cpus_owned, 'CPU')}" if cell.conditions.oversubscribed else ""
    mark = f" ({DISTRIBUTION})" if cell.verdict == DISTRIBUTION else ""
    return f"{setting_of(cell)}{on}{mark}, {rate_of(cell)}{of_loop(cell)}"


def setting_of(cell: CellSummary) -> str:
    """Return a cell in words: ``envpool-sync with 2 workers``."""
    return f"{one_line(cell.label)} with {cell.key.size}"


def rate_of(cell: CellSummary) -> str:
    """Return the rate of a cell as sentences have it."""
    return figures.in_sentence(cell.frames_per_second or Estimate(0.0, 0.0, 0.0), " frames/s")


def of_loop(cell: CellSummary) -> str:
    """Return what follows a rate: its speedup over a plain loop; empty if unknown."""
    if cell.speedup is None or cell.label == REFERENCE:
        return ""
    return f", {figures.in_sentence(cell.speedup, 'x a plain loop')}"


def _workers(best: CellSummary, answer: TaskAnswer, run: RunFacts) -> str:
    """Return which smaller size is about as fast, or that a larger one may be faster; empty if neither."""
    if answer.smaller is not None:
        cell, share = answer.smaller
        verb = "reaches" if cell.workers == 1 else "reach"
        return f"{cell.key.size} {verb} {share.median:.0%} of it {figures.distance(share)}."
    if answer.rising:
        cpus = run.head.usable_cpus
        return f"More may be faster: {best.key.size} is the most that was measured, on {cpus} CPUs."
    return ""


def _without_leaving_gymnasium(winner: CellSummary, answer: TaskAnswer) -> str:
    """Return the fastest with Gymnasium's interface and environments; empty if that is the winner."""
    interface, whole = answer.in_gymnasium, answer.of_gymnasium
    if interface is None:
        on_its = f"; the fastest on Gymnasium's is {_over_loop(whole)}" if whole else ""
        own = f"{one_line(winner.label)} steps vebench's own environment classes{on_its}."
        return own if winner.built.steps_own_classes else ""
    if not interface.built.steps_own_classes:
        return f"The fastest with Gymnasium's interface is {_over_loop(interface)}."
    with_own = f"The fastest with Gymnasium's interface is {_over_loop(interface)}, on vebench's own classes"
    return f"{with_own}; the fastest on Gymnasium's is {_over_loop(whole)}." if whole else f"{with_own}."


def _over_loop(cell: CellSummary) -> str:
    return f"{setting_of(cell)}, {rate_of(cell) if cell.speedup is None else figures.in_sentence(cell.speedup, 'x')}"


def _listed(names: Sequence[str]) -> str:
    """Return names as people list them: ``a, b and c``, ``a, b, c and 4 others``."""
    more = len(names) - _MOST_NAMED
    *first, last = names if more <= 1 else (*names[:_MOST_NAMED], f"{more} others")
    return f"{', '.join(first)} and {last}" if first else last


def code_of(cell: CellSummary, spec: RunSpec) -> tuple[str, ...]:
    """Return lines of Python that build what the cell built, after a comment that says what its workers are.

    There are none for several replicas, which are several programs.
    """
    if cell.built.replicas > 1:
        return ()
    own = cell.built
    task = recorded_task(cell.env, own.frame_skip, spec.envs)
    built = Built(task, own.num_envs, own.batch_size, own.processes, own.threads, own.choice.options)
    lines = cell.entry.lines(built)
    batches = f"batches of {own.batch_size}, from " if own.batch_size < own.num_envs else ""
    workers = figures.counted(own.threads, "thread") if own.threads > 1 else figures.counted(own.processes, "process")
    made = f"# {cell.key.size} = {batches}{figures.counted(own.num_envs, 'environment')} in {workers}"
    return (made, *lines) if lines else ()
