"""The interface for Python: the same plans, files and verdicts as the command line has, and nothing printed."""

import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.commands import ONE_PASS, Command
from support.fakes import FakeClock, FakeStart, failing, fake_world, interrupted, steady
from support.in_this_process import world_here
from support.leaks import processes_that_name
from support.paced import paced, world_of
from support.waiting import eventually

import vebench as package
from vebench import Run, VebenchError, check, compare, load, measure, verify
from vebench.analysis import rules
from vebench.plan import verdicts
from vebench.plan.cells import Cell
from vebench.results import store

BRIEF: dict[str, Any] = {"passes": 1, "interleave": False, "proof": "off"}
TRUTH = {"for-loop": 10e-6, "gym-sync": 20e-6, "gym-async": 5e-6}  # seconds of a row

pytestmark = pytest.mark.usefixtures("vebench")  # in an empty folder


def seconds(cell: Cell) -> float:
    return cell.shape.batch_size * TRUTH.get(cell.backend.name, 10e-6)


def measured(factor: float = 1.0, noise: float = 0.003, **plan: Any) -> Run:
    """Return a run of known rates, which ``factor`` multiplies, but for that of the loop."""

    def paced_so(cell: Cell) -> float:
        return seconds(cell) / (factor if cell.backend.name == "gym-sync" else 1.0)

    asked = {"workers": 2, "backends": [*TRUTH], "proof": "off", **plan}
    return measure("CartPole", world=world_of(paced(paced_so, noise)), **asked)


@pytest.mark.parametrize(
    ("plan", "line"),
    [
        ({}, "run --env CartPole"),
        ({"workers": [2, 1], "backends": "for-loop,gym-sync"}, "run --env CartPole -w 1,2 -b for-loop,gym-sync"),
        ({"workers": "1..4", "envs_per_worker": 8}, "run --env CartPole -w 1..4 --envs-per-worker 8"),
        (
            {"duration": 0.25, "warmup": "100ms", "windows": 3},
            "run -e CartPole --duration 250ms --warmup 0.1 --windows 3",
        ),
        ({"base": False, "until": 0.5, "memory": "1G"}, "run --env CartPole --no-base --until 50% --memory 1G"),
        ({"backends": ["shm-async[ratio=1]"], "seed": 7}, "run --env CartPole -b shm-async[ratio=1] --seed 7"),
        ({"policy": "sleep:1ms", "learner": "4ms"}, "run --env CartPole --policy sleep:1ms --learner 4ms"),
    ],
)
def test_a_run_has_the_plan_cells_and_command_of_the_cli(vebench: Command, plan: dict[str, Any], line: str) -> None:
    run = measure("CartPole", output="a.jsonl", world=fake_world(), **{**BRIEF, **plan})
    assert vebench(*shlex.split(line), *ONE_PASS, "-q", "-o", "b.jsonl", world=fake_world()).status == 0
    ours, theirs = (store.read(path) for path in (run.path, run.path.with_name("b.jsonl")))
    assert ours.header.spec == theirs.header.spec
    assert [cell.key for cell in ours.cells] == [cell.key for cell in theirs.cells]
    again = [*shlex.split(ours.header.command)[1:], "-q", "-o", "c.jsonl"]
    assert vebench(*again, world=fake_world()).status == 0
    assert store.read(run.path.with_name("c.jsonl")).header.spec == ours.header.spec


def test_cells_have_the_figures_of_the_report_with_their_intervals(vebench: Command) -> None:
    run = measured()
    reported = json.loads(vebench("report", run.path, "-f", "json").out)
    assert [cell.label for cell in run.cells] == [cell["backend"] for cell in reported]
    for cell, theirs in zip(run.cells, reported, strict=True):
        rate = cell.frames_per_second
        assert {"median": rate.median, "low": rate.low, "high": rate.high} == theirs["frames_per_second"]
    found = {(cell.label, cell.workers): cell.speedup for cell in run.cells}
    assert found["gym-async", 2].median == pytest.approx(2.0, rel=0.02)  # type: ignore[union-attr]
    assert json.loads(run.report("json")) == reported  # type: ignore[arg-type]
    assert str(run.report()).startswith("# Throughput")
    assert load(run.path).report() == run.report()


def test_a_run_for_real_prints_progress_on_request(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "UNUSABLE_ABOVE", 1.0)  # other tests take CPU time from it
    plan: dict[str, Any] = {"duration": 0.03, "warmup": 0.01, "passes": 1, "base": False}
    run = measure("CartPole", workers=1, backends=["for-loop", "gym-sync"], **plan)
    loop, other = run.cells
    assert (loop.status, other.status) == ("ok", "ok")
    assert (other.verdict, other.figures.rows > 0, other.speedup.low is not None) == ("identical", True, True)
    (ratio,) = run.ratios([(other, loop)])
    assert ratio.ratio is not None
    assert capsys.readouterr() == ("", "")
    measure("CartPole", workers=1, backends="gym-sync", world=fake_world(), progress=True, **BRIEF)
    out, err = capsys.readouterr()
    assert (out, "gym-sync" in err) == ("", True)


