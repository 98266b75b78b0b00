"""Compares recordings with the reference, in a process that loads no adapter.

``replay`` compares what measured cells have recorded, ``prove`` what ``vebench verify`` has recorded of a backend.
Several processes share the work: each follows some of the environments. Where cells have stepped the same environments
with the same actions, the reference makes these steps once.
"""

from __future__ import annotations

import contextlib
import os
import random
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from vebench.backends import trees
from vebench.backends.registry import find
from vebench.child.answers import CellProof, Proof
from vebench.child.equality import layouts
from vebench.child.equality.following import FaultError
from vebench.child.equality.judge import MOST_SHARE, Judge, too_many_excused
from vebench.child.equality.naming import LOOK_ON_S, name_fault
from vebench.child.equality.recording import About, Began, CutOffError, Ended, Rows, read
from vebench.child.equality.reference import SURVIVES, Known, Reference
from vebench.machine import pinning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from vebench.backends.interface import Task
    from vebench.child.answers import WorkVerdict
    from vebench.child.equality.layouts import Trial
    from vebench.child.equality.recording import Record
    from vebench.child.request import Judging, Replaying, Request

    _Ids = tuple[int, ...]

_T = TypeVar("_T")
_R = TypeVar("_R")

# Rows after a reset are compared for as many environments as can be built and reset within _RESETS_NS. After
# _BEGINNINGS_NS, only the rows of the resets themselves are compared.
_RESETS_NS, _BEGINNINGS_NS = 2_000_000_000, 500_000_000
_TOGETHER = 8  # environments that are followed together to name a fault
# Share of --timeout after which the search for a name ends, so that results are reported in time.
_MOST_OF_TIMEOUT = 0.8
_WORST_FIRST: tuple[WorkVerdict, ...] = ("different", "unverified", "equivalent", "equal", "identical")
_NOT_SAME = _WORST_FIRST[:2]
_NOTHING_COMPARED = "none of its rows could be compared"
_BROKE_OFF = "its rows ended early"


class _Judged(NamedTuple):
    """The proof of some environments, and where it ends."""

    proof: Proof
    reset: int = 0  # counted from 1
    batch: int = -1  # since that reset

    @property
    def differs(self) -> bool:
        """Whether a row differs."""
        return self.proof.verdict == "different"


@dataclass
class _Outline:
    """The contents of a recording, without its rows.

    The last history has the measured steps. Earlier histories are short, and begin with resets.
    """

    path: str
    about: About | None = None
    env_ids: set[int] = field(default_factory=set)  # whose observations the last history has
    first_ids: set[int] = field(default_factory=set)  # whose observations the histories before have
    histories: int = 0
    batch: int = -1  # the last
    fault: str | None = None
    is_over: bool = False  # whether nothing was left to do but to close the backend
    cut_off: str | None = None  # why the recording breaks off
    timed_rows: int = 0

    @classmethod
    def of(cls, path: str, rows: Sequence[int] = ()) -> _Outline:
        """Return the outline of a recording whose windows claim these numbers of rows, as far as it can be read."""
        found = cls(path)
        with open(path, "rb") as file:
            try:
                for record in read(file):
                    found.add(record, rows)
            except CutOffError as error:
                found.cut_off = str(error)
        return found

    def add(self, record: Record, rows: Sequence[int]) -> None:
        """Take the next record."""
        if isinstance(record, About):
            self.about = record
        elif isinstance(record, Began):
            self.first_ids |= self.env_ids
            self.env_ids, self.batch, self.histories = set(), -1, self.histories + 1
        elif isinstance(record, Rows):
            self.env_ids.update(record.env_ids[record.shown].tolist())
            self.batch = record.number
        elif isinstance(record, Ended):
            self.is_over = True
            size = 1 if self.about is None or self.about.fewest_rows is not None else self.about.batch_size
            returned = [count * size for count in record.windows]
            self.fault, self.timed_rows = record.fault or _miscounted(returned, rows), sum(returned)

    @property
    def resets(self) -> range:
        """The numbers of the histories before the last."""
        return range(self.histories - 1)

    @property
    def last(self) -> range:
        """The number of the last history."""
        return range(self.histories - 1, self.histories)


