"""The rates of one task as tables: a row for each backend, a column for each size, and below what they lack."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from vebench.analysis.cell import is_base
from vebench.backends.registry import NULL, REFERENCE, YARDSTICK
from vebench.errors import one_line
from vebench.plan.known_work import BEST_FIRST, DISTRIBUTION, SAME
from vebench.reports import columns, figures
from vebench.reports.columns import of_column
from vebench.reports.document import Listing, Table, TableRow, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.plan.grammar import LearnerStep
    from vebench.plan.spec import RunSpec
    from vebench.reports.document import Tone, View

    Place = Callable[[CellSummary], Text]

_DOUBTFUL = ("unverified", "different")
_LEAST_SAID = 0.01  # of the time


def rate_tables(
    env: str, cells: Sequence[CellSummary], spec: RunSpec, view: View, *, best: CellSummary | None
) -> Iterator[Table]:
    """Yield the tables of one task, with ``best`` marked: rates, footnotes below the last of them, further columns.

    A view of every finding has a ranking by CPU time, too.
    """
    marked = {cell.workers: cell.cpus_owned for cell in cells if cell.oversubscribed}
    skips = sorted({cell.frame_skip for cell in cells})
    unit = f"frames/s ({' or '.join(figures.counted(skip, 'frame') for skip in skips)} per step)"
    parts = {f"{one_line(env)}{name}": part for name, part in _parts(cells).items()}
    for name, part in parts.items():
        grid = _grid(part, marked, spec, lambda cell: _figure(cell, best), _work_verdict)
        table = replace(grid, title=f"{name}: {unit}", group=one_line(env))
        if name == [*parts][-1]:
            table = replace(table, notes=tuple(_notes(cells, marked, spec)), listing=_differences(cells))
        yield table
    for place, title, notes in _further(cells, spec):
        for name, part in parts.items():
            grid = _grid([cell for cell in part if not cell.reference_row], marked, spec, place)
            yield replace(grid, title=f"{name}: {title}", group=one_line(env), notes=notes, about="run")
    for wanted in view.columns:
        column = columns.column_named(wanted)
        for name, part in parts.items():
            grid = _grid(part, marked, spec, partial(of_column, column))
            meaning = f"{column.name}: {column.meaning}{f' ({column.unit})' if column.unit else ''}"
            yield replace(grid, title=f"{name}: {column.name}", group=one_line(env), notes=(meaning,), about="run")
    if view.every_finding:
        yield from _cpu_time(env, cells)


def _each_host(cell: CellSummary) -> Text:
    rates = {host: rate.scaled(cell.frame_skip) for host, rate in cell.host_rates.items()}
    if not rates:
        return Text((figures.DASH,), "missing")
    return Text(tuple(f"{one_line(host)} {figures.rate(rate)}" for host, rate in rates.items()))


def _further(cells: Sequence[CellSummary], spec: RunSpec) -> Iterator[tuple[Place, str, tuple[str, ...]]]:
    """Yield what makes the places of each table that hosts, a policy or a learner add, its title, and its notes."""
    if any(len(cell.host_rates) > 1 for cell in cells):
        notes = ("each host's replica in its own windows; an interval needs two passes",)
        yield _each_host, "frames/s of each host", notes
    if any(cell.acting for cell in cells):
        words = (
            f"the policy is {one_line(spec.policy.in_words)}",
            "env: from actions to their rows; policy: choosing actions; copies: observations there, actions back",
            "counting: what the loop itself takes, where that is more than 1%",
            "a batch: how long it is waited for, the median and p99; age: how often the policy has acted since",
        )
        yield where_time_goes, "where the loop's time goes", words
    if any(cell.batch_sizes for cell in cells):
        yield _sizes_of_batches, "rows of a batch", ("below the mean: how many rows nine of ten batches have",)
    if spec.learner is not None and any(cell.learning for cell in cells):
        meanwhile = f"learning takes {learner_words(spec.learner)}, and nothing is sampled meanwhile"
        yield _training, "training with it", (meanwhile, "at most: if sampling took no time at all")


def _parts(cells: Sequence[CellSummary]) -> Mapping[str, Sequence[CellSummary]]:
    """Return the cells of one task as its tables have them, with what each adds to the title."""
    swept = sorted({cell.envs_per_worker for cell in cells})
    if len(swept) == 1 or len({cell.workers for cell in cells}) == 1:
        return {"": cells}
    parts = {envs: [cell for cell in cells if cell.envs_per_worker == envs] for envs in swept}
    return {f", {figures.counted(envs, 'environment')} per worker": part for envs, part in parts.items()}


def _grid(
    cells: Sequence[CellSummary],
    marked: Container[int],
    spec: RunSpec,
    place: Place,
    aside: Callable[[Sequence[CellSummary]], Text] | None = None,
) -> Table:
    """Return a row for each backend, a column for each size: ``place`` of each cell, and ``aside`` of all in a row."""
    sizes = dict(sorted(((cell.workers, cell.envs_per_worker), cell.key.size) for cell in cells))
    by_label: dict[str, dict[tuple[int, int], CellSummary]] = {}
    for cell in cells:
        by_label.setdefault(cell.label, {})[cell.workers, cell.envs_per_worker] = cell
    return Table(
        title="",
        columns=(
            *(f"{size}{' !' * (workers in marked)}" for (workers, _), size in sizes.items()),
            *((figures.SAME_WORK,) if aside else ()),
        ),
        rows=tuple(
            TableRow(
                one_line(label),
                (
                    *(place(row[head]) if head in row else _absent(label, head[0], spec) for head in sizes),
                    *((aside([*row.values()]),) if aside else ()),
                ),
                next(iter(row.values())).reference_row,
            )
            for label, row in by_label.items()
        ),
        aside=int(aside is not None),
    )


def _absent(label: str, workers: int, spec: RunSpec) -> Text:
    """Return the place of a cell that is not in the file: it was not measured yet, or never asked for."""
    asked = label != YARDSTICK and spec.asks_for(label, workers)
    return Text(("not run",), "missing") if asked else Text((figures.DASH,))


def _notes(cells: Sequence[CellSummary], marked: Mapping[int, int], spec: RunSpec) -> Iterator[str]:
    """Yield the footnotes of a table; ``marked`` maps oversubscribed worker counts to the CPUs owned."""
    rated = any(cell.frames_per_second and not cell.reference_row for cell in cells)
    if rated and not any(cell.speedup for cell in cells):
        why = "was not measured (leave out --no-base)"
        if any(is_base(cell.key) for cell in cells):
            why = "has no rate"
        elif spec.base:
            why = "was not measured yet"
        yield f"no speedups: {REFERENCE} with one worker {why}"
    if marked:
        yield f"! more workers than their {figures.counted(max(marked.values()), 'CPU')}"
    if any(cell.loop_ns_per_batch for cell in cells):
        yield f"{NULL}: what the measuring loop itself costs for a batch"
    if any(cell.verdict == DISTRIBUTION for cell in cells):
        yield f"{DISTRIBUTION}: it draws its own starts, so that episodes were compared, not rows"
    if any(cell.proof for cell in cells):
        yield f"{figures.SAME_WORK}: {_compared(cells)}"


def _compared(cells: Sequence[CellSummary]) -> str:
    """Return how much of what cells returned while they were measured was compared, and of which backends nothing."""
    proofs = [(one_line(cell.label), cell.proof) for cell in cells if cell.proof is not None]
    seen = [(label, proof) for label, proof in proofs if proof.rows or proof.verdict == "different"]
    if not seen:
        return "no row was compared"
    differ = sum(proof.verdict == "different" for _, proof in seen)
    labels = {label for label, _ in seen}
    rows, found = sum(proof.rows for _, proof in seen), f"{differ or 'none'} different"
    none = dict.fromkeys(label for label, _ in proofs if label not in labels)
    without = f"; none of {', '.join(none)}" if none else ""
    followed = [proof for _, proof in seen if proof.num_envs]
    fewest = min(followed, key=lambda proof: proof.followed_share, default=None)
    envs = ""
    if fewest is not None and fewest.followed_share < 1:
        envs = f", {fewest.environments} of {fewest.num_envs} environments{' or more in each' * (len(seen) > 1)}"
    doubtful = [cell for cell in cells if cell.verdict == "unverified" and cell.proof and cell.proof.verdict in SAME]
    if doubtful:
        without += f"; {one_line(doubtful[0].label)} is unverified: {one_line(doubtful[0].verdict_reason)}"
    return f"{rows:,} rows of {len(seen)} of {figures.counted(len(proofs), 'cell')} compared{envs}, {found}{without}"


def _work_verdict(cells: Sequence[CellSummary]) -> Text:
    """Return whether the backend does the same work, by the worst verdict of its cells, and if that was seen here."""
    verdict = max((cell.verdict for cell in cells if cell.verdict), key=BEST_FIRST.index, default=None)
    words = max((cell.work for cell in cells if cell.verdict == verdict), key=len, default="")
    return Text((words or figures.DASH,), "missing" if verdict in _DOUBTFUL else "plain", verdict)


def _figure(cell: CellSummary, best: CellSummary | None) -> Text:
    rate = cell.frames_per_second
    if rate is None or cell.steps_per_second is None:
        return Text(("no window" if cell.status == "ok" else cell.status,), "missing")
    if (loop := cell.loop_ns_per_batch) is not None:
        return Text((figures.time(loop), "a batch"), "reference_row", loop, short="a batch")
    shown = figures.rate(rate)
    if cell.struck:
        return Text((shown, cell.why_struck), "struck", rate, short=cell.why_struck)
    tone: Tone = "best" if cell is best else "reference_row" if cell.reference_row else "plain"
    # A reference row is no backend: its speedup would read as that of a backend.
    if cell.speedup is None or cell.reference_row:
        return Text((shown,), tone, rate)
    short = f"{figures.number(cell.speedup.median)}x"
    return Text((shown, figures.times(cell.speedup)), tone, rate, short=short)


def _differences(cells: Sequence[CellSummary]) -> Listing | None:
    """Return what backends do differently. That a reference row does is what it is there for."""
    lines = figures.with_names(
        (one_line(difference), one_line(cell.label))
        for cell in cells
        if not cell.reference_row
        for difference in (*(() if cell.own_classes is None else (cell.own_classes.words,)), *cell.differences)
    )
    heading = f'Known differences from {REFERENCE} (the column "{figures.SAME_WORK}" allows for them):'
    return Listing(heading, tuple(lines)) if lines else None


def where_time_goes(cell: CellSummary) -> Text:
    """Return the shares of a cell's time, how long a batch is waited for, and how old its rows are."""
    found = cell.acting
    if found is None:
        return Text((figures.DASH,), "missing")
    shares = f"env {found.waiting:.0%}, policy {found.inference:.0%}, copies {found.copies:.0%}"
    if found.counting >= _LEAST_SAID:
        shares += f", counting {found.counting:.0%}"
    batch = f"a batch {figures.short_time(found.latency_p50_ns)}, p99 {figures.short_time(found.latency_p99_ns)}"
    age = (f"age {found.age:.1f}",) if found.age or cell.num_envs > cell.batch_size else ()
    return Text((shares, batch, *age), "plain", found.waiting)