@pytest.mark.parametrize(
    ("plan", "named"),
    [
        ({"wrkers": 1}, "wrkers: no such argument (did you mean workers?)"),
        ({"suite": "classic-3"}, "suite: no such argument"),
        ({"workers": [1.5]}, "--workers 1.5"),
        ({"windows": 2.5}, "--windows 2.5"),
        ({"effort": ["low"]}, "--effort ['low']"),
        ({"duration": "long"}, "duration long"),
        ({"base": 3}, "--no-base 3"),
        ({"backends": "shm-snyc"}, "did you mean shm-sync"),
        ({"backends": ["gym-sync@"]}, "a Python is missing"),
        ({"output": "report.md\n/x"}, "report.md"),
        ({"envs": []}, "--env"),
        ({"envs": "No Such\nEnv"}, "--env"),
        ({"envs": 3}, "--env"),
    ],
)
def test_bad_input_is_an_error_of_one_line(plan: dict[str, Any], named: str) -> None:
    with pytest.raises(VebenchError) as error:
        measure(plan.pop("envs", "CartPole"), world=fake_world(), **plan)
    assert named in str(error.value)
    assert "\n" not in str(error.value)


def test_what_the_command_line_says_besides_is_a_warning() -> None:
    path = verdicts.kept_file()
    path.parent.mkdir(parents=True)
    path.write_text("damage of its own\n")
    with pytest.warns(UserWarning, match="damaged lines are ignored"):
        measured(passes=1)


def test_ratios_of_cells_are_as_they_are_and_tested_together() -> None:
    run = measured(passes=4)
    loop, slow, fast = (next(cell for cell in run.cells if (cell.label, cell.workers) == (name, 2)) for name in TRUTH)
    found = run.ratios([(slow, loop), (fast, loop), (fast, slow), (loop, loop)])
    for ratio, truth in zip(found, (0.5, 2.0, 4.0, 1.0), strict=True):
        assert ratio.ratio.median == pytest.approx(truth, rel=0.03)
        assert 0 <= (ratio.ratio.half_width or 0) < 0.1
    assert [ratio.verdict for ratio in found] == ["slower", "faster", "faster", "inconclusive"]
    assert re.fullmatch(r"\d\.\d\dx ±\d+(\.\d)?%, faster", str(found[1]))


def test_a_cell_without_a_rate_is_not_comparable_and_the_reason_is_given() -> None:
    start = FakeStart({"gym-sync": failing("it broke")})
    run = measure("CartPole", workers=2, backends=["for-loop", "gym-sync"], world=fake_world(start), **BRIEF)
    cells = {cell.label: cell for cell in run.cells if cell.workers == 2}
    (ratio,) = run.ratios([(cells["gym-sync"], cells["for-loop"])])
    assert (ratio.verdict, ratio.ratio) == ("not comparable", None)
    assert "it broke" in str(ratio)
    start = FakeStart(dict.fromkeys(TRUTH, lambda cell, spec: steady(cell, spec, stolen=0.5)))
    run = measure("CartPole", workers=2, backends=[*TRUTH], world=fake_world(start), **BRIEF)
    (ratio,) = run.ratios([(run.cells[0], run.cells[1])])
    assert (ratio.verdict, ratio.why) == ("not comparable", run.notice)


def test_two_runs_are_judged_as_check_does(vebench: Command) -> None:
    before, after = measured(), measured(factor=0.25)
    found = check(before, after, tolerance=0.2)
    verdicts = {group.key.backend: group for group in found.groups}
    assert (verdicts["gym-sync"].verdict, found.status) == ("slower", 1)
    ratio = verdicts["gym-sync"].ratio
    assert ratio.median == pytest.approx(0.25, rel=0.03)
    checked = vebench("check", before.path, after.path, "--tolerance", "20%", "-f", "json")
    assert (checked.status, json.loads(checked.out)) == (1, json.loads(found.report("json")))  # type: ignore[arg-type]
    of_one = check(str(before.path), after.path, backends="gym-async", metric="fps")
    assert {cell.key.backend for cell in of_one.cells} == {"gym-async"}


def test_without_a_second_run_the_plan_of_the_first_is_measured_again_as_check_does() -> None:
    before = measured(passes=10)
    slower = world_of(paced(lambda cell: 4 * seconds(cell), 0.003))
    found = check(before, tolerance=0.2, budget="1s", world=slower)
    assert {group.key.backend for group in found.groups} == {*TRUTH}
    assert found.page.candidate != str(before.path)


