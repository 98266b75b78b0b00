"""The shared parts of measuring commands: access to the world, a plan for this machine, and a session that measures.

``World`` holds every access to the machine and to other processes, so that tests can replace it. It does not include
files. ``doctor`` starts no cell and reads the machine itself.
"""

from __future__ import annotations

import math
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import msgspec

from vebench import hosts, interpreters
from vebench.analysis.agenda import next_pass_within
from vebench.analysis.answer import racing
from vebench.analysis.summary import is_wide, next_repeats, rated
from vebench.backends.environments.suites import SUITES, library_of
from vebench.backends.interface import Task
from vebench.child.answers import Answer, Cause, Timed
from vebench.child.request import Timing
from vebench.engine import runner
from vebench.engine.launcher import Launcher
from vebench.engine.runner import CellFinished, FirstLook, Launch, ProofDone
from vebench.errors import InterruptedRunError, NotComparableError, RunFileError, UsageError
from vebench.hosts import HostFacts
from vebench.interpreters import Interpreter, with_ours
from vebench.machine import host
from vebench.machine.host import Host
from vebench.plan import tasks
from vebench.plan.cells import Cell, CellKey, Plan, Where, expand, interleaved, next_pass, placement_of
from vebench.plan.spec import PASSES_OF_ALL, RunSpec, check_spec
from vebench.plan.tasks import check_policy, home_of, path_of, refuse_not_ours
from vebench.plan.verdicts import Knowledge
from vebench.process_guard import Interrupts
from vebench.reports import console
from vebench.reports.console import Outlet, RunScreen
from vebench.reports.document import Page
from vebench.results import records, store
from vebench.results.records import CellRecord, Run, RunRecord, record
from vebench.results.store import RunWriter

_note_once = cache(console.note)
_launcher = partial(Launcher, note=_note_once)
TIMING_S = 1.0  # the seconds for which steps of one environment are timed


@dataclass(frozen=True)
class World:
    """Functions that start cells, resolve tasks, examine Pythons, and read the machine and the time.

    ``arguments``: the command line. ``start`` takes a spec, an ``Interrupts``, and a Python, by default this one. It
    starts cells in that Python, and leaves no process of them on exit. ``resolve`` takes names of tasks, backends, and
    the ``python`` in which both are looked up. ``releases`` takes a package. ``install`` takes requirements and the
    folder of a new environment, and returns its Python. ``memory_available`` returns bytes, or None if unknown. ``now``
    returns the date and time. ``clock`` returns seconds.
    """

    arguments: tuple[str, ...] = ()
    start: Callable[..., AbstractContextManager[Launch]] = _launcher
    examine: Callable[[str, str], Interpreter] = interpreters.examine_python
    resolve: Callable[..., tuple[Task, ...]] = tasks.resolve
    read_host: Callable[[], Host] = host.read_host
    read_hosts: Callable[[RunSpec], Mapping[str, HostFacts]] = hosts.read_hosts
    releases: Callable[[str], list[str]] = interpreters.releases_of
    install: Callable[[Sequence[str], Path], str] = interpreters.new_venv
    nodes_of_ray: Callable[[str], tuple[str, ...]] = hosts.nodes_of_ray
    memory_available: Callable[[], int | None] = host.memory_available
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    clock: Callable[[], float] = time.monotonic

    @property
    def command(self) -> str:
        """The command line, quoted so that a user can repeat it."""
        return shlex.join(("vebench", *self.arguments))


def known() -> Knowledge:
    """Return the known work verdicts of backends. If the user's file is damaged, print a note once."""
    knowledge = Knowledge.load()
    if knowledge.damage:
        _note_once(knowledge.damage)
    return knowledge


def interpreters_of(spec: RunSpec, world: World) -> dict[str, Interpreter]:
    """Return, by ``python_name``, the interpreters of backends and tasks of ``spec`` that this interpreter cannot run.

    Raises UsageError if an interpreter cannot load its adapter, or if an interpreter that the user named is unusable.
    Unusable interpreters that vebench made are ignored.
    """
    found: dict[str, Interpreter] = {}
    examined: dict[str, Interpreter] = {}
    for env in spec.envs:
        library, home = library_of(env), home_of(env)
        if library is not None and home is not None and library.installation not in found:
            found[library.installation] = world.examine(f"--env {env}:", home)
    for choice in spec.backends:
        path = path_of(choice)
        if path is None:
            continue
        try:
            own = examined[path] = examined.get(path) or world.examine(f"--backend {choice.label}:", path)
        except UsageError:
            if choice.python:
                raise
            continue
        found[choice.label] = own
        if ":" in choice.name:
            world.resolve((), (replace(choice, python=""),), python=own.path)
    return found


