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
        makers = [lambda: gymnasium.make("CartPole-v1")] * num_envs
        self._all = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
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


def test_a_verdict_on_another_implementation_is_kept_for_the_packages_of_both(
    vebench: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(SUITES, "fake", Suite("fake", "a fake", make_vec="fakes:Cart", namespace="fake:"))  # type: ignore[arg-type]
    python = tmp_path / "python"
    python.write_text(PYTHON.format(python=sys.executable))
    python.chmod(0o755)
    tasks = Task("CartPole-v1", "classic", 1), Task("fake:CartPole", "fake", 1)
    words = ("--within", "distribution", "--steps", "60", "--seed", "1", "-f", "json")
    done = vebench("verify", "CartPole-v1", f"fake:CartPole@{python}", *words)
    assert json.loads(done.out)["verdict"] == "same distribution", done
    assert Knowledge.load().between(tasks, [packages_here()] * 2) == "same distribution"
    assert Knowledge.load().between(tasks, [packages_here(), {}]) == "unverified"
