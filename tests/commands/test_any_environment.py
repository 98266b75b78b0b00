"""Environments of users: with arguments, and made by callables of their own."""

import json
from pathlib import Path
from textwrap import dedent

import pytest
from support.commands import ONE_PASS, Command
from support.fakes import fake_world
from support.in_this_process import world_here

from vebench.results import store

BRIEF = (*ONE_PASS[:-1], "full", "--duration", "0.03", "--warmup", "0.01", "--windows", "2", "-w", "1")
MODULE = """
    import gymnasium

    def make_env(steps=5, scale=1.0):
        env = gymnasium.make("Pendulum-v1", max_episode_steps=steps)
        return gymnasium.wrappers.TransformReward(env, lambda reward: scale * reward)
"""


@pytest.fixture(autouse=True)
def _beside_a_module(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(dedent(MODULE))


def test_what_a_callable_returns_is_measured_proven_and_reported_by_its_name(vebench: Command, tmp_path: Path) -> None:
    name = "mine:make_env[scale=0.5,steps=7]"
    run = ("run", "-e", name, "-b", "shm-sync", *BRIEF)
    done = vebench(*run, "-q", "-o", "run.jsonl", world=world_here())
    assert done.status == 0, done.err
    assert {cell.env for cell in store.read(tmp_path / "run.jsonl").cells} == {name}
    rows = json.loads(vebench("report", "run.jsonl", "-f", "json").out)
    proofs = {row["backend"]: row["proof"] for row in rows}
    assert proofs == {"for-loop": None, "shm-sync": "identical", "yardstick": None}
    assert name in vebench("report", "run.jsonl", "-f", "markdown").out
    assert vebench("run", "-e", "mine:make_env", "-b", "for-loop", *BRIEF, "-q", world=fake_world()).status == 0
    (path,) = Path(".vebench").glob("*.jsonl")
    assert path.stem.endswith("-mine-make-env")


def test_arguments_make_another_task_with_rows_of_its_own(vebench: Command, tmp_path: Path) -> None:
    envs = "CartPole,CartPole[max_episode_steps=4]"
    done = vebench("run", "-e", envs, "-b", "gym-sync", *BRIEF, "-q", "-o", "run.jsonl", world=world_here())
    assert done.status == 0, done.err
    short = [
        cell
        for cell in store.read(tmp_path / "run.jsonl").cells
        if cell.env == "CartPole-v1[max_episode_steps=4]" and cell.backend != "yardstick"
    ]
    assert len(short) == 2
    for cell in short:  # of every five rows one reports a reset
        assert sum(window.resets for window in cell.windows) > sum(window.rows for window in cell.windows) // 6
    plan = vebench("run", "-e", envs, "-b", "envpool-sync,gym-sync", "--dry-run", "-w", "1", world=fake_world()).out
    why = "EnvPool has no CartPole-v1[max_episode_steps=4]"
    assert why in " ".join(plan.split())


INVALID = """
    import gymnasium
    import numpy as np
    from gymnasium.spaces import Box, Discrete

    SEEN = {"type": np.zeros(2), "hole": np.array([0, np.nan], np.float32)}

    class Invalid(gymnasium.Env):
        observation_space, action_space, count = Box(-1, 1, (2,), np.float32), Discrete(2), 0

        def __init__(self, what):
            self.reward = {"none": None, "nan": float("nan")}.get(what, 1.0)
            self.seen = SEEN.get(what, np.zeros(2, np.float32))

        def reset(self, *, seed=None, options=None):
            self.count = 0
            return self.seen, {}

        def step(self, action):
            self.count += 1
            return self.seen, self.reward if self.count == 3 else 1.0, False, self.count == 7, {}
"""


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("nan", "the reward is nan, in step 3 after a reset"),
        ("none", "the reward is None, in step 3 after a reset"),
        ("type", "observations are float64(2,), not float32(2,) as declared, in a reset"),
        ("hole", "observations hold NaN, in a reset"),
    ],
)
def test_bad_values_of_an_environment_are_named_though_all_backends_agree(
    vebench: Command, tmp_path: Path, what: str, words: str
) -> None:
    (tmp_path / "invalid.py").write_text(dedent(INVALID))
    asked = ("-e", f"invalid:Invalid[what={what}]", "-b", "gym-sync")
    done = vebench("verify", *asked, "--steps", "30", "-f", "json", world=world_here(layouts=2))
    (verdict,) = json.loads(done.out)
    assert (done.status, verdict["verdict"]) == (0, "identical")
    assert verdict["invalid"].startswith(words)
    run = ("run", *asked, *BRIEF, "--no-base", "-q", "-o", "run.jsonl")
    assert vebench(*run, world=world_here()).status == 0
    (cell,) = (row for row in json.loads(vebench("report", "run.jsonl", "-f", "json").out) if row["proof"])
    (finding,) = (finding for finding in cell["findings"] if finding["code"] == "invalid-values")
    assert cell["proof"] == "identical"
    assert words in finding["message"]


