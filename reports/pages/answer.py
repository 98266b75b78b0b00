"""The answer of a run in words: the winner of each task with its number of workers, or why none can be named.

``vebench.analysis.answer`` decides; this module writes the sentences, a few short ones for each task.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench.analysis.answer import Reason
from vebench.analysis.cell import Exclusion
from vebench.analysis.findings import Code
from vebench.analysis.rules import WIDE, why_never
from vebench.analysis.statistics import Estimate, ratio
from vebench.backends.entry import Built
from vebench.backends.environments.suites import short_name
from vebench.backends.registry import ENTRIES, REFERENCE
from vebench.errors import one_line
from vebench.plan.tasks import recorded_task
from vebench.plan.verdicts import DISTRIBUTION
from vebench.reports import figures
from vebench.reports.document import AnswerText

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from vebench.analysis.answer import TaskAnswer
    from vebench.analysis.cell import CellSummary
    from vebench.analysis.findings import Finding
    from vebench.plan.spec import RunSpec
    from vebench.results.records import RunRecord

RULE = "Named is the simplest of those not distinguishable from the fastest"
_MOST_SENTENCES = 4  # of a winner, besides one about a wide interval
_MOST_NAMED = 3  # backends in a sentence; of others only the number
_FEWEST_PASSES = 3
_BACKENDS = ("-b", "--backend")
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
class Commands:
    """The commands that sentences quote: made from the header of a run, the name of its file, and its findings."""

    head: RunRecord
    file: str
    findings: tuple[Finding, ...]

    @property
    def goes_on(self) -> str:
        """The command that measures what is missing."""
        return one_line(self.head.resume_command(self.file))

    @property
    def incomplete(self) -> Finding | None:
        """The finding that cells are missing, None if they are complete."""
        return self.finding(Code.INCOMPLETE)

    @property
    def more(self) -> str:
        """The command that measures missing cells, or if there are none, the run's own with twice as many repeats."""
        if self.incomplete:
            return self.goes_on
        return self.again("--passes", str(2 * max(self.head.spec.passes, _FEWEST_PASSES)))

    @property
    def more_certain(self) -> str:
        """The command that makes intervals narrow enough. ``vebench compare`` has no --until."""
        if self.head.interpreter is not None or self.incomplete:
            return self.more
        return self.goes_on if self.head.spec.until else self.again("--until", _NARROW_ENOUGH)

    @property
    def other_backends(self) -> str:
        """The run's command with all backends. Those that are measured only if they are named stay named."""
        asked = self.head.spec.backends
        if all(choice.is_ours and not choice.options for choice in asked):
            return self.again(without=_BACKENDS)
        names = {choice.name for choice in asked}
        usual = (entry.name for entry in ENTRIES if entry.by_default and not entry.reference_row)
        return f"{self.again()} -b {','.join(name for name in usual if name not in names)}"

    def verify(self, cell: CellSummary, labels: Iterable[str]) -> str:
        """Return the command that compares the work of these backends on the task of a cell."""
        count = cell.key.workers * cell.key.envs_per_worker
        more = ("--num-envs", str(count)) if count > _USUAL_ENVS else ()
        return self.head.verify_command(cell.env, labels, *more)

    def again(self, *added: str, without: Collection[str] = ()) -> str:
        """Return the run's own command with options added and others left out. It writes into a new file."""
        command, spec = self.head.command, self.head.spec
        if command.split()[:2] not in (["vebench", "run"], ["vebench", "compare"]):  # such as check, without a baseline
            words = ["vebench", "run", "--env", ",".join(spec.envs)]
            if command:
                words += ["-w", ",".join(map(str, spec.workers))]
                words += ["-b", ",".join(choice.label for choice in spec.backends)] if spec.backends else []
            command = shlex.join(words)
        left_out = {"-o", "--output", *without, *(word for word in added if word.startswith("-"))}
        return one_line(shlex.join((*_kept(command, left_out), *added)))

    def finding(self, code: Code) -> Finding | None:
        """Return the finding about the run with this code, None if there is none."""
        return next((finding for finding in self.findings if finding.code is code), None)


def _kept(command: str, left_out: Collection[str]) -> Iterator[str]:
    """Yield the words of a command line without these options and their values."""
    try:
        words = iter(shlex.split(command))
    except ValueError:  # a quote without its other half: not written by vebench
        words = iter(command.split())
    for word in words:
        if word in left_out:
            next(words, None)
        elif word.partition("=")[0] not in left_out and not (word[1:2] != "-" and word[:2] in left_out):
            yield word


