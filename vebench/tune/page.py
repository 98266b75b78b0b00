"""The recommendation of a tuning, on one screen: code to paste, reasons, certainty, cost, and effect on training."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from vebench.analysis.cell import Exclusion
from vebench.analysis.findings import Code
from vebench.analysis.rules import unusable, why_never
from vebench.analysis.summary import summarise
from vebench.backends.environments.suites import short_name
from vebench.backends.registry import REFERENCE
from vebench.child.answers import Cause, Timed
from vebench.errors import one_line
from vebench.reports import columns, figures
from vebench.reports.document import AnswerText, DataPage, Document, Remark, Table, TableRow, Text
from vebench.reports.pages.answer import DOUBTS, code_of, of_loop, rate_of, setting_of
from vebench.reports.pages.rates import learner_words, where_time_goes
from vebench.reports.pages.run import run_facts, time_of_run
from vebench.tune.choice import Lack, bends, exchange, training_gain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.statistics import Estimate
    from vebench.plan.cells import CellKey
    from vebench.results.records import Run
    from vebench.tune.choice import Choice, Exchange, Latency, Rival

_MOST_RIVALS, _MOST_TIED, _MOST_LEFT_OUT = 8, 3, 6
_NANOSECONDS = 1e9  # in a second
_NOTES = (
    "setting: workers x environments per worker.",
    "relative: the rate divided by that of the first row, with its 95 % confidence interval.",
    "batch time: how long a policy that acts at once waits for one, the median and p99; or its mean time.",
    "envs/row: environments for each row of a batch; above 1, a row may be that many batches old.",
)


@dataclass(frozen=True)
class Wish:
    """The constraints on the answer.

    ``batch``: rows of a batch, None for any. ``asynchronous``: whether batches may have rows of whichever environments
    are ready. ``tolerance``: the share of the rate that may be given up for a simpler setup.
    """

    batch: int | None = None
    asynchronous: bool = True
    tolerance: float = 0.05


@dataclass(frozen=True)
class TunePage(DataPage):
    """The recommendation among the settings that were tried in the run file ``file``.

    ``steps``: step times of one environment. ``passed_over``: why settings were not tried, by their places.
    ``latencies``: the waiting times for batches, where measured. ``pools``: the rate of the recommended setting with a
    pool on each memory node, relative to one pool; None if that was not tried.
    """

    file: str
    run: Run
    choice: Choice
    wish: Wish
    steps: Timed | None = None
    passed_over: Mapping[str, str] = field(default_factory=dict)
    latencies: Mapping[CellKey, Latency] = field(default_factory=dict)
    pools: Estimate | None = None
    kind = "tune"

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: the answer, the figures that it rests on, and the commands to go on with."""
        known = dict(run_facts(self.run.header, self._cells))
        rivals = self.choice.rivals[:_MOST_RIVALS]
        shown = [(rival.cell, rival.ratio) for rival in rivals]
        if self.choice.best is not None:
            shown.insert(0, (self.choice.best, None))
        more = len(self.choice.rivals) - len(rivals)
        table = Table(
            title="The best setting of each backend",
            columns=("frames/s", "relative", "batch time", "CPUs", "memory", "envs/row", "same work"),
            rows=tuple(TableRow(_place(cell), self._texts(cell, ratio)) for cell, ratio in shown),
            corner="setting",
            numbers=False,
            notes=(*_NOTES, *((f"{more} more settings were tried.",) if more else ())),
        )
        policy = Table(
            title="Where the time goes",
            columns=("share of the loop's time",),
            rows=tuple(TableRow(_place(cell), (where_time_goes(cell),)) for cell, _ in shown if cell.figures.acting),
            corner="setting",
            numbers=False,
        )
        settled = self.choice.chosen is not None
        sentences = tuple(map(one_line, self.sentences))
        return (
            Document(
                title=one_line(self.headline),
                facts=(
                    *((name, known[name]) for name in ("machine", "condition", "packages") if name in known),
                    ("certainty", one_line(self.certainty)),
                    ("time", time_of_run(self.run)),
                    ("report", f"vebench report {shlex.quote(self.file)}"),
                    ("continue", self.run.header.resume_command(self.file)),
                ),
                tables=(table, policy) if policy.rows else (table,),
                explanations=tuple(self._doubts()),
                answers=(AnswerText(self.env, sentences, self.code, settled=settled),),
                best="what to use" if settled else "",
            ),
        )

    @property
    def env(self) -> str:
        """The full name of the task."""
        return one_line(next((cell.env for cell in self._cells), self.run.header.spec.envs[0]))

    @property
    def headline(self) -> str:
        """The answer in a sentence."""
        name, chosen = short_name(self.env), self.choice.chosen
        if chosen is None:
            return f"{name}: nothing can be recommended: {self._why_nothing()}."
        how = "; ".join((f"{rate_of(chosen)}{of_loop(chosen)}", *self._faster()))
        return f"{name}: use {setting_of(chosen)}: {how}."

    @property
    def sentences(self) -> tuple[str, ...]:
        """The answer, how it compares with the fastest, its effect on training, and last what to measure next."""
        return (
            *(self.headline, *self._why(), *self._bends(), *self._matters(), f"{self.certainty}."),
            *self._resets(),
        )

    @property
    def certainty(self) -> str:
        """How certain the answer is."""
        words = f"{figures.counted(sum(cell.status == 'ok' for cell in self._choices), 'setting')} tried"
        if self.choice.chosen is None:
            return words
        none = "none of the others" if self.choice.faster else "none"
        claim = f"{none} is faster than {setting_of(self.choice.chosen)} by more than {self.wish.tolerance:.0%}"
        if self.choice.decided:
            return f"{words}; {claim}, with 95 % confidence"
        return f"{words}; there was not enough time to show that {claim}"

    @property
    def code(self) -> tuple[str, ...]:
        """Lines of Python that build the recommended setting; empty if there is none, or they are not known."""
        chosen = self.choice.chosen
        return () if chosen is None else code_of(chosen, self.run.header.spec)

    @property
    def data(self) -> dict[str, object]:
        """The answer for programs: what to use, how certain that is, and every setting that was tried."""
        choice, chosen, found = self.choice, self.choice.chosen, self.exchange
        workers, envs = ([], []) if chosen is None else bends(self._choices, chosen)
        named = {"chosen": chosen, "best": choice.best, "fastest": choice.fastest}
        facts = {name: None if cell is None else self._facts(cell) for name, cell in named.items()}
        return {
            "env": self.env,
            "headline": self.headline,
            "decided": choice.decided,
            "certainty": self.certainty,
            "chosen": facts["chosen"],
            "lack": None if choice.lack is None else choice.lack.name.lower(),
            "best": facts["best"],
            "fastest": facts["fastest"],
            "tied": [cell.key.place for cell in choice.tied],
            "code": list(self.code),
            "tried": [self._facts(cell) for cell in self._choices],
            "bends": {
                "workers": [{"workers": one.cell.workers, "share": one.share} for one in workers],
                "envs_per_worker": [{"envs_per_worker": one.cell.envs_per_worker, "share": one.share} for one in envs],
            },
            "pool_on_each_node": self.pools,
            "learning": None
            if chosen is None or chosen.figures.learning is None
            else {**asdict(chosen.figures.learning), "times_that_of_a_loop": self._gain},
            "steps": None if self.steps is None else asdict(self.steps),
            "exchange": None
            if found is None
            else {
                "setting": found.cell.key.place,
                "at_once": found.at_once,
                "loop_step_seconds": found.step,
                "hand_over_seconds": found.hand_over,
                "break_even_seconds": found.break_even,
            },
            "not_tried": [{"setting": place, "why": why} for place, why in self._not_tried()],
            "not_offered": [{"setting": rival.cell.key.place, "why": why} for rival, why in self._not_offered()],
            "faster": [{"setting": one.cell.key.place, "ratio": one.ratio} for one in choice.faster],
            "file": self.file,
        }

    @cached_property
    def _cells(self) -> tuple[CellSummary, ...]:
        return summarise(self.run, self.file)

    @property
    def _choices(self) -> list[CellSummary]:
        return [cell for cell in self._cells if cell.key.place in self.run.header.spec.only]

    def _why_nothing(self) -> str:
        best = self.choice.best
        if best is None:
            rated = any(cell.frames_per_second for cell in self._choices)
            if rated:
                return "no setting is known to do the same work as a plain loop"
            return (
                Cause.GIVEN_UP.reason
                if Cause.GIVEN_UP.reason in dict(self._not_tried()).values()
                else "nothing could be measured"
            )
        if self.choice.lack is Lack.WIDE:
            return f"the rate of {setting_of(best)}, {rate_of(best)}, is too uncertain"
        if self.choice.lack is Lack.UNUSABLE and (finding := unusable(self._cells)):
            return "; ".join((f"the run is {finding.code}: {finding.message}; {finding.remedy}", *self._faster()))
        if self.choice.lack is Lack.DISTURBED and (cell := self.choice.disturbed):
            taken = f"other processes took {1 - cell.conditions.share_left:.0%} of its CPU time"
            why = f"{setting_of(cell)} may be faster than was measured: {taken}; measure on an idle machine"
            return "; ".join((why, *self._faster()))
        return "; ".join(self._faster())

    def _faster(self) -> Iterator[str]:
        """Yield what is faster than the best setting that may be recommended, by how much, and why it may not be."""
        best, labels = self.choice.best, set()
        for rival in self.choice.faster:
            if rival.cell.label not in labels and rival.ratio is not None and best is not None:
                labels.add(rival.cell.label)
                times = f"{figures.in_sentence(rival.ratio, 'x')} the rate of {setting_of(best)}"
                yield f"{setting_of(rival.cell)} has {times}, but {self._why_not(rival)}"

    def _why_not(self, rival: Rival) -> str:
        if rival.too_large:
            sizes = rival.cell.figures.peak_rss_bytes, self.run.header.spec.memory
            took, most = (figures.size(size or 0) for size in sizes)
            return f"takes {took}, more than the {most} allowed"
        if rival.doubt is None:
            return ""
        reason = rival.doubt is Exclusion.UNVERIFIED and (
            rival.cell.work.reason or why_never(rival.cell, self.run.header)
        )
        return f"{DOUBTS[rival.doubt][0]}{f' ({one_line(reason)})' if reason else ''}"

    def _why(self) -> Iterator[str]:
        """Yield how the setting compares with the fastest, its step times and overhead, and which others tie."""
        chosen, fastest = self.choice.chosen, self.choice.fastest
        if chosen is None and fastest is not None:
            yield f"The highest rate that may be recommended: {setting_of(fastest)}, {rate_of(fastest)}."
        if chosen is not None and fastest is not None:
            if chosen is not fastest:
                simpler = f"but not significantly, and {one_line(chosen.label)} is simpler."
                yield f"{setting_of(fastest)} was faster ({rate_of(fastest)}), {simpler}"
            if self.steps is not None:
                yield from _times(self.steps, chosen)
            if self.exchange is not None:
                yield _overhead(self.exchange, chosen)
        others = [cell for cell in self.choice.tied if cell is not fastest]
        if others:
            more = len(others) - _MOST_TIED
            named = [*map(setting_of, others[:_MOST_TIED]), *([f"{more} more"] if more > 0 else [])]
            yield f"Not distinguishable from the fastest, and within {self.wish.tolerance:.0%}: {', '.join(named)}."

    @property
    def exchange(self) -> Exchange | None:
        """The overhead of the recommended setting, or if that has none, of the fastest setting that has some."""
        chosen = self.choice.chosen
        if chosen is None:
            return None
        found = (exchange(cell, self._cells) for cell in (chosen, *(rival.cell for rival in self.choice.rivals)))
        return next((one for one in found if one is not None), None)

    def _resets(self) -> Iterator[str]:
        """Yield that windows of the recommended setting hold too few slow resets, and the command to measure them."""
        chosen = self.choice.chosen
        if chosen is None:
            return
        for finding in chosen.findings:
            if finding.code is Code.FEW_RESETS:
                backends = shlex.quote(f"{REFERENCE},{chosen.label}")
                command = f"vebench run -e {shlex.quote(short_name(self.env))} -b {backends} -w {chosen.workers}"
                size = f"--envs-per-worker {chosen.envs_per_worker}"
                yield f"For this task, {finding.message}: {finding.remedy}, in {command} {size}"

    def _bends(self) -> Iterator[str]:
        """Yield the shares of its rate that fewer workers, or other numbers of environments per worker, reach."""
        if self.choice.chosen is None:
            return
        workers, envs = bends(self._choices, self.choice.chosen)
        parts = [f"{one.share:.0%} with {figures.counted(one.cell.workers, 'worker')}" for one in workers]
        parts += [f"{one.share:.0%} with {one.cell.envs_per_worker} environments per worker" for one in envs]
        if parts:
            yield f"Of its rate remain {', '.join(parts)}."
        if self.pools is not None:
            reached = figures.in_sentence(self.pools, "x")
            yield f"A pool on each memory node (--replicas node) reaches {reached} its rate."

    @property
    def _gain(self) -> float | None:
        """How many times as fast training is as with the plain loop that has the highest rate."""
        chosen = self.choice.chosen
        loops = [cell for cell in self._cells if cell.label == REFERENCE and cell.workers == 1]
        rated = [(cell.figures.steps_per_second.median, cell) for cell in loops if cell.figures.steps_per_second]
        if chosen is None or chosen.label == REFERENCE or not rated:
            return None
        return training_gain(chosen, max(rated, key=lambda one: one[0])[1], self.run.header.spec.learner)

    def _matters(self) -> Iterator[str]:
        chosen, learner = self.choice.chosen, self.run.header.spec.learner
        if chosen is None or learner is None or chosen.figures.learning is None:
            return
        found = chosen.figures.learning
        gain = "" if self._gain is None else f", {self._gain:.2f}x as fast as with a plain loop"
        yield (
            f"With a learner that takes {learner_words(learner)}, sampling is {found.sampling:.0%} of training time. "
            f"Training makes {figures.number(found.steps_per_second)} steps/s{gain}; a faster sampler could make it at "
            f"most {found.at_most:.2f}x as fast."
        )

    def _not_tried(self) -> Iterator[tuple[str, str]]:
        measured = {cell.key.place for cell in self._cells}
        for cell in self._choices:
            if cell.status != "ok":
                yield cell.key.place, one_line(cell.reason or cell.status)
        for place in self.run.header.spec.only:
            if place not in measured:
                yield place, one_line(self.passed_over.get(place, Cause.GIVEN_UP.reason))

    def _not_offered(self) -> list[tuple[Rival, str]]:
        """Return the settings that have a rate but may not be recommended, each with the reason."""
        return [(rival, why) for rival in self.choice.rivals if (why := self._why_not(rival))]

    def _doubts(self) -> Iterator[Remark]:
        """Yield what was not tried, in one line for each backend, and what may not be recommended, with the reasons."""
        tried = {cell.label for cell in self._choices if cell.status == "ok"}
        parts = ((place.rpartition(":"), reason) for place, reason in self._not_tried())
        sizes_by_label = figures.by_key(((label, reason), size) for (label, _, size), reason in parts)
        reasons = Counter(label for label, _ in sizes_by_label)
        places_by_reason: dict[str, list[str]] = {}
        for (label, reason), sizes in sizes_by_label.items():
            whole = label not in tried and reasons[label] == 1
            place = one_line(label) if whole else f"{one_line(label)} {', '.join(sizes)}"
            places_by_reason.setdefault(reason, []).append(place)
        for reason, places in places_by_reason.items():
            more = len(places) - _MOST_LEFT_OUT
            rest = [f"{more} more backends (-f json names them)"] if more > 0 else []
            yield Remark("not tried", reason, ("; ".join([*places[:_MOST_LEFT_OUT], *rest]),), "")
        for rival, reason in self._not_offered():
            cell, head = rival.cell, self.run.header
            shown = rival.doubt is Exclusion.OTHER_WORK or (
                rival.doubt is Exclusion.UNVERIFIED and not why_never(cell, head)
            )
            command = head.verify_command(self.env, [cell.label]) if shown else ""
            remedy = "compare the work with:" if command else ""
            yield Remark("not recommended", f"{setting_of(cell)} {reason}", (), remedy, command)

    def _texts(self, cell: CellSummary, ratio: Estimate | None) -> tuple[Text, ...]:
        """Return the places of a row; ``ratio`` is the cell's rate over that of the best."""
        used = cell is self.choice.chosen
        rate, memory, work = (
            columns.of_column(columns.column_named(name), cell)
            for name in ("frames_per_second", "peak_rss_bytes", "work")
        )
        threads = (f"{figures.counted(cell.built.threads, 'thread')} each",) if cell.built.threads > 1 else ()
        alive = cell.built.num_envs / max(1, cell.built.batch_size)
        return (
            replace(rate, tone="best" if used else "plain"),
            Text((figures.times(ratio) if ratio is not None else "what to use" if used else figures.DASH,)),
            self._batch(cell),
            Text(
                (
                    figures.counted(cell.built.cpus_owned, "CPU"),
                    figures.counted(cell.built.processes, "process"),
                    *threads,
                )
            ),
            memory,
            Text((f"{alive:g}",), "plain", alive),
            replace(work, lines=(*work.lines, *(f"needs {package.name}" for package in cell.entry.packages))),
        )

    def _batch(self, cell: CellSummary) -> Text:
        """Return the waiting time for a batch, or its mean time if that was not measured."""
        if (seen := self.latencies.get(cell.key)) is not None:
            median, late = map(figures.short_time, (seen.p50_ns, seen.p99_ns))
            return Text((median, f"p99 {late}"), "plain", seen.p50_ns)
        if cell.figures.ns_per_batch is None:
            return Text((figures.DASH,), "missing")
        return Text(
            (figures.short_time(cell.figures.ns_per_batch.median), "mean"), "plain", cell.figures.ns_per_batch.median
        )

    def _facts(self, cell: CellSummary) -> dict[str, object]:
        seen = self.latencies.get(cell.key)
        return {
            "setting": cell.key.place,
            "backend": cell.backend,
            "options": dict(cell.built.choice.options),
            "workers": cell.workers,
            "envs_per_worker": cell.envs_per_worker,
            "num_envs": cell.built.num_envs,
            "batch_size": cell.built.batch_size,
            "envs_of_a_row": cell.built.num_envs / max(1, cell.built.batch_size),
            "status": cell.status,
            "frames_per_second": cell.frames_per_second,
            "steps_per_second": cell.figures.steps_per_second,
            "seconds_per_batch": None
            if cell.figures.ns_per_batch is None
            else cell.figures.ns_per_batch.scaled(1 / _NANOSECONDS),
            "latency": None if seen is None else asdict(seen),
            "cpus": cell.built.cpus_owned,
            "processes": cell.built.processes,
            "threads": cell.built.threads,
            "memory_bytes": cell.figures.peak_rss_bytes,
            "needs": [package.name for package in cell.entry.packages],
            "verdict": cell.verdict,
            "repeats": cell.repeats,
        }


