"""``check BASELINE`` and ``compare --budget``: gates that add passes until every backend has its verdict."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING

import pytest
from support.fakes import SECOND, FakeClock, FakeStart, fake_world
from support.records import write_lines

from vebench.child.answers import Done, Layout, Ready, Warm
from vebench.child.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.commands import Command

    from vebench.child.answers import Answer
    from vebench.plan.cells import Cell
    from vebench.plan.spec import RunSpec

COMPARE = ("compare", "old", "new", "-e", "Pong", "-w", "1", "-o", "pair.jsonl", "-f", "json")


def noisy(slower: float, noise: float = 0.06) -> Callable[[Cell, RunSpec], list[Answer]]:
    """Return the script of a cell whose processes differ by this noise, and that is this much slower in B."""

    def script(cell: Cell, spec: RunSpec) -> list[Answer]:
        luck = Random(f"{cell.key} {cell.side}").gauss(1, noise)  # noqa: S311 - noise to repeat, no secret
        rows = round(1e6 * luck * (slower if cell.side == "B" else 1.0))
        built = Layout(**vars(cell.shape), frame_skip=cell.task.frame_skip, affinity=cell.cpus)
        windows = [Window(ns=SECOND, rows=rows, resets=0)] * spec.rounds
        return [Ready(SECOND // 2, built), Warm(), *windows, Done(100 << 20, settled=True)]

    return script


def passes(path: Path, backend: str) -> int:
    cells = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    return len({cell["repeat"] for cell in cells if cell["backend"] == backend})


@pytest.mark.parametrize(("slower", "status", "verdict"), [(0.85, 1, "slower"), (1.0, 0, "same")])
def test_compare_goes_on_until_it_knows(
    vebench: Command, tmp_path: Path, slower: float, status: int, verdict: str
) -> None:
    world = fake_world(FakeStart({"gym-sync": noisy(slower, 0.12)}), clock=FakeClock(0.01))
    once = vebench(*COMPARE[:-4], "-o", "once.jsonl", "-f", "json", "-b", "gym-sync", world=world)
    assert (once.status, passes(tmp_path / "once-a.jsonl", "gym-sync")) == (3, 5)
    found = vebench(*COMPARE, "-b", "gym-sync", "--budget", "2", world=world)
    assert (found.status, [group["verdict"] for group in json.loads(found.out)["groups"]]) == (status, [verdict])
    assert passes(tmp_path / "pair-a.jsonl", "gym-sync") == passes(tmp_path / "pair-b.jsonl", "gym-sync") > 5


def test_a_backend_that_is_decided_is_not_measured_on(vebench: Command, tmp_path: Path) -> None:
    world = fake_world(FakeStart({"gym-sync": noisy(0.9), "for-loop": noisy(0.5, 0.001)}), clock=FakeClock(0.01))
    found = vebench(*COMPARE, "-b", "gym-sync,for-loop", "--budget", "2", world=world)
    assert found.status == 1
    path = tmp_path / "pair-b.jsonl"
    assert passes(path, "for-loop") == 5 < passes(path, "gym-sync")


def test_a_budget_that_ends_leaves_the_rest_inconclusive(vebench: Command, tmp_path: Path) -> None:
    world = fake_world(FakeStart({"gym-sync": noisy(0.95, 0.2)}), clock=FakeClock())
    found = vebench(*COMPARE, "-b", "gym-sync", "--budget", "60", world=world)
    assert (found.status, json.loads(found.out)["groups"][0]["verdict"]) == (3, "inconclusive")
    assert passes(tmp_path / "pair-a.jsonl", "gym-sync") > 5


def test_the_budget_of_a_gate_is_not_that_of_the_runs_that_it_measures(vebench: Command, tmp_path: Path) -> None:
    vebench(*COMPARE, "-b", "gym-sync", "--budget", "1", world=fake_world())
    for side in "ab":
        header = json.loads((tmp_path / f"pair-{side}.jsonl").read_text().splitlines()[0])
        assert (header["spec"]["until"], header["spec"]["budget"]) == (None, 600.0)


def test_no_number_of_passes_tells_two_runs_apart_that_may_differ_as_a_whole(vebench: Command) -> None:
    plan = ("-e", "Pong", "-w", "1", "-b", "gym-sync", "-o", "base.jsonl")
    assert vebench("run", *plan, world=fake_world()).status == 0
    start = FakeStart()
    found = vebench("check", "base.jsonl", "--metric", "fps", world=fake_world(start))
    assert found.status == 3
    assert "use --metric yardstick, vebench compare or --history" in found.refusal
    assert not start.started


def test_check_adds_passes_to_the_candidate_and_the_loop_that_it_stands_on(vebench: Command, tmp_path: Path) -> None:
    plan = ("-e", "Pong", "-w", "1", "-b", "gym-sync", "--repeats", "30", "-o", "base.jsonl")
    world = fake_world(FakeStart({"gym-sync": noisy(1.0, 0.03)}), clock=FakeClock(0.01))
    assert vebench("run", *plan, world=world).status == 0
    lines = (tmp_path / "base.jsonl").read_text().splitlines()
    header = json.loads(lines[0])
    header["spec"]["repeats"], header["cells"] = 3, None  # so that its plan is measured again with three passes
    write_lines(tmp_path / "base.jsonl", (json.dumps(header), *lines[1:]))
    check = ("check", "base.jsonl", "--budget", "60", "-f", "json")
    found = vebench(*check, "-o", "now.jsonl", world=world)
    assert (found.status, json.loads(found.out)["groups"][0]["verdict"]) == (0, "same")
    now = tmp_path / "now.jsonl"
    assert passes(now, "gym-sync") == passes(now, "yardstick") > 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("check", "a.jsonl", "b.jsonl", "--budget", "60"), "leave out --budget"),
        (("compare", "x", "y", "-e", "Pong", "--budget", "0"), "--budget 0: must be"),
    ],
)
def test_what_makes_no_sense_is_one_line_and_status_2(vebench: Command, arguments: tuple[str, ...], words: str) -> None:
    found = vebench(*arguments, world=fake_world())
    assert found.status == 2
    assert words in found.refusal
