"""Old code: commits or releases, an interpreter for each, and their rates (``vebench history --backfill``)."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from vebench.commands.session import Session, World, plan_here, refuse_useless
from vebench.errors import InterruptedRunError, UsageError, did_you_mean, one_line, shown
from vebench.gates.gate import PassBudget
from vebench.interpreters import NotHadError
from vebench.plan.spec import RunSpec, check_spec
from vebench.process_guard import ProcessGuard, terminable
from vebench.reports import console, figures
from vebench.results.store import SUFFIX, RunWriter


@dataclass(frozen=True)
class PastRequest:
    """The options of a bisection or a backfill: a range of commits or releases, and what to measure."""

    good: str  # the early end
    bad: str
    folder: Path  # a folder in a git repository, which pip installs
    package: str  # take the releases of this package; empty: the commits of the repository
    needed: tuple[str, ...]  # requirements that are installed with each candidate
    project: bool  # whether the repository's newest commit is installed with each release
    spec: RunSpec
    budget: float  # seconds

    @property
    def noun(self) -> str:
        """The word for a candidate: ``release`` or ``commit``."""
        return "release" if self.package else "commit"


class Candidate(msgspec.Struct, frozen=True):
    """A release with its version, or a commit with its hash, time and subject."""

    name: str
    time: str = ""  # when it was committed, as ISO 8601
    subject: str = ""

    @property
    def label(self) -> str:
        """The candidate on one line: ``1f3a9c2b71 2026-11-20 Draw once``."""
        return one_line(f"{self.name[:10]} {self.time[:10]} {self.subject}") if self.time else self.name


def candidates_of(request: PastRequest, world: World) -> list[Candidate]:
    """Return the releases, or the commits by first parents, from the early end to the late one. Raises UsageError."""
    good, bad = request.good, request.bad
    if request.package:
        names = world.releases(request.package)
        for name in (good, bad):
            if name not in names:
                raise UsageError(f"{name}: pip finds no such release{did_you_mean(name, names)}")
        found = [Candidate(name) for name in names[names.index(good) : names.index(bad) + 1]]
    else:
        first, last = (git(request.folder, name, "rev-parse", "--verify", f"{name}^{{commit}}") for name in (good, bad))
        log = git(request.folder, bad, "log", "--first-parent", "--format=%H%x09%cI%x09%s", last)
        newest_first = [Candidate(*line.split("\t", 2)) for line in log.split("\n")]
        found = next((newest_first[at::-1] for at, one in enumerate(newest_first) if one.name == first), [])
    if not found:
        raise UsageError(f"{good}: must come before {bad}{'' if request.package else ', by first parents'}")
    return found


def git(folder: Path, about: str, *arguments: str) -> str:
    """Return what git prints in ``folder``. Raises UsageError, which begins with ``about``."""
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise UsageError(f"{about}: {one_line(done.stderr)}")
    return done.stdout.strip()


@dataclass
class Interpreters:
    """Interpreters of candidates in the folder ``scratch``: the first one's, and those that were used last."""

    request: PastRequest
    candidates: Sequence[Candidate]
    scratch: Path
    world: World
    paths: dict[int, str] = field(default_factory=dict)  # by candidate, the last used one at the end

    def python_of(self, at: int) -> str:
        """Return the interpreter of a candidate. Raises NotHadError if the candidate cannot be installed."""
        if at in self.paths:
            self.paths[at] = self.paths.pop(at)
            return self.paths[at]
        while len(self.paths) > 2:  # noqa: PLR2004 - each may take gigabytes
            oldest = next(number for number in self.paths if number)  # a bisection always needs the first one
            del self.paths[oldest]
            shutil.rmtree(self.scratch / f"python-{oldest}", ignore_errors=True)
        request, name = self.request, self.candidates[at].name
        console.note(f"installing {self.candidates[at].label}")
        # == would also install a yanked release.
        what = [f"{request.package}>={name},<={name}"] if request.package else []
        with TemporaryDirectory(dir=self.scratch) as source:
            if request.project or not request.package:
                commit = git(request.folder, "--repo", "rev-parse", "HEAD") if request.package else name
                # A shared clone leaves the repository as it is; a worktree would be registered in it.
                top = git(request.folder, "--repo", "rev-parse", "--show-toplevel")
                git(request.folder, "--repo", "clone", "--quiet", "--shared", "--no-checkout", top, source)
                git(Path(source), "--repo", "checkout", "--quiet", "--detach", commit)
                what.append(str(Path(source, git(request.folder, "--repo", "rev-parse", "--show-prefix"))))
            self.paths[at] = self.world.install((*what, *request.needed), self.scratch / f"python-{at}")
        return self.paths[at]