def test_two_pythons_are_compared_as_the_command_does(vebench: Command) -> None:
    def in_turn(cell: Cell) -> float:
        return seconds(cell) * (4.0 if cell.interpreter.side == "B" else 1.0)

    plan = {"workers": 2, "backends": [*TRUTH], "proof": "off", "passes": 3, "seed": 7}
    found = compare("old", "new", "CartPole", output="a.jsonl", world=world_of(paced(in_turn, 0.003)), **plan)
    assert ({group.verdict for group in found.groups}, found.status) == ({"slower"}, 1)
    head = store.read(Path("a-b.jsonl")).header
    assert shlex.split(head.command)[:4] == ["vebench", "compare", "old", "new"]
    again = [*shlex.split(head.command)[1:], "-o", "c.jsonl"]
    assert vebench(*again, world=world_of(paced(in_turn, 0.003))).status == 1
    assert store.read(Path("c-b.jsonl")).header.spec == head.spec
    with pytest.raises(VebenchError, match="no such argument"):
        compare("old", "new", "CartPole", until=0.1)


@pytest.mark.parametrize(
    "wrong", [{"tolerance": 2.0}, {"backends": "shm-sync"}, {"envs": "Pong"}, {"a": "missing"}, {"a": "text.jsonl"}]
)
def test_what_cannot_be_compared_is_an_error_of_one_line(wrong: dict[str, Any]) -> None:
    run = measured(passes=1)
    Path("text.jsonl").write_text("no run\n")
    with pytest.raises(VebenchError, match=r"^[^\n]+$"):
        check(**{"a": run, "b": measured(passes=1), **wrong})


def test_backends_are_verified_as_the_command_does_it(vebench: Command, capsys: pytest.CaptureFixture[str]) -> None:
    found = verify("CartPole", backends="gym-sync", steps=60, seed=5, world=world_here())
    assert capsys.readouterr() == ("", "")
    ((key, proof),) = found.proofs.items()
    assert (key, proof.verdict, proof.ends > 0, found.status) == (("CartPole-v1", "gym-sync"), "identical", True, 0)
    line = ("verify", "-e", "CartPole", "-b", "gym-sync", "--steps", "60", "--seed", "5", "-f", "json")
    assert json.loads(vebench(*line, world=world_here()).out) == json.loads(found.report("json"))  # type: ignore[arg-type]


def test_ctrl_c_is_a_keyboard_interrupt_that_says_how_to_go_on(vebench: Command) -> None:
    start = FakeStart({"gym-async": interrupted})
    with pytest.raises(KeyboardInterrupt, match=r"to continue: vebench run --resume a\.jsonl"):
        measure("CartPole", workers=1, backends=[*TRUTH], output="a.jsonl", world=fake_world(start), **BRIEF)
    assert vebench("run", "--resume", "a.jsonl", "-q", world=fake_world()).status == 0
    assert {cell.status for cell in load("a.jsonl").cells} == {"ok"}


def test_effort_passes_and_budget_mean_the_same_as_on_the_command_line() -> None:
    asked = {"workers": 1, "backends": [*TRUTH], "world": fake_world()}
    quick = measure("CartPole", effort="low", **asked).page.sections[0].head
    assert " --effort low" in quick.command
    specs = [measure("CartPole", **asked, **more).page.sections[0].head.spec for more in ({}, {"passes": 3})]
    assert [(spec.race, spec.passes) for spec in specs] == [(True, 3), (False, 3)]
    short = measure("CartPole", budget=1, **{**asked, "world": fake_world(clock=FakeClock())}).page.sections[0].head
    assert (short.spec.budget, short.chose_cells) == (1.0, True)


@pytest.mark.whole_machine
def test_ctrl_c_leaves_no_process_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where cells have their requests, which their command lines name
    script = tmp_path / "script.py"
    script.write_text("import vebench\nvebench.measure('CartPole', workers=2, backends='gym-async', duration=20)\n")
    running = subprocess.Popen([sys.executable, script], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert eventually(lambda: len(processes_that_name(tmp_path)) > 1)
    running.send_signal(signal.SIGINT)
    _, printed = running.communicate()
    assert running.returncode == -signal.SIGINT
    assert "KeyboardInterrupt: interrupted: 0 of" in printed
    assert eventually(lambda: processes_that_name(tmp_path) == [])


def test_the_package_loads_its_interface_on_use_and_names_it() -> None:
    shown = "import sys, vebench; print(*sorted(name for name in sys.modules if name.startswith('vebench')))"
    done = subprocess.run([sys.executable, "-c", shown], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["vebench"]
    assert {"measure", "load", "check", "compare", "verify"} <= {*dir(package)}
    with pytest.raises(AttributeError, match="no attribute 'measrue'"):
        _ = package.measrue  # type: ignore[attr-defined]
