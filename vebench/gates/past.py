"""Old code: commits or releases, an interpreter for each, and their rates (``vebench history --backfill``)."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import dropwhile
from pathlib import Path

import msgspec

from vebench.analysis.rules import unusable
from vebench.commands.session import Session, World, planned, refuse_useless
from vebench.errors import InterruptedRunError, UsageError, did_you_mean, one_line, shown
from vebench.gates.gate import cells_of
from vebench.interpreters import NotHadError
from vebench.plan.cells import interleaved
from vebench.plan.spec import RunSpec, check_spec
from vebench.process_guard import ProcessGuard, terminable
from vebench.reports import console
from vebench.results import store
from vebench.results.store import SUFFIX, RunWriter


@dataclass(frozen=True)
class PastRequest:
    """The options of a bisection or a backfill: a range of commits or releases, and what to measure."""

    good: str  # the early end
    bad: str
    repo: Path | None  # a folder in a git repository, which pip installs; None: for commits, the current folder
    package: str  # take the releases of this package; empty: the commits of the repository
    needed: tuple[str, ...]  # requirements that are installed with each candidate
    spec: RunSpec
    budget: float  # seconds after which no candidate is begun


class Candidate(msgspec.Struct, frozen=True):
    """A release with its version, or a commit with its hash, time and subject."""

    name: str
    time: str = ""  # when it was committed, in UTC, as ISO 8601
    subject: str = ""
    package: str = ""

    @property
    def label(self) -> str:
        """The candidate on one line: ``numpy 2.0.2``, or ``1f3a9c2b71 2026-11-20 Draw once``."""
        if self.package:
            return f"{self.package} {self.name}"
        return one_line(f"{self.name[:10]} {self.time[:10]} {self.subject}")


def candidates_of(request: PastRequest, world: World) -> list[Candidate]:
    """Return the releases, or the commits by first parents, from the early end to the late one. Raises UsageError."""
    good, bad = request.good, request.bad
    if request.package:
        names = world.releases(request.package)
        for name in (good, bad):
            if name not in names:
                raise UsageError(f"{name}: pip finds no such release{did_you_mean(name, names)}")
        found = [Candidate(name, package=request.package) for name in names[names.index(good) : names.index(bad) + 1]]
    else:
        folder = request.repo or Path()
        first, last = (git(folder, name, "rev-parse", "--verify", f"{name}^{{commit}}") for name in (good, bad))
        log = git(folder, bad, "log", "--first-parent", "--reverse", "--format=%H%x09%ct%x09%s", last)
        each = (line.split("\t", 2) for line in log.split("\n"))
        commits = [Candidate(name, datetime.fromtimestamp(int(at), UTC).isoformat(), text) for name, at, text in each]
        found = [*dropwhile(lambda one: one.name != first, commits)]
    if not found:
        raise UsageError(f"{good}: must come before {bad}{'' if request.package else ', by first parents'}")
    return found


def git(folder: Path, about: str, *arguments: str) -> str:
    """Return what git prints in ``folder``. Raises UsageError, which begins with ``about``."""
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise UsageError(f"{about}: {one_line(done.stderr)}")
    return done.stdout.rstrip("\n")


@dataclass
class Interpreters:
    """Interpreters of candidates in the folder ``scratch``: the first candidate's, and the two installed last."""

    request: PastRequest
    candidates: Sequence[Candidate]
    scratch: Path
    world: World
    paths: dict[int, str] = field(default_factory=dict)  # by candidate, in the order of their installation

    def python_of(self, at: int) -> str:
        """Return the interpreter of a candidate. Raises UsageError if the candidate cannot be installed."""
        if at in self.paths:
            return self.paths[at]
        while len(self.paths) > 2:  # noqa: PLR2004 - each may take gigabytes
            oldest = next(number for number in self.paths if number)  # a bisection always needs the first one
            del self.paths[oldest]
            shutil.rmtree(self.scratch / f"python-{oldest}", ignore_errors=True)
        request, one = self.request, self.candidates[at]
        console.note(f"installing {one.label}")
        what = [*request.needed]
        if one.package:
            what.append(f"{one.package}>={one.name},<={one.name}")  # == would also install a yanked release
        if request.repo or not one.package:
            asked = ("--show-toplevel", "--show-prefix", "HEAD")
            top, folder, newest = (git(request.repo or Path(), "--repo", "rev-parse", word) for word in asked)
            commit = newest if one.package else one.name
            what.append(f"git+{Path(top).as_uri()}@{commit}#subdirectory={folder}")
        try:
            self.paths[at] = self.world.install(what, self.scratch / f"python-{at}")
        except NotHadError as error:
            raise UsageError(f"cannot be installed: {error}") from None
        return self.paths[at]


