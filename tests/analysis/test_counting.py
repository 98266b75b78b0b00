"""Which windows of a cell count."""

from __future__ import annotations

import pytest
from support.records import SECOND, make_cell

from vebench.analysis.windows import enough, that_count
from vebench.child.window import Window

CALM = Window(SECOND, 1000, 0, others_ns=0)
DISTURBED = Window(SECOND, 500, 0, others_ns=SECOND // 2)
HELD_BACK = Window(SECOND, 10, 0, throttles=1)
KINDS = {"c": CALM, "d": DISTURBED, "t": HELD_BACK}


def counted(*processes: str) -> list[str]:
    """Return which windows of each process count, by letter: calm, disturbed, throttled."""
    letters = {window: letter for letter, window in KINDS.items()}
    records = [
        make_cell(repeat=repeat, windows=tuple(KINDS[letter] for letter in process))
        for repeat, process in enumerate(processes)
    ]
    return ["".join(letters[window] for window in windows) for _, windows in that_count(records)]


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
        (["dc", "cd", "dd", "dd"], ["c", "c"]),
        (["dc", "dd", "cc", "dt", "dd"], ["dc", "dd", "cc", "d", "dd"]),
        (["dc", "dd"], ["dc", "dd"]),
        (["tt", "tc"], ["", "c"]),
        ([""], [""]),
        (["", "cc", "cc"], ["cc", "cc"]),
        ([], []),
    ],
)
def test_calm_windows_alone_count_where_enough_are_and_else_those_that_no_quota_held_back(
    processes: list[str], those_that_count: list[str]
) -> None:
    assert counted(*processes) == those_that_count


def test_repeats_that_did_not_go_well_do_not_count() -> None:
    good, bad = make_cell(windows=(CALM,)), make_cell(windows=(CALM,), status="failed", reason="boom", repeat=1)
    assert that_count([good, bad]) == [(good, [CALM])]


@pytest.mark.parametrize(
    ("calm", "windows", "suffice"),
    [
        ([1], [1], True),
        ([1], [3], True),
        ([1], [4], False),
        ([0], [4], False),
        ([0], [0], False),
        ([1, 0], [6, 6], False),
        ([1, 1, 0], [6, 6, 6], True),
        ([1, 1, 0, 0], [6] * 4, True),
        ([1, 1, 0, 0, 0], [6] * 5, False),
        ([1, 6, 2, 0, 0], [6] * 5, True),
        ([], [], False),
    ],
)
def test_calm_windows_suffice_in_two_processes_and_half_of_them_or_in_a_third_of_the_windows_of_one(
    calm: list[int], windows: list[int], suffice: bool
) -> None:
    assert enough(calm, windows) is suffice
