"""Estimates, intervals and ratios."""

from collections.abc import Sequence
from math import exp, log, nan, sqrt
from random import Random
from statistics import geometric_mean, stdev, variance

import pytest
from hypothesis import strategies as st

from vebench.analysis.statistics import (
    COMMON,
    PROCESS_SPREAD,
    Contrast,
    Effects,
    Error,
    Estimate,
    ProcessPool,
    Sample,
    contrast,
    correlation_factor,
    estimate,
    new_id,
    ratio,
    rejected,
    slower,
    width_within_run,
)

rates = st.lists(st.floats(1e-3, 1e12), min_size=2, max_size=12)


def several(values: Sequence[float]) -> Sample:
    """Return one rate of each of several processes."""
    return Sample(tuple(values), one_process=False)


def single(values: Sequence[float]) -> Sample:
    """Return the windows of one process."""
    return Sample(tuple(values), one_process=True)


def test_the_interval_is_the_documented_one() -> None:
    sample = [100.0, 110.0, 95.0, 105.0]
    student = 3.182446305284263  # the 97.5 % quantile with 3 degrees of freedom, from a printed table
    half = student * stdev([log(rate) for rate in sample]) / sqrt(4)
    found = estimate(several(sample))
    assert found.median == pytest.approx(geometric_mean(sample))
    assert found.low == pytest.approx(found.median * exp(-half))
    assert found.high == pytest.approx(found.median * exp(half))


def test_a_process_without_a_step_leaves_no_interval() -> None:
    idle, busy = several([0.0, 100.0, 110.0]), several([100.0, 100.0])
    assert estimate(idle) == Estimate(100.0)
    assert ratio(idle, busy).high is None


def test_one_process_cannot_tell_how_far_others_would_differ_so_its_interval_allows_for_that() -> None:
    steady = estimate(single([100.0] * 6))
    assert steady.high == pytest.approx(100 * exp(1.959964 * PROCESS_SPREAD))  # the normal quantile, from a table
    exact = estimate(several([100.0] * 6))
    assert exact.low == exact.high


def test_windows_that_are_alike_count_for_less() -> None:
    assert correlation_factor(6, 0.0) == 1.0
    # Two values: their mean varies by (1 + r) / 2, their half squared difference is 1 - r.
    assert correlation_factor(2, 0.3) == pytest.approx(1.3 / 0.7)
    assert correlation_factor(10_000, 0.3) == pytest.approx(1.3 / 0.7, rel=1e-3)


def test_a_process_without_a_window_is_none() -> None:
    assert Sample.of([1, 1], [1.0, 4.0], [1.0, 1.0]) == Sample((1.0, 4.0), one_process=True, passes=(1,))
    two = Sample.of([0, 0, 1, 2], [1.0, 4.0, 5.0, 9.0], [1.0, 1.0, nan, 1.0])
    assert two == Sample((2.5, 9.0), one_process=False, passes=(0, 2))
    assert Sample.of([], [], []) == several([])


def test_a_rate_is_all_that_was_counted_over_all_of_the_time() -> None:
    counts, times = [40.0, 50.0, 0.0], [0.34, 0.05, 0.3]  # with a slow reset, without one, nothing else
    assert Sample.of([0] * 3 + [1] * 3, counts * 2, times * 2).rates == pytest.approx((90 / 0.69, 90 / 0.69))
    one = Sample.of([0] * 3, counts, times)
    assert one.level == pytest.approx(90 / 0.69)
    assert estimate(one).half_width > 0.5


def test_a_window_with_little_but_a_slow_reset_does_not_make_a_rate_zero() -> None:
    one = Sample.of([0] * 3, [200.0, 200.0, 100.0], [0.2, 0.2, 1.0])
    assert min(one.rates) < 0 < one.level
    assert one.positive
    assert not Sample.of([0, 0], [0.0, 0.0], [0.2, 0.2]).positive


