"""Passes that are added: ``run --until``, ``check BASELINE`` and ``compare --budget``."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from support.commands import Command
from support.fakes import SECOND, FakeClock, FakeStart, Script, fake_world, interrupted, steady
from support.records import write_lines

from vebench.analysis.summary import FEWEST_PROCESSES
from vebench.child.answers import Answer, Done, Layout, Ready, Warm, Window
from vebench.plan.cells import Cell
from vebench.plan.spec import RunSpec

NULL = ("-e", "CartPole", "-w", "1", "-b", "null", "--passes", "1")


def repeats(path: Path) -> list[int]:
    return [json.loads(line)["repeat"] for line in path.read_text().splitlines()[1:]]


def test_until_goes_on_to_the_precision_that_was_asked_for(vebench: Command, tmp_path: Path) -> None:
    done = vebench("run", *NULL, "--until", "5%", "--budget", "600", "-o", "run.jsonl", "-q", world=fake_world())
    assert (done.status, done.err) == (0, "")
    assert repeats(tmp_path / "run.jsonl") == list(range(FEWEST_PROCESSES))


def test_until_ends_with_its_budget_says_so_and_is_resumed(vebench: Command, tmp_path: Path) -> None:
    path, until = tmp_path / "run.jsonl", ("--until", "0.001%", "--budget", "5")
    done = vebench("run", *NULL, *until, "-o", "run.jsonl", world=fake_world(clock=FakeClock(0.05)))
    assert done.status == 0
    assert "the time was up (--until)" in " ".join(done.out.split())
    first = repeats(path)
    assert 1 < len(first) < 5
    assert vebench("run", "--resume", "run.jsonl", "-q", world=fake_world(clock=FakeClock(0.05))).status == 0
    assert repeats(path)[: len(first)] == first
    assert len(repeats(path)) > len(first)


def test_a_further_pass_that_was_interrupted_is_measured_again_and_the_run_goes_on(vebench: Command) -> None:
    def interrupted_in_the_third(cell: Cell, spec: RunSpec) -> Script:
        return (interrupted if cell.repeat == 2 else steady)(cell, spec)

    world = fake_world(FakeStart({"null": interrupted_in_the_third}))
    assert vebench("run", *NULL, "--until", "5%", "-o", "run.jsonl", "-q", world=world).status == 130
    assert vebench("run", "--resume", "run.jsonl", "-q", world=fake_world()).status == 0
    cells = map(json.loads, Path("run.jsonl").read_text().splitlines()[1:])
    assert {cell["repeat"] for cell in cells if cell["status"] == "ok"} == set(range(FEWEST_PROCESSES))


def test_a_budget_that_ends_does_not_part_those_that_take_turns(vebench: Command, tmp_path: Path) -> None:
    until = ("--until", "0.0001%", "--budget", "3", "-b", "for-loop")
    start = FakeStart()
    world = fake_world(start, clock=FakeClock(0.1))
    assert vebench("run", *NULL, *until, "--windows", "2", "-o", "run.jsonl", "-q", world=world).status == 0
    header, *cells = map(json.loads, (tmp_path / "run.jsonl").read_text().splitlines())
    assert header["spec"]["interleave"] is True
    assert {cell.mode for cell, _ in start.started} == {"in_turn"}
    assert len(cells) > 2
    assert sorted((cell["backend"], cell["repeat"]) for cell in cells) == [
        (backend, repeat) for backend in ("for-loop", "null", "yardstick") for repeat in range(len(cells) // 3)
    ]
    assert all(len(cell["windows"]) == 2 for cell in cells)
    assert "cells interleaved" in vebench("report", "run.jsonl", "--all").out


PLAN = ("--passes", "5", "--windows", "3")
COMPARE = ("compare", "old", "new", "-e", "Pong", "-w", "1", *PLAN, "-o", "pair.jsonl", "-f", "json")


def noisy(slower: float, noise: float = 0.06) -> Callable[[Cell, RunSpec], list[Answer]]:
    """Return the script of a cell whose processes differ by this noise, and that is this much slower in B."""

    def script(cell: Cell, spec: RunSpec) -> list[Answer]:
        luck = Random(f"{cell.key} {cell.interpreter.side}").gauss(1, noise)
        rows = round(1e6 * luck * (slower if cell.interpreter.side == "B" else 1.0))
        built = Layout(**vars(cell.shape), frame_skip=cell.task.frame_skip, affinity=cell.cpus)
        windows = [Window(ns=SECOND, rows=rows, resets=0)] * spec.windows
        return [Ready(SECOND // 2, built), Warm(), *windows, Done(100 << 20, settled=True)]

    return script


def passes(path: Path, backend: str) -> int:
    cells = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    return len({cell["repeat"] for cell in cells if cell["backend"] == backend})


@pytest.mark.parametrize(("slower", "status", "verdict"), [(0.85, 1, "slower"), (1.0, 0, "same")])
def test_compare_goes_on_until_it_knows(vebench: Command, slower: float, status: int, verdict: str) -> None:
    world = fake_world(FakeStart({"gym-sync": noisy(slower, 0.12)}), clock=FakeClock(0.001))
    plan = (*COMPARE[:-4], "--tolerance", "5%", "-f", "json", "-b", "gym-sync")
    once = vebench(*plan, "-o", "once.jsonl", world=world)
    assert (once.status, passes(Path("once-a.jsonl"), "gym-sync")) == (3, 5)
    found = vebench(*plan, "-o", "pair.jsonl", "--budget", "2", world=world)
    assert (found.status, [group["verdict"] for group in json.loads(found.out)["groups"]]) == (status, [verdict])
    assert passes(Path("pair-a.jsonl"), "gym-sync") == passes(Path("pair-b.jsonl"), "gym-sync") > 5


def test_a_backend_that_is_decided_is_not_measured_on(vebench: Command, tmp_path: Path) -> None:
    world = fake_world(FakeStart({"gym-sync": noisy(0.9), "for-loop": noisy(0.5, 0.001)}), clock=FakeClock(0.005))
    found = vebench(*COMPARE, "-b", "gym-sync,for-loop", "--budget", "2", world=world)
    assert found.status == 1
    path = tmp_path / "pair-b.jsonl"
    assert passes(path, "for-loop") == 5 < passes(path, "gym-sync")


def test_a_budget_that_ends_leaves_the_rest_inconclusive(vebench: Command, tmp_path: Path) -> None:
    world = fake_world(FakeStart({"gym-sync": noisy(0.95, 0.2)}), clock=FakeClock(0.1))
    found = vebench(*COMPARE, "-b", "gym-sync", "--budget", "60", world=world)
    assert (found.status, json.loads(found.out)["groups"][0]["verdict"]) == (3, "inconclusive")
    assert passes(tmp_path / "pair-a.jsonl", "gym-sync") > 5


def test_no_number_of_passes_tells_two_runs_apart_that_may_differ_as_a_whole(vebench: Command) -> None:
    plan = ("-e", "Pong", "-w", "1", "-b", "gym-sync", "-o", "base.jsonl")
    assert vebench("run", *plan, world=fake_world()).status == 0
    start = FakeStart()
    found = vebench("check", "base.jsonl", "--metric", "fps", world=fake_world(start))
    assert found.status == 3
    assert "more passes cannot resolve this tolerance" in found.refusal
    assert not start.started


def test_check_adds_passes_to_the_candidate_and_the_loop_that_it_stands_on(vebench: Command, tmp_path: Path) -> None:
    plan = ("-e", "Pong", "-w", "1", "-b", "gym-sync", "--passes", "30", "-o", "base.jsonl")
    world = fake_world(FakeStart({"gym-sync": noisy(1.0, 0.03)}), clock=FakeClock(0.001))
    assert vebench("run", *plan, world=world).status == 0
    lines = (tmp_path / "base.jsonl").read_text().splitlines()
    header = json.loads(lines[0])
    header["spec"]["passes"], header["cells"] = 3, None  # so that its plan is measured again with three passes
    write_lines(tmp_path / "base.jsonl", (json.dumps(header), *lines[1:]))
    check = ("check", "base.jsonl", "--budget", "60", "-f", "json")
    found = vebench(*check, "-o", "now.jsonl", world=world)
    assert (found.status, json.loads(found.out)["groups"][0]["verdict"]) == (0, "same")
    now = tmp_path / "now.jsonl"
    assert passes(now, "gym-sync") == passes(now, "yardstick") > 3
