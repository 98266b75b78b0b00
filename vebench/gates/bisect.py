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

from vebench.commands.session import World
from vebench.errors import InterruptedRunError, NotComparableError, RunFileError, UsageError, one_line
from vebench.files import decoded
from vebench.gates import bisection, candidates, compare
from vebench.gates.bisect_page import BisectPage
from vebench.gates.bisection import Ratio
from vebench.gates.candidates import Candidate
from vebench.gates.check_page import CheckPage
from vebench.gates.gate import NO_ANSWER, Status
from vebench.interpreters.process_guard import ProcessGuard
from vebench.interpreters.venvs import NotHadError
from vebench.plan.cells import CellKey
from vebench.plan.spec import RunSpec
from vebench.reports import console, figures
from vebench.reports.console import Outlet
from vebench.results import paths

_LEAST = 0.01  # by how much the ends must differ
_SURE = 3.3  # standard errors beyond that, for about ten looks at several cells at 1 % in all
_OF_ENDS = 0.25  # the largest share of the budget for the difference of the ends
_KEPT = 3  # interpreters at a time: each may take gigabytes
_Log = Annotated[float, Meta(ge=-50, le=50)]


@dataclass(frozen=True)
class BisectRequest:
    """What to bisect: a ``package``, or else the repository of ``folder``; ``needed`` is installed with each candidate.

    ``budget`` is in seconds.
    """

    good: str
    bad: str
    folder: Path
    package: str
    needed: tuple[str, ...]
    spec: RunSpec
    budget: float


class _Step(Struct, frozen=True, tag_field="type", tag="step"):
    """One comparison of candidate ``at`` with the good end: the log ratio and its error.

    They are None if too few passes went well, or if the candidate is ``skipped``, for this reason. That of the ends
    has the cells that have ``changed``.
    """

    at: Annotated[int, Meta(ge=1)]
    log: _Log | None = None
    error: _Log | None = None
    skipped: str = ""
    changed: tuple[CellKey, ...] = ()


def start(request: BisectRequest, output: Path | None, resume: Path | None, outlet: Outlet, world: World) -> int:
    """Find the candidate that changed the rate, and print it. Returns the exit status.

    Steps are kept in the file ``output``, by default a new one in ``.vebench/``; those in ``resume`` are not repeated.
    Raises UsageError for ends that are none or cannot be installed, NotComparableError if they do not differ,
    InterruptedRunError if the user interrupts it.
    """
    if request.package:
        known = candidates.releases(world.releases(request.package), request.good, request.bad)
    else:
        known = candidates.commits(request.folder, request.good, request.bad)
    if len(known) < 2:  # noqa: PLR2004 - two ends
        raise UsageError(f"--good {request.good} must come before --bad {request.bad}")
    # What is bisected, and what a step measures: the first line of a file of steps.
    plan = {"package": request.package, "needed": request.needed, "spec": request.spec, "candidates": known}
    head = msgspec.json.encode({"type": "bisect", "schema": 1, **plan}) + b"\n"
    path = resume or output or paths.default_path(world.now(), ("bisect", *request.spec.envs)).with_suffix(".steps")
    # A request to end (SIGTERM) is an interrupt as well, so that nothing unfinished is left.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with ProcessGuard() as guarded, _opened(path, head, resume=resume is not None) as file:
            page = _Bisection(request, known, file, guarded.scratch, world).page()
    except (KeyboardInterrupt, InterruptedRunError):
        again = "" if resume else f" --resume {shlex.quote(str(path))}"
        raise InterruptedRunError(f"interrupted: steps are in {path}; to continue: {world.command}{again}") from None
    finally:
        signal.signal(signal.SIGTERM, before)
    outlet.publish(page)
    return page.status


def _opened(path: Path, head: bytes, *, resume: bool) -> IO[bytes]:
    """Return the file of steps, with its first line. Raises UsageError if it is there, or is of another bisection."""
    if resume:
        file = path.open("r+b")
        if file.readline(len(head) + 1) != head:
            file.close()
            raise UsageError(f"--resume {path}: its first line is of another bisection: give the same options and ends")
        return file
    if path.parent == paths.DEFAULT_FOLDER:
        path.parent.mkdir(exist_ok=True)
    try:
        file = path.open("x+b")
    except FileExistsError:
        raise UsageError(f"{path} exists: name another file with -o, or go on with --resume {path}") from None
    file.write(head)
    file.flush()
    return file


