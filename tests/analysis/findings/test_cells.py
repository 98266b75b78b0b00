"""Findings on cells: what each did, how it was measured, and what the machine did meanwhile."""

from dataclasses import replace
from math import exp
from random import Random

import pytest
from support.findings import FAST, STEADY, codes, findings
from support.records import make_cell, make_header, shares

from vebench.analysis.summary import summarise
from vebench.backends.interface import Engine
from vebench.child.answers import CellProof, Window
from vebench.results.records import CellRecord, Run


def test_a_cell_with_nothing_to_report_has_no_finding() -> None:
    assert codes(make_cell("for-loop", 1, STEADY), make_cell("envpool-sync", 2, FAST)) == [[], []]


def test_failed_repeats_are_counted() -> None:
    cells = (make_cell("for-loop", 1, STEADY), make_cell("for-loop", 1, status="failed", reason="boom", repeat=1))
    ((found,),) = findings(*cells)
    assert found.message == "1 of 2 passes: boom"


ILLEGAL = "RuntimeError: environment 0: ValueError: job 0 is done: legal are [1, 3], in step 28"


@pytest.mark.parametrize(
    ("backend", "reason", "helps"),
    [
        ("gym-async", "OSError: [Errno 24] Too many open files, while it was built", "ulimit -n"),
        ("gym-async", "BlockingIOError: [Errno 11] Resource temporarily unavailable, while it was built", "ulimit -u"),
        ("for-loop", "its process was ended by SIGKILL (out of memory, or killed from outside)", "leak"),
        ("mine:make_vec", "TypeError: unsupported operand type(s) for *: 'int' and 'Setup'", "adapter"),
        ("gym-async", "AssertionError: daemonic processes are not allowed to have children", "subprocess"),
        ("gym-async", "timed out after 10 s (--timeout), while it was built", "[context=spawn]"),
        ("gym-async", "timed out after 10 s (--timeout), in step 3", ""),
        ("gym-sync", "RuntimeError: a second core in one process", "a process for each environment"),
        ("for-loop", ILLEGAL, "--policy MODULE:FUNCTION"),
        ("for-loop", f"not measured: for-loop with one worker cannot step jobs:make: {ILLEGAL}", "--policy"),
        ("for-loop", "RuntimeError: environment 0: MemoryError: no more handles, in step 1,560", ""),
    ],
)
def test_a_failure_whose_cause_is_known_has_a_way_out(backend: str, reason: str, helps: str) -> None:
    ((found,),) = findings(make_cell(backend, 2, status="failed", reason=reason))
    assert helps in found.remedy
    assert found.remedy.startswith("see ") == (not helps)


@pytest.mark.parametrize("loop", ["ok", "failed"])
def test_what_fails_with_all_backends_is_the_environments_fault(loop: str) -> None:
    steps = STEADY if loop == "ok" else ()
    cells = make_cell("for-loop", 1, steps, status=loop), make_cell("gym-async", 2, status="failed", reason="boom")
    assert ("it is the environment" in findings(*cells)[1][0].remedy) == (loop == "failed")


def test_slow_resets_are_no_finding_on_a_cell_that_failed() -> None:
    windows = tuple(Window(10**9, 500, 1 if number else 0) for number in range(4))
    loop = replace(make_cell(windows=windows), reset_ns=10**9)
    assert codes(loop, make_cell("gym-async", 2, status="failed", reason="boom"))[1] == ["failed"]


VARIES = "with the same seed and actions, its results vary between runs"


@pytest.mark.parametrize(("known", "found"), [(VARIES, 1), ("", 2)])
def test_an_environment_that_no_seed_repeats_is_told_once_with_a_way_out(known: str, found: int) -> None:
    proof = CellProof("unverified", reason=VARIES)
    told = findings(make_cell("gym-async", 2, STEADY, verdict="unverified", verdict_reason=known, proof=proof))[0]
    assert [finding.code for finding in told] == ["unverified"] * found
    assert "reset(seed=)" in told[-1].remedy


def test_rows_with_few_ends_call_for_longer_windows_or_verify() -> None:
    proof = CellProof("identical", rows=90, ends=1, environments=2, steps=40, of_steps=90)
    (told,) = findings(make_cell("gym-async", 2, STEADY, verdict="unverified", proof=proof))[0]
    assert told.remedy.startswith("measure with a longer --duration, or compare it with: vebench verify")


def test_threads_that_reset_spares_are_no_extra_threads() -> None:
    threads = (("0", "0"),)
    cells = (make_cell("shm-sync", 1, STEADY, options=given, seats=threads) for given in ({}, {"spares": 1}))
    assert [one for found in codes(*cells) for one in found] == ["extra-threads"]


def test_a_backend_within_the_noise_of_the_ceiling_is_not_reported() -> None:
    assert codes(make_cell("envpool-sync", 2, (1001, 1002, 1000, 1001)), make_cell("ceiling", 2, STEADY)) == [[], []]


@pytest.mark.parametrize(
    ("engine", "remedies"),
    [
        (Engine("MuJoCo", "3.6.0", "3.11.0", "mujoco==3.6.0"), ["pip install mujoco==3.6.0"]),
        (Engine("MuJoCo", "3.6.0", "3.6.0", "mujoco==3.6.0"), []),
        (Engine("ALE", "0.11.2", "0.12.1", "ale-py==0.11.2"), []),  # they gave the same bytes
    ],
)
def test_another_engine_in_a_backend_is_reported_with_the_one_to_have(engine: Engine, remedies: list[str]) -> None:
    (found,) = findings(make_cell("envpool-sync", 1, STEADY, engines=(engine,)))
    assert [finding.remedy for finding in found if finding.code == "other-packages"] == remedies


