"""Racing: who is given up, when it is decided, and whom the time left is spent on."""

from random import Random

import pytest

from vebench.analysis.answer import PASSES_TO_COMPARE, RaceState, affordable, level_of_look, standing
from vebench.analysis.statistics import Sample, pooled
from vebench.plan.cells import CellKey


def key(name: str) -> CellKey:
    return CellKey("task", name, 1, 1)


def measured(truth: dict[str, float], passes: int, noise: float = 0.02) -> dict[CellKey, Sample]:
    """Return what so many passes show of settings with these true rates."""
    random = Random(3)
    samples = {
        key(name): Sample.of(
            [number for number in range(passes) for _ in range(2)],
            [value for _ in range(passes) for value in [rate * random.lognormvariate(0, noise)] * 2],
            [1.0] * (2 * passes),
        )
        for name, rate in truth.items()
    }
    return pooled(samples, dict.fromkeys(samples, "calm"))


def names(race: RaceState) -> list[str]:
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
    assert standing(measured({"only": 1.0}, passes=1), 1, 0.05) == RaceState((key("only"),), decided=True)
    assert standing({}, 1, 0.05) == RaceState((), decided=False)
    zero = Sample((0.0, 0.0), one_process=False, passes=(0, 1))
    assert standing({key("zero"): zero}, 1, 0.05) == RaceState((), decided=False)


def test_all_looks_together_make_the_error_that_one_may_make() -> None:
    assert sum(level_of_look(look) for look in range(1, 10_000)) == pytest.approx(0.05, rel=1e-3)


def test_the_best_get_the_passes_that_a_comparison_needs_if_not_all_can() -> None:
    alive = tuple(map(key, "abcdef"))
    costs = dict.fromkeys(alive, 1.0)
    assert affordable(alive, {}, costs, left=100.0) == alive
    assert affordable(alive, {}, costs, left=PASSES_TO_COMPARE * 3.0) == alive[:3]
    assert affordable(alive, {}, costs, left=0.0) == alive[:2]
    assert affordable(alive, dict.fromkeys(alive, 9), costs, left=4.0) == alive[:4]
