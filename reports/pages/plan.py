"""A plan as a page, for ``--dry-run``: what a run would measure, where, and about how long that takes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from vebench.analysis.comparison import POWER
from vebench.analysis.forecast import foresee, time_planned
from vebench.backends.registry import REFERENCE, YARDSTICK
from vebench.errors import one_line
from vebench.machine import pinning
from vebench.machine.placement import format_cpu_list
from vebench.plan.cells import report_order
from vebench.plan.spec import PASSES_OF_ALL, TOLERANCE, UNTIL_BUDGET
from vebench.reports import figures, places
from vebench.reports.document import Document, SimplePage, Table, TableRow, Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vebench.plan.cells import Cell, Plan
    from vebench.plan.spec import RunSpec
    from vebench.reports.places import Size

_ADDED = f"added to compare with: {REFERENCE} and {YARDSTICK} with one worker; --no-base leaves them out"
_COLUMNS = ("workers", "environments", "processes x threads", "CPUs", figures.SAME_WORK)


def plan_page(plan: Plan) -> SimplePage:
    """Return a table for each task with every cell, and about how long measuring them takes."""
    spec = plan.spec
    once = {cell.key.without_repeat: cell for cell in plan.cells}
    cells = sorted(once.values(), key=lambda cell: report_order(cell.task.id, cell.backend, spec))
    envs = dict.fromkeys(cell.task.id for cell in cells)
    tables = tuple(_table(env, [cell for cell in cells if cell.task.id == env], spec) for env in envs)
    return SimplePage("plan", Document("Plan", tuple(_facts(plan)), tables))


def _facts(plan: Plan) -> Iterator[tuple[str, str]]:
    spec = plan.spec
    further = 0 if spec.until or not spec.races else max(0, spec.passes - PASSES_OF_ALL)
    yield "cells", _cells(plan)
    if further:
        yield "race", f"then the fastest backends alone, as many cells as in {further} such pass"
    elif spec.until and spec.races:
        yield "race", "then the fastest backends alone"
    turns = ", taking turns with the others of its pass" if spec.takes_turns else ""
    windows = f"{figures.counted(spec.windows, 'window')} of {spec.duration:g} s"
    yield "each", f"{spec.warmup:g} s of warm-up, {windows}{turns}"
    replicas = "" if spec.replicas == 1 else f", --replicas {spec.replicas}"
    placed = f"--pin {spec.pin.label}{replicas}" if spec.pin.pins else "not pinned (--pin none)"
    yield "CPUs", placed if pinning.SUPPORTED else "not pinned: this system cannot do that"
    if spec.policy.in_words:
        yield "policy", spec.policy.in_words
    yield "time", _time(plan, further)
    if (found := foresee(plan, TOLERANCE)) is not None:  # on an ordinary machine
        power = f"check finds a backend {found.resolves:.0%} slower in {POWER:.0%} of cases"
        machine = "more on an idle machine and less on a noisy one"
        yield "resolves", f"speedups within about ±{found.half:.0%}; of two such runs, {power}, {machine}"


def _time(plan: Plan, further: int) -> str:
    spec = plan.spec
    steps = time_planned([cell for cell in plan.cells if cell.skip is None], spec)
    starts, proofs = sum(each.starts for each in steps), sum(each.proofs for each in steps)
    total = sum(map(sum, steps)) * (1 + further / PASSES_OF_ALL)
    words = f"about {figures.long_time(total)}, with {figures.long_time(starts)} to start cells"
    if proofs:
        words += f", and {figures.long_time(proofs)} to compare a sample of rows (--proof off leaves that out)"
    if spec.until is not None:
        words += f"; passes are added until {figures.long_time(spec.budget)} after the start"
        if spec.until != UNTIL_BUDGET:
            words += f" or intervals are within ±{100 * spec.until:.3g}%"
        if spec.races:
            words += ", and no cells are started later"
    return words


def _cells(plan: Plan) -> str:
    by_repeat = Counter(cell.repeat for cell in plan.cells if cell.skip is None)
    skipped = len({cell.key.without_repeat for cell in plan.cells if cell.skip is not None})
    each = set(by_repeat.values())
    count = figures.counted(max(each, default=0), "cell")
    if len(each) > 1:  # what is left of a run
        count = f"{figures.counted(by_repeat.total(), 'cell')} in {len(by_repeat)} passes"
    elif len(by_repeat) > 1:
        count += f" x {len(by_repeat)} passes"
    return f"{count}{f', {skipped} skipped' if skipped else ''}"


def _table(env: str, cells: Sequence[Cell], spec: RunSpec) -> Table:
    labels = list(dict.fromkeys(cell.backend.label for cell in cells))
    by_row = sorted(cells, key=lambda cell: (labels.index(cell.backend.label), cell.workers, cell.envs_per_worker))
    added = any(cell.skip is None and not spec.asks_for(cell.backend.label, cell.workers) for cell in cells)
    rows = tuple(_row(cell) for cell in by_row if cell.skip is None)
    notes = (*((_ADDED,) if added else ()), *_skipped(by_row))
    return Table(one_line(env), _COLUMNS, rows, notes=notes, numbers=False)


def _row(cell: Cell) -> TableRow:
    shape = cell.shape
    ahead = f" ({shape.batch_size} a batch)" if shape.batch_size < shape.num_envs else ""
    cpus = " | ".join(format_cpu_list(replica.cpus) for replica in cell.all_replicas)
    verdict = cell.known.verdict if cell.known else None
    texts = (
        Text((f"{cell.workers}{figures.times_envs(cell.envs_per_worker)}",), value=cell.workers),
        Text((f"{shape.num_envs}{ahead}",), value=shape.num_envs),
        Text((f"{shape.processes} x {shape.threads}",)),
        Text((cpus,), value=len(cell.cpus)),
        Text((verdict or figures.DASH,), value=verdict),
    )
    return TableRow(one_line(cell.backend.label), texts)


def _skipped(cells: Sequence[Cell]) -> Iterator[str]:
    swept = [(cell.workers, cell.envs_per_worker) for cell in cells]
    by_reason: dict[str, dict[str, list[Size]]] = {}
    for cell, size in zip(cells, swept, strict=True):
        if cell.skip is not None:
            by_reason.setdefault(cell.skip, {}).setdefault(cell.backend.label, []).append(size)
    for reason, sizes_by_label in by_reason.items():
        labels = figures.by_key((places.sizes(sizes, swept), label) for label, sizes in sizes_by_label.items())
        where = "; ".join(f"{', '.join(names)} at {words}" for words, names in labels.items())
        yield one_line(f"skipped: {where}: {reason}")
