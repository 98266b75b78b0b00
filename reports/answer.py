"""The conclusion of a run in words: the winner of each task with its number of workers, or why there is none.

``vebench.analysis.answer`` decides. This module writes a few short sentences for each task.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vebench.analysis.answer import Reason, TaskAnswer
from vebench.analysis.cell import CellSummary, Code, Exclusion, Finding
from vebench.analysis.statistics import Estimate, ratio
from vebench.analysis.unevenness import predicted
from vebench.backends.entry import Built
from vebench.backends.environments.suites import short_name
from vebench.backends.registry import AHEAD, PARTIAL, REFERENCE
from vebench.backends.training import Training
from vebench.child.answers import Timed
from vebench.errors import one_line
from vebench.plan.spec import MARGIN
from vebench.plan.tasks import recorded_task
from vebench.plan.verdicts import DISTRIBUTION, SAME
from vebench.reports import figures
from vebench.reports.document import AnswerText
from vebench.results.records import Run, RunRecord

DOUBTS = {
    Exclusion.OTHER_WORK: "does different work",
    Exclusion.UNVERIFIED: "is not known to do the same work",
    Exclusion.ABOVE_CEILING: "is significantly faster than the bare simulator",
    Exclusion.BELOW_SIMULATOR: "takes less CPU time than the bare simulator",
    Exclusion.NOT_PINNED: "was not pinned to its CPUs",
    Exclusion.CONTESTED: "polls on CPUs that other processes used, so its rate is not valid",
    Exclusion.NO_INTERVAL: "has only one window",
}
# The purpose of rows that are not for a policy on the CPU, by the role of their backends.
ASIDE = {
    "device": "With rows left on the device, for a policy there",
    "rollout": "Rollouts with random actions, as in published rates",
}
_WORTH_SAYING = 1.05  # a smaller predicted ratio is not shown


@dataclass(frozen=True)
class Section:
    """One run file, analysed."""

    name: str  # the name of the file, as the user wrote it
    letter: str
    run: Run
    cells: tuple[CellSummary, ...]
    findings: tuple[Finding, ...]  # findings on the run as a whole

    @property
    def head(self) -> RunRecord:
        """The run's first line."""
        return self.run.header

    @property
    def reported(self) -> Iterator[CellSummary]:
        """The cells, each with the findings on the run as a whole added to its own."""
        for cell in self.cells:
            yield replace(cell, findings=(*cell.findings, *self.findings)) if self.findings else cell

    @property
    def notice(self) -> str:
        """Why the run is unusable, on one line; empty if it is usable."""
        found = self.finding(Code.UNUSABLE)
        return "" if found is None else f"{found.code}: {found.message}; {found.remedy}"

    def finding(self, code: Code) -> Finding | None:
        """Return the finding on the run with this code, or None."""
        return next((finding for finding in self.findings if finding.code is code), None)


def answers(found: Mapping[str, TaskAnswer], section: Section) -> tuple[AnswerText, ...]:
    """Return the conclusion about each task. A run without cells, or an unusable run, has one conclusion."""
    if not found:
        sentences = ("No winner: nothing has been measured yet.", "Measure with:")
        return (AnswerText("", sentences, command=section.head.resume_command(section.name), settled=False),)
    if unusable := section.finding(Code.UNUSABLE):  # the notice says why
        remedy = unusable.remedy
        again = f"{remedy[0].upper()}{remedy[1:]}."
        return (AnswerText("", ("No winner: this run is unusable.", again), settled=False),)
    short = [short_name(env) for env in found]
    hosts, missing = section.head.hosts, section.finding(Code.INCOMPLETE)
    where = "on these hosts" if len(hosts) > 1 else f"on {one_line(*hosts)}" if hosts else "on this machine"
    so_far = f", so far ({one_line(missing.message)})" if missing else ""
    texts = []
    for (env, answer), name in zip(found.items(), short, strict=True):
        subject = f"{one_line(env if short.count(name) > 1 else name)} {where}"
        more = (*_aside(env, section), *_elsewhere(env, found, section))
        if answer.winner is None:
            text = _without_winner(env, f"{subject}, no winner{so_far}", answer, section)
            *first, remedy = text.sentences
            texts.append(replace(text, sentences=(*first, *more, remedy)))
        else:
            said = list(_of_winner(f"{subject}{so_far}", answer.winner, answer))
            code = code_of(answer.winner, section.head)
            texts.append(AnswerText(one_line(env), (*said[:5], *more), code))  # readers skip longer texts
    return tuple(texts)


