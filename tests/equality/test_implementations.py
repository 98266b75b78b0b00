"""``vebench verify A B`` of tasks of libraries that step whole batches: episodes, and verdicts that later runs use."""

import json
import sys
from pathlib import Path

import pytest
from support.commands import Command

from vebench.backends.environments.suites import SUITES, Suite
from vebench.backends.interface import Task
from vebench.interpreters import packages_here
from vebench.plan.verdicts import Knowledge

# A Python whose table of suites has a library, as the parent's has in these tests. Its rows show no final observation.
PYTHON = """#!{python}
import runpy, sys
import gymnasium
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from vebench.backends.environments.suites import SUITES, Suite

class Cart:
    metadata = {{"autoreset_mode": "SameStep"}}

    def __init__(self, task, num_envs, seed):
        def make():
            env = gymnasium.make("CartPole-v1")
            env.unwrapped.gravity = task.arguments.get("gravity", 9.8)
            return env
        self._all = SyncVectorEnv([make] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
        self.single_observation_space = self._all.single_observation_space
        self.single_action_space = self._all.single_action_space

    def reset(self, *, seed=None):
        return self._all.reset(seed=seed + 7)

    def step(self, actions):
        return (*self._all.step(actions)[:4], {{}})

    def close(self):
        self._all.close()

sys.modules["fakes"] = sys.modules["__main__"]
SUITES["fake"] = Suite("fake", "a fake", make_vec="fakes:Cart", namespace="fake:")
runpy.run_path(sys.argv[1])["serve"]()
"""


@pytest.mark.parametrize(
    ("name", "verdict"), [("fake:CartPole", "same distribution"), ("fake:CartPole[gravity=14]", "different")]
)
def test_the_worst_verdict_on_another_implementation_is_kept(
    vebench: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, verdict: str
) -> None:
    monkeypatch.setitem(SUITES, "fake", Suite("fake", "a fake", make_vec="fakes:Cart", namespace="fake:"))  # type: ignore[arg-type]
    python = tmp_path / "python"
    python.write_text(PYTHON.format(python=sys.executable))
    python.chmod(0o755)
    tasks = Task("CartPole-v1", "classic", 1), Task(name, "fake", 1)
    assert Knowledge.load().between(tasks, [packages_here()] * 2) == "unverified"
    found = []
    for policy in ((), ("--policy", "hold")):
        words = ("--within", "distribution", "--steps", "60", "--seed", "1", "-f", "json", *policy)
        done = vebench("verify", "CartPole-v1", f"{name}@{python}", *words)
        assert done.out, done.err
        found.append(json.loads(done.out)["verdict"])
    assert verdict in found
    assert Knowledge.load().between(tasks, [packages_here()] * 2) == verdict
    assert Knowledge.load().between(tasks, [packages_here(), {}]) == "unverified"
