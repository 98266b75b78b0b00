"""Compares recordings with the reference, in a process that loads no adapter.

``replay`` compares the recordings of measured cells. ``compare_trials`` compares the recordings that ``vebench verify``
made of a backend. The environments are divided among several processes. If cells stepped the same environments with
the same actions, they share the steps of the reference.
"""

from __future__ import annotations

import os
import random
import time
from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from multiprocessing import get_context
from time import perf_counter_ns
from typing import Any, NamedTuple, get_args

import numpy as np

from vebench.backends.environments.suites import SUITES
from vebench.backends.interface import Task
from vebench.backends.registry import find
from vebench.child.answers import CellProof, Mismatch, Proof, StepCosts, WorkVerdict
from vebench.child.equality import recording
from vebench.child.equality.distribution import judged
from vebench.child.equality.judge import SURVIVES, Followed, Judge, Reference, Row, Trajectory, alike, varies
from vebench.child.equality.recorder import Trial, trials_of
from vebench.child.equality.recording import About, Began, BrokenInterfaceError, CutOffError, Ended, Rows, read_records
from vebench.child.request import Judging, Replaying, Request
from vebench.machine import kernel

# Time for building and resetting environments whose first rows after a reset are compared. It limits their number.
_RESETS_NS = 2_000_000_000
_WORST_FIRST: tuple[WorkVerdict, ...] = get_args(WorkVerdict)[::-1]
# A name must explain the first row that differs, and later rows: _AFTER steps within LOOK_ON_S seconds, and more steps
# within _QUICK_S seconds.
_AFTER, LOOK_ON_S, _QUICK_S = 24, 10.0, 0.5
# Known faults by name. Each makes the backend's row from the reference's rows of a step and of the step before.
# Its further arguments are the environment and the step.
_Change = Callable[[Row, Row, Followed, int], Row]
_ALTERED: dict[str, _Change] = {
    "observations are one step stale": lambda now, before, *_: now._replace(observation=before.observation),
    "whole rows are one step late": lambda _now, before, *_: before,
    "rewards are one step stale": lambda now, before, *_: now._replace(reward=before.reward),
    "rewards are always 0": lambda now, *_: now._replace(reward=0.0),
    "rewards are clipped to their signs": lambda now, *_: now._replace(reward=float(np.sign(now.reward))),
    "rewards are clipped to [-1, 1]": lambda now, *_: now._replace(reward=float(np.clip(now.reward, -1, 1))),
    "rewards are rounded to float16": lambda now, *_: now._replace(reward=float(np.float16(now.reward))),
    "an end is not reported": lambda now, *_: now._replace(terminated=False, truncated=False),
    "terminated and truncated are swapped": lambda now, *_: now._replace(
        terminated=now.truncated, truncated=now.terminated
    ),
}


class _Judged(NamedTuple):
    """The proof of some environments, and the last batch that it covers."""

    proof: Proof
    reset: int  # number of the batch's reset, from 1
    batch: int  # number of the batch since its reset
    furthest: int  # the highest number of a batch that was compared
    times: Sequence[tuple[int, array[int]]] = ()  # for some environments, the number of batches and ``Followed.times``


@dataclass
class _Outline:
    """The contents of the recording ``path`` without its rows, as far as it can be read."""

    path: str
    about: About | None = None
    first_ids: set[int] = field(default_factory=set)  # environments with observations in the first batches of a reset
    env_ids: set[int] = field(default_factory=set)  # environments with observations in later batches
    resets: int = 0
    batch: int = -1  # number of the last batch since the last reset
    furthest: int = 0  # the highest number of a batch
    end: Ended | None = None  # None if the recording ends early or is damaged

    def __post_init__(self) -> None:
        for record in read_records(self.path):
            if isinstance(record, About):
                self.about = record
            elif isinstance(record, Began):
                self.batch, self.resets = -1, self.resets + 1
            elif isinstance(record, Rows):
                self.batch, self.furthest = record.number, max(self.furthest, record.number)
                ids = self.env_ids if record.number > recording.FIRST else self.first_ids
                ids.update(record.env_ids[record.shown].tolist())
            elif isinstance(record, Ended):
                self.end = record

    @property
    def all_ids(self) -> list[int]:
        """All environments with observations in the recording."""
        return sorted(self.first_ids | self.env_ids)


