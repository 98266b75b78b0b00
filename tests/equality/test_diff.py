"""``vebench verify A B``: two implementations that do the same work pass, and where others part a script shows it."""

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import Command

import vebench
from vebench.child.equality.distribution import Row, compared, episodes
from vebench.child.equality.recording import Tolerance

Verify = Callable[..., tuple[int, dict[str, Any]]]

# A module of a user: CartPole as it is, and with one thing changed.
MINE = """
import os, time
import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

class Cart(gymnasium.Wrapper):
    step_number = resets = 0

    def reset(self, *, seed=None, options=None):
        self.step_number, self.resets = 0, self.resets + 1
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self.step_number += 1
        return self.changed(*super().step(action))

def cart(change=lambda self, *row: row):
    return type("Changed", (Cart,), {"changed": change})(gymnasium.make("CartPole-v1"))

def vector(num_envs, mode="next_step"):
    return SyncVectorEnv([cart] * num_envs, autoreset_mode=AutoresetMode[mode.upper()])

def clipped():
    return cart(lambda self, o, r, *more: (o, r * (self.step_number != 7), *more))

def raising():
    return cart(lambda self, o, *more: (o if self.step_number < 4 else o[9], *more))

def double():
    return cart(lambda self, o, *more: (o.astype(np.float64), *more))

def rounded():
    return cart(lambda self, o, r, *more: (o, float(np.float32(r / 3)), *more))

def third():
    return cart(lambda self, o, r, *more: (o, r / 3, *more))

def nearly():
    return cart(lambda self, o, r, *more: (o, r / 3 + 1e-12, *more))

def off(by=1e-6):
    return cart(lambda self, o, *more: (o + np.float32(by) * self.step_number, *more))

def noisy():
    return cart(lambda self, o, *more: (o + np.random.default_rng().random(4, np.float32), *more))

class Unseeded(Cart):
    def reset(self, *, seed=None, options=None):
        return self.env.reset(options=options)

def unseeded():
    env = Unseeded(gymnasium.make("CartPole-v1"))
    env.changed = lambda *row: row
    return env

def process():
    return cart(lambda self, *row: (*row[:4], {"process": os.getpid()}))

def hashed():
    return cart(lambda self, o, *more: (o + np.float32(hash("cart") % 2**20 / 2**20), *more))

def normal():
    return gymnasium.wrappers.NormalizeObservation(gymnasium.make("CartPole-v1"))

def normals(num_envs):
    return SyncVectorEnv([normal] * num_envs)

class Rolled(SyncVectorEnv):
    def step(self, actions):
        return super().step(np.roll(actions, 1) if self._autoreset_envs.any() else actions)

def rolled(num_envs):
    return Rolled([cart] * num_envs)

def dying():
    return cart(lambda self, *row: os._exit(3) if self.step_number == 5 else row)

def hanging():
    return cart(lambda self, *row: time.sleep(60) if self.step_number == 5 else row)

def told(wrong=""):
    def changed(self, *row):
        half = 2.25 if wrong and self.step_number == 5 else self.step_number / 2
        infos = {"lives": 3 - self.step_number // 4, "text": "yes", "deep": {"half": half}}
        return *row[:4], {**infos, "clock": time.perf_counter(), "it": self}
    return cart(changed)

def telling(num_envs, mode="next_step", wrong=""):
    return SyncVectorEnv([lambda: told(wrong)] * num_envs, autoreset_mode=AutoresetMode[mode.upper()])

def balanced(observations):
    return (observations[:, 2] > 0).astype(int)
"""


@pytest.fixture
def verify(vebench: Command, tmp_path: Path) -> Verify:
    """Return the command on CartPole and one of the module ``mine``: its exit status and what it found."""
    (tmp_path / "mine.py").write_text(MINE)

    def call(other: str, *more: str, one: str = "CartPole-v1") -> tuple[int, dict[str, Any]]:
        done = vebench("verify", one, other, "--seed", "1", "--steps", "60", "-f", "json", *more)
        assert done.out, done.err
        return done.status, json.loads(done.out)

    return call


def test_rows_are_identical_in_the_usual_autoreset_mode(verify: Verify) -> None:
    status, found = verify("mine:vector")
    assert (status, found["verdict"], found["script"]) == (0, "identical", None)
    assert found["rows"] > 500
    assert found["ends"] >= 3


