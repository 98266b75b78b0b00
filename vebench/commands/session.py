"""Measures passes of cells into run files, for all commands that measure.

``World`` holds every access to the machine and to other processes, so that tests can replace it. It does not include
files. ``doctor`` starts no cell and reads the machine itself.
"""

from __future__ import annotations

import math
import shlex
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING

import msgspec

from vebench import hosts
from vebench.analysis.answer import racing
from vebench.analysis.summary import next_repeats, wide_cells
from vebench.engine import runner
from vebench.engine.interface import CellFinished, FirstLook, ProofDone, RunStarted
from vebench.engine.launcher import Launcher
from vebench.errors import InterruptedRunError
from vebench.interpreters import interpreter, venvs
from vebench.interpreters.process_guard import Interrupts
from vebench.machine import host
from vebench.plan import tasks
from vebench.plan.cells import next_pass
from vebench.plan.spec import PASSES_OF_ALL
from vebench.reports import console
from vebench.reports.console import RunScreen
from vebench.results import store
from vebench.results.records import record

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from vebench.backends.interface import Task
    from vebench.engine.interface import Launch
    from vebench.hosts import HostFacts
    from vebench.interpreters.interpreter import Interpreter
    from vebench.machine.host import Host
    from vebench.plan.cells import CellKey, Plan
    from vebench.plan.spec import RunSpec
    from vebench.reports.console import Outlet
    from vebench.reports.document import Page
    from vebench.results.records import CellRecord, Run
    from vebench.results.store import RunWriter

_DONE, _FAILED = 0, 1
_HERE = {"": sys.executable}
_launcher = partial(Launcher, note=cache(console.note))


@dataclass(frozen=True)
class World:
    """Functions that start cells, resolve tasks, examine Pythons, and read the machine and the time.

    ``arguments``: the command line. ``start`` takes a spec, an ``Interrupts``, and a Python, by default this one. It
    starts cells in this Python, and leaves no process of them on exit. ``resolve`` takes names of tasks, backends, and
    the ``python`` in which both are looked up. ``releases`` takes a package. ``install`` takes requirements and the
    folder of a new environment, and returns its Python. ``memory_available`` returns bytes, or None if unknown. ``now``
    returns the date and time. ``clock`` returns seconds.
    """

    arguments: tuple[str, ...] = ()
    start: Callable[..., AbstractContextManager[Launch]] = _launcher
    examine: Callable[[str, str], Interpreter] = interpreter.examine_python
    resolve: Callable[..., tuple[Task, ...]] = tasks.resolve
    read_host: Callable[[], Host] = host.read_host
    read_hosts: Callable[[RunSpec], Mapping[str, HostFacts]] = hosts.read_hosts
    releases: Callable[[str], list[str]] = venvs.releases_of
    install: Callable[[Sequence[str], Path], str] = venvs.install
    nodes_of_ray: Callable[[str], tuple[str, ...]] = hosts.nodes_of_ray
    memory_available: Callable[[], int | None] = host.memory_available
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    clock: Callable[[], float] = time.monotonic

    @property
    def command(self) -> str:
        """The command line, quoted so that a user can repeat it."""
        return shlex.join(("vebench", *self.arguments))


