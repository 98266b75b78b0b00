"""``vebench run``: what it plans, measures, keeps and shows, what it refuses, also where packages are missing."""

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from support.commands import ONE_PASS, Command, Result, lines
from support.fakes import FakeStart, Script, failing, fake_world, steady
from support.in_this_process import world_here

from vebench.backends import packages, registry
from vebench.child.answers import Answer, CellProof, Failure
from vebench.machine import kernel
from vebench.plan import verdicts
from vebench.plan.cells import Cell
from vebench.plan.grammar import BackendChoice
from vebench.plan.spec import RunSpec
from vebench.plan.tasks import TASKS

PONG = ("-e", "Pong", "-b", "for-loop,shm-sync")
SHORT = ("--duration", "0.05", "--warmup", "0.02", "--windows", "3")
BRIEF = (*ONE_PASS, *SHORT)


def test_the_main_job_measures_every_backend_that_can_step_a_task_and_prints_a_table(vebench: Command) -> None:
    brief = ("--passes", "1", "--proof", "off", *SHORT)  # its cells take turns
    result = vebench("run", "--env", "CartPole", "--workers", "2", *brief)
    assert result.status == 0
    for backend in ("for-loop", "gym-sync", "gym-async", "shm-sync"):
        assert backend in result.out
    (path,) = Path(".vebench").iterdir()
    header, *cells = lines(path)
    assert (header["type"], header["schema"]) == ("run", 2)
    assert header["command"] == "vebench run --env CartPole --workers 2 " + " ".join(brief)
    assert {cell["status"] for cell in cells} <= {"ok", "skipped"}
    measured = [cell for cell in cells if cell["status"] == "ok"]
    assert "null" in {cell["backend"] for cell in measured}
    for cell in measured:
        assert len(cell["windows"]) >= 3  # one that something else disturbed is measured again
        assert all(window["ns"] > 0 for window in cell["windows"])
        assert cell["warmup_ns"] >= 20_000_000
        assert cell["settled"] in (True, False)
    timed = {(cell["backend"], cell["workers"]): cell["timed"] for cell in measured if cell["timed"]}
    assert timed.keys() == {("for-loop", 1)}
    assert timed["for-loop", 1]["steps"] > 20
    if kernel.SUPPORTED and header["host"]["usable_cpus"] >= 2:
        of_two = {cell["backend"]: cell for cell in measured if cell["workers"] == 2}
        assert_each_worker_keeps_to_a_cpu_of_its_own(of_two)


def assert_each_worker_keeps_to_a_cpu_of_its_own(cells: dict[str, dict[str, Any]]) -> None:
    """Look at one backend of each kind: processes beside the caller, processes and the caller, and threads."""
    assert {"gym-async", "shm-sync"} <= cells.keys()  # EnvPool need not be installed
    for backend, caller_steps in (("gym-async", False), ("shm-sync", True), ("envpool-sync", False)):
        if backend not in cells:
            continue
        caller, *workers = cells[backend]["seats"]
        # In EnvPool's one process, only the threads that step have one CPU each.
        stepping = [thread for process in workers for thread in process] or [seat for seat in caller if "-" not in seat]
        seats = [*(caller if caller_steps else ()), *stepping]
        assert sorted(seats) == sorted(map(str, cells[backend]["cpus"])), backend


HANGING = """
    import time
    import gymnasium
    from gymnasium.envs.classic_control import CartPoleEnv

    class Hangs(CartPoleEnv):
        def reset(self, **arguments):
            time.sleep(600)
"""


def test_an_environment_that_hangs_costs_one_timeout_and_not_one_for_each_cell(vebench: Command) -> None:
    """Real processes, since it is one of them that has to say where it hangs."""
    Path("hanging.py").write_text(dedent(HANGING))
    asked = ("-e", "hanging:Hangs", "-b", "for-loop,gym-sync", "-w", "1,2", "--passes", "2", "--timeout", "3")
    assert vebench("run", *asked, *SHORT, "-o", "run.jsonl", "-q").status == 1
    _, base, *others = lines(Path("run.jsonl"))
    assert (base["backend"], base["workers"]) == ("for-loop", 1)
    assert base["reason"] == "timed out after 3 s (--timeout), while it was built or reset"
    assert len(others) == 9  # with the yardstick, in both repeats
    for cell in others:
        assert (cell["status"], cell["startup_ns"]) == ("failed", None)
        assert cell["reason"].endswith(f"cannot step hanging:Hangs: {base['reason']}")


