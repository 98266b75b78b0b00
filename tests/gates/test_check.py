"""``vebench check`` as a user and a CI service meet it, alone and with a history of runs."""

import json
from collections.abc import Callable
from functools import partial
from math import exp
from pathlib import Path
from random import Random
from xml.etree import ElementTree as ET

import msgspec
import pytest
from support.commands import Command, Result
from support.fakes import FakeStart, fake_world, steady
from support.records import make_cell, make_header, write_lines, write_run

from vebench.plan.spec import RunSpec
from vebench.results.records import Run

Check = Callable[..., Result]
Runs = Callable[..., Path]


RATES, SPEEDUPS = ("--metric", "fps"), ("--metric", "speedup")
BACKENDS = [{"name": "for-loop"}, {"name": "shm-sync"}]
PLACES = (("for-loop", 1), ("for-loop", 2), ("shm-sync", 1), ("shm-sync", 2), ("yardstick", 1))


@pytest.fixture
def check(vebench: Command) -> Check:
    """Return the command's ``check``."""
    return partial(vebench, "check")


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """Return what writes a run of 5 passes, in which shm-sync with 2 workers is ``factor`` times as fast."""

    def write(name: str, factor: float = 1.0, *, passes: int = 5, **fields: object) -> Path:
        random = Random(name)
        head = make_header(envs=["Pong", "Ant"], workers=[1, 2], backends=BACKENDS, passes=passes)
        cells = []
        for repeat in range(passes):
            for env in ("ALE/Pong-v5", "Ant-v5"):
                for backend, workers in PLACES:
                    speed = 1e6 * exp(random.gauss(0, 0.01))
                    speed *= factor if (backend, workers) == ("shm-sync", 2) else 1
                    steps = (round(speed), round(1.01 * speed), round(0.99 * speed))
                    cells.append(make_cell(backend, workers, steps, env=env, repeat=repeat))
        header = msgspec.structs.replace(head, cells=10 * passes, **fields)
        return write_run(tmp_path / name, Run(header, tuple(cells)))

    return write


def edited(path: Path, change: Callable[[list[str]], list[str]]) -> Path:
    """Return ``path`` with its lines changed."""
    return write_lines(path, change(path.read_text().splitlines()))


def test_a_baseline_of_other_hosts_is_not_measured_again(check: Check, runs: Runs) -> None:
    spec = make_header(envs=["Pong", "Ant"], workers=[1, 2], backends=BACKENDS, hosts={"names": ["a", "b"]}).spec
    refused = check(runs("base", spec=spec))
    assert (refused.status, "other hosts" in refused.refusal) == (2, True)


@pytest.mark.parametrize(
    ("factor", "passes", "options", "status"),
    [
        (1.0, 5, (), 0),
        (1.0, 5, ("--tolerance", "50%", *RATES), 0),
        (1.0, 1, ("--tolerance", "5%"), 3),
        (0.7, 5, (), 1),
        (0.7, 5, ("--tolerance", "0.45"), 0),
        (0.7, 5, ("-b", "for-loop"), 0),
        (0.5, 1, (), 1),
        (0.3, 5, RATES, 1),
    ],
)
def test_the_status_is_1_if_a_backend_is_slower_and_3_if_unknown(
    check: Check, runs: Runs, factor: float, passes: int, options: tuple[str, ...], status: int
) -> None:
    a, b = runs("a.jsonl", passes=passes), runs("b.jsonl", factor, passes=passes)
    found = check(a, b, *options, "-f", "json")
    answer = json.loads(found.out)
    slower = {(cell["backend"], cell["workers"]) for cell in answer["cells"] if cell["verdict"] == "slower"}
    assert (found.status, answer["status"], found.err) == (status, status, "")
    assert slower == ({("shm-sync", 2)} if status == 1 else set())


