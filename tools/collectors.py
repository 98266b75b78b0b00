"""Rates of samplers that carry their own policy: RLlib's environment runners, TorchRL's collectors. Prints steps/s.

``python tools/collectors.py table [ROUNDS]`` measures each in the interpreter that ``vebench peers setup`` has made for
it, in turn with vebench's own backends, and prints a table: to be run on a quiet machine, no part of the tests.
``python tools/collectors.py COLLECTOR TASK WORKERS ENVS WINDOWS SECONDS``, for instance ``rllib CartPole-v1 2 8 5 2``,
measures one here. ``python tools/collectors.py check`` compares what RLlib's runners return of CartPole with a plain
loop that takes the same actions.

Their policy plays a table of actions, and has no network. What is counted are transitions in the hands of the caller,
who could learn from them; resets are none.
"""

from __future__ import annotations

import atexit
import json
import multiprocessing
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from loops import make_one, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS = 1024  # of the table of actions, which is played again and again
FRAGMENT = 200  # steps of each environment that are collected before the caller gets them: RLlib's default


def table(task: str, environments: int) -> np.ndarray[Any, Any]:
    """Return actions, ``(steps, environments, *action_shape)``."""
    space = make_one(task).action_space
    space.seed(7)
    return np.array([[space.sample() for _ in range(environments)] for _ in range(STEPS)])


def episodes_of_rllib(task: str, workers: int, envs: int) -> Iterator[list[list[Any]]]:
    """Yield what ``EnvRunnerGroup`` collects: for each runner its episodes, and pieces of those that go on.

    A runner is an actor with Gymnasium's ``SyncVectorEnv``; all are asked for ``sample()`` together. Its seed is that
    of the configuration plus its number, from 1 on, and environments count on: those of neighbours are alike.
    """
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # or it would write one into the home folder
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    import ray
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.columns import Columns
    from ray.rllib.core.rl_module.rl_module import RLModuleSpec
    from ray.rllib.core.rl_module.torch import TorchRLModule
    from ray.rllib.env.env_runner_group import EnvRunnerGroup
    from ray.tune.registry import register_env

    class Table(TorchRLModule):
        """Returns the next actions of the table, whatever it is shown."""

        def setup(self) -> None:
            self.table, self.step = self.model_config["table"], 0

        def _forward(self, _batch: object, **_more: object) -> dict[str, Any]:
            self.step += 1
            return {Columns.ACTIONS: self.table[(self.step - 1) % STEPS]}

    folder = tempfile.mkdtemp(prefix="ray")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(ray.shutdown)  # first, as what was registered last
    ray.init("local", num_cpus=workers, include_dashboard=False, log_to_driver=False, _temp_dir=folder)
    register_env("task", lambda _config: make_one(task))
    config = (
        PPOConfig()
        .environment("task", normalize_actions=False, clip_actions=False)
        .env_runners(num_env_runners=workers, num_envs_per_env_runner=envs, rollout_fragment_length=FRAGMENT)
        .training(train_batch_size=workers * envs * FRAGMENT)
        .rl_module(rl_module_spec=RLModuleSpec(module_class=Table, model_config={"table": table(task, envs)}))
        .debugging(seed=0)
    )
    group = EnvRunnerGroup(config=config, local_env_runner=False)
    while True:
        yield group.foreach_env_runner(lambda runner: runner.sample(), local_env_runner=False)


def rllib(task: str, workers: int, envs: int) -> Iterator[int]:
    """Yield the transitions that RLlib's runners have handed over."""
    for runners in episodes_of_rllib(task, workers, envs):
        yield sum(len(episode) for episodes in runners for episode in episodes)


def torchrl(task: str, workers: int, envs: int, collector: str) -> Iterator[int]:
    """Yield the transitions that a collector has handed over, of processes with a ``SerialEnv`` each."""
    multiprocessing.set_start_method("fork")  # or it would send them the policy, which is of no module
    import torch
    import torchrl.collectors
    from tensordict.nn import TensorDictModule
    from torchrl.envs import SerialEnv

    class Table(torch.nn.Module):
        """Returns the next actions of the table, whatever it is shown."""

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.tensor(table(task, envs)))
            self.step = 0

        def forward(self, _observation: torch.Tensor) -> torch.Tensor:
            self.step += 1
            return self.table[(self.step - 1) % STEPS]

    batches = getattr(torchrl.collectors, collector)(
        [partial(SerialEnv, envs, partial(wrapped, task))] * workers,
        TensorDictModule(Table(), in_keys=["observation"], out_keys=["action"]),
        frames_per_batch=workers * envs * FRAGMENT,
        total_frames=-1,
    )
    atexit.register(batches.shutdown)
    for batch in batches:
        yield batch.numel()


COLLECTORS = {
    "rllib": rllib,
    "torchrl-multi-sync": partial(torchrl, collector="MultiSyncCollector"),
    "torchrl-multi-async": partial(torchrl, collector="MultiAsyncCollector"),
}


