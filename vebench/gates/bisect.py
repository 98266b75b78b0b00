"""``vebench bisect``: find which commit or release changed the rate, by comparing candidates with the good end."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import IO, Annotated

import msgspec
from msgspec import Meta, Struct

from vebench.analysis.comparison import CellComparison
from vebench.commands.session import World
from vebench.errors import InterruptedRunError, NotComparableError, RunFileError, UsageError, one_line
from vebench.files import decoded
from vebench.gates import bisection, candidates, compare
from vebench.gates.bisect_page import BisectPage
from vebench.gates.bisection import Ratio
from vebench.gates.candidates import Candidate
from vebench.gates.gate import NO_ANSWER, Status
from vebench.interpreters.process_guard import ProcessGuard
from vebench.interpreters.venvs import NotHadError
from vebench.plan.cells import CellKey
from vebench.plan.spec import RunSpec
from vebench.reports import console, figures
from vebench.reports.console import Outlet
from vebench.results import store

_LEAST = 0.01  # the share by which the ends must differ
# How many standard errors the ends must differ by beyond that: 1 % in all, for about ten looks at several cells.
_SURE = 3.3
_OF_ENDS = 0.25  # the largest share of the budget for the difference of the ends
_KEPT = 3  # interpreters at a time: each may take gigabytes
_FEWEST = 2  # candidates: the ends
_Log = Annotated[float, Meta(ge=-50, le=50)]


@dataclass(frozen=True)
class BisectRequest:
    """The options of a bisection."""

    good: str
    bad: str
    folder: Path  # what pip installs, in a git repository
    package: str  # bisect the releases of this package instead; empty: the repository
    needed: tuple[str, ...]  # is installed with each candidate
    spec: RunSpec
    budget: float  # seconds in which steps are begun


class Step(Struct, frozen=True, tag_field="type", tag="step"):
    """One comparison of a candidate with the good end, as a line of the file of steps."""

    at: Annotated[int, Meta(ge=1)]  # the index of the candidate
    log: _Log | None = None  # the logarithm of the ratio, and its error; None if too few passes went well
    error: _Log | None = None
    skipped: str = ""  # why the candidate cannot be compared
    changed: tuple[CellKey, ...] = ()  # of the comparison of the ends: the cells whose rate has changed

    @property
    def ratio(self) -> Ratio:
        """The ratio of the rates."""
        return Ratio(self.log or 0.0, self.error or 0.0)


def start(request: BisectRequest, output: Path | None, resume: Path | None, outlet: Outlet, world: World) -> int:
    """Find the candidate that changed the rate, and print it. Returns the exit status.

    Steps are kept in the file ``output``, by default a new one in ``.vebench/``; those in ``resume`` are not repeated.
    Raises UsageError for bad ends, NotComparableError if they do not differ, InterruptedRunError if the user interrupts
    it.
    """
    if request.package:
        known = candidates.releases(world.releases(request.package), request.good, request.bad)
    else:
        known = candidates.commits(request.folder, request.good, request.bad)
    if len(known) < _FEWEST:
        raise UsageError(f"--good {request.good} must come before --bad {request.bad}")
    plan = {"package": request.package, "needed": request.needed, "spec": request.spec, "candidates": known}
    head = msgspec.json.encode({"type": "bisect", "schema": 1, **plan}) + b"\n"
    path = resume or output or store.default_path(world.now(), ("bisect", *request.spec.envs)).with_suffix(".steps")
    # A request to end (SIGTERM) is an interrupt as well, so that nothing unfinished is left.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with ProcessGuard() as guard, _opened(path, head, resume=resume is not None) as file:
            page = _Bisection(request, known, file, guard.scratch, world).run()
    except (KeyboardInterrupt, InterruptedRunError):
        again = "" if resume else f" --resume {shlex.quote(str(path))}"
        raise InterruptedRunError(f"interrupted: steps are in {path}; to continue: {world.command}{again}") from None
    finally:
        signal.signal(signal.SIGTERM, before)
    outlet.publish(page)
    return page.status


def _opened(path: Path, head: bytes, *, resume: bool) -> IO[bytes]:
    """Return the file of steps after its first line, ``head``. Raises UsageError if it is another's, or is there."""
    if resume:
        file = path.open("r+b")
        if file.readline(len(head) + 1) != head:
            file.close()
            raise UsageError(f"--resume {path}: its first line is of another bisection: give the same options and ends")
        return file
    if path.parent == store.DEFAULT_FOLDER:
        path.parent.mkdir(exist_ok=True)
    try:
        file = path.open("x+b")
    except FileExistsError:
        raise UsageError(f"{path} exists: name another file with -o, or go on with --resume {path}") from None
    file.write(head)
    file.flush()
    return file


