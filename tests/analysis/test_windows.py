"""Outliers and drift: found where they are, and seldom where they are not; and which windows count."""

from math import exp
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.records import SECOND, make_cell

from vebench.analysis.windows import drift, outliers, stability, windows_of
from vebench.child.answers import Window

STEADY = [1000.0, 1010.0, 990.0, 1005.0, 995.0, 1002.0]


def noise(seed: int, processes: int, windows: int = 6) -> list[list[float]]:
    random = Random(seed)
    return [[1000 * exp(random.gauss(0, 0.03)) for _ in range(windows)] for _ in range(processes)]


def test_a_window_apart_from_the_others_of_its_process_is_an_outlier() -> None:
    assert outliers([STEADY]) == outliers([[5.0] * 6]) == outliers([[1.0, 1.0, 9.0]]) == outliers([]) == 0
    assert outliers([STEADY, [rate / 2 for rate in STEADY]]) == 0
    assert outliers([STEADY, [*STEADY, 1400.0], [*STEADY, 700.0]]) == 2


@pytest.mark.parametrize("processes", [1, 5])
def test_noise_is_seldom_called_an_outlier(processes: int) -> None:
    called = sum(outliers(noise(seed, processes)) > 0 for seed in range(1000))
    assert called <= 20


def test_a_rate_that_rises_or_falls_from_window_to_window_drifts() -> None:
    rising = [1000.0 * 1.02**window for window in range(6)]
    assert drift([rising]) == pytest.approx(1.02**5 - 1)
    assert drift([rising[::-1]]) == pytest.approx(1.02**-5 - 1)


def test_a_drift_that_every_repeat_shows_needs_fewer_windows() -> None:
    rising = [100.0, 104.0, 108.0]
    assert drift([rising]) == 0.0
    assert drift([rising] * 4) == pytest.approx(0.08)


@pytest.mark.parametrize("processes", [1, 4, 10])
def test_noise_is_seldom_called_a_drift(processes: int) -> None:
    called = sum(drift(noise(seed, processes)) != 0 for seed in range(500))
    assert called <= 18


@given(st.permutations([1.0, 2.0, 3.0, 4.0, 5.0]))
def test_only_a_monotone_row_of_five_is_beyond_chance(rates: list[float]) -> None:
    assert (drift([rates]) != 0) == (rates in ([1.0, 2.0, 3.0, 4.0, 5.0], [5.0, 4.0, 3.0, 2.0, 1.0]))


def test_a_window_that_others_disturbed_does_not_count() -> None:
    rates = [Window(ns=10**9, rows=round(rate), resets=0) for rate in STEADY]
    slow = Window(ns=10**9, rows=20, resets=0, others_ns=9 * 10**8)
    records = [make_cell(windows=(*rates, slow))]
    found = windows_of([records])
    assert stability(records, found[found["counts"]]).fewest_batches == 1000


CALM = Window(SECOND, 1000, 0, others_ns=0)
DISTURBED = Window(SECOND, 500, 0, others_ns=SECOND // 2)
HELD_BACK = Window(SECOND, 10, 0, throttles=1)
KINDS = {"c": CALM, "d": DISTURBED, "t": HELD_BACK}


def counted(*processes: str) -> list[str]:
    """Return which windows of each process count, by letter: calm, disturbed, throttled."""
    letters = {window.rows: letter for letter, window in KINDS.items()}
    records = [
        make_cell(repeat=repeat, windows=tuple(KINDS[letter] for letter in process))
        for repeat, process in enumerate(processes)
    ]
    windows = windows_of([records])
    return [
        "".join(letters[one["rows"]] for one in windows if one["counts"] and one["repeat"] == repeat)
        for repeat in range(len(processes))
    ]


@pytest.mark.parametrize(
    ("processes", "those_that_count"),
    [
        (["cccc"], ["cccc"]),
        (["cdcc"], ["ccc"]),
        (["ctdc"], ["cc"]),
        (["ddcddcddc"], ["ccc"]),  # each was calm when it was tried for the third time
        (["dddddcd"], ["dddddcd"]),
        (["dddtd"], ["dddd"]),
        (["dddd"], ["dddd"]),
        (["tttt"], ["tttt"]),
        (["tctttttt"], ["c"]),
        (["dc", "cd", "dd", "dd"], ["c", "c", "", ""]),
        (["dc", "dd", "cc", "dt", "dd"], ["dc", "dd", "cc", "d", "dd"]),
        (["dc", "dd"], ["dc", "dd"]),
        (["tt", "tc"], ["", "c"]),
        ([""], [""]),
        (["", "cc", "cc"], ["", "cc", "cc"]),
        ([], []),
    ],
)
def test_calm_windows_alone_count_where_enough_are_and_else_those_that_no_quota_held_back(
    processes: list[str], those_that_count: list[str]
) -> None:
    assert counted(*processes) == those_that_count


def test_the_calmest_of_short_windows_do_not_count_where_they_are_disturbed_together() -> None:
    tick = SECOND // 100
    short = Window(5 * tick, 1000, 0, others_ns=3 * tick)  # as little as ticks can hide
    busy = Window(5 * tick, 300, 0, others_ns=5 * tick)
    records = [make_cell(repeat=repeat, windows=(short, short, busy), cpus=(0,)) for repeat in range(9)]
    assert windows_of([records])["counts"].all()
