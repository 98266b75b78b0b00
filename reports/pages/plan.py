"""A plan as a page, for ``--dry-run``: what a run would measure, where, and about how long that takes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench.analysis import rules
from vebench.analysis.comparison import POWER
from vebench.analysis.foresight import foresee
from vebench.analysis.spending import planned
from vebench.backends.registry import REFERENCE, YARDSTICK
from vebench.errors import one_line
from vebench.machine import pinning
from vebench.machine.placement import format_cpu_list
from vebench.plan.cells import report_order
from vebench.plan.spec import PASSES_OF_ALL, TOLERANCE, UNTIL_BUDGET
from vebench.reports import figures
from vebench.reports.document import Document, Page, Table, TableRow, Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vebench.analysis.rules import Size
    from vebench.plan.cells import Cell, Plan
    from vebench.plan.spec import RunSpec

_ADDED = f"added to compare with: {REFERENCE} and {YARDSTICK} with one worker; --no-base leaves them out"
_COLUMNS = ("workers", "environments", "processes x threads", "CPUs", figures.SAME_WORK)


@dataclass(frozen=True)
class PlanPage(Page):
    """What will be measured."""

    plan: Plan
    kind = "plan"

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: a table for each task with every cell, and about how long measuring them will take."""
        spec = self.plan.spec
        steps = planned([cell for cell in self.plan.cells if cell.skip is None], spec)
        starts, proofs = sum(each.starts for each in steps), sum(each.proofs for each in steps)
        until, added = spec.until, ""
        raced = 0 if until or not spec.races else max(0, spec.passes - PASSES_OF_ALL)
        total = sum(map(sum, steps)) * (1 + raced / PASSES_OF_ALL)
        once = {cell.key.without_repeat: cell for cell in self.plan.cells}
        cells = sorted(once.values(), key=lambda cell: report_order(cell.task.id, cell.backend, spec))
        envs = dict.fromkeys(cell.task.id for cell in cells)
        replicas = "" if spec.replicas == 1 else f", --replicas {spec.replicas}"
        placed = f"--pin {spec.pin.label}{replicas}" if spec.pin.pins else "not pinned (--pin none)"
        windows = f"{figures.counted(spec.windows, 'window')} of {spec.duration:g} s"
        turns = ", taking turns with the others of its pass" if spec.takes_turns else ""
        race = f"then the fastest backends alone{f', as many cells as in {raced} such pass' if raced else ''}"
        if until is not None:
            narrow = "" if until == UNTIL_BUDGET else f" or intervals are within ±{100 * until:.3g}%"
            added = f"; passes are added until {figures.long_time(spec.budget)} after the start{narrow}"
            added += ", and no cells are started later" if spec.races else ""
        start = f"of which {figures.long_time(starts)} to start cells"
        proving = f", and {figures.long_time(proofs)} to compare a sample of rows (--proof off leaves that out)"
        resolves = ""  # what it can resolve on an ordinary machine
        if (found := foresee(self.plan, TOLERANCE)) is not None:
            resolves = (
                f"speedups within about ±{found.half:.0%}; of two such runs, check finds a backend "
                f"{found.resolves:.0%} slower in {POWER:.0%} of cases, more on an idle machine and less on a noisy one"
            )
        facts = (
            ("cells", _cells(self.plan)),
            ("race", race if raced or (until and spec.races) else ""),
            ("each", f"{spec.warmup:g} s of warm-up, {windows}{turns}"),
            ("CPUs", placed if pinning.SUPPORTED else "not pinned: this system cannot do that"),
            ("policy", spec.policy.in_words),
            ("time", f"about {figures.long_time(total)}, {start}{proving if proofs else ''}{added}"),
            ("resolves", resolves),
        )
        document = Document(
            title="Plan",
            facts=tuple((name, text) for name, text in facts if text),
            tables=tuple(_task(env, [cell for cell in cells if cell.task.id == env], spec) for env in envs),
        )
        return (document,)


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


def _task(env: str, cells: Sequence[Cell], spec: RunSpec) -> Table:
    labels = list(dict.fromkeys(cell.backend.label for cell in cells))
    by_row = sorted(cells, key=lambda cell: (labels.index(cell.backend.label), cell.workers, cell.envs_per_worker))
    added = any(cell.skip is None and not spec.asks_for(cell.backend.label, cell.workers) for cell in cells)
    return Table(
        title=one_line(env),
        columns=_COLUMNS,
        rows=tuple(_row(cell) for cell in by_row if cell.skip is None),
        notes=(*((_ADDED,) if added else ()), *_skipped(by_row)),
        numbers=False,
    )


def _row(cell: Cell) -> TableRow:
    shape = cell.shape
    ahead = f" ({shape.batch_size} a batch)" if shape.batch_size < shape.num_envs else ""
    verdict = cell.known.verdict if cell.known else None
    return TableRow(
        one_line(cell.backend.label),
        (
            Text((f"{cell.workers}{figures.times_envs(cell.envs_per_worker)}",), value=cell.workers),
            Text((f"{shape.num_envs}{ahead}",), value=shape.num_envs),
            Text((f"{shape.processes} x {shape.threads}",)),
            Text((" | ".join(format_cpu_list(replica.cpus) for replica in cell.all_replicas),), value=len(cell.cpus)),
            Text((verdict or figures.DASH,), value=verdict),
        ),
    )


def _skipped(cells: Sequence[Cell]) -> Iterator[str]:
    swept = [(cell.workers, cell.envs_per_worker) for cell in cells]
    by_reason: dict[str, dict[str, list[Size]]] = {}
    for cell, size in zip(cells, swept, strict=True):
        if cell.skip is not None:
            by_reason.setdefault(cell.skip, {}).setdefault(cell.backend.label, []).append(size)
    for reason, sizes_by_label in by_reason.items():
        labels = figures.by_key((rules.sizes(sizes, swept), label) for label, sizes in sizes_by_label.items())
        where = "; ".join(f"{', '.join(names)} at {words}" for words, names in labels.items())
        yield one_line(f"skipped: {where}: {reason}")