def test_only_what_was_asked_for_is_checked(check: Check, runs: Runs) -> None:
    a, b = runs("a.jsonl"), runs("b.jsonl", 0.7)
    found = check(a, b, "-b", "shm-sync", "-e", "pong", "-f", "json")
    cells = json.loads(found.out)["cells"]
    assert [(cell["env"], cell["backend"], cell["workers"]) for cell in cells] == [
        ("ALE/Pong-v5", "shm-sync", 1),
        ("ALE/Pong-v5", "shm-sync", 2),
    ]
    assert found.status == 1


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(
    ("change", "answer"),
    [
        (lambda lines: lines[:-1], (3, "49 of 50 cells: the run is incomplete")),
        (lambda lines: [lines[0], lines[1].replace('"workers":', '"workers":"x', 1), *lines[2:]], (2, "line 2: ")),
        (
            lambda lines: [lines[0], *(line.replace('"status":"ok"', '"status":"skipped"') for line in lines[1:])],
            (3, "no cell was measured"),
        ),
    ],
    ids=["truncated", "no number", "all skipped"],
)
def test_a_damaged_or_incomplete_run_never_passes(
    check: Check, runs: Runs, which: int, change: Callable[[list[str]], list[str]], answer: tuple[int, str]
) -> None:
    files = [runs("a.jsonl"), runs("b.jsonl")]
    edited(files[which], change)
    found = check(*files)
    status, words = answer
    assert (found.status, found.out, found.err.count("\n")) == (status, "", 1), found.err
    assert files[which].name in found.err
    assert words in found.err


def test_missing_cells_do_not_pass(check: Check, runs: Runs) -> None:
    def without_ant(lines: list[str]) -> list[str]:
        left = [line for line in lines[1:] if "Ant-v5" not in line]
        return [json.dumps({**json.loads(lines[0]), "cells": len(left)}), *left]

    found = check(runs("a.jsonl"), edited(runs("b.jsonl"), without_ant), "-f", "json")
    assert (found.status, sum(cell["verdict"] == "missing" for cell in json.loads(found.out)["cells"])) == (3, 4)


def test_a_run_whose_cells_all_failed_is_a_worse_candidate_but_no_baseline(check: Check, runs: Runs) -> None:
    def failed(lines: list[str]) -> list[str]:
        boom = {"status": "failed", "reason": "boom", "windows": []}
        return [lines[0], *(json.dumps({**json.loads(line), **boom}) for line in lines[1:])]

    a, b = runs("a.jsonl"), edited(runs("b.jsonl"), failed)
    worse = check(a, b)
    assert (worse.status, worse.err) == (1, "")
    assert worse.out.startswith("Check: 8 missing of 8 cells\n")
    refused = check(b, a)
    assert (refused.status, "no cell was measured" in refused.refusal) == (3, True)


def elsewhere(**facts: object) -> dict[str, object]:
    """Return the fields of a run on a host with these facts."""
    return {"host": msgspec.structs.replace(make_header().host, **facts)}


@pytest.mark.parametrize(
    ("fields", "metric", "status", "words"),
    [
        (elsewhere(cpu_model="Another 9000"), RATES, 3, "cpu_model Test CPU against Another 9000"),
        (elsewhere(cpu_model="Another 9000"), (), 0, "cpu_model Test CPU against Another 9000"),
        ({"packages": {"gymnasium": "1.4.0", "vebench": "9.9"}}, (), 0, ""),
        ({"packages": {"gymnasium": "1.3.0"}}, RATES, 3, "gymnasium 1.4.0 against 1.3.0"),
        ({"packages": {"gymnasium": "1.3.0"}}, (), 0, "gymnasium 1.4.0 against 1.3.0"),
        ({"spec": make_header(pin="compact[mem=bind]").spec}, RATES, 3, "--pin compact against compact[mem=bind]"),
        (elsewhere(pinning=False), (), 3, ""),
        (elsewhere(python="3.13.1"), (), 3, ""),  # the yardstick is Python at work
        (elsewhere(python="3.13.1"), SPEEDUPS, 0, ""),
    ],
)
def test_runs_under_other_conditions_are_refused_or_reported(
    check: Check, runs: Runs, fields: dict[str, object], metric: tuple[str, ...], status: int, words: str
) -> None:
    a, b = runs("a.jsonl"), runs("b.jsonl", **fields)
    found = check(a, b, *metric, "--tolerance", "50%")
    assert found.status == status
    assert words in " ".join((found.out + found.err).split())
    assert not status or (found.out, found.err.count("\n")) == ("", 1)


