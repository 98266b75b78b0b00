"""A gate that looks again and again, and what it may spend on each look."""

from dataclasses import replace
from math import exp
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.records import make_cell, make_header

from vebench.analysis.comparison import Comparison, compare_runs
from vebench.analysis.summary import summarise
from vebench.gates.gate import Decisions, passes_until_next_look, undecided
from vebench.results.records import CellRecord, Run


@given(st.lists(st.floats(0, 1), max_size=12))
def test_all_looks_together_spend_no_more_than_the_level(shares: list[float]) -> None:
    decisions = Decisions()
    looks = [decisions.part(share) for share in shares]
    assert sum(looks) <= 1 + 1e-9
    assert all(look >= 0 for look in looks)


def test_a_single_look_at_the_end_has_the_whole_level() -> None:
    assert Decisions().part(1.0) == 1.0
    assert Decisions().part(0.1) == pytest.approx(0.159, abs=1e-3)


def test_looks_grow_rarer_as_passes_accumulate() -> None:
    assert [passes_until_next_look(passes) for passes in (1, 5, 7, 10, 40)] == [1, 2, 3, 4, 16]


def measured(random: Random, passes: int, slower: float) -> Comparison:
    """Return two backends in turn, the second of which is this much slower in B, with 3 % of noise."""
    sides = []
    for side in range(2):
        cells: list[CellRecord] = []
        for backend, factor in (("for-loop", 1.0), ("shm-sync", slower)):
            for repeat in range(passes):
                steps = round(1e6 * (factor if side else 1.0) * exp(random.gauss(0, 0.03)))
                cells.append(make_cell(backend, 1, (steps, steps), repeat=repeat))
        sides.append(summarise(Run(make_header(), tuple(cells))))
    return compare_runs(*sides, metric="fps", tolerance=0.05, in_turn=True)


def test_a_decided_backend_stays_so_and_only_others_are_measured() -> None:
    found = measured(Random(1), 12, 0.7)
    verdicts = {group.key.backend: group.verdict for group in found.groups}
    assert verdicts == {"for-loop": "same", "shm-sync": "slower"}
    decisions = Decisions()
    assert decisions.after(found) == found
    doubtful = replace(
        found,
        groups=tuple(replace(group, verdict="inconclusive") for group in found.groups),
        cells=tuple(replace(cell, verdict="inconclusive") for cell in found.cells),
    )
    assert {key.backend for key in undecided(doubtful)} == {"for-loop", "shm-sync"}
    assert decisions.after(doubtful) == found
    assert not undecided(found)


def test_looking_often_finds_nothing_where_nothing_is() -> None:
    alarms = 0
    for trial in range(60):
        random, decisions, passes = Random(trial), Decisions(), 3
        sides: list[list[CellRecord]] = [[], []]
        done = 0
        while passes <= 30:
            for cells in sides:
                cells += [
                    make_cell("shm-sync", 1, (round(0.95**0.5 * 1e6 * exp(random.gauss(0, 0.03))),) * 2, repeat=repeat)
                    for repeat in range(done, passes)
                ]
            done = passes
            before, after = (summarise(Run(make_header(), tuple(cells))) for cells in sides)
            looked = compare_runs(
                before, after, metric="fps", tolerance=0.05, in_turn=True, part=decisions.part(passes / 30)
            )
            found = decisions.after(looked)
            if not undecided(found):
                break
            then = passes + passes_until_next_look(passes)
            passes = 30 if passes < 30 < then else then
        alarms += any(group.verdict == "slower" for group in found.groups)
    assert alarms == 0


def test_a_cell_that_fails_after_the_decision_is_reported() -> None:
    found = measured(Random(1), 12, 1.0)
    decisions = Decisions()
    decisions.after(found)
    later = replace(found, cells=tuple(replace(cell, failed="B: 1 of 13 passes failed: boom") for cell in found.cells))
    assert all(cell.failed for cell in decisions.after(later).cells)
