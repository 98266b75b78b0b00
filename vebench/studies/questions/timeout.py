"""``timeout``: whether it pays to receive what is there after a short time, instead of waiting for all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vebench.errors import one_line
from vebench.plan.overlapping import FEWEST, TIMEOUT
from vebench.reports import figures
from vebench.reports.conclusion import Conclusion
from vebench.reports.document import Table, TableRow, Text
from vebench.studies.pairs import LEGEND, Pair, lacking, pairs
from vebench.studies.study import PLAN, Part, Study

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.studies.study import Measured

SECONDS = ("0.0001", "0.001", "0.1")
# All environments alive are in a whole batch, so that those that wait for one and those that do not have as many.
QUEUE, SHARED = "queue", "shm-async[ratio=1"
BACKENDS = (
    QUEUE,
    *(f"{QUEUE}[{TIMEOUT}={seconds}]" for seconds in SECONDS),
    f"{SHARED}]",
    *(f"{SHARED},{TIMEOUT}={seconds}]" for seconds in SECONDS),
)
NARROW, WIDE = 20, 400  # environments of a worker


def conclude(runs: Sequence[Measured]) -> Conclusion:
    """Return where a timeout pays, by how much, and what the time went into."""
    every = pairs((run, cell, base) for run in runs for cell in run.cells for base in _whole(run, cell))
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
            "ratio: the rate over that of the same backend without a timeout, which waits for all environments.",
            "waiting: the share of time in which the policy had nothing to do, without a timeout and with it.",
            "rows: how many rows a batch has with the timeout, the mean, of how many there are.",
            "late: how much longer than usual one batch in a hundred takes without a timeout, by how uneven steps are.",
        ),
    )


def _whole(run: Measured, cell: CellSummary) -> Iterator[CellSummary]:
    """Yield the cell of the same backend that waits for all, if this one has a timeout."""
    if TIMEOUT in cell.options:
        options = {name: value for name, value in cell.options.items() if name not in (TIMEOUT, FEWEST)}
        key = replace(cell.key, backend=replace(cell.choice, options=options).label)
        yield from (other for other in run.cells if other.key == key)


def _headline(found: Sequence[Pair]) -> str:
    known = [pair for pair in found if pair.ratio is not None]
    faster, slower = ([pair for pair in known if pair.verdict == verdict] for verdict in ("faster", "slower"))
    if not known:
        return "Not decided: nothing with a timeout has a rate to compare."
    if not faster and not slower:
        return f"Not decided: no timeout was faster or slower beyond doubt, in {_settings(known)}."
    open_ = len(known) - len(faster) - len(slower)
    rest = f"; {open_} not decided" if open_ else ""
    if not faster:
        worst = min(slower, key=_median)
        return (
            f"A receive timeout pays nowhere: it is slower in {len(slower)} of {_settings(known)}{rest}, at the worst "
            f"{worst.words} ({_name(worst)})."
        )
    best = max(faster, key=_median)
    costs = f" and costs in {len(slower)}" if slower else ""
    return (
        f"A receive timeout pays in {len(faster)}{costs} of {_settings(known)}{rest}: at the best it is {best.words} "
        f"({_name(best)})."
    )


def _settings(found: Sequence[Pair]) -> str:
    return figures.counted(len(found), "setting")


def _median(pair: Pair) -> float:
    return pair.ratio.median if pair.ratio is not None else 1.0


def _name(pair: Pair) -> str:
    return f"{one_line(pair.one.label)}, {pair.where}, {one_line(pair.run.spec.policy)}"


def _why(found: Sequence[Pair]) -> Iterator[str]:
    """Yield for the settings in which a timeout pays most and costs most where the time went."""
    decided = sorted((pair for pair in found if pair.decided), key=_median)
    for pair in (*decided[-1:], *decided[:-1][:1]):
        before, after = pair.base.acting, pair.one.acting
        if before is None or after is None:
            continue
        yield (
            f"{_name(pair)}: {pair.words}. Without the timeout the policy waits {before.waiting:.0%} of the time, with "
            f"it {after.waiting:.0%}; it then acts on {_rows(pair.one)} at a time{_unevenness(pair)}."
        )


def _rows(cell: CellSummary) -> str:
    mean = cell.batch_sizes.mean if cell.batch_sizes is not None else cell.batch_size
    return f"{figures.number(mean)} of {cell.num_envs} rows"


def _unevenness(pair: Pair) -> str:
    late = _late(pair)
    return f", and one batch in a hundred takes {late:.1f} times as long as usual" if late else ""


def _late(pair: Pair) -> float | None:
    acting = pair.base.acting
    return acting.latency_p99_ns / acting.latency_p50_ns if acting is not None and acting.latency_p50_ns > 0 else None


def _tables(found: Sequence[Pair]) -> Iterator[Table]:
    """Yield a table for each part and size, with a row for each backend with a timeout."""
    for title in dict.fromkeys(map(_title, found)):
        yield Table(
            title=title,
            corner="backend",
            columns=("ratio", "waiting", "rows", "late"),
            rows=tuple(
                TableRow(one_line(pair.one.label), tuple(_facts(pair))) for pair in found if _title(pair) == title
            ),
            group=title,
        )


def _title(pair: Pair) -> str:
    return f"{pair.where}, {one_line(pair.run.spec.policy)}"


def _facts(pair: Pair) -> Iterator[Text]:
    before, after = pair.base.acting, pair.one.acting
    yield pair.text
    if before is None or after is None:
        yield Text((figures.NOTHING,), "missing")
    else:
        yield Text((f"{before.waiting:.0%}, then {after.waiting:.0%}",), value=after.waiting)
    yield Text((_rows(pair.one),))
    late = _late(pair)
    yield Text((figures.NOTHING,), "missing") if late is None else Text((f"{late:.1f}x",), value=late)


def _part(name: str, env: str, policy: str) -> Part:
    return Part(name, replace(PLAN, envs=(env,), envs_per_worker=(NARROW, WIDE), policy=policy), BACKENDS)


STUDY = Study(
    name="timeout",
    question="Does it pay to receive what is there after a short timeout, instead of waiting for all environments?",
    parts=(
        _part("sleep", "HalfCheetah", "sleep:1ms"),
        _part("small", "HalfCheetah", "mlp:64x64"),
        _part("large", "HalfCheetah", "mlp:1024x1024x1024"),
        _part("pictures", "Pong", "nature-cnn"),
    ),
    conclude=conclude,
)