# Fields of a plan that change how cells are measured, each with a value that is not the default.
ANOTHER = {
    "interleave": True,
    "seed": 7,
    "pin": "scatter",
    "replicas": 2,
    "proof": "auto",
    "isolation": "fork",
    "policy": {"kind": "sleep", "pause": "1ms"},
}
# Runs that differ in these fields are compared cell by cell.
NO_CONDITIONS = {
    *("envs", "workers", "backends", "envs_per_worker", "only", "base", "hosts", "memory", "learner", "suite"),
    *("algorithm", "library", "waiting"),
    *("duration", "windows", "warmup", "passes", "until", "budget", "race", "timeout"),
}


def test_each_field_of_a_plan_is_a_condition_or_known_to_be_none() -> None:
    assert {*RunSpec.__dataclass_fields__} == {*ANOTHER, *NO_CONDITIONS}


@pytest.mark.parametrize("field", ANOTHER)
def test_runs_with_other_plans_are_not_compared_without_a_word(
    check: Check, vebench: Command, runs: Runs, field: str
) -> None:
    a, b = runs("a.jsonl"), runs("b.jsonl", spec=make_header(**{field: ANOTHER[field]}).spec)
    judged, compared = check(a, b), vebench("report", a, b)
    assert f"--{field} " in judged.out + judged.err
    assert (judged.status == 3) == (field == "policy")
    assert compared.status == 0
    assert f"--{field} " in compared.out


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--tolerance", "0"), ["--tolerance", "0%"]),
        (("-b", "gym-sync"), ["--backend gym-sync", "a.jsonl"]),
        (("-e", "Pnog"), ["--env Pnog", "did you mean Pong"]),
        (("-o", "c.jsonl"), ["--output", "b.jsonl"]),
        (("-o", "nowhere/check.xml"), ["-o nowhere/check.xml", "folder"]),
    ],
)
def test_bad_input_is_status_2_in_any_case(check: Check, runs: Runs, more: tuple[str, ...], words: list[str]) -> None:
    a, b = runs("a.jsonl"), runs("b.jsonl", 0.5)
    before = a.read_bytes()
    found = check(a, b, *more)
    assert (found.status, found.err.count("\n")) == (2, 1), found.err
    for word in words:
        assert word in found.err
    assert a.read_bytes() == before