def backfill(request: PastRequest, folder: Path, world: World) -> None:
    """Measure candidates that have no run file in ``folder`` into one each, within the budget of the request.

    The ends come first, then the middles of ever smaller parts, so that a drift of the machine does not look like a
    change. A line on standard error names each candidate that cannot be measured.
    """
    check_spec(request.spec)
    if named := next((choice.label for choice in request.spec.backends if choice.python), None):
        raise UsageError(f"--backend {shown(named)}: each candidate has its own Python: leave out what follows @")
    candidates = candidates_of(request, world)
    stems = [one.label.replace(" ", "-") if one.package else one.name[:10] for one in candidates]
    paths = [folder / f"{stem}{SUFFIX}" for stem in stems]
    for path in paths:
        if path.exists() and store.read(path).header.spec != request.spec:
            raise UsageError(f"{path} has another plan: name another folder")
    left = [at for at in _ends_first(len(paths)) if not paths[at].exists()]
    deadline = world.clock() + request.budget
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with terminable(), ProcessGuard() as guard:
            pythons = Interpreters(request, candidates, guard.scratch, world)
            while left and world.clock() <= deadline:
                at = left.pop(0)
                try:
                    _measure(pythons, at, paths[at])
                    outcome = str(paths[at])
                except UsageError as error:
                    outcome = f"skipped: {error}"
                    if len(left) == len(paths) - 2 and not any(path.exists() for path in paths):
                        raise UsageError(f"--backfill: neither end can be measured: {one_line(str(error))}") from None
                done = f"[{len(paths) - len(left)}/{len(paths)}]"
                console.note(f"{done} {candidates[at].label}: {outcome}")
    except (KeyboardInterrupt, InterruptedRunError):
        raise InterruptedRunError(f"interrupted: runs are in {folder}/; to continue: {world.command}") from None
    if left:
        console.note(f"--budget is over: {len(left)} of {len(paths)} are left: repeat the command")


def _ends_first(count: int) -> list[int]:
    """Return indices: the first and the last, then those between at ever smaller steps."""
    found, step = dict.fromkeys((0, count - 1)), count - 1
    while step > 1:
        step = (step + 1) // 2
        found |= dict.fromkeys(range(0, count, step))
    return [*found]


def _measure(pythons: Interpreters, at: int, path: Path) -> None:
    """Measure a candidate into a new run file. Raises UsageError if it has no usable rate."""
    world, request, one = pythons.world, pythons.request, pythons.candidates[at]
    by_version = re.sub(r"\d+", lambda number: number[0].zfill(6), one.name)
    order = by_version if one.package else f"{one.time} {at:06}"  # a rebase commits many at the same time
    interpreter, spec = world.examine("Python", pythons.python_of(at)), request.spec
    tasks = world.resolve(spec.envs, spec.backends, python=interpreter.path)
    plan, head = planned(spec, tasks, world, interpreter)
    refuse_useless(plan)
    plan = interleaved(plan, world.memory_available()) if spec.takes_turns else plan
    draft = pythons.scratch / path.name
    file = RunWriter.create(draft, msgspec.structs.replace(head, code=one.label, code_order=order))
    with Session(file, world, quiet=True) as measuring:
        measuring.measure(plan, plan)
        cells = cells_of(measuring.run, path)
    asked_for = [cell for cell in cells if not cell.reference_row]
    if not any(cell.status == "ok" for cell in asked_for):
        raise UsageError(next((cell.reason for cell in asked_for if cell.reason), "nothing was measured"))
    if disturbed := unusable(cells):  # a history would leave the run out, and the same command would not repeat it
        raise UsageError(f"{disturbed.message}; {disturbed.remedy}")
    shutil.move(draft, path)
