"""``vebench bisect``: find the commit or release that changed the rate, by comparing candidates with the good end.

``bisection`` decides which candidate to compare next, and when the change is found.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import msgspec

from vebench.analysis.comparison import CellComparison
from vebench.analysis.statistics import Estimate
from vebench.commands.session import World
from vebench.errors import InterruptedRunError, NotComparableError, RunFileError, UsageError, one_line
from vebench.files import contents, decoded
from vebench.gates import bisection
from vebench.gates.bisection import CERTAIN, LogRatio, Posterior, mean_of_cells, mean_of_steps
from vebench.gates.check import CONTESTANTS, compared
from vebench.gates.gate import NO_ANSWER, Status
from vebench.gates.past import Candidate, Interpreters, PastRequest, candidates_of
from vebench.plan.cells import CellKey
from vebench.plan.grammar import Tolerance
from vebench.plan.spec import RunSpec
from vebench.process_guard import ProcessGuard, terminable
from vebench.reports import console, figures
from vebench.reports.console import Outlet
from vebench.reports.document import Document, Page, Remark, Table, TableRow, Text
from vebench.results import store

_LEAST = 0.01  # the share by which the ends must differ


class BisectStep(msgspec.Struct, frozen=True, tag_field="type", tag="step"):
    """One comparison of a candidate with the good end, as a line of the file of steps."""

    at: int  # the index of the candidate
    ratio: LogRatio | None = None  # None if too few passes went well
    skipped: str = ""  # why the candidate cannot be compared
    changed: tuple[CellKey, ...] = ()  # the cells whose rates differ between the ends; empty for other candidates


def bisect(request: PastRequest, output: Path | None, resume: Path | None, outlet: Outlet, world: World) -> int:
    """Find the candidate that changed the rate, and print it. Returns the exit status.

    Steps are written to the file ``output``. Steps in the file ``resume`` are not repeated.
    """
    candidates = candidates_of(request, world)
    if len(candidates) == 1:
        raise UsageError(f"{request.good}: must come before {request.bad}")
    what = {"package": request.package, "needed": request.needed, "repo": str(request.repo or ""), "spec": request.spec}
    head = msgspec.json.encode({"type": "bisect", "schema": 1, **what, "candidates": candidates}) + b"\n"
    path = resume or output or store.default_path(world.now(), ("bisect", *request.spec.envs)).with_suffix(".steps")
    try:
        with terminable():
            file, steps = _opened(path, head, resume=resume is not None)
            with file, ProcessGuard() as guard:
                pythons = Interpreters(request, candidates, guard.scratch, world)
                page = _Bisection(request, pythons, file, steps, world).run()
    except (KeyboardInterrupt, InterruptedRunError):
        again = "" if resume else f" --resume {shlex.quote(str(path))}"
        raise InterruptedRunError(f"interrupted: steps are in {path}; to continue: {world.command}{again}") from None
    outlet.publish(page)
    return page.status


def _opened(path: Path, head: bytes, *, resume: bool) -> tuple[IO[bytes], list[BisectStep]]:
    """Return the file of steps, ready to append, and its steps. Skipped steps are left out and tried again."""
    if not resume:
        if path.parent == store.DEFAULT_FOLDER:
            path.parent.mkdir(exist_ok=True)
        try:
            file: IO[bytes] = path.open("xb")
        except FileExistsError:
            raise UsageError(f"{path} exists: name another file with -o, or go on with --resume {path}") from None
        file.write(head)
        return file, []
    found = contents(path)
    end = found.rfind(b"\n") + 1  # the last line may have been cut off
    if not found.startswith(head):
        raise UsageError(f"--resume {path}: its first line belongs to another bisection: give its options and ends")
    try:
        steps = [decoded(line, BisectStep) for line in found[len(head) : end].splitlines()]
    except ValueError as error:
        raise RunFileError(f"{path}: {one_line(str(error).replace('`', ''))}") from None
    file = path.open("r+b")
    file.truncate(end)
    file.seek(end)
    return file, [step for step in steps if not step.skipped]


@dataclass
class _Bisection:
    """One bisection. Its run files are in the folder of the interpreters."""

    request: PastRequest
    pythons: Interpreters
    file: IO[bytes]
    steps: list[BisectStep]
    world: World
    comparisons: int = 0

    def run(self) -> BisectPage:
        """Compare candidates until one is certain enough or the budget is spent, and return the result."""
        deadline = self.world.clock() + self.request.budget
        candidates, spec = self.pythons.candidates, self.request.spec
        last = len(candidates) - 1
        ends = next((step for step in self.steps if step.changed), None) or self._compare_ends(last, spec)
        change = ends.ratio or LogRatio(0.0, 0.0)
        # Cells that do not differ between the ends show nothing, so do not measure them.
        labels, workers = {key.backend for key in ends.changed}, {key.workers for key in ends.changed}
        spec = replace(
            spec,
            backends=tuple(one for one in spec.backends or CONTESTANTS if one.label in labels),
            workers=tuple(each for each in spec.workers if each in workers),
        )
        while True:
            skipped = {step.at for step in self.steps if step.skipped}
            measured = [(step.at, step.ratio) for step in self.steps if step.ratio and not step.changed]
            found = bisection.look(last, change, measured, skipped)
            if found.next is None or self.world.clock() > deadline:
                return BisectPage(candidates, self.file.name, tuple(self.steps), found, ends.changed, change)
            self._keep(self._step(found.next, spec, ends.changed))

    def _compare_ends(self, last: int, spec: RunSpec) -> BisectStep:
        """Compare the ends until cells clearly differ on average. Raises NotComparableError if none differs."""
        for option, at in (("--good", 0), ("--bad", last)):
            try:
                self.pythons.python_of(at)
            except UsageError as error:
                raise UsageError(f"{option} {self.pythons.candidates[at].label}: {error}") from None
        deadline = self.world.clock() + self.request.budget / 4
        seen: dict[CellKey, list[LogRatio]] = {}
        while True:
            cells = self._compared(last, spec, max(1.0, deadline - self.world.clock()))
            for cell in cells:
                if cell.ratio:
                    seen.setdefault(cell.key, []).append(mean_of_cells([cell.ratio]))
            means = {key: mean_of_steps(its) for key, its in seen.items()}
            for verdict, sign in (("slower", -1), ("faster", 1)):
                # A disturbed cell has no verdict, but a clear ratio counts. With 3.3 standard errors, the probability
                # of an error is 1 % for about ten looks at several cells.
                clear = {key for key, mean in means.items() if sign * mean.log - _LEAST > 3.3 * mean.error}
                its = [cell.key for cell in cells if cell.ratio and (cell.verdict == verdict or cell.key in clear)]
                if its:
                    rounds = zip(*(seen[key] for key in its), strict=False)  # a cell may lack the ratio of some rounds
                    ratio = mean_of_steps([mean_of_cells([one.estimate for one in each]) for each in rounds])
                    return self._keep(BisectStep(last, ratio, changed=tuple(its)))
            if self.world.clock() > deadline or all(cell.verdict == "same" for cell in cells if cell.ratio):
                whys = [cell.why for cell in cells if cell.verdict in NO_ANSWER and cell.why]
                nothing = f"nothing is slower or faster by more than {_LEAST:.0%}, as far as the budget shows"
                raise NotComparableError(f"the ends do not differ: {next(iter(whys), nothing)}")

    def _step(self, at: int, spec: RunSpec, changed: tuple[CellKey, ...]) -> BisectStep:
        """Compare a candidate in the cells that differ between the ends, and return the step."""
        try:
            cells = [cell for cell in self._compared(at, spec, None) if cell.key in changed]
        except (NotComparableError, UsageError) as error:
            return BisectStep(at, skipped=one_line(str(error)))
        ratios = [cell.ratio for cell in cells if cell.ratio]
        if len(ratios) == len(changed):
            return BisectStep(at, mean_of_cells(ratios))
        why = next((cell.why for cell in cells if not cell.ratio and cell.verdict in NO_ANSWER), "")
        # Too few passes went well. That may be chance, so ``look`` names the same candidate again, twice at most.
        if not why and sum(step.at == at and step.ratio is None for step in self.steps) > 1:
            why = "too few passes went well, three times"
        return BisectStep(at, skipped=f"cannot be measured: {why}" if why else "")

    def _compared(self, at: int, spec: RunSpec, budget: float | None) -> Sequence[CellComparison]:
        self.comparisons += 1
        base = self.pythons.scratch / f"comparison-{self.comparisons}.jsonl"
        pythons = self.pythons.python_of(0), self.pythons.python_of(at)
        least = Tolerance(_LEAST)
        page = compared(pythons, (spec, spec), base, self.world, tolerance=least, budget=budget, quiet=True)
        return page.comparison.cells

    def _keep(self, step: BisectStep) -> BisectStep:
        """Write a step to the disk, print its result, and return it."""
        self.file.write(msgspec.json.encode(step) + b"\n")
        self.file.flush()
        os.fsync(self.file.fileno())
        shows = f"ratio {figures.with_spread(step.ratio.estimate)}" if step.ratio else "too few passes"
        console.note(f"{self.pythons.candidates[step.at].label}: {step.skipped or shows}")
        self.steps.append(step)
        return step


@dataclass(frozen=True)
class BisectPage(Page):
    """The result of a bisection. Candidates are ordered from the good end to the bad one, and known by their index."""

    candidates: Sequence[Candidate]
    file: str  # the name of the file of steps
    steps: tuple[BisectStep, ...]
    posterior: Posterior
    changed: tuple[CellKey, ...]  # the cells whose rates differ between the ends
    change: LogRatio  # the ratio of the bad end
    kind = "bisect"

    @property
    def status(self) -> Status:
        """The exit status of the command."""
        return Status.DONE if self.posterior.found else Status.UNDECIDED

    @property
    def outcome(self) -> str:
        """The answer on one line: ``slower since 1f3a9c2b71 2026-11-20 Draw once``."""
        result = self.posterior
        first, last = (self.candidates[at].label for at in (result.first, result.last))
        since = f"{'slower' if self.change.log < 0 else 'faster'} since"
        if result.found:
            return f"{since} {first}"
        if result.certain and not result.one_change:
            return f"undecided: {first} or the one before may lie in the middle of the ends: several changes?"
        number = figures.counted(result.last - result.first + 1, "candidate")
        skipped = ", and others were skipped" if result.certain else ""
        return f"undecided: {since} one of {number}{skipped}, from {first} to {last}"

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: a row for each compared candidate, and the reasons why others were skipped."""
        good, bad, result = self.candidates[0], self.candidates[-1], self.posterior
        change = self.change.estimate
        facts = (
            ("good", good.label),
            ("bad", f"{bad.label}: {change.median - 1:+.1%}, ratio {figures.ratio_text(change)}"),
            ("certainty", f"{result.chance:.1%} (posterior; found at {CERTAIN:.0%})"),
            ("changed", "; ".join(figures.cell_name(key) for key in self.changed)),
            ("steps", one_line(self.file)),
        )
        rows = []
        for at, (candidate, ratio, steps, _) in enumerate(self._by_candidate()):
            chance, best = result.chances[at], result.found and at == result.first
            if ratio is not None:
                texts = (
                    Text((figures.ratio_text(ratio),), value=ratio),
                    Text((str(steps),), value=steps),
                    Text((f"{chance:.1%}",), "best" if best else "plain", chance),
                )
                rows.append(TableRow(candidate.label, texts))
        skipped = figures.by_key((one_line(why), one.label) for one, _, _, why in self._by_candidate() if why)
        title = f"Rates relative to {good.name[:10]}, of {len(self.candidates)} candidates"
        document = Document(
            title=f"Bisect: {self.outcome}",
            facts=facts,
            tables=(Table(title, ("ratio", "steps", "chance"), tuple(rows), corner="candidate"),),
            legend=(
                "ratio: the rate relative to the good end, with its 95 % confidence interval.",
                "chance: the probability that this candidate made the change.",
            ),
            remarks=tuple(Remark("skipped", why, tuple(places)) for why, places in skipped.items()),
            best="where the change is" if result.found else "",
        )
        return (document,)

    def _by_candidate(self) -> Iterator[tuple[Candidate, Estimate | None, int, str | None]]:
        """Yield each candidate with its ratio, the number of its steps, and why it was skipped."""
        ratios = self.posterior.ratios | {len(self.candidates) - 1: self.change}
        for at, one in enumerate(self.candidates):
            steps = [step for step in self.steps if step.at == at]
            skipped = next((step.skipped for step in steps if step.skipped), None)
            yield one, ratios[at].estimate if at in ratios else None, len(steps), skipped

    @property
    def data(self) -> dict[str, object]:
        """The answer, and an object for each candidate."""
        result, candidates = self.posterior, []
        for (one, ratio, steps, skipped), chance in zip(self._by_candidate(), result.chances, strict=True):
            facts = {"ratio": ratio, "steps": steps, "chance": chance, "skipped": skipped}
            candidates.append({"name": one.name, "day": one.time[:10] or None, "subject": one.subject or None, **facts})
        return {
            "status": self.status,
            "outcome": self.outcome,
            "found": result.found,
            "first": self.candidates[result.first].name,
            "last": self.candidates[result.last].name,
            "chance": result.chance,
            "ratio": candidates[result.last]["ratio"] if result.found else None,
            "ends": self.change.estimate,
            "changed": [key._asdict() for key in self.changed],
            "candidates": candidates,
        }
