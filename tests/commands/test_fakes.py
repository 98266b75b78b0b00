"""Every command that starts cells can be driven without one: a run from the command line to its table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.fakes import FakeStart, failing, fake_world, steady

from vebench.engine.conversation import InterruptedCellError
from vebench.results.records import INTERRUPTED

if TYPE_CHECKING:
    from pathlib import Path

    from support.commands import Command

    from vebench.plan.cells import Cell
    from vebench.plan.spec import RunSpec

PONG = ("-e", "Pong", "-b", "for-loop,shm-sync")


def test_a_run_is_planned_measured_stored_and_shown(vebench: Command, tmp_path: Path) -> None:
    start = FakeStart()
    found = vebench("run", *PONG, "-w", "1,2", "-o", "run.jsonl", world=fake_world(start))
    assert (found.status, len(start.started), start.left) == (0, 4, 1)
    assert "ALE/Pong-v5: frames/s (4 frames per step)" in found.out
    head, *cells = map(json.loads, (tmp_path / "run.jsonl").read_text().splitlines())
    assert head["command"] == "vebench run -e Pong -b for-loop,shm-sync -w 1,2 -o run.jsonl"
    assert [len(cell["windows"]) for cell in cells] == [6] * 4


def test_a_cell_that_fails_is_exit_status_1_and_keeps_its_log(vebench: Command, tmp_path: Path) -> None:
    start = FakeStart({"shm-sync": failing("ValueError: boom")})
    found = vebench("run", *PONG, "-w", "1", "-o", "run.jsonl", world=fake_world(start))
    assert found.status == 1
    assert "ValueError: boom" in found.out
    assert "what it printed" in (tmp_path / "run.jsonl.log").read_text()


def test_an_interrupted_run_is_resumed_where_it_ended(vebench: Command) -> None:
    def interrupted(_cell: Cell, _spec: RunSpec) -> list[Exception]:
        return [InterruptedCellError(INTERRUPTED)]

    first = vebench("run", *PONG, "-w", "1", "-o", "run.jsonl", world=fake_world(FakeStart({"shm-sync": interrupted})))
    assert first.status == 130
    assert "to go on: vebench run --resume run.jsonl" in first.err
    start = FakeStart()
    again = vebench("run", "--resume", "run.jsonl", world=fake_world(start))
    assert (again.status, len(start.started)) == (0, 1 + ("1 of 2" not in first.err))


@pytest.mark.parametrize(("speed", "status"), [(1000.0, 0), (700.0, 1)])
def test_a_baseline_is_checked_by_measuring_its_plan_again(vebench: Command, speed: float, status: int) -> None:
    plan = (*PONG, "-w", "1,2", "--repeats", "5", "--rounds", "3", "-q")
    assert vebench("run", *plan, "-o", "a.jsonl", world=fake_world()).status == 0
    start = FakeStart({"shm-sync": lambda cell, spec: steady(cell, spec, speed)})
    assert vebench("check", "a.jsonl", "-o", "b.jsonl", "-q", world=fake_world(start)).status == status


def test_two_interpreters_are_compared_each_cell_in_its_own(vebench: Command) -> None:
    start = FakeStart()
    found = vebench("compare", "--a", "old", "--b", "new", *PONG, "-w", "2", "-q", world=fake_world(start))
    assert found.status == 0
    assert {(cell.side, python) for cell, python in start.started} == {("A", "old"), ("B", "new")}


def test_backends_are_verified_and_what_is_found_is_known_to_the_next_run(vebench: Command) -> None:
    found = vebench("verify", "-e", "Pong", "-b", "gym-sync,shm-sync", world=fake_world())
    assert found.status == 0
    assert found.out.count("identical") >= 2