@pytest.mark.parametrize(
    ("other", "expected", "ends_with"),
    [
        ("raising", ("raised", 1, 4), "IndexError"),
        (f"clipped@{Path(sys.executable).parent}/../bin/python", ("rewards", 1, 7), "AssertionError: they differ"),
    ],
)
def test_the_smallest_example_shows_the_fault_by_itself(
    verify: Verify, other: str, expected: tuple[str, int, int], ends_with: str
) -> None:
    status, found = verify(f"mine:{other}")
    assert (status, found["verdict"]) == (1, "different")
    assert (found["field"], found["environments"]) == expected[:2]
    assert expected[2] <= found["actions"] <= expected[2] + 2
    script = Path(".vebench/example.py")
    assert script.read_text() == found["script"]
    assert last_line_of_failure(script).startswith(ends_with)


def last_line_of_failure(script: Path) -> str:
    env = {"PYTHONPATH": "."}
    done = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


def test_infos_that_differ_have_an_example(verify: Verify) -> None:
    other = "mine:telling[wrong=deep,mode=same_step]"
    status, found = verify(other, one="mine:told")
    assert (status, found["field"], found["environments"], found["actions"]) == (1, "infos/deep/half", 1, 5)
    assert last_line_of_failure(Path(".vebench/example.py")) == "AssertionError: they differ"
    assert verify(other, "--within", "infos/lives=7,infos/deep=0.25", one="mine:told")[0] == 0


def test_infos_that_one_side_does_not_repeat_are_named_and_not_compared(verify: Verify) -> None:
    status, found = verify("mine:telling[mode=same_step]", one="mine:told")
    assert (status, found["verdict"]) == (0, "identical")
    assert found["not_compared"].keys() == {"infos/clock", "infos/it"}


@pytest.mark.parametrize(("policy", "mode", "length"), [("hold", "same_step", 8), ("two.npy", "disabled", 30)])
def test_actions_may_be_those_of_the_user(verify: Verify, policy: str, mode: str, length: int) -> None:
    np.save("two.npy", np.array([[0, 1, 0], [1, 0, 1]] * 20))
    status, found = verify(f"mine:vector[mode={mode}]", "--policy", policy)
    assert (status, found["verdict"], found["policy"]) == (0, "identical", policy)
    assert found["rows"] > 300
    assert found["rows"] > length * found["ends"]  # random actions let the pole fall after about 20 steps


@pytest.mark.parametrize(
    ("other", "within", "status", "verdict"),
    [
        ("double", (), 0, "equal"),
        ("off", ("--within", "observations=1e-4"), 0, "within limits"),
        ("off", ("--within", "observations=5e-6@4"), 0, "within limits"),
        ("noisy", (), 1, "different"),
        ("unseeded", ("--within", "distribution"), 0, "same distribution"),
    ],
)
def test_a_verdict_is_never_stronger_than_its_class(
    verify: Verify, other: str, within: tuple[str, ...], status: int, verdict: str
) -> None:
    found = verify(f"mine:{other}", *within)
    if other == "unseeded" and found[0]:  # one honest pair in twenty is called different
        found = verify(f"mine:{other}", *within)
    assert (found[0], found[1]["verdict"]) == (status, verdict)
    if verdict == "equal":
        assert list(found[1]["equal_by"]) == ["observations as float32"]
    assert bool(found[1]["left_out"]) == any("@" in limit for limit in within)
    assert all(0 < apart < 1e-4 for apart in found[1]["furthest"].values())


def test_other_limits_of_steps_are_told_until_an_episode_gets_there(vebench: Command, verify: Verify) -> None:
    status, found = verify("CartPole-v0")
    assert (status, found["verdict"]) == (3, "unverified")
    assert [spec["max_episode_steps"] for spec in found["specs"]] == [500, 200]
    assert [spec["reward_threshold"] for spec in found["specs"]] == ["475.0", "195.0"]
    short = ("CartPole-v1[max_episode_steps=9]", "CartPole-v1[max_episode_steps=7]", "--steps", "20", "-f", "json")
    done = vebench("verify", *short)
    assert (done.status, json.loads(done.out)["field"], json.loads(done.out)["actions"]) == (1, "truncated", 7)