def planned(
    spec: RunSpec,
    tasks: Sequence[Task],
    world: World,
    interpreter: Interpreter | None = None,
    interpreters: Mapping[str, Interpreter] = MappingProxyType({}),
) -> tuple[Plan, RunRecord]:
    """Return the plan, with the known work verdict of each backend, and the header of its run.

    Backends in ``interpreters``, by label, run there. Others run in ``interpreter``, by default this one. With several
    hosts, the header describes the first one.
    """
    found: Mapping[str, HostFacts] = {}
    if spec.hosts is None:
        host = world.read_host()
        placement = placement_of(spec, host)
        has = None if interpreter is None else interpreter.has
        where = Where(placement, world.memory_available(), has, interpreters)
    else:
        hosts = spec.hosts if spec.hosts.names else replace(spec.hosts, names=world.nodes_of_ray(spec.hosts.address))
        spec = replace(spec, hosts=hosts)
        found = world.read_hosts(spec)
        if not hosts.unlike and (difference := unlike(found)):
            raise UsageError(f"--hosts: {difference}: add [unlike=true] to measure them")
        first = next(iter(found.values()))
        host, modules = first.host, frozenset.intersection(*(frozenset(facts.modules) for facts in found.values()))
        interpreter = Interpreter(first.path, first.python, with_ours(first.packages), modules)
        placements = {}
        for name, facts in found.items():
            try:
                placements[name] = placement_of(spec, facts.host)
            except UsageError as error:
                raise UsageError(f"{name}: {error}") from None
        placement = next(iter(placements.values()))
        memory = [facts.memory_available for facts in found.values() if facts.memory_available is not None]
        where = Where(placement, min(memory, default=None), interpreter.has, interpreters, placements)
    versions = None if interpreter is None else interpreter.packages
    knowledge = known()
    plan = expand(spec, tasks, where).informed(knowledge, versions)
    head = records.gather(plan, host, placement, world.command, world.now(), interpreter=interpreter, hosts=found)
    return plan, records.with_implementations(head, tasks, knowledge)


def unlike(found: Mapping[str, HostFacts]) -> str:
    """Return in words how a host differs from the first one in known facts that decide rates, empty if none does."""
    packages = sorted({name for facts in found.values() for name in facts.packages})
    decisive: dict[str, dict[str, str]] = {}
    for name, facts in found.items():
        optional = {fact: getattr(facts.host, fact) for fact in records.DECISIVE_IF_KNOWN}
        decisive[name] = {
            "Python": facts.python.rpartition(".")[0],
            "CPU": facts.host.cpu_model,
            "CPUs": str(len(facts.host.cpus_allowed)),
            **{fact: str(value) for fact, value in optional.items() if value is not None},
            "quota_cpus": str(facts.host.quota_cpus),
            **{package: facts.packages.get(package, "none") for package in packages},
        }
    (first, reference), *others = decisive.items()
    for name, theirs in others:
        both = [fact for fact in reference if fact in theirs and theirs[fact] != reference[fact]]
        if both:
            apart = "; ".join(f"{fact} {theirs[fact]} instead of {reference[fact]}" for fact in both)
            return f"{name} differs from {first}: {apart}"
    return ""


def refuse_idle(plan: Plan, whose: str = "") -> None:
    """Raise UsageError, with the reasons, if no cell of the plan can run. The message begins with ``whose``."""
    if plan.cells and all(cell.skip for cell in plan.cells):
        raise UsageError(f"{whose}no cell of this plan can run here: {reasons(contestants(plan) or plan.cells)}")


def refuse_useless(plan: Plan) -> None:
    """Raise UsageError, with the reasons, if no cell can run, or if only the reference rows of a larger plan can."""
    refuse_idle(plan)
    backends = contestants(plan)
    if backends and all(cell.skip for cell in backends):
        rows = " and ".join(sorted({cell.backend.name for cell in plan.cells if not cell.skip}))
        raise UsageError(f"only {rows} can run here: {reasons(backends)}")


def contestants(plan: Plan) -> list[Cell]:
    """Return the cells that the user asked for, without reference rows."""
    asked = [cell for cell in plan.cells if plan.spec.asks_for(cell.backend.label, cell.workers)]
    return [cell for cell in asked if not cell.entry.reference_row]


