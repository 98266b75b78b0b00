"""The choice of ``vebench tune`` among measured settings, and its page: setting, code, reasons, effect on training."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from functools import cached_property
from math import inf

from vebench.analysis.answer import PASSES_TO_COMPARE, contenders, fastest_first, first_of_each
from vebench.analysis.cell import CellSummary, Exclusion
from vebench.analysis.rules import WIDE, way_out
from vebench.analysis.statistics import RUN_SPREAD, Error, Estimate, Term, around, contrast, ratio, summed
from vebench.analysis.summary import summarise
from vebench.backends import registry
from vebench.backends.environments.suites import short_name
from vebench.child.actions import TAPED
from vebench.child.answers import Cause, Timed
from vebench.errors import one_line
from vebench.plan.cells import CellKey, rank
from vebench.plan.grammar import LearnerStep
from vebench.reports import columns, figures
from vebench.reports.answer import DOUBTS, code_of, of_loop, rate_of, setting_of, step_words
from vebench.reports.document import AnswerText, Document, Page, Remark
from vebench.reports.run import run_facts, time_of_run
from vebench.results.records import Run

LEARNER = "learner"


class NoChoiceReason(Enum):
    """Why no setting can be recommended."""

    UNUSABLE = "the run is unusable, because other processes or a quota slowed most cells: measure on an idle machine"
    NOTHING_OFFERED = "no setting has a rate and is known to do the same work as a plain loop"
    FASTER = "a faster setting may turn out to do the same work: compare it with vebench verify, and continue"
    DISTURBED = "a setting whose CPUs other processes used may be faster: measure on an idle machine"
    WIDE = "the highest rate is too uncertain"


@dataclass(frozen=True)
class Choice:
    """A recommendation, and its certainty."""

    best: CellSummary | None = None  # the recommended cell, unless there is a ``reason`` against it
    fastest: CellSummary | None = None  # the fastest cell that may be recommended
    reason: NoChoiceReason | None = NoChoiceReason.NOTHING_OFFERED  # why nothing is recommended
    others: tuple[CellSummary, ...] = ()  # the fastest cell of each other backend, in order of their rates
    # Cells that are faster than ``best`` but may not be recommended, with their ratios to ``best``.
    faster: tuple[tuple[CellSummary, Estimate], ...] = ()
    tied: tuple[CellSummary, ...] = ()  # cells within the tolerance of ``fastest``, without ``best``
    contenders: frozenset[CellKey] = frozenset()  # cells that may exceed ``best`` by more than the tolerance
    untried: bool = False  # there was no time to try any setting of some backend

    @property
    def decided(self) -> bool:
        """Whether no other setting may be faster than the chosen one by more than the tolerance."""
        return self.reason is None and not (self.contenders or self.untried)

    @property
    def chosen(self) -> CellSummary | None:
        """The setting to recommend; None if there is a reason against it."""
        return self.best if self.reason is None else None


def speed_of_training(cell: CellSummary, base: CellSummary | None = None) -> Estimate | None:
    """Return the rate of training with a cell in steps/s, or divided by the rate with ``base``.

    A ratio is of the passes that both cells have, if these are two or more. The interval has the errors of the sampling
    rates and of the learner's time. Each counts by its share of the time.
    """
    value = 1.0
    of_learner: dict[LearnerStep, float] = defaultdict(float)  # an error of the same measurement cancels
    terms: list[Term] = []
    sides = [(1, cell)] if base is None else [(1, cell), (-1, base)]
    common = frozenset.intersection(*(frozenset(one.sample.passes) for _, one in sides))
    for sign, one in sides:
        trained, sample = one.figures.learning, one.sample
        if trained is None:
            return None
        share = float(trained.sampling == 1) if trained.learner.overlaps else trained.sampling
        value *= trained.steps_per_second**sign
        if len(common) > 1:
            sample = sample.of_passes(common)
            value *= (sample.level / one.sample.level) ** (sign * share)  # the shares hardly differ between passes
        of_learner[trained.learner] += sign * (1 - share)
        terms.append((sign * share, sample))
    if (sampled := contrast(terms)) is None:
        return Estimate(value)
    of_runs = Error(RUN_SPREAD**2 if base is None else 0.0, inf)  # an effect of the machine on both speeds cancels
    of_times = [Error((share * learner.error) ** 2, inf) for learner, share in of_learner.items()]
    return around(value, summed([sampled.error, *of_times, of_runs]).half_width())


def choose(
    cells: Iterable[CellSummary],
    tolerance: float,
    level: float,
    *,
    usable: bool = True,
    memory: int | None = None,
    open_work: Collection[str] = (),
    last: bool = False,
) -> Choice:
    """Return the choice among the cells of one task: the simplest cell that may be as fast as the fastest.

    ``level`` is the error level of ``decided`` at this look. ``usable``: the run was not too disturbed. Cells that used
    more than ``memory`` bytes are never recommended. ``open_work``: backends whose work a longer comparison could show
    to be the same. ``last``: prefer a cell without contenders.
    """
    rated = fastest_first(cells)
    firsts = first_of_each(rated)
    small = [cell for cell in rated if not too_large(cell, memory)]
    offered = [cell for cell in small if cell.objection is None]
    known = _as_fast_as_the_fastest(offered, tolerance)
    if not known:
        return Choice(others=tuple(firsts))
    # Further passes or comparisons may show that these cells can be recommended.
    unknown = [
        cell
        for cell in small
        if cell.objection is Exclusion.NO_INTERVAL
        or (cell.objection is Exclusion.UNVERIFIED and cell.label in open_work)
    ]
    rates = {cell.key: cell.sample for cell in (*offered, *unknown) if cell.sample.positive}
    above = {cell.key: contenders(rates, cell.key, tolerance, level) for cell in known}

    def simplest_first(cell: CellSummary) -> tuple[bool, tuple[bool, int], bool, float]:
        return last and bool(above[cell.key]), rank(cell.backend), bool(cell.built.choice.options), -cell.rate

    def disturbed(cell: CellSummary) -> bool:
        """Return whether a cell might be faster than the best if other processes had not used its CPUs."""
        margin = WIDE if cell is best else tolerance
        return cell.conditions.disturbed and cell.rate > best.rate * (1 + margin) * cell.conditions.share_left

    best, *tied = sorted(known, key=simplest_first)
    ratios = [(cell, ratio(cell.sample, best.sample)) for cell in rated if cell not in offered]
    faster = [(cell, over) for cell, over in ratios if over and (over.median if over.low is None else over.low) > 1]
    reason = None
    if not usable:
        reason = NoChoiceReason.UNUSABLE
    elif any(cell in unknown for cell, _ in faster):
        reason = NoChoiceReason.FASTER
    elif any(map(disturbed, (*offered, *unknown))):
        reason = NoChoiceReason.DISTURBED
    elif best.half_width is None or best.half_width > WIDE:
        reason = NoChoiceReason.WIDE
    others = tuple(cell for cell in firsts if cell.label != best.label)
    return Choice(best, known[0], reason, others, tuple(faster), tuple(tied), frozenset(above[best.key]))


def too_large(cell: CellSummary, memory: int | None) -> bool:
    """Return whether a cell used more than ``memory`` bytes."""
    used = cell.figures.peak_rss_bytes
    return memory is not None and used is not None and used > memory


def _as_fast_as_the_fastest(offered: Sequence[CellSummary], tolerance: float) -> list[CellSummary]:
    """Return the fastest cell with enough passes, and the cells within the tolerance of it."""
    good = []
    for cell in offered:
        ratios = [ratio(cell.sample, other.sample) for other in offered]
        if not any(found and (found.high or 1.0) < 1 for found in ratios):
            good.append(cell)
    if not good:
        return []
    enough = min(PASSES_TO_COMPARE, max(cell.repeats for cell in good))  # a decided race may have fewer passes
    fastest = next(cell for cell in good if cell.repeats >= enough)
    found = [fastest]
    for cell in good:
        share = ratio(cell.sample, fastest.sample)
        seen = cell.repeats >= max(enough, 2)
        if cell is not fastest and seen and share and share.median >= 1 - tolerance:
            found.append(cell)
    return found


@dataclass(frozen=True)
class TunePage(Page):
    """The recommendation among the settings that were tried."""

    file: str  # the run file
    run: Run
    choice: Choice
    margin: float  # the share of the highest rate that a simpler setting may lack
    steps: Timed | None  # step times of one environment
    # Why settings and backends were not tried, unless time was short, and why the ``LEARNER`` was not measured.
    why_not: Mapping[str, str]
    kind = "tune"

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: the answer, the rates that support it, and commands to continue."""
        head, others = self.run.header, self.choice.others
        settled = self.choice.chosen is not None
        shown = [cell for cell in (self.choice.best, *others) if cell is not None]
        table = replace(columns.all_cells(shown), title="The best setting of each backend")
        without = [(reason, one_line(name)) for name, reason in (*self._left_out, *self._not_tried)]
        explanations = [Remark("not tried", why, (_listed(names),)) for why, names in figures.by_key(without).items()]
        faster = {
            cell.key: f", {figures.in_sentence(over, 'x')} the rate of the best," for cell, over in self.choice.faster
        }
        for cell in filter(self._why_not, others):
            remark = Remark("not recommended", f"{setting_of(cell)}{faster.get(cell.key, '')} {self._why_not(cell)}")
            if cell.objection in (Exclusion.UNVERIFIED, Exclusion.OTHER_WORK):
                command = head.verify_command(self._env, [cell.label])
                remedy = f"{way_out(cell.work.reason or '')}compare the work with:"
                remark = replace(remark, remedy=remedy, command=command)
            explanations.append(remark)
        shown_facts = ("machine", "condition", "packages", "policy")
        document = Document(
            title=one_line(self._headline),
            facts=(
                *(fact for fact in run_facts(head, self._cells) if fact[0] in shown_facts),
                ("time", time_of_run(self.run)),
                ("report", f"vebench report {shlex.quote(self.file)}"),
                ("continue", head.resume_command(self.file)),
            ),
            tables=(table,) if shown else (),
            remarks=tuple(explanations),
            answers=(AnswerText(self._env, tuple(map(one_line, self._sentences())), self._code, settled=settled),),
            best="what to use" if settled else "",
        )
        return (document,)

    @cached_property
    def _cells(self) -> tuple[CellSummary, ...]:
        return summarise(self.run, self.file)

    @property
    def _tried(self) -> list[CellSummary]:
        return [cell for cell in self._cells if cell.key.place in self.run.header.spec.only]

    @property
    def _not_tried(self) -> list[tuple[str, str]]:
        """The settings without a rate, each with the reason."""
        found = [(cell.key.place, one_line(cell.reason or cell.status)) for cell in self._tried if cell.status != "ok"]
        measured = {cell.key.place for cell in self._cells}
        rest = [place for place in self.run.header.spec.only if place not in measured]
        return found + [(place, one_line(self.why_not.get(place, Cause.GIVEN_UP.reason))) for place in rest]

    @property
    def _left_out(self) -> list[tuple[str, str]]:
        """The usual backends that the algorithm or the library cannot use, each with the reason."""
        names = registry.BY_NAME.keys() - {cell.label for cell in self._cells}
        return [(name, why) for name, why in self.why_not.items() if name in names]

    @property
    def _env(self) -> str:
        return one_line(next((cell.env for cell in self._cells), self.run.header.spec.envs[0]))

    @property
    def _headline(self) -> str:
        """The answer in one sentence."""
        name, chosen = short_name(self._env), self.choice.chosen
        if chosen is None:
            why = self.choice.reason and self.choice.reason.value
            if Cause.GIVEN_UP.reason in dict(self._not_tried).values() and not any(cell.rate for cell in self._tried):
                why = Cause.GIVEN_UP.reason
            return f"{name}: nothing can be recommended: {why}."
        return f"{name}: use {setting_of(chosen)}: {rate_of(chosen)}{of_loop(chosen)}."

    @property
    def _certainty(self) -> str:
        words = f"{figures.counted(sum(cell.status == 'ok' for cell in self._tried), 'setting')} tried"
        if self.choice.chosen is None:
            return words
        sure = "with 95 % confidence" if self.choice.decided else "but there was not enough time to be certain"
        return f"{words}; none that can be recommended is faster by more than {self.margin:.0%}, {sure}"

    @property
    def _code(self) -> tuple[str, ...]:
        """Lines of Python that build the recommended setting; empty without a recommendation or known code."""
        chosen = self.choice.chosen
        return () if chosen is None else code_of(chosen, self.run.header)

    def _sentences(self) -> Iterator[str]:
        """Yield the answer, its effect on training, and its comparison with the fastest and with tied settings."""
        yield self._headline
        yield from self._training_sentences()
        best = self.choice.best or next(iter(self.choice.others), None)
        if best is not None and self.steps is not None:
            yield from step_words(self.steps, best)
        if others := [f"{setting_of(cell)} ({rate_of(cell)})" for cell in self.choice.tied]:
            yield f"The simplest setting within {self.margin:.0%} of the fastest is named; others: {_listed(others)}."
        yield f"{self._certainty}."

    def _training_sentences(self) -> Iterator[str]:
        """Yield the speed of training, the learner's time, and the most that a faster sampler could gain."""
        spec, chosen = self.run.header.spec, self.choice.chosen
        if why := self.why_not.get(LEARNER):
            yield f"Updates were not timed: {why}."
        if spec.algorithm and spec.policy == TAPED:
            yield "No policy acts in the cells."
        if spec.algorithm and spec.learner is None:
            yield "The learner is not measured: state its time with --learner."
        trained = None if chosen is None else chosen.figures.learning
        if chosen is None or trained is None:
            return
        speed, over = self._training
        rate = speed and figures.in_sentence(speed, " steps/s")
        if over is not None and over.low is not None and over.high is not None:
            title = registry.find(registry.USUAL).summary.partition(",")[0]
            low, high = figures.number(over.low), figures.number(over.high)
            rate = f"{figures.number(over.median)}x ({low} to {high}) of {title}, {rate}"
        of_time = "the sampler is busy for" if trained.learner.overlaps else "sampling takes"
        yield f"Training: {rate}; {of_time} {trained.sampling:.0%} of the time."
        yield f"A still faster sampler could make training at most {trained.at_most:.2f}x as fast."
        fewer = enumerate(trained.learner.fewer)
        slower = [f", {figures.short_time(each * 1e9)} with {1 << power}" for power, each in fewer]
        yield f"Learning takes {figures.learner_words(trained.learner)}{''.join(slower)}."

    @property
    def _training(self) -> tuple[Estimate | None, Estimate | None]:
        """The training speed with the recommended setting in steps/s, and its ratio to the usual backend's.

        The usual backend has the same number of environments, on the most CPUs.
        """
        chosen = self.choice.chosen
        if chosen is None:
            return None, None
        # ``choice`` lacks the passes that the usual backend was compared in.
        chosen = next(cell for cell in self._cells if cell.key == chosen.key)
        usual = [cell for cell in self._cells if cell.label == registry.USUAL and cell.key != chosen.key and cell.rate]
        alike = [cell for cell in usual if cell.built.num_envs == chosen.built.num_envs]
        base = max(alike, key=lambda cell: (cell.cpus_owned, cell.repeats), default=None)
        return speed_of_training(chosen), None if base is None else speed_of_training(chosen, base)

    def _why_not(self, cell: CellSummary) -> str:
        """Return why a setting may not be recommended; empty if it may."""
        memory = self.run.header.spec.memory
        if too_large(cell, memory):
            took, most = (figures.byte_size(size or 0) for size in (cell.figures.peak_rss_bytes, memory))
            return f"takes {took}, more than the {most} allowed"
        if cell.objection is None:
            return ""
        reason = cell.work.reason if cell.objection is Exclusion.UNVERIFIED else None
        return f"{DOUBTS[cell.objection]}{f' ({one_line(reason)})' if reason else ''}"

    @property
    def data(self) -> dict[str, object]:
        """The answer for programs: the recommendation, its certainty, and all settings that were tried."""
        choice, chosen = self.choice, self.choice.chosen
        trained = None if chosen is None else chosen.figures.learning
        speed, over = self._training
        return {
            "env": self._env,
            "headline": self._headline,
            "decided": choice.decided,
            "certainty": self._certainty,
            "chosen": _facts(chosen),
            "lack": None if choice.reason is None else choice.reason.name.lower(),
            "best": _facts(choice.best),
            "fastest": _facts(choice.fastest),
            "tied": [cell.key.place for cell in choice.tied],
            "code": list(self._code),
            "tried": [_facts(cell) for cell in self._tried],
            "learning": trained and asdict(trained),
            "training": None if speed is None else {"steps_per_second": speed, "over_usual": over},
            "steps": self.steps and asdict(self.steps),
            "not_tried": [{"setting": place, "why": why} for place, why in self._not_tried],
            "left_out": [{"backend": name, "why": why} for name, why in self._left_out],
            "not_offered": [
                {"setting": cell.key.place, "why": why} for cell in choice.others if (why := self._why_not(cell))
            ],
            "faster": [{"setting": cell.key.place, "ratio": over} for cell, over in choice.faster],
            "file": self.file,
        }