def test_a_task_that_the_plain_loop_cannot_step_is_over_and_another_task_is_measured(vebench: Command) -> None:
    def scripted(cell: Cell, spec: RunSpec) -> Sequence[Answer | Exception]:
        return [Failure("boom, in step 3")] if cell.task.id.startswith("CartPole") else steady(cell, spec)

    start = FakeStart({"for-loop": scripted})
    asked = ("-e", "CartPole,Acrobot", "-b", "for-loop,gym-sync", "-w", "1,2", "--passes", "2")
    assert vebench("run", *asked, "-o", "run.jsonl", "-q", world=fake_world(start)).status == 1
    assert [cell.key.place for cell, _ in start.started if cell.task.id.startswith("CartPole")] == ["for-loop:1x1"]
    status = {(cell["env"], cell["status"]) for cell in lines(Path("run.jsonl"))[1:]}
    assert status == {("CartPole-v1", "failed"), ("Acrobot-v1", "ok")}


def test_a_run_is_shown_after_three_windows_and_goes_on_with_what_may_be_the_fastest(vebench: Command) -> None:
    start = FakeStart({"for-loop": lambda cell, spec: steady(cell, spec, 500)})
    found = vebench("run", *PONG, "-w", "1,2", "-o", "run.jsonl", world=fake_world(start))
    assert (found.status, start.left) == (0, 1)
    assert {cell.mode for cell, _ in start.started} == {"in_turn"}
    assert [cell.backend.name for cell, _ in start.started].index("yardstick") == 4  # after the first look
    for shown in (found.out, found.err):
        assert shown.count("ALE/Pong-v5: frames/s (4 frames per step)") == 1
    assert found.err.index("first look; the run goes on") < found.err.index("[ 1/15]")
    assert "first look: shm-sync with 2 workers is ahead so far." in found.err
    assert "winner" not in found.err
    assert "the winner" in found.out
    head, *cells = lines(Path("run.jsonl"))
    assert head["command"] == "vebench run -e Pong -b for-loop,shm-sync -w 1,2 -o run.jsonl"
    passes = [[cell for cell in cells if cell["repeat"] == number] for number in range(4)]
    assert [[len(cell["windows"]) for cell in each] for each in passes] == [[12] * 5, [12] * 5, [12] * 4, []]
    assert found.err.count("/15]") == 14
    last = {(cell["backend"], cell["workers"]) for cell in passes[2]}
    assert last == {("for-loop", 1), ("shm-sync", 1), ("shm-sync", 2), ("yardstick", 1)}


def test_a_first_look_names_the_fastest_though_its_rows_are_compared_later(vebench: Command) -> None:
    start = FakeStart({"for-loop": lambda cell, spec: steady(cell, spec, 500)})
    asked = ("-e", "CartPole[max_episode_steps=7]", "-b", "for-loop,shm-sync", "-w", "1,2")
    shown = vebench("run", *asked, "-o", "run.jsonl", world=fake_world(start)).err
    assert "first look: shm-sync with 2 workers is ahead so far." in " ".join(shown.split())


def raced(vebench: Command, env: str, script: Callable[[Cell, RunSpec], Script], *backends: str) -> list[set[str]]:
    """Return the backends of each pass of a race in which cells follow ``script``; EnvPool's rows are not compared."""
    start = FakeStart(dict.fromkeys(backends, script), proofs={"envpool-sync": [CellProof("unverified")]})
    named = ("-b", ",".join(backends), "-w", "1")
    assert vebench("run", "-e", env, *named, "-o", "run.jsonl", world=fake_world(start)).status == 0
    cells = lines(Path("run.jsonl"), "cell")
    last = max(cell["repeat"] for cell in cells)
    return [{each["backend"] for each in cells if each["repeat"] == number} for number in range(last + 1)]


def test_what_a_race_has_left_out_stays_out_whatever_later_passes_show(vebench: Command) -> None:
    def script(cell: Cell, spec: RunSpec) -> Script:
        return steady(cell, spec, 500 if cell.backend.name == "shm-sync" else 300 if cell.repeat > 1 else 1000)

    passes = raced(vebench, "Pong", script, "for-loop", "shm-sync")
    assert passes[2:] == [{"for-loop", "yardstick"}] * 2


