"""Environments in which only some actions are legal, or whose randomness no seed decides: what users are told."""

import json
import shlex
from pathlib import Path
from textwrap import dedent

import pytest
from support.commands import ONE_PASS, Command
from support.in_this_process import world_here

from vebench.results import store

HAND = """
    import gymnasium
    import numpy as np
    from gymnasium import spaces

    CARDS = 5

    class Hand(gymnasium.Env):
        observation_space = spaces.Dict(held=spaces.MultiBinary(CARDS), worth=spaces.Box(0, 9, (CARDS,), np.int64))
        action_space = spaces.Discrete(CARDS)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.held = np.ones(CARDS, np.int8)
            self.worth = self.np_random.integers(0, 10, CARDS)
            return self.seen(), {}

        def step(self, card):
            if not self.held[card]:
                raise ValueError(f"card {card} was played")
            self.held[card] = 0
            return self.seen(), float(self.worth[card]), not self.held.any(), False, {}

        def seen(self):
            return {"held": self.held.copy(), "worth": self.worth.copy()}

    def dearest(seen):
        return np.where(seen["held"] > 0, seen["worth"], -1).argmax(1)
"""
POLICY = ("--policy", "hand:dearest")
BACKENDS = "gym-sync,gym-async,shm-async"
BRIEF = (*ONE_PASS, "--duration", "0.02", "--warmup", "0.01", "--windows", "2", "-w", "1", "-q", "-o", "run.jsonl")


@pytest.fixture(autouse=True)
def _beside_modules(tmp_path: Path) -> None:
    (tmp_path / "hand.py").write_text(dedent(HAND))


@pytest.mark.parametrize("command", ["run", "verify"])
def test_what_random_actions_break_is_told_once_with_a_way_out(vebench: Command, command: str) -> None:
    plan = BRIEF if command == "run" else ("--steps", "60")
    done = vebench(command, "-e", "hand:Hand", "-b", BACKENDS, *plan, world=world_here())
    assert done.status == (1 if command == "run" else 3)
    shown = " ".join((done.out or vebench("report", "run.jsonl").out).split())
    assert "was played" in shown
    assert "--policy MODULE:FUNCTION" in shown


def test_with_a_policy_all_backends_are_compared(vebench: Command) -> None:
    asked = ("-e", "hand:Hand", "-b", BACKENDS, *POLICY)
    done = vebench("verify", *asked, "--steps", "60", "-f", "json", world=world_here(layouts=2))
    found = {one["backend"]: one["verdict"] for one in json.loads(done.out)}
    assert all("--policy hand:dearest" in one["command"] for one in json.loads(done.out))
    assert (done.status, found) == (0, dict.fromkeys(BACKENDS.split(","), "identical"))


@pytest.mark.parametrize("policy", ["hold", "mlp:8x8", "actions.npy"])
def test_backends_are_compared_by_a_users_function_alone(vebench: Command, policy: str) -> None:
    refused = vebench("verify", "-e", "hand:Hand", "--policy", policy)
    assert (refused.status, "MODULE:FUNCTION" in refused.refusal) == (2, True)


DICE = """
    import gymnasium
    import numpy as np
    from gymnasium import spaces

    class Dice(gymnasium.Env):
        observation_space, action_space = spaces.Box(0, 1, (2,)), spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            self.thrown = 0
            return np.random.random(2).astype(np.float32), {}

        def step(self, action):
            self.thrown += 1
            return np.full(2, action, np.float32), 0.0, False, self.thrown == 9, {}
"""


def test_a_global_generator_is_named_and_which_environments_start_alike(vebench: Command, tmp_path: Path) -> None:
    (tmp_path / "dice.py").write_text(dedent(DICE))
    asked = ("verify", "-e", "dice:Dice", "-b", "gym-async", "--steps", "30", "--num-envs", "3", "-f", "json")
    done = vebench(*asked, world=world_here())
    (found,) = json.loads(done.out)
    assert (done.status, found["verdict"]) == (3, "unverified")
    assert "use self.np_random" in found["summary"]
    assert "environments start alike, although their seeds differ" in found["summary"]


def test_the_command_to_compare_backends_has_the_policy(vebench: Command) -> None:
    asked = ("-e", "hand:Hand", "-b", "gym-sync", *POLICY)
    assert vebench("run", *asked, "--no-base", *BRIEF, world=world_here()).status == 0
    (cell,) = json.loads(vebench("report", "run.jsonl", "-f", "json").out)
    (found,) = (finding for finding in cell["findings"] if finding["code"] == "unverified")
    command = found["remedy"].partition("compare it with: vebench ")[2]
    assert vebench(*shlex.split(command), "--steps", "60", world=world_here(layouts=1)).status == 0


def test_a_cell_of_an_environment_with_a_global_generator_is_not_called_the_same(
    vebench: Command, tmp_path: Path
) -> None:
    """Real processes, since all are forked from one, with the state of its generators."""
    (tmp_path / "dice.py").write_text(dedent(DICE))
    brief = ("--passes", "1", "--duration", "0.05", "--warmup", "0.01", "--windows", "3", "-w", "1", "--no-base", "-q")
    vebench("run", "-e", "dice:Dice", "-b", "gym-sync", *brief, "-o", "run.jsonl")
    (cell,) = store.read(Path("run.jsonl")).cells
    assert cell.proof.verdict == "unverified"
    assert "use self.np_random" in cell.proof.reason