def backfill(request: PastRequest, folder: Path, world: World) -> None:
    """Measure candidates that have no run file in ``folder`` into one each, within the budget of the request.

    The ends come first, then the middles of ever smaller parts, so that a drift of the machine does not look like a
    change. A line on standard error names each candidate that cannot be measured. Raises UsageError if both ends
    cannot, and InterruptedRunError if the user interrupts the command.
    """
    spec = request.spec
    check_spec(spec)
    if named := next((choice.label for choice in spec.backends if choice.python), None):
        raise UsageError(f"--backend {shown(named)}: each {request.noun} has its own Python: leave out what follows @")
    candidates, tasks = candidates_of(request, world), re.sub(r"[^\w.]+", "-", "-".join(spec.envs))[:60].strip("-")
    codes = [f"{request.package} {one.name}" if request.package else one.label for one in candidates]
    stems = [code.replace(" ", "-") if request.package else code[:10] for code in codes]
    paths = [folder / f"{stem}-{tasks}{SUFFIX}" for stem in stems]
    left = [at for at in _ends_first(len(paths)) if not paths[at].exists()]
    time = PassBudget(request.budget, world.clock)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with terminable(), ProcessGuard() as guard:
            pythons = Interpreters(request, candidates, guard.scratch, world)
            while left and time.allows_a_pass:
                at = left.pop(0)
                draft, order = guard.scratch / paths[at].name, _order(candidates[at], at)
                try:
                    why = _measure(pythons.python_of(at), spec, draft, {"code": codes[at], "code_order": order}, world)
                except (NotHadError, UsageError) as error:
                    why = str(error)
                if not why:
                    shutil.move(draft, paths[at])
                console.note(f"{candidates[at].label}: {f'skipped: {why}' if why else paths[at]}")
                if why and len(left) == len(paths) - 2 and not any(path.exists() for path in paths):
                    raise UsageError(f"--backfill: neither end can be measured: {one_line(why)}")
                time.note(1)
    except (KeyboardInterrupt, InterruptedRunError):
        raise InterruptedRunError(f"interrupted: runs are in {folder}/; to continue: {world.command}") from None
    if left:
        console.note(f"{figures.counted(len(left), request.noun)} not measured within --budget: repeat the command")


def _ends_first(count: int) -> Iterator[int]:
    """Yield the first and the last index, then the middle of each part that is left, the largest parts first."""
    yield from dict.fromkeys((0, count - 1))
    parts = deque([(0, count - 1)])
    while parts:
        low, high = parts.popleft()
        middle = (low + high) // 2
        if low < middle:
            yield middle
            parts += [(low, middle), (middle, high)]


def _order(one: Candidate, at: int) -> str:
    """Return a text that sorts commits by time, equal times by their place in the range, and releases by version."""
    if not one.time:
        return "".join(f"{int(number):06}" for number in re.findall(r"\d+", one.name))
    return f"{datetime.fromisoformat(one.time).astimezone(UTC).isoformat()} {at:06}"


def _measure(python: str, spec: RunSpec, path: Path, code: dict[str, str], world: World) -> str:
    """Measure a candidate into a new run file. Return why no backend has a rate, empty if one has."""
    interpreter = world.examine("Python", python)
    plan, head = plan_here(spec, world, interpreter)
    refuse_useless(plan)
    file = RunWriter.create(path, msgspec.structs.replace(head, **code))
    with Session(file, world, quiet=True, pythons={"": interpreter.path}) as measuring:
        measuring.measure(plan, plan)
        cells = [cell for cell in measuring.run.cells if not cell.entry.reference_row]
    if any(cell.status == "ok" for cell in cells):
        return ""
    return next((cell.reason for cell in cells if cell.reason), "nothing was measured")
