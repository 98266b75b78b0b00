"""Findings on a run as a whole and on its file, and the same finding of many cells said once."""

import msgspec
import pytest
from support.findings import FAST, STEADY
from support.records import make_cell, make_header

from vebench.analysis.cell import Finding
from vebench.analysis.rules import of_run, unusable
from vebench.analysis.summary import summarise
from vebench.child.answers import Window
from vebench.reports.figures import grouped
from vebench.results.records import CellRecord, Run


@pytest.mark.parametrize(("planned", "found"), [(None, []), (3, []), (4, ["3 of 4 cells"]), (30, ["3 of 30 cells"])])
def test_a_run_that_did_not_get_to_its_end_is_reported(planned: int | None, found: list[str]) -> None:
    cells = [make_cell("for-loop", workers, STEADY) for workers in (1, 2)]
    cells.append(make_cell("gym-sync", 1, status="failed", reason="boom"))
    cells.append(make_cell("gym-sync", 2, status="failed", reason="interrupted"))
    run = Run(msgspec.structs.replace(make_header(), cells=planned), tuple(cells))
    findings = of_run(run, (), "a.jsonl")
    assert [finding.message for finding in findings] == found
    assert all((finding.code, "--resume a.jsonl" in finding.remedy) == ("incomplete", True) for finding in findings)


WINDOWS = {
    "calm": Window(10**9, 1000, 0, others_ns=0, throttles=0),
    "disturbed": Window(10**9, 500, 0, others_ns=5 * 10**8, throttles=0),
    "throttled": Window(10**9, 10, 0, others_ns=0, throttles=1),
}


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["calm", "disturbed"], None),
        (["calm", "disturbed", "disturbed"], "other processes disturbed 2 of 3 cells"),
        (["calm", "throttled", "throttled"], "a CPU quota slowed 2 of 3 cells"),
        (["calm", "throttled", "disturbed"], "other processes or a CPU quota slowed 2 of 3 cells"),
        (["disturbed"], "other processes disturbed 1 of 1 cell"),
        ([], None),
    ],
)
def test_a_run_of_which_most_cells_did_not_have_their_cpus_is_unusable(cells: list[str], message: str | None) -> None:
    records = [make_cell("for-loop", number + 1, windows=(WINDOWS[kind],) * 4) for number, kind in enumerate(cells)]
    records.append(make_cell("gym-sync", 1, status="failed", reason="boom"))
    run = Run(make_header(), tuple(records))
    found = unusable(summarise(run))
    assert (None if found is None else found.message) == message
    told = [finding for finding in of_run(run, summarise(run)) if finding.code == "unusable"]
    assert told == [found] * (message is not None)


def test_a_run_without_pinning_is_reported() -> None:
    assert [finding.code for finding in of_run(Run(make_header(pinning=False), ()), ())] == ["unpinned"]
    asked = of_run(Run(make_header(pinning=False, pin="none"), ()), ())
    assert [(finding.code, finding.remedy) for finding in asked] == [("unpinned", "measure without --pin none")]
    assert of_run(Run(make_header(), ()), ()) == ()


def test_notes_of_the_file_are_reported() -> None:
    (finding,) = of_run(Run(make_header(), (), ("a.jsonl, line 3: truncated, ignored",)), ())
    assert (finding.code, finding.message) == ("incomplete", "a.jsonl, line 3: truncated, ignored")


def groups_of(*cells: CellRecord) -> dict[Finding, tuple[str, ...]]:
    return grouped(summarise(Run(make_header(), cells)))


def test_a_finding_of_several_tasks_has_a_line_for_each_unless_they_are_alike() -> None:
    skipped = [
        make_cell(backend, workers, env=env, status="skipped", reason="no")
        for env, backend, workers in (
            ("Ant-v5", "gym-sync", 1), ("Pong", "gym-sync", 1), ("Pong", "gym-async", 2), ("Hopper-v5", "gym-sync", 1),
        )
    ]  # fmt: skip
    measured = [make_cell("for-loop", 1, STEADY, env=env) for env in ("Ant-v5", "Pong", "Hopper-v5")]
    (places,) = groups_of(*skipped, *measured).values()
    on_pong = "Pong: gym-sync at 1 worker; gym-async at 2 workers"
    assert places == ("Ant-v5, Hopper-v5: gym-sync at 1 worker", on_pong)


@pytest.mark.parametrize(
    ("workers", "envs", "found", "where"),
    [
        ((1, 2, 4, 8), (1,), [(1, 1), (2, 1), (4, 1)], "1..4 workers"),
        ((1, 2, 4, 8), (1,), [(1, 1), (2, 1), (8, 1)], "1, 2, 8 workers"),
        ((1, 2, 4), (1, 4, 16), [(2, 1), (2, 4), (2, 16)], "2 workers"),
        ((1, 2, 4), (1, 4, 16), [(1, 4), (2, 4), (4, 4), (4, 16)], "1..4 workers x 4 envs and 4 workers x 16 envs"),
        ((1, 2, 4), (1, 4, 16), [(1, 1), (1, 4), (1, 16), (4, 1), (4, 4), (4, 16)], "1, 4 workers"),
    ],
)
def test_sizes_are_named_by_ranges_of_workers_and_by_their_environments_where_these_make_a_difference(
    workers: tuple[int, ...], envs: tuple[int, ...], found: list[tuple[int, int]], where: str
) -> None:
    cells = [
        make_cell(
            backend,
            count,
            envs_per_worker=each,
            status="skipped",
            reason="no" if backend == "gym-sync" and (count, each) in found else "other",
        )
        for backend in ("for-loop", "gym-sync")
        for count in workers
        for each in envs
    ]
    (places,) = (places for finding, places in groups_of(*cells).items() if finding.message == "no")
    assert places == (f"ALE/Pong-v5: gym-sync at {where}",)


def test_the_gravest_finding_comes_first() -> None:
    groups = groups_of(
        make_cell("for-loop", 1, FAST),
        make_cell("gym-sync", 1, status="skipped", reason="no"),
        make_cell("gym-sync", 4, FAST),
        make_cell("shm-sync", 1, FAST[:2]),
        make_cell("gym-async", 1, FAST, verdict="different"),
        make_cell("shm-async", 1, status="failed", reason="boom"),
    )
    codes = [finding.code for finding in groups]
    assert codes == ["failed", "different-work", "imprecise", "oversubscribed", "skipped"]
