"""What a run would measure, for ``--dry-run``: from the plan to a neutral document."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from vebench.errors import one_line
from vebench.machine import pinning
from vebench.machine.placement import format_cpu_list
from vebench.plan.cells import seconds
from vebench.reports import figures
from vebench.reports.pages.run import NO_VERDICT, SAME_WORK, Document, Row, Table, Text, place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vebench.plan.cells import Cell, Plan
    from vebench.plan.spec import RunSpec

STARTUP_SECONDS = 2.0  # of a cell, by rule of thumb: half of that for one process, more for hundreds
COLUMNS = ("workers", "environments", "processes x threads", "CPUs", SAME_WORK)


def plan_document(plan: Plan) -> Document:
    """Return a table for each task with every cell of ``plan``, and about how long measuring them will take."""
    spec = plan.spec
    runnable = sum(cell.skip is None for cell in plan.cells)
    total = seconds(plan) + STARTUP_SECONDS * runnable
    once = {cell.key._replace(repeat=0): cell for cell in plan.cells}
    cells = sorted(once.values(), key=lambda cell: place(cell.task.id, cell.backend, spec))
    envs = dict.fromkeys(cell.task.id for cell in cells)
    return Document(
        title="Plan",
        facts=(
            ("cells", _cells(plan)),
            (
                "each",
                f"{spec.warmup:g} s of warm-up, {figures.counted(spec.rounds, 'window')} of {spec.duration:g} s"
                + (", in turn with the others of its pass" if spec.interleave else ""),
            ),
            ("CPUs", _placed(spec)),
            ("time", f"about {figures.duration(total)}, of which {STARTUP_SECONDS:g} s a cell to start it"),
        ),
        tables=tuple(_task(env, [cell for cell in cells if cell.task.id == env]) for env in envs),
    )


def _placed(spec: RunSpec) -> str:
    """Return how workers are given CPUs, and whether they can be held to them."""
    if not pinning.SUPPORTED:
        return "not pinned: this system cannot do that"
    if spec.pin == "none":
        return "not pinned (--pin none)"
    replicas = "" if spec.replicas == "1" else f", --replicas {spec.replicas}"
    return f"--pin {spec.pin}, --smt {spec.smt}, --membind {spec.membind}{replicas}"


def _cells(plan: Plan) -> str:
    """Return how many cells there are, each counted once, and how often they are measured."""
    by_repeat = Counter(cell.repeat for cell in plan.cells if cell.skip is None)
    skipped = len({cell.key._replace(repeat=0) for cell in plan.cells if cell.skip is not None})
    each = set(by_repeat.values())
    count = figures.counted(max(each, default=0), "cell")
    if len(each) > 1:  # what is left of a run
        count = f"{figures.counted(by_repeat.total(), 'cell')} in {len(by_repeat)} repeats"
    elif len(by_repeat) > 1:
        count += f" x {len(by_repeat)} repeats"
    return f"{count}{f', {skipped} skipped' if skipped else ''}"


def _task(env: str, cells: Sequence[Cell]) -> Table:
    labels = list(dict.fromkeys(cell.backend.label for cell in cells))
    by_row = sorted(cells, key=lambda cell: (labels.index(cell.backend.label), cell.workers))
    return Table(
        title=one_line(env),
        corner="backend",
        columns=COLUMNS,
        rows=tuple(_row(cell) for cell in by_row if cell.skip is None),
        notes=tuple(_skipped([cell for cell in by_row if cell.skip is not None])),
        numbers=False,
    )


def _row(cell: Cell) -> Row:
    shape = cell.shape
    ahead = f" ({shape.batch_size} a batch)" if shape.batch_size < shape.num_envs else ""
    texts = (
        str(cell.workers),
        f"{shape.num_envs}{ahead}",
        f"{shape.processes} x {shape.threads}",
        " | ".join(format_cpu_list(pool.cpus) for pool in cell.pools),
        cell.known.verdict if cell.known else NO_VERDICT,
    )
    return Row(one_line(cell.backend.label), tuple(Text((text,)) for text in texts))


def _skipped(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a line for each reason why cells cannot run here."""
    by_reason: dict[str, dict[str, list[str]]] = {}
    for cell in cells:
        by_reason.setdefault(cell.skip or "", {}).setdefault(cell.backend.label, []).append(str(cell.workers))
    for reason, workers_by_label in by_reason.items():
        labels: dict[str, list[str]] = {}
        for label, workers in workers_by_label.items():
            labels.setdefault(f"{', '.join(workers)} worker{'s' * (workers != ['1'])}", []).append(label)
        where = "; ".join(f"{', '.join(names)} at {workers}" for workers, names in labels.items())
        yield one_line(f"skipped: {where}: {reason}")