def _of_winner(subject: str, winner: CellSummary, answer: TaskAnswer) -> Iterator[str]:
    """Yield the sentences about a winner, the most important first."""
    yield f"{subject}: {_in_full(winner)}."
    if answer.doubted and answer.doubted[0][0].rate > winner.rate:
        cell, why = answer.doubted[0]
        yield f"Excluded although faster: {setting_of(cell)}, {rate_of(cell)}; it {DOUBTS[why]}."
    if answer.tied:
        shares = [ratio(cell.sample, winner.sample) for cell in answer.tied]
        most = max((share.high for share in shares if share is not None and share.high is not None), default=1.0)
        faster = f" (at most {figures.number(most)}x as fast)" if most > 1 else ""
        others = _listed([setting_of(cell) for cell in answer.tied])
        yield f"Statistically tied{faster}: {others}. The simplest within {MARGIN:.0%} of the fastest is named."
    interface, whole = answer.in_gymnasium, answer.of_gymnasium
    if interface is not None:
        yield f"The fastest with Gymnasium's interface is {_over_loop(interface)}."
    own = interface or winner
    if own.steps_own_classes:
        rest = f"; the fastest on Gymnasium's is {_over_loop(whole)}" if whole else ""
        yield f"{one_line(own.label)} steps vebench's own environment classes{rest}."
    if answer.perhaps:
        yield f"With {answer.perhaps.key.size} it may be faster: {rate_of(answer.perhaps)}."
    yield from _smaller(answer)


def _aside(env: str, section: Section) -> Iterator[str]:
    """Yield the fastest cell of each purpose in ``ASIDE``."""
    for role, purpose in ASIDE.items():
        cells = [cell for cell in section.cells if cell.env == env and cell.entry.role == role and not cell.exclusion]
        best = max(cells, key=lambda cell: cell.rate, default=None)
        if best is not None and best.rate > 0:
            yield f"{purpose}: {setting_of(best)}, {rate_of(best)}."


def _elsewhere(env: str, found: Mapping[str, TaskAnswer], section: Section) -> Iterator[str]:
    """Yield the best rates of other implementations that have the same distribution of episodes."""
    for other, verdict in section.head.implementations.get(env, {}).items():
        both = [found[name] for name in (env, other) if name in found]
        known = [one.best for one in both if one.best is not None and one.reason in (None, Reason.ALONE)]
        if verdict not in SAME or len(known) < len("AB"):
            continue
        mine, theirs = known
        times = ratio(theirs.sample, mine.sample) or Estimate(theirs.rate / mine.rate)
        times = times.scaled(mine.built.frame_skip / theirs.built.frame_skip)  # of steps, because frames differ
        rate = figures.in_sentence(theirs.figures.steps_per_second or Estimate(0.0), " steps/s")
        what = f"{one_line(other)} is another implementation with the same distribution of episodes (verify, p >= 0.05)"
        yield f"{what}: {setting_of(theirs)}, {rate}, {figures.in_sentence(times, 'x')}."
        if theirs.figures.gpu_bytes_per_env:
            cpus = figures.in_sentence(times.scaled(mine.cpus_owned), " CPUs")
            yield f"One GPU replaces {cpus} of {setting_of(mine)}."


def kept_apart(head: RunRecord) -> Iterator[str]:
    """Yield why the rates of two implementations of a task are not compared, with the command that compares them."""
    for env, others in head.implementations.items():
        for other in (name for name, verdict in others.items() if verdict not in SAME):
            command = shlex.join(("vebench", "verify", env, other, "--within", "distribution"))
            known = "which differs" if others[other] == "different" else "not compared"
            yield f"{one_line(other)} is another implementation of {one_line(env)}, {known}: {command}"


