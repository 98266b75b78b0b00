"""The programs that ``vebench tune --library`` prints: they begin to train where the library is installed."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from support.pasting import TASKS, built

from vebench.backends.interface import Task
from vebench.backends.registry import BY_NAME
from vebench.backends.training import ALGORITHMS, LIBRARIES, Training

MODULES = {"sb3": "stable_baselines3", "cleanrl": "torch", "rllib": "ray", "tianshou": "tianshou", "torchrl": "torchrl"}
CARTPOLE, CHEETAH, PONG = TASKS
TAKEN = [(library, name) for library, known in LIBRARIES.items() for name in known.takes]


def run(library: str, name: str, task: Task, algorithm: str, folder: Path) -> None:
    """Run a program as a user does, for a few steps."""
    if importlib.util.find_spec(MODULES[library]) is None:
        pytest.skip(f"needs {LIBRARIES[library].title}: make test-all")
    entry = BY_NAME[name]
    if not entry.has(task) or name == "tianshou-ray":
        pytest.skip("has no such task, or needs Ray")
    training = Training(algorithm, library, threads=1)
    script = folder / "train.py"
    script.write_text("\n".join(training.script(entry, built(entry, task, 2, 2))).replace("1_000_000", "20"))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("library", "name"), TAKEN)
def test_a_program_begins_to_train(library: str, name: str, tmp_path: Path) -> None:
    run(library, name, CARTPOLE, "ppo", tmp_path)


@pytest.mark.parametrize("algorithm", [name for name in LIBRARIES["sb3"].settings if name != "ppo"])
def test_algorithms_have_settings_that_the_library_takes(algorithm: str, tmp_path: Path) -> None:
    run("sb3", "shm-sync", CHEETAH if algorithm == "sac" else CARTPOLE, algorithm, tmp_path)


def test_every_library_and_backend_of_the_table_is_known() -> None:
    for library in LIBRARIES.values():
        assert library.takes.keys() <= BY_NAME.keys()
        assert library.settings.keys() <= ALGORITHMS.keys()
        assert not any(BY_NAME[name].asynchronous for name in library.takes)


def test_whole_batches_are_for_algorithms_that_take_turns() -> None:
    refused = {name for name in ALGORITHMS if Training(name).refusal(BY_NAME["shm-async"])}
    assert refused == set(ALGORITHMS) - {"impala"}


def test_there_is_no_program_for_a_backend_that_is_refused() -> None:
    for name in ("for-loop", "shm-async"):
        assert Training("ppo", "cleanrl").script(BY_NAME[name], built(BY_NAME[name], CARTPOLE)) == ()
    assert Training("ppo").script(BY_NAME["shm-async"], built(BY_NAME["shm-async"], CARTPOLE)) == ()


@pytest.mark.parametrize(
    ("task", "pictures", "policy"), [(PONG, None, "Cnn"), (PONG, False, "Mlp"), (CARTPOLE, None, "Mlp")]
)
def test_a_program_has_the_policy_that_is_usual_for_the_task(task: Task, pictures: bool | None, policy: str) -> None:
    entry = BY_NAME["sb3-subproc"]
    assert f'"{policy}Policy",' in "\n".join(Training("ppo", "sb3", pictures).script(entry, built(entry, task)))
