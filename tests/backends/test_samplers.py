"""A library's sampler as a backend: it runs the loop, and the caller's actions are its policy."""

import json
from pathlib import Path

import pytest
from support.commands import ONE_PASS, Command
from support.in_this_process import world_here

from vebench.backends.registry import ENTRIES
from vebench.plan.grammar import parse_backends
from vebench.results import store


@pytest.mark.parametrize("name", ["NextStep", "SameStep"])
def test_a_sampler_does_the_loops_work_with_its_policys_actions(vebench: Command, name: str) -> None:
    asked = ("verify", "-e", "CartPole", "-b", f"sampled:{name}", "--steps", "80", "--num-envs", "3", "-f", "json")
    done = vebench(*asked, world=world_here())
    (found,) = json.loads(done.out)
    assert (done.status, found["verdict"], found["ends"] > 5) == (0, "identical", True), found


def test_a_sampler_that_fails_is_a_cell_that_fails_with_its_words(vebench: Command) -> None:
    brief = (*ONE_PASS, "--duration", "0.02", "--warmup", "0.01", "--windows", "2", "--no-base", "-q")
    asked = ("run", "-e", "CartPole", "-b", "sampled:Unwilling", "-w", "1", *brief, "-o", "run.jsonl")
    done = vebench(*asked, world=world_here())
    (cell,) = store.read(Path("run.jsonl")).cells
    assert (done.status, cell.status) == (1, "failed")
    assert "no such policy" in str(cell.reason)


def test_samplers_do_not_compete_with_backends() -> None:
    samplers = {entry.name for entry in ENTRIES if "samplers:" in entry.target}
    assert samplers == {"rllib-runner", "sb3-rollouts", "torchrl-collector"}
    assert not samplers & {choice.name for choice in parse_backends(["all-peers"])}