def check(workers: int = 2, envs: int = 3, samples: int = 5) -> None:
    """Compare all episodes of CartPole that have ended with those of plain loops; print how many are the same."""
    task, told = "CartPole-v1", Counter[bytes]()
    for runners, _ in zip(episodes_of_rllib(task, workers, envs), range(samples), strict=False):
        for episode in (episode for episodes in runners for episode in episodes):
            pieces[episode.id_].append(episode)
            if episode.is_done:
                told[as_bytes(pieces.pop(episode.id_))] += 1
    expected = Counter[bytes]()
    for runner in range(1, workers + 1):
        expected.update(played(task, envs, runner, 2 * samples * FRAGMENT))
    same = told & expected
    print(f"{same.total()} of {told.total()} episodes that have ended are those of a plain loop")


pieces: dict[str, list[Any]] = defaultdict(list)


def as_bytes(chunks: list[Any]) -> bytes:
    """Return what an episode in pieces has shown; each piece begins with the last observation of the one before."""
    shown = [chunks[0].get_observations(), *(chunk.get_observations()[1:] for chunk in chunks[1:])]
    rewards = [chunk.get_rewards() for chunk in chunks]
    return np.concatenate(shown).tobytes() + np.concatenate(rewards).astype(np.float64).tobytes()


def played(task: str, envs: int, seed: int, steps: int) -> Iterator[bytes]:
    """Yield what episodes of a plain loop have shown, environment ``i`` seeded with ``seed + i``."""
    actions = table(task, envs)
    for index in range(envs):
        environment = make_one(task)
        shown, rewards, over = [environment.reset(seed=seed + index)[0]], [], False
        for step in range(steps):
            if over:  # as Gymnasium's vector environments have it, this action is dropped
                shown, rewards, over = [environment.reset()[0]], [], False
                continue
            observation, reward, terminated, truncated, _ = environment.step(actions[step % STEPS, index])
            shown.append(observation)
            rewards.append(reward)
            if over := terminated or truncated:
                yield np.array(shown).tobytes() + np.array(rewards, np.float64).tobytes()


# The interpreter of each, and what it counts.
TOLD = {
    "rllib": (
        "rllib",
        "steps in episodes that `EnvRunnerGroup` has returned, pieces of 200 steps for each environment",
    ),
    "torchrl-multi-sync": (
        "torchrl",
        "frames of a batch that all processes have filled, 200 steps for each environment",
    ),
    "torchrl-multi-async": ("torchrl", "frames of a batch that one process has filled, 200 steps for each environment"),
    "shm-sync": ("", "rows in the caller's hands, after each step"),
    "gym-async": ("", "the same"),
    "for-loop": ("", "the same, in one process"),
}
TASKS = ("CartPole-v1", "HalfCheetah-v5")
WORKERS, ENVS = "2", "8"
PATIENCE_S = 120.0  # with a sampler that does not come up


def print_table(rounds: int) -> None:
    """Print medians of rounds in which all take turns, with the least and the greatest."""
    print(f"steps/s, {WORKERS} workers x {ENVS}: medians of {rounds} rounds in turn, and the least and greatest")
    print(f"| sampler | {' | '.join(TASKS)} | what is counted |\n| --- | {' --- |' * (len(TASKS) + 1)}")
    rates: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(rounds):
        for name in TOLD:
            for task in TASKS:
                rates[name, task] += one_round(name, task)
    for name, (_, counted) in TOLD.items():
        cells = [as_text(rates[name, task]) for task in TASKS]
        print(f"| `{name}` | {' | '.join(cells)} | {counted} |")


def as_text(rates: list[float]) -> str:
    """Return the median with the least and the greatest, or why there is none."""
    if not rates:
        return "not measured"
    return f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"


def one_round(name: str, task: str) -> list[float]:
    """Return the median rate of one process's windows, in a list that is empty if it failed."""
    from vebench.interpreters.venvs import python_of

    interpreter = TOLD[name][0]
    if interpreter:
        if (python := python_of(interpreter)) is None:
            return []
        command = [python, __file__, name, task, WORKERS, ENVS, "3", "1"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            return []
        rates = [float(line) for line in done.stdout.splitlines() if line.replace(".", "", 1).isdigit()]
        return [statistics.median(rates)] if rates else []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        asked = ["-e", task, "-b", name, "-w", "1" if name == "for-loop" else WORKERS, "--envs-per-worker", ENVS]
        windows = ["--rounds", "3", "--duration", "1", "--repeats", "1"]
        plain = ["--set", "base=false", "--proof", "off", "-q", "-o", str(path)]
        subprocess.run([sys.executable, "-m", "vebench", "run", *asked, *windows, *plain], check=False)
        cells = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    return [
        statistics.median((window["rows"] - window["resets"]) / window["ns"] * 1e9 for window in cell["windows"])
        for cell in cells
        if cell.get("windows")
    ]


def main(collector: str, *arguments: str) -> None:
    """Warm up for as long as a window, then print the rate of each window, which ends with what was handed over."""
    if collector == "check":
        return check()
    if collector == "table":
        return print_table(int(arguments[0]) if arguments else 5)
    task, workers, envs, windows, seconds = arguments
    batches = COLLECTORS[collector](task, int(workers), int(envs))
    next(batches)
    for window in range(int(windows) + 1):
        count, start = 0, time.perf_counter()
        while (took := time.perf_counter() - start) < float(seconds):
            count += next(batches)
        if window:
            print(count / took, flush=True)
    return None


if __name__ == "__main__":
    main(*sys.argv[1:])