def test_on_github_the_summary_is_appended_and_regressions_are_annotated(
    check: Check, runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("# Earlier\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    found = check(runs("a.jsonl"), runs("b.jsonl", 0.7), "-f", "json")
    assert json.loads(found.out)["status"] == 1
    assert summary.read_text().startswith("# Earlier\n## Check: 2 slower, 6 not slower of 8 cells\n")
    commands = found.err.splitlines()
    assert len(commands) == 2
    assert commands[0].startswith("::error title=vebench%3A slower::ALE/Pong-v5, shm-sync, 2 workers: slower, ratio 0.")


@pytest.mark.parametrize(
    ("metric", "verdicts"),
    [
        (SPEEDUPS, {("for-loop", "slower"), ("shm-sync", "inconclusive")}),
        ((), {("for-loop", "slower"), ("shm-sync", "slower")}),
    ],
)
def test_an_environment_that_became_slower_for_all_is_a_regression(
    check: Check, runs: Runs, metric: tuple[str, ...], verdicts: set[tuple[str, str]]
) -> None:
    def third(lines: list[str]) -> list[str]:
        return [line if "yardstick" in line else line.replace('"ns":1000000000', '"ns":3000000000') for line in lines]

    found = check(runs("a.jsonl"), edited(runs("b.jsonl"), third), *metric, "-f", "json")
    assert found.status == 1
    assert {(group["backend"], group["verdict"]) for group in json.loads(found.out)["groups"]} == verdicts


def test_junit_has_a_case_for_each_cell(check: Check, runs: Runs, tmp_path: Path) -> None:
    check(runs("a.jsonl"), runs("b.jsonl", 0.2), *RATES, "-o", tmp_path / "check.xml")
    (suite,) = ET.parse(tmp_path / "check.xml").getroot()
    outcomes: dict[str, set[str]] = {"shm-sync": set(), "for-loop": set()}
    for case in suite:
        _, backend, _ = str(case.get("name")).split(", ")
        outcomes[backend].add(case[0].tag)
    assert (suite.get("tests"), outcomes) == ("8", {"shm-sync": {"failure", "skipped"}, "for-loop": {"error"}})


@pytest.mark.parametrize(
    ("more", "speed", "status", "again"),
    [
        ((), 1000.0, 0, {("for-loop", 1), ("shm-sync", 2), ("gym-sync", 2), ("yardstick", 1)}),
        ((), 400.0, 1, {("for-loop", 1), ("shm-sync", 2), ("gym-sync", 2), ("yardstick", 1)}),
        (("-b", "shm-sync", *SPEEDUPS), 1000.0, 0, {("for-loop", 1), ("shm-sync", 2), ("yardstick", 1)}),
        (("-b", "for-loop"), 1000.0, 0, {("for-loop", 1), ("yardstick", 1)}),
    ],
)
def test_with_a_baseline_alone_its_plan_is_measured_again_as_far_as_needed(
    vebench: Command, more: tuple[str, ...], speed: float, status: int, again: set[tuple[str, int]]
) -> None:
    plan = ("-e", "Pong", "-b", "shm-sync,gym-sync,null", "-w", "2", "--passes", "5", "-q")
    assert vebench("run", *plan, "-o", "a.jsonl", world=fake_world()).status == 0
    start = FakeStart({"shm-sync": lambda cell, spec: steady(cell, spec, speed)})
    asked = ("--tolerance", "25%", "-o", "b.jsonl", "-f", "json")
    assert vebench("check", "a.jsonl", *more, *asked, world=fake_world(start)).status == status
    assert {(cell.backend.label, cell.workers) for cell, _ in start.started} == again
    assert len(start.started) >= 3 * len(again)


def test_a_baseline_from_elsewhere_is_refused_before_measuring(check: Check, runs: Runs) -> None:
    found = check(runs("a.jsonl"), *RATES)
    assert (found.status, found.out, found.err.count("\n")) == (3, "", 1)
    assert [path.name for path in Path().iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize("which", [0, 1])
def test_a_disturbed_run_is_no_baseline_and_no_candidate(check: Check, runs: Runs, which: int) -> None:
    files = [runs("a.jsonl"), runs("b.jsonl", 0.5)]
    half = '"others_ns":500000000'  # of the first CPU
    edited(files[which], lambda lines: [line.replace('"others_ns":null', half) for line in lines])
    found = check(*files)
    assert found.status == 3
    assert found.refusal.startswith(f"vebench: {files[which]} is unusable: ")


NOISE = (0.0, 0.004, -0.004)


def write_past(path: Path, shift: float) -> None:
    """Write a run that as a whole is faster by this difference of log rates."""
    cells = [
        make_cell(backend, 1, (round(1e6 * exp(shift * (backend != "yardstick") + noise)),) * 2, repeat=repeat)
        for backend in ("for-loop", "gym-sync", "shm-sync", "yardstick")
        for repeat, noise in enumerate(NOISE)
    ]
    write_run(path, Run(make_header(), tuple(cells)))


@pytest.fixture
def past(tmp_path: Path) -> Path:
    """Return a folder of runs of one machine that hardly differ; beside it are a baseline and a candidate."""
    folder = tmp_path / "runs"
    folder.mkdir()
    for number in range(8):
        write_past(folder / f"{number}.jsonl", 0.005 * (-1) ** number)
    write_past(tmp_path / "old.jsonl", 0.0)
    write_past(tmp_path / "new.jsonl", -0.002)
    write_past(tmp_path / "slow.jsonl", -0.12)
    return folder


def test_a_history_shows_how_much_runs_differ_and_lets_check_decide(vebench: Command, past: Path) -> None:
    asked = ("--metric", "fps", "--tolerance", "5%", "-f", "json")
    for candidate, status, verdict in (("new.jsonl", 0, "same"), ("slow.jsonl", 1, "slower")):
        assumed, known = (vebench("check", "old.jsonl", candidate, *asked, *more) for more in ((), ("--history", past)))
        assert (assumed.status, json.loads(assumed.out)["run_spread"]) == (3, pytest.approx(0.15))
        answer = json.loads(known.out)
        assert (known.status, {group["verdict"] for group in answer["groups"]}) == (status, {verdict})
        assert answer["run_spread"] == pytest.approx(0.005, rel=0.2)
    known = vebench("check", "old.jsonl", "new.jsonl", "-f", "json", "--history", past)
    assert json.loads(known.out)["cell_spread"] == pytest.approx(0.004, abs=1e-3)
