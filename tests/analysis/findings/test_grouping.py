"""The same finding of many cells, said once."""

from __future__ import annotations

import pytest
from support.findings import FAST, STEADY
from support.records import make_cell, make_header

from vebench.analysis.rules import Group, grouped
from vebench.analysis.summary import summarise
from vebench.results.records import CellRecord, Run


def groups_of(*cells: CellRecord) -> tuple[Group, ...]:
    return grouped(summarise(Run(make_header(), cells)))


def test_the_same_finding_of_many_cells_is_reported_once() -> None:
    sizes = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    groups = groups_of(
        *(
            make_cell(backend, workers, tuple(100 * rows for rows in STEADY), env=env)
            for env in ("Ant-v5", "Hopper-v5")
            for backend in ("for-loop", "gym-sync", "ceiling")
            for workers in sizes
        )
    )
    assert [group.places for group in groups] == [("Ant-v5, Hopper-v5: every backend at 4..256 workers",)]


def test_a_finding_of_several_tasks_has_a_line_for_each_unless_they_are_alike() -> None:
    skipped = [
        make_cell(backend, workers, env=env, status="skipped", reason="no")
        for env, backend, workers in (
            ("Ant-v5", "gym-sync", 1), ("Pong", "gym-sync", 1), ("Pong", "gym-async", 2), ("Hopper-v5", "gym-sync", 1),
        )
    ]  # fmt: skip
    measured = [make_cell("for-loop", 1, STEADY, env=env) for env in ("Ant-v5", "Pong", "Hopper-v5")]
    (group,) = groups_of(*skipped, *measured)
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
def test_worker_counts_that_follow_each_other_are_written_as_a_range(workers: tuple[int, ...], where: str) -> None:
    groups = groups_of(
        *(
            make_cell(
                backend, count, status="skipped", reason="no" if backend == "gym-sync" and count in workers else "other"
            )
            for backend in ("for-loop", "gym-sync")
            for count in (1, 2, 4, 8)
        )
    )
    assert [group.places for group in groups if group.finding.message == "no"] == [(where,)]


@pytest.mark.parametrize(
    ("found", "where"),
    [
        ([(2, 1)], "2 workers x 1 env"),
        ([(1, 4), (2, 4)], "1, 2 workers x 4 envs"),
        ([(2, 4), (2, 16)], "2 workers x 4, 16 envs"),
        ([(2, 1), (2, 4), (2, 16)], "2 workers"),
        ([(1, 4), (2, 4), (4, 4), (4, 16)], "1..4 workers x 4 envs and 4 workers x 16 envs"),
        ([(1, 1), (1, 4), (1, 16), (4, 1), (4, 4), (4, 16)], "1, 4 workers"),
    ],
)
def test_environments_per_worker_are_named_where_they_make_a_difference(
    found: list[tuple[int, int]], where: str
) -> None:
    groups = groups_of(
        *(
            make_cell(
                "gym-sync",
                workers,
                envs_per_worker=envs,
                status="skipped",
                reason="no" if (workers, envs) in found else "other",
            )
            for workers in (1, 2, 4)
            for envs in (1, 4, 16)
        )
    )
    (group,) = (group for group in groups if group.finding.message == "no")
    assert group.places == (f"ALE/Pong-v5: gym-sync at {where}",)


def test_backends_with_the_same_finding_are_named_together() -> None:
    loops = [make_cell("for-loop", workers, FAST) for workers in (2, 1)]
    (group,) = groups_of(*loops, *(make_cell(backend, 2, STEADY) for backend in ("gym-sync", "shm-sync")))
    assert group.places == ("ALE/Pong-v5: gym-sync, shm-sync at 2 workers",)
    assert group.finding.code == "slower"


def test_the_gravest_finding_comes_first() -> None:
    groups = groups_of(
        make_cell("for-loop", 1, FAST),
        make_cell("gym-sync", 1, status="skipped", reason="no"),
        make_cell("gym-sync", 4, FAST),
        make_cell("shm-sync", 1, FAST[:2]),
        make_cell("gym-async", 1, FAST, verdict="different"),
        make_cell("shm-async", 1, status="failed", reason="boom"),
    )
    assert [group.finding.code for group in groups] == [
        "failed",
        "different-work",
        "imprecise",
        "oversubscribed",
        "skipped",
    ]
