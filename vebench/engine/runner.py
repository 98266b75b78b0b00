"""Goes through the plan, cell by cell, and yields events. Also declares a running cell as the runner sees it.

The comparing processes load no adapter. Only the caller prints or stores anything. A failed cell never ends the run.
"""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, replace
from itertools import cycle, groupby
from math import inf
from operator import attrgetter
from typing import Literal, get_args

import msgspec

from vebench.backends import registry
from vebench.backends.environments.suites import SUITES
from vebench.backends.interface import Task
from vebench.child import answers
from vebench.child.request import Judging, Recorded, Recording, Replaying, Stepping
from vebench.plan.cells import LEAST_STEPPED, MOST_STEPPED, Cell, CellKey, Plan, needs_proof
from vebench.plan.spec import PASSES_OF_ALL, RunSpec

_UNKNOWN = answers.Done()
_LINE = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ANSWERS = {kind.__name__: msgspec.json.Decoder(kind) for kind in get_args(answers.Answer)}


class CellError(Exception):
    """The cell cannot go on. The text is stored as the reason in the cell's record."""


class Conversation(ABC):
    """A running cell: its answers, and its turns if it takes turns with other cells."""

    @abstractmethod
    def messages(self) -> Iterator[answers.Answer]:
        """Yield the cell's answers up to ``Done`` or a proof. Raises CellError if it has failed or cannot go on."""

    def take_turn(self) -> None:  # noqa: B027 - replicas take no turns
        """Let a cell that takes turns run until the end of its next window."""

    def rest(self) -> None:  # noqa: B027 - replicas take no turns
        """Stop the cell until its next turn."""

    @abstractmethod
    def log(self) -> str:
        """Return the end of the log of the cell's processes."""


# Starts a cell. When the context ends, all its processes have ended.
Launch = Callable[[Cell], AbstractContextManager[Conversation]]


def decode(text: bytes) -> answers.Answer:
    """Return the answer that a line of JSON encodes. Raises ValueError if the line is invalid."""
    ((name, body),) = _LINE.decode(text).items()
    answer: answers.Answer = _ANSWERS[name].decode(body)
    return answer


@dataclass(frozen=True)
class Outcome:
    """How a cell ended. A failed cell keeps the windows that it has measured."""

    status: Literal["ok", "failed", "skipped"]
    reason: str | None = None
    ready: answers.Ready | None = None  # None if the cell was never ready
    windows: tuple[answers.Window, ...] = ()
    done: answers.Done = _UNKNOWN  # without facts if the cell did not finish
    log: str = ""  # the end of a failed cell's output
    cause: answers.Cause | None = None


@dataclass(frozen=True)
class CellStarted:
    """A cell has warmed up, and waits for its first turn."""

    cell: Cell


@dataclass(frozen=True)
class WindowDone:
    """A window of a cell has been measured."""

    cell: Cell
    window: answers.Window


@dataclass(frozen=True)
class CellFinished:
    """A cell has ended or was skipped. ``run`` yields one for each cell, unless it is interrupted."""

    cell: Cell
    outcome: Outcome


@dataclass(frozen=True)
class FirstLook:
    """Preliminary results of cells that take turns, sent once each cell has a few windows. The cells go on."""

    cells: tuple[CellFinished, ...]


@dataclass(frozen=True)
class ProofStarted:
    """The comparison of a finished cell's recording with the reference begins."""

    cell: Cell


@dataclass(frozen=True)
class ProofDone:
    """The comparison of a cell's recording has ended. ``proof`` has the verdict, or the reason why there is none."""

    cell: Cell
    proof: answers.CellProof


Event = CellStarted | WindowDone | CellFinished | ProofStarted | ProofDone
_A_FEW = 3  # the fewest windows that give an interval
# The tasks that were given up because for-loop failed on them, as (task, side), with the reason.
Over = dict[tuple[str, str], str]
Seen = tuple[CellKey, str]  # the key of a cell without its repeat, and its side
_Unproven = tuple[Cell, Recording, Recorded]  # a cell whose recording is to be compared


