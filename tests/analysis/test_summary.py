"""From raw windows to what each cell achieved."""

from math import sqrt

import pytest
from msgspec import structs
from support.records import make_cell, make_header

from vebench.analysis.cell import CellSummary
from vebench.analysis.statistics import PROCESS_SPREAD, RUN_SPREAD, Estimate, Sample, around, estimate_of_rate
from vebench.analysis.summary import is_wide, next_repeats, rated, summarise
from vebench.child.answers import Window
from vebench.plan.cells import CellKey
from vebench.results.records import CellRecord, Run

STEADY = (1000, 1000, 1000, 1000)
NORMAL = 1.959963984540054  # the 97.5 % quantile


def double(steps: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(2 * count for count in steps)


def several(*rates: float) -> Sample:
    """Return one rate of each of several processes."""
    return Sample(rates, one_process=False)


def of_one_process(median: float) -> Estimate:
    """Return the estimate from windows of one process that agree, which holds for other runs, too."""
    return around(median, NORMAL * sqrt(PROCESS_SPREAD**2 + RUN_SPREAD**2))


def of_two_processes(ratio: float) -> Estimate:
    """Return the ratio of two such estimates."""
    return around(ratio, NORMAL * PROCESS_SPREAD * sqrt(2))


def summaries(*cells: CellRecord, **host: int) -> list[CellSummary]:
    return list(summarise(Run(make_header(**host), cells)))


def test_frames_are_transitions_times_the_frame_skip_and_resets_are_none() -> None:
    window = Window(ns=2 * 10**9, rows=1100, resets=100)
    (found,) = summaries(make_cell(windows=(window, window), frame_skip=4))
    assert found.figures.steps_per_second == of_one_process(500.0)
    assert found.frames_per_second == of_one_process(2000.0)
    assert (found.figures.rows, found.figures.resets, found.conditions.windows) == (2200, 200, 2)


def test_a_rare_slow_window_counts_in_each_process_of_a_run_and_of_a_side_of_compare() -> None:
    windows = (1000, 1000, 1000, 600)
    cells = [make_cell("gym-sync", 1, windows, repeat=repeat, frame_skip=1) for repeat in range(2)]
    side = structs.replace(make_header(), interpreter="/new/python")
    (of_run,), (of_side,) = (summarise(Run(head, tuple(cells))) for head in (make_header(), side))
    assert of_run.sample.rates == (900.0, 900.0)
    assert of_side.sample.rates == (900.0, 900.0)


def test_speedup_is_over_the_for_loop_with_one_worker() -> None:
    one, two, pool = summaries(
        make_cell("for-loop", 1, STEADY), make_cell("for-loop", 2, STEADY), make_cell("envpool-sync", 2, double(STEADY))
    )
    assert one.speedup == Estimate(1.0, 1.0, 1.0)
    assert two.speedup == of_two_processes(1.0)
    assert pool.speedup == of_two_processes(2.0)


def test_without_a_for_loop_there_is_no_speedup() -> None:
    for others in (
        (),
        (make_cell("for-loop", 2, STEADY),),
        (make_cell("for-loop", 1, STEADY, env="Ant-v5"),),
        (make_cell("for-loop", 1, STEADY, envs_per_worker=2),),
        (make_cell("for-loop", 1, STEADY, status="failed", reason="boom"),),
    ):
        found = summaries(make_cell("envpool-sync", 2, STEADY), *others)[0]
        assert (found.speedup, found.figures.efficiency) == (None, None)


def test_the_null_backend_shows_what_the_loop_costs_and_no_speedup() -> None:
    null, loop = summaries(make_cell("null", 2, (4_000_000, 4_000_000), batch_size=2), make_cell("for-loop", 1, STEADY))
    assert null.loop_ns_per_batch == of_one_process(500.0)
    assert (null.speedup, null.figures.efficiency, null.figures.of_ceiling) == (None, None, None)
    assert loop.loop_ns_per_batch is None


def test_of_several_repeats_each_is_one_observation() -> None:
    (found,) = summaries(
        make_cell("for-loop", 1, (1000, 1400, 600), startup_ns=10**9, peak_rss_bytes=5, frame_skip=1),
        make_cell("for-loop", 1, (1200, 1800, 600), startup_ns=3 * 10**9, peak_rss_bytes=9, repeat=1, frame_skip=1),
        make_cell("for-loop", 1, (1,), status="failed", startup_ns=None, peak_rss_bytes=None, repeat=2, frame_skip=1),
    )
    assert (found.repeats, found.conditions.windows, found.figures.startup_seconds, found.figures.peak_rss_bytes) == (
        3,
        6,
        2.0,
        9,
    )
    assert len(found.sample.rates) == 2
    expected = estimate_of_rate(several(1000.0, 1200.0)), estimate_of_rate(several(1e9 / 1000, 1e9 / 1200))
    for one, other in zip((found.frames_per_second, found.figures.ns_per_batch), expected, strict=True):
        assert vars(one) == pytest.approx(vars(other))
    assert found.figures.frames_per_cpu_second == found.frames_per_second


def test_windows_that_a_quota_held_back_or_others_disturbed_are_left_out_of_rates_where_enough_others_are() -> None:
    held_back, free = Window(10**9, 10, 0, throttled_ns=5 * 10**8), Window(10**9, 1000, 0, others_ns=10**7)
    taken = Window(10**9, 500, 0, others_ns=5 * 10**8)
    some, none, most = summaries(
        make_cell("for-loop", 1, windows=(held_back, taken, free, free)),
        make_cell("gym-sync", 1, windows=(held_back, held_back)),
        make_cell("shm-sync", 1, windows=(taken, taken, taken, free)),
    )
    assert [round(cell.figures.steps_per_second.median) for cell in (some, none, most)] == [1000, 10, 625]
    assert [(cell.conditions.throttled_windows, cell.conditions.disturbed_windows) for cell in (some, none, most)] == [
        (1, 1),
        (2, 0),
        (0, 3),
    ]
    assert [(cell.conditions.disturbed, round(cell.conditions.others_share, 4)) for cell in (some, most)] == [
        (False, 0.01),
        (True, 0.3775),
    ]


def test_slow_resets_do_not_leave_out_the_windows_that_hold_them_as_disturbed() -> None:
    """Others take 10 % of the CPU: more than ticks can hide in long windows only."""
    windows = tuple(
        Window(seconds * 10**8, steps, resets, others_ns=10 * seconds * 10**6)
        for seconds, steps, resets in ((2, 200, 0), (2, 200, 0), (8, 201, 1), (2, 200, 0))
    )
    (found,) = summaries(make_cell("for-loop", 1, windows=windows, num_envs=1, batch_size=1, frame_skip=1))
    assert found.sample.level == pytest.approx(800 / 1.4)
    assert (found.conditions.disturbed, found.conditions.disturbed_windows) == (True, 1)


@pytest.mark.parametrize(
    ("fields", "crowded"),
    [
        ({"processes": 2, "threads": 1}, False),
        ({"processes": 16, "threads": 1}, True),
        ({"processes": 1, "threads": 3}, True),
        ({"processes": 16, "threads": 1, "options": {"max_concurrency": 2}}, False),
        ({"processes": 1, "threads": 1, "workers": 4}, True),
    ],
)
def test_more_workers_processes_or_threads_than_cpus_are_crowded(fields: dict[str, object], crowded: bool) -> None:
    (found,) = summaries(make_cell(**{"backend": "gym-async", "workers": 2, "steps": STEADY, **fields}))
    assert found.conditions.oversubscribed is crowded


def test_the_largest_counts_that_a_file_may_hold_do_not_crash() -> None:
    most = 2**63 - 1
    windows = (Window(ns=1, rows=most, resets=0, cpu_ns=1), Window(ns=most, rows=1, resets=0, cpu_ns=most))
    found = summaries(make_cell(windows=windows, frame_skip=most), make_cell("ceiling", windows=windows, cpus=()))
    assert all(one.frames_per_second is not None for one in found)


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


def test_cells_whose_interval_is_wider_are_not() -> None:
    cells = (
        *repeated("for-loop", 1, WIDE),
        *(
            record
            for backend in ("gym-sync", "gym-async", "shm-sync", "shm-async")
            for record in repeated(backend, 1, NARROW)
        ),
    )
    assert [cell.key for cell in rated(run(*cells)) if is_wide(cell, UNTIL)] == [key_of("for-loop", 1)]


def test_the_next_repeat_follows_the_last_that_there_is() -> None:
    cells = (*repeated("for-loop", 1, NARROW)[::-1], *repeated("gym-sync", 2, NARROW[:2]))
    assert next_repeats(run(*cells)) == {key_of("for-loop", 1): 5, key_of("gym-sync", 2): 2}


def test_a_cell_that_failed_last_is_not_tried_again() -> None:
    failed = make_cell("gym-sync", 1, status="failed", reason="boom", repeat=5)
    skipped = make_cell("gym-sync", 2, status="skipped", reason="no memory")
    assert next_repeats(run(*repeated("gym-sync", 1, WIDE), failed, skipped)) == {}


def test_a_repeat_that_the_user_ended_is_measured_again() -> None:
    ended = make_cell("gym-sync", 1, status="failed", reason="interrupted", repeat=5)
    assert next_repeats(run(*repeated("gym-sync", 1, WIDE), ended)) == {key_of("gym-sync", 1): 5}
