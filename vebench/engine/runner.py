"""Goes through the plan, cell by cell, and reports what happens as a stream of events.

What backends returned is compared with the reference by processes that load no adapter: ``run`` has what a measured
cell has recorded compared, once nothing is measured any more; ``verified`` has backends stepped for ``vebench verify``.

Nothing here prints or stores anything: the caller does. A failed cell never ends the run.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import cycle, groupby
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING

from vebench.backends import registry
from vebench.backends.environments.suites import SUITES
from vebench.child.answers import CellProof, Comparing, Done, Failure, Proof, Ready, Warm
from vebench.child.request import SEEDS, Judging, Proving, Recorded, Recording, Replaying
from vebench.child.window import Window
from vebench.engine.interface import (
    CellError,
    CellFinished,
    CellReady,
    CellStarted,
    CellWarm,
    FirstLook,
    InterruptedCellError,
    Outcome,
    ProofDone,
    ProofStarted,
    RunStarted,
    WindowDone,
)
from vebench.plan.cells import is_proven
from vebench.plan.grammar import BackendChoice
from vebench.plan.spec import PASSES_OF_ALL

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from vebench.backends.interface import Task
    from vebench.child.answers import Answer, Layout
    from vebench.engine.interface import Event, Launch
    from vebench.plan.cells import Cell, Plan
    from vebench.plan.spec import RunSpec

# The reason of a cell that was at work when there was no time any more.
GIVEN_UP = "no time was left: use a larger --budget"
BROKEN_OFF = "interrupted before it was compared"
_SEED_BITS = 62  # a run file's whole numbers have 63
# A replay takes a third as long as the cell has stepped, which counts as this many seconds at least and at most.
LEAST_STEPPED, MOST_STEPPED = 0.6, 2.5
_A_FEW = 3  # windows of which an interval can be made
# After as many passes as all cells have, one cell in so many is compared, and nobody knows beforehand which.
_ONE_IN = 8
# Of --timeout, a replay takes at most this share, because it must end by itself to report how far it went.
_MOST_OF_TIMEOUT = 0.8
_LOOP = BackendChoice(registry.REFERENCE)
_LOOP_STEPS = 10  # of the plain loop, before several backends are compared on an environment that vebench does not know
# Why a task is not measured, by its name and side: the plain loop with one worker could not step it.
Over = dict[tuple[str, str], str]


def _never() -> bool:
    """Say that there is time."""
    return False


def run(  # noqa: PLR0913 - what is measured, and what was before
    plan: Plan,
    launch: Launch,
    done: int = 0,
    *,
    over: Over | None = None,
    out_of_time: Callable[[], bool] = _never,
    gives_up: bool = False,
) -> Generator[Event | FirstLook]:
    """Measure the plan's cells in order, and yield events.

    ``done`` is the number of cells that an earlier run has measured. If the user interrupts a cell that has windows,
    it is finished as failed with these windows. Then KeyboardInterrupt is raised. What cells have recorded is compared
    with the reference once they have finished, and those that they take turns with; if the user interrupts, that is
    reported as broken off.

    Once the plain loop with one worker has failed in its first repeat before its first window, all other cells of its
    task fail with its reason: an environment that hangs would hang in each of them until its ``--timeout``. The reason
    is put into ``over``, and those that are there count.

    Once ``out_of_time`` returns true, no cell is started any more but those that take turns with one that has. With
    ``gives_up``, these are not started either, and all that still have windows to measure finish as failed.
    """
    yield RunStarted(plan, done)
    chooser = secrets.randbits(_SEED_BITS)
    over = {} if over is None else over
    cells = [_with_recording(cell, plan.spec, chooser) for cell in plan.cells]
    for number, group in groupby(cells, key=attrgetter("group")):
        for part in [tuple(group)] if number is not None else [(cell,) for cell in group]:
            if part[0].skip is None and out_of_time():
                continue
            measured: list[CellFinished] = []
            try:
                for event in _measured(part, launch, plan.spec, out_of_time if gives_up else _never, over):
                    if isinstance(event, CellFinished):
                        measured.append(event)
                    yield event
                for event in replayed(measured, launch, plan.spec):
                    if isinstance(event, ProofDone):
                        measured = [one for one in measured if one.cell is not event.cell]
                    yield event
            except KeyboardInterrupt:
                yield from (  # what they have recorded does not outlive the run
                    ProofDone(one.cell, CellProof("unverified", reason=BROKEN_OFF, seed=one.cell.job.seed))
                    for one in measured
                    if isinstance(one.cell.job, Recording) and one.is_proven
                )
                raise


def _measured(
    cells: Sequence[Cell], launch: Launch, spec: RunSpec, out_of_time: Callable[[], bool], over: Over
) -> Iterator[Event | FirstLook]:
    """Start the cells one after another, then let each measure a window in turn: forwards, backwards, forwards ...

    So each cell comes before another as often as after it, and what slows the machine for a while slows them all. A
    cell that takes no turns is measured once it is started. Rows that others are compared with start after the first
    look at these.
    """
    all_cells = tuple(_RunningCell(cell, over) for cell in cells)
    late = [cell for cell in all_cells if cell.cell.entry.reference_row]
    early = [cell for cell in all_cells if cell not in late]
    directions, started = cycle((1, -1)), 0
    try:
        with ExitStack() as stack:
            for some, enough in ((early, _A_FEW), (late, inf)):
                for cell in some:
                    if started and out_of_time():
                        break
                    started += 1
                    yield from cell.start(launch, stack)
                yield from _turns(all_cells, spec.windows, out_of_time, directions, enough)
                alive = [cell for cell in all_cells if cell.at_work]
                if some is early and alive and all(len(cell.windows) >= _A_FEW for cell in alive):
                    yield FirstLook(tuple(CellFinished(cell.cell, cell.outcome()) for cell in alive))
        for cell in all_cells:
            if cell.at_work:
                yield CellFinished(cell.cell, cell.outcome(GIVEN_UP))
    except InterruptedCellError as error:
        for cell in all_cells:
            if cell.at_work and cell.windows:  # a few windows are a result
                yield CellFinished(cell.cell, cell.outcome(None if len(cell.windows) >= _A_FEW else str(error)))
        raise KeyboardInterrupt from None


def _turns(
    cells: Sequence[_RunningCell],
    windows: int,
    out_of_time: Callable[[], bool],
    directions: Iterator[int],
    enough: float,
) -> Iterator[Event]:
    """Let cells take turns until each has enough windows, has ended, or lacks windows for which there is no time."""

    def goes_on(cell: _RunningCell) -> bool:
        return cell.at_work and (len(cell.windows) >= windows or not out_of_time())

    while order := [cell for cell in cells if goes_on(cell)]:
        if all(len(cell.windows) >= enough for cell in order):
            return
        for cell in order[:: next(directions)]:
            if goes_on(cell):
                yield from cell.take_turn()


class _RunningCell:
    """A cell with what it has reported so far, and whether it is still at work."""

    def __init__(self, cell: Cell, over: Over) -> None:
        self.cell = cell
        self.at_work = False
        self.windows: list[Window] = []
        self._over = over
        self._reason: str | None = None
        self._layout: Layout | None = None
        self._startup_ns: int | None = None
        self._reset_ns: int | None = None
        self._done = Done()
        self._log = ""
        self._own = ExitStack()

    def start(self, launch: Launch, stack: ExitStack) -> Iterator[Event]:
        """Follow the cell from its start until its first turn, or its end. It ends with ``stack`` at the latest."""
        cell = self.cell
        if cell.skip is not None:
            yield CellFinished(cell, Outcome("skipped", cell.skip))
            return
        if (why := self._over.get((cell.task.id, cell.side))) is not None:
            yield CellFinished(cell, Outcome("failed", why))
            return
        stack.push(self._own)
        yield CellStarted(cell)
        try:
            self._conversation = self._own.enter_context(launch(cell))
        except OSError as error:
            self._reason = f"its process could not be started: {error}"
            yield CellFinished(cell, self.outcome())
            return
        self.at_work = True
        self._events = self._followed()
        yield from self._until(CellWarm)

    def take_turn(self) -> Iterator[Event]:
        """Let the cell run until the end of its next window, or until it ends."""
        self._conversation.take_turn()
        yield from self._until(WindowDone)

    def _until(self, kind: type[Event]) -> Iterator[Event]:
        for event in self._events:
            if isinstance(event, kind):
                self._conversation.rest()
                yield event
                return
            yield event
        self.at_work = False
        self._own.close()  # what is left of it must not disturb the others
        yield CellFinished(self.cell, self.outcome())

    def _followed(self) -> Iterator[Event]:
        """Yield an event for each message, until the cell is done or has failed."""
        cell = self.cell
        try:
            for message in self._conversation.messages():
                match message:
                    case Ready():
                        self._layout, self._startup_ns = message.layout, message.startup_ns
                        self._reset_ns = message.reset_ns
                        yield CellReady(cell, message.startup_ns)
                    case Warm():
                        yield CellWarm(cell, message.rows_per_second)
                    case Window():
                        self.windows.append(message)
                        yield WindowDone(cell, message)
                    case Done():
                        self._done = message
                        return
                    case Failure():
                        self._reason = message.reason
                        break
        except InterruptedCellError:
            raise
        except CellError as error:
            self._reason = str(error)
        self._log = self._conversation.log()
        if cell.is_base and not (cell.repeat or cell.replicas or self.windows):
            why = f"not measured: {cell.backend.label} with one worker cannot step {cell.task.id}: {self._reason}"
            self._over.setdefault((cell.task.id, cell.side), why)

    def outcome(self, reason: str | None = None) -> Outcome:
        """Return how the cell ended. ``reason`` overrides its own. At work, its clock is not checked yet."""
        why = reason or self._reason or (self._conversation.fault if self.at_work else None)
        return Outcome(
            status="ok" if why is None else "failed",
            reason=why,
            layout=self._layout,
            startup_ns=self._startup_ns,
            reset_ns=self._reset_ns,
            windows=tuple(self.windows),
            done=self._done,
            log=self._log,
        )


def _with_recording(cell: Cell, spec: RunSpec, chooser: int) -> Cell:
    """Return ``cell`` with what it is to record, drawn anew from the system's source of chance, if it is proven.

    With one ``chooser``, each repeat of a cell records other environments, as long as there are any. Adapters that are
    not in our table are reset with another seed at the end: of what is in it we know that it heeds the seed.
    """
    if not is_proven(cell, spec):
        return cell
    seed = secrets.randbits(_SEED_BITS)
    job = Recording(
        f"{seed:x}.rows",
        seed,
        secrets.randbelow(len(cell.all_replicas)),
        chooser=chooser,
        turn=cell.repeat,
        reset_seed=None if cell.backend.is_ours else secrets.choice(SEEDS),
        full=spec.proof == "full",
        compared=cell.repeat < PASSES_OF_ALL or spec.proof == "full" or not secrets.randbelow(_ONE_IN),
    )
    return replace(cell, job=job)


def _seconds(outcome: Outcome, spec: RunSpec) -> float:
    """Return how long the replay of a cell may take.

    It goes on to ``n`` times the least with a probability of one in ``n``: no batch is so late that it is never
    compared, and none costs more than a few others.
    """
    most = _MOST_OF_TIMEOUT * spec.timeout
    if spec.proof == "full":
        return most
    stepped = ((outcome.done.warmup_ns or 0) + sum(window.ns for window in outcome.windows)) / 1e9
    chance = 1 - secrets.SystemRandom().random()  # above 0
    return min(most, min(max(LEAST_STEPPED, stepped), MOST_STEPPED) / 3 / chance)


def replayed(measured: Iterable[CellFinished], launch: Launch, spec: RunSpec) -> Iterator[Event]:
    """Compare what cells have recorded, those that have. Raises KeyboardInterrupt if the user interrupts.

    One process compares what was recorded on one task. If it fails, each of those that are left gets its own, because
    it is not known which is to blame.
    """
    left: list[tuple[Cell, Recording, Recorded]] = []
    for one in measured:
        cell, job = one.cell, one.cell.job
        if isinstance(job, Recording) and one.is_proven:
            rows = () if cell.replicas else tuple(window.rows for window in one.outcome.windows)
            left.append((cell, job, Recorded(job.path, cell.backend.name, _seconds(one.outcome, spec), rows)))
    left.sort(key=lambda each: repr(each[0].task))
    together = True
    while left:
        batch = [each for each in left if each[0].task == left[0][0].task][: None if together else 1]
        first, recording, _ = batch[0]
        replica = first.all_replicas[recording.replica]
        where = (replica,) if replica.host else ()  # what was recorded on a host stays there
        job = Replaying(tuple(recorded for *_, recorded in batch))
        with closing(_answers(replace(first, job=job, replicas=where, group=None), launch)) as answers:
            for cell, recording, recorded in batch:
                began = time.monotonic()
                yield ProofStarted(cell, recorded.seconds)
                proof = next(answer for answer in answers if isinstance(answer, CellProof | Failure))
                together = together and not isinstance(proof, Failure)
                if isinstance(proof, Failure):
                    if len(batch) > 1:
                        break
                    proof = CellProof("unverified", reason=f"{replica.host}: {proof.reason}" if where else proof.reason)
                yield ProofDone(cell, replace(proof, seed=recording.seed, seconds=round(time.monotonic() - began, 3)))
                del left[0]


def verified(cells: Sequence[Cell], launch: Launch) -> Generator[tuple[Cell, Proof | Comparing | str]]:
    """Yield each cell with its proof, and before that how far it is.

    Right before the proof of a cell that failed comes the end of what it printed, as text. A cell that fails or cannot
    run is ``unverified``, with the reason. Where several backends are to be compared on an environment that vebench
    does not know, the plain loop is tried first: what it cannot step would hang or fail with each of them. It is tried,
    too, once a backend has failed in more steps. Raises KeyboardInterrupt if the user interrupts.
    """
    backends, loop = Counter(cell.task for cell in cells if cell.skip is None), _PlainLoop(launch)
    for cell in cells:
        task, job = cell.task, cell.job
        if cell.skip is not None or not isinstance(job, Proving):
            yield cell, Proof("unverified", reason=cell.skip, failed=True)
            continue
        chance = cell.entry.chance(replace(task, exact=True))
        if chance is not None:
            yield cell, Proof("unverified", reason=chance)
            continue
        if backends[task] > 1 and cell.backend != _LOOP:
            loop.try_on(cell, replace(job, steps=_LOOP_STEPS))
        if task not in loop.why:
            for of, answer in _proven(cell, job, launch):
                if isinstance(answer, Proof):
                    loop.look_at(cell, job, answer)
                if task not in loop.why:
                    yield of, answer
        if task in loop.why:
            yield cell, Proof("unverified", reason=loop.why[task])


class _PlainLoop:
    """The plain loop on environments that vebench does not know: in how many steps of each it was tried."""

    def __init__(self, launch: Launch) -> None:
        self.why: dict[Task, str] = {}  # it cannot step them
        self._launch = launch
        self._tried: dict[Task, int] = {}

    def try_on(self, cell: Cell, job: Proving) -> None:
        """Step the plain loop on a cell's task, unless it has made the steps of the job before."""
        if not SUITES[cell.task.suite].ours and self._tried.get(cell.task, 0) < job.steps:
            own = replace(cell, backend=_LOOP, python="")
            *_, (_, found) = _proven(own, job, self._launch)
            self._remember(cell.task, job, found)

    def look_at(self, cell: Cell, job: Proving, proof: Proof) -> None:
        """Try it where a backend has failed. A cell of its own is a try itself."""
        if cell.backend != _LOOP and proof.failed:
            self.try_on(cell, job)
        elif cell.backend == _LOOP and not SUITES[cell.task.suite].ours:
            self._remember(cell.task, job, proof)

    def _remember(self, task: Task, job: Proving, found: object) -> None:
        self._tried[task] = job.steps
        if isinstance(found, Proof) and found.failed:
            self.why[task] = f"not compared: {registry.REFERENCE} cannot step {task.id}: {found.reason}"