def test_a_backend_whose_work_cannot_be_compared_keeps_no_other_from_racing_on(
    vebench: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("envpool")  # it draws its own first states
    unknown = verdicts.KnownVerdict("unverified", "it draws its own starts")
    entry = verdicts.key(TASKS["CartPole-v1"], BackendChoice("envpool-sync"))
    monkeypatch.setattr(verdicts, "_surveyed", lambda: ((entry, unknown),))

    def script(cell: Cell, spec: RunSpec) -> Script:
        return steady(cell, spec, 9000 if cell.backend.name == "envpool-sync" else 1000)

    passes = raced(vebench, "CartPole", script, "for-loop", "shm-sync", "envpool-sync")
    assert passes[2] == {"for-loop", "shm-sync", "yardstick"}


@pytest.mark.parametrize(("rate", "goes_on"), [(800, True), (300, False)])
def test_a_backend_that_others_slowed_races_on_if_it_may_be_the_fastest_without_them(
    vebench: Command, rate: int, goes_on: bool
) -> None:
    def script(cell: Cell, spec: RunSpec) -> Script:
        slowed = cell.backend.name == "shm-sync"
        return steady(cell, spec, rate if slowed else 1000, stolen=0.3 if slowed else 0.0)

    assert ("shm-sync" in raced(vebench, "Pong", script, "for-loop", "shm-sync")[2]) is goes_on


def test_each_task_has_a_first_look_and_a_resumed_run_has_none(vebench: Command) -> None:
    words = "first look; the run goes on"
    asked = ("run", "-e", "Pong,CartPole", "-b", "for-loop,shm-sync", "-w", "1", "-o", "run.jsonl")
    assert vebench(*asked, world=fake_world()).err.count(words) == 2
    Path("run.jsonl").write_text("".join(f"{line}\n" for line in Path("run.jsonl").read_text().splitlines()[:4]))
    assert words not in vebench("run", "--resume", "run.jsonl", world=fake_world()).err


@pytest.mark.parametrize("asked", [("--effort", "high"), ("--passes", "4"), ("--until", "90%")])
def test_passes_are_those_of_all_backends_alike_if_asked_for(vebench: Command, asked: tuple[str, str]) -> None:
    start = FakeStart({"for-loop": lambda cell, spec: steady(cell, spec, 500)})
    assert vebench("run", *PONG, "-w", "1", *asked, "-o", "run.jsonl", "-q", world=fake_world(start)).status == 0
    spec, *cells = lines(Path("run.jsonl"))
    found = Counter((cell["backend"], len(cell["windows"])) for cell in cells)
    windows, passes = (spec["spec"][name] for name in ("windows", "passes"))
    passes = max(passes, 5) if "--until" in asked else passes  # processes of a rate that is to be precise
    assert found == {(name, windows): passes for name in ("for-loop", "shm-sync", "yardstick")}


def test_a_dry_run_prints_the_plan_and_measures_nothing(vebench: Command, tmp_path: Path) -> None:
    result = vebench("run", "-e", "Pong,Ant", "-e", "CartPole", "-w", "1", "-w", "2,4", "-b", "for-loop", "--dry-run")
    assert (result.status, list(tmp_path.iterdir())) == (0, [])
    assert [line.split()[1] for line in result.out.splitlines() if line.startswith("for-loop ")] == ["1", "2", "4"] * 3
    assert {"ALE/Pong-v5", "Ant-v5", "CartPole-v1", "compact"} <= set(result.out.replace(":", " ").split())


def test_the_suffix_of_a_report_writes_one_beside_a_new_run_file(vebench: Command) -> None:
    found = vebench("run", *PONG, "-w", "1", *ONE_PASS, "-o", "report.CSV", world=fake_world())
    assert (found.status, "ALE/Pong-v5: frames/s" in found.out) == (0, True)
    assert found.err.endswith("vebench: wrote report.CSV\n")
    (path,) = Path(".vebench").iterdir()
    assert vebench("report", path, "-f", "csv").out == Path("report.CSV").read_text()


@pytest.mark.parametrize(
    ("typed", "numbers"),
    [
        ("--quick", (2, 3, 0.2, 0.1)),
        ("--effort high", (6, 8, 0.5, 0.1)),
        ("--effort low --passes 4 --duration 300ms", (4, 3, 0.3, 0.1)),
    ],
)
def test_effort_stands_for_numbers_and_those_given_win(vebench: Command, typed: str, numbers: tuple[float]) -> None:
    found = vebench("run", *PONG, "-w", "1", *typed.split(), "-o", "a.jsonl", "-q", world=fake_world())
    assert found == Result(0, "", "")
    spec = lines(Path("a.jsonl"))[0]["spec"]
    assert tuple(spec[name] for name in ("passes", "windows", "duration", "warmup")) == numbers


def test_a_run_is_never_overwritten(vebench: Command, tmp_path: Path) -> None:
    assert vebench("run", *PONG, "-w", "1", "-o", "run.jsonl", "-q", world=fake_world()).status == 0
    before = (tmp_path / "run.jsonl").read_bytes()
    start = FakeStart()
    result = vebench("run", *PONG, "-w", "2", "-o", "run.jsonl", world=fake_world(start))
    assert (result.status, start.started) == (2, [])
    assert "--resume" in result.refusal
    assert (tmp_path / "run.jsonl").read_bytes() == before


def test_a_failed_cell_is_recorded_with_its_reason_and_the_run_goes_on(vebench: Command, tmp_path: Path) -> None:
    start = FakeStart({"shm-sync": failing("ValueError: the simulator exploded")})
    result = vebench("run", *PONG, "-w", "1", "-o", "run.jsonl", world=fake_world(start))
    assert result.status == 1
    cells = {cell["backend"]: cell for cell in lines(tmp_path / "run.jsonl")[1:]}
    assert cells["for-loop"]["status"] == "ok"
    assert cells["shm-sync"]["status"] == "failed"
    assert cells["shm-sync"]["reason"] == "ValueError: the simulator exploded"
    assert "the simulator exploded" in result.out
    log = (tmp_path / "run.jsonl.log").read_text()
    assert log.startswith("== ALE/Pong-v5, shm-sync, 1 worker, repeat 0\na library printed this")
    assert "a library printed this" not in result.out + result.err


def test_a_file_in_the_place_of_the_run_file_is_left_alone(vebench: Command, tmp_path: Path) -> None:
    path, away = tmp_path / "run.jsonl", tmp_path / "away"

    def replacing(cell: Cell, spec: RunSpec) -> Sequence[Answer]:
        path.rename(away)
        path.write_text("another\n")
        return steady(cell, spec)

    world = fake_world(FakeStart({"shm-sync": replacing}))
    found = vebench("run", *PONG, "-w", "1", "-o", path, *ONE_PASS, "-q", world=world)
    assert (found.status, path.read_text()) == (2, "another\n")
    assert "run.jsonl was deleted or replaced" in found.refusal


def test_a_third_partys_adapter_gets_its_options(vebench: Command, tmp_path: Path) -> None:
    adapter = ("-e", "CartPole", "-w", "2", "-b", "faulty:Sound[length=3]", "--no-base")
    assert vebench("run", *adapter, *BRIEF, "-o", "run.jsonl", world=world_here()).status == 0
    (cell,) = lines(tmp_path / "run.jsonl")[1:]
    assert (cell["backend"], cell["options"]) == ("faulty:Sound", {"length": 3})
    for window in cell["windows"]:
        assert window["resets"] == pytest.approx(window["rows"] / 4, abs=2)


ALONE = ("-e", "Pong", "-b", "shm-sync", "-w", "2")


def test_the_loop_with_one_worker_is_measured_as_well_so_that_there_are_speedups(vebench: Command) -> None:
    result = vebench("run", *ALONE, "--envs-per-worker", "1,4", "-o", "run.jsonl", world=fake_world())
    assert result.status == 0
    assert "no speedups" not in result.out
    measured = {(cell["backend"], cell["workers"], cell["envs_per_worker"]) for cell in lines(Path("run.jsonl"))[1:]}
    loops, pools = {("for-loop", 1, 1), ("for-loop", 1, 4)}, {("shm-sync", 2, 1), ("shm-sync", 2, 4)}
    assert measured == {*loops, *pools, ("yardstick", 1, 1)}
    cells = json.loads(vebench("report", "run.jsonl", "-f", "json").out)
    assert all(cell["speedup"] for cell in cells if cell["backend"] != "yardstick")
    alone = vebench("run", *ALONE, "--no-base", "-o", "alone.jsonl", world=fake_world())
    assert {cell["backend"] for cell in lines(Path("alone.jsonl"))[1:]} == {"shm-sync"}
    assert "no speedups: for-loop with one worker has no rate" in " ".join(alone.out.split())


def test_a_run_that_verifies_first_strikes_a_liar_and_says_why(vebench: Command, tmp_path: Path) -> None:
    backends = ("-e", "CartPole", "-w", "1", "-b", "for-loop,liars:Deaf")
    result = vebench("run", *backends, *BRIEF, "--verify", "-o", "run.jsonl", world=world_here())
    assert result.status == 0
    assert "CartPole-v1, liars:Deaf: different (first at environment " in " ".join(result.err.split())
    loop, liar, _ = sorted(lines(tmp_path / "run.jsonl")[1:], key=lambda line: str(line["backend"]))
    assert (loop["verdict"], liar["verdict"]) == ("identical", "different")
    assert liar["verdict_reason"].startswith("first at environment ")
    reported = {cell["backend"]: cell for cell in json.loads(vebench("report", "run.jsonl", "-f", "json").out)}
    assert reported["liars:Deaf"]["speedup"] is None
    assert reported["liars:Deaf"]["frames_per_second"] is not None
    assert "other work" in result.out


def test_a_run_that_others_disturbed_is_measured_and_says_so_before_all_else(vebench: Command) -> None:
    start = FakeStart(dict.fromkeys(("for-loop", "shm-sync"), lambda cell, spec: steady(cell, spec, stolen=0.3)))
    found = vebench("run", *PONG, "-w", "1,2", "--passes", "3", "-o", "run.jsonl", world=fake_world(start))
    assert found.status == 3
    notice = "unusable: other processes disturbed 4 of 5 cells; measure on an idle machine"
    assert found.out.splitlines()[1] == notice
    assert "the winner" not in found.out
    cells = json.loads(vebench("report", "run.jsonl", "-f", "json").out)
    assert [[finding["code"] for finding in cell["findings"]].count("unusable") for cell in cells] == [1] * 5
    assert [(cell["windows"], cell["disturbed_windows"]) for cell in cells] == [(36, 36)] * 4 + [(36, 0)]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave nothing installed but what vebench itself needs."""
    base = [package.module for package in packages.BASE]
    monkeypatch.setattr(packages, "find_spec", lambda name: True if name in base else None)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("asked", "refusal"),
    [
        ((), "only null can run here: not installed: ale-py, opencv-python-headless (in vebench's clone: "),
        (("-b", "ceiling,envpool-sync"), "no cell of this plan can run here: not installed: envpool "),
        (("-b", "null", "-q"), ""),
    ],
)
def test_a_run_without_a_backend_that_can_run_is_refused(vebench: Command, asked: tuple[str], refusal: str) -> None:
    found = vebench("run", "-e", "Pong", "-w", "1", *asked, world=fake_world())
    assert (found.status, found.err.startswith(f"vebench: {refusal}")) == ((2, True) if refusal else (0, False))


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(("backends", "status"), [("null,envpool-sync", 0), ("envpool-sync", 2), ("ceiling", 2)])
def test_a_dry_run_shows_the_plan_also_where_a_run_is_refused(vebench: Command, backends: str, status: int) -> None:
    asked = ("run", "-e", "Pong", "-w", "1", "-b", backends, "--no-base")
    assert vebench(*asked, world=fake_world()).status == 2
    found = vebench(*asked, "--dry-run", world=fake_world())
    assert found.status == status
    assert found.err.count("\n") == (status == 2)
    assert "1 skipped" in found.out
    assert f"skipped: {backends.removeprefix('null,')} at 1 worker: not installed: " in found.out


def test_a_plan_too_large_for_the_memory_is_shown_with_how_much_it_needs(vebench: Command) -> None:
    asked = ("run", "-e", "Pong", "-w", "65536", "--envs-per-worker", "1000")
    world = fake_world(memory_available=lambda: 16 << 30)
    refused = vebench(*asked, world=world)
    assert refused.status == 2
    assert refused.refusal.startswith("vebench: only ceiling can run here: needs about ")
    shown = vebench(*asked, "--dry-run", world=world)
    assert shown.status == 0
    assert re.search(r"\b2 cells in 2 passes, \d+ skipped", shown.out)
    assert "GiB of memory, 16 GiB may be used" in shown.out


@pytest.mark.usefixtures("bare")
def test_a_backend_that_lacks_a_package_keeps_no_other_from_being_measured(vebench: Command, tmp_path: Path) -> None:
    asked = ("run", "-e", "CartPole", "-w", "1", "-q", "--proof", "off", "-o", "run.jsonl")
    assert vebench(*asked, world=fake_world()).status == 0
    _, *cells = map(json.loads, (tmp_path / "run.jsonl").read_text().splitlines())
    status = {cell["backend"]: cell["status"] for cell in cells}
    assert status["envpool-sync"] == status["envpool-async"] == "skipped"
    of_gymnasium = [entry.name for entry in registry.ENTRIES if entry.steps_gymnasium and entry.name in status]
    assert {status[name] for name in of_gymnasium} == {"ok"}