def _place(cell: CellSummary) -> str:
    return f"{one_line(cell.label)} {cell.workers}x{cell.envs_per_worker}"


def _times(steps: Timed, chosen: CellSummary) -> Iterator[str]:
    """Yield how long a step and a reset take, and how often the setting completes a step."""
    step, late, reset = map(figures.short_time, (steps.step_p50_ns, steps.step_p99_ns, steps.reset_p50_ns))
    yield f"A step of one environment takes {step} (p99 {late}), a reset {reset}."
    if chosen.figures.steps_per_second:
        each = _NANOSECONDS / chosen.figures.steps_per_second.median
        cpus = figures.counted(chosen.built.cpus_owned, "CPU")
        yield (
            f"This setting completes a step every {figures.short_time(each)} on {cpus}, as if "
            f"{steps.step_p50_ns / each:.2g} ran at the same time without overhead."
        )


def _overhead(found: Exchange, chosen: CellSummary) -> str:
    """Return the overhead of a batch, and the break-even: of the recommended setting, or of another than the loop."""
    hand_over, bound = (time.scaled(_NANOSECONDS) for time in (found.hand_over, found.break_even))
    name = "Its" if found.cell is chosen else f"For {setting_of(found.cell)}, the"
    together = f"{figures.counted(found.at_once, 'environment')} stepping at a time"
    if not hand_over.high:
        return f"{name} overhead per batch is too small to measure ({together})."
    takes, less = (
        f"{figures.short_time(one.median)} {figures.distance(one)}" if one.low else figures.short_time(one.high or 0)
        for one in (hand_over, bound)
    )
    most, below = "" if hand_over.low else "at most ", "less than" if bound.low else "at most"
    here = figures.short_time(found.step * _NANOSECONDS)
    return (
        f"{name} overhead is {most}{takes} per batch of {found.cell.built.batch_size} ({together}): "
        f"a plain loop is faster if a step takes {below} {less}; here it takes {here}."
    )
