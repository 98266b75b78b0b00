"""What to use, on one screen: the lines to paste, why, how sure, what it costs, and whether it matters."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, ClassVar

from vebench.analysis.exchange import exchange
from vebench.analysis.summary import summarise
from vebench.backends.environments.suites import short_name
from vebench.backends.registry import REFERENCE, find_recorded
from vebench.engine.runner import GIVEN_UP
from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.document import Answer, Document, Explanation, Table, TableRow, Text
from vebench.reports.pages.acting import learner_words, where_time_goes
from vebench.reports.pages.answer import DOUBTS, code_of
from vebench.reports.pages.run_facts import facts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vebench.analysis.cell import CellSummary
    from vebench.analysis.exchange import Exchange
    from vebench.analysis.statistics import Estimate
    from vebench.analysis.tuning import Choice, Rival
    from vebench.child.answers import Timed
    from vebench.plan.spec import RunSpec
    from vebench.reports.page import Kind
    from vebench.results.records import Run

MOST_RIVALS = 8
NANOSECONDS = 1e9  # in a second


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

    ``passed_over``: why settings were not tried, by their places.
    """

    file: str
    run: Run
    choice: Choice
    wish: Wish
    steps: Timed | None = None
    passed_over: Mapping[str, str] = field(default_factory=dict)
    kind: ClassVar[Kind] = "tune"
    title: ClassVar[str] = ""

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: the answer, what it stands on, and how to look at it."""
        known = dict(facts(self.run.header, self._cells))
        table = Table(
            title="What the best setting of each backend costs",
            corner="backend",
            columns=("rate", "beside it", "CPUs and processes", "memory", "environments of a row", "same work"),
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
                    ("go on", f"vebench tune --resume {shlex.quote(self.file)}"),
                ),
                tables=(table, *self._policy()),
                explanations=tuple(self._doubts()),
                answers=(Answer(self.env, tuple(map(one_line, self.sentences)), self.code, settled=self.settled),),
                best="what to use" if self.choice.chosen else "",
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
        return f"{name}: use {_place(chosen)}: {_rate(chosen)}{_beside_loop(chosen)}."

    @property
    def sentences(self) -> tuple[str, ...]:
        """The answer, how it compares with the fastest, and whether it matters."""
        return (self.headline, *self._why(), *self._matters(), f"{self.certainty}.")

    @property
    def certainty(self) -> str:
        """How sure the answer is."""
        tried = sum(cell.status == "ok" for cell in self._choices)
        words = f"{figures.counted(tried, 'setting')} tried"
        if self.choice.decided:
            return f"{words}; none is faster by more than {self.wish.tolerance:.0%}, with 95 % confidence"
        return f"{words}; the time did not suffice to say that none is faster by more than {self.wish.tolerance:.0%}"

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
            "chosen": None if self.choice.chosen is None else _facts(self.choice.chosen),
            "fastest": None if self.choice.fastest is None else _facts(self.choice.fastest),
            "code": list(self.code),
            "tried": [_facts(cell) for cell in self._choices],
            "steps": None if self.steps is None else asdict(self.steps),
            "exchange": None if self.exchange is None else _exchange_facts(self.exchange),
            "not_tried": [{"setting": place, "why": why} for place, why in self._not_tried()],
            "file": self.file,
        }

    @property
    def _cells(self) -> tuple[CellSummary, ...]:
        return summarise(self.run, self.file)

    @property
    def _spec(self) -> RunSpec:
        return self.run.header.spec

    @property
    def _choices(self) -> tuple[CellSummary, ...]:
        return tuple(cell for cell in self._cells if cell.key.place in self.run.header.spec.only)

    def _why_nothing(self) -> str:
        if not any(cell.frames_per_second for cell in self._choices):
            return "nothing could be measured"
        return "no setting is known to do the same work as a plain loop"

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

    def _matters(self) -> Iterator[str]:
        chosen, learner = self.choice.chosen, self.run.header.spec.learner
        if chosen is None or learner is None or chosen.learning is None:
            return
        found = chosen.learning
        yield (
            f"With a learner of {learner_words(learner)}, sampling is {found.sampling:.0%} of training: "
            f"{figures.number(found.steps_per_second)} steps/s, and at most {found.at_most:.2f}x with a faster sampler."
        )

    def _rows(self) -> Iterator[tuple[CellSummary, tuple[Text, ...]]]:
        chosen = self.choice.chosen
        if chosen is not None:
            yield chosen, _texts(chosen, None, best=True)
        for rival in self.choice.rivals[:MOST_RIVALS]:
            yield rival.cell, _texts(rival.cell, rival, best=False)

    def _notes(self) -> Iterator[str]:
        yield "rate: frames/s; beside it: over the rate of what is recommended, with its 95 % interval."
        yield "environments of a row: how many are alive for each row of a batch; above 1, rows lag behind the policy."
        if len(self.choice.rivals) > MOST_RIVALS:
            yield f"{len(self.choice.rivals) - MOST_RIVALS} more: vebench report."

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
                yield _place(cell), one_line(cell.reason or cell.status)
        for place in self.run.header.spec.only:
            if place not in measured:
                yield place, one_line(self.passed_over.get(place, GIVEN_UP))

    def _doubts(self) -> Iterator[Explanation]:
        why: dict[str, list[str]] = {}
        for place, reason in self._not_tried():
            why.setdefault(reason, []).append(place)
        for reason, places in why.items():
            yield Explanation("not tried", reason, (", ".join(places),), "")
        for rival in self.choice.rivals:
            if rival.too_large:
                took, most = (figures.size(count or 0) for count in (rival.cell.peak_rss_bytes, self._spec.memory))
                yield Explanation(
                    "not offered", f"{_place(rival.cell)} takes {took}, more than --memory {most}", (), ""
                )
            if rival.doubt is not None:
                text = f"{_place(rival.cell)} {DOUBTS[rival.doubt][0]}"
                yield Explanation("not offered", text, (), self.run.header.verify_command(self.env, [rival.cell.label]))


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
    cell, here = found.cell, figures.short(found.step * NANOSECONDS)
    name = "it" if cell is chosen else one_line(_place(cell))
    together = f"{figures.counted(found.at_once, 'environment')} at a time"
    if found.hand_over.median <= 0:
        yield f"Beside steps, {together}, handing over takes {name} next to nothing."
        return
    what = f"a batch of {cell.batch_size} takes {name} {_time(found.hand_over)} beside steps, {together}"
    if found.break_even is None:
        yield f"Handing over {what}: too uncertain to say where a plain loop is faster."
    else:
        yield (
            f"Handing over {what}: a plain loop is faster where a step takes less than {_time(found.break_even)}; here "
            f"it takes {here}."
        )


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
    median, *ends = (
        figures.short(max(0.0, one or 0.0) * NANOSECONDS) for one in (seconds.median, seconds.low, seconds.high)
    )
    return median if seconds.low is None else f"{median} ({' to '.join(ends)})"


def _texts(cell: CellSummary, rival: Rival | None, *, best: bool) -> tuple[Text, ...]:
    threads = f", {figures.counted(cell.threads, 'thread')} each" if cell.threads > 1 else ""
    processes = f"{cell.processes} process{'es' * (cell.processes != 1)}"
    shares = cell.num_envs / max(1, cell.batch_size)
    beside = "" if rival is None or rival.ratio is None else figures.times(rival.ratio)
    rate = "-" if cell.frames_per_second is None else figures.rate(cell.frames_per_second)
    needs = find_recorded(cell.backend).packages
    return (
        Text((rate,), "best" if best else "plain", cell.frames_per_second),
        Text((beside or "what to use",)),
        Text((f"{figures.counted(cell.cpus_owned, 'CPU')}, {processes}{threads}",)),
        Text(("-" if cell.peak_rss_bytes is None else figures.size(cell.peak_rss_bytes),)),
        Text((f"{shares:g}",), "plain", shares),
        Text((cell.verdict or "-", *(f"needs {package.name}" for package in needs))),
    )


def _facts(cell: CellSummary) -> dict[str, object]:
    return {
        "setting": cell.key.place,
        "backend": cell.backend,
        "options": dict(cell.options),
        "workers": cell.workers,
        "envs_per_worker": cell.envs_per_worker,
        "num_envs": cell.num_envs,
        "batch_size": cell.batch_size,
        "frames_per_second": cell.frames_per_second,
        "verdict": cell.verdict,
        "repeats": cell.repeats,
    }
