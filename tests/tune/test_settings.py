"""Which settings are tried, and how long a cell is waited for."""

import pytest

from vebench.backends.interface import Task
from vebench.backends.registry import find
from vebench.child.answers import Cause, Timed
from vebench.engine.runner import Outcome
from vebench.plan.cells import Cell
from vebench.plan.grammar import BackendChoice, parse_backends
from vebench.plan.spec import RunSpec
from vebench.results.records import record
from vebench.tune.race import TuneBudget, settings

SPEC = RunSpec(("Acrobot",), (1,), duration=0.2, warmup=0.2, windows=2, budget=60.0)


def budget(*failed: Cell, cause: Cause | None = None, start: float = 0.0) -> TuneBudget:
    """Return the time of a tuning in which these cells have failed."""
    found = TuneBudget(SPEC, start, lambda: 0.0)
    found.steps = Timed(1000, 50_000, 90_000, 5, 100_000, 1_000_000)
    outcome = Outcome("failed", "timed out after 9 s", cause=cause)
    found.records = [record(one, outcome) for one in failed]
    return found


def cell(name: str, workers: int, envs: int) -> Cell:
    shape = find(name).shape_of(workers, envs, workers, {})
    return Cell(Task("Acrobot-v1", "classic", 1), BackendChoice(name), workers, envs, shape, tuple(range(workers)))


def test_nothing_larger_than_a_failed_cell_is_started_unless_it_had_no_time() -> None:
    failed = budget(cell("gym-async", 2, 4))
    assert failed.refusal(cell("gym-async", 2, 16)) == "its setting 2x4 failed: timed out after 9 s"
    assert failed.refusal(cell("gym-async", 2, 1)) is None
    assert failed.refusal(cell("shm-sync", 2, 16)) is None
    assert budget(cell("gym-async", 2, 4), cause=Cause.GIVEN_UP).refusal(cell("gym-async", 2, 16)) is None


def test_patience_shrinks_with_the_time_that_is_left() -> None:
    patience = [budget(start=left + 1.0 - 60.0).patience(cell("for-loop", 1, 4)) for left in (55.0, 7.0, -3.0)]
    assert patience == pytest.approx([30.0, 7.0, 5.0])


def test_cells_that_start_slowly_are_passed_over() -> None:
    found = budget()
    cells = [cell("for-loop", 1, envs) for envs in (1, 300, 4, 16)]
    assert found.fitting(cells) == cells
    found.steps = Timed(1000, 50_000, 90_000, 5, 100_000, 10**8)  # an environment takes 0.1 s to make
    assert found.fitting(cells) == [cells[0], cells[2], cells[3]]
    assert found.fitting(cells[1:2]) == cells[1:2]  # no other would be cheaper
    assert len(found.fitting(cells[:1] * 20)) == 8


def places(*names: str, cpus: int = 8, batch: int | None = None, cores: int | None = None, most: int = 0) -> list[str]:
    tried = settings(parse_backends(names), cpus, batch, cores, apart=False, most=most)
    return [f"{one.choice.label}:{one.workers}x{one.envs_per_worker}" for one in tried]


def test_the_settings_that_are_tried() -> None:
    assert set(places("for-loop")) == {"for-loop:1x1", "for-loop:1x4", "for-loop:1x16"}
    assert {place.split(":")[1] for place in places("gym-async", cpus=12, cores=8)} >= {"12x1", "8x1", "6x1"}
    assert not [place for place in places("gym-async", cpus=12, cores=12) if ":8x" in place]
    assert all(place.startswith("shm-async[ratio=4]:") for place in places("shm-async[ratio=4]"))
    # Other options are tried last, and on all CPUs only.
    assert sorted(places("shm-async")[-3:]) == [f"shm-async[ratio=3]:8x{envs}" for envs in (1, 16, 4)]
    assert set(places("shm-async", batch=16)) == {
        *("shm-async:8x2", "shm-async:4x4", "shm-async:2x8", "shm-async:1x16"),
        "shm-async[ratio=3]:8x2",
    }


def test_where_steps_wait_more_workers_than_cpus_are_tried_up_to_one_for_each_environment() -> None:
    tried = places("shm-async", "gym-async", cpus=2, batch=48, most=100)
    assert tried == ["shm-async:48x1", "gym-async:48x1", "shm-async:24x2", "shm-async:16x3"]
    assert places("shm-sync", cpus=2, batch=50, most=12) == ["shm-sync:10x5", "shm-sync:5x10", "shm-sync:2x25"]
    assert places("shm-sync", cpus=2, most=100) == ["shm-sync:32x1", "shm-sync:16x2", "shm-sync:8x4"]
