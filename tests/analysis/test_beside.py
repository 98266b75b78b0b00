"""Two runs side by side: the ratios are those of check and compare, and each run's best is one that can be used."""

import pytest
from support.records import make_cell, make_header, make_repeated

from vebench.analysis.comparison import CellComparison, Names, TaskComparison, compare_runs, compared_tasks
from vebench.analysis.summary import summarise
from vebench.child.answers import Window
from vebench.plan.grammar import Tolerance
from vebench.results.records import CellRecord, Run

OLD = {("for-loop", 1): 1000.0, ("for-loop", 2): 1010.0, ("shm-sync", 1): 980.0, ("shm-sync", 2): 1800.0}
NEW = {("for-loop", 1): 1500.0, ("for-loop", 2): 1490.0, ("shm-sync", 1): 1600.0, ("shm-sync", 2): 2900.0}
AB = Names("report", "A", "B")


def tasks(one: Run, other: Run, *, in_turn: bool = False) -> tuple[TaskComparison, ...]:
    return compared_tasks(summarise(one), summarise(other), AB, in_turn=in_turn)


def only_task(one: Run, other: Run) -> TaskComparison:
    (found,) = tasks(one, other)
    return found


def place_of(found: TaskComparison, backend: str, workers: int) -> CellComparison:
    (place,) = (place for place in found.places if (place.key.backend, place.key.workers) == (backend, workers))
    return place


def with_more(run: Run, *cells: CellRecord) -> Run:
    return Run(run.header, (*run.cells, *cells))


@pytest.mark.parametrize("in_turn", [False, True])
def test_a_ratio_and_the_mean_of_a_task_are_those_that_check_and_compare_give(*, in_turn: bool) -> None:
    one, other = make_repeated(OLD), make_repeated(NEW)
    asked = {"metrics": ("fps",), "tolerance": Tolerance(0.05)}
    gate = compare_runs(summarise(one), summarise(other), in_turn=in_turn, **asked)
    (found,) = tasks(one, other, in_turn=in_turn)
    assert {cell.key: cell.ratio for cell in gate.cells} == {place.key: place.ratio for place in found.places}
    assert found.mean == gate.overall
    assert found.mean.median == pytest.approx(1.553, abs=1e-3)


def test_each_run_is_taken_at_its_best_which_may_be_another_backend() -> None:
    new = {**NEW, ("for-loop", 2): 4000.0}
    best = only_task(make_repeated(OLD), make_repeated(new)).best
    assert [(cell.label, cell.workers) for cell in best[:2]] == [("shm-sync", 2), ("for-loop", 2)]
    assert best[2].median == pytest.approx(4000 / 1800, rel=1e-3)
    assert best[2].low < 2.05


def fast(*steps: int, **fields: object) -> list[CellRecord]:
    """Return a cell of gym-sync with a process for each of these counts of steps."""
    return [make_cell("gym-sync", 2, (count,) * 2, **{"repeat": n, **fields}) for n, count in enumerate(steps)]


WILD = fast(1200, 9000, 3000)  # a rate that is known to no better than a fifth


@pytest.mark.parametrize(
    "cells",
    [
        fast(5000, 5000, verdict="different"),
        fast(5000, 5000, windows=(Window(10**9, 5000, 0, others_ns=5 * 10**8),) * 2),
        fast(5000, 5000, status="failed", windows=()),
        [*fast(9000, 9000), make_cell("ceiling", 2, (4000,) * 4)],
        WILD,
    ],
    ids=["other work", "disturbed", "failed", "above the ceiling", "wide"],
)
def test_a_rate_that_says_little_is_nobodys_best(cells: list[CellRecord]) -> None:
    best = only_task(with_more(make_repeated(OLD), *cells), make_repeated(NEW)).best
    assert best[0].label == "shm-sync"


def unknown(steps: int) -> list[CellRecord]:
    return [make_cell("mine:Fast", 2, (steps, steps), verdict="unverified", repeat=repeat) for repeat in range(3)]


def test_a_backend_whose_work_nobody_knows_is_compared_with_itself_but_with_no_other() -> None:
    one, other = with_more(make_repeated(OLD), *unknown(9000)), with_more(make_repeated(NEW), *unknown(9500))
    best = only_task(one, other).best
    assert (best[0].label, best[1].label) == ("mine:Fast", "mine:Fast")
    best = only_task(one, make_repeated(NEW)).best
    assert (best[0].label, best[1].label) == ("shm-sync", "shm-sync")


def test_a_cell_with_more_cpus_in_one_run_has_a_ratio_but_does_not_count_in_the_mean() -> None:
    old, new = make_repeated({**OLD, ("shm-sync", 4): 1850.0}), make_repeated(NEW, make_header(4))
    four = [make_cell("shm-sync", 4, (7000, 7010), cpus=(0, 1, 2, 3), repeat=repeat) for repeat in range(3)]
    found = only_task(old, with_more(new, *four))
    place = place_of(found, "shm-sync", 4)
    assert place.ratio.median == pytest.approx(3.77, rel=1e-2)
    assert place not in found.counted
    assert {counted.key.workers for counted in found.counted} == {1, 2}
    assert found.mean.median == pytest.approx(1.553, abs=1e-3)


def test_cells_of_other_frame_skips_are_no_pair() -> None:
    found = only_task(make_repeated(OLD), make_repeated(NEW, frame_skip=1))
    assert {place.verdict for place in found.places} == {"not comparable"}
    assert (found.mean, found.best) == (None, None)


def test_the_bare_simulator_is_compared_but_is_no_backend_and_the_loops_own_cost_is_no_rate() -> None:
    rows = {("ceiling", 2): 9000.0, ("null", 1): 2e6}
    found = only_task(make_repeated({**OLD, **rows}), make_repeated({**NEW, **rows}))
    assert place_of(found, "ceiling", 2).ratio is not None
    assert "null" not in {place.key.backend for place in found.places}
    assert {place.key.backend for place in found.counted} == {"for-loop", "shm-sync"}
