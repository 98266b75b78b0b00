"""Findings: what is told, of which cells, and that each comes with a remedy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest
from support.records import make_cell, make_header

from vebench.analysis.findings.rules import Finding, grouped, of_run
from vebench.analysis.summary import summarise
from vebench.backends.environments.engines import Engine
from vebench.child.window import Window
from vebench.results.records import CellRecord, Run

if TYPE_CHECKING:
    from collections.abc import Callable

    Codes = Callable[..., list[set[str]]]

STEADY = (1000, 1001, 999, 1000)
FAST = (2000, 2002, 1998, 2000)


@pytest.fixture
def codes() -> Codes:
    def found(*cells: CellRecord) -> list[set[str]]:
        return [{finding.code for finding in cell.findings} for cell in summarise(Run(make_header(), cells))]

    return found


def test_a_cell_without_anything_to_say_has_no_finding(codes: Codes) -> None:
    assert codes(make_cell("for-loop", 1, STEADY), make_cell("envpool-sync", 2, FAST)) == [set(), set()]


def test_a_failed_cell_is_told_with_its_reason() -> None:
    (found,) = summarise(Run(make_header(), (make_cell("gym-async", 2, status="failed", reason="killed by signal 9"),)))
    assert [(finding.code, finding.message) for finding in found.findings] == [("failed", "killed by signal 9")]


def test_failed_repeats_are_counted() -> None:
    cells = (make_cell("for-loop", 1, STEADY), make_cell("for-loop", 1, status="failed", reason="boom", repeat=1))
    (found,) = summarise(Run(make_header(), cells))
    assert [finding.message for finding in found.findings] == ["1 of 2 repeats: boom"]


def test_other_work_is_told_with_how_it_differs() -> None:
    liar = make_cell("gym-sync", 1, FAST, verdict="different", verdict_reason="frame skip 5 instead of 4")
    _, found = summarise(Run(make_header(), (make_cell("for-loop", 1, STEADY), liar)))
    assert [(finding.code, finding.message) for finding in found.findings] == [
        ("different-work", "not the same work as for-loop: frame skip 5 instead of 4; compared with nothing")
    ]


def test_work_that_was_not_compared_is_told(codes: Codes) -> None:
    found = codes(
        make_cell("for-loop", 1, STEADY),
        make_cell("gym-sync", 1, STEADY, verdict="unverified"),
        make_cell("gym-async", 1, STEADY, verdict=None),
        make_cell("ceiling", 1, FAST),
    )
    assert found == [set(), {"unverified"}, {"unverified"}, set()]


@pytest.mark.parametrize(("windows", "told"), [(0, True), (1, True), (2, True), (3, True), (4, False)])
def test_too_few_windows_are_told(codes: Codes, windows: int, told: bool) -> None:
    assert codes(make_cell("for-loop", 1, STEADY[:windows])) == [{"too-few-windows"} if told else set()]


def test_a_backend_slower_than_a_plain_loop_is_told(codes: Codes) -> None:
    assert codes(make_cell("for-loop", 1, FAST), make_cell("gym-async", 2, STEADY)) == [set(), {"slower-than-for-loop"}]


def test_a_backend_that_may_be_as_fast_as_a_plain_loop_is_not_told(codes: Codes) -> None:
    noisy = (700, 1400, 900, 1100)
    assert codes(make_cell("for-loop", 1, STEADY), make_cell("gym-async", 2, noisy)) == [set(), {"unstable"}]


def test_a_backend_faster_than_the_bare_simulator_is_told(codes: Codes) -> None:
    found = codes(make_cell("for-loop", 1, STEADY), make_cell("envpool-sync", 2, FAST), make_cell("ceiling", 2, STEADY))
    assert found == [set(), {"above-ceiling"}, set()]


def test_a_backend_within_the_noise_of_the_ceiling_is_not_told(codes: Codes) -> None:
    assert codes(make_cell("envpool-sync", 2, (1001, 1002, 1000, 1001)), make_cell("ceiling", 2, STEADY)) == [
        set(),
        set(),
    ]


def test_more_workers_than_cpus_are_told_unless_skipped(codes: Codes) -> None:
    found = codes(make_cell("for-loop", 4, STEADY), make_cell("gym-async", 4, status="skipped", reason="no memory"))
    assert found == [{"oversubscribed"}, {"skipped"}]


def test_a_throttled_window_is_told(codes: Codes) -> None:
    windows = tuple(Window(ns=10**9, rows=900, resets=0, throttled_ns=ns) for ns in (0, 0, 5, 0, 0))
    calm = tuple(replace(window, throttled_ns=0) for window in windows)
    assert codes(make_cell(windows=windows), make_cell(workers=2, windows=calm)) == [{"throttled"}, set()]


def test_a_process_on_other_cpus_than_its_own_is_told(codes: Codes) -> None:
    found = codes(make_cell("for-loop", 1, STEADY, affinity=(0, 1)), make_cell("for-loop", 2, STEADY, affinity=(1, 0)))
    assert found == [{"unpinned"}, set()]


def test_a_loop_that_costs_over_a_microsecond_is_told(codes: Codes) -> None:
    assert codes(make_cell("null", 1, (900_000,) * 4)) == [{"loop-cost"}]
    assert codes(make_cell("null", 1, (1_100_000,) * 4)) == [set()]


def test_a_loop_that_costs_over_a_hundredth_of_a_batch_is_told(codes: Codes) -> None:
    null = make_cell("null", 1, (2_000_000,) * 4)
    assert codes(null, make_cell("for-loop", 1, (10_000,) * 4)) == [set(), set()]
    assert codes(null, make_cell("for-loop", 1, (30_000,) * 4)) == [set(), {"loop-cost"}]
    assert codes(null, make_cell("for-loop", 2, (30_000,) * 4)) == [set(), set()]


@pytest.mark.parametrize(("steps", "share"), [(30_000, "1%"), (150_000, "1%"), (300_000, "10%"), (1_900_000, "10%")])
def test_the_share_of_the_loop_is_told_in_steps(steps: int, share: str) -> None:
    cells = (make_cell("null", 1, (2_000_000,) * 4), make_cell("for-loop", 1, (steps,) * 4))
    (found,) = summarise(Run(make_header(), cells))[1].findings
    assert found.message == f"over {share} of the time is the measuring loop's own"


def test_a_failed_cell_leads_to_its_log_and_the_command_that_measures_it_again() -> None:
    run = Run(make_header(), (make_cell("gym-async", 2, status="failed", reason="boom"),))
    (found,) = summarise(run, "my runs/a.jsonl")[0].findings
    assert "my runs/a.jsonl.log" in found.remedy
    assert "vebench run --resume 'my runs/a.jsonl'" in found.remedy


def test_an_interrupted_cell_is_not_told_to_be_mended() -> None:
    run = Run(make_header(), (make_cell("gym-async", 2, STEADY, status="failed", reason="interrupted"),))
    (found,) = summarise(run, "a.jsonl")[0].findings
    assert (found.code, found.remedy) == ("interrupted", "vebench run --resume a.jsonl measures it again")


@pytest.mark.parametrize(("planned", "told"), [(None, []), (3, []), (4, ["3 of 4 cells"]), (30, ["3 of 30 cells"])])
def test_a_run_that_did_not_get_to_its_end_is_told(planned: int | None, told: list[str]) -> None:
    cells = [make_cell("for-loop", workers, STEADY) for workers in (1, 2)]
    cells.append(make_cell("gym-sync", 1, status="failed", reason="boom"))
    cells.append(make_cell("gym-sync", 2, status="failed", reason="interrupted"))
    run = Run(msgspec.structs.replace(make_header(), cells=planned), tuple(cells))
    found = of_run(run, "a.jsonl")
    assert [finding.message for finding in found] == told
    assert all((finding.code, "--resume a.jsonl" in finding.remedy) == ("incomplete", True) for finding in found)


def test_repeats_too_few_for_an_interval_are_told_as_such() -> None:
    for count, told in ((2, [("too-few-repeats", "measure with --repeats 4 or more, or with one")]), (4, [])):
        cells = tuple(make_cell("for-loop", 1, STEADY, repeat=repeat) for repeat in range(count))
        (found,) = summarise(Run(make_header(), cells))
        assert [(finding.code, finding.remedy) for finding in found.findings] == told


def test_an_unstable_reference_is_told_to_spoil_all_speedups() -> None:
    noisy = (700, 1400, 900, 1100)
    loop, other = summarise(Run(make_header(), (make_cell("for-loop", 1, noisy), make_cell("gym-sync", 1, noisy))))
    assert [[finding.code for finding in one.findings] for one in (loop, other)] == [["unstable"]] * 2
    assert "speedups" in loop.findings[0].message
    assert "speedups" not in other.findings[0].message


def test_more_environments_are_no_remedy_where_each_is_a_process() -> None:
    cells = (make_cell("for-loop", 1, FAST), make_cell("gym-async", 2, STEADY), make_cell("shm-sync", 2, STEADY))
    _, process_each, process_per_cpu = summarise(Run(make_header(), cells))
    assert "--envs-per-worker" not in process_each.findings[0].remedy
    assert "--envs-per-worker" in process_per_cpu.findings[0].remedy


def test_more_processes_than_cpus_are_told() -> None:
    (found,) = summarise(Run(make_header(), (make_cell("gym-async", 2, STEADY, processes=16, envs_per_worker=8),)))
    assert [(finding.code, finding.message) for finding in found.findings] == [
        ("oversubscribed", "more processes or threads than the 2 CPUs owned")
    ]
    assert "--envs-per-worker" in found.findings[0].remedy


def test_a_run_without_pinning_is_told() -> None:
    assert [finding.code for finding in of_run(Run(make_header(pinning=False), ()))] == ["unpinned"]
    asked = of_run(Run(make_header(pinning=False, pin="none"), ()))
    assert [(finding.code, finding.remedy) for finding in asked] == [("unpinned", "measure without --pin none")]
    assert of_run(Run(make_header(), ())) == ()


def test_notes_of_the_file_are_told() -> None:
    (finding,) = of_run(Run(make_header(), (), ("a.jsonl, line 3: cut off, left out",)))
    assert (finding.code, finding.message) == ("file", "a.jsonl, line 3: cut off, left out")


def test_every_finding_has_a_remedy(sweep: Run) -> None:
    found = [finding for cell in summarise(sweep) for finding in cell.findings]
    assert {finding.code for finding in found} == {
        "failed", "skipped", "too-few-windows", "slower-than-for-loop", "oversubscribed",
    }  # fmt: skip
    assert all(finding.message and finding.remedy for finding in found)


def test_the_same_finding_of_many_cells_is_told_once() -> None:
    sizes = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    cells = tuple(
        make_cell(backend, workers, tuple(100 * rows for rows in STEADY), env=env)
        for env in ("Ant-v5", "Hopper-v5")
        for backend in ("for-loop", "gym-sync", "ceiling")
        for workers in sizes
    )
    groups = grouped(summarise(Run(make_header(), cells)))
    assert [group.places for group in groups] == [("Ant-v5, Hopper-v5: every backend at 4..256 workers",)]


def test_a_finding_of_several_tasks_has_a_line_for_each_unless_they_are_alike() -> None:
    skipped = [
        make_cell(backend, workers, env=env, status="skipped", reason="no")
        for env, backend, workers in (
            ("Ant-v5", "gym-sync", 1), ("Pong", "gym-sync", 1), ("Pong", "gym-async", 2), ("Hopper-v5", "gym-sync", 1),
        )
    ]  # fmt: skip
    measured = [make_cell("for-loop", 1, STEADY, env=env) for env in ("Ant-v5", "Pong", "Hopper-v5")]
    (group,) = grouped(summarise(Run(make_header(), tuple(skipped + measured))))
    assert group.places == (
        "Ant-v5, Hopper-v5: gym-sync at 1 worker",
        "Pong: gym-sync at 1 worker; gym-async at 2 workers",
    )


@pytest.mark.parametrize(
    ("workers", "where"),
    [
        ((1,), "ALE/Pong-v5: gym-sync at 1 worker"),
        ((2,), "ALE/Pong-v5: gym-sync at 2 workers"),
        ((1, 4), "ALE/Pong-v5: gym-sync at 1, 4 workers"),
        ((1, 2, 4), "ALE/Pong-v5: gym-sync at 1..4 workers"),
        ((1, 2, 8), "ALE/Pong-v5: gym-sync at 1, 2, 8 workers"),
    ],
)
def test_worker_counts_that_follow_each_other_are_told_as_a_range(workers: tuple[int, ...], where: str) -> None:
    swept = [
        make_cell(
            backend, count, status="skipped", reason="no" if backend == "gym-sync" and count in workers else "other"
        )
        for backend in ("for-loop", "gym-sync")
        for count in (1, 2, 4, 8)
    ]
    groups = grouped(summarise(Run(make_header(), tuple(swept))))
    assert [group.places for group in groups if group.finding.message == "no"] == [(where,)]


def test_backends_with_the_same_finding_are_named_together() -> None:
    cells = [make_cell("for-loop", 2, FAST), make_cell("for-loop", 1, FAST)]
    cells += [make_cell(backend, 2, STEADY) for backend in ("gym-sync", "shm-sync")]
    (group,) = grouped(summarise(Run(make_header(), tuple(cells))))
    assert group.places == ("ALE/Pong-v5: gym-sync, shm-sync at 2 workers",)
    assert isinstance(group.finding, Finding)


@pytest.mark.parametrize(
    ("engine", "told"),
    [
        (Engine("MuJoCo", "3.6.0", "3.11.0", "mujoco==3.6.0"), ["pip install mujoco==3.6.0"]),
        (Engine("MuJoCo", "3.6.0", "3.6.0", "mujoco==3.6.0"), []),
        (Engine("ALE", "0.11.2", "0.12.1", "ale-py==0.11.2"), []),  # they gave the same bytes
    ],
)
def test_another_physics_engine_inside_a_backend_is_told_with_the_version_that_would_match(
    engine: Engine, told: list[str]
) -> None:
    (found,) = summarise(Run(make_header(), (make_cell("envpool-sync", 1, STEADY, engines=(engine,)),)))
    assert [finding.remedy for finding in found.findings if finding.code == "unlike-engines"] == told


@pytest.mark.parametrize(("others", "steal", "told"), [(10**8, 0, True), (0, 10**8, True), (4 * 10**7, 10**7, False)])
def test_cpus_that_worked_for_others_are_told(codes: Codes, others: int, steal: int, told: bool) -> None:
    window = Window(ns=10**9, rows=1000, resets=0, others_ns=others, steal_ns=steal)
    assert codes(make_cell(windows=(window,) * 4)) == [{"disturbed"} if told else set()]


def test_others_work_of_a_tick_or_two_in_short_windows_is_nothing_to_tell(codes: Codes) -> None:
    window = Window(ns=5 * 10**7, rows=1000, resets=0, others_ns=10**7)
    assert codes(make_cell(windows=(window,) * 4)) == [set()]


@pytest.mark.parametrize(
    ("backend", "seats", "told"),
    [
        ("gym-async", (("0-1",), ("0",), ("1",)), set()),
        ("gym-async", (("0-1",), ("0", "0"), ("1", "1")), {"extra-threads"}),
        ("envpool-sync", (("0-1", "0-1", "0"),), set()),
    ],
)
def test_processes_with_more_threads_than_step_are_told(
    codes: Codes, backend: str, seats: tuple[tuple[str, ...], ...], told: set[str]
) -> None:
    assert codes(make_cell(backend, 2, STEADY, seats=seats)) == [told]


def test_a_thread_that_was_free_to_leave_its_cells_cpus_is_told(codes: Codes) -> None:
    kept, strayed = (("0-1",), ("0",)), (("0-1",), ("0-2",))
    cells = (make_cell("gym-async", 2, STEADY, seats=kept), make_cell("shm-sync", 2, STEADY, seats=strayed))
    assert codes(*cells) == [set(), {"unpinned"}]


def codes_of(cells: tuple[CellRecord, ...]) -> list[list[str]]:
    return [[finding.code for finding in one.findings] for one in summarise(Run(make_header(), cells))]


def test_a_rate_that_drifts_is_told_with_the_remedy_that_fits() -> None:
    rising = tuple(round(1000 * 1.02**window) for window in range(6))
    up, down = summarise(Run(make_header(), (make_cell("for-loop", 1, rising), make_cell("for-loop", 2, rising[::-1]))))
    assert [finding.code for finding in (*up.findings, *down.findings)] == ["drifting", "drifting"]
    assert "--warmup" in up.findings[0].remedy
    assert "falls" in down.findings[0].message


def test_a_warm_up_that_ended_before_the_rate_had_settled_is_told() -> None:
    cells = (make_cell("for-loop", 1, STEADY, settled=False), make_cell("for-loop", 2, STEADY, settled=True))
    assert codes_of(cells) == [["unsettled"], []]


def test_windows_of_few_batches_are_told() -> None:
    cells = (make_cell("for-loop", 1, (49, 60, 60, 60)), make_cell("for-loop", 2, (120, 120, 100, 120)))
    assert [("short-windows" in codes) for codes in codes_of(cells)] == [True, False]


def test_an_outlier_is_told_and_kept() -> None:
    steps = (1000, 1001, 999, 1000, 1002, 998, 1003, 997, 1001, 999, 1000, 800)
    (found,) = summarise(Run(make_header(), (make_cell("for-loop", 1, steps),)))
    assert [finding.code for finding in found.findings] == ["outliers"]
    assert found.observations == 12


def test_resets_in_bursts_are_told() -> None:
    windows = tuple(Window(ns=10**9, rows=1000 + count, resets=count) for count in (0, 64, 0, 0))
    assert codes_of((make_cell(windows=windows),)) == [["reset-bursts"]]


def test_a_backend_slower_than_with_fewer_workers_is_told() -> None:
    pool = {"processes": 2, "threads": 1}
    cells = (
        make_cell("shm-sync", 1, FAST),
        make_cell("shm-sync", 2, STEADY, **pool),
        make_cell("shm-sync", 2, STEADY, **pool, env="Ant-v5"),
        make_cell("shm-sync", 2, STEADY, **pool, options={"k": 1}),
        make_cell("gym-sync", 1, FAST),
        make_cell("gym-sync", 2, STEADY),
    )
    assert codes_of(cells) == [[], ["retrograde"], [], [], [], []]
