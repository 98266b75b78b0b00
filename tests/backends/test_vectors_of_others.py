"""What steps whole batches by itself as a backend: a library's sampler, or a user's vector environment."""

import json
from pathlib import Path
from textwrap import dedent

import pytest
from support.commands import ONE_PASS, Command
from support.in_this_process import world_here

from vebench.results import store

VERIFY = ("--steps", "80", "--num-envs", "3", "--seed", "3", "-f", "json")
VECTORS = """
    import gymnasium
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    def make_vec(num_envs, mode="NEXT_STEP", force=10.0):
        def make_env():
            made = gymnasium.make("CartPole-v1")
            made.unwrapped.force_mag = force
            return made
        return SyncVectorEnv([make_env] * num_envs, autoreset_mode=AutoresetMode[mode])

    class Vector(SyncVectorEnv):
        def __init__(self, num_envs):
            super().__init__([lambda: gymnasium.make("CartPole-v1")] * num_envs)
"""


@pytest.mark.parametrize("name", ["NextStep", "SameStep"])
def test_a_sampler_does_the_loops_work_with_its_policys_actions(vebench: Command, name: str) -> None:
    done = vebench("verify", "-e", "CartPole", "-b", f"sampled:{name}", *VERIFY, world=world_here())
    (found,) = json.loads(done.out)
    assert (done.status, found["verdict"], found["ends"] > 5) == (0, "identical", True), found


def test_a_sampler_that_fails_is_a_cell_that_fails_with_its_words(vebench: Command) -> None:
    brief = (*ONE_PASS, "--duration", "0.02", "--warmup", "0.01", "--windows", "2", "--no-base", "-q")
    asked = ("run", "-e", "CartPole", "-b", "sampled:Unwilling", "-w", "1", *brief, "-o", "run.jsonl")
    done = vebench(*asked, world=world_here())
    (cell,) = store.read(Path("run.jsonl")).cells
    assert (done.status, cell.status) == (1, "failed")
    assert "no such policy" in str(cell.reason)


@pytest.mark.parametrize(
    ("backend", "verdict"),
    [
        ("vectors:make_vec", "identical"),
        ("vectors:make_vec[mode=SAME_STEP]", "identical"),
        ("vectors:Vector", "identical"),
        ("vectors:make_vec[force=9.0]", "different"),
        ("vectors:make_vec[mode=DISABLED]", "unverified"),
    ],
)
def test_a_vector_environment_is_a_backend_without_an_adapter(
    vebench: Command, monkeypatch: pytest.MonkeyPatch, backend: str, verdict: str
) -> None:
    monkeypatch.setattr("vebench.equality.verify.EXAMPLE_S", 0.0)
    Path("vectors.py").write_text(dedent(VECTORS))
    (found,) = json.loads(vebench("verify", "-e", "CartPole", "-b", backend, *VERIFY, world=world_here()).out)
    assert found["verdict"] == verdict, found
    assert ("NEXT_STEP or SAME_STEP" in found["summary"]) == (verdict == "unverified")


def test_options_of_a_vector_environment_are_looked_up_before_it_is_measured(vebench: Command) -> None:
    Path("vectors.py").write_text(dedent(VECTORS))
    asked = ("run", "-e", "CartPole", "-w", "1", "--dry-run", "-b")
    assert vebench(*asked, "vectors:make_vec[mode=SAME_STEP],vectors:Vector").status == 0
    assert "no option mood" in vebench(*asked, "vectors:make_vec[mood=SAME_STEP]").refusal
