"""Which settings are tried, and how long a cell takes."""

import pytest

from vebench.backends.interface import Task
from vebench.backends.registry import find
from vebench.child.answers import Cause, Timed
from vebench.engine.interface import Outcome
from vebench.plan.cells import Cell
from vebench.plan.grammar import BackendChoice, parse_backends
from vebench.plan.spec import RunSpec
from vebench.results.records import record
from vebench.tune.budget import Budget
from vebench.tune.settings import settings

SPEC = RunSpec(("Acrobot",), (1,), duration=0.2, warmup=0.2, windows=2, budget=60.0)


def budget(*failed: Cell, cause: Cause | None = None, start: float = 0.0) -> Budget:
    """Return the time of a tuning in which these cells have failed."""
    found = Budget(SPEC, start, lambda: 0.0)
    found.steps = Timed(1000, 50_000, 90_000, 5, 100_000, 1_000_000)
    outcome = Outcome("failed", "timed out after 9 s", cause=cause)
    found.records = {one.key.without_repeat: [record(one, outcome)] for one in failed}
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
    afterwards = 0.08 * 60.0
    patience = [budget(start=left + afterwards - 60.0).patience(cell("for-loop", 1, 4)) for left in (55.0, 7.0, -3.0)]
    assert patience == pytest.approx([9.0, 7.0, 5.0])


@pytest.mark.parametrize(
    ("costs", "room", "most", "chosen"),
    [
        ([2.0, 40.0, 2.0, 2.0], 30.0, 8, [0, 2, 3]),
        ([2.0, 2.0, 2.0], 30.0, 2, [0, 1]),
        ([2.0, 2.0, 2.0], 4.5, 8, [0, 1]),
        ([9.0, 17.0, 40.0], 90.0, 8, [0, 1]),  # no other would be cheaper
        ([], 30.0, 8, []),
    ],
)
def test_cells_that_start_slowly_are_passed_over(
    costs: list[float], room: float, most: int, chosen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [cell("for-loop", 1, number + 1) for number in range(len(costs))]
    by_size = {one.envs_per_worker: cost for one, cost in zip(cells, costs, strict=True)}
    monkeypatch.setattr(Budget, "cost", lambda _, one: by_size[one.envs_per_worker])
    assert budget().fitting(cells, room, most) == [cells[number] for number in chosen]


def places(*names: str, cpus: int = 8, batch: int | None = None, cores: int | None = None) -> list[str]:
    return [one.place for one in settings(parse_backends(names), cpus, batch, cores)]


def test_with_smt_a_worker_for_each_core_is_tried() -> None:
    assert {place.split(":")[1] for place in places("gym-async", cpus=12, cores=8)} >= {"12x1", "8x1", "6x1"}
    assert not [place for place in places("gym-async", cpus=12, cores=12) if ":8x" in place]


def test_other_options_are_tried_last_and_on_all_cpus_only() -> None:
    tried = places("shm-async")
    others = [place for place in tried if "[ratio=3]" in place]
    assert tried[-len(others) :] == others
    assert sorted(others) == ["shm-async[ratio=3]:8x1", "shm-async[ratio=3]:8x16", "shm-async[ratio=3]:8x4"]


def test_given_options_are_the_only_ones_tried() -> None:
    assert all(place.startswith("shm-async[ratio=4]:") for place in places("shm-async[ratio=4]"))


def test_every_setting_has_the_batch_that_was_asked_for() -> None:
    assert set(places("shm-async", batch=16)) == {
        *("shm-async:8x2", "shm-async:4x4", "shm-async:2x8", "shm-async:1x16"),
        "shm-async[ratio=3]:8x2",
    }


def test_a_loop_is_tried_with_one_worker() -> None:
    assert set(places("for-loop")) == {"for-loop:1x1", "for-loop:1x4", "for-loop:1x16"}