def _steps_in(file: IO[bytes], last: int) -> list[Step]:
    """Return the steps in a file, without a last line that was cut off, and without skipped ones.

    What could not be installed may be there now. Raises RunFileError for a damaged line.
    """
    steps, end = [], file.tell()
    for number, line in enumerate(file, start=2):
        if not line.endswith(b"\n"):
            break
        end += len(line)
        try:
            step = decoded(line, Step)
        except ValueError as error:
            raise RunFileError(f"{file.name}, line {number}: {one_line(str(error).replace('`', ''))}") from None
        if step.at > last:
            raise RunFileError(f"{file.name}, line {number}: there is no candidate {step.at}")
        if not step.skipped:
            steps.append(step)
    file.truncate(end)
    file.seek(end)
    return steps


class _Bisection:
    """One bisection. Interpreters, and what they measure, are in the folder ``scratch``."""

    def __init__(
        self, request: BisectRequest, known: Sequence[Candidate], file: IO[bytes], scratch: Path, world: World
    ) -> None:
        self._request = request
        self._known = known
        self._last = len(known) - 1
        self._file = file
        self._steps = _steps_in(file, self._last)
        self._world = world
        self._scratch = scratch
        self._numbers = count()
        self._pythons: dict[int, str] = {}  # the one used last at the end
        self._spec = replace(request.spec, backends=request.spec.backends or compare.CONTESTANTS)

    def run(self) -> BisectPage:
        """Compare candidates until one is certain enough or the budget is spent, and return the result."""
        deadline = self._world.clock() + self._request.budget
        ends = next((step for step in self._steps if step.changed), None) or self._ends()
        change = ends.ratio
        # Cells that have not changed between the ends say nothing, and would take time.
        backends, workers = {key.backend for key in ends.changed}, {key.workers for key in ends.changed}
        spec = replace(
            self._spec,
            backends=tuple(one for one in self._spec.backends if one.label in backends),
            workers=tuple(each for each in self._spec.workers if each in workers),
        )
        while True:
            skipped = {step.at: step.skipped for step in self._steps if step.skipped}
            measured = [(step.at, step.ratio) for step in self._steps if step.log is not None and not step.changed]
            found = bisection.judge(self._last, change, measured, skipped)
            if found.next is None or self._world.clock() > deadline:
                break
            self._keep(self._step(found.next, spec, ends.changed))
        answer = found.answer
        decided = answer.found and found.one_change and answer.first == answer.last
        return BisectPage(
            self._known,
            "release" if self._request.package else "commit",
            self._file.name,
            ends.changed,
            found.ratios | {self._last: change},
            {at: sum(step.at == at for step in self._steps) for at in range(1, self._last + 1)},
            skipped,
            found.chances,
            answer,
            found.one_change,
            Status.DONE if decided else Status.UNDECIDED,
        )

    def _ends(self) -> Step:
        """Return the comparison of the ends, with the cells that have changed. Raises NotComparableError if none has.

        Several comparisons are pooled until a cell has clearly changed, or none has.
        """
        for option, name, at in (("--good", self._request.good, 0), ("--bad", self._request.bad, self._last)):
            try:
                self._python(at)
            except NotHadError as error:
                raise UsageError(f"{option} {name}: cannot be installed: {error}") from None
        deadline = self._world.clock() + self._request.budget * _OF_ENDS
        seen: dict[CellKey, list[Ratio]] = {}
        while True:
            cells = self._compared(self._last, self._spec, max(1.0, deadline - self._world.clock()))
            for cell in cells:
                if cell.ratio:
                    seen.setdefault(cell.key, []).append(bisection.mean_of([cell.ratio]))
            with_ratio = [cell for cell in cells if cell.ratio]
            for verdict, sign in (("slower", -1), ("faster", 1)):
                # A cell that others disturbed has no verdict, but its ratio counts if it is clear.
                clear = {key for key, its in seen.items() if _is_clear(its, sign)}
                changed = tuple(cell.key for cell in with_ratio if cell.verdict == verdict or cell.key in clear)
                if changed:
                    rounds = zip(*(seen[key] for key in changed), strict=False)  # a cell may lack a ratio at times
                    means = [bisection.mean_of([one.estimate for one in each]) for each in rounds]
                    return self._keep(Step(self._last, *_pooled(means), changed=changed))
            if self._world.clock() > deadline or all(cell.verdict == "same" for cell in with_ratio):
                break
        whys = [cell.why for cell in cells if cell.verdict in NO_ANSWER and cell.why]
        why = next(iter(whys), f"nothing is slower or faster by more than {_LEAST:.0%}, as far as the budget shows")
        raise NotComparableError(f"the ends do not differ: {why}")

    def _step(self, at: int, spec: RunSpec, changed: tuple[CellKey, ...]) -> Step:
        """Return the comparison of a candidate in the cells that have changed between the ends."""
        try:
            cells = [cell for cell in self._compared(at, spec, None) if cell.key in changed]
        except (NotHadError, NotComparableError, UsageError) as error:
            return Step(at, skipped=one_line(str(error)))
        ratios = [cell.ratio for cell in cells if cell.ratio]
        if len(ratios) == len(changed):
            return Step(at, *bisection.mean_of(ratios))
        why = next((cell.why for cell in cells if not cell.ratio and cell.verdict in NO_ANSWER), "")
        return Step(at, skipped=f"cannot be measured: {why}" if why else "")

    def _compared(self, at: int, spec: RunSpec, budget: float | None) -> Sequence[CellComparison]:
        base = self._scratch / f"comparison-{next(self._numbers)}.jsonl"
        pythons = self._python(0), self._python(at)
        page = compare.compared(pythons, spec, base, self._world, tolerance=_LEAST, budget=budget, quiet=True)
        return page.comparison.cells

    def _python(self, at: int) -> str:
        """Return the interpreter of a candidate. Raises NotHadError if it cannot be installed."""
        if at not in self._pythons:
            while len(self._pythons) >= _KEPT:
                oldest = next(number for number in self._pythons if number)  # the good end is always needed
                del self._pythons[oldest]
                shutil.rmtree(self._folder(oldest), ignore_errors=True)
            self._pythons[at] = self._installed(at)
        self._pythons[at] = self._pythons.pop(at)
        return self._pythons[at]

    def _folder(self, at: int) -> Path:
        return self._scratch / f"python-{at}"

    def _installed(self, at: int) -> str:
        request, name = self._request, self._known[at].name
        source = self._scratch / f"source-{at}"
        console.note(f"installing {self._known[at].label}")
        try:
            what = f"{request.package}>={name},<={name}"  # == would also install a release that was yanked
            if not request.package:
                what = str(candidates.check_out(request.folder, name, source))
            return self._world.install((what, *request.needed), self._folder(at))
        except BaseException:
            shutil.rmtree(self._folder(at), ignore_errors=True)
            raise
        finally:
            shutil.rmtree(source, ignore_errors=True)

    def _keep(self, step: Step) -> Step:
        """Write a step to the disk, and say what it shows."""
        self._file.write(msgspec.json.encode(step) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        shows = f"ratio {figures.rate(step.ratio.estimate)}" if step.log is not None else "too few passes"
        console.note(f"{self._known[step.at].label}: {step.skipped or shows}")
        self._steps.append(step)
        return step


def _pooled(ratios: Sequence[Ratio]) -> Ratio:
    """Return the mean of several ratios of one candidate."""
    return bisection.pooled([(0, ratio) for ratio in ratios])[0]


def _is_clear(ratios: Sequence[Ratio], sign: int) -> bool:
    """Return whether ratios of one cell are clearly above 1 by ``_LEAST``, or below it with a negative ``sign``."""
    found = _pooled(ratios)
    return sign * found.log - _LEAST > _SURE * found.error
