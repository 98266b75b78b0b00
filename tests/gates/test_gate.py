"""A gate that looks again and again, and what it may spend on each look."""

from dataclasses import replace
from functools import partial
from math import exp
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.records import make_cell, make_header

from vebench.analysis.cell import CellSummary
from vebench.analysis.comparison import Comparison, compare_runs
from vebench.analysis.summary import summarise
from vebench.gates.gate import Decisions, PassBudget, decide
from vebench.plan.cells import CellKey
from vebench.plan.grammar import Tolerance
from vebench.results.records import CellRecord, Run

Cells = tuple[CellSummary, ...]
compare = partial(compare_runs, metrics=("fps",), tolerance=Tolerance(0.05), in_turn=True)


@given(st.lists(st.floats(0, 1), max_size=12))
def test_all_looks_together_spend_no_more_than_the_level(shares: list[float]) -> None:
    decisions = Decisions()
    looks = [decisions.part(share) for share in shares]
    assert sum(looks) <= 1 + 1e-9
    assert all(look >= 0 for look in looks)
    assert Decisions().part(1.0) == 1.0
    assert Decisions().part(0.1) == pytest.approx(0.159, abs=1e-3)


class InTurn:
    """Two interleaved backends. The rates of B are ``factors`` times the rates of A, with 3 % of noise."""

    def __init__(self, seed: int, *factors: float) -> None:
        self.random, self.factors = Random(seed), factors
        self.cells: tuple[list[CellRecord], list[CellRecord]] = ([], [])
        self.passes = 0

    def add(self, _wanted: frozenset[CellKey] = frozenset()) -> bool:
        for side, cells in enumerate(self.cells):
            for backend, factor in zip(("for-loop", "shm-sync"), self.factors, strict=False):
                steps = round(1e6 * (factor if side else 1.0) * exp(self.random.gauss(0, 0.03)))
                cells.append(make_cell(backend, 1, (steps, steps), repeat=self.passes))
        self.passes += 1
        return True

    def sides(self) -> tuple[Cells, Cells]:
        before, after = (summarise(Run(make_header(), tuple(cells))) for cells in self.cells)
        return before, after

    def compared(self, passes: int) -> Comparison:
        while self.passes < passes:
            self.add()
        return compare(*self.sides())

    def decided(self, most: int) -> Comparison:
        """Look until there is a decision, or this many passes are measured."""
        self.compared(2)
        keys = frozenset(cell.key for cell in self.sides()[0])
        return decide(self.sides, self.add, compare, keys, 3, PassBudget(most, lambda: float(self.passes)))


def test_a_decided_backend_stays_so_and_only_others_are_measured() -> None:
    found = InTurn(1, 1.0, 0.7).compared(12)
    assert {group.key.backend: group.verdict for group in found.groups} == {"for-loop": "same", "shm-sync": "slower"}
    decisions = Decisions()
    assert decisions.after(found) == found
    doubtful = replace(
        found,
        groups=tuple(replace(group, verdict="inconclusive") for group in found.groups),
        cells=tuple(replace(cell, verdict="inconclusive") for cell in found.cells),
    )
    assert decisions.after(doubtful) == found
    later = replace(found, cells=tuple(replace(cell, failed="B: 1 of 13 passes failed: boom") for cell in found.cells))
    assert all(cell.failed for cell in decisions.after(later).cells)


def test_a_clear_difference_ends_the_passes() -> None:
    world = InTurn(1, 0.7)
    assert [group.verdict for group in world.decided(100).groups] == ["slower"]
    assert world.passes < 20


def test_looking_often_finds_no_more_than_the_level_at_the_tolerance() -> None:
    verdicts = [InTurn(trial, 0.95).decided(30).groups[0].verdict for trial in range(40)]
    assert verdicts.count("slower") <= 3
