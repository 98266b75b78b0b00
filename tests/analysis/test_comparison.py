"""Verdicts on cells of two runs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp, inf
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.records import make_cell, make_header

from vebench.analysis.comparison import Comparison, Metric, RunSpread, compare_runs
from vebench.analysis.statistics import Error
from vebench.analysis.summary import summarise
from vebench.child.answers import Cause, Window
from vebench.plan.cells import CellKey
from vebench.plan.grammar import Tolerance
from vebench.results.records import CellRecord, Run

Records = tuple[CellRecord, ...]
Drawn = tuple[str, int, str, list[Window]]


NO_SHIFT = RunSpread(None, Error(0.0, inf))  # of runs that differ in nothing but chance
NOISE = (1.0, 1.01, 0.99, 1.004, 0.996)


def compared(before: Records, after: Records, metric: Metric = "fps", cpus: int = 2, **more: object) -> Comparison:
    cells = (summarise(Run(make_header(cpus), records)) for records in (before, after))
    asked = {"metrics": (metric,), "tolerance": Tolerance(0.05), "run_spreads": {metric: NO_SHIFT}}
    return compare_runs(*cells, **{**asked, **more})


def processes(*rates: float, backend: str = "shm-sync", workers: int = 2, **fields: object) -> Records:
    """Return a process for each of these rates, each with three windows that agree."""
    steps = enumerate(map(round, rates))
    return tuple(make_cell(backend, workers, (count,) * 3, repeat=repeat, **fields) for repeat, count in steps)


def repeated(backend: str, workers: int, steps: float, **fields: object) -> Records:
    return processes(*(1000 * steps * noise for noise in NOISE), backend=backend, workers=workers, **fields)


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [(0.8, "slower"), (0.95, "inconclusive"), (0.97, "same"), (1.0, "same"), (1.05, "same"), (1.2, "faster")],
)
def test_a_verdict_follows_from_the_interval_and_the_tolerance(ratio: float, verdict: str) -> None:
    (found,) = compared(repeated("shm-sync", 2, 100), repeated("shm-sync", 2, 100 * ratio)).cells
    assert found.verdict == verdict
    assert found.ratio.median == pytest.approx(ratio, rel=1e-3)


def test_a_speedup_is_relative_to_the_for_loop_of_the_same_run() -> None:
    before = repeated("for-loop", 1, 100) + repeated("shm-sync", 2, 180)
    machine_half_as_fast = repeated("for-loop", 1, 50) + repeated("shm-sync", 2, 90)
    slower = repeated("for-loop", 1, 50) + repeated("shm-sync", 2, 70)
    assert [cell.verdict for cell in compared(before, machine_half_as_fast).cells] == ["slower", "slower"]
    _, found = compared(before, machine_half_as_fast, "speedup").cells
    assert (found.key.backend, found.verdict) == ("shm-sync", "same")
    assert compared(before, slower, "speedup").cells[1].verdict == "slower"


def test_a_cell_that_the_candidate_lacks_or_failed_is_missing() -> None:
    before = repeated("shm-sync", 2, 100)
    failed = repeated("shm-sync", 2, 100, status="failed", reason="boom")
    empty = repeated("shm-sync", 2, 100, windows=())
    still = repeated("shm-sync", 2, 100, windows=(Window(ns=1, rows=0, resets=0),))
    for after, why in (
        (repeated("shm-sync", 4, 100), "candidate: no such cell"),
        (failed, "candidate: failed: boom"),
        (empty, "candidate: nothing was measured"),
        (still, "candidate: a window without a step"),
    ):
        (found,) = compared(before, after).cells
        assert (found.verdict, found.why, found.ratio) == ("missing", why, None)


def test_a_failed_yardstick_of_the_candidate_fails_the_cells_that_need_it() -> None:
    cells = repeated("shm-sync", 2, 100)
    lost = cells + repeated("yardstick", 1, 50, status="failed", reason="boom")
    (found,) = compared(cells + repeated("yardstick", 1, 50), lost, "yardstick").cells
    assert found.failed == "candidate: yardstick with one worker failed: boom"


@pytest.mark.parametrize(
    ("before", "after", "failed"),
    [
        ({}, {0: "interrupted"}, None),
        ({}, {0: "interrupted", 3: "boom"}, "candidate: 1 of 4 passes failed: boom"),
        ({}, dict.fromkeys(range(5), "interrupted"), None),
        ({2: "boom", 3: "interrupted"}, {3: "boom"}, None),
    ],
)
def test_what_users_end_hides_no_failure(before: dict[int, str], after: dict[int, str], failed: str | None) -> None:
    records = repeated("shm-sync", 2, 100)

    def ended(reasons: dict[int, str]) -> Records:
        return tuple(
            replace(one, status="failed", reason=reason, cause=Cause.INTERRUPTED if reason == "interrupted" else None)
            if (reason := reasons.get(one.repeat))
            else one
            for one in records
        )

    (found,) = compared(ended(before), ended(after)).cells
    assert found.failed == failed


@pytest.mark.parametrize(
    "fields",
    [{"num_envs": 4}, {"batch_size": 1}, {"frame_skip": 1}, {"cpus": (0,)}, {"replicas": ((0,), (1,))}],
    ids=min,
)
def test_a_cell_of_another_size_is_not_comparable(fields: dict[str, object]) -> None:
    (found,) = compared(repeated("shm-sync", 2, 100), repeated("shm-sync", 2, 100, **fields)).cells
    assert found.verdict == "not comparable"


def test_what_slows_both_in_a_pass_cancels_where_passes_are_paired() -> None:
    moods = (1.0, 0.7, 1.2, 0.9, 1.1)
    before, after = (
        processes(*(100_000 * level * mood * noise for mood, noise in zip(moods, noises, strict=True)))
        for level, noises in ((1.0, NOISE), (0.9, NOISE[::-1]))
    )
    alone, paired = (compared(before, after, in_turn=pairs).cells[0] for pairs in (False, True))
    assert (alone.verdict, paired.verdict) == ("inconclusive", "slower")
    assert paired.ratio.median == pytest.approx(0.9, rel=0.01)


def test_a_cell_that_does_other_work_in_one_run_only_is_not_comparable() -> None:
    honest, liar = (repeated("shm-sync", 2, 100, verdict=verdict) for verdict in ("identical", "different"))
    (found,) = compared(honest, liar).cells
    assert (found.verdict, found.why) == ("not comparable", "candidate: not the same work as for-loop (rows differ)")
    assert compared(liar, liar).cells[0].verdict == "same"


def test_reference_rows_new_cells_and_cells_that_could_not_run_are_not_gated() -> None:
    common = repeated("shm-sync", 2, 100)
    before = (*common, *repeated("ceiling", 2, 300), *repeated("envpool-sync", 2, 1, status="skipped", reason="no"))
    found = compared(before, common + repeated("gym-sync", 2, 100) + repeated("null", 2, 300))
    assert [one.key.backend for one in found.cells] == ["shm-sync"]


def simulated(random: Random, cells: int, factor: float) -> Records:
    """Return cells of 5 processes and 4 windows, with 3 % noise: 1.5 % of processes, the rest of windows."""
    records = []
    for workers in range(1, cells + 1):
        for repeat in range(5):
            luck = random.gauss(0, 0.015)
            steps = tuple(round(1e6 * factor * exp(luck + random.gauss(0, 0.026))) for _ in range(4))
            records.append(make_cell("shm-sync", workers, steps, repeat=repeat))
    return tuple(records)


def test_the_same_work_is_hardly_ever_called_slower() -> None:
    random = Random(1)
    runs = [compared(*(simulated(random, 4, 1.0) for _ in range(2))) for _ in range(25)]
    verdicts = [one.verdict for run in runs for one in run.cells]
    assert verdicts.count("slower") <= 1
    assert verdicts.count("same") >= 75


def test_a_tenth_slower_is_found() -> None:
    random = Random(1)
    runs = [compared(*(simulated(random, 1, factor) for factor in (1.0, 0.9))) for _ in range(100)]
    verdicts = [run.cells[0].verdict for run in runs]
    assert verdicts.count("slower") >= 75
    assert "same" not in verdicts


def noisy(random: Random, workers: int, rate: float, backend: str = "shm-sync") -> Records:
    """Return a cell of 5 processes that vary by 1 %, each with three windows that agree."""
    return processes(*(1e6 * rate * exp(random.gauss(0, 0.01)) for _ in range(5)), backend=backend, workers=workers)


def curve(seed: int, *rates: float, backend: str = "shm-sync") -> Records:
    """Return a backend with 1, 2, 3 ... workers at these rates."""
    random = Random(seed)
    cells = (noisy(random, workers, rate, backend) for workers, rate in enumerate(rates, start=1))
    return tuple(record for cell in cells for record in cell)


def test_a_backend_slower_at_all_worker_counts_is_found_though_no_single_cell_is() -> None:
    def run(rate: float) -> Records:
        """Return 8 cells, each with this level exactly: all have the same noise, each in passes of its own."""
        return tuple(
            make_cell("shm-sync", workers, (round(1e6 * rate * NOISE[(repeat + workers) % 5] ** 2),) * 3, repeat=repeat)
            for workers in range(1, 9)
            for repeat in range(5)
        )

    before, after = run(1.0), run(0.935)
    for workers in range(1, 9):
        alone = (tuple(record for record in run if record.workers == workers) for run in (before, after))
        assert compared(*alone).cells[0].verdict != "slower"
    found = compared(before, after)
    (group,) = found.groups
    assert (group.verdict, group.why, group.cells, group.judged) == ("slower", None, 8, 8)
    assert group.ratio.median == pytest.approx(0.935)
    assert {one.verdict for one in found.cells} == {"slower"}  # none can be told from the others


def test_one_cell_far_slower_makes_its_group_slower_and_is_named() -> None:
    found = compared(curve(1, *[1.0] * 12), curve(2, *[1.0] * 5, 0.75, *[1.0] * 6))
    (group,) = found.groups
    assert group.verdict == "slower"
    assert group.ratio.median > 0.96  # that of the group itself is within the tolerance
    assert [one.key.workers for one in found.cells if one.verdict == "slower"] == [6]
    assert {one.verdict for one in found.cells} == {"slower", "same"}


def test_a_group_is_judged_by_the_cells_that_it_has_unless_most_are_missing() -> None:
    before, after = curve(1, *[1.0] * 5), curve(2, *[1.0] * 5)
    for there, verdict in ((3, "same"), (2, "missing"), (0, "missing")):
        kept = tuple(record for record in after if record.workers <= there)
        found = compared(before, kept)
        (group,) = found.groups
        assert (group.verdict, group.judged, group.cells) == (verdict, there, 5)
        assert (group.why, group.ratio is None) == (
            (None, False) if verdict == "same" else ("candidate: no such cell", True)
        )
        assert [one.verdict for one in found.cells[there:]] == ["missing"] * (5 - there)


def with_windows(records: Records, change: Callable[[Window, int], dict[str, int]], **fields: object) -> Records:
    """Return records with some counts of each window changed, given its place in its process."""

    def changed(window: Window, place: int) -> Window:
        return Window(**{**msgspec.to_builtins(window), **change(window, place)})

    return tuple(
        replace(record, windows=tuple(map(changed, record.windows, range(len(record.windows)))), **fields)
        for record in records
    )


CONDITIONS = {
    "disturbed": lambda records: with_windows(records, lambda *_: {"others_ns": 10**9}),
    "throttled": lambda records: with_windows(records, lambda *_: {"throttles": 1}),
    "drifting": lambda records: with_windows(records, lambda window, place: {"rows": window.rows * (10 + place) // 10}),
    "drifting at first": lambda records: with_windows(records, lambda *_: {}, settled=False),
}


@pytest.mark.parametrize("metric", ["fps", "speedup"])
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("side", ["baseline", "candidate"])
def test_a_cell_under_conditions_that_hide_the_code_is_inconclusive(metric: Metric, condition: str, side: str) -> None:
    loop = noisy(Random(9), 1, 1.0, "for-loop")
    runs = {"baseline": curve(1, 1.0, 2.0), "candidate": curve(2, 0.5, 1.0)}
    runs[side] = tuple(
        changed
        for record in runs[side]
        for changed in (CONDITIONS[condition]((record,)) if record.workers == 2 else (record,))
    )
    found = {one.key: one for one in compared(runs["baseline"] + loop, runs["candidate"] + loop, metric).cells}
    slower, doubtful = (found[CellKey("ALE/Pong-v5", "shm-sync", workers, 1)] for workers in (1, 2))
    assert (slower.verdict, doubtful.verdict) == ("slower", "inconclusive")
    code = condition.split(maxsplit=1)[0]
    assert str(doubtful.why).startswith(f"{side} {code}: such a rate says little about the code; measure again")
    assert doubtful.ratio is not None


@pytest.mark.parametrize("condition", CONDITIONS)
def test_what_hits_both_sides_alike_is_no_doubt_if_they_take_turns(condition: str) -> None:
    pair = (CONDITIONS[condition](records) for records in (curve(1, 1.0), curve(2, 0.5)))
    (found,) = compared(*pair, in_turn=True).cells
    assert found.verdict == ("inconclusive" if condition == "throttled" else "slower")


STATUSES = st.sampled_from(["ok", "ok", "ok", "failed", "skipped"])
WINDOWS = st.lists(
    st.builds(
        lambda ns, rows, resets: Window(ns=ns, rows=rows + resets, resets=resets),
        st.sampled_from([1, 10**9, 2**63 - 1]),
        st.sampled_from([0, 1, 1000, 1001, 2**62]),
        st.sampled_from([0, 3]),
    ),
    max_size=3,
)
CELLS = st.lists(
    st.tuples(st.sampled_from(["for-loop", "shm-sync", "null"]), st.sampled_from([1, 2]), STATUSES, WINDOWS), max_size=8
)


@given(before=CELLS, after=CELLS, metric=st.sampled_from(["fps", "speedup"]))
def test_whatever_two_runs_hold_each_cell_gets_a_verdict_and_a_reason_where_it_needs_one(
    before: list[Drawn], after: list[Drawn], metric: Metric
) -> None:
    runs = (
        tuple(
            make_cell(backend, workers, repeat=repeat, status=status, windows=tuple(windows))
            for repeat, (backend, workers, status, windows) in enumerate(drawn)
        )
        for drawn in (before, after)
    )
    found = compared(*runs, metric, run_spreads={})
    for one in found.cells:
        assert one.verdict in ("faster", "same", "slower", "inconclusive", "missing", "not comparable")
        assert (one.why is None) == (one.verdict in ("faster", "same", "slower"))
        assert one.ratio is not None or one.verdict not in ("faster", "same", "slower")


def in_turn(random: Random, ratios: Sequence[float], workers: Sequence[int], noise: float = 0.01) -> Comparison:
    """Return a backend with these true ratios at these worker counts, measured in turn in five passes."""

    def side(factors: Sequence[float]) -> Records:
        return tuple(
            make_cell("shm-sync", count, (round(1e6 * factor * exp(random.gauss(0, noise))),) * 2, repeat=repeat)
            for count, factor in zip(workers, factors, strict=True)
            for repeat in range(5)
        )

    return compared(side([1.0] * len(ratios)), side(ratios), cpus=64, in_turn=True)


def test_a_backend_of_which_a_cell_seems_slower_is_not_faster_however_fast_the_others_are() -> None:
    whys = []
    for seed in range(20):
        found = in_turn(Random(seed), (1.5, 0.93, 1.0), (1, 2, 3))
        seems_slower = any(cell.ratio and (cell.ratio.high or 0) < 0.95 for cell in found.cells)
        assert not (seems_slower and found.groups[0].verdict == "faster")
        whys.append(found.groups[0].why if found.groups[0].verdict == "inconclusive" else "")
    assert any("not among so many" in str(why) for why in whys)
    assert in_turn(Random(2), (1.5, 1.4, 1.45), (1, 2, 3)).groups[0].verdict == "faster"