def _proven(cell: Cell, asked: Proving, launch: Launch) -> Iterator[tuple[Cell, Proof | Comparing | str]]:
    """Let one process step a cell's backend, and another compare what it has returned, even if it has failed."""
    job = replace(asked, path=f"{secrets.token_hex(8)}.rows")
    failed = printed = ""
    for answer in _answers(replace(cell, job=job), launch):
        if isinstance(answer, Comparing):
            yield cell, answer
        elif isinstance(answer, Failure):
            failed = answer.reason
        elif isinstance(answer, str):
            printed = answer
    found = Proof("unverified", reason=failed or "it gave no answer", failed=True)
    for answer in _answers(replace(cell, job=Judging(job.steps, job.seed, job.path, failed)), launch):
        if isinstance(answer, Proof):
            found = answer
        elif isinstance(answer, Failure):
            found = replace(found, reason=failed or answer.reason)
        elif isinstance(answer, str) and not failed:
            printed = answer
    if found.failed:
        yield cell, printed
    yield cell, found


def _answers(cell: Cell, launch: Launch) -> Generator[Answer | str]:
    """Yield the answers of a cell's process, a ``Failure`` if it breaks off, and last what it has printed."""
    last = (Done, Failure) if isinstance(cell.job, Proving) else (Proof, CellProof, Failure)
    left = len(cell.job.recordings) if isinstance(cell.job, Replaying) else 1
    printed = ""
    try:
        with launch(cell) as conversation:
            try:
                for answer in conversation.messages():
                    yield answer
                    left -= isinstance(answer, last)
                    if not left or isinstance(answer, Failure):
                        break
                else:
                    yield Failure("it gave no answer")
            finally:
                printed = conversation.log()
    except InterruptedCellError:
        raise KeyboardInterrupt from None
    except (CellError, OSError) as error:
        yield Failure(str(error))
    yield printed
