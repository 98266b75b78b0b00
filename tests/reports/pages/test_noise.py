"""Windows in the order of measuring, beside the level of their cell."""

from support.records import make_cell, make_header

from vebench.reports.pages.noise import noise, noise_by_cell
from vebench.results.records import CellRecord, Run


def run_of(*cells: CellRecord, **spec: object) -> Run:
    return Run(make_header(**spec), cells)


TWO_PASSES = tuple(
    make_cell(backend, 1, steps, repeat=repeat)
    for repeat, both in enumerate((((100, 110), (50, 40)), ((120, 90), (60, 50))))
    for backend, steps in zip(("for-loop", "gym-sync"), both, strict=True)
)


def test_a_window_is_beside_the_median_of_its_cell() -> None:
    windows = noise(run_of(make_cell("for-loop", 1, (100, 110, 80))))
    assert [round(window.ratio, 3) for window in windows] == [1.0, 1.1, 0.8]


def test_cells_that_take_turns_are_in_the_order_of_their_turns() -> None:
    windows = noise(run_of(*TWO_PASSES, interleave=True))
    assert [(window.key.backend, window.pass_number) for window in windows] == [
        (backend, number) for number in (0, 0, 1, 1) for backend in ("for-loop", "gym-sync")
    ]


def test_cells_that_do_not_are_one_after_the_other() -> None:
    windows = noise(run_of(*TWO_PASSES, interleave=False))
    assert [window.key.backend for window in windows] == ["for-loop", "for-loop", "gym-sync", "gym-sync"] * 2


def test_cells_that_failed_or_made_no_step_have_no_windows() -> None:
    failed = make_cell("gym-async", 2, (100,), status="failed", reason="boom")
    assert noise(run_of(failed, make_cell("gym-sync", 1, (0, 0)))) == ()


def test_the_table_has_the_extremes_of_each_cell() -> None:
    (row,) = noise_by_cell(noise(run_of(make_cell("for-loop", 1, (100, 110, 80))))).rows
    assert row.label == "ALE/Pong-v5, for-loop, 1 worker"
    assert [text.lines[0] for text in row.texts] == ["3", "-20.0%", "+10.0%", "0", "0", "+0.0% +10.0% -20.0%"]
