"""Simulators that step whole batches: measured without an adapter, and their faults named."""

import json
from pathlib import Path
from typing import Any

import pytest
from batched import FAULTY, HONEST
from support.commands import ONE_PASS, Command
from support.in_this_process import world_here

from vebench.results import store

# What is said of each fault: a part of its name, or of the first field that differs.
NAMES = {
    "half": "first at environment 1, step 1: observations",
    "stale-device": "observations are one step stale",
    "deaf": "first at environment ",
    "endless": "first at environment ",
    "skips": "first at environment ",
    "scaled": "rewards are multiplied by 0.5",
    "swapped": "terminated and truncated are swapped",
    "rolled": "first at environment ",
    "half-precision": "first at environment ",
    "misdeclared": "first at environment ",
    "resets-all": "first at environment ",
    "one-seed": "its environments share a seed",
    "deaf-together": "other returns and lengths and steps",
}
BY_CHANCE = {"one-seed", "deaf-together"}  # these batches start elsewhere than single copies


def verdicts(vebench: Command, *envs: str, backend: str = "native") -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit status of ``verify``, and the verdict on each task."""
    named = [word for env in envs for word in ("-e", env)]
    asked = ("verify", *named, "-b", backend, "--steps", "25", "--num-envs", "4", "--seed", "1", "-f", "json")
    done = vebench(*asked, world=world_here(layouts=1))
    assert done.out, done.err
    return done.status, {each["env"]: each for each in json.loads(done.out)}


@pytest.fixture(autouse=True)
def _without_examples_and_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vebench.equality.verify.EXAMPLE_S", 0.0)
    monkeypatch.setattr("vebench.child.equality.replay._in_parallel", lambda work, items: [work(items)])


def test_every_fault_of_a_batch_is_named(vebench: Command) -> None:
    assert FAULTY.keys() == NAMES.keys()
    envs = {fault: f"batched:faulty[fault={fault}]" for fault in FAULTY}
    status, found = verdicts(vebench, *envs.values())
    assert status == 1
    for fault, env in envs.items():
        verdict = found[env]
        assert verdict["verdict"] == "different", verdict
        assert verdict["summary"].startswith(NAMES[fault]), verdict
        assert bool(verdict["parting"]) != (fault in BY_CHANCE), verdict


def test_honest_batches_of_all_kinds_are_not_accused(vebench: Command) -> None:
    envs = {kind: f"batched:honest[kind={kind}]" for kind in HONEST} | {"seeded": "batched:seeded"}
    status, found = verdicts(vebench, *envs.values())
    assert status == 0, found
    words = {kind: found[env]["verdict"] for kind, env in envs.items()}
    assert words == {**dict.fromkeys(envs, "identical"), "together": "same distribution", "noisy": "same distribution"}
    assert all(each["ends"] > 3 for each in found.values())


def test_rows_that_stay_on_a_device_are_judged_alike(vebench: Command) -> None:
    late, honest = "batched:faulty[fault=stale-device]", "batched:honest[kind=tensors]"
    _, found = verdicts(vebench, late, honest, backend="native[deliver=device]")
    assert found[late]["fault"] == NAMES["stale-device"]
    assert found[honest]["verdict"] == "identical"


def test_a_batch_is_measured_and_compared_in_the_same_run(vebench: Command, tmp_path: Path) -> None:
    brief = (*ONE_PASS[:-1], "full", "--duration", "0.05", "--warmup", "0.01", "--windows", "2", "-w", "1", "--no-base")
    run = ("run", "-e", "batched:honest[kind=bare]", "-b", "gym-sync,native", *brief, "--envs-per-worker", "4")
    done = vebench(*run, "-q", "-o", "run.jsonl", world=world_here())
    assert done.status == 0, done.err
    cells = store.read(tmp_path / "run.jsonl").cells
    assert {cell.backend: cell.proof.verdict for cell in cells} == {"gym-sync": "identical", "native": "identical"}
    assert all(cell.batched for cell in cells)
