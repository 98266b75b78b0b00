"""What to use, on one screen: the lines to paste, why, how sure, what it costs, and whether it matters."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, ClassVar

from vebench.analysis.answer import Doubt
from vebench.analysis.rules import unusable
from vebench.analysis.summary import summarise
from vebench.analysis.tuning import EPISODES, Lack, bends, exchange, missed_resets, training_gain
from vebench.backends.environments.suites import short_name
from vebench.backends.registry import REFERENCE
from vebench.engine.runner import GIVEN_UP
from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.document import Answer, Document, Explanation, Table, TableRow, Text
from vebench.reports.pages.answer import DOUBTS, code_of
from vebench.reports.pages.rates import learner_words, where_time_goes
from vebench.reports.pages.run import facts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.statistics import Estimate
    from vebench.analysis.tuning import Choice, Exchange, Latency, MissedResets, Rival
    from vebench.child.answers import Timed
    from vebench.plan.cells import CellKey
    from vebench.plan.spec import RunSpec
    from vebench.reports.document import Kind
    from vebench.results.records import Run

_MOST_RIVALS, _MOST_TIED, _MOST_LEFT_OUT = 8, 3, 6
_NANOSECONDS = 1e9  # in a second


@dataclass(frozen=True)
class Wish:
    """What the answer has to keep to.

    ``batch``: rows of a batch, None for any. ``asynchronous``: whether batches may have rows of whichever environments
    are ready. ``tolerance``: the share of the rate that may be given up for something simpler.
    """

    batch: int | None = None
    asynchronous: bool = True
    tolerance: float = 0.05


@dataclass(frozen=True)
class TunePage:
    """What to use of the settings that were tried in the run file ``file``. ``steps``: how long those of one take.

    ``passed_over``: why settings were not tried, by their places. ``latencies``: how long a batch is waited for, of
    those of which that was seen. ``pools``: the rate of what is recommended with a pool on each memory node, over that
    of one pool; None if that was not tried.
    """

    file: str
    run: Run
    choice: Choice
    wish: Wish
    steps: Timed | None = None
    passed_over: Mapping[str, str] = field(default_factory=dict)
    latencies: Mapping[CellKey, Latency] = field(default_factory=dict)
    pools: Estimate | None = None
    kind: ClassVar[Kind] = "tune"
    title: ClassVar[str] = ""

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: the answer, what it stands on, and how to look at it."""
        known = dict(facts(self.run.header, self._cells))
        table = Table(
            title="What the best setting of each backend costs",
            corner="backend",
            columns=("rate", "beside it", "a batch", "CPUs", "memory", "envs of a row", "same work"),
            rows=tuple(TableRow(_place(cell), texts) for cell, texts in self._rows()),
            numbers=False,
            notes=tuple(self._notes()),
        )
        names = ("machine", "condition", "packages")
        return (
            Document(
                title=one_line(self.headline),
                facts=(
                    *((name, known[name]) for name in names if name in known),
                    ("how sure", one_line(self.certainty)),
                    ("look at it", f"vebench report {shlex.quote(self.file)}"),
                    ("go on", self.run.header.resume_command(self.file)),
                ),
                tables=(table, *self._policy()),
                explanations=tuple(self._doubts()),
                answers=(Answer(self.env, tuple(map(one_line, self.sentences)), self.code, settled=self.settled),),
                best="what to use" if self.settled else "",
            ),
        )

    @property
    def env(self) -> str:
        """The full name of the task."""
        return one_line(next((cell.env for cell in self._cells), self.run.header.spec.envs[0]))

    @property
    def settled(self) -> bool:
        """Whether there is something to use."""
        return self.choice.chosen is not None

    @property
    def headline(self) -> str:
        """The answer in a sentence."""
        name, chosen = short_name(self.env), self.choice.chosen
        if chosen is None:
            return f"{name}: nothing can be recommended: {self._why_nothing()}."
        faster = "".join(f"; {words}" for words in self._faster())
        return f"{name}: use {_place(chosen)}: {_rate(chosen)}{_beside_loop(chosen)}{faster}."

    @property
    def sentences(self) -> tuple[str, ...]:
        """The answer, how it compares with the fastest, and whether it matters."""
        known = (*self._known(), *self._why(), *self._ties(), *self._bends(), *self._matters())
        return (self.headline, *known, f"{self.certainty}.")

    @property
    def certainty(self) -> str:
        """How sure the answer is."""
        tried = sum(cell.status == "ok" for cell in self._choices)
        words = f"{figures.counted(tried, 'setting')} tried"
        if self.choice.chosen is None:
            return words
        none = "none of the others" if self.choice.faster else "none"
        claim = f"{none} is faster than {_place(self.choice.chosen)} by more than {self.wish.tolerance:.0%}"
        if self.choice.decided:
            return f"{words}; {claim}, with 95 % confidence"
        return f"{words}; the time did not suffice to say that {claim}"

    @property
    def code(self) -> tuple[str, ...]:
        """Lines of Python that build what is recommended; empty if that is not known."""
        chosen = self.choice.chosen
        return () if chosen is None else code_of(chosen, self.run.header.spec)

    @property
    def data(self) -> dict[str, object]:
        """The answer for programs: what to use, how sure, and every setting that was tried."""
        return {
            "env": self.env,
            "headline": self.headline,
            "decided": self.choice.decided,
            "certainty": self.certainty,
            "chosen": None if self.choice.chosen is None else self._facts(self.choice.chosen),
            "lack": None if self.choice.lack is None else self.choice.lack.name.lower(),
            "best": None if self.choice.best is None else self._facts(self.choice.best),
            "fastest": None if self.choice.fastest is None else self._facts(self.choice.fastest),
            "tied": [cell.key.place for cell in self.choice.tied],
            "code": list(self.code),
            "tried": [self._facts(cell) for cell in self._choices],
            "bends": self._bend_facts(),
            "pool_on_each_node": self.pools,
            "learning": self._learning_facts(),
            "steps": None if self.steps is None else asdict(self.steps),
            "missed_resets": None if self.missed is None else asdict(self.missed),
            "exchange": None if self.exchange is None else _exchange_facts(self.exchange),
            "not_tried": [{"setting": place, "why": why} for place, why in self._not_tried()],
            "not_offered": [{"setting": rival.cell.key.place, "why": why} for rival, why in self._not_offered()],
            "faster": [{"setting": one.cell.key.place, "ratio": one.ratio} for one in self.choice.faster],
            "file": self.file,
        }

    @cached_property
    def _cells(self) -> tuple[CellSummary, ...]:
        return summarise(self.run, self.file)

    @property
    def _spec(self) -> RunSpec:
        return self.run.header.spec

    @property
    def _choices(self) -> tuple[CellSummary, ...]:
        return tuple(cell for cell in self._cells if cell.key.place in self.run.header.spec.only)

    def _why_nothing(self) -> str:
        best = self.choice.best
        if best is None:
            rated = any(cell.frames_per_second for cell in self._choices)
            return "no setting is known to do the same work as a plain loop" if rated else "nothing could be measured"
        if self.choice.lack is Lack.WIDE:
            return f"the rate of {_place(best)}, {_rate(best)}, is little more than a guess"
        if self.choice.lack is Lack.UNUSABLE and (finding := unusable(self._cells)):
            return "; ".join((f"the run is {finding.code}: {finding.message}; {finding.remedy}", *self._faster()))
        return "; ".join(self._faster())

    def _faster(self) -> Iterator[str]:
        """Yield what is faster than the best setting that may be offered, by how much, and why it may not be."""
        labels = set()
        for rival in self.choice.faster:
            if rival.cell.label not in labels and rival.ratio is not None and self.choice.best is not None:
                labels.add(rival.cell.label)
                times = f"{figures.times(rival.ratio)} the rate of {_place(self.choice.best)}"
                yield f"{_place(rival.cell)} has {times}, but {self._why_not(rival)}"

    def _why_not(self, rival: Rival) -> str:
        """Return why a setting that has a rate may not be offered."""
        if rival.too_large:
            took, most = (figures.size(count or 0) for count in (rival.cell.peak_rss_bytes, self._spec.memory))
            return f"takes {took}, more than the {most} allowed"
        if rival.doubt is None:
            return ""
        reason = rival.cell.verdict_reason if rival.doubt is Doubt.UNVERIFIED else ""
        return f"{DOUBTS[rival.doubt][0]}{f' ({one_line(reason)})' if reason else ''}"

    def _known(self) -> Iterator[str]:
        """Yield the highest rate that is known if nothing can be recommended."""
        fastest = self.choice.fastest
        if self.choice.chosen is None and fastest is not None:
            yield f"The highest measured rate of those that may be offered: {_place(fastest)}, {_rate(fastest)}."

    def _why(self) -> Iterator[str]:
        chosen, fastest = self.choice.chosen, self.choice.fastest
        if chosen is None or fastest is None:
            return
        if chosen is not fastest:
            yield (
                f"{_place(fastest)} is not known to be faster ({_rate(fastest)}), and {one_line(chosen.label)} is "
                "simpler."
            )
        if self.steps is not None:
            yield from self._times(self.steps, chosen)
            yield from self._resets(self.steps, chosen)
        if self.exchange is not None:
            yield from _exchange_words(self.exchange, chosen)

    @property
    def exchange(self) -> Exchange | None:
        """What handing over takes what is recommended, or, if that hands nothing over, the fastest that does."""
        chosen = self.choice.chosen
        if chosen is None:
            return None
        found = (exchange(cell, self._cells) for cell in (chosen, *(rival.cell for rival in self.choice.rivals)))
        return next((one for one in found if one is not None), None)

    @property
    def missed(self) -> MissedResets | None:
        """What the windows of what is recommended leave out of the resets, None if that is little."""
        chosen = self.choice.chosen
        if self.steps is None or chosen is None:
            return None
        return missed_resets(self.steps, chosen, self.wish.tolerance)

    @staticmethod
    def _times(steps: Timed, chosen: CellSummary) -> Iterator[str]:
        """Yield how long steps take, and what the backend makes of that."""
        step, late, reset = (figures.short(time) for time in (steps.step_p50_ns, steps.step_p99_ns, steps.reset_p50_ns))
        yield f"A step of one environment takes {step} (99 of 100 at most {late}), a reset {reset}."
        if chosen.steps_per_second:
            each = 1e9 / chosen.steps_per_second.median
            at_once = f"{steps.step_p50_ns / each:.2g} stepped at a time, and handing over took nothing"
            cpus = figures.counted(chosen.cpus_owned, "CPU")
            yield f"Here one is done every {figures.short(each)}, as if {at_once}, on {cpus}."

    def _resets(self, steps: Timed, chosen: CellSummary) -> Iterator[str]:
        """Yield what windows shorter than episodes leave out, and what to measure instead."""
        missed = self.missed
        if missed is None:
            return
        measure = (
            f"vebench run -e {shlex.quote(short_name(self.env))} -b {shlex.quote(f'{REFERENCE},{chosen.label}')} "
            f"-w {chosen.workers} --envs-per-worker {chosen.envs_per_worker} --duration {ceil(missed.seconds)}"
        )
        most, least = ("", "") if steps.ends else ("up to ", "at least ")
        yield (
            f"Resets are hardly in these rates: they take {most}{missed.share:.0%} of an environment's time in the "
            f"long run, and windows hold fewer than {EPISODES} episodes of each. Settings with many environments look "
            f"the faster for it; {least}this has them: {measure}"
        )

    def _ties(self) -> Iterator[str]:
        others = [cell for cell in self.choice.tied if cell is not self.choice.fastest]
        if others:
            more = len(others) - _MOST_TIED
            named = [*map(_place, others[:_MOST_TIED]), *([f"{more} more"] if more > 0 else [])]
            yield f"Not told apart from the fastest, and within {self.wish.tolerance:.0%}: {', '.join(named)}."

    def _bends(self) -> Iterator[str]:
        """Yield what fewer workers, or other numbers of environments for each, reach of what is recommended."""
        if self.choice.chosen is None:
            return
        workers, envs = bends(self._choices, self.choice.chosen)
        parts = []
        if workers:
            reached = ", ".join(f"{figures.counted(one.cell.workers, 'worker')} {one.share:.0%}" for one in workers)
            parts.append(f"with {reached} of its rate")
        if envs:
            (first, *rest) = envs
            each = figures.counted(first.cell.envs_per_worker, "environment")
            reached = ", ".join(f"with {one.cell.envs_per_worker} {one.share:.0%}" for one in rest)
            parts.append(f"with {each} for each worker {first.share:.0%}{', ' if rest else ''}{reached}")
        if parts:
            yield f"W{'; '.join(parts)[1:]}."
        if self.pools is not None:
            yield f"With a pool on each memory node (vebench run --replicas node), {figures.times(self.pools)} of it."

    def _bend_facts(self) -> dict[str, object]:
        chosen = self.choice.chosen
        workers, envs = ([], []) if chosen is None else bends(self._choices, chosen)
        return {
            "workers": [{"workers": one.cell.workers, "share": one.share} for one in workers],
            "envs_per_worker": [{"envs_per_worker": one.cell.envs_per_worker, "share": one.share} for one in envs],
        }

    @property
    def _loop(self) -> CellSummary | None:
        """The plain loop with the highest rate, None if none has one."""
        loops = [cell for cell in self._cells if cell.label == REFERENCE and cell.workers == 1]
        rated = [(cell.steps_per_second.median, cell) for cell in loops if cell.steps_per_second]
        return max(rated, key=lambda one: one[0])[1] if rated else None

    def _gain(self) -> float | None:
        chosen, loop = self.choice.chosen, self._loop
        if chosen is None or loop is None or chosen.label == REFERENCE:
            return None
        return training_gain(chosen, loop, self._spec.learner)

    def _matters(self) -> Iterator[str]:
        chosen, learner = self.choice.chosen, self._spec.learner
        if chosen is None or learner is None or chosen.learning is None:
            return
        found, gain = chosen.learning, self._gain()
        beside = "" if gain is None else f", {gain:.2f}x of what it is with a plain loop"
        yield (
            f"With a learner of {learner_words(learner)}, sampling is {found.sampling:.0%} of training: "
            f"{figures.number(found.steps_per_second)} steps/s{beside}, and at most {found.at_most:.2f}x with a faster "
            "sampler."
        )

    def _learning_facts(self) -> dict[str, object] | None:
        chosen = self.choice.chosen
        if chosen is None or chosen.learning is None:
            return None
        return {**asdict(chosen.learning), "times_that_of_a_loop": self._gain()}

    def _rows(self) -> Iterator[tuple[CellSummary, tuple[Text, ...]]]:
        best = self.choice.best
        if best is not None:
            yield best, self._texts(best, None, best=self.settled)
        for rival in self.choice.rivals[:_MOST_RIVALS]:
            yield rival.cell, self._texts(rival.cell, rival, best=False)

    def _notes(self) -> Iterator[str]:
        yield "rate: frames/s; beside it: over the rate of the first row, with its 95 % interval."
        yield "a batch: how long it is waited for by what acts at once, and 99 of 100 at most; or its time on average."
        yield "envs of a row: how many are alive for each row of a batch; above 1, so many batches old may a row be."
        if len(self.choice.rivals) > _MOST_RIVALS:
            yield f"{len(self.choice.rivals) - _MOST_RIVALS} more: vebench report."

    def _policy(self) -> Iterator[Table]:
        cells = [cell for cell, _ in self._rows() if cell.acting]
        if cells:
            yield Table(
                title="Where the time goes",
                corner="backend",
                columns=("of the loop's time",),
                rows=tuple(TableRow(_place(cell), (where_time_goes(cell),)) for cell in cells),
                numbers=False,
            )

    def _not_tried(self) -> Iterator[tuple[str, str]]:
        measured = {cell.key.place for cell in self._cells}
        for cell in self._choices:
            if cell.status != "ok":
                yield cell.key.place, one_line(cell.reason or cell.status)
        for place in self.run.header.spec.only:
            if place not in measured:
                yield place, one_line(self.passed_over.get(place, GIVEN_UP))

    def _not_offered(self) -> Iterator[tuple[Rival, str]]:
        """Yield what has a rate, and may not be recommended, with why."""
        for rival in self.choice.rivals:
            if why := self._why_not(rival):
                yield rival, why

    def _doubts(self) -> Iterator[Explanation]:
        why: dict[str, list[str]] = {}
        for place, reason in self._left_out():
            why.setdefault(reason, []).append(place)
        for reason, places in why.items():
            yield Explanation("not tried", f"{_shortened(places)}: {reason}", (), "")
        for rival, reason in self._not_offered():
            command = "" if rival.doubt is None else self.run.header.verify_command(self.env, [rival.cell.label])
            yield Explanation("not offered", f"{_place(rival.cell)} {reason}", (), command)

    def _left_out(self) -> Iterator[tuple[str, str]]:
        """Yield what was not tried with why, of each backend in one line: the label alone if nothing of it was."""
        tried = {cell.label for cell in self._choices if cell.status == "ok"}
        left: dict[tuple[str, str], list[str]] = {}
        for place, reason in self._not_tried():
            label, _, size = place.rpartition(":")
            left.setdefault((label, reason), []).append(size)
        reasons = Counter(label for label, _ in left)
        for (label, reason), sizes in left.items():
            whole = label not in tried and reasons[label] == 1
            yield (one_line(label) if whole else f"{one_line(label)} {', '.join(sizes)}"), reason

    def _texts(self, cell: CellSummary, rival: Rival | None, *, best: bool) -> tuple[Text, ...]:
        threads = (f"{figures.counted(cell.threads, 'thread')} each",) if cell.threads > 1 else ()
        processes = f"{cell.processes} process{'es' * (cell.processes != 1)}"
        beside = "" if rival is None or rival.ratio is None else figures.times(rival.ratio)
        rate = "-" if cell.frames_per_second is None else figures.rate(cell.frames_per_second)
        return (
            Text((rate,), "best" if best else "plain", cell.frames_per_second),
            Text((beside or ("what to use" if best else figures.NOTHING),)),
            self._batch(cell),
            Text((figures.counted(cell.cpus_owned, "CPU"), processes, *threads)),
            Text(("-" if cell.peak_rss_bytes is None else figures.size(cell.peak_rss_bytes),)),
            Text((f"{_alive(cell):g}",), "plain", _alive(cell)),
            Text((cell.work or "-", *(f"needs {name}" for name in _needs(cell)))),
        )

    def _batch(self, cell: CellSummary) -> Text:
        """Return how long a batch is waited for, or takes on average if that was not seen."""
        if (seen := self.latencies.get(cell.key)) is not None:
            return Text((figures.short(seen.p50_ns), f"p99 {figures.short(seen.p99_ns)}"), "plain", seen.p50_ns)
        if cell.ns_per_batch is None:
            return Text((figures.NOTHING,), "missing")
        return Text((figures.short(cell.ns_per_batch.median), "on average"), "plain", cell.ns_per_batch.median)

    def _facts(self, cell: CellSummary) -> dict[str, object]:
        seen = self.latencies.get(cell.key)
        return {
            "setting": cell.key.place,
            "backend": cell.backend,
            "options": dict(cell.options),
            "workers": cell.workers,
            "envs_per_worker": cell.envs_per_worker,
            "num_envs": cell.num_envs,
            "batch_size": cell.batch_size,
            "envs_of_a_row": _alive(cell),
            "status": cell.status,
            "frames_per_second": cell.frames_per_second,
            "steps_per_second": cell.steps_per_second,
            "seconds_per_batch": None if cell.ns_per_batch is None else cell.ns_per_batch.scaled(1 / _NANOSECONDS),
            "latency": None if seen is None else {"p50_ns": seen.p50_ns, "p99_ns": seen.p99_ns},
            "cpus": cell.cpus_owned,
            "processes": cell.processes,
            "threads": cell.threads,
            "memory_bytes": cell.peak_rss_bytes,
            "needs": _needs(cell),
            "verdict": cell.verdict,
            "repeats": cell.repeats,
        }


