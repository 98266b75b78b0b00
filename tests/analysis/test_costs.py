"""What a cell is foreseen to take, which cells fit, and which are not even started."""

from __future__ import annotations

from dataclasses import replace

from vebench.analysis.racing import Costs, fitting
from vebench.backends.interface import Task
from vebench.backends.registry import find
from vebench.child.answers import Timed
from vebench.engine.interface import Outcome
from vebench.engine.runner import GIVEN_UP
from vebench.plan.cells import Cell
from vebench.plan.spec import BackendChoice, RunSpec
from vebench.results.records import record

SPEC = RunSpec(("Acrobot",), (1,), duration=0.2, warmup=0.2, rounds=2, budget=60.0)
CHEAP = Timed(1000, 50_000, 90_000, 5, 100_000, 1_000_000)
SLOW = Timed(20, 20_000_000, 30_000_000, 2, 2_000_000_000, 500_000_000)


def cell(name: str, workers: int, envs: int) -> Cell:
    entry = find(name)
    cpus = tuple(range(workers))
    shape = entry.shape_of(workers, envs, len(cpus), {})
    return Cell(Task("Acrobot-v1", "classic", 1), BackendChoice(name), workers, envs, shape, cpus)


def failed(one: Cell, reason: str) -> Costs:
    told = record(one, Outcome("failed", reason))
    return Costs(SPEC, CHEAP, {one.key.without_repeat: [told]})


def test_environments_that_start_slowly_make_a_loop_of_many_dear_and_processes_share_that() -> None:
    costs = Costs(SPEC, SLOW)
    assert costs.of(cell("for-loop", 1, 16)) > 16 * 2.5
    assert costs.of(cell("gym-async", 4, 4)) < costs.of(cell("for-loop", 1, 16)) / 3
    assert Costs(SPEC, CHEAP).of(cell("for-loop", 1, 16)) < 3


def test_a_machine_that_was_slower_than_foreseen_is_expected_to_remain_so() -> None:
    one = cell("for-loop", 1, 4)
    assert replace(Costs(SPEC, CHEAP), slowdown=4.0).of(one) > 3 * Costs(SPEC, CHEAP).of(one)


def test_what_starts_slowly_is_passed_over_in_favour_of_what_comes_after_it() -> None:
    assert fitting([2.0, 40.0, 2.0, 2.0], room=30.0, budget=60.0, most=8) == [0, 2, 3]
    assert fitting([2.0, 2.0, 2.0], room=30.0, budget=60.0, most=2) == [0, 1]
    assert fitting([2.0, 2.0, 2.0], room=4.5, budget=60.0, most=8) == [0, 1]
    assert fitting([9.0, 17.0, 40.0], room=90.0, budget=60.0, most=8) == [0, 1]  # no other would be cheaper
    assert fitting([], room=30.0, budget=60.0, most=8) == []


def test_nothing_larger_than_what_failed_is_started_and_what_had_no_time_may_be() -> None:
    costs = failed(cell("gym-async", 2, 4), "no end after 9 s")
    assert costs.refused(cell("gym-async", 2, 16)) == "2x4 of it failed: no end after 9 s"
    assert costs.refused(cell("gym-async", 2, 1)) is None
    assert costs.refused(cell("shm-sync", 2, 16)) is None
    assert failed(cell("gym-async", 2, 4), GIVEN_UP).refused(cell("gym-async", 2, 16)) is None


def test_a_cell_has_less_patience_the_less_time_is_left() -> None:
    costs, one = Costs(SPEC, CHEAP), cell("for-loop", 1, 4)
    assert costs.patience(one, left=60.0) == 9.0
    assert costs.patience(one, left=7.0) == 7.0
    assert costs.patience(one, left=-3.0) == 5.0
