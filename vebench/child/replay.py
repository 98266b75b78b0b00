"""Compares what a cell has recorded with the reference, in a process that loads no adapter."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vebench.child.answers import CellProof
from vebench.child.proof.judge import judge
from vebench.child.proof.recording import About, Broken, CutOffError, Ended, Rows, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vebench.backends.interface import Task
    from vebench.child.answers import Proof
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
    deadline = clock() + int(job.seconds * 1e9)
    try:
        about, batches = _outline(job.path)
        shown = about.shown or tuple(range(about.num_envs))
        processes = min(len(shown), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
        shares = [shown[number::processes] for number in range(processes)]
        one = partial(_judged, job.path, request.setup.task, request.backend, clock, deadline)
        if processes == 1:
            found = [one(shares[0])]
        else:
            with ProcessPoolExecutor(processes, get_context("fork")) as pool:
                found = list(pool.map(one, shares))
    except CutOffError as error:
        return CellProof("unverified", reason=str(error))
    finally:
        os.unlink(job.path)  # noqa: PTH108 - nothing else here needs pathlib
    return _together(found, about, batches)


def _outline(path: str) -> tuple[About, int]:
    """Return the first record, and how many batches were stepped. Raises CutOffError for what cannot be read."""
    with open(path, "rb") as file:  # noqa: PTH123 - likewise
        records = read(file)
        about = next(records)
        if not isinstance(about, About):
            raise CutOffError("the recording does not say what it is of")
        last = 0
        for record in records:
            if isinstance(record, Rows | Broken):
                last = record.number
            elif isinstance(record, Ended):
                last = record.batches
    return about, last


def _judged(
    path: str, task: Task, backend: str, clock: Callable[[], int], deadline: int, env_ids: tuple[int, ...]
) -> Judged:
    """Compare the rows of these environments, until the deadline."""
    reached = [0]

    def records() -> Iterator[Record]:
        with open(path, "rb") as file:  # noqa: PTH123 - likewise
            for record in read(file):
                if isinstance(record, About):
                    yield replace(record, shown=env_ids)
                elif isinstance(record, Rows):
                    if clock() > deadline:
                        yield Ended(reached[0])
                        return
                    yield _only(record, env_ids)
                    reached[0] = record.number
                else:
                    yield record

    return Judged(judge(records(), task, backend), reached[0])


def _only(rows: Rows, env_ids: tuple[int, ...]) -> Rows:
    """Return the batch with the observations of these environments only."""
    wanted = np.isin(rows.shown, env_ids)
    return replace(rows, shown=rows.shown[wanted], observations=rows.observations[wanted])


def _together(found: list[Judged], about: About, batches: int) -> CellProof:
    """Return what was found of all environments."""
    worst = min((one.proof for one in found), key=lambda proof: WORST.index(proof.verdict))
    rows = sum(one.proof.rows for one in found)
    reached = min(one.batches for one in found)
    nothing = worst.verdict != "different" and not rows
    return CellProof(
        "unverified" if nothing else worst.verdict,
        rows=rows,
        ends=sum(one.proof.ends for one in found),
        environments=len(about.shown) or about.num_envs,
        steps=reached * about.batch_size // about.num_envs,
        of_steps=batches * about.batch_size // about.num_envs,
        allowed=tuple(dict.fromkeys(text for one in found for text in one.proof.allowed)),
        mismatch=worst.mismatch,
        fault=worst.fault,
        reason=worst.reason or (NOTHING_COMPARED if nothing else None),
    )