def answers(found: Mapping[str, TaskAnswer], commands: Commands) -> tuple[AnswerText, ...]:
    """Return the answer of each task in words; one for the whole run if it has no cells or is unusable."""
    if not found:
        nothing = "No winner: nothing has been measured yet.", f"Measure with: {commands.goes_on}"
        return (AnswerText("", nothing, settled=False),)
    texts = []
    if any(answer.reason is Reason.UNUSABLE for answer in found.values()):
        finding = commands.finding(Code.UNUSABLE)
        remedy = finding.remedy if finding else "measure again"  # why is what the notice says
        again = f"{remedy[0].upper()}{remedy[1:]}: {commands.again()}"
        texts.append(AnswerText("", ("No winner: this run is unusable.", again), settled=False))
    short = [short_name(env) for env in found]
    for (env, answer), name in zip(found.items(), short, strict=True):
        if answer.reason is not Reason.UNUSABLE:
            winner = answer.winner
            task = one_line(env if short.count(name) > 1 else name)
            if winner is None:
                texts.append(AnswerText(one_line(env), _without_winner(task, answer, commands), settled=False))
            else:
                sentences = _of_winner(task, winner, answer, commands)
                texts.append(AnswerText(one_line(env), sentences, code_of(winner, commands.head.spec)))
    return tuple(texts)


def _of_winner(name: str, winner: CellSummary, answer: TaskAnswer, commands: Commands) -> tuple[str, ...]:
    left_out = caveat = tied = ""
    if answer.doubted and _median(answer.doubted[0][0]) > _median(winner):  # the highest of what does not count
        cell, doubt = answer.doubted[0]
        left_out = f"Excluded although faster: {setting_of(cell)}, {rate_of(cell)}; it {DOUBTS[doubt][0]}."
    alone = winner.label == REFERENCE and not answer.tied and not left_out
    loop = ", and nothing is faster than this plain loop" if alone else ""
    first = f"{name} {_where(commands)}: {_figure(winner)}{loop}."
    if winner.conditions.throttled:
        caveat = "A CPU quota held it back: with more CPUs it may be faster."
    elif winner.conditions.disturbed:
        caveat = "Others took CPU time while it was measured: it may be faster still."
    if answer.tied:
        shares = [ratio(cell.sample, winner.sample) for cell in answer.tied]
        most = max((share.high for share in shares if share is not None and share.high is not None), default=1.0)
        faster = f" (at most {figures.number(most)}x as fast)" if most > 1 else ""
        tied = f"{RULE}; the others{faster}: {_listed([setting_of(cell) for cell in answer.tied])}."
    perhaps = f"With {answer.perhaps.key.size} it may be faster: {rate_of(answer.perhaps)}." if answer.perhaps else ""
    workers, gymnasium = _workers(winner, answer, commands), _without_leaving_gymnasium(winner, answer)
    sentences = [text for text in (first, left_out or caveat, tied, perhaps, workers, gymnasium) if text]
    for least in (workers, perhaps):
        if len(sentences) > _MOST_SENTENCES and least:
            sentences.remove(least)
    if winner.half_width is not None and winner.half_width > WIDE:
        known = "Its interval is wide because passes differed; in ratios of backends this cancels."
        whose = "all others measured so far" if commands.incomplete else "all other backends"
        unknown = f"Its interval is wide, but {whose} are significantly slower."
        sentences.insert(1, known if winner is answer.known else unknown)
    return tuple(sentences)


def _where(commands: Commands, verdict: str = "") -> str:
    hosts, missing = commands.head.hosts, commands.incomplete
    where = "on these hosts" if len(hosts) > 1 else f"on {one_line(*hosts)}" if hosts else "on this machine"
    return f"{where}{verdict}{f', so far ({one_line(missing.message)})' if missing else ''}"


def _without_winner(name: str, answer: TaskAnswer, commands: Commands) -> tuple[str, ...]:
    """Return why there is no winner, the figure that there is nevertheless, and last what to do.

    A command ends the last sentence, without a full stop, which would be copied with it.
    """
    why, remedy = _why_none(answer, commands)
    first = f"{name} {_where(commands, ', no winner')}: {why}."
    cell = answer.known if answer.reason is Reason.WIDE else answer.best
    figure = ""
    if cell is not None:
        figure = f"{_rank(cell, answer)}: {_figure(cell)}."
    workers = _workers(cell, answer, commands) if cell and answer.reason is Reason.ALONE else ""
    return tuple(text for text in (first, figure, workers, remedy) if text)


def _rank(cell: CellSummary, answer: TaskAnswer) -> str:
    """Return what is special about a cell that is named although it does not win."""
    if answer.reason is Reason.WIDE or answer.perhaps:
        return "The fastest with a usable interval"
    if answer.reason is Reason.ALONE:  # the loop that is there for speedups may be faster
        return "Its highest rate"
    higher = any(_median(other) > _median(cell) for other, _ in answer.doubted)
    return "The highest rate that counts" if higher else "The highest rate"


