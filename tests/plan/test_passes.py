"""Cells that are measured once more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vebench.backends.interface import Task
from vebench.machine.placement import place
from vebench.plan.cells import Cell, CellKey, Plan, expand, next_pass
from vebench.plan.spec import MAX_REPEATS, BackendChoice, RunSpec


@pytest.fixture
def plan() -> Plan:
    """Return four cells, twice each: two backends with one worker and with two."""
    backends = (BackendChoice("for-loop"), BackendChoice("gym-sync"))
    spec = RunSpec(("Pong",), (1, 2), backends, repeats=2)
    return expand(spec, [Task("ALE/Pong-v5", "atari", 4)], place("compact", frozenset({0, 1})), None)


def keys(plan: Plan) -> set[CellKey]:
    return {cell.key.without_repeat for cell in plan.cells}


def key_of(backend: str, workers: int) -> CellKey:
    return CellKey(env="ALE/Pong-v5", backend=backend, workers=workers, envs_per_worker=1)


def after(plan: Plan, repeats: int) -> dict[CellKey, int]:
    """Return the next repeat of every cell, after so many that went well."""
    return dict.fromkeys(keys(plan), repeats)


def named(cells: tuple[Cell, ...]) -> list[tuple[str, int, int]]:
    return sorted((cell.backend.name, cell.workers, cell.repeat) for cell in cells)


def in_groups(plan: Plan) -> Plan:
    """Return the plan with cells of as many workers in a group, whose members take turns."""
    return replace(plan, cells=tuple(replace(cell, group=cell.workers) for cell in plan.cells))


def test_cells_that_are_wanted_are_measured_once_more_in_one_pass(plan: Plan) -> None:
    wanted = {key_of("for-loop", 1), key_of("gym-sync", 2)}
    more = next_pass(plan, wanted, {**after(plan, 2), key_of("gym-sync", 2): 7})
    assert named(more.cells) == [("for-loop", 1, 7), ("gym-sync", 2, 7)]
    assert more.spec == plan.spec


def test_cells_that_are_not_wanted_are_not_measured(plan: Plan) -> None:
    assert next_pass(plan, set(), after(plan, 2)).cells == ()


def test_a_cell_without_a_next_repeat_is_not_measured(plan: Plan) -> None:
    repeats = after(plan, 2)
    del repeats[key_of("gym-sync", 2)]
    assert ("gym-sync", 2) not in {cell[:2] for cell in named(next_pass(plan, keys(plan), repeats).cells)}


def test_a_cell_that_cannot_run_is_not_measured(plan: Plan) -> None:
    cells = tuple(replace(cell, skip="no memory" if cell.workers == 2 else None) for cell in plan.cells)
    more = next_pass(replace(plan, cells=cells), keys(plan), after(plan, 2))
    assert {cell.workers for cell in more.cells} == {1}


def test_no_cell_is_measured_more_often_than_may_be(plan: Plan) -> None:
    assert len(next_pass(plan, keys(plan), after(plan, MAX_REPEATS - 1)).cells) == 4
    assert next_pass(plan, keys(plan), after(plan, MAX_REPEATS)).cells == ()


def test_each_pass_has_an_order_of_its_own_that_follows_from_the_seed(plan: Plan) -> None:
    def order(repeat: int) -> tuple[CellKey, ...]:
        more = next_pass(plan, keys(plan), after(plan, repeat))
        return tuple(cell.key.without_repeat for cell in more.cells)

    orders = [order(repeat) for repeat in range(2, 8)]
    assert order(2) == orders[0]
    assert len(set(orders)) > 1


def test_cells_that_take_turns_stay_together_in_every_pass(plan: Plan) -> None:
    pairs = in_groups(plan)
    for seed in range(5):
        more = next_pass(replace(pairs, spec=replace(plan.spec, seed=seed)), keys(plan), after(plan, 2))
        assert [cell.group for cell in more.cells] in ([1, 1, 2, 2], [2, 2, 1, 1])


def test_cells_that_take_turns_are_measured_together_if_one_of_them_is_wanted(plan: Plan) -> None:
    more = next_pass(in_groups(plan), {key_of("gym-sync", 2)}, after(plan, 5))
    assert named(more.cells) == [("for-loop", 2, 5), ("gym-sync", 2, 5)]


def test_a_cell_that_can_be_measured_no_more_takes_no_others_with_it(plan: Plan) -> None:
    repeats = after(plan, 5)
    del repeats[key_of("gym-sync", 2)]
    assert next_pass(in_groups(plan), {key_of("gym-sync", 2)}, repeats).cells == ()
