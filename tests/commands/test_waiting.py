"""Environments whose steps wait: ``tune`` and ``run`` step them with more processes than CPUs."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.commands import ONE_PASS, Command
from support.paced import resolve
from support.simulated import Costs, Machine, topology_of

from vebench.analysis.summary import summarise
from vebench.backends.interface import Task
from vebench.backends.registry import BY_NAME
from vebench.commands.session import World
from vebench.plan.cells import Cell
from vebench.plan.grammar import BackendChoice
from vebench.results import store
from vebench.results.records import Run

SLEEPING = "timed:vebench/Sleep-20000us-v0"
WAIT = 0.03
ENVS = 64
GRID = tuple(1 << power for power in range(7))


def machine(wait: float = WAIT) -> Machine:
    """Return a machine of two CPUs on which a step takes 150 us of work, and waits."""
    ours = Costs(150e-6, row=10e-6, batch=50e-6, make=1e-3, wait=wait)
    costs = dict.fromkeys(BY_NAME, ours) | {"gym-async": replace(ours, row=60e-6)}
    return Machine(topology_of(cores=2), costs=costs)


def world(machine: Machine) -> World:
    return replace(machine.world(), resolve=resolve)


def cell(backend: str, workers: int, options: dict[str, Any] | None = None) -> Cell:
    """Return a cell with batches of ``ENVS`` rows."""
    choice = BackendChoice(backend, options or {})
    shape = choice.entry.shape_of(workers, ENVS // workers, 2, choice.options, waits=True)
    return Cell(Task(SLEEPING, "gymnasium", 1), choice, workers, ENVS // workers, shape, (0, 1))


OURS = ("-b", "for-loop,gym-sync,gym-async,shm-sync,shm-async", "--batch", str(ENVS))


def test_tune_decides_for_a_setting_near_the_best_of_all_numbers_of_processes(vebench: Command) -> None:
    on = machine()
    done = vebench("tune", "-e", SLEEPING, *OURS, "--budget", "2m", "-f", "json", "-o", "a.md", world=world(on))
    found = json.loads(done.out)
    assert (done.status, found["decided"]) == (0, True), done
    assert on.clock.now <= 122
    chosen = found["chosen"]
    best = max(on.true_rate(cell(name, workers)) for name in ("shm-sync", "shm-async") for workers in GRID)
    assert on.true_rate(cell(chosen["backend"], chosen["workers"], chosen["options"])) >= 0.95 * best
    assert (found["steps"]["mean_ns"], found["steps"]["idle_ns"]) == (30_150_000, 30_000_000)
    assert "64 environments at a time make at most 2,133 steps/s (64 / 30.0 ms)" in Path("a.md").read_text()


def test_settings_that_wait_too_long_to_win_are_not_tried(vebench: Command) -> None:
    on = machine()
    found = json.loads(vebench("tune", "-e", SLEEPING, *OURS, "-f", "json", world=world(on)).out)
    assert {one["backend"] for one in found["left_out"]} == {"gym-sync"}
    assert {one["workers"] for one in found["tried"]} == {64, 32, 16}
    assert max(on.batch_seconds(one) for one in on.started) < 0.2


@pytest.mark.parametrize("wait", [0.0, 100e-6])
def test_tune_tries_no_more_workers_than_cpus_if_steps_hardly_wait(vebench: Command, wait: float) -> None:
    on = machine(wait)
    vebench("tune", "-e", SLEEPING, *OURS, "-f", "json", world=world(on))
    assert max(one.workers for one in on.started) == 2


def measured(vebench: Command, on: Machine, *more: str) -> tuple[Run, str]:
    """Return what a run measured, and what it printed."""
    backends = ("-b", "for-loop,gym-async,shm-sync,threads")
    done = vebench("run", "-e", SLEEPING, *backends, *ONE_PASS, *more, "-o", "run.jsonl", world=world(on))
    assert done.status == 0, done
    return store.read(Path("run.jsonl")), " ".join(done.out.split())


@pytest.mark.parametrize(("wait", "at_work", "few_cpus"), [(WAIT, 16, False), (0.0, 2, True)])
def test_a_run_gives_each_worker_a_process_if_steps_wait(
    vebench: Command, wait: float, at_work: int, few_cpus: bool
) -> None:
    run, printed = measured(vebench, machine(wait), "-w", "2,16")
    stepping = {one.backend: one.processes * one.threads for one in run.cells if one.workers == 16}
    assert stepping == {"for-loop": 1, "gym-async": 16, "shm-sync": at_work, "threads": at_work}
    found = {finding.code for one in summarise(run) for finding in one.findings if one.workers == 16}
    assert ("oversubscribed" in found) is few_cpus
    assert ("they only enlarge batches" in printed) is few_cpus
    assert "waiting" not in found


def test_a_run_with_fewer_workers_than_environments_suggests_more(vebench: Command) -> None:
    run, printed = measured(vebench, machine(), "-w", "2", "--envs-per-worker", "16", "--proof", "auto")
    found = {one.label for one in summarise(run) for finding in one.findings if finding.code == "waiting"}
    assert found == {"shm-sync", "threads"}
    assert "they only enlarge batches" not in printed
    assert re.search(r"32 environments at a time make at most 1,0\d\d steps/s \(32 / 30.\d ms\)", printed)


def test_the_plan_of_real_processes_follows_from_their_steps(vebench: Command) -> None:
    cpu = str(min(os.sched_getaffinity(0)))
    brief = (*ONE_PASS, "--windows", "2", "--duration", "0.05", "--warmup", "0.05", "--no-base")
    asked = ("-e", "timed:vebench/Sleep-5000us-v0", "-w", "4", "-b", "shm-sync", "--pin", cpu)
    vebench("run", *asked, *brief, "-o", "run.jsonl")
    run = store.read(Path("run.jsonl"))
    assert run.header.spec.waiting == ("vebench/Sleep-5000us-v0",)
    assert [(one.status, one.processes, one.cpus) for one in run.cells] == [("ok", 4, (int(cpu),))]