class _Bisection:
    """``file`` has its first line read. Interpreters and what they measure are in the folder ``scratch``."""

    def __init__(
        self, request: BisectRequest, known: Sequence[Candidate], file: IO[bytes], scratch: Path, world: World
    ) -> None:
        self._request, self._known, self._file, self._world = request, known, file, world
        self._scratch, self._numbers = scratch, count()
        self._last = len(self._known) - 1
        self._pythons: dict[int, str] = {}  # the last used at the end
        self._spec = replace(request.spec, backends=request.spec.backends or compare.CONTESTANTS)
        self._steps: list[_Step] = []
        whole = file.tell()
        for number, line in enumerate(file, start=2):
            if line.endswith(b"\n"):  # else the last one was cut off
                step = self._read(line, number)
                if not step.skipped:  # what could not be installed for want of a network may be there now
                    self._steps.append(step)
                whole += len(line)
        file.truncate(whole)
        file.seek(whole)

    def _read(self, line: bytes, number: int) -> _Step:
        try:
            step = decoded(line, _Step)
            self._known[step.at]
        except (ValueError, IndexError) as error:
            raise RunFileError(f"{self._file.name}, line {number}: {one_line(str(error).replace('`', ''))}") from None
        return step

    def page(self) -> BisectPage:
        """Compare candidates until one is certain enough or the budget is spent, and return what was found."""
        deadline = self._world.clock() + self._request.budget
        ends = next((step for step in self._steps if step.changed), None) or self._ends()
        change = _ratio_of(ends)
        # What has not changed between the ends says nothing, and would take time.
        backends, workers = {key.backend for key in ends.changed}, {key.workers for key in ends.changed}
        spec = replace(
            self._spec,
            backends=tuple(one for one in self._spec.backends if one.label in backends),
            workers=tuple(each for each in self._spec.workers if each in workers),
        )
        while True:
            skipped = {step.at: step.skipped for step in self._steps if step.skipped}
            measured = [(step.at, _ratio_of(step)) for step in self._steps if step.log is not None and not step.changed]
            chances = bisection.posterior(self._last, change, measured)
            askable = [at for at in range(1, self._last) if at not in skipped]
            found = bisection.answer(chances, askable)
            ratios = bisection.pooled(measured)
            at = bisection.unclear(found, change, ratios) if found.found else bisection.to_ask(chances, askable)
            if at is None or self._world.clock() > deadline or (found.found and not bisection.helps(ratios[at])):
                break
            self._keep(self._step(at, spec, ends.changed))
        return BisectPage(
            self._known,
            "release" if self._request.package else "commit",
            self._file.name,
            ends.changed,
            ratios | {self._last: change},
            {at: sum(step.at == at for step in self._steps) for at in range(1, self._last + 1)},
            skipped,
            chances,
            found,
            at is None,
            Status.DONE if found.found and at is None and found.first == found.last else Status.UNDECIDED,
        )

    def _ends(self) -> _Step:
        """Return the step that says what has changed between the ends. Raises NotComparableError if nothing has."""
        for option, name, at in (("--good", self._request.good, 0), ("--bad", self._request.bad, self._last)):
            try:
                self._python(at)
            except NotHadError as error:
                raise UsageError(f"{option} {name}: cannot be installed: {error}") from None
        deadline = self._world.clock() + self._request.budget * _OF_ENDS
        seen: dict[CellKey, list[bisection.Step]] = {}
        while True:
            page = self._compare(self._last, self._spec, max(1.0, deadline - self._world.clock()))
            cells = [cell for cell in page.comparison.cells if cell.ratio]
            for cell in page.comparison.cells:
                if cell.ratio:
                    seen.setdefault(cell.key, []).append((0, bisection.mean_of([cell.ratio])))
            ratios = {key: bisection.pooled(its)[0] for key, its in seen.items()}
            for verdict, sign in (("slower", -1), ("faster", 1)):
                # No verdict stands on a cell that others disturbed, but its ratio does, if it is clear.
                clear = {key for key, one in ratios.items() if sign * one.log - _LEAST > _SURE * one.error}
                changed = [cell.key for cell in cells if cell.verdict == verdict or cell.key in clear]
                if changed:
                    together = zip(*(seen[key] for key in changed))  # noqa: B905 - a cell may lack a ratio at times
                    means = [(0, bisection.mean_of([one.estimate for _, one in each])) for each in together]
                    return self._keep(_Step(self._last, *bisection.pooled(means)[0], changed=tuple(changed)))
            if self._world.clock() > deadline or all(cell.verdict == "same" for cell in cells):
                break
        whys = [cell.why for cell in page.comparison.cells if cell.verdict in NO_ANSWER and cell.why]
        why = next(iter(whys), f"nothing is slower or faster by more than {_LEAST:.0%}, as far as the budget shows")
        raise NotComparableError(f"the ends do not differ: {why}")

    def _step(self, at: int, spec: RunSpec, changed: tuple[CellKey, ...]) -> _Step:
        try:
            page = self._compare(at, spec, None)
        except (NotHadError, NotComparableError, UsageError) as error:
            return _Step(at, skipped=one_line(str(error)))
        cells = [cell for cell in page.comparison.cells if cell.key in changed]
        ratios = [cell.ratio for cell in cells if cell.ratio]
        if len(ratios) == len(changed):
            return _Step(at, *bisection.mean_of(ratios))
        why = next((cell.why for cell in cells if not cell.ratio and cell.verdict in NO_ANSWER), "")
        return _Step(at, skipped=f"cannot be measured: {why}" if why else "")

    def _compare(self, at: int, spec: RunSpec, budget: float | None) -> CheckPage:
        base = self._scratch / f"comparison-{next(self._numbers)}.jsonl"
        pythons = self._python(0), self._python(at)
        return compare.compared(pythons, spec, base, self._world, tolerance=_LEAST, budget=budget, quiet=True)

    def _python(self, at: int) -> str:
        """Return the interpreter of a candidate. Raises NotHadError if it cannot be installed."""
        if at not in self._pythons:
            while len(self._pythons) >= _KEPT:
                oldest = next(place for place in self._pythons if place)
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
            what = f"{request.package}>={name},<={name}"  # with ==, a release that was yanked would be installed, too
            if not request.package:
                what = str(candidates.check_out(request.folder, name, source))
            return self._world.install((what, *request.needed), self._folder(at))
        except BaseException:
            shutil.rmtree(self._folder(at), ignore_errors=True)
            raise
        finally:
            shutil.rmtree(source, ignore_errors=True)

    def _keep(self, step: _Step) -> _Step:
        """Write a step to the disk, and say what it shows."""
        self._file.write(msgspec.json.encode(step) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        shows = f"ratio {figures.rate(_ratio_of(step).estimate)}" if step.log is not None else "too few passes"
        console.note(f"{self._known[step.at].label}: {step.skipped or shows}")
        self._steps.append(step)
        return step


def _ratio_of(step: _Step) -> Ratio:
    return Ratio(step.log or 0.0, step.error or 0.0)
