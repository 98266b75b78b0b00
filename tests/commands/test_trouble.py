"""Environments with the troubles of real simulators: users are told the cause and a way out."""

import json
import os
import shlex
import subprocess
import sys
from typing import Any

import pytest
from support.commands import LONG, ONE_PASS, Command
from support.in_this_process import world_here
from support.places import ENVIRONMENTS

BRIEF = (*ONE_PASS, "--duration", "0.02", "--warmup", "0.01", "--windows", "2", "-q", "-o", "run.jsonl")


def measured(vebench: Command, *asked: str) -> dict[str, dict[str, Any]]:
    """Return the cells of a run by their backends. Those that failed have the remedy, too."""
    vebench("run", *asked, *BRIEF)
    cells = json.loads(vebench("report", "run.jsonl", "-f", "json").out)
    for cell in cells:
        cell["remedy"] = "".join(finding["remedy"] for finding in cell["findings"] if finding["code"] == "failed")
    return {cell["backend"]: cell for cell in cells}


def test_an_environment_that_must_be_alone_is_measured_in_a_process_for_each(vebench: Command) -> None:
    backends = "for-loop,gym-async,shm-sync"
    cells = measured(vebench, "-e", "trouble:Trouble[what=alone]", "-w", "1", "--envs-per-worker", "2", "-b", backends)
    status = {name: cells[name]["status"] for name in backends.split(",")}
    assert status == {"for-loop": "failed", "gym-async": "ok", "shm-sync": "failed"}
    assert "a process for each environment" in cells["shm-sync"]["remedy"]


def test_an_environment_with_a_process_is_told_which_backends_take_it(vebench: Command) -> None:
    cells = measured(vebench, "-e", "trouble:Trouble[what=child]", "-w", "1", "-b", "for-loop,gym-async", "--no-base")
    assert (cells["for-loop"]["status"], cells["gym-async"]["status"]) == ("ok", "failed")
    assert "daemonic processes" in cells["gym-async"]["reason"]
    assert "by subprocess" in cells["gym-async"]["remedy"]


def test_a_thread_that_a_fork_loses_costs_a_timeout_and_spawn_is_named(vebench: Command) -> None:
    asked = ("-e", "trouble:Trouble[what=thread]", "-w", "1", "-b", "gym-async", "--no-base", "--timeout", "2")
    cell = measured(vebench, *asked)["gym-async"]
    assert (cell["status"], cell["reason"].startswith("timed out after 2 s")) == ("failed", True)
    assert "[context=spawn]" in cell["remedy"]


def test_the_rows_of_an_environment_with_a_thread_are_compared(vebench: Command) -> None:
    asked = ("-e", "trouble:Trouble[what=thread]", "-b", "gym-sync", "--steps", "30", "-f", "json")
    (found,) = json.loads(vebench("verify", *asked, "--timeout", "20").out)
    assert found["verdict"] == "identical"


def test_an_environment_that_fails_late_accuses_no_backend(vebench: Command) -> None:
    asked = ("-e", "trouble:Trouble[what=tires]", "-b", "gym-sync", "--steps", "400", "-f", "json")
    done = vebench("verify", *asked, world=world_here())
    (found,) = json.loads(done.out)
    assert (done.status, found["verdict"]) == (1, "unverified")
    assert "no handles are left, in step " in found["reason"]


@pytest.mark.parametrize(("policy", "verdict"), [((), "different"), (("--policy", "trouble:rest"), "identical")])
def test_a_port_without_contacts_is_the_same_only_at_rest(
    vebench: Command, policy: tuple[str, ...], verdict: str
) -> None:
    sides = ("trouble:Trouble", "trouble:Trouble[what=port]")
    found = json.loads(vebench("verify", *sides, *policy, "--steps", "50", "-f", "json").out)
    assert (found["verdict"], found["policy"]) == (verdict, policy[1] if policy else None)


def test_a_low_limit_of_files_costs_only_the_cell_that_needs_more(vebench: Command) -> None:
    asked = ("-e", "CartPole", "-w", "2", "--envs-per-worker", "32", "-b", "gym-async,shm-sync", "--no-base", *BRIEF)
    words = shlex.join((sys.executable, "-m", "vebench", "run", *asked))
    path = {**os.environ, "PYTHONPATH": str(ENVIRONMENTS)}
    done = subprocess.run(["/bin/bash", "-c", f"ulimit -n 80; {words}"], env=path, timeout=LONG, check=False)
    cells = {cell["backend"]: cell for cell in json.loads(vebench("report", "run.jsonl", "-f", "json").out)}
    assert (done.returncode, cells["gym-async"]["status"], cells["shm-sync"]["status"]) == (1, "failed", "ok")
    assert any("ulimit -n" in finding["remedy"] for finding in cells["gym-async"]["findings"])
