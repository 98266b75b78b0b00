"""Ratios and products of rates, and tests on them."""

from __future__ import annotations

from dataclasses import replace
from math import exp, inf, log, sqrt
from statistics import variance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vebench.analysis.statistics import (
    COMMON,
    PROCESS_SPREAD,
    Block,
    Contrast,
    Error,
    Pool,
    Sample,
    Spread,
    contrast,
    correlation_factor,
    rejected,
    verdicts,
    width_beside_others,
)

LEVELS_OF_RATIOS = {"slower": 0.9, "same": 1.0, "faster": 1.1, "unclear": 0.96}
ONE = Sample((100.0, 104.0, 98.0, 102.0), one_process=False)
OTHER = Sample((80.0, 84.0, 79.0), one_process=False)


def test_a_ratio_of_processes_is_welchs_test_on_their_logs() -> None:
    found = contrast([(1, ONE), (-1, OTHER)])
    assert found is not None
    stats = pytest.importorskip("scipy.stats")  # which every process of the tests would take a second to import
    expected = stats.ttest_ind([log(x) for x in ONE.rates], [log(x) for x in OTHER.rates], equal_var=False)
    interval = expected.confidence_interval()
    assert found.chance_below(1.0) == pytest.approx(expected.pvalue / 2)
    assert (found.estimate.low, found.estimate.high) == pytest.approx((exp(interval.low), exp(interval.high)))


def test_chances_of_both_sides_add_up() -> None:
    found = contrast([(1, ONE), (-1, OTHER)])
    assert found is not None
    assert found.chance_above(1.2) + found.chance_below(1.2) == pytest.approx(1)
    assert found.chance_below(found.estimate.low) == pytest.approx(0.025)


def test_the_windows_of_one_process_bring_the_spread_of_processes_with_them() -> None:
    steady = Sample((50.0,) * 6, one_process=True)
    found = contrast([(1, steady), (-1, Sample((25.0,) * 6, one_process=True))])
    assert found is not None
    assert (found.estimate.median, found.error.variance) == pytest.approx((2.0, 2 * PROCESS_SPREAD**2))
    noisy = contrast([(1, Sample((50.0, 55.0), one_process=True))])
    assert noisy is not None
    spread = log(55 / 50) ** 2 / 2
    assert noisy.error.variance == pytest.approx(PROCESS_SPREAD**2 + 3.14159265 / 4 * spread * correlation_factor(2))


def test_what_is_divided_by_itself_cancels() -> None:
    found = contrast([(1, ONE), (0.5, OTHER), (-1, ONE), (-0.5, OTHER)])
    assert found == Contrast(0.0, Error(0.0, inf))


def test_a_sample_that_comes_twice_is_no_two_independent_ones() -> None:
    twice = contrast([(1, ONE), (1, ONE)])
    single = contrast([(1, ONE)])
    assert twice is not None
    assert single is not None
    assert twice.error.variance == pytest.approx(4 * single.error.variance)


@pytest.mark.parametrize("rates", [(), (5.0,), (5.0, 0.0)])
def test_a_sample_without_an_interval_has_no_contrast(rates: tuple[float, ...]) -> None:
    assert contrast([(1, ONE), (-1, Sample(rates, one_process=True))]) is None


def test_rates_that_agree_leave_nothing_to_chance() -> None:
    exact = contrast([(1, Sample((2.0, 2.0), one_process=False))])
    assert exact is not None
    assert [exact.chance_above(bound) for bound in (1.0, 2.0, 3.0)] == [1.0, 0.5, 0.0]


def test_the_geometric_mean_of_cells_is_narrower_than_each() -> None:
    cells = [Sample((100.0, 101.0, 99.5), one_process=False) for _ in range(4)]
    mean = contrast([(0.25, cell) for cell in cells])
    single = contrast([(1, cells[0])])
    assert mean is not None
    assert single is not None
    assert mean.log == pytest.approx(single.log)
    assert sqrt(mean.error.variance) == pytest.approx(sqrt(single.error.variance) / 2)
    assert mean.error.freedom == pytest.approx(8)


def sample_of(spread: Spread, rates: tuple[float, ...] = (99.0, 100.0, 102.0), first: int = 0) -> Sample:
    return Sample(rates, one_process=False, passes=tuple(range(first, first + len(rates))), spread=spread)


EFFECTS = {0: -0.3, 1: 0.1, 2: 0.2}
SHARED = Spread(Pool(0.01, 40), Block(3), EFFECTS)
SHIFTED = tuple(100 * exp(effect) for effect in EFFECTS.values())