def _why_none(answer: TaskAnswer, commands: Commands) -> tuple[str, str]:
    best, goes_on = answer.best, commands.goes_on
    # The only backend to choose from; the loop if only that is there, whatever it is for.
    left = "".join(map(one_line, answer.contestants or ((best.label,) if best else ())))
    found = "no cell has a rate yet", f"Measure with: {goes_on}"
    match answer.reason:
        case Reason.NO_BACKEND:
            found = "only reference rows were measured", f"Measure with: {commands.again(without=_BACKENDS)}"
        case Reason.FAILED if not commands.head.spec.only:  # a race may have had no time
            found = "no backend could be measured", f"After fixing what the findings name, measure with: {goes_on}"
        case Reason.DOUBTED:
            found = _doubted(answer, left, commands)
        case Reason.ALONE if sum(not choice.entry.reference_row for choice in commands.head.spec.backends) == 1:
            found = f"only {left} was measured", f"Measure with: {commands.other_backends}"
        case Reason.ALONE:
            found = f"only {left} has a rate", f"Measure the others with: {goes_on}"
        case Reason.WIDE if best:
            others = _listed([one_line(cell.label) for cell in answer.tied])
            rate = f"{setting_of(best)} has the highest rate, {rate_of(best)}"
            why = f"{rate}, too uncertain to distinguish it from {others}"
            found = why, f"Measure with: {commands.more_certain}"
        case Reason.AGED:
            changes = "its environments change speed as they are stepped"
            why = f"{changes}, and the cells' had made different numbers of steps"
            found = why, "End what grows in them, or compare backends at one number of environments in each run."
    return found


def _doubted(answer: TaskAnswer, left: str, commands: Commands) -> tuple[str, str]:
    """Return which backends' rates do not count and why, and the command that removes the first doubt."""
    doubted = [(cell, doubt) for cell, doubt in answer.doubted if one_line(cell.label) != left] or answer.doubted
    by_doubt: dict[Exclusion, dict[str, None]] = {}
    for cell, doubt in doubted:
        by_doubt.setdefault(doubt, {})[cell.label] = None
    whys = [f"{_listed([*map(one_line, names)])} {DOUBTS[doubt][len(names) > 1]}" for doubt, names in by_doubt.items()]
    why = f"{f'only {left} is left' if left else 'no rate counts'}, since {' and '.join(whys)}"
    cell, doubt = doubted[0]
    if doubt in (Exclusion.ABOVE_CEILING, Exclusion.BELOW_SIMULATOR, Exclusion.NO_INTERVAL, Exclusion.CONTESTED):
        return why, f"Measure with: {commands.more}"
    if doubt is Exclusion.UNVERIFIED and (never := why_never(cell, commands.head)):
        return why, f"The work of {one_line(cell.label)} cannot be compared: {never}."
    compares = commands.head.interpreter is not None  # one side of vebench compare, which has fewer options
    if doubt is Exclusion.UNVERIFIED and not (cell.work.reason or compares or commands.incomplete):
        return why, f"Measure with: {commands.again()} --verify"
    return why, f"Compare the work with: {commands.verify(cell, by_doubt[doubt])}"


def _figure(cell: CellSummary) -> str:
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


def _workers(best: CellSummary, answer: TaskAnswer, commands: Commands) -> str:
    """Return which smaller size is about as fast, or that a larger one may be faster; empty if neither."""
    if answer.smaller is not None:
        cell, share = answer.smaller
        verb = "reaches" if cell.workers == 1 else "reach"
        return f"{cell.key.size} {verb} {share.median:.0%} of it {figures.distance(share)}."
    if answer.rising:
        cpus = commands.head.usable_cpus
        return f"More may be faster: {best.key.size} is the most that was measured, on {cpus} CPUs."
    return ""


def _without_leaving_gymnasium(winner: CellSummary, answer: TaskAnswer) -> str:
    """Return the fastest with Gymnasium's interface and environments; empty if that is the winner."""
    interface, whole = answer.in_gymnasium, answer.of_gymnasium
    if interface is None:
        on_its = f"; the fastest on Gymnasium's is {_beside_loop(whole)}" if whole else ""
        own = f"{one_line(winner.label)} steps vebench's own environment classes{on_its}."
        return own if winner.built.steps_own_classes else ""
    if not interface.built.steps_own_classes:
        return f"The fastest with Gymnasium's interface is {_beside_loop(interface)}."
    with_own = f"The fastest with Gymnasium's interface is {_beside_loop(interface)}, on vebench's own classes"
    return f"{with_own}; the fastest on Gymnasium's is {_beside_loop(whole)}." if whole else f"{with_own}."


def _beside_loop(cell: CellSummary) -> str:
    return f"{setting_of(cell)}, {rate_of(cell) if cell.speedup is None else figures.in_sentence(cell.speedup, 'x')}"


def _median(cell: CellSummary) -> float:
    return cell.frames_per_second.median if cell.frames_per_second else 0.0


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
    task = recorded_task(cell.env, cell.built.frame_skip, spec.envs)
    built = Built(
        task,
        cell.built.num_envs,
        cell.built.batch_size,
        cell.built.processes,
        cell.built.threads,
        cell.built.choice.options,
    )
    lines = cell.entry.lines(built)
    batches = f"batches of {cell.built.batch_size}, from " if cell.built.batch_size < cell.built.num_envs else ""
    steppers = figures.counted(
        *((cell.built.threads, "thread") if cell.built.threads > 1 else (cell.built.processes, "process"))
    )
    made = f"# {cell.key.size} = {batches}{figures.counted(cell.built.num_envs, 'environment')} in {steppers}"
    return (made, *lines) if lines else ()
