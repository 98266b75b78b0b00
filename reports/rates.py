"""The rates of one task as tables: a row for each backend, a column for each size."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from vebench.analysis.cell import is_base
from vebench.backends.registry import NULL, REFERENCE, YARDSTICK
from vebench.errors import one_line
from vebench.plan.verdicts import BEST_FIRST, DISTRIBUTION, SAME
from vebench.reports import columns, figures
from vebench.reports.document import Table, TableRow, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.plan.spec import RunSpec
    from vebench.reports.document import Tone, View

    Place = Callable[[CellSummary], Text]

_LEAST_SHARE = 0.01  # of the loop's time, to be named


def rate_tables(
    env: str, cells: Sequence[CellSummary], spec: RunSpec, view: View, *, best: CellSummary | None
) -> Iterator[Table]:
    """Yield the tables of one task, with ``best`` marked: rates, and further tables for what the run and view ask."""
    task = one_line(env)
    crowded = {cell.workers: cell.built.cpus_owned for cell in cells if cell.conditions.oversubscribed}
    parts = {f"{task}{name}": part for name, part in _parts(cells).items()}

    def tables(place: Place, title: str, notes: tuple[str, ...] = (), *, references: bool = True) -> Iterator[Table]:
        for name, part in parts.items():
            shown = [cell for cell in part if references or not cell.reference_row]
            rows = _grid(shown, crowded, spec, place)
            yield replace(rows, title=f"{name}: {title}", group=task, notes=notes, further=True)

    skips = sorted({cell.built.frame_skip for cell in cells})
    unit = f"frames/s ({' or '.join(figures.counted(skip, 'frame') for skip in skips)} per step)"
    rates = [replace(table, further=False) for table in tables(lambda cell: _rate(cell, best), unit)]
    *others, last = rates
    yield from others
    yield replace(last, notes=tuple(_notes(cells, crowded, spec)), details=tuple(_differences(cells)))
    for place, title, notes in _further(cells, spec):
        yield from tables(place, title, notes, references=False)
    for wanted in view.columns:
        column = columns.column_named(wanted)
        meaning = f"{column.name}: {column.meaning}{f' ({column.unit})' if column.unit else ''}"
        yield from tables(partial(columns.of_column, column), column.name, (meaning,))
    if view.every_finding:
        yield from _cpu_time(task, cells)


def _parts(cells: Sequence[CellSummary]) -> Mapping[str, Sequence[CellSummary]]:
    """Return the cells of each table of one task, by what it adds to the title."""
    swept = sorted({cell.envs_per_worker for cell in cells})
    if len(swept) == 1 or len({cell.workers for cell in cells}) == 1:
        return {"": cells}
    parts = {envs: [cell for cell in cells if cell.envs_per_worker == envs] for envs in swept}
    return {f", {figures.counted(envs, 'environment')} per worker": part for envs, part in parts.items()}


def _grid(cells: Sequence[CellSummary], crowded: Container[int], spec: RunSpec, place: Place) -> Table:
    """Return a row for each backend, a column for each size, and ``place`` of each cell."""
    sizes = dict(sorted(((cell.workers, cell.envs_per_worker), cell.key.size) for cell in cells))
    by_label: dict[str, dict[tuple[int, int], CellSummary]] = {}
    for cell in cells:
        by_label.setdefault(cell.label, {})[cell.workers, cell.envs_per_worker] = cell
    rows = []
    for label, row in by_label.items():
        texts = tuple(place(row[size]) if size in row else _absent(label, size[0], spec) for size in sizes)
        rows.append(TableRow(one_line(label), texts, next(iter(row.values())).reference_row))
    heads = tuple(f"{size} !" if workers in crowded else size for (workers, _), size in sizes.items())
    return Table("", heads, tuple(rows))


def _absent(label: str, workers: int, spec: RunSpec) -> Text:
    """Return the place of a cell that is not in the file: it was not measured yet, or never asked for."""
    asked = label != YARDSTICK and spec.asks_for(label, workers)
    return Text(("not run",), "missing") if asked else Text((figures.DASH,))


def _rate(cell: CellSummary, best: CellSummary | None) -> Text:
    rate = cell.frames_per_second
    if rate is None or cell.figures.steps_per_second is None:
        return Text(("no window" if cell.status == "ok" else cell.status,), "missing")
    if (loop := cell.loop_ns_per_batch) is not None:
        return Text((figures.time(loop), "a batch"), "reference_row", loop, short="a batch")
    shown = figures.rate(rate)
    if cell.exclusion is not None:
        return Text((shown, cell.exclusion), "struck", rate, short=cell.exclusion)
    tone: Tone = "best" if cell is best else "reference_row" if cell.reference_row else "plain"
    # The speedup of a reference row would read as a backend's.
    if cell.speedup is None or cell.reference_row:
        return Text((shown,), tone, rate)
    short = f"{figures.number(cell.speedup.median)}x"
    return Text((shown, figures.times(cell.speedup)), tone, rate, short=short)


def _notes(cells: Sequence[CellSummary], crowded: Mapping[int, int], spec: RunSpec) -> Iterator[str]:
    """Yield how to read the table; ``crowded`` maps oversubscribed numbers of workers to the CPUs owned."""
    rated = any(cell.frames_per_second and not cell.reference_row for cell in cells)
    if rated and not any(cell.speedup for cell in cells):
        why = "was not measured (leave out --no-base)"
        if any(is_base(cell.key) for cell in cells):
            why = "has no rate"
        elif spec.base:
            why = "was not measured yet"
        yield f"no speedups: {REFERENCE} with one worker {why}"
    if crowded:
        yield f"! more workers than their {figures.counted(max(crowded.values()), 'CPU')}"
    work = {of_label[0].label: _work(of_label) for of_label in _by_label(cells)}
    labels = figures.by_key((text, one_line(label)) for label, text in work.items() if text)
    if labels:
        most = max(labels, key=lambda text: len(labels[text]))
        others = (f"{', '.join(names)}: {text}" for text, names in labels.items() if text != most)
        yield f"Same work: {'; '.join((most, *others))}"
    yield from _compared(cells)
    if any(cell.loop_ns_per_batch for cell in cells):
        yield f"{NULL}: what the measuring loop itself costs for a batch"
    if any(cell.verdict == DISTRIBUTION for cell in cells):
        yield f"{DISTRIBUTION}: it draws its own starts, so that episodes were compared, not rows"


def _by_label(cells: Sequence[CellSummary]) -> list[list[CellSummary]]:
    groups: dict[str, list[CellSummary]] = {}
    for cell in cells:
        groups.setdefault(cell.label, []).append(cell)
    return list(groups.values())


def _work(cells: Sequence[CellSummary]) -> str:
    """Return whether a backend does the same work, by the worst verdict of its cells; empty for a reference row."""
    verdict = max((cell.verdict for cell in cells if cell.verdict), key=BEST_FIRST.index, default=None)
    return max((cell.work_in_words for cell in cells if verdict and cell.verdict == verdict), key=len, default="")


def _compared(cells: Sequence[CellSummary]) -> Iterator[str]:
    """Yield how many of the rows that cells returned while they were measured were compared."""
    proofs = [(one_line(cell.label), cell.work.proof) for cell in cells if cell.work.proof is not None]
    seen = [(label, proof) for label, proof in proofs if proof.rows or proof.verdict == "different"]
    if proofs and not seen:
        yield "no row was compared"
    elif seen:
        differ = sum(proof.verdict == "different" for _, proof in seen)
        rows = sum(proof.rows for _, proof in seen)
        without = dict.fromkeys(label for label, _ in proofs if label not in {label for label, _ in seen})
        none = f"; none of {', '.join(without)}" if without else ""
        cells_compared = f"{len(seen)} of {figures.counted(len(proofs), 'cell')}"
        yield f"{rows:,} rows of {cells_compared} compared{_environments(cells)}, {differ or 'none'} different{none}"
    for cell in cells:
        if cell.verdict == "unverified" and cell.work.proof and cell.work.proof.verdict in SAME:
            yield f"{one_line(cell.label)} is unverified: {one_line(cell.work.reason)}"
            break


def _differences(cells: Sequence[CellSummary]) -> Iterator[str]:
    """Yield what backends do differently. Reference rows are there to differ."""
    differences = []
    for cell in cells:
        if not cell.reference_row:
            own = [] if cell.built.own_classes is None else [cell.built.own_classes.words]
            differences += [(one_line(text), one_line(cell.label)) for text in (*own, *cell.built.differences)]
    for text, labels in figures.by_key(differences).items():
        yield f"{', '.join(labels)} {'differ' if len(labels) > 1 else 'differs'} from {REFERENCE}: {text}"


def _environments(cells: Sequence[CellSummary]) -> str:
    """Return in how many environments of a cell rows were compared, if not in all."""
    proofs = [cell.work.proof for cell in cells if cell.work.proof]
    followed = [proof for proof in proofs if proof.rows and proof.num_envs]
    fewest = min(followed, key=lambda proof: proof.followed_share, default=None)
    if fewest is None or fewest.followed_share >= 1:
        return ""
    more = " or more in each" if len(followed) > 1 else ""
    return f", {fewest.environments} of {fewest.num_envs} environments{more}"


def _further(cells: Sequence[CellSummary], spec: RunSpec) -> Iterator[tuple[Place, str, tuple[str, ...]]]:
    """Yield the places, the title and the notes of each table that hosts, a policy or a learner add."""
    if any(len(cell.conditions.host_rates) > 1 for cell in cells):
        notes = ("each host's replica in its own windows; an interval needs two passes",)
        yield _each_host, "frames/s of each host", notes
    if any(cell.figures.acting for cell in cells):
        words = (
            f"the policy is {one_line(spec.policy.in_words)}",
            "env: from actions to their rows; policy: choosing actions; copies: observations there, actions back",
            "counting: what the loop itself takes, where that is more than 1%",
            "a batch: how long it is waited for, the median and p99; age: how often the policy has acted since",
        )
        yield where_time_goes, "where the loop's time goes", words
    if any(cell.figures.batch_sizes for cell in cells):
        yield _sizes_of_batches, "rows of a batch", ("below the mean: how many rows nine of ten batches have",)
    if spec.learner is not None and any(cell.figures.learning for cell in cells):
        meanwhile = f"learning takes {figures.learner_words(spec.learner)}, and nothing is sampled meanwhile"
        yield _training, "training with it", (meanwhile, "at most: if sampling took no time at all")


def _each_host(cell: CellSummary) -> Text:
    rates = {host: rate.scaled(cell.built.frame_skip) for host, rate in cell.conditions.host_rates.items()}
    if not rates:
        return Text((figures.DASH,), "missing")
    return Text(tuple(f"{one_line(host)} {figures.rate(rate)}" for host, rate in rates.items()))


def where_time_goes(cell: CellSummary) -> Text:
    """Return the shares of a cell's time, how long a batch is waited for, and how old its rows are."""
    found = cell.figures.acting
    if found is None:
        return Text((figures.DASH,), "missing")
    shares = f"env {found.waiting:.0%}, policy {found.inference:.0%}, copies {found.copies:.0%}"
    if found.counting >= _LEAST_SHARE:
        shares += f", counting {found.counting:.0%}"
    batch = f"a batch {figures.short_time(found.latency_p50_ns)}, p99 {figures.short_time(found.latency_p99_ns)}"
    age = (f"age {found.age:.1f}",) if found.age or cell.built.num_envs > cell.built.batch_size else ()
    return Text((shares, batch, *age), "plain", found.waiting)