def simulated(random: Random, windows: int, processes: int) -> Sample:
    """Return a cell whose true median is 100: 3 % noise that is correlated by 0.3, and the spread of processes."""
    found = []
    for _ in range(processes):
        luck, noise, logs = random.gauss(0, PROCESS_SPREAD), random.gauss(0, 0.03), []
        for _ in range(windows):
            logs.append(luck + noise)
            noise = 0.3 * noise + sqrt(1 - 0.3**2) * random.gauss(0, 0.03)
        found += [100 * exp(value) for value in logs]
    return Sample.of([number for number in range(processes) for _ in range(windows)], found, [1.0] * len(found))


@pytest.mark.parametrize("processes", [1, 2, 3, 5])
@pytest.mark.parametrize("windows", [3, 10])
def test_the_interval_holds_the_true_rate_as_often_as_it_says(windows: int, processes: int) -> None:
    random = Random(1)
    trials = 2000
    found = [estimate(simulated(random, windows, processes)) for _ in range(trials)]
    held = sum(one.low <= 100 <= one.high for one in found if one and one.low and one.high)
    assert 0.92 <= held / trials <= 0.98


LEVELS_OF_RATIOS = {"slower": 0.9, "same": 1.0, "faster": 1.1, "unclear": 0.96}
ONE = Sample((100.0, 104.0, 98.0, 102.0), one_process=False)
OTHER = Sample((80.0, 84.0, 79.0), one_process=False)


def test_a_ratio_of_processes_is_welchs_test_on_their_logs() -> None:
    found = contrast([(1, ONE), (-1, OTHER)])
    stats = pytest.importorskip("scipy.stats")  # which every process of the tests would take a second to import
    expected = stats.ttest_ind([log(x) for x in ONE.rates], [log(x) for x in OTHER.rates], equal_var=False)
    interval = expected.confidence_interval()
    assert found.chance_below(1.0) == pytest.approx(expected.pvalue / 2)
    assert (found.estimate.low, found.estimate.high) == pytest.approx((exp(interval.low), exp(interval.high)))


def test_chances_of_both_sides_add_up() -> None:
    found = contrast([(1, ONE), (-1, OTHER)])
    assert found.chance_above(1.2) + found.chance_below(1.2) == pytest.approx(1)
    assert found.chance_below(found.estimate.low) == pytest.approx(0.025)


def test_a_sample_that_comes_twice_is_no_two_independent_ones() -> None:
    twice = contrast([(1, ONE), (1, ONE)])
    single = contrast([(1, ONE)])
    assert twice.error.variance == pytest.approx(4 * single.error.variance)


EFFECTS = {0: -0.3, 1: 0.1, 2: 0.2}
EACH = {0: 0, 1: 1, 2: 2}  # every pass counts for itself
SHARED = ProcessPool(0.01, 40), Effects(new_id(), EFFECTS, EACH)
SHIFTED = tuple(100 * exp(effect) for effect in EFFECTS.values())


def sample_of(
    pool: ProcessPool, effects: Effects | None = None, rates: tuple[float, ...] = (99.0, 100.0, 102.0)
) -> Sample:
    return Sample(rates, one_process=False, passes=tuple(range(len(rates))), pool=pool, effects=effects)


def test_what_a_pass_did_to_all_cells_is_in_a_rate_and_cancels_from_a_ratio() -> None:
    one, other = sample_of(*SHARED, SHIFTED), sample_of(*SHARED, SHIFTED)
    rate, over = contrast([(1, one)]), contrast([(1, one), (-1, other)])
    shift = variance(EFFECTS.values()) / 3
    own = COMMON * 0.01 / (COMMON + 2) / 3  # what its own passes show, beside the effects, is nothing
    assert rate.error.variance == pytest.approx(own + shift)
    assert rate.error.freedom < 3
    assert (over.error.variance, over.error.freedom) == (pytest.approx(2 * own), COMMON + 2)


