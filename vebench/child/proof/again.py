"""Names faults that show when the backend is stepped once more: what depends on chance, on seeds, on earlier steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends import trees
from vebench.child.loop import action_tape
from vebench.child.proof.case import Rerun, SteppedAgain
from vebench.child.proof.recording import CutOffError, Rows
from vebench.child.proof.rows import Row, alike, digested

if TYPE_CHECKING:
    from collections.abc import Callable

    from vebench.child.proof.case import Case

# Steps of an environment from which on the backend is not stepped again: that would take longer than a name is sought.
MOST_AGAIN = 4000
ANOTHER = 1000  # by so much another seed is higher: none of these environments has it
RANDOM = "something is random that must not be, such as sticky actions"
DEPENDS = "rows depend on what was stepped"


def actions_ignored(case: Case) -> str | None:
    """Return the fault if other actions change nothing in the backend, but change the reference's rows.

    In some tasks the first actions change nothing: some games begin by themselves.
    """
    if case.again is None or case.step == 0 or case.step > MOST_AGAIN:
        return None
    tape_seed = case.bench.about.tape_seed + 1
    found = _rerun(case, case.seed, tape_seed)
    tape = action_tape(case.bench.space, tape_seed, case.bench.about.batch_size)
    now = case.bench.now
    driven = [trees.part(tape[(now.tape_at + number) % len(tape)], place) for number, place in found.places[:-1]]
    rows = list(case.stepped(driven))
    if all(alike(known, row) for step, row in enumerate(rows) if (known := case.expected(step))):
        return None
    same = [alike(row, known) for step, row in enumerate(found.rows) if (known := case.found(step))]
    return "actions are ignored" if same and all(same) else None


def chance(case: Case) -> str | None:
    """Return the fault if rows depend on chance, on the seed where the reference's do not, or on earlier steps."""
    if not _can_be_compared_again(case):
        return None
    another = case.seed + ANOTHER
    rows = case.stepped(case.actions, seed=another)
    unmoved = all(alike(row, known) for step, row in enumerate(rows) if (known := case.expected(step)))
    once = _rerun(case, case.seed)
    if not once.is_long or _is_as(once, case.expected):
        return None  # that it is right then is told if nothing else explains the rows
    if _is_as(once, case.found):
        return RANDOM if unmoved and not _is_as(_rerun(case, another), case.found) else None
    if case.in_later_reset and _is_as(_rerun(case, case.seed, number=1), dict(enumerate(once.rows)).get):
        return f"{DEPENDS} before the reset: those of a backend that was just built are others, the same each time"
    if case.begins_otherwise and not unmoved:
        return "the reset ignores its seed: rows are others each time"
    return RANDOM if unmoved else "something is random that does not depend on the seed"


def right_again(case: Case) -> str | None:
    """Return the fault if rows are right when the backend is built and stepped again."""
    if not _can_be_compared_again(case):
        return None
    once = _rerun(case, case.seed)
    if not once.is_long or not _is_as(once, case.expected):
        return None
    if not case.in_later_reset:
        return "rows depend on chance or on time: stepped again, they are right"
    return f"{DEPENDS} before the reset, or on chance or time: those of a backend that was just built are right"


def _can_be_compared_again(case: Case) -> bool:
    # Other rows may come from another order, in which actions are others.
    return case.again is not None and case.step <= MOST_AGAIN and case.bench.now.in_one_order


def _is_as(again: SteppedAgain, rows: Callable[[int], Row | None]) -> bool:
    """Return whether rows are the same as those known by step."""
    return all(alike(row, known) for step, row in enumerate(again.rows) if (known := rows(step)))


def _rerun(case: Case, seed: int, tape_seed: int | None = None, number: int = 0) -> SteppedAgain:
    """Return what the backend returns when it is stepped again as far as it was recorded, once for each ``number``.

    What it raises, or breaks off, ends it there.
    """
    tape_seed = case.bench.about.tape_seed if tape_seed is None else tape_seed
    known = case.reruns.get((seed, tape_seed, number))
    if known is None:
        known = case.reruns[seed, tape_seed, number] = _stepped_again(case, seed, tape_seed)
    return known


def _stepped_again(case: Case, seed: int, tape_seed: int) -> SteppedAgain:
    rows: list[Row] = []
    places: list[tuple[int, int]] = []
    last = case.later[-1] if case.later else case.step
    assert case.again is not None  # noqa: S101 - its callers have asked
    records = case.again(Rerun(seed, case.bench.now.tape_at, tape_seed, case.until))
    try:
        for record in records:
            case.check_time()
            if not isinstance(record, Rows):
                continue
            for place in np.flatnonzero(record.env_ids == case.env_id).tolist():
                rows.append(
                    digested(
                        Row(
                            trees.part(record.observations, place),
                            float(record.rewards[place]),
                            bool(record.terminated[place]),
                            bool(record.truncated[place]),
                        )
                    )
                )
                places.append((record.number, place))
            if len(rows) > last:
                break
    except CutOffError:
        pass
    finally:
        close: Any = getattr(records, "close", None)
        if close is not None:
            close()
    return SteppedAgain(rows, places, len(rows) > case.step)