def run(
    plan: Plan,
    launch: Launch,
    *,
    over: Over | None = None,
    out_of_time: Callable[[], bool] = bool,
    seen: Counter[Seen] | None = None,
) -> Generator[Event | FirstLook]:
    """Measure the plan's cells in order, and yield events.

    For-loop with one worker may fail in its first pass before its first window. Then the task is added to ``over``, and
    all its later cells fail with the same reason. A hanging environment would hang in each of them until ``--timeout``.
    If several environments in one process cannot be built, other cells are measured.

    Once ``out_of_time`` returns true, no further cell is started, and interleaved cells with fewer than three windows
    fail. Raises KeyboardInterrupt if the user interrupts, after an event for each cell that has windows or a recording.

    ``seen`` counts the passes of each cell, also in later calls. The rows of a cell's first passes are always compared,
    the rows of later passes by chance.
    """
    chooser = secrets.randbits(62)
    over = {} if over is None else over
    seen = Counter() if seen is None else seen
    for number, group in groupby(plan.cells, key=attrgetter("group")):
        for cells in [tuple(group)] if number is not None else [(cell,) for cell in group]:
            if cells[0].skip is None and out_of_time():
                continue
            part = [_with_recording(cell, plan.spec, chooser, seen) for cell in cells]
            left: list[_Unproven] = []
            try:
                for event in _measured(part, launch, plan.spec, out_of_time, over):
                    if isinstance(event, CellFinished):
                        left += unproven(event, plan.spec)
                    yield event
                yield from replayed(left, launch)
            except KeyboardInterrupt:
                lost = answers.CellProof("unverified", reason="interrupted before it was compared")
                for cell, recording, _ in left:
                    yield ProofDone(cell, replace(lost, seed=recording.seed, cause=answers.Cause.INTERRUPTED))
                raise


def _measured(
    cells: Sequence[Cell], launch: Launch, spec: RunSpec, out_of_time: Callable[[], bool], over: Over
) -> Iterator[Event | FirstLook]:
    """Start the cells one after another, then measure a window of each, forwards and backwards alternately.

    A slow period of the machine slows all cells. A cell that takes no turns is measured when it is started. Reference
    rows start after the ``FirstLook`` at the other cells.
    """
    running = [_RunningCell(cell, over) for cell in cells]
    late = [cell for cell in running if cell.cell.entry.reference_row]
    early = [cell for cell in running if cell not in late]
    directions, first = cycle((1, -1)), (early or late)[0]
    try:
        with ExitStack() as stack:
            for some, enough in ((early, _A_FEW), (late, inf)):
                for cell in some:
                    if cell is not first and out_of_time():
                        break
                    yield from cell.start(launch, stack)
                yield from _turns(running, spec.windows, enough, out_of_time, directions)
                alive = [cell for cell in running if cell.at_work]
                if some is early and alive and all(len(cell.windows) >= _A_FEW for cell in alive):
                    yield FirstLook(tuple(CellFinished(cell.cell, cell.outcome()) for cell in alive))
        for cell in running:
            if cell.at_work:
                yield cell.broken_off(answers.Cause.GIVEN_UP)
    except KeyboardInterrupt:
        for cell in running:
            if cell.at_work and cell.windows:
                yield cell.broken_off(answers.Cause.INTERRUPTED)
        raise


def _turns(
    cells: Sequence[_RunningCell],
    windows: int,
    enough: float,
    out_of_time: Callable[[], bool],
    directions: Iterator[int],
) -> Iterator[Event]:
    """Let cells take turns until each has ``enough`` windows or has ended. Stop if no time is left for windows."""

    def goes_on(cell: _RunningCell) -> bool:
        return cell.at_work and (len(cell.windows) >= windows or not out_of_time())

    while order := [cell for cell in cells if goes_on(cell)]:
        if all(len(cell.windows) >= enough for cell in order):
            return
        for cell in order[:: next(directions)]:
            if goes_on(cell):
                yield from cell.take_turn()


