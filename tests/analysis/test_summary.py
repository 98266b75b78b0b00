"""From raw windows to what each cell achieved."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import exp, sqrt
from random import Random
from typing import TYPE_CHECKING

import pytest
from support.records import make_cell, make_header

from vebench.analysis.statistics import PROCESS_SPREAD, Estimate, Sample, around, estimate
from vebench.analysis.summary import frame_rates, summarise
from vebench.child.window import OF_LOOP, Window
from vebench.plan.cells import CellKey
from vebench.results.records import CellRecord, Run

if TYPE_CHECKING:
    from collections.abc import Callable

    from vebench.analysis.cell import CellSummary

    Summaries = Callable[..., list[CellSummary]]

STEADY = (1000, 1000, 1000, 1000)
NORMAL = 1.959963984540054  # the 97.5 % quantile


def double(steps: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(2 * count for count in steps)


def several(*rates: float) -> Sample:
    """Return one rate of each of several processes."""
    return Sample(rates, one_process=False)


def of_one_process(median: float) -> Estimate:
    """Return the estimate from windows of one process that agree."""
    return around(median, NORMAL * PROCESS_SPREAD)


def of_two_processes(ratio: float) -> Estimate:
    """Return the ratio of two such estimates."""
    return around(ratio, NORMAL * PROCESS_SPREAD * sqrt(2))


@pytest.fixture
def summaries() -> Summaries:
    def summarised(*cells: CellRecord, **host: int) -> list[CellSummary]:
        return list(summarise(Run(make_header(**host), cells)))

    return summarised


def test_frames_are_transitions_times_the_frame_skip_and_resets_are_none(summaries: Summaries) -> None:
    window = Window(ns=2 * 10**9, rows=1100, resets=100)
    (found,) = summaries(make_cell(windows=(window, window), frame_skip=4))
    assert found.steps_per_second == of_one_process(500.0)
    assert found.frames_per_second == of_one_process(2000.0)
    assert (found.rows, found.resets, found.windows) == (2200, 200, 2)


def test_speedup_is_over_the_for_loop_with_one_worker(summaries: Summaries) -> None:
    one, two, pool = summaries(
        make_cell("for-loop", 1, STEADY), make_cell("for-loop", 2, STEADY), make_cell("envpool-sync", 2, double(STEADY))
    )
    assert one.speedup == Estimate(1.0, 1.0, 1.0)
    assert two.speedup == of_two_processes(1.0)
    assert pool.speedup == of_two_processes(2.0)


def test_other_work_has_a_rate_but_is_compared_with_nothing(summaries: Summaries) -> None:
    _, liar, _ = summaries(
        make_cell("for-loop", 1, STEADY),
        make_cell("gym-sync", 1, double(STEADY), verdict="different"),
        make_cell("ceiling", 1, double(STEADY)),
    )
    assert liar.frames_per_second
    assert liar.frames_per_second.median == pytest.approx(8000.0)
    assert (liar.speedup, liar.efficiency, liar.of_ceiling) == (None, None, None)


def test_the_worst_verdict_of_all_repeats_counts(summaries: Summaries) -> None:
    (found,) = summaries(
        make_cell("gym-sync", 1, STEADY, verdict="identical"),
        make_cell("gym-sync", 1, STEADY, verdict="different", verdict_reason="stale", repeat=1),
    )
    assert (found.verdict, found.verdict_reason) == ("different", "stale")


def test_efficiency_is_speedup_for_each_cpu_owned(summaries: Summaries) -> None:
    found = summaries(
        make_cell("for-loop", 1, STEADY),
        make_cell("envpool-sync", 2, double(STEADY)),
        make_cell("envpool-sync", 8, double(STEADY)),
    )
    assert [one.efficiency and one.efficiency.median for one in found] == [1.0, 1.0, 1.0]
    assert [one.cpus_owned for one in found] == [1, 2, 2]


def test_without_pinning_a_cell_owns_no_more_cpus_than_workers(summaries: Summaries) -> None:
    (found,) = summaries(make_cell("envpool-sync", 2, STEADY, cpus=tuple(range(8))), usable_cpus=8)
    assert found.cpus_owned == 2


def test_without_a_for_loop_there_is_no_speedup(summaries: Summaries) -> None:
    for others in (
        (),
        (make_cell("for-loop", 2, STEADY),),
        (make_cell("for-loop", 1, STEADY, env="Ant-v5"),),
        (make_cell("for-loop", 1, STEADY, envs_per_worker=2),),
        (make_cell("for-loop", 1, STEADY, status="failed", reason="boom"),),
    ):
        found = summaries(make_cell("envpool-sync", 2, STEADY), *others)[0]
        assert (found.speedup, found.efficiency) == (None, None)


def test_the_share_of_the_ceiling_is_that_of_the_same_workers(summaries: Summaries) -> None:
    pool, two, one = summaries(
        make_cell("envpool-sync", 2, STEADY), make_cell("ceiling", 2, double(STEADY)), make_cell("ceiling", 1, STEADY)
    )
    assert pool.of_ceiling
    assert vars(pool.of_ceiling) == pytest.approx(vars(of_two_processes(0.5)))
    assert (two.of_ceiling, one.of_ceiling) == (None, None)


def test_frames_per_cpu_second_count_the_time_of_the_whole_process_tree(summaries: Summaries) -> None:
    windows = tuple(Window(ns=10**9, rows=1000, resets=0, cpu_ns=time) for time in (2 * 10**9, None, 0))
    (found,) = summaries(make_cell(windows=windows, frame_skip=4))
    assert found.frames_per_cpu_second == Estimate(2000.0)


def test_the_null_backend_shows_what_the_loop_costs_and_no_speedup(summaries: Summaries) -> None:
    null, loop = summaries(make_cell("null", 2, (4_000_000, 4_000_000), batch_size=2), make_cell("for-loop", 1, STEADY))
    assert null.loop_ns_per_batch == of_one_process(500.0)
    assert (null.speedup, null.efficiency, null.of_ceiling) == (None, None, None)
    assert loop.loop_ns_per_batch is None


def test_of_several_repeats_each_is_one_observation(summaries: Summaries) -> None:
    (found,) = summaries(
        make_cell("for-loop", 1, (1000, 1000, 1), startup_ns=10**9, peak_rss_bytes=5, frame_skip=1),
        make_cell("for-loop", 1, (1200, 9000, 1200), startup_ns=3 * 10**9, peak_rss_bytes=9, repeat=1, frame_skip=1),
        make_cell("for-loop", 1, (1,), status="failed", startup_ns=None, peak_rss_bytes=None, repeat=2, frame_skip=1),
    )
    assert (found.repeats, found.windows, found.startup_seconds, found.peak_rss_bytes) == (3, 6, 2.0, 9)
    assert len(found.sample.rates) == 2
    expected = estimate(several(1000.0, 1200.0)), estimate(several(1e9 / 1000, 1e9 / 1200))
    for one, other in zip((found.frames_per_second, found.ns_per_batch), expected, strict=True):
        assert one is not None
        assert vars(one) == pytest.approx(vars(other))
    assert found.frames_per_cpu_second == found.frames_per_second


def test_a_speedup_of_repeats_is_that_of_their_passes(summaries: Summaries) -> None:
    loop, pool = (990, 1000, 1010), (1900, 2000, 2100)
    _, found = summaries(
        *(make_cell("for-loop", 1, (steps, steps), repeat=repeat) for repeat, steps in enumerate(loop)),
        *(make_cell("envpool-sync", 2, (steps, steps), repeat=repeat) for repeat, steps in enumerate(pool)),
    )
    expected = estimate(several(*(above / below for above, below in zip(pool, loop, strict=True))))
    assert found.speedup is not None
    assert vars(found.speedup) == pytest.approx(vars(expected))


def test_the_interval_of_repeats_holds_the_true_median_as_often_as_it_says() -> None:
    random = Random(1)  # noqa: S311 - a simulation to repeat, no secret
    held = 0
    for _ in range(400):
        processes = [random.gauss(0, 0.05) for _ in range(4)]
        cells = [
            make_cell(steps=tuple(round(1e6 * exp(luck + random.gauss(0, 0.01))) for _ in range(6)), repeat=repeat)
            for repeat, luck in enumerate(processes)
        ]
        found = estimate(frame_rates(cells))
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 4e6 <= found.high
    assert 365 <= held <= 398


def test_windows_that_a_quota_held_back_are_left_out_where_there_are_others(summaries: Summaries) -> None:
    slow = Window(ns=10**9, rows=10, resets=0, cpu_ns=10**9, throttled_ns=5 * 10**8)
    free = Window(ns=10**9, rows=1000, resets=0, cpu_ns=10**9, throttled_ns=0)
    found = summaries(
        make_cell("for-loop", 1, windows=(slow, free, free)),
        make_cell("gym-sync", 1, windows=(slow, slow)),
        make_cell("shm-sync", 1, windows=(slow,)),
        make_cell("shm-sync", 1, windows=(free,), repeat=1),
    )
    assert [one.steps_per_second and one.steps_per_second.median for one in found] == [1000.0, 10.0, 1000.0]
    assert [(len(one.sample.rates), one.throttled_windows, one.windows) for one in found] == [
        (2, 1, 3),
        (2, 2, 2),
        (1, 1, 2),
    ]


def test_windows_that_others_disturbed_are_left_out_where_enough_others_are(summaries: Summaries) -> None:
    slow, free = Window(10**9, 500, 0, others_ns=5 * 10**8), Window(10**9, 1000, 0, others_ns=10**7)
    some, most, of_several = summaries(
        make_cell("for-loop", 1, windows=(slow, free, free, free)),
        make_cell("gym-sync", 1, windows=(slow, slow, slow, free)),
        *(make_cell("shm-sync", 1, windows=(slow, free), repeat=repeat) for repeat in range(2)),
        make_cell("shm-sync", 1, windows=(slow, slow), repeat=2),
    )
    cells = (some, most, of_several)
    medians = [cell.steps_per_second.median for cell in cells if cell.steps_per_second]
    assert medians == pytest.approx([1000.0, 500.0, 1000.0])
    assert [(len(cell.sample.rates), cell.disturbed_windows, cell.windows) for cell in cells] == [
        (3, 1, 4),
        (4, 3, 4),
        (2, 4, 6),
    ]
    assert [(cell.disturbed, round(cell.others_share, 4)) for cell in cells] == [
        (False, 0.01),
        (True, 0.3775),
        (False, 0.01),
    ]


def test_a_cell_is_disturbed_by_what_no_single_window_shows_beyond_doubt(summaries: Summaries) -> None:
    window = Window(25 * 10**7, 1000, 0, steal_ns=3 * 10**7)
    short, long = summaries(
        make_cell("for-loop", 1, windows=(window,)), make_cell("gym-sync", 1, windows=(window,) * 9)
    )
    assert [(cell.disturbed, cell.disturbed_windows) for cell in (short, long)] == [(False, 0), (True, 0)]


def test_totals_add_up_every_counter_of_a_run_file(summaries: Summaries) -> None:
    counters = dict.fromkeys((item.name for item in fields(Window) if item.name not in OF_LOOP), 3)
    (found,) = summaries(
        *(
            make_cell(windows=(Window(**{**counters, "throttled_ns": 0, "throttles": 0}),) * 2, repeat=repeat)
            for repeat in range(2)
        )
    )
    assert found.totals == {**dict.fromkeys(counters, 12), "throttled_ns": 0, "throttles": 0}


def test_a_total_is_unknown_if_one_window_lacks_its_counter(summaries: Summaries) -> None:
    windows = (Window(10**9, 1000, 0, cpu_ns=5, switches=7), Window(10**9, 1000, 0, cpu_ns=6))
    (found,) = summaries(make_cell(windows=windows))
    assert (found.totals["rows"], found.totals["cpu_ns"], found.totals["switches"]) == (2000, 11, None)


def test_totals_are_those_of_the_windows_that_count(summaries: Summaries) -> None:
    held_back, free = Window(10**9, 10, 0, throttles=1), Window(10**9, 1000, 0, throttles=0)
    some, none = summaries(
        make_cell("for-loop", 1, windows=(held_back, free, free)),
        make_cell("gym-sync", 1, windows=(held_back, held_back)),
        make_cell("gym-sync", 1, windows=(free,), status="failed", reason="boom", repeat=1),
    )
    assert (some.totals["rows"], some.totals["throttles"], some.rows) == (2000, 0, 2010)
    assert (none.totals["rows"], none.totals["throttles"], none.rows) == (20, 2, 20)


def test_a_cell_is_known_by_the_key_of_its_repeats(summaries: Summaries) -> None:
    records = [make_cell("shm-sync", 2, STEADY, options={"spin": 3}, repeat=repeat) for repeat in range(2)]
    (found,) = summaries(*records)
    assert {record.key.without_repeat for record in records} == {found.key}
    assert found.key == CellKey(env="ALE/Pong-v5", backend="shm-sync[spin=3]", workers=2, envs_per_worker=1)


@dataclass(frozen=True)
class KeyOfAHost(CellKey):
    """A key with one more dimension."""

    host: str = "here"


def test_one_more_field_of_the_key_keeps_cells_apart_and_speedups_with_their_own_loop(
    summaries: Summaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    def key(record: CellRecord) -> CellKey:
        host = "there" if record.startup_ns == 1 else "here"
        return KeyOfAHost(record.env, record.label, record.workers, record.envs_per_worker, record.repeat, host)

    monkeypatch.setattr(CellRecord, "key", property(key))
    there = {"startup_ns": 1}
    cells = summaries(
        make_cell("for-loop", 1, STEADY),
        make_cell("shm-sync", 2, double(STEADY), processes=2),
        make_cell("for-loop", 1, double(STEADY), **there),
        make_cell("shm-sync", 1, double(double(STEADY)), processes=1, **there),
        make_cell("ceiling", 2, STEADY, **there),
    )
    assert len({cell.key for cell in cells}) == len(cells)
    assert [cell.speedup and round(cell.speedup.median, 6) for cell in cells] == [1.0, 2.0, 1.0, 2.0, 0.5]
    assert cells[1].of_ceiling is None
    assert [finding.code for cell in cells for finding in cell.findings] == []


@pytest.mark.parametrize(
    ("fields", "crowded"),
    [
        ({"processes": 2, "threads": 1}, False),
        ({"processes": 16, "threads": 1}, True),
        ({"processes": 1, "threads": 3}, True),
        ({"processes": 16, "threads": 1, "options": {"max_concurrency": 2}}, False),
        ({"processes": 16, "threads": 1, "workers": 4}, False),  # that is oversubscribed
    ],
)
def test_more_processes_or_threads_than_cpus_owned_are_crowded(
    summaries: Summaries, fields: dict[str, object], crowded: bool
) -> None:
    (found,) = summaries(make_cell(**{"backend": "gym-async", "workers": 2, "steps": STEADY, **fields}))
    assert found.crowded is crowded


def test_a_failed_repeat_does_not_hide_those_that_went_well(summaries: Summaries) -> None:
    (found,) = summaries(
        make_cell("for-loop", 1, (9,), status="failed", reason="boom"), make_cell("for-loop", 1, STEADY, repeat=1)
    )
    assert (found.status, found.reason, found.repeats, found.failed_repeats) == ("ok", "boom", 2, 1)
    assert found.steps_per_second == of_one_process(1000.0)


@pytest.mark.parametrize("status", ["failed", "skipped"])
def test_a_cell_that_was_not_measured_has_no_rates(summaries: Summaries, status: str) -> None:
    (found,) = summaries(make_cell("gym-async", 2, (5, 5), status=status, reason="boom", startup_ns=None))
    assert (found.status, found.reason) == (status, "boom")
    assert (found.steps_per_second, found.frames_per_second, found.speedup) == (None, None, None)
    assert found.startup_seconds is None


def test_a_window_without_transitions_does_not_crash(summaries: Summaries) -> None:
    idle = Window(ns=10**9, rows=10, resets=10, cpu_ns=10**9)
    empty = Window(ns=10**9, rows=0, resets=0, cpu_ns=10**9)
    found = summaries(make_cell("for-loop", 1, windows=(idle, empty)), make_cell("gym-sync", 1, windows=(empty, idle)))
    assert [one.frames_per_second for one in found] == [Estimate(0.0, 0.0, 0.0)] * 2
    assert [one.speedup for one in found] == [None, None]


def test_more_workers_than_usable_cpus_are_oversubscribed(summaries: Summaries) -> None:
    found = summaries(*(make_cell("for-loop", workers, STEADY) for workers in (1, 2, 4)))
    assert [one.oversubscribed for one in found] == [False, False, True]


def test_options_make_a_backend_another(summaries: Summaries) -> None:
    found = summaries(
        make_cell("envpool-async", 2, STEADY), make_cell("envpool-async", 2, double(STEADY), options={"ratio": 2})
    )
    assert [one.label for one in found] == ["envpool-async", "envpool-async[ratio=2]"]


def test_the_largest_counts_that_a_file_may_hold_do_not_crash(summaries: Summaries) -> None:
    most = 2**63 - 1
    windows = (Window(ns=1, rows=most, resets=0, cpu_ns=1), Window(ns=most, rows=1, resets=0, cpu_ns=most))
    found = summaries(
        make_cell(windows=windows, frame_skip=most), make_cell("ceiling", windows=windows, cpus=(), num_envs=0)
    )
    assert all(one.frames_per_second is not None for one in found)