def test_the_variance_of_the_pool_is_weighed_against_what_the_passes_themselves_show() -> None:
    one, other = sample_of(*SHARED, (90.0, 100.0, 110.0)), sample_of(*SHARED, (100.0, 100.0, 100.0))
    found = contrast([(1, one), (-1, other)])
    seen = variance([log(rate) for rate in one.rates])
    assert found.error.variance == pytest.approx((COMMON * 0.02 + 2 * seen) / (COMMON + 2) / 3)


def test_what_passes_do_to_one_kind_of_cells_only_is_in_a_ratio_of_both_kinds() -> None:
    pool, effects = SHARED
    others = {0: -0.1, 1: 0.1, 2: 0.0}
    many = pool, Effects(effects.block, others, EACH)
    found = contrast([(1, sample_of(*many)), (-1, sample_of(*SHARED))])
    alike = contrast([(1, sample_of(*many)), (-1, sample_of(*many))])
    assert found.error.variance >= variance([others[number] - EFFECTS[number] for number in EFFECTS]) / 3
    assert alike.error.variance == pytest.approx(COMMON * 0.02 / (COMMON + 2) / 3)


def test_a_pass_that_only_one_of_two_cells_has_is_left_out_of_their_ratio() -> None:
    found = contrast([(1, sample_of(*SHARED, SHIFTED)), (-1, sample_of(*SHARED, SHIFTED[:2]))])
    assert found.error.variance == pytest.approx(COMMON * 0.02 / (COMMON + 1) / 2)


def test_passes_that_are_close_in_time_count_as_one_where_what_they_did_does_not_cancel() -> None:
    effects = {0: -0.3, 1: 0.1, 2: 0.2, 3: 0.0}
    rates = tuple(100 * exp(effect) for effect in effects.values())
    for joined, shift in (
        ({0: 0, 1: 1, 2: 2, 3: 3}, 0.14 / 3 / 4),
        ({0: 0, 1: 1, 2: 2, 3: 2}, (2 + 2**2) / 16 * 0.11 / 2),
    ):
        found = contrast([(1, sample_of(ProcessPool(0.0, 40), Effects(new_id(), effects, joined), rates))])
        assert found.error.variance == pytest.approx(shift)


def test_nothing_is_known_better_than_the_variances_of_its_pool() -> None:
    pool = ProcessPool(0.01, 5)
    found = contrast([(0.25, sample_of(pool)) for _ in range(4)])
    assert found.error.freedom == 5


def test_beside_others_a_level_is_known_better_than_alone_by_what_passes_did_to_all() -> None:
    pool, effects = SHARED
    shaken, calm = sample_of(*SHARED, SHIFTED), sample_of(pool, Effects(effects.block, {}, EACH), (100.0,) * 3)
    alone = contrast([(1.0, calm)])
    assert width_within_run(calm) == pytest.approx(exp(alone.error.half_width()) - 1)
    assert width_within_run(shaken) == pytest.approx(width_within_run(calm))
    assert width_within_run(Sample((1.0,), one_process=True)) is None
    assert width_within_run(Sample((0.0, 0.0), one_process=True)) is None


def test_holm_rejects_step_by_step() -> None:
    # Four tests at 5 %: 0.05 / 4, then / 3, then / 2; the first that fails ends it.
    assert rejected(dict(enumerate([0.012, 0.016, 0.03, 0.04])), 0.05) == {0, 1}
    assert rejected(dict(enumerate([0.04, 0.03, 0.016, 0.012])), 0.05) == {2, 3}
    assert rejected({"a": 0.02, "b": 0.02}, 0.05) == {"a", "b"}
    assert rejected({}, 0.05) == frozenset()


def test_a_ratio_is_slower_only_if_it_is_significantly_below_the_bound() -> None:
    ratios = {name: Contrast(log(level), Error(1e-4, 50)) for name, level in LEVELS_OF_RATIOS.items()}
    assert slower({**ratios, "none": None}, 0.95) == {"slower"}
    assert slower(ratios).isdisjoint({"same", "faster"})
