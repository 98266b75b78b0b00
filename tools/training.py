"""How fast real algorithms train with each sampler: steps/s, learning included, and the share of sampling.

    pip install -c tests/constraints.txt -e '.[atari,envpool,mujoco,torch]' stable-baselines3 tensorboard tyro
    git clone https://github.com/vwxyzjn/cleanrl && python tools/training.py --cleanrl cleanrl --write

Without a selection, the rows of docs/evidence/training.md are measured. With one, all that it allows:

    python tools/training.py --env Pong --algorithm ppo,sb3-ppo --envs 8,64

CleanRL's scripts run unchanged on other ``envs``; ``ppo`` and ``impala`` are in docs/examples. Settings take turns, in
a process for each measurement. After a warm-up of a second, with an update at least, whole updates are timed.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import runpy
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from evidence import record, table

from vebench.backends.fast import make_vec
from vebench.backends.shared_memory import SharedMemoryVectorEnv

sys.path.insert(0, str(Path(__file__).parents[1] / "docs" / "examples"))

WARM_UP, LIMIT = 1.0, 60.0  # seconds: before the clock starts; for the rest of a measurement
TASKS = {"HalfCheetah": "HalfCheetah-v5", "Pong": "ALE/Pong-v5", "1ms": "vebench/Busy-1000us-v0"}
ROWS = {"HalfCheetah": 2048, "Pong": 512, "1ms": 512}  # of an update of PPO
SCRIPTS = {"HalfCheetah": "ppo_continuous_action.py", "Pong": "ppo_atari.py", "1ms": "ppo.py"}  # of CleanRL
COLUMNS = ("algorithm", "environment", "sampler", "share", "envs", "steps/s", "relative to the baseline", "sampling, %")
SAMPLERS, SHARES = ("sync", "async", "subproc", "envpool", "shm", "fast"), ("one", "all", "apart")
ALGORITHMS = {  # with the samplers that their libraries take; the first is the baseline
    **dict.fromkeys(("cleanrl-ppo", "ppo"), ("async", "sync", "envpool", "shm", "fast")),
    "impala": ("async", "envpool", "shm", "fast"),
    **dict.fromkeys(("sb3-ppo", "sb3-sac", "sb3-dqn"), ("subproc", "sync", "shm", "fast")),
}
WITHOUT = {"HalfCheetah": {"sb3-dqn"}, "Pong": {"sb3-sac"}, "1ms": {"sb3-sac", "envpool", "fast"}}
# The rows of docs/evidence/training.md: algorithms, environments, samplers, shares, numbers of environments.
PAGE = """
cleanrl-ppo,impala HalfCheetah,Pong sync,async,envpool,fast one 8
cleanrl-ppo HalfCheetah,Pong fast all 8
cleanrl-ppo,impala HalfCheetah fast apart 8
cleanrl-ppo 1ms shm all,apart 8
cleanrl-ppo,sb3-ppo,impala HalfCheetah,1ms async,subproc,shm one 8
sb3-ppo,sb3-sac,sb3-dqn,impala HalfCheetah,Pong async,subproc,fast one 8
""".strip().splitlines()


@dataclass(frozen=True)
class Setting:
    """One row of the table."""

    algorithm: str
    env: str
    sampler: str
    share: str
    envs: int


class Finished(Exception):  # noqa: N818 - it is not an error
    """Ends a library's loop when the measurement is over. It has steps/s and the share of sampling."""


