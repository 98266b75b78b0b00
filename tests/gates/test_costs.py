"""Gates on startup, memory and leaks: planted changes are found, unchanged code passes."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import exp
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.commands import Command, Result
from support.fakes import FakeClock, FakeStart, fake_world, steady
from support.in_this_process import world_here
from support.records import make_cell, make_header

from vebench.analysis.comparison import compare_runs
from vebench.analysis.summary import summarise
from vebench.child.answers import Answer, Done, Ready, Window
from vebench.commands.session import World
from vebench.gates.gate import exit_status
from vebench.plan.cells import Cell
from vebench.plan.grammar import Tolerance
from vebench.plan.spec import RunSpec
from vebench.results.records import Run

ALL = ("--metric", "rate,startup,memory")
STARTUP, MEMORY = 5e8, 1e8  # nanoseconds, and bytes of all processes
KEPT = 2e4  # the standard deviation of readings of memory, in bytes
Planted = Mapping[str, float]


def costing(planted: Planted, where: Callable[[Cell], bool]) -> Callable[[Cell, RunSpec], list[Answer]]:
    """Return the script of cells whose costs are ``planted`` where this holds."""

    def script(cell: Cell, spec: RunSpec) -> list[Answer]:
        costs, random = planted if where(cell) else {}, Random(f"{cell.key} {cell.interpreter.side}")
        startup = STARTUP * costs.get("startup", 1.0)
        parts = {"imports_ns": round(startup / 2), "making_ns": round(startup * 0.4), "reset_ns": round(startup / 10)}
        memory = round(MEMORY * costs.get("memory", 1.0) * exp(random.gauss(0, 0.005)))
        answers: list[Answer] = []
        stepped = 0
        for each in steady(cell, spec):
            if isinstance(each, Ready):
                answers.append(replace(each, startup_ns=round(startup * exp(random.gauss(0, 0.02))), **parts))
            elif isinstance(each, Done):
                answers.append(replace(each, peak_rss_bytes=memory))
            elif isinstance(each, Window):
                held = round(memory + costs.get("leak", 0.0) * stepped + random.gauss(0, KEPT))
                answers.append(replace(each, steps_before=stepped // cell.shape.batch_size, resident_bytes=held))
                stepped += each.rows
            else:
                answers.append(each)
        return answers

    return script


def second(cell: Cell) -> bool:
    return cell.interpreter.side == "B"


def world(planted: Planted, where: Callable[[Cell], bool] = second) -> World:
    return fake_world(FakeStart(dict.fromkeys(("for-loop", "gym-sync", "yardstick"), costing(planted, where))))


def compared(vebench: Command, planted: Planted, *more: str) -> tuple[Result, dict[str, Any]]:
    plan = ("-e", "Pong", "-w", "1,2", "-b", "for-loop,gym-sync")
    found = vebench("compare", "old", "new", *plan, *more, "-f", "json", world=world(planted))
    return found, json.loads(found.out)


@pytest.mark.parametrize(
    ("planted", "status", "verdicts"),
    [
        ({}, 0, set()),
        ({"startup": 1.2}, 1, {("startup", "slower")}),
        ({"memory": 1.2}, 1, {("memory", "slower")}),
        ({"startup": 1.05, "memory": 1.05}, 0, set()),
        ({"startup": 0.5, "memory": 0.5}, 0, {("startup", "faster"), ("memory", "faster")}),
    ],
)
def test_a_larger_cost_fails_the_metric_that_it_belongs_to(
    vebench: Command, planted: Planted, status: int, verdicts: set[tuple[str, str]]
) -> None:
    found, answer = compared(vebench, planted, *ALL)
    others = {(group["metric"], group["verdict"]) for group in answer["groups"] if group["verdict"] != "same"}
    assert (found.status, others, len(answer["cells"])) == (status, verdicts, 12)
    for group in answer["groups"]:
        assert group["ratio"]["median"] == pytest.approx(planted.get(group["metric"], 1.0), rel=0.03)


def test_costs_are_not_judged_unless_asked_for(vebench: Command) -> None:
    found, answer = compared(vebench, {"startup": 3.0, "memory": 3.0, "leak": 4096.0})
    assert (found.status, {cell["metric"] for cell in answer["cells"]}) == (0, {"fps"})
    found, answer = compared(vebench, {"startup": 3.0, "memory": 3.0}, "--metric", "memory", "-o", "b.jsonl")
    assert (found.status, {cell["metric"] for cell in answer["cells"]}) == (1, {"memory"})


def test_a_leak_of_the_candidate_alone_fails_the_gate_and_is_a_finding(vebench: Command) -> None:
    found, answer = compared(vebench, {"leak": 1024.0}, *ALL, "-o", "pair.jsonl")
    failed = {cell["metric"] for cell in answer["cells"] if cell["failed"]}
    assert (found.status, failed) == (1, {"memory"})
    for side, leak in (("a", 0.0), ("b", 1024.0)):
        cells = json.loads(vebench("report", f"pair-{side}.jsonl", "-f", "json").out)
        for cell in cells:
            assert ("leak" in {finding["code"] for finding in cell["findings"]}) == (leak > 0)
            assert cell["leak"]["median"] == pytest.approx(leak, abs=100)
            assert cell["leak"]["low"] < cell["leak"]["median"] < cell["leak"]["high"]


def test_a_leak_of_both_sides_is_no_regression(vebench: Command) -> None:
    plan = ("-e", "Pong", "-w", "1", "-b", "for-loop", *ALL)
    leaky = world({"leak": 1024.0}, lambda _: True)
    assert vebench("compare", "old", "new", *plan, world=leaky).status == 0


@pytest.mark.parametrize(("planted", "status"), [({}, 0), ({"startup": 1.5}, 1), ({"memory": 1.5}, 1)])
def test_check_judges_costs_against_a_baseline(vebench: Command, planted: Planted, status: int) -> None:
    plan = ("-e", "Pong", "-w", "2", "-b", "gym-sync", "--passes", "8", "-q")
    assert vebench("run", *plan, "-o", "a.jsonl", world=world({})).status == 0
    again = world(planted, lambda cell: cell.backend.name == "gym-sync")
    found = vebench("check", "a.jsonl", *ALL, "--tolerance", "20%", "-f", "json", world=again)
    slower = {group["metric"] for group in json.loads(found.out)["groups"] if group["verdict"] == "slower"}
    assert (found.status, slower) == (status, set(planted))


def test_the_pages_of_a_gate_show_the_parts_of_a_startup_and_memory_by_environment(vebench: Command) -> None:
    plan = ("-e", "Pong", "-w", "2", "-b", "for-loop", *ALL)
    shown = vebench("compare", "old", "new", *plan, world=world({"startup": 2.0})).out
    assert "250+200+50 ms" in shown
    assert "500+400+100 ms" in shown
    assert re.search(r"47\.\d MiB", shown)


def test_a_run_has_the_parts_of_its_startup(vebench: Command) -> None:
    plan = ("-e", "CartPole", "-b", "gym-sync", "-w", "1", "--no-base", "--duration", "0.02", "--warmup", "0.01")
    vebench("run", *plan, "--passes", "1", "--no-interleave", "-o", "a.jsonl", world=world_here())
    (cell,) = json.loads(vebench("report", "a.jsonl", "-f", "json").out)
    parts = [cell[f"{name}_seconds"] for name in ("imports", "making", "reset")]
    assert min(parts) > 0
    assert sum(parts) <= cell["startup_seconds"]


def test_memory_that_a_real_environment_keeps_is_found(vebench: Command) -> None:
    brief = ("--duration", "0.05", "--warmup", "0.05", "--windows", "5", "--passes", "2", "--no-base", "-w", "1", "-q")
    plan = ("-e", "planted:Planted[leak=2048]", "-b", "for-loop", *brief, "--proof", "off")
    vebench("run", *plan, "-o", "leak.jsonl")
    (cell,) = json.loads(vebench("report", "leak.jsonl", "-f", "json").out)
    assert "leak" in {finding["code"] for finding in cell["findings"]}
    assert cell["leak"]["median"] == pytest.approx(2048, rel=0.1)


def side(random: Random, planted: Planted, passes: int = 10) -> Run:
    """Return passes of a cell, with 3 % of noise in rates and startups, and 1 % in memory."""
    cells = []
    for repeat in range(passes):
        memory = MEMORY * planted.get("memory", 1.0) * exp(random.gauss(0, 0.01))
        windows = []
        for number in range(20):
            rows = round(2000 * exp(random.gauss(0, 0.03)))
            held = memory + planted.get("leak", 0.0) * 2000 * number + random.gauss(0, 10 * KEPT)
            windows.append(Window(10**9, rows, 0, steps_before=2000 * number, resident_bytes=round(held)))
        startup = STARTUP * planted.get("startup", 1.0) * exp(random.gauss(0, 0.03))
        costs = {"startup_ns": round(startup), "peak_rss_bytes": round(memory)}
        cells.append(make_cell("gym-sync", 1, repeat=repeat, windows=tuple(windows), **costs))
    return Run(make_header(), tuple(cells))


def failures(planted: Planted, pairs: int) -> int:
    """Return how many of so many pairs a gate fails."""
    random, found = Random(f"{planted}"), 0
    for _ in range(pairs):
        sides = (summarise(side(random, each)) for each in ({}, planted))
        judged = {"metrics": ("fps", "startup", "memory"), "tolerance": Tolerance(0.1), "in_turn": True}
        found += exit_status(compare_runs(*sides, **judged)) == 1
    return found


@pytest.mark.parametrize("planted", [{"startup": 1.2}, {"memory": 1.2}, {"leak": 1024.0}])
def test_a_planted_cost_is_found_in_19_of_20(planted: Planted) -> None:
    assert failures(planted, 20) >= 19


def test_unchanged_code_fails_in_none_of_20() -> None:
    assert failures({}, 20) == 0


HELD = {
    "a leak": ([4096.0 * number for number in range(9)], True),
    "an allocation": ([0.0] * 4 + [1e6] * 5, False),
    "a cache that fills": ([min(number, 4) * 1e6 for number in range(9)], False),
    "garbage that is collected": ([1e6 * (number % 3) for number in range(9)], False),
    "less than vebench's own": ([200.0 * number for number in range(9)], False),
}


@pytest.mark.parametrize("kind", HELD)
def test_memory_that_stops_to_grow_is_no_leak(kind: str) -> None:
    held, leaks = HELD[kind]
    random, records = Random(kind), []
    for repeat in range(3):
        windows = tuple(
            Window(10**9, 1000, 0, steps_before=number, resident_bytes=round(1e8 + kept + random.gauss(0, 1)))
            for number, kept in enumerate(held)
        )
        records.append(make_cell("gym-sync", 1, repeat=repeat, windows=windows))
    (cell,) = summarise(Run(make_header(), tuple(records)))
    assert ("leak" in [finding.code for finding in cell.findings]) == leaks


def test_junit_has_a_case_for_each_metric(vebench: Command, tmp_path: Path) -> None:
    plan = ("-e", "Pong", "-w", "1", "-b", "for-loop", *ALL, "-o", tmp_path / "check.xml")
    vebench("compare", "old", "new", *plan, world=world({"memory": 2.0}))
    names = [line for line in (tmp_path / "check.xml").read_text().splitlines() if "<testcase" in line]
    assert len(names) == len({*names}) == 3


def test_two_comparisons_in_the_same_second_have_their_own_files(vebench: Command) -> None:
    for _ in range(2):
        assert compared(vebench, {})[0].status == 0
    assert len([*Path(".vebench").glob("*.jsonl")]) == 4


def test_costs_get_passes_until_they_are_decided(vebench: Command) -> None:
    start = FakeStart(dict.fromkeys(("for-loop", "gym-sync"), costing({"startup": 1.14}, second)))
    plan = ("-e", "Pong", "-w", "1", "-b", "for-loop", "--passes", "3", "--metric", "startup")
    found = vebench("compare", "old", "new", *plan, world=fake_world(start, clock=FakeClock(0.01)))
    assert (found.status, len(start.started) > 6) == (1, True)


def test_disturbed_windows_prevent_no_verdict_on_costs(vebench: Command) -> None:
    def disturbed(cell: Cell, spec: RunSpec) -> list[Answer]:
        answers = costing({"startup": 1.5}, second)(cell, spec)
        taken = {"others_ns": 10**8} if second(cell) else {}
        return [replace(one, **taken) if isinstance(one, Window) else one for one in answers]

    plan = ("-e", "Pong", "-w", "1", "-b", "for-loop", "--metric", "rate,startup,memory", "-f", "json")
    found = vebench("compare", "old", "new", *plan, world=fake_world(FakeStart({"for-loop": disturbed})))
    verdicts = {group["metric"]: group["verdict"] for group in json.loads(found.out)["groups"]}
    assert verdicts == {"fps": "inconclusive", "startup": "slower", "memory": "same"}