def reasons(cells: Sequence[Cell]) -> str:
    """Return why cells are skipped: the first three different reasons."""
    found = sorted({cell.skip for cell in cells if cell.skip})
    return "; ".join([*found[:3], "..."] if len(found) > 3 else found)  # noqa: PLR2004


def plan_here(spec: RunSpec, world: World) -> tuple[Plan, RunRecord]:
    """Return the plan of a run in this interpreter, its cells interleaved if the spec says so, and its header."""
    check_spec(spec)
    if spec.policy.target:
        check_policy(spec.policy.target)
    here = tuple(choice for choice in spec.backends if not choice.python)  # This interpreter loads their adapters.
    tasks = world.resolve(spec.envs, here)
    plan, head = planned(spec, tasks, world, interpreters=interpreters_of(spec, world))
    return (interleaved(plan, world.memory_available()) if spec.takes_turns else plan), head


def ask(cell: Cell, spec: RunSpec, world: World) -> Answer | str:
    """Return the answer of a cell with a job, or why there is none."""
    try:
        with Interrupts() as interrupts, world.start(spec, interrupts) as launch, launch(cell) as child:
            answer = next(iter(child.messages()))
    except KeyboardInterrupt:
        raise InterruptedRunError("interrupted before the first cell") from None
    except (runner.CellError, OSError) as error:
        return str(error)
    return answer


def timed_steps(cell: Cell, spec: RunSpec, world: World) -> Timed | None:
    """Return times of steps of one environment of the cell's task, on the cell's first CPU. None if that fails."""
    alone = replace(cell.of_reference, workers=1, cpus=cell.cpus[:1], replicas=(), group=None)
    found = ask(replace(alone, job=Timing(TIMING_S), patience=10.0), spec, world)
    return found if isinstance(found, Timed) else None


def plan_for_waiting(plan: Plan, head: RunRecord, world: World) -> tuple[Plan, RunRecord]:
    """Return the plan and its header, made anew if steps of tasks with more workers than CPUs wait.

    Suites of vebench are not timed, because their steps never wait.
    """
    cells = [cell for cell in plan.cells if cell.workers > len(cell.cpus) and cell.skip is None]
    crowded = {cell.task: cell for cell in cells if plan.spec.hosts is None and not SUITES[cell.task.suite].ours}
    found = ((task.id, timed_steps(cell, plan.spec, world)) for task, cell in crowded.items())
    waiting = tuple(name for name, timed in found if timed is not None and timed.waits)
    return plan_here(replace(plan.spec, waiting=waiting), world) if waiting else (plan, head)


def plan_to_finish(path: Path, world: World, *, allowed: bool, dry_run: bool) -> tuple[Plan, Plan]:
    """Return the plan of the run file ``path``, and a plan of its missing cells: those without a line, or failed.

    ``allowed``: see ``asked_in``, also for its errors. Without ``dry_run``, raises UsageError if no cell can run here.
    Raises NotComparableError if this machine or its packages differ from the run's.
    """
    run = store.read(path)
    records.refuse_foreign(run.header, path, "start that again")
    with asked_in(path, run.header.spec, allowed=allowed) as spec:
        plan, head = plan_here(spec, world)
    if not dry_run:
        refuse_idle(plan, f"{path}: ")
    if differences := records.what_differs(run.header, head):
        raise NotComparableError(f"{path} was measured elsewhere ({'; '.join(differences)}): start a new run here")
    return plan, (_missing(plan, run) if run.header.chose_cells else unmeasured(plan, run))


def _missing(plan: Plan, run: Run) -> Plan:
    """Return ``plan`` with the passes that cells lack, numbered after the passes of the run, with their bases."""
    have = Counter(record.key.without_repeat for record in run.cells if record.status != "failed")
    number = 1 + max((record.repeat for record in run.cells), default=-1)
    lacking = {cell.key for cell in plan.cells if cell.repeat >= have[cell.key.without_repeat]}
    passes = {key.repeat for key in lacking}
    cells = [cell for cell in plan.cells if cell.key in lacking or (cell.in_every_pass and cell.repeat in passes)]
    return replace(plan, cells=tuple(replace(cell, repeat=number + cell.repeat) for cell in cells))


@contextmanager
def asked_in(path: Path, spec: RunSpec, *, allowed: bool, named: Container[str] = ()) -> Iterator[RunSpec]:
    """Yield the spec in the first line of the run file ``path``, if it may be used here.

    Raises RunFileError if the spec is invalid, or if the body of the context raises UsageError. Unless ``allowed``,
    also raises it if the spec names code, Pythons or hosts that the user has not named. ``named``: options of the user,
    such as ``--env NAME``.
    """
    try:
        check_spec(spec)
        if not allowed:
            refuse_not_ours(spec, named)
        yield spec
    except UsageError as error:
        raise RunFileError(f"{path}, line 1: {error}") from None