def test_what_a_pass_did_to_all_cells_is_in_a_rate_and_cancels_from_a_ratio() -> None:
    one, other = sample_of(SHARED, SHIFTED), sample_of(SHARED, SHIFTED)
    rate, over = contrast([(1, one)]), contrast([(1, one), (-1, other)])
    assert rate is not None
    assert over is not None
    shift = variance(EFFECTS.values()) / 3
    own = COMMON * 0.01 / (COMMON + 2) / 3  # what its own passes show, beside the effects, is nothing
    assert rate.error.variance == pytest.approx(own + shift)
    assert rate.error.freedom < 3
    assert (over.error.variance, over.error.freedom) == (pytest.approx(2 * own), COMMON + 2)


def test_the_variance_of_the_pool_is_weighed_against_what_the_passes_themselves_show() -> None:
    one, other = sample_of(SHARED, (90.0, 100.0, 110.0)), sample_of(SHARED, (100.0, 100.0, 100.0))
    found = contrast([(1, one), (-1, other)])
    assert found is not None
    seen = variance([log(rate) for rate in one.rates])
    assert found.error.variance == pytest.approx((COMMON * 0.02 + 2 * seen) / (COMMON + 2) / 3)


def test_what_passes_do_to_one_kind_of_cells_only_is_in_a_ratio_of_both_kinds() -> None:
    others = {0: -0.1, 1: 0.1, 2: 0.0}
    many = Spread(SHARED.pool, SHARED.block, others)
    found = contrast([(1, sample_of(many)), (-1, sample_of(SHARED))])
    alike = contrast([(1, sample_of(many)), (-1, sample_of(many))])
    assert found is not None
    assert alike is not None
    assert found.error.variance >= variance([others[number] - EFFECTS[number] for number in EFFECTS]) / 3
    assert alike.error.variance == pytest.approx(COMMON * 0.02 / (COMMON + 2) / 3)


def test_a_pass_that_only_one_of_two_cells_has_is_left_out_of_their_ratio() -> None:
    found = contrast([(1, sample_of(SHARED, SHIFTED)), (-1, sample_of(SHARED, SHIFTED[:2]))])
    assert found is not None
    assert found.error.variance == pytest.approx(COMMON * 0.02 / (COMMON + 1) / 2)


def test_where_most_passes_are_not_common_what_they_did_is_in_the_ratio() -> None:
    spread = Spread(Pool(0.0, 40), Block(4), {0: -0.3, 1: 0.1, 2: 0.2, 3: 0.0})
    four, two = sample_of(spread, (100.0,) * 4), sample_of(spread, (100.0,) * 2)
    found = contrast([(1, four), (-1, two)])
    assert found is not None
    assert found.error.variance > variance(spread.effects.values()) * 2 * (1 / 4) ** 2


def test_nothing_is_known_better_than_the_variances_of_its_pool() -> None:
    pool = Pool(0.01, 5)
    found = contrast([(0.25, sample_of(Spread(pool))) for _ in range(4)])
    assert found is not None
    assert found.error.freedom == 5


def test_beside_others_a_level_is_known_better_than_alone_by_what_passes_did_to_all() -> None:
    shaken, calm = sample_of(SHARED, SHIFTED), sample_of(replace(SHARED, effects={}), (100.0,) * 3)
    alone = contrast([(1.0, calm)])
    assert alone is not None
    assert width_beside_others(calm) == pytest.approx(exp(alone.error.half_width()) - 1)
    assert width_beside_others(shaken) == pytest.approx(width_beside_others(calm))
    assert width_beside_others(Sample((1.0,), one_process=True)) is None
    assert width_beside_others(Sample((0.0, 1.0), one_process=True)) is None


def test_holm_rejects_step_by_step() -> None:
    # Four tests at 5 %: 0.05 / 4, then / 3, then / 2; the first that fails ends it.
    assert rejected(dict(enumerate([0.012, 0.016, 0.03, 0.04])), 0.05) == {0, 1}
    assert rejected(dict(enumerate([0.04, 0.03, 0.016, 0.012])), 0.05) == {2, 3}
    assert rejected({"a": 0.02, "b": 0.02}, 0.05) == {"a", "b"}
    assert rejected({}, 0.05) == frozenset()


def test_a_ratio_is_slower_faster_the_same_or_inconclusive() -> None:
    ratios = {name: Contrast(log(level), Error(1e-4, 50)) for name, level in LEVELS_OF_RATIOS.items()}
    known = {"slower": "slower", "same": "same", "faster": "faster", "unclear": "inconclusive", "none": "inconclusive"}
    assert verdicts({**ratios, "none": None}, low=0.95, high=1.05, same=0.05) == known
    assert {verdicts(ratios)[name] for name in ("same", "faster")} == {"inconclusive"}
    assert [verdicts(ratios, high=1.0)[name] for name in ("slower", "same", "faster")] == [
        "slower",
        "inconclusive",
        "faster",
    ]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_rejects_at_least_what_bonferroni_does_and_nothing_above_the_level(chances: list[float]) -> None:
    found = rejected(dict(enumerate(chances)), 0.05)
    for number, chance in enumerate(chances):
        assert number in found or chance > 0.05 / len(chances)
        assert number not in found or chance <= 0.05
