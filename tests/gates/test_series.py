"""Series of many runs: where levels changed, which points belong together, what is news, how much runs differ."""

from collections.abc import Sequence
from dataclasses import replace
from math import exp, log, sqrt
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.records import make_header, make_runs

from vebench.child.answers import Window
from vebench.gates.history import (
    FEWEST,
    LEAST,
    RECENT,
    SHORTEST,
    HistoryPage,
    change_points,
    history_of,
    parts,
    run_spread,
    spread_of_runs,
)
from vebench.results.records import Run, RunRecord

LOOP, ASYNC = ("for-loop", 1), ("gym-async", 2)
HOST = make_header().host
ELSEWHERE = msgspec.structs.replace(make_header(), host=msgspec.structs.replace(HOST, cpu_model="Other CPU"))
UPGRADED = msgspec.structs.replace(make_header(), packages={"gymnasium": "1.5.0"})


def around(seed: int, count: int, drop: int | None = None, level: float = 100.0, noise: float = 0.03) -> list[float]:
    """Return the rates of so many runs, 8 % lower from ``drop`` on."""
    random = Random(seed)
    return [
        level * exp(random.gauss(0, noise)) * (0.92 if drop is not None and index >= drop else 1)
        for index in range(count)
    ]


def sizes(found: HistoryPage) -> list[int]:
    return [len(series.levels) for series in found.series]


def with_cell(run: Run, **fields: object) -> Run:
    """Return ``run`` with its last cell changed."""
    return msgspec.structs.replace(run, cells=(*run.cells[:-1], replace(run.cells[-1], **fields)))


@pytest.mark.parametrize("other", [UPGRADED, make_header(pin="scatter")])
def test_a_cell_has_a_series_for_each_set_of_packages_and_each_placement(other: RunRecord) -> None:
    found = history_of([*make_runs({ASYNC: [1.0] * 3}), *make_runs({ASYNC: [1.0] * 2}, other, 3)])
    assert (found.metric, sizes(found)) == ("fps", [3, 2])
    assert [len(series.levels) for series in found.current] == [2]
    fewer_cpus = [(name, with_cell(run, num_envs=1)) for name, run in make_runs({ASYNC: [1.0]})]
    assert sizes(history_of([*fewer_cpus, *make_runs({ASYNC: [1.0]}, first=1)])) == [1, 1]


def test_rates_that_are_not_of_the_cell_alone_are_left_out_and_counted() -> None:
    runs = make_runs({LOOP: [10.0] * 7, ASYNC: [20.0] * 7})
    taken = Window(ns=10**9, rows=100, resets=0, cpu_ns=10**9, steal_ns=10**9)
    changed: Sequence[dict[str, object]] = [
        {"status": "failed", "reason": "boom", "windows": ()},
        {"status": "skipped", "reason": "not here", "windows": ()},
        {"verdict": "different"},
        {"windows": (taken,) * 4},
        {"windows": (replace(taken, steal_ns=0, throttled_ns=5 * 10**8),) * 4},
        {"windows": ()},
    ]
    worse = [(name, with_cell(run, **fields)) for (name, run), fields in zip(runs[:6], changed, strict=True)]
    found = history_of([*worse, runs[6]])
    assert sizes(found) == [7, 1]
    assert found.left_out == {"failed": 1, "other work": 1, "disturbed": 1, "throttled": 1, "no rate": 1}


def test_a_drop_is_news_until_runs_before_the_newest_five_show_it() -> None:
    rates = around(1, 60, drop=40)
    slower = [bool(history_of(make_runs({ASYNC: rates[:count]})).slower) for count in range(41, 54)]
    first = slower.index(True)
    assert 3 <= first + 1 <= 5  # runs with the drop
    assert slower[first : first + RECENT] == [True] * RECENT
    assert not any(slower[first + RECENT :])
    (series,) = history_of(make_runs({ASYNC: rates})).series
    assert [series.runs[change.at] for change in series.changes] == pytest.approx([40], abs=1)


def test_a_drop_under_other_conditions_or_of_a_cell_that_is_gone_is_no_news() -> None:
    before, after = around(3, 30, drop=25, noise=0.02), around(4, 12)
    found = history_of([*make_runs({ASYNC: before}), *make_runs({ASYNC: after}, UPGRADED, 30)])
    assert [(len(series.changes), series.news) for series in found.series] == [(1, None), (0, None)]
    assert (found.slower, found.status) == ((), 0)
    gone: list[float | None] = [*around(5, 30, drop=25, noise=0.02), *[None] * RECENT]
    found = history_of(make_runs({LOOP: around(6, 35), ASYNC: gone}))
    assert [len(series.changes) for series in found.series] == [0, 1]
    assert found.slower == ()


SHIFTS = [0.03, -0.03, 0.03, -0.03, 0.03, -0.03]