def test_of_many_pairs_one_that_is_just_beyond_chance_is_no_finding_though_alone_it_is() -> None:
    random = Random(1)

    def repeated(backend: str, workers: int, rate: float) -> list[CellRecord]:
        steps = [round(rate * exp(random.gauss(0, 0.01))) for _ in range(5)]
        return [make_cell(backend, workers, (count,) * 3, repeat=repeat) for repeat, count in enumerate(steps)]

    pair = [*repeated("for-loop", 1, 1e6), *repeated("gym-sync", 1, 0.98e6)]
    others = [record for workers in range(1, 61) for record in repeated("shm-sync", workers, 1.5e6)]
    for cells, code in ((pair, ["slower"]), (pair + others, [])):
        slower = summarise(Run(make_header(), tuple(cells)))[1]
        assert slower.speedup.high < 1  # as a pair of its own
        assert [finding.code for finding in slower.findings] == code


@pytest.mark.parametrize(("windows", "too_few"), [(0, True), (1, True), (2, True), (3, True), (4, False)])
def test_too_few_windows_are_reported(windows: int, too_few: bool) -> None:
    assert codes(make_cell("for-loop", 1, STEADY[:windows])) == [["imprecise"] if too_few else []]


@pytest.mark.parametrize(
    ("plan", "remedy"),
    [
        ({"passes": 3, "windows": 8}, "continue with: vebench run --resume a.jsonl"),
        ({"windows": 8}, "measure again"),
        ({"windows": 2}, "measure with --windows 4 or more"),
    ],
)
def test_where_an_interrupt_left_few_windows_the_remedy_is_to_go_on(plan: dict[str, int], remedy: str) -> None:
    run = Run(make_header(**plan), (make_cell("for-loop", 1, STEADY[:2]),))
    ((found,),) = (cell.findings for cell in summarise(run, "a.jsonl"))
    assert (found.code, found.remedy) == ("imprecise", remedy)


@pytest.mark.parametrize(("steps", "share"), [(30_000, "1%"), (150_000, "1%"), (300_000, "10%"), (1_900_000, "10%")])
def test_the_share_of_the_loop_is_reported_in_steps(steps: int, share: str) -> None:
    _, (found,) = findings(make_cell("null", 1, (2_000_000,) * 4), make_cell("for-loop", 1, (steps,) * 4))
    assert found.message == f"the measuring loop itself takes over {share} of the time"


@pytest.mark.parametrize(
    ("windows", "reset_ms", "found"),
    [
        ([(1000, 0), (500, 1), (1000, 0), (1000, 0)], 0, ["few-resets"]),  # a reset of half a second
        ([(500, 1)] * 4, 0, []),  # the same in each window: then rates are right
        ([(1000, 0), (500, 1)] * 10, 0, []),  # enough of them
        ([(1000, 0), (996, 1), (1000, 0), (1000, 0)], 0, []),  # of a few milliseconds
        ([(1000, 0)] * 4, 1000, ["few-resets"]),  # no episode ended, and the first reset was slow
        ([(1000, 0)] * 4, 20, []),
    ],
)
def test_windows_with_too_few_slow_resets_are_reported(
    windows: list[tuple[int, int]], reset_ms: int, found: list[str]
) -> None:
    measured = tuple(Window(ns=10**9, rows=steps + resets, resets=resets) for steps, resets in windows)
    record = replace(make_cell(windows=measured, num_envs=1, batch_size=1), reset_ns=reset_ms * 10**6)
    assert [code for code in codes(record)[0] if code == "few-resets"] == found


@pytest.mark.parametrize(
    ("backend", "seats", "found"),
    [
        ("gym-async", (("0-1",), ("0",), ("1",)), []),
        ("gym-async", (("0-1",), ("0", "0"), ("1", "1")), ["extra-threads"]),
        ("envpool-sync", (("0-1", "0-1", "0"),), []),
    ],
)
def test_threads_that_do_not_step_are_told(backend: str, seats: tuple[tuple[str, ...], ...], found: list[str]) -> None:
    assert codes(make_cell(backend, 2, STEADY, seats=seats)) == [found]


@pytest.mark.parametrize(
    ("backend", "steal", "held_back", "workers", "contested"),
    [
        ("pufferlib", 3 * 10**8, 0, 2, True),
        ("pufferlib", 0, 0, 4, True),
        ("pufferlib", 0, 0, 2, False),
        ("gym-async", 10**9, 0, 2, False),
        ("pufferlib", 0, 4, 2, True),  # a CPU quota slowed all windows
        ("pufferlib", 0, 3, 2, False),
        ("gym-async", 0, 4, 2, False),
    ],
)
def test_a_backend_that_polls_has_no_valid_rate_on_cpus_that_others_have_too(
    backend: str, steal: int, held_back: int, workers: int, contested: bool
) -> None:
    windows = (Window(10**9, 1000, 0, steal_ns=steal, throttles=int(number < held_back)) for number in range(4))
    (found,) = codes(make_cell(backend, workers, windows=tuple(windows)))
    assert ("polling" in found) is contested


def test_a_host_whose_cpus_others_took_is_named_however_little_that_is_of_all_hosts() -> None:
    hosts = tuple(replace(share, disturbed=share.host == "host-1") for share in shares(*(100,) * 20))
    (found,) = findings(make_cell("shm-sync", 20, STEADY, hosts=hosts))
    (message,) = (finding.message for finding in found if finding.code == "disturbed")
    assert message == "others took over 5% of the time of the CPUs of host-1"
