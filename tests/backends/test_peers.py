"""Other projects' backends in the interpreters that ``vebench install`` has made: ``make test-peers``.

They take minutes, and libraries that are not vebench's. So no other call of pytest runs them.
"""

import json
import subprocess
from pathlib import Path

import pytest
from support.commands import Command
from support.leaks import segments

from vebench.backends.entry import BackendEntry
from vebench.backends.packages import importable
from vebench.backends.registry import ENTRIES
from vebench.interpreters import folder_of, python_of
from vebench.plan.tasks import TASKS
from vebench.plan.verdicts import SAME
from vebench.process_guard import ProcessGuard, python_path

pytestmark = [pytest.mark.peers, pytest.mark.whole_machine]

MADE = folder_of("any").parent  # before tests get a cache of their own
PEERS = [entry for entry in ENTRIES if entry.library.installation is not None]
USUAL_TASKS = [TASKS[name] for name in ("Pong", "HalfCheetah", "CartPole")]
LAYOUT = (*("-w", "2", "--envs-per-worker", "3", "--windows", "3"), *("--duration", "0.3", "--passes", "1"))
LAYOUT += ("--no-interleave",)


@pytest.fixture(params=PEERS, ids=lambda entry: entry.name)
def peer(request: pytest.FixtureRequest, cache: Path) -> BackendEntry:
    """Return a peer that can run here; where its interpreter is not set up, the test is skipped."""
    entry: BackendEntry = request.param
    (cache / "vebench").mkdir(parents=True, exist_ok=True)
    (cache / "vebench" / "peers").symlink_to(MADE)
    here = all(importable(package.module) for package in entry.library.packages)
    if entry.library.installation is not None and not here and python_of(entry.library.installation.name) is None:
        pytest.skip(f"not set up: vebench install {entry.library.installation.name}")
    return entry


def asked(entry: BackendEntry) -> list[str]:
    """Return the names of the tasks that a peer can step."""
    return [task.id for task in USUAL_TASKS if entry.why_not(task, lambda _module: True) is None]


def test_a_peer_does_the_same_work_but_for_what_it_declares(vebench: Command, peer: BackendEntry) -> None:
    done = vebench("verify", "-e", ",".join(asked(peer)), "-b", peer.name, "-f", "json")
    found = {(one["env"], one["verdict"]) for one in json.loads(done.out)}
    assert {verdict for _, verdict in found} <= {*SAME}, done


@pytest.fixture
def made(request: pytest.FixtureRequest, cache: Path) -> str:
    """Return the interpreter of a suite's library; where it is not set up, the test is skipped."""
    (cache / "vebench").mkdir(parents=True, exist_ok=True)
    (cache / "vebench" / "peers").symlink_to(MADE)
    if (python := python_of(request.param)) is None:
        pytest.skip(f"not set up: vebench install {request.param}")
    return python


@pytest.mark.parametrize(
    ("made", "env", "backend", "steps"),
    [("gymnax", "gymnax:CartPole-v1", "jax", "300"), ("mujoco-warp", "mujoco_warp:HalfCheetah", "native", "20")],
    indirect=["made"],
)
@pytest.mark.usefixtures("made")
def test_each_row_of_a_batch_is_one_copy(vebench: Command, env: str, backend: str, steps: str) -> None:
    done = vebench("verify", "-e", env, "-b", backend, "--steps", steps, "--num-envs", "1", "-f", "json")
    assert [one["verdict"] for one in json.loads(done.out)] == ["identical"], done


ROLLOUT = """
import numpy as np
from vebench.backends.batched.jax_env import JaxVector
from vebench.backends.interface import Task
of_rollout, stepped = (JaxVector(Task("gymnax:CartPole-v1", "gymnax", 1), 5) for _ in range(2))
of_rollout.reset(seed=3), stepped.reset(seed=3)
actions, rows = of_rollout.rollout(40)
for first in range(0, 200, 5):
    for expected, array in zip(stepped.step(actions[first : first + 5]), rows):
        np.testing.assert_array_equal(array[first : first + 5], expected)
assert len(set(np.asarray(actions).tolist())) == 2 and np.asarray(rows[2]).any()
"""


@pytest.mark.parametrize("made", ["gymnax"], indirect=True)
def test_the_rows_of_a_rollout_are_those_of_steps_with_its_actions(made: str) -> None:
    with ProcessGuard() as guard:
        path = {"PYTHONPATH": python_path(guard.scratch)}
        subprocess.run([made, "-c", ROLLOUT], check=True, env=path, cwd=guard.scratch, timeout=120)


def test_a_peer_does_the_same_work_and_leaves_nothing(vebench: Command, peer: BackendEntry, tmp_path: Path) -> None:
    before = segments()
    done = vebench("run", "-e", asked(peer)[-1], "-b", peer.name, *LAYOUT, "-q", "-o", "run.jsonl")
    assert done.status == 0, done
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    cells = [line for line in lines if line["type"] == "cell" and line["backend"] == peer.name]
    proofs = [line["proof"]["verdict"] for line in lines if line["type"] == "proof"]
    assert [cell["status"] for cell in cells] == ["ok"]
    assert {*proofs} <= {*SAME, "unverified"}
    assert segments() == before


@pytest.mark.parametrize("fault", ["raises", "dies"])
def test_a_failing_environment_ends_its_cell_with_a_reason(
    vebench: Command, peer: BackendEntry, fault: str, tmp_path: Path
) -> None:
    if peer.scope.suites is not None:
        pytest.skip(f"{peer.name} makes its environments itself")
    done = vebench(
        "run", "-e", f"odd:odd/Faulty-{fault}-v0", "-b", peer.name, *LAYOUT, "--timeout", "60", "-q", "-o", "run.jsonl"
    )
    (line,) = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines() if peer.name in line][1:]
    assert (done.status, line["status"]) == (1, "failed"), done
    assert line["reason"]