class Meter:
    """Times an algorithm between two of its steps that are whole updates apart."""

    def __init__(self, rows: int, period: int, seconds: float) -> None:
        self.rows, self.period = rows, period
        self.seconds = seconds
        self.warm = False
        self.begin(time.perf_counter())

    def begin(self, now: float) -> None:
        """Count and time steps from now on."""
        self.start = now
        self.count, self.waited = 0, 0.0

    def step(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """Return ``step(*arguments)``. Raises Finished instead at the end of the measurement."""
        begun = time.perf_counter()
        passed = begun - self.start
        if self.count > 0 and self.count % self.period == 0:  # an update has just ended
            if self.warm and passed >= self.seconds:
                raise Finished(self.rows * self.count / passed, self.waited / passed)
            if not self.warm and passed >= WARM_UP:
                self.warm = True
                self.begin(begun)
        result = step(*arguments)
        self.waited += time.perf_counter() - begun
        self.count += 1
        return result


def make_envs(setting: Setting, cpus: int) -> Any:
    """Return the environments in the sampler, which may use ``cpus`` CPUs."""
    import envpool
    import timed  # noqa: F401 - registers the environment of 1 ms
    from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
    from ppo import make_env
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    from vebench.backends.shared_memory import StableBaselinesVecEnv

    task, count = TASKS[setting.env], setting.envs
    make = partial(make_env, task)
    overlapping = setting.algorithm == "impala"
    in_sb3 = "subproc" in ALGORITHMS[setting.algorithm]
    batch = count // 2 if overlapping else count
    # A caller that has CPUs of its own, or acts while environments step, does not step them.
    ours: dict[str, Any] = {"num_processes": cpus, "caller_steps": setting.share != "apart" and not overlapping}
    if setting.sampler == "envpool":
        return envpool.make_gymnasium(task.removeprefix("ALE/"), num_envs=count, batch_size=batch, num_threads=cpus)
    if setting.sampler == "fast":
        envs: Any = make_vec(task, count, batch_size=batch, autoreset_mode="SameStep" if in_sb3 else "NextStep", **ours)
        return StableBaselinesVecEnv(envs) if in_sb3 else envs
    if in_sb3:
        kind, arguments = {
            "sync": (DummyVecEnv, {}),
            "subproc": (SubprocVecEnv, {"start_method": "fork"}),  # its default imports torch in each process
            "shm": (StableBaselinesVecEnv, ours),
        }[setting.sampler]
        return make_vec_env(make, count, vec_env_cls=kind, vec_env_kwargs=arguments)
    if setting.sampler == "shm":
        return SharedMemoryVectorEnv([make] * count, batch_size=batch, **ours)
    if setting.sampler == "sync":
        return SyncVectorEnv([make] * count)
    envs = AsyncVectorEnv([make] * count)
    envs.send = lambda actions, _: envs.step_async(actions)
    envs.recv = lambda: (*envs.step_wait(), list(range(count)))
    return envs


def learn(envs: Any, setting: Setting, checkout: str) -> None:
    """Run the algorithm for more steps than it will take."""
    import gymnasium
    import impala
    import ppo
    import stable_baselines3 as sb3

    steps, many = ROWS[setting.env] // setting.envs, 10**9
    pixels = setting.env == "Pong"
    if setting.algorithm == "impala":
        impala.train(envs, many, seed=1)
    elif setting.algorithm == "ppo":
        ppo.STEPS = steps
        ppo.train(ppo.wrapped(envs), many, seed=1)
    elif setting.algorithm == "cleanrl-ppo":
        gymnasium.vector.SyncVectorEnv = lambda _: ppo.wrapped(envs)  # the script calls this
        script = str(Path(checkout, "cleanrl", SCRIPTS[setting.env]))
        sys.path.insert(0, checkout)
        counts = f"--num-envs={setting.envs}", f"--num-steps={steps}", f"--total-timesteps={many}"
        sys.argv = [script, "--no-cuda", *counts]
        runpy.run_path(script, run_name="__main__")
    else:
        # The library's defaults; for games, PPO has RL Zoo's. SAC updates once per step, DQN once per four.
        of_games: dict[str, Any] = {"batch_size": 256, "n_epochs": 4} if pixels else {}
        kind, settings = {
            "sb3-ppo": (sb3.PPO, {"n_steps": steps, **of_games}),
            "sb3-sac": (sb3.SAC, {"gradient_steps": -1, "buffer_size": 100_000}),
            "sb3-dqn": (sb3.DQN, {"gradient_steps": setting.envs, "buffer_size": 10_000}),
        }[setting.algorithm]
        kind("CnnPolicy" if pixels else "MlpPolicy", envs, device="cpu", **settings).learn(many)


def train(setting: Setting, seconds: float, checkout: str) -> None:
    """Train in this process until Finished is raised."""
    import impala
    import torch

    cpus = sorted(os.sched_getaffinity(0))
    quarter = max(1, len(cpus) // 4)
    learning, stepping = (cpus[:quarter], cpus[quarter:]) if setting.share == "apart" else (cpus, cpus)
    os.sched_setaffinity(0, stepping)  # processes and threads of the sampler inherit it
    envs = make_envs(setting, len(stepping))
    os.sched_setaffinity(0, learning)
    torch.set_num_threads(1 if setting.share == "one" else len(learning))
    period = {"sb3-sac": 1, "sb3-dqn": 4, "impala": 1}.get(setting.algorithm, ROWS[setting.env] // setting.envs)
    rows = impala.UNROLL * impala.UNROLLS if setting.algorithm == "impala" else setting.envs
    meter = Meter(rows, period, seconds)
    # IMPALA learns while its environments step, and waits for finished unrolls.
    envs.step, impala.next_unrolls = partial(meter.step, envs.step), partial(meter.step, impala.next_unrolls)
    try:
        learn(envs, setting, checkout)
    finally:
        envs.close()


def in_child(pipe: Any, setting: Setting, seconds: float, checkout: str) -> None:
    """Train, and send steps/s and the share of sampling, or the reason why there is neither."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # CleanRL writes logs
        try:
            train(setting, seconds, checkout)
        except Finished as finished:
            pipe.send(dict(zip(("rate", "sampling"), finished.args, strict=True)))
        except Exception as error:  # noqa: BLE001 - any failure is a result
            pipe.send({"failed": f"{type(error).__name__}: {error}"})


def measure(setting: Setting, seconds: float, checkout: str) -> Any:
    """Train in a process of its own, and return what it sends."""
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    process = fork.Process(target=in_child, args=(sender, setting, seconds, checkout))
    process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(LIMIT + seconds) else {"failed": f"took over {LIMIT + seconds:.0f} s"}
    except EOFError:
        return {"failed": "its process died"}
    finally:
        process.join(5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.join()


def middle(values: list[float], form: str) -> str:
    """Return the median, the lowest and the highest, or ``-``."""
    if not values:
        return "-"
    return f"{format(median(values), form)} ({format(min(values), form)} to {format(max(values), form)})"


def rows_of(results: dict[Setting, list[Any]]) -> Iterator[list[str]]:
    """Yield a row for each setting: for each algorithm and environment, the fastest first."""
    rates = {setting: [one.get("rate", 0.0) for one in found] for setting, found in results.items()}
    for setting in sorted(results, key=lambda each: (each.algorithm, each.env, -median(rates[each] or [0.0]))):
        base = rates.get(replace(setting, sampler=ALGORITHMS[setting.algorithm][0], share="one"), [])
        ratios = [rate / first for rate, first in zip(rates[setting], base, strict=False) if rate and first]
        shares = [100 * one["sampling"] for one in results[setting] if "rate" in one]
        failed = [one["failed"] for one in results[setting] if "failed" in one]
        done = middle([rate for rate in rates[setting] if rate], ",.0f")
        yield [*map(str, astuple(setting)), ", ".join([done, *failed]), middle(ratios, ".2f"), middle(shares, ".0f")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    for name, words in (("--algorithm", ALGORITHMS), ("--env", TASKS), ("--sampler", SAMPLERS)):
        add(name, help=f"some of {','.join(words)}")
    add("--share", help="torch has: one (thread), all (a thread for each CPU), apart (a quarter of the CPUs alone)")
    add("--envs", help="numbers of environments, such as 8,64")
    add("--seconds", type=float, default=2.5, help="of a measurement, at least")
    add("--repeats", type=int, default=3)
    add("--minutes", type=float, default=12.0, help="in the last one, no measurement begins")
    add("--cleanrl", default="", help="a checkout of github.com/vwxyzjn/cleanrl")
    add("--write", action="store_true", help="file the table, and renew docs/evidence/training.md")
    given = parser.parse_args()
    import stable_baselines3  # noqa: F401 - once for all processes, with torch

    asked = [given.algorithm, given.env, given.sampler, given.share, given.envs]
    usual = [*map(",".join, (ALGORITHMS, TASKS, SAMPLERS)), "one", "8"]
    selected = " ".join(one or default for one, default in zip(asked, usual, strict=True))
    rows: list[Any] = []
    for line in [selected] if any(asked) else PAGE:
        rows += product(*(words.split(",") for words in line.split()))
    if unknown := {word for row in rows for word in row[:4]}.difference(ALGORITHMS, TASKS, SAMPLERS, SHARES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    results: dict[Setting, list[Any]] = {}
    for *words, envs in rows:
        setting = Setting(*words, int(envs))
        if setting.sampler in ALGORITHMS[setting.algorithm] and not WITHOUT[setting.env].intersection(words):
            results[setting] = []
    ends = time.monotonic() + 60 * given.minutes - LIMIT - given.seconds
    for repeat, setting in product(range(given.repeats), results):
        if time.monotonic() < ends:
            results[setting].append(measure(setting, given.seconds, str(Path(given.cleanrl).resolve())))
            print(repeat + 1, setting, results[setting][-1], file=sys.stderr, flush=True)
    print(table(COLUMNS, rows_of(results)))
    if given.write:
        record("training", "Samplers in real algorithms", COLUMNS, rows_of(results))


if __name__ == "__main__":
    main()