def _miscounted(returned: Sequence[int], claimed: Sequence[int]) -> str | None:
    for rows, count in zip(returned, claimed):  # noqa: B905 - not all may be known
        if count != rows:
            return f"rows were counted but not returned: {count:,} in a window with {rows:,}"
    return None


# By the task and how environments reset themselves: nanoseconds to make and reset a reference, and idle references.
_idle: dict[tuple[Task, str | None], tuple[int, list[Reference]]] = {}


def replay(request: Request, job: Replaying, clock: Callable[[], int]) -> Iterator[CellProof]:
    """Compare each recording of ``job`` with the reference, and yield the result. The files are removed."""
    task = request.setup.task
    chances = [find(each.backend).scope.chance(task) for each in job.recordings]
    outlines = [_Outline.of(f"{job.path}/{each.name}", each.rows) for each in job.recordings]
    spans = [int(each.seconds * 1e9) for each in job.recordings]
    work = _work(outlines, chances)
    asked = [([(outlines[number], spans[number]) for number in members], share) for members, share in work]
    coming = zip(work, _in_parallel(partial(_followed, task, clock), asked))  # noqa: B905 - of equal length
    found: list[list[list[_Judged]]] = [[] for _ in outlines]
    for number, outline in enumerate(outlines):
        named_until = clock() + int((_MOST_OF_TIMEOUT * request.settings.timeout - LOOK_ON_S) * 1e9)
        shares = sum(number in members for members, _ in work)
        while len(found[number]) < shares:
            (members, _), results = next(coming)
            for member, result in zip(members, results, strict=True):
                found[member].append(result)
        verdict: WorkVerdict = "unverified" if outline.fault is None else "different"
        if outline.about is None or outline.cut_off is not None:
            proof = CellProof("unverified", reason=outline.cut_off)
        elif chances[number] is not None:
            proof = CellProof(verdict, fault=outline.fault, reason=chances[number], impossible=True)
        else:
            follow, until = partial(_judged, outline.path, task), _Until(clock, named_until - clock())
            proof = _compared(outline, outline.about, found[number], follow, until)
        os.unlink(outline.path)
        yield replace(proof, timed_rows=outline.timed_rows)


def _work(outlines: Sequence[_Outline], chances: Sequence[str | None]) -> list[tuple[list[int], _Ids]]:
    """Return the groups of environments that are followed together, by the numbers of recordings.

    Where rows are in order, an environment has the same actions in all recordings.
    """
    families: dict[object, list[int]] = {}
    for number, (outline, chance) in enumerate(zip(outlines, chances, strict=True)):
        if (about := outline.about) is not None and outline.cut_off is None and chance is None:
            families.setdefault(str(about.autoreset) if about.in_order else number, []).append(number)
    work: list[tuple[list[int], _Ids]] = []
    for members in families.values():
        ids: set[int] = set()
        for number in members:
            ids |= outlines[number].env_ids | outlines[number].first_ids
        work += ((members, share) for share in _shares(sorted(ids)))
    return work