def _cpu_time(env: str, cells: Sequence[CellSummary]) -> Iterator[Table]:
    """Yield a ranking of backends by CPU time, each at the cell that takes the least for a frame, if that is known."""
    known = [
        (per_second, rate, cell)
        for cell in cells
        if not (cell.struck or cell.reference_row)
        if (per_second := cell.frames_per_cpu_second) and (rate := cell.frames_per_second) and per_second.median > 0
    ]
    best: dict[str, TableRow] = {}
    for per_second, rate, cell in sorted(known, key=lambda one: -one[0].median):
        step_ns = 1e9 * cell.frame_skip / per_second.median
        texts = (
            Text((figures.rate(per_second),), value=per_second),
            Text((figures.short_time(step_ns),), value=step_ns),
            Text((figures.rate(rate),), value=rate),
            Text((cell.key.size,), value=cell.key.size),
        )
        best.setdefault(cell.label, TableRow(one_line(cell.label), texts))
    if best:
        yield Table(
            title=f"{one_line(env)}: CPU time, least for each frame first",
            columns=("frames/CPU s", "CPU time per step", "frames/s", "with"),
            rows=tuple(best.values()),
            aside=1,
            notes=(
                "CPU time is that of all processes: what a learner on the same CPUs pays for frames, polling included",
            ),
            group=one_line(env),
            about="run",
        )


def _sizes_of_batches(cell: CellSummary) -> Text:
    found = cell.batch_sizes
    if found is None:
        return Text((f"{cell.batch_size:,}",), "plain", cell.batch_size)
    most = f"{found.few:,.0f} to {found.many:,.0f}, median {found.median:,.0f}"
    return Text((f"{figures.number(found.mean)} on average", most), "plain", found.mean)


def _training(cell: CellSummary) -> Text:
    found = cell.learning
    if found is None:
        return Text((figures.DASH,), "missing")
    rate = f"{figures.number(found.steps_per_second)} steps/s"
    return Text((rate, f"sampling {found.sampling:.0%}, at most {found.at_most:.2f}x"), "plain", found.steps_per_second)


def learner_words(learner: LearnerStep) -> str:
    """Return in words how long learning takes, and for how many steps."""
    whole = "each batch" if learner.steps is None else f"each {figures.counted(learner.steps, 'step')}"
    return f"{figures.short_time(learner.seconds * 1e9)} for {whole}"