class Session:
    """Measures cells into the file of their ``side``, in the Python of that side. ``path`` is the first file.

    ``also``: text added to the command that continues after an interrupt.
    """

    def __init__(
        self, files: Mapping[str, RunWriter], world: World, *, quiet: bool, pythons: Mapping[str, str], also: str
    ) -> None:
        self._files, self._world, self._quiet, self._pythons, self._also = files, world, quiet, pythons, also
        self.path = next(iter(files.values())).path
        self.open = ExitStack()  # holds the launchers, which all passes share
        self._launches: dict[str, Launch] = {}
        self._over: runner.Over = {}
        self._first_look: Callable[[Run], Page] | None = None
        self._looked: set[str] = set()  # tasks whose first look was shown
        # Only one cell runs at a time, so the time between two events belongs to the cell of the later event.
        self._last = world.clock()
        self._took: Counter[tuple[CellKey, str]] = Counter()

    @property
    def go_on(self) -> str:
        """The command to continue with after an interrupt."""
        again = self.run.header.resume_command(str(self.path)) + self._also
        return f"to {'compare again' if self.run.header.interpreter else 'continue'}: {again}"

    @property
    def run(self) -> Run:
        """The contents of the first file."""
        return next(iter(self.runs.values()))

    @property
    def runs(self) -> dict[str, Run]:
        """The contents of all files, by side."""
        return {side: file.run for side, file in self._files.items()}

    def measure(self, plan: Plan, left: Plan, first_look: Callable[[Run], Page] | None = None) -> int:
        """Measure the cells that are ``left`` of a plan, then further passes for ``--until`` or of a race.

        ``first_look`` makes a page of the run once the cells of a task have a few windows each. The page is shown with
        the progress, unless there is one pass or the run is resumed. After PASSES_OF_ALL passes of all cells, a race
        goes on with the backends that may be the fastest. It measures as many cells as ``spec.passes`` passes of all.
        Returns the exit status. Raises InterruptedRunError if the user interrupts it.
        """
        spec, until = plan.spec, plan.spec.until
        deadline = math.inf if until is None else self._world.clock() + spec.budget
        self._first_look = first_look if spec.passes > 1 and not self.run.cells else None
        later = self._left_to_race(plan)
        status = self.one_pass(left, deadline=deadline if spec.races else math.inf, later=later)
        while True:
            later = self._left_to_race(plan)
            goes_on = later > 0 if until is None else self._world.clock() < deadline
            if not goes_on:
                break
            going_on = replace(plan, cells=tuple(racing(plan.cells, self.run)) if spec.races else plan.cells)
            wanted = frozenset(cell.key.without_repeat for cell in going_on.cells)
            if until is not None:
                wanted &= wide_cells(self.run, until)
            more = next_pass(going_on, wanted, next_repeats(self.run))
            if not more.cells or (until is None and len(more.cells) > 2 * later):
                break  # the race has less than half of this pass left
            status = max(status, self.one_pass(more, deadline=deadline, later=max(0, later - len(more.cells))))
        return status

    def _left_to_race(self, plan: Plan) -> int:
        """Return the number of cells that a race has left to measure after the passes of all cells."""
        each = len({cell.key.without_repeat for cell in plan.cells if cell.skip is None})
        raced = sum(cell.repeat >= PASSES_OF_ALL for cell in self.run.cells)
        of_race = plan.spec.races and plan.spec.until is None
        return max(0, (plan.spec.passes - PASSES_OF_ALL) * each - raced) if of_race else 0

    def one_pass(self, plan: Plan, *, deadline: float = math.inf, keeps_to_it: bool = False, later: int = 0) -> int:
        """Measure the plan's cells, but start none after the deadline. Returns the exit status.

        With ``keeps_to_it``, cells that take turns are given up at the deadline. ``later``: the number of cells in
        further passes. Raises InterruptedRunError if the user interrupts it.
        """
        planned = {(cell.key, cell.side) for cell in plan.cells}
        done = sum((cell.key, side) not in planned for side, run in self.runs.items() for cell in run.cells)

        before = sum(min(plan.spec.windows, len(cell.windows)) for run in self.runs.values() for cell in run.cells)
        measured: dict[tuple[CellKey, str], CellRecord] = {}
        try:
            with ExitStack() as stack:
                if not self._launches:
                    interrupts = self.open.enter_context(Interrupts())
                    for side, python in self._pythons.items():
                        self._launches[side] = self.open.enter_context(self._world.start(plan.spec, interrupts, python))
                progress = console.for_progress(quiet=self._quiet)
                display = stack.enter_context(RunScreen(progress, before=before, later=later))
                events = runner.run(
                    plan,
                    lambda cell: self._launches[cell.side](cell),
                    done,
                    over=self._over,
                    out_of_time=lambda: self._world.clock() > deadline,
                    gives_up=keeps_to_it,
                )
                for event in stack.enter_context(closing(events)):
                    now = self._world.clock()
                    if isinstance(event, FirstLook):
                        tasks = {one.cell.task.id for one in event.cells if one.cell.repeat == 0} - self._looked
                        if self._first_look is not None and tasks:
                            display.show_page(partial(self._first_look, self._with(event)))
                        self._looked |= tasks
                        continue
                    if not isinstance(event, RunStarted | ProofDone):
                        self._took[event.cell.key, event.cell.side] += round((now - self._last) * 1e9)
                    self._last = self._last if isinstance(event, RunStarted) else now
                    if isinstance(event, CellFinished | ProofDone):
                        measured[event.cell.key, event.cell.side] = self._kept(event)
                    display.show(event)
        except KeyboardInterrupt:
            raise InterruptedRunError(self._interrupted(done, len(plan.cells), later, measured.values())) from None
        return _FAILED if any(cell.status == "failed" for cell in measured.values()) else _DONE

    def _with(self, event: FirstLook) -> Run:
        """Return the first file's run as if the cells of the event were in it, and no others planned."""
        cells = tuple(record(one.cell, one.outcome) for one in event.cells)
        head = msgspec.structs.replace(self.run.header, cells=None)
        return msgspec.structs.replace(self.run, header=head, cells=(*self.run.cells, *cells))

    def _kept(self, event: CellFinished | ProofDone) -> CellRecord:
        """Write the result or the proof of a cell to the run file, and return the cell's record."""
        file, key = self._files[event.cell.side], event.cell.key
        if isinstance(event, ProofDone):
            return file.append_proof(key, event.proof)
        log = file.path.with_name(file.path.name + store.LOG_SUFFIX)
        heading = f"{key.env}, {key.backend}, {key.size}, repeat {key.repeat}"
        store.keep_log(log, heading, event.outcome.log)
        return file.append(record(event.cell, event.outcome, self._took.pop((key, event.cell.side))))

    def _interrupted(self, done: int, planned: int, later: int, measured: Collection[CellRecord]) -> str:
        """Return in words which cells are in the files, and the command that continues."""
        for file in self._files.values():
            file.check_present()
        here, whole = done + sum(not cell.interrupted for cell in measured), done + planned + later
        files = " and ".join(str(file.path) for file in self._files.values())
        what = f"{here} of {whole} cells are in {files}"
        if lost := sum(cell.proof is not None and cell.proof.cause is not None for cell in measured):
            gone = "what they had recorded is gone, and --resume does not redo them"
            what += f" ({lost} without proof of the same work: {gone})"
        if here == whole and not self.run.header.spec.only:
            return f"interrupted: {what}; to see them: vebench report {shlex.quote(str(self.path))}{self._also}"
        return f"interrupted: {what}; {self.go_on}"


@contextmanager
def session(
    files: RunWriter | Mapping[str, RunWriter],
    world: World,
    *,
    quiet: bool,
    pythons: Mapping[str, str] = _HERE,
    outlet: Outlet | None = None,
) -> Iterator[Session]:
    """Return a session that measures into a run file, or into one for each side. On exit, print the files' notes."""
    by_side = files if isinstance(files, Mapping) else {"": files}
    also = f" -o {shlex.quote(str(outlet.report[0]))}" if outlet and outlet.report else ""
    found = Session(by_side, world, quiet=quiet, pythons=pythons, also=also)
    try:
        with ExitStack() as stack:
            for file in by_side.values():
                stack.enter_context(file)
            stack.enter_context(found.open)
            yield found
    except KeyboardInterrupt:  # between two passes
        raise InterruptedRunError(f"interrupted: {found.go_on}") from None
    finally:
        for note in (note for file in by_side.values() for note in file.notes):
            console.note(note)