def _followed(
    task: Task, clock: Callable[[], int], asked: tuple[Sequence[tuple[_Outline, int]], _Ids]
) -> list[list[_Judged]]:
    """Compare the rows of some environments in several recordings.

    Rows after resets come first, of as many environments as there is time for. If these are right, the measured steps
    follow, each recording's for its number of nanoseconds.
    """
    recordings, ids = asked
    autoreset = next(outline.about.autoreset for outline, _ in recordings if outline.about is not None)
    if (task, autoreset) not in _idle:
        began = clock()
        made = [Reference(task, 0, seed=0, same_step=autoreset == "same_step")]
        _idle[task, autoreset] = max(1, clock() - began), made
    took, spare = _idle[task, autoreset]
    known = Known(clock, spare) if len(recordings) > 1 else None
    now = clock if known is None else known.clock
    order = random.SystemRandom().sample(ids, len(ids))  # which are left out is unpredictable

    def follow(path: str, histories: range, env_ids: Sequence[int], span_ns: int, **how: Any) -> _Judged:
        try:
            judged = partial(_judged, path, task, histories, tuple(env_ids), **how)
            found = judged(is_wanted=_Until(now, span_ns), known=known, spare=spare)
            # Environments that resets do not make as good as new need references that nothing has stepped.
            return judged(is_wanted=_Until(clock, span_ns)) if found.proof.reason else found
        except CutOffError as error:
            return _Judged(Proof("unverified", reason=str(error)))

    found: list[list[_Judged]] = []
    for outline, span_ns in recordings:
        first = [env_id for env_id in order if env_id in outline.first_ids][: max(1, _RESETS_NS // took)]
        shown = [env_id for env_id in ids if env_id in outline.env_ids]
        results = [follow(outline.path, outline.resets, first, _BEGINNINGS_NS, most_share=1.0)]
        # A fault that began late shows in the rows of the second reset, too, but has its name where it began.
        if shown and (not results[0].differs or results[0].reset > 1):
            results.append(follow(outline.path, outline.last, shown, span_ns, of_steps=True))
        found.append(results)
    spare += [] if known is None else known.there.values()
    return found


def _compared(
    outline: _Outline, about: About, shares: Sequence[list[_Judged]], follow: Callable[..., _Judged], until: _Until
) -> CellProof:
    """Return the proof of a recording, with the name of its fault, which is sought ``until`` then."""
    begun = [share[0] for share in shares]
    found = [one for share in shares for one in share[1:]]
    if any(one.differs and one.reset <= 1 for one in begun):
        found = []
    env_ids, first_ids = tuple(sorted(outline.env_ids)), tuple(sorted(outline.first_ids))
    found = _named(found, env_ids, partial(follow, outline.last, is_wanted=until, of_steps=True))
    if not any(one.differs for one in found):
        begun = _named(begun, first_ids, partial(follow, outline.resets, most_share=1.0))
        first = begun[0].proof if begun else Proof("unverified")
        # A name explains later rows, too. A name of observations may need environments that are not shown there.
        if first.mismatch is not None and first.mismatch.field != "observations" and env_ids:
            later = follow(outline.last, env_ids[:_TOGETHER], is_wanted=until, of_steps=True).proof
            if later.mismatch is not None and later.fault is None:
                begun[0] = begun[0]._replace(proof=replace(first, fault=None))
    fewest_ends = min((one.proof.fewest_ends for one in found), default=0)
    whole = _merged([one.proof for one in (*found, *begun)], fewest_ends)
    if whole.verdict != "different" and outline.fault is not None:  # even if the comparison did not get so far
        whole = replace(whole, verdict="different", mismatch=None, fault=outline.fault, reason=None)
    nothing = whole.verdict != "different" and not any(one.proof.rows for one in found)
    return CellProof(
        "unverified" if nothing else whole.verdict,
        rows=whole.rows,
        ends=whole.fewest_ends,
        environments=len(env_ids),
        num_envs=about.num_envs,
        steps=max(0, min((one.batch for one in found), default=0)) * about.batch_size // about.num_envs,
        of_steps=max(0, outline.batch) * about.batch_size // about.num_envs,
        allowed=whole.allowed,
        mismatch=whole.mismatch,
        fault=whole.fault,
        reason=whole.reason or (_NOTHING_COMPARED if nothing else None),
        invalid=whole.invalid,
    )


def prove(request: Request, job: Judging) -> Proof:
    """Compare the recording of each trial with the reference, and return the result. The files are removed."""
    planned = layouts.planned(request, job)
    paths = [f"{job.path}.{number}" for number in range(len(planned))]
    paths = [path for path in paths if os.path.exists(path)]
    so_far, place = Proof("unverified"), f"while it was built {planned[0].words()}"
    failed, whole = job.failed, 0  # a backend's own claim to be done does not count
    try:
        for path, trial in zip(paths, planned):  # noqa: B905 - trials after a failure were not stepped
            outline = _Outline.of(path)
            place, whole = _place(outline, trial), whole + outline.is_over
            env_ids = tuple(sorted(outline.first_ids | outline.env_ids))
            task = trial.setup(request.setup).task
            follow = partial(_judged, path, task, range(outline.histories), most_share=1.0)  # a trial may be short
            found = _named([*_in_parallel(follow, _shares(env_ids))], env_ids, follow)
            proof = _merged([one.proof for one in found], min((one.proof.fewest_ends for one in found), default=0))
            if outline.fault is not None and proof.verdict != "different":
                proof = replace(proof, verdict="different", fault=outline.fault)
            if path != paths[0] and proof.verdict == "different" and proof.fault:
                proof = replace(proof, fault=f"{proof.fault} ({trial.words(outline.about)})")
            so_far = proof if path == paths[0] else _merged([so_far, proof], so_far.fewest_ends)
            if so_far.verdict in _NOT_SAME:
                break
    finally:
        for path in paths:
            os.unlink(path)
    if so_far.verdict == "different":
        faults = (so_far.fault, f"then it failed: {failed}" if failed else None)
        return replace(so_far, fault="; ".join(filter(None, faults)) or None)
    if (so_far.verdict not in _NOT_SAME or not so_far.reason) and (failed or whole < len(planned)):
        return replace(so_far, verdict="unverified", reason=f"{failed or _BROKE_OFF}, {place}", failed=True)
    if so_far.verdict != "equivalent" or so_far.excused <= MOST_SHARE * so_far.rows:
        return so_far
    fault = too_many_excused(so_far.excused / so_far.rows, MOST_SHARE)
    return replace(so_far, verdict="different", fault=fault)


def _place(outline: _Outline, trial: Trial) -> str:
    """Return how far a backend is, in words: ``in step 3 after reset 1, with 2 environments``."""
    words = trial.words(outline.about)
    if outline.about is None:
        return f"while it was built {words}"
    if outline.is_over:
        return f"while it was closed, {words}"
    if not outline.histories:
        return f"before its first reset, {words}"
    if outline.batch < 0:
        return f"in reset {outline.histories}, {words}"
    return f"in step {outline.batch + 1} after reset {outline.histories}, {words}"


def _merged(proofs: Sequence[Proof], fewest_ends: int) -> Proof:
    """Return proofs of one backend as one, with the worst verdict and its mismatch."""
    worst = min(proofs, key=lambda proof: _WORST_FIRST.index(proof.verdict), default=Proof("unverified"))
    counted = [proof for proof in proofs if proof.simulated is not None and proof.claimed is not None]
    return replace(
        worst,
        reason=worst.reason or next((proof.reason for proof in proofs if proof.reason), None),
        rows=sum(proof.rows for proof in proofs),
        ends=sum(proof.ends for proof in proofs),
        cut_off=sum(proof.cut_off for proof in proofs),
        excused=sum(proof.excused for proof in proofs),
        fewest_ends=fewest_ends,
        allowed=tuple(dict.fromkeys(text for proof in proofs for text in proof.allowed)),
        engines=next((proof.engines for proof in proofs if proof.engines), ()),
        own_classes=next((proof.own_classes for proof in proofs if proof.own_classes), None),
        simulated=sum(proof.simulated or 0 for proof in counted) if counted else None,
        claimed=sum(proof.claimed or 0 for proof in counted) if counted else None,
        frames_from=counted[0].frames_from if counted else None,
        invalid=next((proof.invalid for proof in proofs if proof.invalid), None),
    )


class _Until:
    """Whether rows are wanted: for ``span`` nanoseconds, without the time in which environments are built.

    Environments are built between the first call and the second. The rows of a reset are always wanted.
    """

    def __init__(self, clock: Callable[[], int], span: int) -> None:
        self._clock, self._span = clock, span
        self._asked = self._deadline = 0

    def __call__(self, rows: Rows) -> bool:
        if self._asked <= 1:
            self._asked += 1
            self._deadline = self._clock() + self._span
        return not rows.number or self._clock() <= self._deadline


def _judged(  # noqa: PLR0913 - what is compared, and how
    path: str,
    task: Task,
    histories: range,
    env_ids: _Ids,
    *,
    is_wanted: Callable[[Rows], bool] = lambda _: True,
    most_share: float = MOST_SHARE,
    of_steps: bool = False,
    known: Known | None = None,
    spare: list[Reference] | None = None,
) -> _Judged:
    """Compare the rows of these environments with the reference, up to the first difference, and name that.

    ``spare``: references that may be used. A used reference comes back to it if there is no difference.

    Raises CutOffError for records that cannot be of one recording, and whatever the reference raises.
    """
    judge = Judge(task, most_share=most_share, of_steps=of_steps, known=known, spare=spare)
    with open(path, "rb") as file:
        records = _chosen(read(file), histories, env_ids, is_wanted)
        try:
            for record in records:
                judge.take(record)
                if judge.mismatch is not None:
                    break
        except FaultError as error:
            proof = replace(judge.proof(), verdict="different", fault=str(error))
            return _Judged(proof, len(judge.seeds), judge.batch)
        found = _Judged(judge.proof(), len(judge.seeds), judge.batch)
        if judge.mismatch is None:
            judge.leave()
            return found
        if (why := judge.unrepeatable()) is not None:
            judge.mismatch = None
            compared = why == SURVIVES and len(judge.seeds) > 1
            proof = replace(judge.proof(), reason=why) if compared else Proof("unverified", reason=why)
            return found._replace(proof=proof)
        chance = judge.about.chance
        names = [name_fault(judge, records), None if chance is None else f"its adapter says: {chance}"]
        return found._replace(proof=replace(found.proof, fault="; ".join(filter(None, names)) or None))


def _chosen(
    records: Iterator[Record], histories: range, env_ids: _Ids, is_wanted: Callable[[Rows], bool]
) -> Iterator[Record]:
    """Yield the records of these histories up to where they break off, with the observations of these environments."""
    history = -1
    with contextlib.suppress(CutOffError):
        for record in records:
            history += isinstance(record, Began)
            if history >= histories.stop:
                return
            if history not in (-1, *histories):
                continue
            if not isinstance(record, Rows):
                yield record
            elif is_wanted(record):
                wanted = np.isin(record.env_ids[record.shown], env_ids)
                observations = trees.part(record.observations, wanted)
                yield replace(record, shown=record.shown[wanted], observations=observations)


def _named(found: list[_Judged], env_ids: _Ids, judged: Callable[[_Ids], _Judged]) -> list[_Judged]:
    """Return the results, with the name of the first fault, for which more environments are followed together.

    Some faults, such as one row that stands for all, only show there.
    """
    wrong = [(one.proof.mismatch.env_id, one) for one in found if one.proof.mismatch is not None]
    if not wrong:
        return found
    env_id, first = min(wrong, key=lambda each: (each[1].reset, each[1].batch))
    others = [other for other in env_ids if other != env_id][: _TOGETHER - 1]
    with contextlib.suppress(CutOffError):
        again = judged(tuple(sorted((env_id, *others))))
        if again.proof.mismatch is not None:
            named = replace(first.proof, fault=again.proof.fault, mismatch=again.proof.mismatch)
            return [again._replace(proof=named), *(one for one in found if one is not first)]
    return found


def _shares(items: Sequence[_T]) -> list[tuple[_T, ...]]:
    """Return the items in one part for each free CPU."""
    count = min(len(items), len(pinning.allowed() or (0,)))
    return [tuple(items[number::count]) for number in range(count)]


def _in_parallel(work: Callable[[_T], _R], items: Sequence[_T]) -> Iterator[_R]:
    """Yield the result of each item, in this order. As many processes work as there are CPUs that are free."""
    count = len(_shares(items))
    if count <= 1:
        yield from map(work, items)
        return
    with ProcessPoolExecutor(count, get_context("fork")) as pool:
        yield from pool.map(work, items)