def _place(cell: CellSummary) -> str:
    return f"{one_line(cell.label)} with {cell.key.size}"


def _rate(cell: CellSummary) -> str:
    return f"{figures.rate(cell.frames_per_second)} frames/s" if cell.frames_per_second else "no rate"


def _beside_loop(cell: CellSummary) -> str:
    if cell.speedup is None or cell.label == REFERENCE:
        return ""
    return f", {figures.times(cell.speedup)} of a plain loop"


def _exchange_words(found: Exchange, chosen: CellSummary) -> Iterator[str]:
    """Yield what handing over takes, and the break-even: for what is recommended, or why a loop is."""
    cell, here = found.cell, figures.short(found.step * _NANOSECONDS)
    name = "it" if cell is chosen else one_line(_place(cell))
    together = f"{figures.counted(found.at_once, 'environment')} at a time"
    if not found.hand_over.high:
        yield f"Beside steps, {together}, handing over takes {name} next to nothing."
        return
    what = f"a batch of {cell.batch_size} takes {name} {_time(found.hand_over)} beside steps, {together}"
    bound = f"less than {_time(found.break_even)}"
    if not found.break_even.low:
        bound = f"at most {figures.short((found.break_even.high or 0.0) * _NANOSECONDS)}"
    yield f"Handing over {what}: a plain loop is faster where a step takes {bound}; here it takes {here}."


def _exchange_facts(found: Exchange) -> dict[str, object]:
    return {
        "setting": found.cell.key.place,
        "at_once": found.at_once,
        "loop_step_seconds": found.step,
        "hand_over_seconds": found.hand_over,
        "break_even_seconds": found.break_even,
    }


def _time(seconds: Estimate) -> str:
    """Return a time with its interval, which may begin at nothing."""
    median, *ends = (figures.short((one or 0.0) * _NANOSECONDS) for one in (seconds.median, seconds.low, seconds.high))
    return median if seconds.low is None else f"{median} ({' to '.join(ends)})"


def _alive(cell: CellSummary) -> float:
    """Return how many environments are alive for each row of a batch."""
    return cell.num_envs / max(1, cell.batch_size)


def _needs(cell: CellSummary) -> list[str]:
    """Return the packages that a backend adds to what Gymnasium needs."""
    return [package.name for package in cell.entry.packages]


def _shortened(places: Sequence[str]) -> str:
    """Return places in a line: no more than a screen has room for, and how many more there are."""
    more = len(places) - _MOST_LEFT_OUT
    return "; ".join([*places[:_MOST_LEFT_OUT], *([f"{more} more backends: -f json names them"] if more > 0 else [])])
