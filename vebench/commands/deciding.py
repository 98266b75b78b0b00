"""``check BASELINE`` and ``compare --budget`` add passes until every backend has its verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.analysis.gate import Decisions, passes_until_next_look, undecided

if TYPE_CHECKING:
    from collections.abc import Callable

    from vebench.analysis.comparison import Comparison, Levels
    from vebench.plan.cells import CellKey

    # Judges what there is so far at these levels.
    Look = Callable[[Levels], Comparison]
    # Measures one more pass over these cells, without repeats. Returns whether there was anything to measure.
    OnePass = Callable[[frozenset[CellKey]], bool]


def until_decided(  # noqa: PLR0913, PLR0917 - what a decision depends on
    look: Look,
    one_pass: OnePass,
    passes: int,
    started: float,
    budget: float,
    clock: Callable[[], float],
    enough: int | None = None,
) -> Comparison:
    """Look, and add passes, until every backend is decided or ``budget`` seconds are spent. Returns the verdicts.

    ``passes`` were measured since ``started``, by ``clock``, which counts seconds; they are part of the budget. No pass
    is begun that would hardly end in time. If it is known that more than ``enough`` passes would not help, there are no
    more, and no looks on the way: each would cost some of the level.
    """
    decisions = Decisions()
    now = clock()
    deadline, longest = started + budget, (now - started) / passes
    while True:
        over = now + longest > deadline or (enough is not None and passes >= enough)
        used = max((now - started) / budget, 0.0 if enough is None else passes / enough)
        found = decisions.after(look(decisions.levels(1.0 if over else used)))
        left = undecided(found)
        if not left or over:
            return found
        wanted, added = passes_until_next_look(passes) if enough is None else enough - passes, 0
        while added < wanted and now + longest <= deadline and one_pass(left):
            added += 1
            since, now = now, clock()
            longest = now - since
        if not added:
            return decisions.after(look(decisions.levels(1.0)))
        passes += added
