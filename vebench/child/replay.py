"""Compares what a cell has recorded with the reference, in a process that loads no adapter."""

from __future__ import annotations

import contextlib
import os
import random
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from vebench.backends import registry, trees
from vebench.child.answers import CellProof, Proof
from vebench.child.proof.bench import FailedError
from vebench.child.proof.faults import NAMING_S
from vebench.child.proof.followed import References
from vebench.child.proof.judge import judge
from vebench.child.proof.recording import About, Began, Broken, CutOffError, Ended, Failed, Rows, read
from vebench.machine import pinning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from vebench.backends.interface import Task
    from vebench.child.answers import WorkVerdict
    from vebench.child.proof.bench import Bench
    from vebench.child.proof.recording import Record
    from vebench.child.request import Replaying, Request

T = TypeVar("T")
R = TypeVar("R")

# So many neighbours are looked at together for what came right after a reset. After BEGINNINGS_NS only the rows of the
# resets themselves are, after RESETS_NS of no more environments.
TOGETHER, BEGINNINGS_NS, RESETS_NS = 8, 500_000_000, 2_000_000_000
# Of --timeout, a search for a name among all environments may end at this share, and what is known be told in time.
MOST_OF_TIMEOUT = 0.8
# The worst first.
WORST = ("different", "unverified", "equivalent", "equal", "identical")
NOTHING_COMPARED = "nothing that it returned could be compared"


class Judged(NamedTuple):
    """The proof of some environments, and the last batch that it reaches to.

    ``after_all``: what differs is a row of the second reset, which comes after all windows.
    """

    proof: Proof
    batches: int
    after_all: bool = False


def replay(request: Request, job: Replaying, clock: Callable[[], int]) -> CellProof:
    """Compare what the file of ``job`` holds with the reference, and return the result. The file is removed."""
    task = request.setup.task
    named_until = clock() + int((MOST_OF_TIMEOUT * request.settings.timeout - NAMING_S) * 1e9)
    fault: str | None = None
    try:
        outline = _outline(job.path, job.rows)
        fault = outline.fault
        chance = registry.find(request.backend).chance(task)
        if chance is not None:
            verdict: WorkVerdict = "unverified" if outline.fault is None else "different"
            return CellProof(verdict, fault=outline.fault, reason=chance, impossible=True)
        return _compared(job, task, outline, clock, named_until)
    except (CutOffError, FailedError) as error:
        return CellProof("unverified", reason=str(error)) if fault is None else CellProof("different", fault=fault)
    finally:
        os.unlink(job.path)  # noqa: PTH108 - nothing else here needs pathlib


def _compared(job: Replaying, task: Task, outline: Outline, clock: Callable[[], int], named_until: int) -> CellProof:
    """Compare what came right after the resets, and then the measured steps."""
    begin = partial(_begun, job.path, task, clock, outline.histories)
    begun = [one for found in _in_parallel(begin, _shares(outline.first_ids)) for one in found]
    wrong = [one for one in begun if one.proof.verdict == "different"]
    if outline.failed is not None and not wrong:
        return CellProof("unverified", reason=outline.failed)
    found: list[Judged] = []
    # A fault that began late shows in the rows of the second reset, too, but has its name where it began.
    if outline.failed is None and all(one.after_all for one in wrong):
        follow = partial(_judged, job.path, task, histories=outline.histories)
        try:
            found = _in_parallel(partial(follow, Until(clock, int(job.seconds * 1e9))), _split(outline.env_ids))
        except (CutOffError, FailedError):
            if not wrong:
                raise
        if clock() < named_until:
            found = _renamed(found, outline.env_ids, partial(follow, Until(clock, named_until - clock())))
    if any(one.proof.verdict == "different" for one in found) or not wrong:
        return _together(found, outline, begun)
    if clock() < named_until:
        begun = _renamed(begun, outline.first_ids, lambda env_ids: begin((env_ids,), hurried=False)[0])
    return _together(found, outline, begun) if found else _together(begun, outline)


