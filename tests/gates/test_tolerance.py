"""A tolerance for each task, advisory tasks, and the smallest tolerance that tasks of unchanged code hold."""

import json
from collections.abc import Callable
from math import exp
from pathlib import Path
from random import Random
from xml.etree import ElementTree as ET

import msgspec
import pytest
from support.commands import Command
from support.fakes import FakeClock, FakeStart, Script, failing, fake_world, steady
from support.records import make_cell, make_header, write_run

from vebench.plan.cells import Cell
from vebench.plan.spec import RunSpec
from vebench.results.records import Run

Runs = Callable[..., Path]
BACKENDS = ("shm-sync", "yardstick")
TASKS = ("ALE/Pong-v5", "Ant-v5")


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """Return what writes a run of five passes, in which shm-sync is ``factor`` times as fast."""

    def write(name: str, factor: float = 1.0, noise: float = 0.01) -> Path:
        random = Random(name)
        cells = []
        for repeat in range(5):
            for env in TASKS:
                for backend in BACKENDS:
                    rate = 1e6 * exp(random.gauss(0, noise)) * (factor if backend == "shm-sync" else 1.0)
                    cells.append(make_cell(backend, 1, (round(rate),) * 3, env=env, repeat=repeat))
        head = make_header(envs=["Pong", "Ant"], workers=[1], backends=[{"name": "shm-sync"}], passes=5)
        return write_run(tmp_path / name, Run(msgspec.structs.replace(head, cells=len(cells)), tuple(cells)))

    return write


@pytest.mark.parametrize(
    ("tolerance", "status", "pong", "ant"),
    [
        ("10%", 1, "slower", "slower"),
        ("10%,Pong=45%", 1, "same", "slower"),
        ("45%,ant=10%", 1, "same", "slower"),
        ("10%,Pong=45%,Ant=off", 0, "same", "advisory"),
        ("off,ALE/Pong-v5=45%", 0, "same", "advisory"),
        ("off", 0, "advisory", "advisory"),
    ],
)
def test_each_task_has_its_tolerance_and_an_advisory_one_never_fails(
    vebench: Command, runs: Runs, tolerance: str, status: int, pong: str, ant: str
) -> None:
    found = vebench("check", runs("a.jsonl"), runs("b.jsonl", 0.7), "--tolerance", tolerance, "-f", "json")
    cells = json.loads(found.out)["cells"]
    assert (found.status, [cell["verdict"] for cell in cells]) == (status, [pong, ant])
    assert [cell["ratio"]["median"] for cell in cells] == pytest.approx([0.7, 0.7], rel=0.03)


def test_an_advisory_task_is_no_failure_for_ci_services(
    vebench: Command, runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    files = runs("a.jsonl"), runs("b.jsonl", 0.7)
    found = vebench("check", *files, "--tolerance", "45%,Ant=off", "-o", "check.xml")
    assert found.status == 0
    assert found.out.startswith("Check: 1 not slower, 1 advisory of 2 cells\n")
    (suite,) = ET.parse(tmp_path / "check.xml").getroot()
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["2", "0", "0", "0"]


def test_an_advisory_task_that_cannot_be_measured_does_not_fail(vebench: Command) -> None:
    def broken(cell: Cell, spec: RunSpec) -> Script:
        return (failing("boom") if (cell.task.id, cell.interpreter.side) == ("Ant-v5", "B") else steady)(cell, spec)

    plan = ("-e", "Pong,Ant", "-w", "1", "-b", "for-loop")
    for tolerance, status in (("10%", 1), ("10%,Ant=off", 0)):
        world = fake_world(FakeStart({"for-loop": broken}))
        done = vebench("compare", "old", "new", *plan, "--tolerance", tolerance, "-o", f"{status}.jsonl", world=world)
        assert done.status == status


@pytest.mark.parametrize(
    ("option", "text", "words"),
    [
        ("--tolerance", "10%,Pong=", "write a share"),
        ("--tolerance", "10%,Pong=120%", "between 0% and 100%"),
        ("--tolerance", "Pong=5%,Pong=6%", "Pong is given twice"),
        ("--tolerance", "10%,5%", "all tasks is given twice"),
        ("--tolerance", "10%,Pnog=5%", "did you mean Pong"),
        ("--metric", "speed", "rate, yardstick, speedup, fps, startup, memory"),
        ("--metric", "", "must be one of"),
    ],
)
def test_bad_input_is_status_2_with_one_line(vebench: Command, runs: Runs, option: str, text: str, words: str) -> None:
    checked = vebench("check", runs("a.jsonl"), runs("b.jsonl"), option, text)
    plan = ("-e", "Pong", "-w", "1", "-b", "for-loop")
    compared = vebench("compare", "old", "new", *plan, option, text, world=fake_world())
    for found in (checked, compared):
        assert (found.status, words in found.refusal) == (2, True)


def test_unchanged_code_passes_with_the_tolerance_that_was_calibrated(vebench: Command, runs: Runs) -> None:
    a, b = runs("a.jsonl"), runs("b.jsonl", noise=0.02)
    found = vebench("check", a, b, "--calibrate", "-f", "json")
    answer = json.loads(found.out)
    usual, *of_tasks = answer["calibrated"].split(",")
    assert (found.status, usual, [one.partition("=")[0] for one in of_tasks]) == (0, "10%", ["Pong", "Ant"])
    assert vebench("check", a, b, "--tolerance", answer["calibrated"]).status == 0
    assert f"--tolerance {answer['calibrated']}" in vebench("check", a, b, "--calibrate").out.splitlines()[0]
    noisy = json.loads(vebench("check", a, runs("c.jsonl", noise=0.5), "--calibrate", "-f", "json").out)
    assert noisy["calibrated"] == "10%,Pong=off,Ant=off"


def test_a_calibration_measures_as_often_as_it_helps_whatever_the_verdicts(vebench: Command) -> None:
    plan = ("-e", "Pong", "-w", "1", "-b", "shm-sync", "--passes", "6", "-q", "-o", "a.jsonl")
    assert vebench("run", *plan, world=fake_world()).status == 0
    passes = {}
    for budget in ("1s", "1000s"):
        start = FakeStart({"shm-sync": lambda cell, spec: steady(cell, spec, 400.0)})
        asked = ("--calibrate", "--budget", budget, "--tolerance", "1%", "-o", f"{budget}.jsonl", "-f", "json")
        found = vebench("check", "a.jsonl", *asked, world=fake_world(start, clock=FakeClock(1.0)))
        assert found.status == 0
        passes[budget] = len({cell.repeat for cell, _ in start.started})
    assert passes["1s"] == 2
    assert passes["1000s"] >= 6
