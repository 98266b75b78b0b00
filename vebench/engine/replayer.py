"""Has what cells returned while they were measured compared with the reference, each by a process of its own.

That process loads no adapter. It starts when nothing is measured any more: the cell has ended, and those it took turns
with.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from vebench.backends.registry import BY_NAME
from vebench.child.answers import CellProof, Failure
from vebench.child.request import Recording, Replaying
from vebench.engine.conversation import CellError, InterruptedCellError
from vebench.engine.events import ProofDone, ProofStarted
from vebench.plan.cells import is_proven

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vebench.engine.conversation import Launch
    from vebench.engine.events import Event, Outcome
    from vebench.plan.cells import Cell
    from vebench.plan.spec import RunSpec

_LEAST_SEED, _MOST_SEED = 1 << 17, 1 << 30
SEED_BITS = 62  # a run file's whole numbers have 63
# A replay may always take so many seconds: less would hardly be worth its start.
_LEAST_SECONDS = 2.0
BROKEN_OFF = "interrupted before it was compared"
# Of --timeout, a replay takes at most this share, because it must end by itself to tell how far it went.
_MOST_OF_TIMEOUT = 0.8


def recorded(cell: Cell, spec: RunSpec, chooser: int) -> Cell:
    """Return ``cell`` with what it is to record, drawn anew from the system's source of chance, if it is proven.

    With one ``chooser``, each repeat of a cell records other environments, as long as there are any. Adapters that are
    not in our table are reset with another seed at the end: of what is in it we know that it heeds the seed.
    """
    if not is_proven(cell, spec):
        return cell
    seed = secrets.randbits(SEED_BITS)
    recording = Recording(
        f"{seed:x}.rows",
        seed,
        secrets.randbelow(len(cell.all_replicas)),
        chooser=chooser,
        turn=cell.repeat,
        reset_seed=None if cell.backend.name in BY_NAME else _large_seed(),
        full=spec.proof == "full",
    )
    return replace(cell, recording=recording)


def _large_seed() -> int:
    """Return a seed that has more than 16 bits, and fits into 31 with the number of an environment."""
    return _LEAST_SEED + secrets.randbelow(_MOST_SEED - _LEAST_SEED)


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
    if cell.recording is None or outcome.status != "ok":
        return
    rows = () if cell.replicas else tuple(window.rows for window in outcome.windows)
    job = Replaying(cell.recording.path, seconds(outcome, spec), rows)
    yield ProofStarted(cell, job.seconds)
    began = time.monotonic()
    proof = _asked(replace(cell, recording=None, replaying=job, replicas=(), group=None), launch)
    yield ProofDone(cell, replace(proof, seed=cell.recording.seed, seconds=round(time.monotonic() - began, 3)))


def broken_off(cell: Cell, outcome: Outcome) -> Iterator[Event]:
    """Report that what a cell has recorded, if it has, is not compared: it does not outlive the run."""
    if cell.recording is not None and outcome.status == "ok":
        yield ProofDone(cell, CellProof("unverified", reason=BROKEN_OFF, seed=cell.recording.seed))


def _asked(cell: Cell, launch: Launch) -> CellProof:
    try:
        with launch(cell) as conversation:
            for message in conversation.messages():
                if isinstance(message, CellProof):
                    return message
                if isinstance(message, Failure):
                    return CellProof("unverified", reason=message.reason)
        return CellProof("unverified", reason="it gave no answer")
    except InterruptedCellError:
        raise KeyboardInterrupt from None
    except (CellError, OSError) as error:
        return CellProof("unverified", reason=str(error))
