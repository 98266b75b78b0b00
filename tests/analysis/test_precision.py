"""Which cells are not precise enough yet, and which can be measured once more."""

from __future__ import annotations

from support.records import make_cell, make_header

from vebench.analysis.summary import FEWEST_PROCESSES, next_repeats, wide_cells
from vebench.plan.cells import CellKey
from vebench.results.records import CellRecord, Run

UNTIL = 0.02
NARROW = (1000, 1001, 999, 1000, 1002)
WIDE = (1000, 1500, 700, 1200, 900)


def repeated(backend: str, workers: int, rates: tuple[int, ...]) -> tuple[CellRecord, ...]:
    """Return a repeat with steady windows for each of ``rates``."""
    return tuple(make_cell(backend, workers, (steps,) * 3, repeat=repeat) for repeat, steps in enumerate(rates))


def run(*cells: CellRecord) -> Run:
    return Run(make_header(), cells)


def key_of(backend: str, workers: int) -> CellKey:
    return CellKey(env="ALE/Pong-v5", backend=backend, workers=workers, envs_per_worker=1)


def test_cells_whose_interval_is_within_what_was_asked_are_precise_enough() -> None:
    assert wide_cells(run(*repeated("for-loop", 1, NARROW), *repeated("gym-sync", 1, NARROW)), UNTIL) == set()


def test_cells_whose_interval_is_wider_are_not() -> None:
    cells = (
        *repeated("for-loop", 1, WIDE),
        *(
            record
            for backend in ("gym-sync", "gym-async", "shm-sync", "shm-async")
            for record in repeated(backend, 1, NARROW)
        ),
    )
    assert wide_cells(run(*cells), UNTIL) == {key_of("for-loop", 1)}


def test_an_interval_that_is_narrow_by_chance_after_few_processes_does_not_count() -> None:
    few = NARROW[: FEWEST_PROCESSES - 1]
    assert wide_cells(run(*repeated("gym-sync", 1, few)), UNTIL) == {key_of("gym-sync", 1)}


def test_many_windows_of_one_process_do_not_count_either() -> None:
    assert wide_cells(run(make_cell("gym-sync", 1, NARROW * 4)), 0.9) == {key_of("gym-sync", 1)}


def test_a_cell_that_was_never_measured_is_not_precise() -> None:
    failed = make_cell("gym-sync", 1, status="failed", reason="boom")
    assert wide_cells(run(failed), UNTIL) == {key_of("gym-sync", 1)}


def test_the_next_repeat_follows_the_last_that_there_is() -> None:
    cells = (*repeated("for-loop", 1, NARROW)[::-1], *repeated("gym-sync", 2, NARROW[:2]))
    assert next_repeats(run(*cells)) == {key_of("for-loop", 1): 5, key_of("gym-sync", 2): 2}


def test_a_cell_that_failed_last_is_not_tried_again() -> None:
    failed = make_cell("gym-sync", 1, status="failed", reason="boom", repeat=5)
    skipped = make_cell("gym-sync", 2, status="skipped", reason="no memory")
    assert next_repeats(run(*repeated("gym-sync", 1, WIDE), failed, skipped)) == {}


def test_a_cell_that_failed_once_and_went_well_again_is() -> None:
    first = make_cell("gym-sync", 1, status="failed", reason="boom")
    assert next_repeats(run(first, *repeated("gym-sync", 1, WIDE)[1:])) == {key_of("gym-sync", 1): 5}


def test_a_repeat_that_the_user_ended_is_measured_again() -> None:
    ended = make_cell("gym-sync", 1, status="failed", reason="interrupted", repeat=5)
    assert next_repeats(run(*repeated("gym-sync", 1, WIDE), ended)) == {key_of("gym-sync", 1): 5}