def _sizes_of_batches(cell: CellSummary) -> Text:
    found = cell.figures.batch_sizes
    if found is None:
        return Text((f"{cell.built.batch_size:,}",), "plain", cell.built.batch_size)
    most = f"{found.few:,.0f} to {found.many:,.0f}, median {found.median:,.0f}"
    return Text((f"{figures.number(found.mean)} on average", most), "plain", found.mean)


def _training(cell: CellSummary) -> Text:
    found = cell.figures.learning
    if found is None:
        return Text((figures.DASH,), "missing")
    rate = f"{figures.number(found.steps_per_second)} steps/s"
    return Text((rate, f"sampling {found.sampling:.0%}, at most {found.at_most:.2f}x"), "plain", found.steps_per_second)


def _cpu_time(task: str, cells: Sequence[CellSummary]) -> Iterator[Table]:
    """Yield a ranking of backends by CPU time, each at the cell that takes the least for a frame, if that is known."""
    known = []
    for cell in cells:
        per_second, rate = cell.figures.frames_per_cpu_second, cell.frames_per_second
        if per_second and rate and per_second.median > 0 and not (cell.excluded or cell.reference_row):
            known.append((per_second, rate, cell))
    best: dict[str, TableRow] = {}
    for per_second, rate, cell in sorted(known, key=lambda one: -one[0].median):
        step_ns = 1e9 * cell.built.frame_skip / per_second.median
        texts = (
            Text((figures.rate(per_second),), value=per_second),
            Text((figures.short_time(step_ns),), value=step_ns),
            Text((figures.rate(rate),), value=rate),
            Text((cell.key.size,), value=cell.key.size),
        )
        best.setdefault(cell.label, TableRow(one_line(cell.label), texts))
    if best:
        yield Table(
            title=f"{task}: CPU time, least for each frame first",
            columns=("frames/CPU s", "CPU time per step", "frames/s", "with"),
            rows=tuple(best.values()),
            notes=("CPU time is of all processes: what a learner on the same CPUs pays for frames, polling included",),
            group=task,
            further=True,
        )
