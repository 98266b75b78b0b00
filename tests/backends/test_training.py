"""The programs that ``vebench tune --library`` prints: they begin to train where the library is installed."""

import importlib.util
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from support.pasting import TASKS, built

from vebench.backends.interface import Task
from vebench.backends.registry import BY_NAME
from vebench.backends.training import ALGORITHMS, LIBRARIES, Training

MODULES = {"sb3": "stable_baselines3", "cleanrl": "torch", "rllib": "ray", "tianshou": "tianshou", "torchrl": "torchrl"}
CARTPOLE, CHEETAH, PONG = TASKS
TAKEN = [(library, name) for library, known in LIBRARIES.items() for name in known.takes]

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries' own


def trained(library: str, name: str, task: Task, algorithm: str | None, folder: Path) -> dict[str, Any]:
    """Run a program as a script does, for a few steps, and return its names."""
    if importlib.util.find_spec(MODULES[library]) is None:
        pytest.skip(f"needs {LIBRARIES[library].title}: make test-all")
    entry = BY_NAME[name]
    if name == "tianshou-ray" or (why := entry.why_not(task, lambda _: True)):
        pytest.skip("needs Ray" if name == "tianshou-ray" else str(why))
    training = Training(algorithm, library, pictures=task == PONG, threads=1)
    lines = training.script(entry, built(entry, task, 2, 2))
    script: dict[str, Any] = {"__name__": "__main__", "__file__": str(folder)}
    multiprocessing.set_start_method("fork", force=True)
    exec("\n".join(lines).replace("1_000_000", "20"), script)  # noqa: S102 - that is what people do with them
    return script


@pytest.mark.parametrize(("library", "name"), TAKEN)
def test_a_program_begins_to_train(library: str, name: str, tmp_path: Path) -> None:
    names = trained(library, name, CARTPOLE, "ppo", tmp_path)
    assert "envs" in names
    ends = {"collector": "shutdown", "algorithm": "stop", "envs": "close"}
    last = next(part for part in ends if part in names)
    getattr(names[last], ends[last])()


@pytest.mark.parametrize("algorithm", [name for name in LIBRARIES["sb3"].settings if name != "ppo"])
def test_algorithms_have_settings_that_the_library_takes(algorithm: str, tmp_path: Path) -> None:
    task = CHEETAH if algorithm == "sac" else CARTPOLE
    names = trained("sb3", "shm-sync", task, algorithm, tmp_path)
    assert names["model"].num_timesteps >= 20
    names["envs"].close()


def test_every_library_and_backend_of_the_table_is_known() -> None:
    for library in LIBRARIES.values():
        assert library.takes.keys() <= BY_NAME.keys()
        assert library.settings.keys() <= ALGORITHMS.keys()
        assert not any(BY_NAME[name].asynchronous for name in library.takes)


def test_whole_batches_are_for_algorithms_that_take_turns() -> None:
    refused = {name for name in ALGORITHMS if Training(name).refusal(BY_NAME["shm-async"])}
    assert refused == set(ALGORITHMS) - {"impala"}
