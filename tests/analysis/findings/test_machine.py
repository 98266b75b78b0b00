"""Findings on what the machine did while a cell ran."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.findings import STEADY, codes, findings
from support.records import make_cell, shares

from vebench.child.window import Window


def test_more_workers_than_cpus_are_reported_unless_skipped() -> None:
    found = codes(make_cell("for-loop", 4, STEADY), make_cell("gym-async", 4, status="skipped", reason="no memory"))
    assert found == [["oversubscribed"], ["skipped"]]


def test_more_processes_than_cpus_are_reported() -> None:
    ((found,),) = findings(make_cell("gym-async", 2, STEADY, processes=16, envs_per_worker=8))
    assert (found.code, found.message) == ("oversubscribed", "more processes or threads than the 2 CPUs owned")
    assert "--envs-per-worker" in found.remedy


def test_a_throttled_window_is_reported() -> None:
    windows = tuple(Window(ns=10**9, rows=900, resets=0, throttled_ns=ns) for ns in (0, 0, 5, 0, 0))
    calm = tuple(replace(window, throttled_ns=0) for window in windows)
    assert codes(make_cell(windows=windows), make_cell(workers=2, windows=calm)) == [["throttled"], []]


@pytest.mark.parametrize(
    ("others", "steal", "disturbed"), [(10**8, 0, True), (0, 10**8, True), (4 * 10**7, 10**7, False)]
)
def test_cpus_that_worked_for_others_are_reported(others: int, steal: int, disturbed: bool) -> None:
    window = Window(ns=10**9, rows=1000, resets=0, others_ns=others, steal_ns=steal)
    assert codes(make_cell(windows=(window,) * 4)) == [["disturbed"] if disturbed else []]


def test_others_work_of_a_tick_or_two_in_short_windows_is_not_reported() -> None:
    window = Window(ns=5 * 10**7, rows=1000, resets=0, others_ns=10**7)
    assert codes(make_cell(windows=(window,) * 4)) == [[]]


def test_a_process_on_other_cpus_than_its_own_is_reported() -> None:
    found = codes(make_cell("for-loop", 1, STEADY, affinity=(0, 1)), make_cell("for-loop", 2, STEADY, affinity=(1, 0)))
    assert found == [["unpinned"], []]


def test_a_thread_that_was_free_to_leave_its_cells_cpus_is_reported() -> None:
    kept, strayed = (("0-1",), ("0",)), (("0-1",), ("0-2",))
    cells = (make_cell("gym-async", 2, STEADY, seats=kept), make_cell("shm-sync", 2, STEADY, seats=strayed))
    assert codes(*cells) == [[], ["unpinned"]]


def test_memory_that_could_not_be_bound_is_reported_with_the_reason() -> None:
    ((found,),) = findings(make_cell("shm-sync", 2, STEADY, unbound="set_mempolicy: not permitted"))
    assert found.code == "unpinned"
    assert "set_mempolicy: not permitted" in found.message


@pytest.mark.parametrize(
    ("backend", "seats", "found"),
    [
        ("gym-async", (("0-1",), ("0",), ("1",)), []),
        ("gym-async", (("0-1",), ("0", "0"), ("1", "1")), ["extra-threads"]),
        ("envpool-sync", (("0-1", "0-1", "0"),), []),
    ],
)
def test_processes_with_more_threads_than_step_are_reported(
    backend: str, seats: tuple[tuple[str, ...], ...], found: list[str]
) -> None:
    assert codes(make_cell(backend, 2, STEADY, seats=seats)) == [found]


@pytest.mark.parametrize(
    ("backend", "steal", "workers", "contested"),
    [
        ("pufferlib", 3 * 10**8, 2, True),
        ("pufferlib", 0, 4, True),
        ("pufferlib", 0, 2, False),
        ("gym-async", 10**9, 2, False),
    ],
)
def test_a_backend_that_polls_has_no_valid_rate_on_cpus_that_others_have_too(
    backend: str, steal: int, workers: int, contested: bool
) -> None:
    window = Window(ns=10**9, rows=1000, resets=0, steal_ns=steal)
    (found,) = codes(make_cell(backend, workers, windows=(window,) * 4))
    assert ("polling" in found) is contested


def test_a_host_whose_cpus_others_took_is_named_however_little_that_is_of_all_hosts() -> None:
    hosts = tuple(replace(share, disturbed=share.host == "host-1") for share in shares(*(100,) * 20))
    (found,) = findings(make_cell("shm-sync", 20, STEADY, hosts=hosts))
    (message,) = (finding.message for finding in found if finding.code == "disturbed")
    assert message == "others took over 5% of the time of the CPUs of host-1"


@pytest.mark.parametrize(
    ("backend", "allowed", "found"),
    [("pufferlib", (0, 1), True), ("pufferlib", (0, 1, 2), False), ("shm-sync", (0, 1), False)],
)
def test_one_that_has_fewer_cpus_than_processes_that_poll_shows_its_worst(
    backend: str, allowed: tuple[int, ...], found: bool
) -> None:
    (said,) = codes(make_cell(backend, 2, STEADY, processes=2, cpus=(0, 1), affinity=allowed))
    assert ("polling" in said) is found
