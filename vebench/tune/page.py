"""The recommendation of a tuning as a page: what to use, code to paste, reasons, certainty, effect on training."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

from vebench.analysis.cell import CellSummary, Exclusion
from vebench.analysis.findings import Code
from vebench.analysis.rules import unusable, why_never
from vebench.analysis.summary import summarise
from vebench.analysis.windows import learning
from vebench.backends.environments.suites import short_name
from vebench.backends.registry import REFERENCE
from vebench.child.answers import Cause, Timed
from vebench.errors import one_line
from vebench.reports import columns, figures
from vebench.reports.answer import DOUBTS, code_of, of_loop, rate_of, setting_of
from vebench.reports.document import AnswerText, DataPage, Document, Remark, Table
from vebench.reports.figures import learner_words
from vebench.reports.run import run_facts, time_of_run
from vebench.results.records import Run
from vebench.tune.choice import Choice, NoChoiceReason, Rival, alternatives
from vebench.tune.settings import Constraints

_MOST_RIVALS, _MOST_TIED, _MOST_LEFT_OUT = 8, 3, 6


@dataclass(frozen=True)
class Latency:
    """How long a policy that acts at once waits for a batch."""

    p50_ns: int
    p99_ns: int


@dataclass(frozen=True)
class TunePage(DataPage):
    """The recommendation among the settings that were tried."""

    file: str  # the run file
    run: Run
    choice: Choice
    wanted: Constraints
    steps: Timed | None = None  # step times of one environment
    passed_over: Mapping[str, str] = field(
        default_factory=dict
    )  # why settings were not tried, by place, unless there was no time
    latency: Latency | None = None  # of the best setting, if it was measured
    kind = "tune"

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: the answer, the rates that it rests on, and the commands to continue with."""
        known = dict(run_facts(self.run.header, self._cells))
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
                tables=tuple(self._tables()),
                explanations=(*self._remarks_on_untried(), *self._remarks_on_rivals()),
                answers=(AnswerText(self.env, sentences, self.code, settled=settled),),
                best="what to use" if settled else "",
            ),
        )

    def _tables(self) -> Iterator[Table]:
        """Yield the best setting of each backend, with the columns of a run's table of all cells."""
        rivals = [rival.cell for rival in self.choice.rivals]
        shown = [cell for cell in (self.choice.best, *rivals[:_MOST_RIVALS]) if cell is not None]
        if shown:
            table = columns.all_cells(shown)
            more = len(rivals) - _MOST_RIVALS
            notes = (*table.notes, f"{more} more settings were tried.") if more > 0 else table.notes
            yield replace(table, title="The best setting of each backend", notes=notes)

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
        chosen = self.choice.chosen
        of_chosen = () if chosen is None else (*self._alternatives(chosen), *self._training(chosen))
        resets = () if chosen is None else self._resets(chosen)
        return (self.headline, *self._compared_with_fastest(), *of_chosen, f"{self.certainty}.", *resets)

    @property
    def certainty(self) -> str:
        """How certain the answer is."""
        words = f"{figures.counted(sum(cell.status == 'ok' for cell in self._tried), 'setting')} tried"
        if self.choice.chosen is None:
            return words
        none = "none of the others" if self.choice.faster else "none"
        claim = f"{none} is faster than {setting_of(self.choice.chosen)} by more than {self.wanted.tolerance:.0%}"
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
        choice, chosen = self.choice, self.choice.chosen
        workers, envs = ([], []) if chosen is None else alternatives(self._tried, chosen)
        trained = None if chosen is None else chosen.figures.learning
        return {
            "env": self.env,
            "headline": self.headline,
            "decided": choice.decided,
            "certainty": self.certainty,
            "chosen": self._facts(chosen),
            "lack": None if choice.reason is None else choice.reason.name.lower(),
            "best": self._facts(choice.best),
            "fastest": self._facts(choice.fastest),
            "tied": [cell.key.place for cell in choice.tied],
            "code": list(self.code),
            "tried": [self._facts(cell) for cell in self._tried],
            "bends": {
                "workers": [{"workers": one.cell.workers, "share": one.share} for one in workers],
                "envs_per_worker": [{"envs_per_worker": one.cell.envs_per_worker, "share": one.share} for one in envs],
            },
            "learning": trained and {**asdict(trained), "times_that_of_a_loop": self._gain},
            "steps": self.steps and asdict(self.steps),
            "not_tried": [{"setting": place, "why": why} for place, why in self._not_tried],
            "not_offered": [
                {"setting": rival.cell.key.place, "why": self._why_not(rival)}
                for rival in choice.rivals
                if not rival.offered
            ],
            "faster": [{"setting": one.cell.key.place, "ratio": one.ratio} for one in choice.faster],
            "file": self.file,
        }

    def _facts(self, cell: CellSummary | None) -> dict[str, object] | None:
        if cell is None:
            return None
        built, acting, batch = cell.built, cell.figures.acting, cell.figures.ns_per_batch
        latency = self.latency if self.choice.best and cell.key == self.choice.best.key else None
        if acting is not None:
            latency = Latency(round(acting.latency_p50_ns), round(acting.latency_p99_ns))
        return {
            "setting": cell.key.place,
            "backend": built.choice.name,
            "options": dict(built.choice.options),
            "workers": cell.workers,
            "envs_per_worker": cell.envs_per_worker,
            "num_envs": built.num_envs,
            "batch_size": built.batch_size,
            "envs_of_a_row": built.num_envs / max(1, built.batch_size),
            "status": cell.status,
            "frames_per_second": cell.frames_per_second,
            "steps_per_second": cell.figures.steps_per_second,
            "seconds_per_batch": batch and batch.scaled(1e-9),
            "latency": latency and asdict(latency),
            "cpus": built.cpus_owned,
            "processes": built.processes,
            "threads": built.threads,
            "memory_bytes": cell.figures.peak_rss_bytes,
            "needs": [package.name for package in cell.entry.library.packages],
            "verdict": cell.verdict,
            "repeats": cell.repeats,
        }

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
        return found + [(place, one_line(self.passed_over.get(place, Cause.GIVEN_UP.reason))) for place in rest]

    def _why_nothing(self) -> str:
        best, why = self.choice.best, ""
        if best is None:
            if any(cell.frames_per_second for cell in self._tried):
                return "no setting is known to do the same work as a plain loop"
            given_up = any(cell.cause is Cause.GIVEN_UP for cell in self.run.cells)
            known = {*self.passed_over, *(cell.key.place for cell in self._cells)}
            no_time = given_up or not known.issuperset(self.run.header.spec.only)
            return Cause.GIVEN_UP.reason if no_time else "nothing could be measured"
        match self.choice.reason:
            case NoChoiceReason.WIDE:
                return f"the rate of {setting_of(best)}, {rate_of(best)}, is too uncertain"
            case NoChoiceReason.UNUSABLE if finding := unusable(self._cells):
                why = f"the run is {finding.code}: {finding.message}; {finding.remedy}"
            case NoChoiceReason.DISTURBED if cell := self.choice.disturbed:
                taken = f"other processes took {1 - cell.conditions.share_left:.0%} of its CPU time"
                why = f"{setting_of(cell)} may be faster than was measured: {taken}; measure on an idle machine"
        return "; ".join(filter(None, (why, *self._faster())))

    def _faster(self) -> Iterator[str]:
        """Yield what is faster than the best setting that may be recommended, by how much, and why it may not be."""
        best, labels = self.choice.best, set()
        for rival in self.choice.faster:
            if rival.cell.label not in labels and rival.ratio is not None and best is not None:
                labels.add(rival.cell.label)
                times = f"{figures.in_sentence(rival.ratio, 'x')} the rate of {setting_of(best)}"
                yield f"{setting_of(rival.cell)} has {times}, but {self._why_not(rival)}"

    def _why_not(self, rival: Rival) -> str:
        """Return why a rival may not be recommended; empty if it may be."""
        if rival.too_large:
            sizes = rival.cell.figures.peak_rss_bytes, self.run.header.spec.memory
            took, most = (figures.size(size or 0) for size in sizes)
            return f"takes {took}, more than the {most} allowed"
        if rival.objection is None:
            return ""
        reason = None
        if rival.objection is Exclusion.UNVERIFIED:
            reason = rival.cell.work.reason or why_never(rival.cell, self.run.header)
        return f"{DOUBTS[rival.objection]}{f' ({one_line(reason)})' if reason else ''}"

    def _compared_with_fastest(self) -> Iterator[str]:
        """Yield how the setting compares with the fastest, step times, and which others tie."""
        chosen, fastest = self.choice.chosen, self.choice.fastest
        if fastest is not None and chosen is None:
            yield f"The highest rate that may be recommended: {setting_of(fastest)}, {rate_of(fastest)}."
        elif fastest is not None and chosen is not None and chosen is not fastest:
            simpler = f"but not significantly, and {one_line(chosen.label)} is simpler."
            yield f"{setting_of(fastest)} was faster ({rate_of(fastest)}), {simpler}"
        if chosen is not None and self.steps is not None:
            times = self.steps.step_p50_ns, self.steps.step_p99_ns, self.steps.reset_p50_ns
            step, late, reset = map(figures.short_time, times)
            yield f"A step of one environment takes {step} (p99 {late}), a reset {reset}."
        if chosen is not None and self.latency is not None:
            median, late = map(figures.short_time, (self.latency.p50_ns, self.latency.p99_ns))
            yield f"A policy that acts at once waits {median} for a batch (p99 {late})."
        others = [setting_of(cell) for cell in self.choice.tied if cell is not fastest]
        if others:
            more = len(others) - _MOST_TIED
            named = others[:_MOST_TIED] + ([f"{more} more"] if more > 0 else [])
            yield f"Not distinguishable from the fastest, and within {self.wanted.tolerance:.0%}: {', '.join(named)}."

    def _alternatives(self, chosen: CellSummary) -> Iterator[str]:
        """Yield the shares of its rate that fewer workers, or other numbers of environments per worker, reach."""
        workers, envs = alternatives(self._tried, chosen)
        parts = [f"{one.share:.0%} with {figures.counted(one.cell.workers, 'worker')}" for one in workers]
        parts += [f"{one.share:.0%} with {one.cell.envs_per_worker} environments per worker" for one in envs]
        if parts:
            yield f"Of its rate remain {', '.join(parts)}."

    def _training(self, chosen: CellSummary) -> Iterator[str]:
        learner, found = self.run.header.spec.learner, chosen.figures.learning
        if learner is None or found is None:
            return
        gain = "" if self._gain is None else f", {self._gain:.2f}x as fast as with a plain loop"
        yield (
            f"With a learner that takes {learner_words(learner)}, sampling is {found.sampling:.0%} of training time. "
            f"Training makes {figures.number(found.steps_per_second)} steps/s{gain}; a faster sampler could make it at "
            f"most {found.at_most:.2f}x as fast."
        )

    @property
    def _gain(self) -> float | None:
        """How many times as fast training is as with the fastest plain loop; None without a learner."""
        chosen, learner = self.choice.chosen, self.run.header.spec.learner
        loops = [cell for cell in self._cells if cell.label == REFERENCE and cell.workers == 1]
        rates = [rate for cell in loops if (rate := cell.figures.steps_per_second)]
        if chosen is None or chosen.label == REFERENCE or not rates:
            return None
        best = max(rates, key=lambda rate: rate.median)
        one, other = (
            learning(learner, rate, chosen.built.batch_size) for rate in (chosen.figures.steps_per_second, best)
        )
        return None if one is None or other is None else one.steps_per_second / other.steps_per_second

    def _resets(self, chosen: CellSummary) -> Iterator[str]:
        """Yield that windows of the recommended setting hold too few slow resets, and the command to measure them."""
        for finding in chosen.findings:
            if finding.code is Code.FEW_RESETS:
                backends = shlex.quote(f"{REFERENCE},{chosen.label}")
                command = f"vebench run -e {shlex.quote(short_name(self.env))} -b {backends} -w {chosen.workers}"
                size = f"--envs-per-worker {chosen.envs_per_worker}"
                yield f"For this task, {finding.message}: {finding.remedy}, in {command} {size}"

    def _remarks_on_untried(self) -> Iterator[Remark]:
        """Yield each reason why settings were not tried, with these settings."""
        for reason, names in figures.by_key((reason, one_line(place)) for place, reason in self._not_tried).items():
            more = len(names) - _MOST_LEFT_OUT
            rest = [f"{more} more (-f json names them)"] if more > 0 else []
            yield Remark("not tried", reason, ("; ".join([*names[:_MOST_LEFT_OUT], *rest]),))

    def _remarks_on_rivals(self) -> Iterator[Remark]:
        """Yield why rivals may not be recommended, with the command that compares their work if it can be compared."""
        for rival in self.choice.rivals:
            if rival.offered:
                continue
            cell, command = rival.cell, ""
            comparable = rival.objection is Exclusion.UNVERIFIED and not why_never(cell, self.run.header)
            if comparable or rival.objection is Exclusion.OTHER_WORK:
                command = self.run.header.verify_command(self.env, [cell.label])
            remedy = "compare the work with:" if command else ""
            yield Remark("not recommended", f"{setting_of(cell)} {self._why_not(rival)}", (), remedy, command)