@pytest.mark.parametrize(
    ("present", "shifts", "freedom", "variance"),
    [
        ([[1, 2]] * 6, SHIFTS, 5, 6 * 0.03**2 / 5),
        ([[1, 2]] * 6 + [[3]] * 4, [*SHIFTS, 0, 0, 0, 0], 5, 6 * 0.03**2 / 5),  # a series of four runs
        ([[1, 2]] * 6 + [[3, 4]] * 6, SHIFTS * 2, 10, 12 * 0.03**2 / 10),  # nothing connects the two sets
        ([[1, 2], [1], [1, 2], [1], [1, 2], [1, 2], [1, 2], [1]], [0.04, -0.04] * 4, 7, 8 * 0.04**2 / 7),
    ],
)
def test_shifts_of_runs_are_separated_from_levels(
    present: Sequence[Sequence[int]], shifts: Sequence[float], freedom: int, variance: float
) -> None:
    rates: dict[tuple[str, int], list[float | None]] = {}
    for size in sorted({workers for run in present for workers in run}):  # ``present``: the workers of each run's cells
        level = [1000 * size * exp(shift) for shift in shifts]
        rates["gym-async", size] = [rate if size in run else None for run, rate in zip(present, level, strict=True)]
    found = run_spread(history_of(make_runs(rates)).series)
    assert (found.freedom, found.variance) == (freedom, pytest.approx(variance, rel=1e-3))


def test_a_spread_needs_five_runs_under_the_same_conditions() -> None:
    runs = [*make_runs({ASYNC: [1.0, 1.02, 0.99, 1.01]}), *make_runs({ASYNC: [1.0] * 4}, ELSEWHERE, 4)]
    assert spread_of_runs(runs, make_header(), "fps") is None
    one_more = [*runs, *make_runs({ASYNC: [1.0]}, first=8)]
    found = spread_of_runs(one_more, make_header(), "fps")
    assert (found.shared.freedom, 0.005 < sqrt(found.shared.variance) < 0.02) == (4, True)


DRAWS = range(20)


def steady(seed: int, count: int = 60, noise: float = 0.03) -> list[float]:
    """Return log levels that only noise sets apart."""
    random = Random(seed)
    return [random.gauss(0, noise) for _ in range(count)]


def stepped(levels: list[float], at: int, ratio: float) -> list[float]:
    """Return ``levels`` with those from ``at`` on times ``ratio``."""
    return [level + (log(ratio) if index >= at else 0.0) for index, level in enumerate(levels)]


def places(levels: list[float]) -> list[int]:
    return [change.at for change in change_points(levels)]


def test_a_drop_of_8_percent_is_found_where_it_is_and_nothing_else_is() -> None:
    found = [change_points(stepped(steady(seed), 40, 0.92)) for seed in DRAWS]
    good = [len(changes) == 1 and abs(changes[0].at - 40) <= 5 and changes[0].worse for changes in found]
    assert sum(good) >= 19
    assert sum(changes[0].ratio.low <= 0.92 <= changes[0].ratio.high for changes in found if changes) >= 17


@pytest.mark.parametrize("correlation", [0.3, 0.6])
def test_runs_that_resemble_the_one_before_seldom_show_a_change(correlation: float) -> None:
    found = 0
    for seed in range(30):
        levels = [0.0]
        for noise in steady(seed, 79):
            levels.append(correlation * levels[-1] + sqrt(1 - correlation**2) * noise)
        found += any(places(levels[20:end]) for end in range(20 + FEWEST, 81, 6))
    assert found <= 2


def test_each_of_several_changes_is_found_however_long_the_series() -> None:
    levels = stepped(stepped(stepped(steady(7, 300), 60, 0.85), 120, 1.2), 290, 0.85)
    found = change_points(levels)
    assert [round(change.at, -1) for change in found] == [60, 120, 290]
    assert [change.worse for change in found] == [True, False, True]


@pytest.mark.parametrize("size", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("at", [0, 20, 57, 58, 59])
def test_a_single_value_that_lies_apart_is_no_change(size: float, at: int) -> None:
    levels = steady(4)
    levels[at] += log(size)
    assert places(levels) == []


@given(st.lists(st.floats(-20, 20), max_size=70))
def test_levels_are_kept_apart_by_the_changes_that_are_reported(levels: list[float]) -> None:
    found = change_points(levels)
    sides = parts(levels, [change.at for change in found])
    assert sum(map(len, sides)) == len(levels)
    if found:
        assert min(map(len, sides)) >= SHORTEST
        assert all(change.ratio.low <= change.ratio.median <= change.ratio.high for change in found)
        assert all(abs(change.ratio.median - 1) >= LEAST * 0.99 for change in found)


def test_a_drop_in_a_dozen_runs_is_found_if_their_order_is_not_that_of_time() -> None:
    random = Random(1)
    for _ in range(40):
        levels = [random.gauss(0.0, 0.03) - (1.1 if at >= 7 else 0.0) for at in range(11)]
        assert [change.at for change in change_points(levels, 0.001, drifts=False)] == [7]
