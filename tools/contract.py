"""Run the contract of ``vebench.testing`` on several vector environments, and print what each fails.

``python tools/contract.py [PYTEST-OPTION ...]``

Gymnasium's and vebench's are run in each autoreset mode, and Stable-Baselines3's and EnvPool's if they are
installed. Below the table is a line of each failure.
"""

from __future__ import annotations

import multiprocessing
import sys
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_space

from vebench.backends.shared_memory import SharedMemoryVectorEnv
from vebench.testing import VectorEnvContract

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PASSED, FAILED, SKIPPED = "✓", "**✗**", ""
LETTERS = {AutoresetMode.NEXT_STEP: "N", AutoresetMode.SAME_STEP: "S", AutoresetMode.DISABLED: "D"}


class Baselines:
    """The interface of Gymnasium's vector environments on Stable-Baselines3's, as far as it has what that needs."""

    def __init__(self, envs: Any) -> None:  # noqa: ANN401 - a VecEnv
        self.envs = envs
        self.num_envs = envs.num_envs
        self.single_observation_space, self.single_action_space = envs.observation_space, envs.action_space
        self.observation_space = batch_space(envs.observation_space, envs.num_envs)
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401
        if isinstance(seed, list):
            raise TypeError("seed() takes one number")
        if seed is not None:
            self.envs.seed(seed)
        self.envs.set_options(options)
        return self.envs.reset(), self.batched(self.envs.reset_infos)

    def step(self, actions: Any) -> tuple[Any, ...]:  # noqa: ANN401 - of any space
        self.envs.step_async(actions)
        return self.step_wait()

    def step_wait(self) -> tuple[Any, ...]:
        observations, rewards, ends, infos = self.envs.step_wait()
        truncated = np.array([info.get("TimeLimit.truncated", False) for info in infos])
        return observations, rewards, ends & ~truncated, ends & truncated, self.batched(infos)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of an interface that waits apart
        if name != "step_async" or not hasattr(self.envs, "processes"):
            raise AttributeError(name)
        return self.envs.step_async

    def batched(self, infos: Sequence[dict[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for index, info in enumerate(infos):
            for key, value in info.items():
                name = {"terminal_observation": "final_obs"}.get(key, key)
                found.setdefault(name, np.full(len(infos), None, object))[index] = value
                found.setdefault(f"_{name}", np.zeros(len(infos), bool))[index] = True
        return found

    def close(self) -> None:
        self.envs.close()


def contract(**make: Callable[..., Any]) -> type:
    """Return the contract of what this makes."""
    return type("Contract", (VectorEnvContract,), {"limit": 5.0, **make})


def gymnasium_like(make: Callable[..., Any]) -> dict[str, type]:
    """Return the contract of such a class in each mode, by the mode's letter."""

    def of(mode: AutoresetMode) -> type:
        return contract(make=lambda _, env_fns: make(env_fns, autoreset_mode=mode))

    return {letter: of(mode) for mode, letter in LETTERS.items()}


def contracts() -> dict[str, dict[str, type]]:
    """Return the contracts to run by the heading of their column, and the letter of their mode."""
    found = {
        "SyncVectorEnv": gymnasium_like(SyncVectorEnv),
        "AsyncVectorEnv": gymnasium_like(AsyncVectorEnv),
        "AsyncVectorEnv, pickled": gymnasium_like(partial(AsyncVectorEnv, shared_memory=False)),
        "SharedMemoryVectorEnv": gymnasium_like(SharedMemoryVectorEnv),
        "SharedMemoryVectorEnv, caller_steps": gymnasium_like(partial(SharedMemoryVectorEnv, caller_steps=True)),
    }
    if find_spec("stable_baselines3"):
        from stable_baselines3.common import vec_env

        for name in ("DummyVecEnv", "SubprocVecEnv"):
            make = getattr(vec_env, name)
            found[name] = {"S": contract(make=lambda _, env_fns, make=make: Baselines(make(env_fns)))}
    if find_spec("envpool"):
        import envpool

        make_vec = partial(envpool.make, "CartPole-v1", env_type="gymnasium")
        found["EnvPool"] = {"N": contract(make_vec=lambda _, count: make_vec(num_envs=count))}
    return found


class Outcomes:
    """A plugin of pytest that keeps what became of each clause of each contract, and the last line of what failed."""

    def __init__(self) -> None:
        self.marks: dict[tuple[str, str], str] = {}
        self.said: dict[tuple[str, str], str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        _, contract, clause = report.nodeid.split("::")
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.marks[contract, clause] = FAILED
            self.said.setdefault((contract, clause), (crash.message if crash else str(report.longrepr)).split("\n")[0])
        elif report.when == "call" or report.skipped:
            self.marks.setdefault((contract, clause), SKIPPED if report.skipped else PASSED)


def main(options: Sequence[str]) -> None:
    plugin = Outcomes()
    settings = {"python_files": "contract.py", "addopts": "", "filterwarnings": "ignore"}
    replaced = [f"--override-ini={name}={value}" for name, value in settings.items()]
    quiet = ("-q", "--no-header", "--no-summary", "-p", "no:cacheprovider")
    pytest.main([__file__, "--numprocesses=2", *replaced, *quiet, *options], [plugin])
    order = [*vars(VectorEnvContract)]
    clauses = sorted({clause for _, clause in plugin.marks}, key=lambda clause: order.index(clause.partition("[")[0]))
    print("| clause |", " | ".join(COLUMNS), "|")
    print("| --- |", " | ".join(":-:" for _ in COLUMNS), "|")
    sound = []
    for clause in clauses:
        cells = []
        for column, modes in COLUMNS.items():
            marks = {letter: plugin.marks.get((f"Test_{column}_{letter}", clause), SKIPPED) for letter in modes}
            bad = "".join(letter for letter, mark in marks.items() if mark == FAILED)
            one = FAILED if bad else PASSED if PASSED in marks.values() else SKIPPED
            cells.append(f"{one} {bad}" if 0 < len(bad) < len(marks) else one)
        name = clause.removeprefix("test_").replace("_", " ")
        if FAILED in "".join(cells):
            print("|", " | ".join([name, *cells]), "|")
        else:
            sound.append(name)
    print("None fails:", ", ".join(sound))
    for (contract, clause), line in plugin.said.items():
        print(contract.removeprefix("Test_"), clause.removeprefix("test_"), line, sep=": ")
    print(*(f"{name} {version(name)}" for name in ("gymnasium", "stable_baselines3", "envpool") if find_spec(name)))


COLUMNS = contracts()
for _column, _modes in COLUMNS.items():
    for _letter, _contract in _modes.items():
        globals()[f"Test_{_column}_{_letter}"] = _contract

if __name__ == "__main__":
    main(sys.argv[1:])
elif find_spec("stable_baselines3"):  # its processes import it, and PyTorch, for longer than a clause may take
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["stable_baselines3", "vebench.testing"])
    first = server.Process()
    first.start()
    first.join()