class _RunningCell:
    """A cell with its answers so far."""

    def __init__(self, cell: Cell, over: Over) -> None:
        self.cell = cell
        self.at_work = False
        self.windows: list[answers.Window] = []
        self._over = over
        self._reason: str | None = None
        self._ready: answers.Ready | None = None
        self._done = answers.Done()
        self._log = ""
        self._own = ExitStack()

    def start(self, launch: Launch, stack: ExitStack) -> Iterator[Event]:
        """Start the cell, and yield its events until its first turn or its end. ``stack`` ends a cell that runs on."""
        cell = self.cell
        if cell.skip is not None:
            yield CellFinished(cell, Outcome("skipped", cell.skip))
            return
        if (why := self._over.get((cell.task.id, cell.interpreter.side))) is not None:
            yield CellFinished(cell, Outcome("failed", why))
            return
        stack.push(self._own)
        try:
            self._conversation = self._own.enter_context(launch(cell))
        except OSError as error:
            yield CellFinished(cell, Outcome("failed", f"its process could not be started: {error}"))
            return
        self.at_work = True
        self._answers = self._followed()
        yield from self._until(answers.Warm)
        if self.at_work:
            yield CellStarted(cell)

    def take_turn(self) -> Iterator[Event]:
        """Let the cell run until the end of its next window, or until it ends."""
        self._conversation.take_turn()
        yield from self._until(answers.Window)

    def _until(self, kind: type[answers.Warm | answers.Window]) -> Iterator[Event]:
        """Follow the cell until an answer of this kind, or its end."""
        for answer in self._answers:
            if isinstance(answer, kind):
                self._conversation.rest()
            if isinstance(answer, answers.Window):
                yield WindowDone(self.cell, answer)
            if isinstance(answer, kind):
                return
        self.at_work = False
        self._own.close()  # end all its processes, so that they do not disturb other cells
        yield CellFinished(self.cell, self.outcome())

    def _followed(self) -> Iterator[answers.Answer]:
        """Note and yield each answer, until the cell is done or has failed."""
        cell = self.cell
        try:
            for answer in self._conversation.messages():
                match answer:
                    case answers.Ready():
                        self._ready = answer
                    case answers.Window():
                        self.windows.append(answer)
                    case answers.Done():
                        self._done = answer
                        return
                yield answer
        except CellError as error:
            self._reason = str(error)
        self._log = self._conversation.log()
        built = self._ready is not None or cell.shape.batch_size == 1  # a process may allow one environment only
        if cell.is_base and built and not (cell.repeat or cell.replicas or self.windows):
            why = f"not measured: {cell.backend.label} with one worker cannot step {cell.task.id}: {self._reason}"
            self._over.setdefault((cell.task.id, cell.interpreter.side), why)

    def broken_off(self, cause: answers.Cause) -> CellFinished:
        """Return the end of a cell that is broken off. A few windows are enough for a good end."""
        return CellFinished(self.cell, self.outcome(cause if len(self.windows) < _A_FEW else None))

    def outcome(self, cause: answers.Cause | None = None) -> Outcome:
        """Return how the cell has ended. With a ``cause``, the cell ends now for this cause."""
        reason = cause.reason if cause else self._reason
        status: Literal["ok", "failed"] = "ok" if reason is None else "failed"
        return Outcome(status, reason, self._ready, tuple(self.windows), self._done, self._log, cause)


def _with_recording(cell: Cell, spec: RunSpec, chooser: int, seen: Counter[Seen]) -> Cell:
    """Return ``cell`` with a recording if its work needs proof, at moments that it cannot foresee."""
    if not needs_proof(cell, spec):
        return cell
    seed = secrets.randbits(62)
    which = cell.key.without_repeat, cell.interpreter.side
    seen[which] += 1
    job = Recording(
        f"{seed:x}.rows",
        seed,
        secrets.randbelow(len(cell.all_replicas)),
        chooser=chooser,
        repeat=cell.repeat,
        full=spec.proof == "full",
        compared=seen[which] <= PASSES_OF_ALL or spec.proof == "full" or not secrets.randbelow(8),
        resets=not cell.backend.is_ours,
    )
    return replace(cell, job=job)


def unproven(event: CellFinished, spec: RunSpec) -> list[_Unproven]:
    """Return the cell's recording, with a time limit for its replay, if it is to be compared with the reference.

    The limit is at least ``n`` times the shortest limit with a probability of 1 / ``n``. Most replays are therefore
    short, but even the last batch is sometimes compared.
    """
    cell, job, outcome = event.cell, event.cell.job, event.outcome
    if outcome.status != "ok" or not isinstance(job, Recording) or not job.compared:
        return []
    stepped = ((outcome.done.warmup_ns or 0) + sum(window.ns for window in outcome.windows)) / 1e9
    chance = 1 - secrets.SystemRandom().random()  # above 0
    shortest = min(max(LEAST_STEPPED, stepped), MOST_STEPPED) / 3
    most = 0.8 * spec.timeout  # so that a replay can end by itself and report its rows
    seconds = most if spec.proof == "full" else min(most, shortest / chance)
    return [(cell, job, Recorded(job.path, cell.backend.name, seconds))]


