"""Passes that go on until intervals are narrow enough."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.records import make_cell, make_header

from vebench.analysis.precision import FEWEST_PROCESSES, another_pass
from vebench.analysis.summary import summarise
from vebench.backends.interface import Task
from vebench.machine.placement import place
from vebench.plan.cells import Plan, expand
from vebench.plan.spec import BackendChoice, RunSpec
from vebench.results.records import Run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NARROW = (1000, 1001, 999, 1000, 1002)
WIDE = (1000, 1500, 700, 1200, 900)


@pytest.fixture
def plan() -> Plan:
    backends = (BackendChoice("for-loop"), BackendChoice("gym-sync"))
    spec = RunSpec(("Pong",), (1, 2), backends, repeats=2, until=0.02)
    return expand(spec, [Task("ALE/Pong-v5", "atari", 4)], place("compact", frozenset({0, 1})), None)


@pytest.fixture
def measured(plan: Plan) -> Callable[..., Run]:
    """Return a run of the plan's cells, each as steady as its entry in ``rates`` says, by backend and workers."""

    def found(rates: dict[tuple[str, int], tuple[int, ...]], **fields: object) -> Run:
        records = [
            make_cell(backend, workers, (steps,) * 3, repeat=repeat, **fields)
            for backend, workers in dict.fromkeys((one.backend.name, one.workers) for one in plan.cells)
            for repeat, steps in enumerate(rates.get((backend, workers), NARROW))
        ]
        return Run(make_header(until=0.02), tuple(records))

    return found


def test_cells_that_are_narrow_enough_are_measured_no_more(plan: Plan, measured: Callable[..., Run]) -> None:
    assert another_pass(plan, measured({})).cells == ()


def test_cells_that_are_not_are_measured_once_more_each(plan: Plan, measured: Callable[..., Run]) -> None:
    more = another_pass(plan, measured({("gym-sync", 2): WIDE, ("for-loop", 1): WIDE}))
    assert sorted((cell.backend.name, cell.workers, cell.repeat) for cell in more.cells) == [
        ("for-loop", 1, 5),
        ("gym-sync", 2, 5),
    ]


def test_an_interval_that_is_narrow_by_chance_after_few_processes_does_not_count(
    plan: Plan, measured: Callable[..., Run]
) -> None:
    few = NARROW[: FEWEST_PROCESSES - 1]
    more = another_pass(plan, measured({("gym-sync", 1): few}))
    assert [(cell.backend.name, cell.repeat) for cell in more.cells] == [("gym-sync", FEWEST_PROCESSES - 1)]


def test_a_cell_that_failed_last_is_not_tried_again(plan: Plan, measured: Callable[..., Run]) -> None:
    wide = {(one.backend.name, one.workers): WIDE for one in plan.cells}
    failed = [make_cell(backend, workers, status="failed", reason="boom", repeat=5) for backend, workers in wide]
    assert another_pass(plan, Run(make_header(), (*measured(wide).cells, *failed))).cells == ()


def test_each_pass_has_an_order_of_its_own_that_follows_from_the_seed(plan: Plan, measured: Callable[..., Run]) -> None:
    def order(rates: tuple[int, ...]) -> list[tuple[str, int]]:
        wide = {(one.backend.name, one.workers): rates for one in plan.cells}
        return [(cell.backend.name, cell.workers) for cell in another_pass(plan, measured(wide)).cells]

    orders = [order(WIDE * times) for times in range(1, 7)]
    assert order(WIDE) == orders[0]
    assert len(set(map(tuple, orders))) > 1


def test_cells_that_take_turns_stay_together_in_every_pass(plan: Plan, measured: Callable[..., Run]) -> None:
    wide = measured({(one.backend.name, one.workers): WIDE for one in plan.cells})
    in_pairs = tuple(replace(one, group=one.workers) for one in plan.cells)
    for seed in range(5):
        more = another_pass(replace(plan, spec=replace(plan.spec, seed=seed), cells=in_pairs), wide)
        assert [one.group for one in more.cells] in ([1, 1, 2, 2], [2, 2, 1, 1])


def test_cells_that_take_turns_go_on_together_until_all_are_narrow_enough(
    plan: Plan, measured: Callable[..., Run]
) -> None:
    in_pairs = replace(plan, cells=tuple(replace(one, group=one.workers) for one in plan.cells))
    more = another_pass(in_pairs, measured({("gym-sync", 2): WIDE}))
    assert sorted((one.backend.name, one.workers, one.repeat) for one in more.cells) == [
        ("for-loop", 2, 5),
        ("gym-sync", 2, 5),
    ]


def test_a_cell_that_did_not_get_narrow_enough_is_told(measured: Callable[..., Run]) -> None:
    found = summarise(measured({("gym-sync", 2): WIDE}))
    told = [(one.label, one.workers) for one in found for finding in one.findings if finding.code == "imprecise"]
    assert told == [("gym-sync", 2)]


def vebench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vebench.cli", *arguments]
    return subprocess.run(command, cwd=folder, env=os.environ, capture_output=True, text=True, check=False)


def repeats(path: Path) -> list[int]:
    return [json.loads(line)["repeat"] for line in path.read_text().splitlines()[1:]]


BRIEF = ("-e", "CartPole", "-w", "1", "-b", "null", "--duration", "0.02", "--warmup", "0.02", "--rounds", "2")


def test_until_goes_on_to_the_precision_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    done = vebench(tmp_path, "run", *BRIEF, "--until", "99%", "--budget", "600", "-o", "run.jsonl", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    assert repeats(path) == list(range(len(repeats(path))))
    assert len(repeats(path)) >= FEWEST_PROCESSES
    for line in path.read_text().splitlines()[1:]:
        cell = json.loads(line)
        assert cell["warmup_ns"] >= 20_000_000
        assert cell["settled"] in (True, False)


def test_until_ends_with_its_budget_says_so_and_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    done = vebench(tmp_path, "run", *BRIEF, "--until", "0.0001%", "--budget", "0.001", "-o", "run.jsonl")
    assert done.returncode == 0
    assert "imprecise" in done.stdout
    first = repeats(path)
    assert first in ([0], [0, 1])
    assert vebench(tmp_path, "run", "--resume", "run.jsonl", "-q").returncode == 0
    assert repeats(path)[: len(first)] == first


def test_a_budget_that_ends_does_not_part_those_that_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    until = ("--until", "0.0001%", "--budget", "0.001", "--interleave", "-b", "for-loop")
    assert vebench(tmp_path, "run", *BRIEF, *until, "-o", "run.jsonl", "-q").returncode == 0
    header, *cells = map(json.loads, path.read_text().splitlines())
    assert header["spec"]["interleave"] is True
    assert sorted((cell["backend"], cell["repeat"]) for cell in cells) == [
        (backend, repeat) for backend in ("for-loop", "null") for repeat in range(len(cells) // 2)
    ]
    assert all(len(cell["windows"]) == 2 for cell in cells)
    assert "cells taking turns" in " ".join(vebench(tmp_path, "report", "run.jsonl").stdout.split())


@pytest.mark.parametrize(
    "more",
    [("--until", "0"), ("--until", "soon"), ("--until", "2%", "--budget", "0"), ("--budget", "60")],
)
def test_a_precision_that_makes_no_sense_is_bad_input(tmp_path: Path, more: tuple[str, ...]) -> None:
    done = vebench(tmp_path, "run", *BRIEF, *more)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert more[-2] in done.stderr