def _renamed(
    found: list[Judged], env_ids: tuple[int, ...], judged: Callable[[tuple[int, ...]], Judged]
) -> list[Judged]:
    """Return what was found, with the name of a fault sought again where several environments are seen together.

    Shares are judged apart, but some faults, such as one row that stands for all, only show beside other environments.
    """
    first = next((one for one in found if one.proof.mismatch is not None), None)
    if first is None or first.proof.mismatch is None or len(env_ids) == 1:
        return found
    wrong = first.proof.mismatch.env_id
    others = [env_id for env_id in env_ids if env_id != wrong][: TOGETHER - 1]
    with contextlib.suppress(CutOffError, FailedError):
        proof = judged(tuple(sorted((wrong, *others)))).proof
        if proof.mismatch is not None and proof.fault is not None:
            named = replace(first.proof, fault=proof.fault, mismatch=proof.mismatch)
            return [first._replace(proof=named), *(one for one in found if one is not first)]
    return found


def _split(env_ids: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return environments in shares, one for each CPU that is free."""
    count = min(len(env_ids), _free_cpus())
    return [env_ids[number::count] for number in range(count)]


def _shares(env_ids: tuple[int, ...]) -> list[tuple[tuple[int, ...], ...]]:
    """Return neighbours in groups, in an order that nobody can foresee, in shares: one for each CPU that is free."""
    groups = [env_ids[first : first + TOGETHER] for first in range(0, len(env_ids), TOGETHER)]
    random.SystemRandom().shuffle(groups)
    count = min(len(groups), _free_cpus())
    return [tuple(groups[number::count]) for number in range(count)]


def _in_parallel(work: Callable[[T], R], shares: list[T]) -> list[R]:
    """Return what work on each share gives, each in a process of its own if there are several."""
    if len(shares) <= 1:
        return [work(share) for share in shares]
    with ProcessPoolExecutor(len(shares), get_context("fork")) as pool:
        return list(pool.map(work, shares))


def _free_cpus() -> int:
    return len(pinning.allowed() or (0,))


class Outline(NamedTuple):
    """What a recording is of: what the backend reports, the last batch, a fault, and why nothing is known beyond that.

    The last of its ``histories`` is that of the measured steps, in which ``env_ids`` are shown; in those before, which
    are short, ``first_ids`` are.
    """

    about: About
    env_ids: tuple[int, ...]
    first_ids: tuple[int, ...]
    histories: int
    batches: int
    fault: str | None
    failed: str | None


def _outline(path: str, rows: tuple[int, ...]) -> Outline:
    """Return what a recording is of, whose windows claim so many rows. Raises CutOffError if it cannot be read."""
    with open(path, "rb") as file:  # noqa: PTH123 - likewise
        records = read(file)
        about = next(records)
        if not isinstance(about, About):
            raise CutOffError("the recording does not say what it is of")
        shown: set[int] = set()
        first: set[int] = set()
        histories, batches, fault, failed = 0, 0, None, None
        for record in records:
            if isinstance(record, Began):
                first |= shown
                shown, batches, histories = set(), 0, histories + 1
            elif isinstance(record, Rows):
                shown.update(record.env_ids[record.shown].tolist())
                batches = record.number
            elif isinstance(record, Broken):
                fault = record.fault
            elif isinstance(record, Failed):
                failed = record.reason
            elif isinstance(record, Ended):
                fault = fault or record.fault or _miscounted(about, record.windows, rows)
    return Outline(about, tuple(sorted(shown)), tuple(sorted(first)), histories, batches, fault, failed)


def _miscounted(about: About, batches: Sequence[int], rows: tuple[int, ...]) -> str | None:
    """Return the fault if a window has claimed other rows than its batches have, None if none has."""
    for count, claimed in zip(batches, rows):  # noqa: B905 - not all may be known
        returned = count * about.batch_size if about.fewest_rows is None else count
        if claimed != returned:
            return f"rows counted that were not returned: {claimed:,} in a window with {returned:,}"
    return None


class Until(NamedTuple):
    """How long steps are made again, in nanoseconds of ``clock``. Building the environments does not count."""

    clock: Callable[[], int]
    span: int


def _begun(  # noqa: PLR0913 - what a comparison of the first rows needs
    path: str,
    task: Task,
    clock: Callable[[], int],
    histories: int,
    groups: tuple[tuple[int, ...], ...],
    *,
    hurried: bool = True,
) -> list[Judged]:
    """Compare what all environments returned right after a reset, group by group.

    If ``hurried``, as long as it may take: with smaller groups, fewer rows or fewer environments.
    """
    found: list[Judged] = []
    began = clock()
    references = References(task)
    references.make(1)
    if hurried and TOGETHER * (clock() - began) > BEGINNINGS_NS:  # one that can stand for all must do
        groups = tuple((env_id,) for env_ids in groups for env_id in env_ids)
    for env_ids in groups:
        if found and (found[-1].proof.verdict == "different" or clock() > began + RESETS_NS):
            break

        def records(env_ids: tuple[int, ...] = env_ids) -> Iterator[Record]:
            with open(path, "rb") as file:  # noqa: PTH123 - likewise
                number = 0
                for record in read(file):
                    number += isinstance(record, Began)
                    if number == histories:
                        yield Ended(0)
                        return
                    later = isinstance(record, Rows) and record.number > 0
                    late = hurried and later and clock() > began + BEGINNINGS_NS
                    if not late:
                        yield _only(record, env_ids) if isinstance(record, Rows) else record

        resets = 0

        def announce(proof: Proof, bench: Bench) -> Proof:
            nonlocal resets
            resets = len(bench.seeds)
            return proof

        proof = judge(records(), references, announce=announce, most_share=1.0)
        found.append(Judged(proof, 0, after_all=resets > 1))
    return found


def _judged(path: str, task: Task, until: Until, env_ids: tuple[int, ...], histories: int) -> Judged:
    """Compare the rows of these environments in the measured steps, as long as it may take."""
    reached = number = 0
    deadline = None

    def records() -> Iterator[Record]:
        nonlocal reached, deadline, number
        with open(path, "rb") as file:  # noqa: PTH123 - likewise
            for record in read(file):
                number += isinstance(record, Began)
                if 0 < number < histories:
                    continue
                if not isinstance(record, Rows):
                    yield record
                elif deadline is not None and until.clock() > deadline:
                    yield Ended(reached)
                    return
                else:
                    yield _only(record, env_ids)
                    reached = record.number
                    deadline = deadline or until.clock() + until.span

    return Judged(judge(records(), References(task), of_steps=True), reached)


def _only(rows: Rows, env_ids: tuple[int, ...]) -> Rows:
    """Return the batch with the observations of these environments only."""
    wanted = np.isin(rows.env_ids[rows.shown], env_ids)
    return replace(rows, shown=rows.shown[wanted], observations=trees.part(rows.observations, wanted))


def _together(found: list[Judged], outline: Outline, begun: Sequence[Judged] = ()) -> CellProof:
    """Return what was found of all environments, and what of the first batches, ``begun``."""
    num_envs, batch_size = outline.about.num_envs, outline.about.batch_size
    seen = [one.proof for one in (*found, *begun) if one.proof.rows or one.proof.reason or one.proof.fault]
    worst = min(seen, key=lambda proof: WORST.index(proof.verdict), default=Proof("unverified"))
    rows = sum(one.proof.rows for one in (*found, *begun))
    if worst.verdict != "different" and outline.fault is not None:  # even if the comparison did not get so far
        worst = Proof("different", fault=outline.fault)
    nothing = worst.verdict != "different" and not any(one.proof.rows for one in found)
    return CellProof(
        "unverified" if nothing else worst.verdict,
        rows=rows,
        ends=min((one.proof.fewest_ends for one in found), default=0),
        environments=len(outline.env_ids),
        num_envs=num_envs,
        steps=min((one.batches for one in found), default=0) * batch_size // num_envs,
        of_steps=outline.batches * batch_size // num_envs,
        allowed=tuple(dict.fromkeys(text for one in found for text in one.proof.allowed)),
        mismatch=worst.mismatch,
        fault=worst.fault,
        reason=worst.reason or (NOTHING_COMPARED if nothing else None),
        invalid=next((one.proof.invalid for one in (*found, *begun) if one.proof.invalid), None),
    )