def _facts(cell: CellSummary | None) -> dict[str, object] | None:
    if cell is None:
        return None
    built, found = cell.built, cell.figures
    acting, batch = found.acting, found.ns_per_batch
    of_cell = ("workers", "envs_per_worker", "status", "frames_per_second", "verdict", "repeats")
    of_built = ("num_envs", "batch_size", "processes", "threads")
    return {
        "setting": cell.key.place,
        "backend": built.choice.name,
        "options": dict(built.choice.options),
        **{name: getattr(cell, name) for name in of_cell},
        **{name: getattr(built, name) for name in of_built},
        "cpus": cell.cpus_owned,
        "envs_of_a_row": built.num_envs / max(1, built.batch_size),
        "steps_per_second": found.steps_per_second,
        "seconds_per_batch": batch and batch.scaled(1e-9),
        "latency": acting and {"p50_ns": round(acting.latency_p50_ns), "p99_ns": round(acting.latency_p99_ns)},
        "memory_bytes": found.peak_rss_bytes,
        "needs": [package.name for package in cell.entry.library.packages],
    }


def _listed(names: list[str]) -> str:
    """Return at most six names as a list in words."""
    more = [f"{len(names) - 6} more (-f json names them)"] if names[6:] else []
    return "; ".join([*names[:6], *more])