def _smaller(answer: TaskAnswer) -> Iterator[str]:
    """Yield that a smaller size is almost as fast."""
    if answer.smaller is not None:
        cell, share = answer.smaller
        yield f"With {cell.key.size}, {share.median:.0%} of it remain {figures.distance(share)}."


def _without_winner(env: str, subject: str, answer: TaskAnswer, section: Section) -> AnswerText:
    """Return why there is no winner, the best rate if any, and a remedy."""
    best, spec = answer.best, section.head.spec
    # The only backend to choose from. If there is none, the backend of the best cell: the plain loop.
    left = "".join(map(one_line, answer.contestants or ((best.label,) if best else ())))
    why, remedy, command = "no cell has a rate yet", "Measure with:", section.head.resume_command(section.name)
    known = "The highest rate", best
    match answer.reason:
        case Reason.NO_BACKEND:
            why, remedy, command = "only reference rows were measured", "Measure backends, too: leave out -b.", ""
        case Reason.FAILED if not spec.only:  # in a race, there may have been no time to measure
            why, remedy = "no backend could be measured", "After fixing what the findings name, measure with:"
        case Reason.DOUBTED:
            why, remedy, command = _excluded(answer, left, section)
        case Reason.ALONE if sum(choice.entry.candidate for choice in spec.backends) == 1:
            why, remedy, command = f"only {left} was measured", "Measure other backends, too: leave out -b.", ""
        case Reason.ALONE:
            why = f"only {left} has a rate"
        case Reason.WIDE if best:
            others = _listed([one_line(cell.label) for cell in answer.tied])
            highest = f"{setting_of(best)} has the highest rate, {rate_of(best)}"
            why = f"{highest}, too uncertain to distinguish it from {others}"
            remedy, command = _more(section)
            known = "The fastest with a usable interval", answer.known
        case Reason.AGED:
            why = "its environments change speed as they are stepped, and cells had made different numbers of steps"
            remedy, command = "Compare backends at one number of environments in each run.", ""
    sentences = [f"{subject}: {why}."]
    words, cell = known
    if cell is not None:
        sentences.append(f"{words}: {_in_full(cell)}.")
        if answer.reason is Reason.ALONE:
            sentences += _smaller(answer)
    return AnswerText(one_line(env), (*sentences, remedy), settled=False, command=command)


def _more(section: Section) -> tuple[str, str]:
    """Return the sentence and the command to measure missing cells or, without these, twice as many passes."""
    spec = section.head.spec
    if spec.until or section.head.chose_cells or section.finding(Code.INCOMPLETE):
        return "Measure with:", section.head.resume_command(section.name)
    return f"Measure again with --passes {2 * max(spec.passes, 3)}.", ""


def _excluded(answer: TaskAnswer, left: str, section: Section) -> tuple[str, str, str]:
    """Return the excluded backends with their reasons, and the remedy and command for the first reason."""
    excluded = [(cell, why) for cell, why in answer.doubted if one_line(cell.label) != left] or answer.doubted
    by_reason = figures.by_key((why, cell.label) for cell, why in excluded)
    whys = [f"{_listed([*map(one_line, labels)])} ({why.value})" for why, labels in by_reason.items()]
    why = f"{f'only {left} is left' if left else 'no rate counts'}; excluded: {', '.join(whys)}"
    cell, first = excluded[0]
    if first not in (Exclusion.OTHER_WORK, Exclusion.UNVERIFIED, Exclusion.NOT_PINNED):
        return why, *_more(section)
    count = max(2, cell.key.workers * cell.key.envs_per_worker)
    command = section.head.verify_command(cell.env, by_reason[first], "--num-envs", str(count))
    return why, "Compare the work with:", command


def _in_full(cell: CellSummary) -> str:
    """Return a cell with its rate and, if it was measured, its speedup over a plain loop."""
    on = f" on {figures.counted(cell.cpus_owned, 'CPU')}" if cell.conditions.oversubscribed else ""
    mark = f" ({DISTRIBUTION})" if cell.verdict == DISTRIBUTION else ""
    return f"{setting_of(cell)}{on}{mark}, {rate_of(cell)}{of_loop(cell)}"


