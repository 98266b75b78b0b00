"""A policy in the loop, as users ask for it: what is measured, compared and shown, and what is refused."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.commands import ONE_PASS, Command
from support.fakes import FakeStart, fake_world, steady
from support.in_this_process import world_here

from vebench.child.answers import Answer, Window
from vebench.machine.host import flat, read_host
from vebench.plan.cells import Cell
from vebench.plan.spec import RunSpec
from vebench.results import store

RUN = ("run", "-e", "CartPole", "-w", "2", "--no-base", "-q", "-o", "run.jsonl")
BRIEF = (*ONE_PASS[:-1], "full", "--duration", "0.05", "--warmup", "0.02", "--windows", "2")


@pytest.mark.parametrize("backend", ["gym-sync", "shm-async", "timed_liars:HonestOutOfOrder"])
def test_what_a_policy_drove_is_compared_to_the_last_window(vebench: Command, tmp_path: Path, backend: str) -> None:
    result = vebench(*RUN, "-b", backend, "--policy", "policies:by_the_pole", *BRIEF, world=world_here())
    (cell,) = store.read(tmp_path / "run.jsonl").cells
    assert (result.status, cell.reason) == (0, None)
    assert (cell.proof.verdict, cell.proof.steps) == ("identical", cell.proof.of_steps)
    assert cell.proof.rows > 1
    for window in cell.windows:
        parts = [window.waited_ns, window.inferred_ns, window.copied_ns]
        assert all(parts)
        assert sum(map(int, filter(None, parts))) <= window.ns


def test_other_work_is_found_although_a_policy_acts(vebench: Command, tmp_path: Path) -> None:
    asked = ("-b", "timed_liars:Drifting", "--policy", "policies:by_the_pole", *BRIEF)
    assert vebench(*RUN, *asked, world=world_here()).status == 1
    (cell,) = store.read(tmp_path / "run.jsonl").cells
    assert cell.proof.mismatch.field == "rewards"


def test_a_sleeping_policy_plays_the_tape_and_rows_to_compare_with_do_so_without_it(vebench: Command) -> None:
    asked = ("-b", "gym-sync,null", "--policy", "sleep:100us", *BRIEF)
    assert vebench(*RUN, *asked, world=world_here()).status == 0
    cells = {cell.backend: cell for cell in store.read(Path("run.jsonl")).cells}
    assert all(window.inferred_ns for window in cells["gym-sync"].windows)
    assert all(window.inferred_ns is None for window in cells["null"].windows)


def test_no_policy_acts_on_rows_that_stay_on_a_device(vebench: Command) -> None:
    assert vebench(*RUN, "-b", "native[deliver=device]", "--policy", "sleep:1ms", world=fake_world()).status == 2


def acting(cell: Cell, spec: RunSpec) -> list[Answer]:
    """Return the answers of a steady cell whose policy takes a fifth of the time."""
    span = round(spec.duration * 10**9)
    times = {"waited_ns": 7 * span // 10, "inferred_ns": span // 5, "copied_ns": span // 25}
    times |= {"latency_p50_ns": 1_230_000, "latency_p99_ns": 4_500_000}
    answers = steady(cell, spec)
    return [replace(one, **times, aged=one.rows) if isinstance(one, Window) else one for one in answers]


@pytest.fixture
def measured(vebench: Command) -> Command:
    """Return the command in a folder with a run in which a policy acted and a learner learned."""
    start = FakeStart({"shm-async": acting})
    asked = ("--policy", "sleep:1ms", "--learner", "6ms/12", "-b", "shm-async", *ONE_PASS)
    assert vebench(*RUN, *asked, world=fake_world(start)).status == 0
    return vebench


def test_a_report_shows_where_the_time_went_and_what_training_would_gain(measured: Command) -> None:
    shown = measured("report", "run.jsonl", "-f", "markdown").out
    titles = re.findall("### CartPole-v1: (.*)", shown)
    times = ["waiting_share", "inference_share", "copy_share", "latency_p50_ns", "latency_p99_ns", "age"]
    assert titles[1:] == [*times, "sampling_share", "training_steps_per_second", "at_most_faster"]
    assert {"70%", "20%", "4%", "1.23 ms", "4.50 ms"} <= set(re.findall(r"[\d.]+(?:%| ms)", shown))


def test_data_has_the_same(measured: Command) -> None:
    (cell,) = json.loads(measured("report", "run.jsonl", "-f", "json").out)
    shares = [cell[f"{part}_share"] for part in ("waiting", "inference", "copy")]
    assert shares == [pytest.approx(value) for value in (0.7, 0.2, 0.04)]
    sampled = 12 / cell["steps_per_second"]["median"]
    assert cell["sampling_share"] == pytest.approx(sampled / (sampled + 0.006))
    assert cell["at_most_faster"] == pytest.approx(1 + sampled / 0.006)
    assert cell["training_steps_per_second"] == pytest.approx(12 / (sampled + 0.006))


def test_a_run_with_a_policy_is_not_compared_with_one_without(measured: Command) -> None:
    measured(*RUN[:-1], "tape.jsonl", "-b", "shm-async", *ONE_PASS, world=fake_world())
    result = measured("check", "tape.jsonl", "run.jsonl", "--metric", "fps")
    assert result.status == 3
    assert "--policy tape against sleep:1ms" in result.err


def test_a_network_without_torch_says_how_to_install_it(vebench: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vebench.plan.cells.importable", lambda module: module != "torch")
    result = vebench(*RUN, "-b", "gym-sync", "--policy", "mlp:64x64", world=fake_world())
    needs = "vebench: --policy mlp:64x64: needs torch (in vebench's clone: pip install '.[torch]')\n"
    assert (result.status, result.err) == (2, needs)


@pytest.mark.parametrize(
    ("kept", "problem"),
    [
        ("9", "cpus 9: CPU 9 is not allowed here (allowed: 0-3)"),
        ("0-3", "cpus 0-3: no CPU is left for workers (allowed: 0-3)"),
        ("1", "cpus 1: --pin 0-1 also gives CPU 1 to workers"),
        ("x", "cpus x: not a list of CPUs such as 0-3,8, each once"),
    ],
)
def test_cpus_of_the_policy_must_be_there_and_leave_some_to_workers(vebench: Command, kept: str, problem: str) -> None:
    cpus = frozenset(range(4))
    host = replace(read_host(), topology=flat(cpus), cpus_allowed=tuple(cpus), quota_cpus=None)
    world = fake_world(read_host=lambda: host)
    asked = ("--policy", f"sleep:1ms[cpus={kept}]", *(("--pin", "0-1") if kept == "1" else ()))
    result = vebench(*RUN, "-b", "gym-sync", *asked, world=world)
    assert (result.status, result.err) == (2, f"vebench: --policy: {problem}\n")


def test_no_worker_gets_a_cpu_of_the_policy(vebench: Command, tmp_path: Path) -> None:
    cpus = frozenset(range(4))
    host = replace(read_host(), topology=flat(cpus), cpus_allowed=tuple(cpus), quota_cpus=None)
    start = FakeStart()
    asked = ("-b", "shm-sync", "-w", "4", "--policy", "sleep:1ms[cpus=1-2]", *ONE_PASS)
    vebench(*RUN[:3], *RUN[5:], *asked, world=fake_world(start, read_host=lambda: host))
    assert [cell.cpus for cell, _ in start.started] == [(0, 3)]
    assert store.read(tmp_path / "run.jsonl").header.spec.policy.cpus == "1-2"
