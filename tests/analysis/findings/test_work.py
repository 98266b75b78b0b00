"""Findings on what a cell did."""

from __future__ import annotations

from math import exp
from random import Random

import pytest
from support.findings import FAST, NOISY, STEADY, codes, findings
from support.records import make_cell, make_header

from vebench.analysis.summary import summarise
from vebench.backends.setup import Engine
from vebench.results.records import CellRecord, Run


def test_a_cell_with_nothing_to_report_has_no_finding() -> None:
    assert codes(make_cell("for-loop", 1, STEADY), make_cell("envpool-sync", 2, FAST)) == [[], []]


def test_a_failed_cell_is_reported_with_its_reason() -> None:
    ((found,),) = findings(make_cell("gym-async", 2, status="failed", reason="killed by signal 9"))
    assert (found.code, found.message) == ("failed", "killed by signal 9")


def test_failed_repeats_are_counted() -> None:
    cells = (make_cell("for-loop", 1, STEADY), make_cell("for-loop", 1, status="failed", reason="boom", repeat=1))
    ((found,),) = findings(*cells)
    assert found.message == "1 of 2 repeats: boom"


def test_a_failed_cell_leads_to_its_log_and_the_command_that_measures_it_again() -> None:
    ((found,),) = findings(make_cell("gym-async", 2, status="failed", reason="boom"), file="my runs/a.jsonl")
    assert "my runs/a.jsonl.log" in found.remedy
    assert "vebench run --resume 'my runs/a.jsonl'" in found.remedy


def test_an_interrupted_cell_needs_no_fixing() -> None:
    ((found,),) = findings(make_cell("gym-async", 2, STEADY, status="failed", reason="interrupted"))
    assert (found.code, found.remedy) == ("incomplete", "vebench run --resume a.jsonl measures it again")


def test_a_repeat_that_the_user_ended_does_not_hide_one_that_failed() -> None:
    reasons = ("boom", "interrupted")
    cells = [make_cell("for-loop", 1, status="failed", reason=why, repeat=repeat) for repeat, why in enumerate(reasons)]
    ((found,),) = findings(*cells)
    assert (found.code, found.message) == ("failed", "1 of 2 repeats: boom")


def test_a_repeat_that_the_user_ended_is_no_finding_once_a_later_one_was_measured_instead() -> None:
    ended = make_cell("for-loop", 1, status="failed", reason="interrupted")
    assert codes(ended, make_cell("for-loop", 1, STEADY, repeat=1)) == [[]]


def test_other_work_is_reported_with_how_it_differs() -> None:
    liar = make_cell("gym-sync", 1, FAST, verdict="different", verdict_reason="frame skip 5 instead of 4")
    _, (found,) = findings(make_cell("for-loop", 1, STEADY), liar)
    assert (found.code, found.message) == (
        "different-work",
        "not the same work as for-loop: frame skip 5 instead of 4; compared with nothing",
    )


def test_work_that_was_not_compared_is_reported() -> None:
    found = codes(
        make_cell("for-loop", 1, STEADY),
        make_cell("gym-sync", 1, STEADY, verdict="unverified"),
        make_cell("gym-async", 1, STEADY, verdict=None),
        make_cell("ceiling", 1, FAST),
    )
    assert found == [[], ["unverified"], ["unverified"], []]


def test_a_backend_slower_than_a_plain_loop_is_reported() -> None:
    assert codes(make_cell("for-loop", 1, FAST), make_cell("gym-async", 2, STEADY)) == [[], ["slower"]]


def test_a_backend_that_may_be_as_fast_as_a_plain_loop_is_not_called_slower() -> None:
    assert codes(make_cell("for-loop", 1, STEADY), make_cell("gym-async", 2, NOISY)) == [[], ["imprecise"]]


def test_more_environments_are_no_remedy_where_each_is_a_process() -> None:
    cells = (make_cell("for-loop", 1, FAST), make_cell("gym-async", 2, STEADY), make_cell("shm-sync", 2, STEADY))
    _, (process_each,), (process_per_cpu,) = findings(*cells)
    assert "--envs-per-worker" not in process_each.remedy
    assert "--envs-per-worker" in process_per_cpu.remedy


def test_a_backend_faster_than_the_bare_simulator_is_reported() -> None:
    found = codes(make_cell("for-loop", 1, STEADY), make_cell("envpool-sync", 2, FAST), make_cell("ceiling", 2, STEADY))
    assert found == [[], ["above-ceiling"], []]


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
def test_another_physics_engine_inside_a_backend_is_reported_with_the_version_that_would_match(
    engine: Engine, remedies: list[str]
) -> None:
    (found,) = findings(make_cell("envpool-sync", 1, STEADY, engines=(engine,)))
    assert [finding.remedy for finding in found if finding.code == "other-packages"] == remedies


def test_a_backend_slower_than_with_fewer_workers_is_reported() -> None:
    two_processes = {"processes": 2, "threads": 1}
    cells = (
        make_cell("shm-sync", 1, FAST),
        make_cell("shm-sync", 2, STEADY, **two_processes),
        make_cell("shm-sync", 2, STEADY, **two_processes, env="Ant-v5"),
        make_cell("shm-sync", 2, STEADY, **two_processes, options={"k": 1}),
        make_cell("gym-sync", 1, FAST),
        make_cell("gym-sync", 2, STEADY),
    )
    assert codes(*cells) == [[], ["slower"], [], [], [], []]


def test_of_many_pairs_one_that_is_just_beyond_chance_is_no_finding_though_alone_it_is() -> None:
    random = Random(1)  # noqa: S311 - noise to repeat, no secret

    def repeated(backend: str, workers: int, rate: float) -> list[CellRecord]:
        steps = [round(rate * exp(random.gauss(0, 0.01))) for _ in range(5)]
        return [make_cell(backend, workers, (count,) * 3, repeat=repeat) for repeat, count in enumerate(steps)]

    pair = [*repeated("for-loop", 1, 1e6), *repeated("gym-sync", 1, 0.98e6)]
    others = [record for workers in range(1, 61) for record in repeated("shm-sync", workers, 1.5e6)]
    for cells, code in ((pair, ["slower"]), (pair + others, [])):
        slower = summarise(Run(make_header(), tuple(cells)))[1]
        assert slower.speedup is not None
        assert slower.speedup.high is not None
        assert slower.speedup.high < 1  # as a pair of its own
        assert [finding.code for finding in slower.findings] == code