def replay(request: Request, job: Replaying) -> Iterator[CellProof]:
    """Compare each recording of ``job`` with the reference, and yield the result. The files are removed."""
    task = request.setup.task
    outlines = [_Outline(f"{job.path}/{each.name}") for each in job.recordings]
    chances = [find(each.backend).scope.chance(task) for each in job.recordings]
    families: dict[object, list[int]] = {}  # recordings whose environments have the same actions
    for number, outline in enumerate(outlines):
        if (about := outline.about) is not None and outline.end is not None and chances[number] is None:
            families.setdefault(about.info.autoreset if about.info.in_order else number, []).append(number)
    found: dict[int, list[_Judged]] = {}
    for number, outline in enumerate(outlines):
        about, end = outline.about, outline.end
        if about is None or end is None:
            proof = CellProof("unverified", reason="the recording is truncated")
        elif chances[number] is not None:
            verdict: WorkVerdict = "different" if end.fault else "unverified"
            proof = CellProof(verdict, fault=end.fault or None, reason=chances[number], impossible=True)
        else:
            if number not in found:
                family = next(members for members in families.values() if number in members)
                asked = [(outlines[each], job.recordings[each].seconds * 1e9) for each in family]
                ids = sorted({env_id for each, _ in asked for env_id in each.all_ids})
                shares = _in_parallel(partial(_followed, task, asked), ids)
                found |= {each: [share[at] for share in shares] for at, each in enumerate(family)}
            # Naming a fault may take a fifth of --timeout.
            proof = _of_cell(task, outline, about, found[number], end.fault, 0.2e9 * request.settings.timeout)
        os.unlink(outline.path)
        yield proof


