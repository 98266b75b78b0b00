"""Findings on how a cell was measured."""

from __future__ import annotations

import pytest
from support.findings import NOISY, STEADY, codes, findings
from support.records import make_cell, make_header

from vebench.analysis.summary import summarise
from vebench.child.window import Window
from vebench.results.records import Run


@pytest.mark.parametrize(("windows", "too_few"), [(0, True), (1, True), (2, True), (3, True), (4, False)])
def test_too_few_windows_are_reported(windows: int, too_few: bool) -> None:
    assert codes(make_cell("for-loop", 1, STEADY[:windows])) == [["imprecise"] if too_few else []]


def test_repeats_too_few_for_an_interval_are_reported_as_such() -> None:
    for count, expected in ((2, [("imprecise", "measure with --repeats 4 or more")]), (4, [])):
        (found,) = findings(*(make_cell("for-loop", 1, STEADY, repeat=repeat) for repeat in range(count)))
        assert [(finding.code, finding.remedy) for finding in found] == expected


def test_an_unstable_reference_is_said_in_one_line_with_the_others() -> None:
    (loop,), (other,) = findings(make_cell("for-loop", 1, NOISY), make_cell("gym-sync", 1, NOISY))
    assert loop == other
    assert (loop.code, loop.message) == ("imprecise", "its ± is wider than 20%: the rate is little more than a guess")


def test_a_loop_that_costs_over_a_microsecond_is_reported() -> None:
    assert codes(make_cell("null", 1, (900_000,) * 4)) == [["loop-cost"]]
    assert codes(make_cell("null", 1, (1_100_000,) * 4)) == [[]]


def test_a_loop_that_costs_over_a_hundredth_of_a_batch_is_reported() -> None:
    null = make_cell("null", 1, (2_000_000,) * 4)
    assert codes(null, make_cell("for-loop", 1, (10_000,) * 4)) == [[], []]
    assert codes(null, make_cell("for-loop", 1, (30_000,) * 4)) == [[], ["loop-cost"]]
    assert codes(null, make_cell("for-loop", 2, (30_000,) * 4)) == [[], []]


@pytest.mark.parametrize(("steps", "share"), [(30_000, "1%"), (150_000, "1%"), (300_000, "10%"), (1_900_000, "10%")])
def test_the_share_of_the_loop_is_reported_in_steps(steps: int, share: str) -> None:
    _, (found,) = findings(make_cell("null", 1, (2_000_000,) * 4), make_cell("for-loop", 1, (steps,) * 4))
    assert found.message == f"over {share} of the time is the measuring loop's own"


def test_a_cell_that_did_not_get_as_precise_as_was_asked_is_reported() -> None:
    narrow, wide = (1000, 1001, 999, 1000, 1002), (1000, 1500, 700, 1200, 900)
    cells = [
        make_cell(backend, 1, (steps,) * 3, repeat=repeat)
        for backend, rates in (
            *((backend, narrow) for backend in ("for-loop", "shm-sync", "shm-async")),
            ("gym-sync", wide),
        )
        for repeat, steps in enumerate(rates)
    ]
    cells.append(make_cell("gym-async", 1, status="failed", reason="boom"))
    asked, not_asked = (
        [
            cell.label
            for cell in summarise(Run(make_header(until=until), tuple(cells)))
            if any("--until" in finding.message for finding in cell.findings)
        ]
        for until in (0.02, None)
    )
    assert (asked, not_asked) == (["gym-sync"], [])


def test_a_rate_that_drifts_is_reported_with_the_remedy_that_fits() -> None:
    rising = tuple(round(1000 * 1.02**window) for window in range(6))
    (up,), (down,) = findings(make_cell("for-loop", 1, rising), make_cell("for-loop", 2, rising[::-1]))
    assert [up.code, down.code] == ["drifting", "drifting"]
    assert "--warmup" in up.remedy
    assert "falls" in down.message


def test_a_warm_up_that_ended_before_the_rate_had_settled_is_reported() -> None:
    cells = (make_cell("for-loop", 1, STEADY, settled=False), make_cell("for-loop", 2, STEADY, settled=True))
    assert codes(*cells) == [["drifting"], []]


def test_windows_of_few_batches_are_reported() -> None:
    cells = (make_cell("for-loop", 1, (49, 60, 60, 60)), make_cell("for-loop", 2, (120, 120, 100, 120)))
    assert [("short-windows" in found) for found in codes(*cells)] == [True, False]


def test_an_outlier_is_reported_and_kept() -> None:
    steps = (1000, 1001, 999, 1000, 1002, 998, 1003, 997, 1001, 999, 1000, 800)
    (cell,) = summarise(Run(make_header(), (make_cell("for-loop", 1, steps),)))
    assert [finding.code for finding in cell.findings] == ["outliers"]
    assert len(cell.sample.rates) == 12


def test_resets_in_bursts_are_reported() -> None:
    windows = tuple(Window(ns=10**9, rows=1000 + count, resets=count) for count in (0, 64, 0, 0))
    assert codes(make_cell(windows=windows)) == [["outliers"]]