NESTED = ("-e", "odd:odd/Nested-v0")


# What is said of each adapter of ``nested.py``, and which array differs, None if no row does.
FAULTS: dict[str, tuple[str, str | None]] = {
    "OtherType": ("observations/arm/0 float32(3,) instead of float64(3,)", "arm/0"),
    "Rounded": ("observations/arm/0 ", "arm/0"),
    "Blind": ("observations/camera nothing instead of a value", "camera"),
    "Lists": ("observations/arm are a list, not a NumPy array", None),
    "Numbered": ("observations have keys that are not strings", None),
    "Short": ("rows were counted but not returned: ", None),
    "StaleCamera": ("observations/camera ", "camera"),
    "Dirty": ("step 40: observations/camera ", "camera"),
    "Overwrites": ("observations/arm/1 change after recv() returned them", None),
    "Loose": ("step 1: observations/camera ", "camera"),
    "Deaf": ("step 1: observations/arm/0 ", "arm/0"),
    "Narrow": ("the action space is not the task's: bounds, shape or type differ (move)", None),
}


def test_a_fault_in_one_array_of_many_is_named(vebench: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vebench.equality.verify.EXAMPLE_S", 0.0)
    honest = ("nested:Honest", "shm-async")
    backends = ",".join((*honest, *(f"nested:{adapter}" for adapter in FAULTS)))
    asked = ("verify", *NESTED, "-b", backends, "--steps", "45", "--num-envs", "3", "--seed", "1", "-f", "json")
    done = vebench(*asked, world=world_here(layouts=1))
    verdicts = {each["backend"]: each for each in json.loads(done.out)}
    assert done.status == 1
    for name in honest:
        assert verdicts[name]["verdict"] == "identical", verdicts[name]
    for adapter, (fault, leaf) in FAULTS.items():
        verdict = verdicts[f"nested:{adapter}"]
        assert verdict["verdict"] == "different", verdict
        assert fault in verdict["summary"], verdict
        assert (verdict["parting"] or {}).get("leaf") == leaf, verdict


@pytest.mark.parametrize(
    ("adapter", "fault"), [("DirtyLater", ": observations/camera "), ("Overwrites", "change after recv()")]
)
def test_a_measured_cell_is_proven_array_by_array(vebench: Command, tmp_path: Path, adapter: str, fault: str) -> None:
    run = ("run", *NESTED, "-b", f"nested:{adapter}", "--no-base", *BRIEF, "-q", "-o", "run.jsonl")
    status = vebench(*run, world=world_here()).status
    (cell,) = store.read(tmp_path / "run.jsonl").cells
    assert (status, cell.proof.verdict) == (1, "different")
    assert fault in " ".join(vebench("report", "run.jsonl").out.split())


@pytest.mark.parametrize(
    ("backend", "policy"), [("gym-sync", "policies:by_the_camera"), ("shm-async[recv_timeout=0.001]", "sleep:10us")]
)
def test_a_policy_acts_on_dicts_and_what_it_drove_is_compared(vebench: Command, backend: str, policy: str) -> None:
    run = ("run", *NESTED, "-b", backend, "--no-base", *BRIEF[:-1], "2", "-q", "-o", "run.jsonl")
    assert vebench(*run, "--policy", policy, world=world_here()).status == 0
    (cell,) = store.read(Path("run.jsonl")).cells
    assert cell.reason is None
    assert cell.proof.verdict == "identical"


def test_actions_of_another_form_are_the_reason_of_the_cell(vebench: Command, tmp_path: Path) -> None:
    run = ("run", *NESTED, "-b", "gym-sync", "--no-base", *BRIEF, "-q", "-o", "run.jsonl")
    assert vebench(*run, "--policy", "policies:without_a_grip", world=world_here()).status == 1
    (cell,) = store.read(tmp_path / "run.jsonl").cells
    assert cell.reason == (
        "ValueError: the policy did not return actions as {dials: (array, array), grip, move}: KeyError('grip')"
    )
