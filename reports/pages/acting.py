"""Places of the tables that a policy in the loop adds: where the time goes, and what training would gain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.reports import figures
from vebench.reports.document import Text

if TYPE_CHECKING:
    from vebench.analysis.cell import CellSummary
    from vebench.plan.spec import LearnerStep


_LEAST_SAID = 0.01  # of the time


def where_time_goes(cell: CellSummary) -> Text:
    """Return the shares of a cell's time, how long a batch is waited for, and how old its rows are."""
    found = cell.acting
    if found is None:
        return Text((figures.NOTHING,), "missing")
    shares = f"env {found.waiting:.0%}, policy {found.inference:.0%}, copies {found.copies:.0%}"
    if found.counting >= _LEAST_SAID:
        shares += f", counting {found.counting:.0%}"
    batch = f"a batch {figures.short(found.latency_p50_ns)}, p99 {figures.short(found.latency_p99_ns)}"
    age = (f"age {found.age:.1f}",) if found.age or cell.num_envs > cell.batch_size else ()
    return Text((shares, batch, *age), "plain", found.waiting)


def sizes_of_batches(cell: CellSummary) -> Text:
    """Return how many rows a cell's batches have."""
    found = cell.batch_sizes
    if found is None:
        return Text((f"{cell.batch_size:,}",), "plain", cell.batch_size)
    most = f"{found.few:,.0f} to {found.many:,.0f}, median {found.median:,.0f}"
    return Text((f"{figures.number(found.mean)} on average", most), "plain", found.mean)


def what_learning_makes_of_it(cell: CellSummary) -> Text:
    """Return how fast training would be, and what a faster backend could make of it at most."""
    found = cell.learning
    if found is None:
        return Text((figures.NOTHING,), "missing")
    rate = f"{figures.number(found.steps_per_second)} steps/s"
    return Text((rate, f"sampling {found.sampling:.0%}, at most {found.at_most:.2f}x"), "plain", found.steps_per_second)


def learner_words(learner: LearnerStep) -> str:
    """Return in words how long learning takes, and for how many steps."""
    whole = "each batch" if learner.steps is None else f"each {figures.counted(learner.steps, 'step')}"
    return f"{figures.short(learner.seconds * 1e9)} for {whole}"