def setting_of(cell: CellSummary) -> str:
    """Return a cell in words: ``envpool-sync with 2 workers``."""
    return f"{one_line(cell.label)} with {cell.key.size}"


def rate_of(cell: CellSummary) -> str:
    """Return the rate of a cell for a sentence."""
    return figures.in_sentence(cell.frames_per_second or Estimate(0.0, 0.0, 0.0), " frames/s")


def of_loop(cell: CellSummary) -> str:
    """Return the speedup over a plain loop, to follow a rate in a sentence; empty if unknown."""
    if cell.speedup is None or cell.label == REFERENCE:
        return ""
    return f", {figures.in_sentence(cell.speedup, 'x a plain loop')}"


def _over_loop(cell: CellSummary) -> str:
    return f"{setting_of(cell)}, {rate_of(cell) if cell.speedup is None else figures.in_sentence(cell.speedup, 'x')}"


def _listed(names: Sequence[str]) -> str:
    """Return names as a list in words: ``a, b and c``, ``a, b, c and 4 others``."""
    *first, last = names
    if len(first) > 3:  # noqa: PLR2004 - longer lists are skipped
        first, last = [*names[:3]], f"{len(names) - 3} others"
    return f"{', '.join(first)} and {last}" if first else last


def step_words(timed: Timed, cell: CellSummary) -> Iterator[str]:
    """Yield the times of steps and resets. If they wait or are uneven, yield what that means for the cell's batches."""
    times = timed.step_p50_ns, timed.step_p99_ns, timed.reset_p50_ns, timed.reset_p99_ns
    step, late, reset, late_reset = map(figures.short_time, times)
    rows = cell.workers * cell.envs_per_worker
    found = predicted(timed, cell.workers if timed.waits else cell.cpus_owned, rows)
    of_time = f"; resets take {found.resets:.0%} of a plain loop's time" if found and timed.lengths else ""
    yield f"A step of one environment takes {step} (p99 {late}), a reset {reset} (p99 {late_reset}){of_time}."
    if timed.waits:
        whole, works, wait = map(figures.short_time, (timed.mean_ns, timed.mean_ns - timed.idle_ns, timed.idle_ns))
        most = figures.number(rows * 1e9 / timed.idle_ns)
        yield f"Steps wait: of {whole} for a step with resets, a CPU works for {works}. Use more workers than CPUs."
        yield f"{figures.counted(rows, 'environment')} at a time make at most {most} steps/s ({rows} / {wait})."
    gains = {f"partial batches ({PARTIAL})": found.partial, f"resets ahead ({AHEAD})": found.ahead} if found else {}
    if found and (ways := [f"{gain:.2f}x with {way}" for way, gain in gains.items() if gain >= _WORTH_SAYING]):
        yield f"In whole batches of {rows}, processes wait {found.waiting:.0%} of the time. Predicted: {_listed(ways)}."


def code_of(cell: CellSummary, head: RunRecord) -> tuple[str, ...]:
    """Return lines of Python that build the cell's environments, after a comment that describes them.

    If the run names an algorithm or a library, the lines begin to train. There are no lines if these cannot use the
    backend, and for several replicas, because these are several programs.
    """
    if len(cell.built.replicas) > 1:
        return ()
    own, spec = cell.built, head.spec
    task = recorded_task(cell.env, own.frame_skip, spec.envs, batched=own.batched)
    built = Built(own.num_envs, own.batch_size, own.processes, own.threads, task, own.choice.options)
    threads = cell.figures.learning.learner.threads if cell.figures.learning else 0
    pictures = spec.policy.kind == "nature-cnn" if spec.policy.is_network else None
    lines = Training(spec.algorithm, spec.library, pictures, threads).script(cell.entry, built)
    batches = f"batches of {own.batch_size}, from " if own.batch_size < own.num_envs else ""
    workers = figures.counted(own.threads, "thread") if own.threads > 1 else figures.counted(own.processes, "process")
    made = f"# {cell.key.size} = {batches}{figures.counted(own.num_envs, 'environment')} in {workers}"
    return (made, *lines) if lines else ()