def unmeasured(plan: Plan, run: Run) -> Plan:
    """Return ``plan`` without the cells that need no measurement: successful ones, and those skipped before and now."""
    ok, skipped = ({cell.key for cell in run.cells if cell.status == status} for status in ("ok", "skipped"))
    cells = [cell for cell in plan.cells if cell.key not in ok and not (cell.skip and cell.key in skipped)]
    return replace(plan, cells=tuple(cells))


class Session:
    """A context that measures into a run file, or into one for each ``side``, in the Python that its header names.

    ``path`` is the first file. On exit, the files' notes are printed. A KeyboardInterrupt becomes InterruptedRunError,
    whose command to continue has the report of ``outlet``, if any.
    """

    def __init__(
        self, files: RunWriter | Mapping[str, RunWriter], world: World, *, quiet: bool, outlet: Outlet | None = None
    ) -> None:
        self._files = files if isinstance(files, Mapping) else {"": files}
        self._world, self._quiet = world, quiet
        self._also = f" -o {shlex.quote(str(outlet.report[0]))}" if outlet and outlet.report else ""
        self.path = next(iter(self._files.values())).path
        self._open = ExitStack()  # holds the files and the launchers, which all passes share
        self._launches: dict[str, Launch] = {}
        self._over: runner.Over = {}
        self._seen: Counter[runner.Seen] = Counter()
        for side, run in self.runs.items():
            self._seen.update((cell.key.without_repeat, side) for cell in run.cells if cell.status == "ok")
        self._first_look: Callable[[Run], Page] | None = None
        self._looked: set[str] = set()  # tasks whose first look was shown
        # Only one cell runs at a time, so the time between two events of a pass belongs to the cell of the later event.
        self._last = 0.0
        self._took: Counter[tuple[CellKey, str]] = Counter()

    def __enter__(self) -> Self:
        for file in self._files.values():
            self._open.enter_context(file)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._open.__exit__(kind, error, trace)
        finally:
            for note in (note for file in self._files.values() for note in file.notes):
                console.note(note)
        if isinstance(error, KeyboardInterrupt):  # between two passes
            raise InterruptedRunError(f"interrupted: {self.go_on}") from None

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
        """Measure the cells that are ``left`` of a plan, and further passes, within the budget of the plan's spec.

        ``first_look`` makes a page of the run once the cells of a task have a few windows each. The page is shown with
        the progress, unless there is one pass or the run is resumed. Returns the exit status.
        """
        deadline = self._world.clock() + (plan.spec.budget or math.inf)
        self._first_look = first_look if plan.spec.passes > 1 and not self.run.cells else None
        passes = self._all_passes(plan, left, deadline) if left.fits else self._best_passes(plan, deadline)
        status = 0
        for cells, later in passes:
            status = max(status, self.one_pass(cells, deadline=deadline, later=later))
        return status

    def _best_passes(self, plan: Plan, deadline: float) -> Iterator[tuple[Plan, int]]:
        """Yield passes of the cells that decide most, while there is time. How many cells follow is unknown: 0."""
        memory = self._world.memory_available()
        while (once := next_pass_within(plan, self.run, deadline - self._world.clock(), memory)).cells:
            yield once, 0

    def _all_passes(self, plan: Plan, left: Plan, deadline: float) -> Iterator[tuple[Plan, int]]:
        """Yield the cells that are ``left``, then the passes of ``--until`` or a race, with the number of later cells.

        After PASSES_OF_ALL passes of all cells, a race goes on with the backends that may be the fastest. Its total is
        the number of cells in ``spec.passes`` full passes.
        """
        spec, until = plan.spec, plan.spec.until
        yield left, self._left_to_race(plan)
        while self._world.clock() < deadline:
            later = self._left_to_race(plan)
            if not later and until is None:
                return
            going_on = replace(plan, cells=tuple(racing(plan.cells, self.run)) if spec.races else plan.cells)
            wanted = frozenset(cell.key.without_repeat for cell in going_on.cells)
            if until is not None:
                wanted &= {cell.key for cell in rated(self.run) if is_wide(cell, until)}
            more = next_pass(going_on, wanted, next_repeats(self.run))
            if not more.cells or (until is None and len(more.cells) > 2 * later):
                return  # the race has less than half of this pass left
            yield more, max(0, later - len(more.cells))

    def _left_to_race(self, plan: Plan) -> int:
        """Return the number of cells that a race has left to measure after the passes of all cells."""
        each = len({cell.key.without_repeat for cell in plan.cells if cell.skip is None})
        raced = sum(cell.repeat >= PASSES_OF_ALL for cell in self.run.cells)
        return max(0, plan.race_passes * each - raced)

    def one_pass(self, plan: Plan, *, deadline: float = math.inf, later: int = 0) -> int:
        """Measure the plan's cells, but start none after the deadline. Returns the exit status.

        Cells that take turns are given up at the deadline. ``later``: the number of cells in further passes.
        """
        planned = {(cell.key, cell.interpreter.side) for cell in plan.cells}
        done = sum((cell.key, side) not in planned for side, run in self.runs.items() for cell in run.cells)
        before = sum(min(plan.spec.windows, len(cell.windows)) for run in self.runs.values() for cell in run.cells)
        measured: dict[tuple[CellKey, str], CellRecord] = {}
        self._last = self._world.clock()  # time between passes belongs to no cell
        try:
            with ExitStack() as stack:
                if not self._launches:
                    interrupts = self._open.enter_context(Interrupts())
                    for side, file in self._files.items():
                        python = file.header.interpreter or sys.executable
                        launcher = self._world.start(plan.spec, interrupts, python)
                        self._launches[side] = self._open.enter_context(launcher)
                progress = console.for_progress(quiet=self._quiet)
                display = stack.enter_context(RunScreen(progress, plan, done=done, before=before, later=later))
                events = runner.run(
                    plan,
                    lambda cell: self._launches[cell.interpreter.side](cell),
                    over=self._over,
                    out_of_time=lambda: self._world.clock() > deadline,
                    seen=self._seen,
                )
                for event in stack.enter_context(closing(events)):
                    if isinstance(event, FirstLook):
                        self._show_first_look(event, display)
                        continue
                    if isinstance(event, CellFinished | ProofDone):
                        measured[event.cell.key, event.cell.interpreter.side] = self._kept(event)
                    else:
                        self._count_time(event.cell)
                    display.show(event)
        except KeyboardInterrupt:
            raise InterruptedRunError(self._interrupted(done, len(plan.cells), later, measured.values())) from None
        return int(any(cell.status == "failed" and cell.cause is not Cause.GIVEN_UP for cell in measured.values()))

    def _show_first_look(self, event: FirstLook, display: RunScreen) -> None:
        """Show a page of the first file's run and the cells of the event. It does not call other cells missing."""
        new = {one.cell.task.id for one in event.cells if one.cell.repeat == 0} - self._looked
        self._looked |= new
        if self._first_look is not None and new:
            cells = tuple(record(one.cell, one.outcome) for one in event.cells)
            head = msgspec.structs.replace(self.run.header, cells=None)
            early = msgspec.structs.replace(self.run, header=head, cells=(*self.run.cells, *cells))
            display.show_page(partial(self._first_look, early))

    def _count_time(self, cell: Cell) -> None:
        now = self._world.clock()
        self._took[cell.key, cell.interpreter.side] += round((now - self._last) * 1e9)
        self._last = now

    def _kept(self, event: CellFinished | ProofDone) -> CellRecord:
        """Write the result or the proof of a cell to the run file, and return the cell's record."""
        file, key = self._files[event.cell.interpreter.side], event.cell.key
        if isinstance(event, ProofDone):
            self._last = self._world.clock()
            return file.append_proof(key, event.proof)
        self._count_time(event.cell)
        log = file.path.with_name(file.path.name + store.LOG_SUFFIX)
        heading = f"{key.env}, {key.backend}, {key.size}, repeat {key.repeat}"
        store.keep_log(log, heading, event.outcome.log)
        return file.append(record(event.cell, event.outcome, self._took.pop((key, event.cell.interpreter.side))))

    def _interrupted(self, done: int, planned: int, later: int, measured: Collection[CellRecord]) -> str:
        """Return in words which cells are in the files, and the command that continues."""
        here, whole = done + sum(not cell.broken_off for cell in measured), done + planned + later
        files = " and ".join(str(file.path) for file in self._files.values())
        what = f"{here} of {whole} cells are in {files}"
        if lost := sum(cell.proof is not None and cell.proof.cause is not None for cell in measured):
            what += f" (of {lost}, no rows were compared; --resume does not repeat these)"
        return f"interrupted: {what}; {self.go_on}"
