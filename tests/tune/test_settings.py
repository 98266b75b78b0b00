"""Which settings are tried, and how long a cell takes."""

from vebench.backends.interface import Task
from vebench.backends.registry import find
from vebench.child.answers import Timed
from vebench.engine.interface import Outcome
from vebench.engine.runner import GIVEN_UP
from vebench.plan.cells import Cell
from vebench.plan.grammar import BackendChoice, parse_backends
from vebench.plan.spec import RunSpec
from vebench.results.records import record
from vebench.tune.choice import Costs, fitting, settings


def test_what_starts_slowly_is_passed_over_in_favour_of_what_comes_after_it() -> None:
    assert fitting([2.0, 40.0, 2.0, 2.0], room=30.0, budget=60.0, most=8) == [0, 2, 3]
    assert fitting([2.0, 2.0, 2.0], room=30.0, budget=60.0, most=2) == [0, 1]
    assert fitting([2.0, 2.0, 2.0], room=4.5, budget=60.0, most=8) == [0, 1]
    assert fitting([9.0, 17.0, 40.0], room=90.0, budget=60.0, most=8) == [0, 1]  # no other would be cheaper
    assert fitting([], room=30.0, budget=60.0, most=8) == []


SPEC = RunSpec(("Acrobot",), (1,), duration=0.2, warmup=0.2, windows=2, budget=60.0)
STEPS = Timed(1000, 50_000, 90_000, 5, 100_000, 1_000_000)


def cell(name: str, workers: int, envs: int) -> Cell:
    shape = find(name).shape_of(workers, envs, workers, {})
    return Cell(Task("Acrobot-v1", "classic", 1), BackendChoice(name), workers, envs, shape, tuple(range(workers)))


def failed(one: Cell, reason: str) -> Costs:
    return Costs(SPEC, STEPS, {one.key.without_repeat: [record(one, Outcome("failed", reason))]})


def test_nothing_larger_than_what_failed_is_started_and_what_had_no_time_may_be() -> None:
    costs = failed(cell("gym-async", 2, 4), "timed out after 9 s")
    assert costs.refused(cell("gym-async", 2, 16)) == "its setting 2x4 failed: timed out after 9 s"
    assert costs.refused(cell("gym-async", 2, 1)) is None
    assert costs.refused(cell("shm-sync", 2, 16)) is None
    assert failed(cell("gym-async", 2, 4), GIVEN_UP).refused(cell("gym-async", 2, 16)) is None


def test_a_cell_has_less_patience_the_less_time_is_left() -> None:
    patience = [Costs(SPEC, STEPS).patience(cell("for-loop", 1, 4), left) for left in (60.0, 7.0, -3.0)]
    assert patience == [9.0, 7.0, 5.0]


def places(*names: str, cpus: int = 8, batch: int | None = None, cores: int | None = None) -> list[str]:
    return [one.place for one in settings(parse_backends(names), cpus, batch, cores)]


def test_where_cpus_are_second_threads_a_worker_for_each_core_is_tried() -> None:
    assert {place.split(":")[1] for place in places("gym-async", cpus=12, cores=8)} >= {"12x1", "8x1", "6x1"}
    assert not [place for place in places("gym-async", cpus=12, cores=12) if ":8x" in place]


def test_options_that_may_be_faster_are_tried_after_the_defaults_and_with_all_cpus_only() -> None:
    tried = places("shm-async")
    others = [place for place in tried if "[ratio=3]" in place]
    assert tried[-len(others) :] == others
    assert sorted(others) == ["shm-async[ratio=3]:8x1", "shm-async[ratio=3]:8x16", "shm-async[ratio=3]:8x4"]


def test_where_the_user_gave_options_no_others_are_tried() -> None:
    assert all(place.startswith("shm-async[ratio=4]:") for place in places("shm-async[ratio=4]"))


def test_every_setting_has_the_batch_that_was_asked_for() -> None:
    assert set(places("shm-async", batch=16)) == {
        *("shm-async:8x2", "shm-async:4x4", "shm-async:2x8", "shm-async:1x16"),
        "shm-async[ratio=3]:8x2",
    }


def test_more_workers_than_one_are_of_no_use_to_a_loop() -> None:
    assert set(places("for-loop")) == {"for-loop:1x1", "for-loop:1x4", "for-loop:1x16"}
