"""``vebench run --until``: passes that go on until intervals are narrow enough."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.fakes import FakeClock, FakeStart, fake_world, interrupted, steady

from vebench.analysis.summary import FEWEST_PROCESSES

if TYPE_CHECKING:
    from pathlib import Path

    from support.commands import Command
    from support.fakes import Script

    from vebench.plan.cells import Cell
    from vebench.plan.spec import RunSpec

NULL = ("-e", "CartPole", "-w", "1", "-b", "null", "--repeats", "1")


def repeats(path: Path) -> list[int]:
    return [json.loads(line)["repeat"] for line in path.read_text().splitlines()[1:]]


def test_until_goes_on_to_the_precision_that_was_asked_for(vebench: Command, tmp_path: Path) -> None:
    done = vebench("run", *NULL, "--until", "5%", "--budget", "600", "-o", "run.jsonl", "-q", world=fake_world())
    assert (done.status, done.err) == (0, "")
    assert repeats(tmp_path / "run.jsonl") == list(range(FEWEST_PROCESSES))


def test_a_narrower_interval_takes_more_passes(vebench: Command, tmp_path: Path) -> None:
    coarse, fine = tmp_path / "coarse.jsonl", tmp_path / "fine.jsonl"
    for path, share in ((coarse, "5%"), (fine, "0.5%")):
        assert vebench("run", *NULL, "--until", share, "-o", path, "-q", world=fake_world()).status == 0
    assert len(repeats(fine)) > len(repeats(coarse))
    assert repeats(fine) == list(range(len(repeats(fine))))


def test_until_ends_with_its_budget_says_so_and_is_resumed(vebench: Command, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    until = ("--until", "0.0001%", "--budget", "4")
    done = vebench("run", *NULL, *until, "-o", "run.jsonl", world=fake_world(clock=FakeClock()))
    assert done.status == 0
    assert "imprecise" in done.out
    first = repeats(path)
    assert 1 < len(first) < 5
    assert vebench("run", "--resume", "run.jsonl", "-q", world=fake_world(clock=FakeClock())).status == 0
    assert repeats(path)[: len(first)] == first
    assert len(repeats(path)) > len(first)


def test_a_further_pass_that_was_interrupted_is_measured_again_and_the_run_goes_on(
    vebench: Command, tmp_path: Path
) -> None:
    def interrupted_in_the_third(cell: Cell, spec: RunSpec) -> Script:
        return (interrupted if cell.repeat == 2 else steady)(cell, spec)

    world = fake_world(FakeStart({"null": interrupted_in_the_third}))
    assert vebench("run", *NULL, "--until", "5%", "-o", "run.jsonl", "-q", world=world).status == 130
    assert vebench("run", "--resume", "run.jsonl", "-q", world=fake_world()).status == 0
    cells = map(json.loads, (tmp_path / "run.jsonl").read_text().splitlines()[1:])
    assert {cell["repeat"] for cell in cells if cell["status"] == "ok"} == set(range(FEWEST_PROCESSES))


def test_a_budget_that_ends_does_not_part_those_that_take_turns(vebench: Command, tmp_path: Path) -> None:
    until = ("--until", "0.0001%", "--budget", "3", "-b", "for-loop")
    start = FakeStart()
    world = fake_world(start, clock=FakeClock())
    assert vebench("run", *NULL, *until, "--rounds", "2", "-o", "run.jsonl", "-q", world=world).status == 0
    header, *cells = map(json.loads, (tmp_path / "run.jsonl").read_text().splitlines())
    assert header["spec"]["interleave"] is True
    assert {cell.mode for cell, _ in start.started} == {"in_turn"}
    assert len(cells) > 2
    assert sorted((cell["backend"], cell["repeat"]) for cell in cells) == [
        (backend, repeat) for backend in ("for-loop", "null", "yardstick") for repeat in range(len(cells) // 3)
    ]
    assert all(len(cell["windows"]) == 2 for cell in cells)
    assert "cells taking turns" in vebench("report", "run.jsonl", "--all").out


@pytest.mark.parametrize(
    "more",
    [("--until", "0"), ("--until", "soon"), ("--until", "2%", "--budget", "0"), ("--budget", "60")],
)
def test_a_precision_that_makes_no_sense_is_bad_input(vebench: Command, more: tuple[str, ...]) -> None:
    done = vebench("run", *NULL, *more)
    assert done.status == 2
    assert more[-2] in done.refusal