def _followed(task: Task, asked: Sequence[tuple[_Outline, float]], ids: Sequence[int]) -> list[_Judged]:
    """Compare the rows of some environments in several recordings. Each recording has its own limit in nanoseconds."""
    drawn = ids
    if not all(outline.first_ids <= outline.env_ids for outline, _ in asked):
        began = perf_counter_ns()
        Reference(task).reset(0, 0)
        most = min(len(ids), max(1, _RESETS_NS // (perf_counter_ns() - began)))
        drawn = random.SystemRandom().sample(ids, most)  # no backend can predict this sample
    shared: dict[tuple[Any, ...], Trajectory] = {}
    found = []
    for outline, span_ns in asked:
        chosen = {*ids}.intersection(outline.end.chosen if outline.end else ())
        mine = {*ids} & outline.env_ids | ({*drawn} & outline.first_ids) | chosen
        found.append(_judged(outline.path, task, sorted(mine), span_ns=span_ns, shared=shared, chosen=chosen))
    return found


def _of_cell(
    task: Task, outline: _Outline, about: About, found: list[_Judged], fault: str, span_ns: float
) -> CellProof:
    """Return the proof of a recording, with the name of its fault. ``span_ns`` limits the steps to find the name."""
    whole = _merged([one.proof for one in _named(task, outline, found, span_ns)])
    names = "allowed", "fault", "invalid", "mismatch", "rows"
    if fault and whole.verdict != "different":  # even if the comparison stopped before the fault
        whole = replace(whole, verdict="different", mismatch=None, fault=fault, reason=None)
    nothing = not whole.rows and whole.verdict != "different"
    per_batch = about.info.batch_size / about.info.num_envs
    return CellProof(
        "unverified" if nothing else whole.verdict,
        ends=whole.fewest_ends,
        environments=len(outline.env_ids or outline.first_ids),
        num_envs=about.info.num_envs,
        steps=int(per_batch * min((one.furthest for one in found), default=0)),
        of_steps=int(per_batch * outline.furthest),
        reason=whole.reason or ("none of its rows could be compared" if nothing else None),
        costs=_costs([one for judged in found for one in judged.times]),
        **{name: getattr(whole, name) for name in names},
    )


def _costs(times: Sequence[tuple[int, array[int]]]) -> tuple[StepCosts, ...]:
    """Return the costs of each environment, given the number of its batches and the times of its rows."""
    each = [(batches, np.array(of_rows)) for batches, of_rows in times]
    steps = np.concatenate([of_rows[of_rows > 0] for _, of_rows in each] or [np.zeros(0)])
    slow = 2 * float(np.median(steps)) if len(steps) else 0.0
    found = []
    for batches, of_rows in each:
        if made := int(np.count_nonzero(of_rows > 0)):
            spent = np.abs(of_rows)
            late = int(np.count_nonzero(of_rows > slow))
            found.append(StepCosts(batches, made, late, round(spent.sum() / made), round(spent.std())))
    return tuple(found)


def compare_trials(request: Request, job: Judging) -> Proof:
    """Compare the recording of each trial with the reference, and return the result. The files are removed."""
    trials = trials_of(request, job)
    paths = [path for path in (f"{job.path}.{number}" for number in range(len(trials))) if os.path.exists(path)]
    reference = f"{job.path}.reference.0"
    proofs: list[Proof] = []
    place = f"while it was built {trials[0].words()}"
    try:
        for path, trial in zip(paths, trials):  # noqa: B905 - trials after a failure were not stepped
            outline, of = _Outline(path), trial.setup.task
            place = _place(outline, trial)
            if job.episodes:
                proof = judged(path, reference, of, str(request.entry.scope.chance(of)))
            else:
                found = _in_parallel(partial(_judged, path, of), outline.all_ids)
                proof = _merged([one.proof for one in _named(of, outline, found)])
            if outline.end is not None and outline.end.fault and proof.verdict != "different":
                proof = replace(proof, verdict="different", fault=outline.end.fault)
            if proofs and proof.verdict == "different" and proof.fault:
                proof = replace(proof, fault=f"{proof.fault} ({trial.words(outline.about)})")
            proofs.append(proof)
            if proof.verdict in ("different", "unverified"):
                break
    finally:
        for path in (*paths, reference):
            with suppress(FileNotFoundError):
                os.unlink(path)
    fewest = proofs[0].fewest_ends if proofs else 0  # the first trial has the user's layout
    merged = replace(_merged(proofs), fewest_ends=fewest)
    if merged.verdict == "different":
        faults = merged.fault, f"then it failed: {job.failed}" if job.failed else None
        return replace(merged, fault="; ".join(filter(None, faults)) or None)
    if job.failed and (merged.verdict != "unverified" or not merged.reason):
        return replace(merged, verdict="unverified", reason=f"{job.failed}, {place}", failed=True)
    return merged


def _place(outline: _Outline, trial: Trial) -> str:
    """Return in words how far the backend got: ``in step 3 after reset 1, with 2 environments``."""
    words = trial.words(outline.about)
    if outline.about is None:
        return f"while it was built {words}"
    if outline.end is not None:
        return f"while it was closed, {words}"
    step = f"in step {outline.batch + 1} after" if outline.batch >= 0 else "in"
    return f"{step} reset {outline.resets}, {words}" if outline.resets else f"before its first reset, {words}"


def _merged(proofs: Sequence[Proof]) -> Proof:
    """Merge the proofs of one backend. The result has the worst verdict and its mismatch."""
    worst = min(proofs, key=lambda proof: _WORST_FIRST.index(proof.verdict), default=Proof("unverified"))
    sums = {name: sum(getattr(proof, name) for proof in proofs) for name in ("rows", "ends", "cut_off", "excused")}
    firsts = {
        name: next(filter(None, (getattr(proof, name) for proof in (worst, *proofs))), getattr(worst, name))
        for name in ("reason", "engines", "own_classes", "invalid")
    }
    counted = [proof for proof in proofs if proof.simulated is not None]
    return replace(
        worst,
        **sums,
        **firsts,
        fewest_ends=min((proof.fewest_ends for proof in proofs), default=0),
        allowed=tuple(dict.fromkeys(text for proof in proofs for text in proof.allowed)),
        simulated=sum(proof.simulated or 0 for proof in counted) if counted else None,
        claimed=sum(proof.claimed or 0 for proof in counted) if counted else None,
    )


def _judged(
    path: str,
    task: Task,
    env_ids: Sequence[int],
    *,
    span_ns: float = inf,
    shared: dict[tuple[Any, ...], Trajectory] | None = None,
    in_full: bool = False,
    chosen: Collection[int] = (),
) -> _Judged:
    """Compare rows with the reference up to the first difference, or until its steps have taken ``span_ns``.

    With ``in_full``, also check that new references repeat the rows, and name the fault. Times are of ``chosen``.
    """
    judge, reason, fault, why = Judge(task, tuple(env_ids), shared), None, None, None
    records = read_records(path)
    try:
        _take(judge, records, span_ns)
    except BrokenInterfaceError as error:
        fault = str(error)
    except CutOffError as error:
        reason = str(error)
    place = len(judge.seeds), judge.batch, judge.furthest
    if in_full and judge.mismatch is not None:
        why = None if SUITES[task.suite].ours else judge.followed[judge.mismatch.env_id].unrepeatable()
        if why is None:
            name = _name_fault(judge, judge.mismatch, records)
            names = name, judge.info.chance and f"its adapter says: {judge.info.chance}"
            fault = "; ".join(filter(None, names)) or None
        else:
            judge.mismatch, reason = None, f"{why}{_alike(judge)}"
    if reason is not None and not (why == SURVIVES and len(judge.seeds) > 1):
        return _Judged(Proof("unverified", reason=reason), *place)
    proof = judge.proof()
    if fault is not None:
        proof = replace(proof, verdict="different", fault=fault)
    times = []
    for env_id, followed in judge.followed.items():
        if env_id not in chosen or len(judge.seeds) > 1:
            continue
        with suppress(CutOffError):  # rows of a slow environment are rarely recorded, so step it to the last batch
            followed.go_to(judge.batch, ())
        times.append((judge.batch + 1, followed.times))
    return _Judged(replace(proof, reason=reason), *place, times)


def _alike(judge: Judge) -> str:
    """Return in words whether environments start alike although references do not; empty if not."""
    starts = [(of.found[0].observation, of.expected.get(0)) for of in judge.followed.values() if 0 in of.found]
    pairs = [(seen, due.observation) for seen, due in starts if seen and due]
    fewer = len({seen for seen, _ in pairs}) < len({due for _, due in pairs})
    return "; environments start alike, although their seeds differ" if fewer else ""


def _take(judge: Judge, records: Iterator[recording.Record], span_ns: float) -> None:
    """Let a judge compare records up to the first difference. After ``span_ns``, skip batches to the next reset."""
    first_ns, is_over = None, False
    for record in records:
        is_over = is_over and not isinstance(record, Began)
        if isinstance(record, Rows) and record.number > recording.FIRST and not is_over:
            first_ns = judge.spent_ns if first_ns is None else first_ns
            is_over = judge.spent_ns - first_ns > span_ns
        if not is_over:
            judge.take(record)
        if judge.mismatch is not None:
            return


def _named(task: Task, outline: _Outline, found: list[_Judged], span_ns: float = inf) -> list[_Judged]:
    """Name the fault of the first result that differs, or state why its rows are not repeatable. Return all results.

    Up to eight environments are followed together. Some faults need several, such as one row returned for all.
    """
    wrong = [(one.proof.mismatch.env_id, one) for one in found if one.proof.mismatch is not None]
    if not wrong:
        return found
    env_id, first = min(wrong, key=lambda each: (each[1].reset, each[1].batch))
    among = sorted(outline.env_ids) if first.batch > recording.FIRST else outline.all_ids
    ids = sorted((env_id, *[other for other in among if other != env_id][:7]))
    span_ns = 0 if first.reset > 1 and span_ns < inf else span_ns  # go to the reset that differs
    again = _judged(outline.path, task, ids, span_ns=span_ns, in_full=True)
    rest = [one for one in found if one is not first]
    reached = (again.reset, again.batch) >= (first.reset, first.batch) and again.proof.verdict != "different"
    if reached and again.proof.reason is None:  # equal if followed with others, different alone
        again = again._replace(proof=Proof("unverified", reason=varies()))
    if again.proof.mismatch is None and again.proof.reason is not None:
        # If one environment is not repeatable, others need not be repeatable either.
        return [again, *(one for one in rest if one.proof.mismatch is None)]
    named = again if again.proof.mismatch is not None else first
    return [named._replace(proof=replace(first.proof, fault=named.proof.fault, mismatch=named.proof.mismatch)), *rest]


def _in_parallel(work: Any, items: Sequence[int]) -> list[Any]:
    """Divide the items into at most one part for each usable CPU. Return the results of all parts.

    Each part has a process of its own: an environment made here may start a thread, which later forks would lose.
    """
    count = min(len(items), len(kernel.allowed() or (0,)))
    if not count:
        return []
    parts = [items[number::count] for number in range(count)]
    with ProcessPoolExecutor(count, get_context("fork")) as pool:
        return [*pool.map(work, parts)]


def _name_fault(judge: Judge, mismatch: Mismatch, records: Iterator[recording.Record]) -> str | None:
    """Return the names of the known faults that predict the rows of all environments, None if none does.

    ``records``: the records after the first row that differs. A prediction must hold from this row on. If it does not
    hold for the rows before, the name states the step. If it holds for one environment and the rows of others are
    right, the name states the environment.
    """
    if mismatch.field == "frames":
        return f"simulates {mismatch.found} frames but claims {mismatch.expected}"
    if mismatch.field == "ends":
        return f"reports {mismatch.found} ends of episodes instead of {mismatch.expected}"
    followed, step, began = judge.followed[mismatch.env_id], mismatch.step, time.monotonic()
    with suppress(CutOffError, BrokenInterfaceError):  # the rows before suffice
        while time.monotonic() < began + (LOOK_ON_S if followed.step < step + _AFTER else _QUICK_S):
            record = next(records, None)
            if record is None or isinstance(record, (Began, Ended)):
                break
            judge.take(record)
    others = {each: _first_wrong(each) for each in judge.followed.values() if each is not followed}
    always, later = list[str](), list[str]()
    for name, change in _changes(judge, followed, step).items():
        if _first_wrong(followed, change, step) is not None:
            continue
        wrong = [_first_wrong(other, change, step if since is None else since) for other, since in others.items()]
        if any(at is not None for at in wrong):
            if any(since is not None for since in others.values()):
                continue
            name = f"in environment {followed.env_id} {name}"  # noqa: PLW2901 - rows of the others are right
        (always if _first_wrong(followed, change) is None else later).append(name)
    if always or later:
        return " or ".join(always) or f"from step {step} on {' or '.join(later)}"
    return f"wrong since a later reset, with seed {judge.seeds[-1]}" if step == 0 and len(judge.seeds) > 1 else None


def _first_wrong(of: Followed, change: _Change = lambda now, *_: now, since: int = 0) -> int | None:
    """Return the first step from ``since`` on that a fault does not predict, by default without any fault."""
    for at, row in of.found.items():
        now = of.expected.get(at)
        if at >= since and now is not None and not _is(change(now, of.expected.get(at - 1) or now, of, at), row, now):
            return at
    return None


def _changes(judge: Judge, followed: Followed, step: int) -> dict[str, _Change]:
    """Return faults by name that may explain a difference in ``step`` of an environment."""
    changes = dict(_ALTERED)
    first, now = followed.found[step], followed.expected.get(step)
    later = [row for at, row in followed.expected.items() if at >= step and at in followed.found]
    if now is not None and len(later) > 1:  # a single row would always fit
        gap, factor = first.reward - now.reward, first.reward / (now.reward or np.nan)
        changes[f"rewards are off by {gap:.6g}"] = lambda now, *_: now._replace(reward=now.reward + gap)
        if factor:  # With factor 0, the fault has a name already.
            changes[f"rewards are multiplied by {factor:.6g}"] = lambda now, *_: now._replace(
                reward=now.reward * factor
            )
    shown = {env_id: each.found[step].observation for env_id, each in judge.followed.items() if step in each.found}
    if len({row.observation for row in later}) > 1:
        changes["observations never change"] = lambda now, _, of, __: now._replace(
            observation=shown.get(of.env_id) or now.observation
        )
    seen = {observation for observation in shown.values() if observation}
    for other in judge.followed.values():
        if other is followed or (row := other.expected.get(step)) is None:
            continue
        by_all = len(shown) > 1 and seen == {row.observation}

        def swapped(now: Row, _: Row, of: Followed, at: int, *, other: Followed = other, by_all: bool = by_all) -> Row:
            if of is followed or by_all:
                now = of.found[at]._replace(observation=(other.expected.get(at) or now).observation)
            return now

        words = (
            "every environment returns row"
            if by_all
            else f"environment {followed.env_id} returns the rows of environment"
        )
        changes[f"{words} {other.env_id}"] = swapped
    return changes


def _is(predicted: Row, found: Row, expected: Row) -> bool:
    """Return whether a digested row is as predicted. Rewards may differ by 1 % of the difference to be explained."""
    seen = predicted.observation if found.observation else b""  # some rows have no recorded observation
    if not alike(predicted._replace(reward=found.reward, observation=seen), found):
        return False
    most = 0.01 * abs(found.reward - expected.reward)
    return bool(np.isclose(predicted.reward, found.reward, 1e-7, most if np.isfinite(most) else 0.0, equal_nan=True))
