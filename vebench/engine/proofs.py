"""Has what backends returned compared with the reference, by processes that load no adapter.

``replayed`` has what a measured cell has recorded compared, once nothing is measured any more; ``verified`` has
backends stepped for ``vebench verify``. Like the runner, neither prints nor stores anything.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from vebench.backends import registry
from vebench.backends.environments.suites import SUITES
from vebench.child.answers import CellProof, Comparing, Done, Failure, Proof
from vebench.child.request import Judging, Proving, Recording, Replaying
from vebench.engine.interface import CellError, InterruptedCellError, ProofDone, ProofStarted
from vebench.plan.cells import is_proven
from vebench.plan.spec import BackendChoice

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from vebench.backends.interface import Task
    from vebench.child.answers import Answer
    from vebench.engine.interface import Event, Launch, Outcome
    from vebench.plan.cells import Cell
    from vebench.plan.spec import RunSpec

_LEAST_SEED, _MOST_SEED = 1 << 17, 1 << 30  # more than 16 bits, and with the number of an environment at most 31
SEED_BITS = 62  # a run file's whole numbers have 63
# A replay may always take so many seconds: less would hardly be worth its start.
_LEAST_SECONDS = 2.0
BROKEN_OFF = "interrupted before it was compared"
# Of --timeout, a replay takes at most this share, because it must end by itself to tell how far it went.
_MOST_OF_TIMEOUT = 0.8
_LOOP = BackendChoice(registry.REFERENCE)
_LOOP_STEPS = 10  # of the plain loop, before several backends are compared on an environment that vebench does not know


def with_recording(cell: Cell, spec: RunSpec, chooser: int) -> Cell:
    """Return ``cell`` with what it is to record, drawn anew from the system's source of chance, if it is proven.

    With one ``chooser``, each repeat of a cell records other environments, as long as there are any. Adapters that are
    not in our table are reset with another seed at the end: of what is in it we know that it heeds the seed.
    """
    if not is_proven(cell, spec):
        return cell
    seed = secrets.randbits(SEED_BITS)
    job = Recording(
        f"{seed:x}.rows",
        seed,
        secrets.randbelow(len(cell.all_replicas)),
        chooser=chooser,
        turn=cell.repeat,
        reset_seed=None if cell.backend.is_ours else _LEAST_SEED + secrets.randbelow(_MOST_SEED - _LEAST_SEED),
        full=spec.proof == "full",
    )
    return replace(cell, job=job)


def seconds(outcome: Outcome, spec: RunSpec) -> float:
    """Return how long the replay of a cell may take.

    It always takes half as long as the cell has stepped, if it is not over before. It goes on to ``n`` times that with
    a probability of one in ``n``: no batch is so late that it is never compared, and none costs more than a few others.
    """
    most = _MOST_OF_TIMEOUT * spec.timeout
    if spec.proof == "full":
        return most
    stepped = ((outcome.done.warmup_ns or 0) + sum(window.ns for window in outcome.windows)) / 1e9
    chance = 1 - secrets.SystemRandom().random()  # above 0
    return min(most, max(_LEAST_SECONDS, stepped) / 2 / chance)


def replayed(cell: Cell, outcome: Outcome, launch: Launch, spec: RunSpec) -> Iterator[Event]:
    """Compare what a cell has recorded, if it has. Raises KeyboardInterrupt if the user interrupts."""
    recording = cell.job
    if not isinstance(recording, Recording) or outcome.status != "ok":
        return
    rows = () if cell.replicas else tuple(window.rows for window in outcome.windows)
    job = Replaying(recording.path, seconds(outcome, spec), rows)
    replica = cell.all_replicas[recording.replica]
    where = (replica,) if replica.host else ()  # what was recorded on a host stays there
    yield ProofStarted(cell, job.seconds)
    began = time.monotonic()
    proof = CellProof("unverified", reason="it gave no answer")
    for answer in _answers(replace(cell, job=job, replicas=where, group=None), launch):
        if isinstance(answer, CellProof):
            proof = answer
        elif isinstance(answer, Failure):
            reason = f"{replica.host}: {answer.reason}" if replica.host else answer.reason
            proof = CellProof("unverified", reason=reason)
    yield ProofDone(cell, replace(proof, seed=recording.seed, seconds=round(time.monotonic() - began, 3)))


def broken_off(cell: Cell, outcome: Outcome) -> Iterator[Event]:
    """Report that what a cell has recorded, if it has, is not compared: it does not outlive the run."""
    if isinstance(cell.job, Recording) and outcome.status == "ok":
        yield ProofDone(cell, CellProof("unverified", reason=BROKEN_OFF, seed=cell.job.seed))


def verified(cells: Sequence[Cell], launch: Launch) -> Generator[tuple[Cell, Proof | Comparing | str]]:
    """Yield each cell with its proof, and before that how far it is.

    Right before the proof of a cell that failed comes the end of what it printed, as text. A cell that fails or cannot
    run is ``unverified``, with the reason. Where several backends are to be compared on an environment that vebench
    does not know, the plain loop is tried first: what it cannot step would hang or fail with each of them. Raises
    KeyboardInterrupt if the user interrupts.
    """
    backends = Counter(cell.task for cell in cells if cell.skip is None)
    tried: dict[Task, Proof] = {}
    for cell in cells:
        task, job = cell.task, cell.job
        if cell.skip is not None or not isinstance(job, Proving):
            yield cell, Proof("unverified", reason=cell.skip, failed=True)
            continue
        chance = cell.entry.chance(replace(task, exact=True))
        if chance is not None:
            yield cell, Proof("unverified", reason=chance)
            continue
        if backends[task] > 1 and not SUITES[task.suite].ours and task not in tried:
            loop = replace(cell, backend=_LOOP, python="")
            *_, (_, found) = _proven(loop, replace(job, steps=_LOOP_STEPS), launch)
            tried[task] = found if isinstance(found, Proof) else Proof("unverified")
        if task in tried and tried[task].failed:
            why = f"not compared, as {registry.REFERENCE} cannot step {task.id}: {tried[task].reason}"
            yield cell, Proof("unverified", reason=why, failed=True)
        else:
            yield from _proven(cell, job, launch)


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


def _answers(cell: Cell, launch: Launch) -> Iterator[Answer | str]:
    """Yield the answers of a cell's process, a ``Failure`` if it breaks off, and last what it has printed."""
    last = (Done, Failure) if isinstance(cell.job, Proving) else (Proof, CellProof, Failure)
    printed = ""
    try:
        with launch(cell) as conversation:
            try:
                for answer in conversation.messages():
                    yield answer
                    if isinstance(answer, last):
                        break
            finally:
                printed = conversation.log()
    except InterruptedCellError:
        raise KeyboardInterrupt from None
    except (CellError, OSError) as error:
        yield Failure(str(error))
    yield printed
