"""``overlap``: whether environments should step while the policy acts, with as many of them alive either way."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vebench.errors import one_line
from vebench.reports import figures
from vebench.reports.conclusion import Conclusion
from vebench.reports.document import Table, TableRow, Text
from vebench.studies.pairs import LEGEND, Pair, lacking, pairs
from vebench.studies.study import PLAN, Part, Study

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.studies.study import Measured

BACKENDS = ("shm-sync", "shm-half", "shm-async", "envpool-sync", "envpool-async[ratio=2]")
# Those that wait for all have twice as many environments for each worker as the others have: then as many are alive.
HALF, WHOLE = 8, 16
HOW = {"half": "two halves in turn", "any": "whatever is ready"}


def conclude(runs: Sequence[Measured]) -> Conclusion:
    """Return what two halves in turn, and whatever is ready, gain over waiting for all."""
    every = pairs((run, cell, base) for run in runs for cell in run.cells for base in _waits_for_all(run, cell))
    decided = [pair for pair in every if pair.decided]
    return Conclusion(
        headline=_headline(every),
        decided=bool(decided),
        tables=tuple(_tables(every)),
        why=tuple(_why(every)),
        undecided=(
            *(f"{_name(pair)}: {pair.words}" for pair in every if pair.verdict == "not decided"),
            *lacking(every),
        ),
        legend=(
            *LEGEND,
            "ratio: the rate over that of the same library when it waits for all of as many environments.",
            "waiting: the share of time in which the policy had nothing to do, when waiting for all and like this.",
            "at most: what there is to gain if environments and policy were as fast and never waited for each other.",
            "age: how often the policy has acted between choosing an action and getting its row.",
        ),
    )


def _waits_for_all(run: Measured, cell: CellSummary) -> Iterator[CellSummary]:
    """Yield the cell of the same library that waits for all of as many environments, with as many workers."""
    if cell.entry.overlap == "none":
        return
    for other in run.cells:
        like = (other.env, other.workers, other.num_envs, _library(other))
        waits = other.entry.overlap == "none" and not other.reference_row
        if waits and like == (cell.env, cell.workers, cell.num_envs, _library(cell)):
            yield other


def _library(cell: CellSummary) -> str:
    return cell.backend.partition("-")[0]


def _headline(found: Sequence[Pair]) -> str:
    known = [pair for pair in found if pair.ratio is not None]
    if not known:
        return "Not decided: no two backends with as many environments alive have a rate."
    parts = [part for policy in dict.fromkeys(map(_policy, known)) if (part := _of_policy(policy, known))]
    return " ".join(parts) or "Not decided: nothing was faster or slower than waiting for all beyond doubt."


def _of_policy(policy: str, known: Sequence[Pair]) -> str:
    """Return what gains most over waiting for all with one policy, or that nothing does."""
    here = [pair for pair in known if _policy(pair) == policy]
    faster = [pair for pair in here if pair.verdict == "faster"]
    slower = [pair for pair in here if pair.verdict == "slower"]
    if faster:
        best = max(faster, key=_median)
        what = f"{_how(best)} ({one_line(best.one.label)}, {best.where})"
        return f"With {policy}, {what} is {best.words} than waiting for all."
    if slower:
        worst = min(slower, key=_median)
        return (
            f"With {policy}, waiting for all is as good or better: {_how(worst)} ({one_line(worst.one.label)}, "
            f"{worst.where}) is {worst.words}."
        )
    return ""


def _how(pair: Pair) -> str:
    return HOW[pair.one.entry.overlap]


def _policy(pair: Pair) -> str:
    return one_line(pair.run.spec.policy)


def _median(pair: Pair) -> float:
    return pair.ratio.median if pair.ratio is not None else 1.0


def _name(pair: Pair) -> str:
    return f"{one_line(pair.one.label)}, {pair.where}, {_policy(pair)}"


def _why(found: Sequence[Pair]) -> Iterator[str]:
    """Yield for each policy and environment how much there is to gain, by where the time goes in waiting for all."""
    said = set()
    for pair in found:
        most, place = _at_most(pair), (pair.base.label, pair.where, _policy(pair))
        if most is None or pair.base.acting is None or pair.ratio is None or place in said:
            continue
        said.add(place)
        yield (
            f"{_title(pair)}: {one_line(pair.base.label)} waits for environments {pair.base.acting.waiting:.0%} of "
            f"the time, so {most:.2f}x is the most to gain if neither waited for the other."
        )


def _at_most(pair: Pair) -> float | None:
    """Return by how much the loop is faster if waiting and acting go on side by side, and last as long as before."""
    acting = pair.base.acting
    return None if acting is None else 1 / max(acting.waiting, 1 - acting.waiting)


def _tables(found: Sequence[Pair]) -> Iterator[Table]:
    for title in dict.fromkeys(map(_title, found)):
        yield Table(
            title=title,
            corner="backend",
            columns=("ratio", "waiting", "at most", "age"),
            rows=tuple(
                TableRow(f"{one_line(pair.one.label)}: {_how(pair)}", tuple(_facts(pair)))
                for pair in found
                if _title(pair) == title
            ),
            group=title,
        )


def _title(pair: Pair) -> str:
    """Return what is the same for both of a pair: task, workers, environments alive, policy."""
    workers = figures.counted(pair.one.workers, "worker")
    env, alive = pair.where.partition(",")[0], figures.counted(pair.one.num_envs, "environment")
    return f"{env}, {workers}, {alive} alive, {_policy(pair)}"


def _facts(pair: Pair) -> Iterator[Text]:
    before, after, most = pair.base.acting, pair.one.acting, _at_most(pair)
    yield pair.text
    if before is None or after is None or most is None:
        yield from (Text((figures.NOTHING,), "missing"),) * 3
        return
    yield Text((f"{before.waiting:.0%}, then {after.waiting:.0%}",), value=after.waiting)
    yield Text((f"{most:.2f}x",), value=most)
    yield Text((f"{after.age:.1f}",), value=after.age)


def _part(name: str, env: str, policy: str) -> Part:
    return Part(name, replace(PLAN, envs=(env,), envs_per_worker=(HALF, WHOLE), policy=policy), BACKENDS)


STUDY = Study(
    name="overlap",
    question="Should environments step while the policy acts: none of them, half of them, or whatever is not ready?",
    parts=(
        _part("sleep", "HalfCheetah", "sleep:1ms"),
        _part("small", "HalfCheetah", "mlp:64x64"),
        _part("pictures", "Pong", "nature-cnn"),
    ),
    conclude=conclude,
)