def test_what_no_row_shows_stands_beside_the_verdict(vebench: Command, verify: Verify) -> None:
    status, found = verify("mine:told")
    assert (status, found["verdict"], len(found["beside"])) == (0, "identical", 2)
    assert "only B has infos/clock, infos/deep/half" in found["beside"][1]
    ends = vebench("verify", "Pendulum-v1", "Pendulum-v1", "--steps", "40", "-f", "json").out
    assert json.loads(ends)["beside"] == ["no end was seen"]


def test_what_differs_between_processes_is_no_difference(verify: Verify) -> None:
    status, found = verify("mine:process", one="mine:process")
    assert (status, found["verdict"], list(found["not_compared"])) == (0, "identical", ["infos/process"])
    assert verify("mine:hashed", one="mine:hashed")[0] == 3


def test_state_that_survives_a_seed_is_named_and_compared_in_fresh_copies(verify: Verify) -> None:
    status, found = verify("mine:normals", one="mine:normal")
    assert (status, found["verdict"], found["state"]) == (0, "identical", "observations")


def test_an_example_in_which_others_reset_fails_by_itself(verify: Verify) -> None:
    status, found = verify("mine:rolled", "--policy", "sweep")
    assert (status, found["environments"]) == (1, 2)
    assert found["actions"] <= 10
    assert last_line_of_failure(Path(".vebench/example.py")) == "AssertionError: they differ"


def test_rewards_are_equal_only_if_one_side_has_rounded_them(vebench: Command, verify: Verify) -> None:
    del verify  # it has written the module
    rounded = vebench("verify", "mine:third", "mine:rounded", "--steps", "40", "-f", "json")
    assert json.loads(rounded.out)["equal_by"].keys() == {"rewards as float32"}
    assert (rounded.status, vebench("verify", "mine:third", "mine:nearly", "--steps", "40").status) == (0, 1)


@pytest.mark.parametrize(("other", "why"), [("dying", "exited with status 3"), ("hanging", "no answer within 3 s")])
def test_a_side_that_dies_or_hangs_is_different(verify: Verify, other: str, why: str) -> None:
    status, found = verify(f"mine:{other}", "--timeout", "3")
    assert (status, found["verdict"]) == (1, "different")
    assert why in found["why"]


def test_two_that_both_raise_are_not_called_the_same(vebench: Command, verify: Verify) -> None:
    del verify  # it has written the module
    found = vebench("verify", "mine:raising", "mine:raising", "--steps", "40", "-f", "json")
    assert (found.status, json.loads(found.out)["verdict"]) == (3, "unverified")


