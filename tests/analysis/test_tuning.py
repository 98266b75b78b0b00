"""Racing: which settings are tried, who is given up, when it is decided, and whom the time left is spent on."""

from random import Random

import pytest

from vebench.analysis.pooling import pooled
from vebench.analysis.statistics import Sample
from vebench.analysis.tuning import FEWEST_PASSES, Costs, Race, affordable, fitting, level_of_look, settings, standing
from vebench.backends.interface import Task
from vebench.backends.registry import find
from vebench.child.answers import Timed
from vebench.engine.interface import Outcome
from vebench.engine.runner import GIVEN_UP
from vebench.plan.cells import Cell, CellKey
from vebench.plan.grammar import parse_backends
from vebench.plan.spec import BackendChoice, RunSpec
from vebench.results.records import record


def key(name: str) -> CellKey:
    return CellKey("task", name, 1, 1)


def measured(truth: dict[str, float], passes: int, noise: float = 0.02) -> dict[CellKey, Sample]:
    """Return what so many passes show of settings with these true rates."""
    random = Random(3)  # noqa: S311 - noise to repeat, no secret
    samples = {
        key(name): Sample.of({number: [(rate * random.lognormvariate(0, noise), 1.0)] * 2 for number in range(passes)})
        for name, rate in truth.items()
    }
    return pooled(samples, dict.fromkeys(samples, "calm"))


def names(race: Race) -> list[str]:
    return [one.backend for one in race.alive]


def test_what_is_slower_beyond_doubt_is_given_up_and_what_may_be_faster_is_not() -> None:
    race = standing(measured({"best": 100.0, "near": 98.0, "slow": 70.0}, passes=6), 1, 0.05)
    assert "slow" not in names(race)
    assert {"best", "near"} == {*names(race)}


def test_a_race_is_decided_once_nothing_can_be_faster_by_more_than_the_tolerance() -> None:
    truth = {"best": 100.0, "near": 99.0, "slow": 60.0}
    assert not standing(measured(truth, passes=2, noise=0.05), 1, 0.01).decided
    assert standing(measured(truth, passes=40, noise=0.01), 1, 0.05).decided


def test_after_one_pass_only_the_hopeless_are_given_up() -> None:
    race = standing(measured({"best": 100.0, "half": 50.0, "perhaps": 75.0}, passes=1), 1, 0.05)
    assert names(race) == ["best", "perhaps"]
    assert not race.decided


def test_a_setting_alone_has_won_and_none_at_all_decides_nothing() -> None:
    assert standing(measured({"only": 1.0}, passes=1), 1, 0.05) == Race((key("only"),), decided=True)
    assert standing({}, 1, 0.05) == Race((), decided=False)
    zero = Sample((0.0, 0.0), one_process=False, passes=(0, 1))
    assert standing({key("zero"): zero}, 1, 0.05) == Race((), decided=False)


def test_all_looks_together_make_the_error_that_one_may_make() -> None:
    assert sum(level_of_look(look) for look in range(1, 10_000)) == pytest.approx(0.05, rel=1e-3)


def test_the_best_get_the_passes_that_a_comparison_needs_if_not_all_can() -> None:
    alive = tuple(map(key, "abcdef"))
    costs = dict.fromkeys(alive, 1.0)
    assert affordable(alive, {}, costs, left=100.0) == alive
    assert affordable(alive, {}, costs, left=FEWEST_PASSES * 3.0) == alive[:3]
    assert affordable(alive, {}, costs, left=0.0) == alive[:2]
    assert affordable(alive, dict.fromkeys(alive, 9), costs, left=4.0) == alive[:4]


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
