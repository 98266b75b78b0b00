"""Compares what a cell has recorded with the reference, in a process that loads no adapter."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vebench.backends import registry
from vebench.child.answers import CellProof, Proof
from vebench.child.proof.bench import FailedError
from vebench.child.proof.judge import judge
from vebench.child.proof.recording import About, Broken, CutOffError, Ended, Rows, read
from vebench.machine import pinning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vebench.backends.interface import Task
    from vebench.child.answers import WorkVerdict
    from vebench.child.proof.recording import Record
    from vebench.child.request import Replaying, Request

# The worst first.
WORST = ("different", "unverified", "equivalent", "equal", "identical")
NOTHING_COMPARED = "nothing that it returned could be compared"


class Judged(NamedTuple):
    """The proof of some environments, and the last batch that it reaches to."""

    proof: Proof
    batches: int


def replay(request: Request, job: Replaying, clock: Callable[[], int]) -> CellProof:
    """Compare what the file of ``job`` holds with the reference, and return the result. The file is removed."""
    task = request.setup.task
    until = Until(clock, int(job.seconds * 1e9))
    try:
        outline = _outline(job.path)
        chance = registry.find(request.backend).chance(task)
        if chance is not None:
            verdict: WorkVerdict = "unverified" if outline.fault is None else "different"
            return CellProof(verdict, fault=outline.fault, reason=chance)
        count = min(len(outline.env_ids), _free_cpus())
        shares = [outline.env_ids[number::count] for number in range(count)]
        if count <= 1:
            found = [_judged(job.path, task, until, share) for share in shares]
        else:
            with ProcessPoolExecutor(count, get_context("fork")) as pool:
                found = list(pool.map(partial(_judged, job.path, task, until), shares))
    except (CutOffError, FailedError) as error:
        return CellProof("unverified", reason=str(error))
    finally:
        os.unlink(job.path)  # noqa: PTH108 - nothing else here needs pathlib
    return _together(found, outline)


def _free_cpus() -> int:
    return len(pinning.allowed() or (0,))


class Outline(NamedTuple):
    """What a recording is of: what the backend reports, environments that are shown, the last batch, and a fault."""

    about: About
    env_ids: tuple[int, ...]
    batches: int
    fault: str | None


def _outline(path: str) -> Outline:
    """Return what a recording is of. Raises CutOffError for one that cannot be read."""
    with open(path, "rb") as file:  # noqa: PTH123 - likewise
        records = read(file)
        about = next(records)
        if not isinstance(about, About):
            raise CutOffError("the recording does not say what it is of")
        shown: set[int] = set()
        batches, fault = 0, None
        for record in records:
            if isinstance(record, Rows):
                shown.update(record.env_ids[record.shown].tolist())
                batches = record.number
            elif isinstance(record, Broken):
                fault = record.fault
            elif isinstance(record, Ended):
                fault = fault or record.fault or None
    return Outline(about, tuple(sorted(shown)), batches, fault)


class Until(NamedTuple):
    """How long steps are made again, in nanoseconds of ``clock``. Building the environments does not count."""

    clock: Callable[[], int]
    span: int


def _judged(path: str, task: Task, until: Until, env_ids: tuple[int, ...]) -> Judged:
    """Compare the rows of these environments, as long as it may take."""
    reached = 0
    deadline = None

    def records() -> Iterator[Record]:
        nonlocal reached, deadline
        with open(path, "rb") as file:  # noqa: PTH123 - likewise
            for record in read(file):
                if not isinstance(record, Rows):
                    yield record
                elif deadline is not None and until.clock() > deadline:
                    yield Ended(reached)
                    return
                else:
                    yield _only(record, env_ids)
                    reached = record.number
                    deadline = deadline or until.clock() + until.span

    return Judged(judge(records(), task, most_share=1.0), reached)


def _only(rows: Rows, env_ids: tuple[int, ...]) -> Rows:
    """Return the batch with the observations of these environments only."""
    wanted = np.isin(rows.env_ids[rows.shown], env_ids)
    return replace(rows, shown=rows.shown[wanted], observations=rows.observations[wanted])


def _together(found: list[Judged], outline: Outline) -> CellProof:
    """Return what was found of all environments."""
    num_envs, batch_size = outline.about.num_envs, outline.about.batch_size
    worst = min((one.proof for one in found), key=lambda proof: WORST.index(proof.verdict))
    rows = sum(one.proof.rows for one in found)
    if worst.verdict != "different" and outline.fault is not None:  # even if the comparison did not get so far
        worst = Proof("different", fault=outline.fault)
    nothing = worst.verdict != "different" and not rows
    return CellProof(
        "unverified" if nothing else worst.verdict,
        rows=rows,
        ends=min(one.proof.fewest_ends for one in found),
        environments=len(outline.env_ids),
        steps=min(one.batches for one in found) * batch_size // num_envs,
        of_steps=outline.batches * batch_size // num_envs,
        allowed=tuple(dict.fromkeys(text for one in found for text in one.proof.allowed)),
        mismatch=worst.mismatch,
        fault=worst.fault,
        reason=worst.reason or (NOTHING_COMPARED if nothing else None),
    )