def replayed(left: list[_Unproven], launch: Launch) -> Iterator[Event]:
    """Compare the recordings, and remove each from the list. One process compares all recordings of a task.

    If the process fails, every remaining recording gets a separate process, because any of them may be the cause.
    Raises KeyboardInterrupt if the user interrupts.
    """
    left.sort(key=lambda each: repr(each[0].task))
    together = True
    while left:
        batch = [each for each in left if each[0].task == left[0][0].task] if together else left[:1]
        first, recording, _ = batch[0]
        replica = first.all_replicas[recording.replica]
        where = (replica,) if replica.host else ()  # a recording is compared on the host where it was made
        job = Replaying(tuple(recorded for *_, recorded in batch))
        with closing(_answers(replace(first, job=job, replicas=where, group=None), launch)) as given:
            for cell, recording, _ in batch:
                began = time.monotonic()
                yield ProofStarted(cell)
                proof = next(answer for answer in given if isinstance(answer, answers.CellProof | answers.Failure))
                if isinstance(proof, answers.Failure):
                    together = False
                    if len(batch) > 1:
                        break
                    reason = f"{replica.host}: {proof.reason}" if where else proof.reason
                    proof = answers.CellProof("unverified", reason=reason)
                yield ProofDone(cell, replace(proof, seed=recording.seed, seconds=round(time.monotonic() - began, 3)))
                del left[0]


def verified(cells: Sequence[Cell], launch: Launch) -> Generator[tuple[Cell, answers.Proof, str]]:
    """Yield each cell with its proof, and the end of its log if it has failed.

    For-loop is tried first on an environment that vebench does not know: if it fails, every backend would hang or fail.
    Raises KeyboardInterrupt if the user interrupts.
    """
    loops: dict[Task, answers.Proof] = {}  # whether for-loop can step a task
    for cell in cells:
        task, job = cell.task, cell.job
        if cell.skip is not None or not isinstance(job, Stepping):
            yield cell, answers.Proof("unverified", reason=cell.skip, failed=True), ""
            continue
        if task not in loops and not cell.is_reference and not SUITES[task.suite].ours:
            loops[task], _ = _proven(cell.of_reference, replace(job, steps=min(job.steps, 10)), launch)
        if task in loops and loops[task].failed:
            why = f"not compared: {registry.REFERENCE} cannot step {task.id}: {loops[task].reason}"
            yield cell, answers.Proof("unverified", reason=why), ""
        else:
            yield cell, *_proven(cell, job, launch)


def _proven(cell: Cell, asked: Stepping, launch: Launch) -> tuple[answers.Proof, str]:
    """Let one process step a cell's backend, and another compare the returned rows, even if the first has failed.

    If the rows differ by chance, a third process steps the reference, and episodes are compared. Return the proof, and
    the end of the log if the backend has failed.
    """
    chance = cell.entry.scope.chance(replace(cell.task, exact=True))
    job = replace(asked, path=f"{secrets.token_hex(8)}.rows", episodes=chance is not None)
    stepped = [replace(cell, job=job)]
    if job.episodes:
        other = replace(job, seed=job.seed + 1, path=f"{job.path}.reference")
        stepped.append(replace(cell.of_reference, job=other))
    failed = printed = ""
    for each in stepped:
        for answer in _answers(each, launch):
            if isinstance(answer, answers.Failure):
                who = "" if each is stepped[0] else f"{registry.REFERENCE}: "
                failed = failed or f"{who}{answer.reason}"
            elif isinstance(answer, str):
                printed = printed or answer
    found = answers.Proof("unverified", failed=True)
    for answer in _answers(replace(cell, job=Judging(job.steps, job.seed, job.path, failed, job.episodes)), launch):
        if isinstance(answer, answers.Proof):
            found = answer
        elif isinstance(answer, answers.Failure):
            found = replace(found, reason=failed or answer.reason)
        elif isinstance(answer, str) and not failed:
            printed = answer
    return found, printed if found.failed else ""


def _answers(cell: Cell, launch: Launch) -> Generator[answers.Answer | str]:
    """Yield the answers of a cell's process, then a ``Failure`` if it has failed, then the end of its log."""
    left = len(cell.job.recordings) if isinstance(cell.job, Replaying) else 1
    printed = ""
    try:
        with launch(cell) as conversation:
            try:
                for answer in conversation.messages():
                    yield answer
                    if isinstance(answer, answers.Done | answers.Proof | answers.CellProof):
                        left -= 1
                    if not left:
                        break
            finally:
                printed = conversation.log()
    except (CellError, OSError) as error:
        yield answers.Failure(str(error))
    yield printed