def test_python_gets_the_same_verdict(verify: Verify, monkeypatch: pytest.MonkeyPatch) -> None:
    del verify  # it has written the module
    monkeypatch.syspath_prepend(".")
    monkeypatch.delitem(sys.modules, "mine", raising=False)  # another test may have one
    mine = importlib.import_module("mine")
    found = vebench.verify("CartPole-v1", mine.clipped, steps=60, seed=1)
    assert (found.status, found.verdict) == (1, "different")
    assert repr(found) == "<PairVerification: CartPole-v1 and mine:clipped: different>"
    assert found.script == Path(".vebench/example.py").read_text()
    acted = vebench.verify("CartPole-v1", mine.vector, steps=60, seed=1, policy=mine.balanced)
    assert (acted.status, acted.verdict) == (0, "identical")
    with pytest.raises(vebench.VebenchError, match="--steps 0"):
        vebench.verify("CartPole-v1", mine.clipped, steps=0)
    with pytest.raises(vebench.VebenchError, match="give a function of a module"):
        vebench.verify("CartPole-v1", lambda: None)


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (("CartPole-v1",), "name two implementations"),
        (("CartPole-v1", "Pendulum-v1"), "the two take different actions"),
        (("CartPole-v1", "no_such:thing"), "no_such:thing: module no_such cannot be imported: ModuleNotFoundError"),
        (("CartPole-v1", "CartPole-v1@no/python"), "no/python does not start"),
        (("CartPole-v1", "json:loads[s=1]"), "json:loads[s=1]: TypeError"),
        (("CartPole-v1", "CartPole-v1", "-e", "Pong"), "leave out --env"),
        (("CartPole-v1", "CartPole-v1", "--within", "flags=1"), "--within flags=1"),
        (("CartPole-v1", "CartPole-v1", "--within", "observations/x=1"), "observed are observations"),
        (("CartPole-v1", "CartPole-v1", "--within", "distribution,rewards=1"), "stands alone"),
        (("CartPole-v1", "json:nothing"), "json has neither a callable nothing"),
        (("-e", "CartPole", "--within", "rewards=1"), "--within needs A B"),
        (("-e", "CartPole", "--policy", "hold"), "--policy hold: for backends, write MODULE:FUNCTION"),
        (("CartPole-v1", "CartPole-v1", "--policy", "mlp:64x64"), "write hold, sweep, actions.npy or MODULE:FUNCTION"),
        (("CartPole-v1", "CartPole-v1", "--policy", "no.npy"), "--policy no.npy cannot be read"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(vebench: Command, words: tuple[str, ...], refusal: str) -> None:
    refused = vebench("verify", *words)
    assert refused.status == 2
    assert refusal in refused.refusal


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (("--within", "infos/x=1"), "vebench: --within infos/x: no such field; observed are none"),
        (("--policy", "json:loads"), "vebench: CartPole-v1: policy json:loads: ValueError: the policy did not return"),
        (("--policy", "no_such:thing"), "vebench: CartPole-v1: policy no_such:thing: ModuleNotFoundError"),
    ],
)
def test_what_only_stepping_shows_is_refused_then(vebench: Command, words: tuple[str, ...], refusal: str) -> None:
    refused = vebench("verify", "CartPole-v1", "CartPole-v1", "--steps", "9", *words)
    assert (refused.status, refused.out) == (2, "")
    assert refused.err.splitlines()[-1].startswith(refusal)


@pytest.mark.parametrize(
    "array", [[0, 2], [[[0]]], np.array([{}], object)], ids=["out of bounds", "of another shape", "pickled"]
)
def test_a_file_of_what_is_no_action_is_refused(vebench: Command, array: Any) -> None:
    np.save("actions.npy", array)
    refused = vebench("verify", "CartPole-v1", "CartPole-v1", "--policy", "actions.npy")
    assert refused.status == 2
    assert "--policy actions.npy" in refused.refusal


def test_the_power_that_is_stated_is_kept() -> None:
    rng = np.random.default_rng(1)

    def played(apart: float) -> list[Any]:
        lengths = rng.integers(5, 10, 100)
        return [([0.0], [[0.0, 0.0, rng.normal(apart), 1.0, 0, at + 1 == n] for at in range(n)]) for n in lengths]

    shift = float(compared(played(0), played(0))[2].split("outcomes ")[1].split()[0])
    assert sum("steps" in compared(played(0), played(shift))[1] for _ in range(8)) >= 7
    assert sum(compared(played(0), played(0))[0] == "different" for _ in range(8)) <= 2


def test_a_last_step_whose_observation_is_not_shown_repeats_the_step_before() -> None:
    rows: list[Row] = [
        (True, [], [0.0], (0.0, False, False)),
        (False, [5.0], [1.0], (1.0, False, False)),
        (False, [6.0], [], (2.0, True, False)),
        (True, [], [3.0], (0.0, False, False)),
        (False, [7.0], [], (4.0, False, True)),
    ]
    first, second = episodes(rows, finals=False)
    assert first == ([0.0], [[0.0, 5.0, 1.0, 1.0, False, False], [0.0, 5.0, 1.0, 2.0, True, False]])
    assert second == ([3.0], [[3.0, 7.0, 3.0, 4.0, False, True]])


@pytest.mark.parametrize(
    ("limit", "near", "far"),
    [
        (Tolerance(absolute=0.5), 10.5, 10.6),
        (Tolerance(relative=0.01), 10.1, 10.2),
        (Tolerance(ulps=2), float(np.nextafter(np.nextafter(10.0, 11), 11)), 10.0 + 1e-14),
        (Tolerance(), 10.0, np.nan),
    ],
)
def test_a_limit_allows_numbers_up_to_it(limit: Tolerance, near: float, far: float) -> None:
    ten = np.array([10.0, np.nan])
    assert limit.allows(ten, np.array([near, np.nan]))
    assert not limit.allows(ten, np.array([far, np.nan]))
