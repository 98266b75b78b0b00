"""Compares vebench's rates of simulators that step whole batches with the rates of each library's own loop.

``python tools/own_loops.py [LOOP ...] [--sizes LOOP=N,N] [--python LIBRARY=PATH] [--passes N] [--seconds S]``

LOOP is a name in ``LOOPS``, by default all. A pass measures a cell by ``vebench run``, and the own loop, which
is written as its documentation does, on the same CPUs. The next pass has the other order. Actions are drawn beforehand,
except in rollouts. Prints vebench's rate divided by the own loop's: the geometric mean over passes with a 95 %
interval. Own loops run in the Pythons of ``vebench install``, unless ``--python`` names others. ``torch``
needs ``--python torch=PATH``, a Python with torch and vebench, where both sides run. About ten minutes on two CPUs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from itertools import cycle
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from evidence import table

if TYPE_CHECKING:
    from collections.abc import Callable

TAPE = 64  # batches of actions, which are played again and again
STEPS = 128  # of a rollout, as in ``LOOPS``
HERE = Path(__file__).resolve().parent


class TorchWalk:
    """A batch of random walks in torch. A step that ends an episode returns the next start."""

    def __init__(self, num_envs: int) -> None:
        import torch
        from gymnasium.spaces import Box, Discrete

        self.metadata = {"autoreset_mode": "SameStep"}
        self.single_observation_space, self.single_action_space = Box(-99, 99, (4,)), Discrete(2)
        self.num_envs, self._torch, self._strides = num_envs, torch, torch.arange(1.0, 5.0)

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        """Start all walks at the origin."""
        self._places = self._torch.zeros(self.num_envs, 4)
        return self._places, {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Make one step of all walks."""
        places = self._places + (2 * actions[:, None] - 1) * self._strides
        ended = places.abs().amax(1) > 20
        self._places = self._torch.where(ended[:, None], 0.0, places)
        return self._places, self._torch.ones(self.num_envs), ended, self._torch.zeros_like(ended), {}

    def close(self) -> None:
        """Do nothing."""


def gymnax_loop(n: int, deliver: str) -> Callable[[], object]:
    """Return a call that makes a step, or a rollout, of CartPole, as gymnax's README does."""
    import gymnax
    import jax

    env, params = gymnax.make("CartPole-v1")
    many = jax.vmap(env.step, (0, 0, 0, None))

    @jax.jit
    def step(key: Any, state: Any, actions: Any) -> Any:
        key, of_step = jax.random.split(key)
        observations, state, *row, _ = many(jax.random.split(of_step, n), state, actions, params)
        return (key, state), (observations, *row)

    def random_step(carried: Any, _: None) -> Any:
        key, of_action = jax.random.split(carried[0])
        return step(key, carried[1], jax.random.randint(of_action, (n,), 0, 2))

    @jax.jit
    def roll(*carried: Any) -> Any:
        return jax.lax.scan(random_step, carried, None, STEPS)

    tape = np.random.default_rng(0).integers(0, 2, (TAPE, n), np.int32)
    actions = cycle([*map(jax.device_put, tape)] if deliver == "device" else tape)
    key = jax.random.key(0)
    carried = key, jax.vmap(env.reset, (0, None))(jax.random.split(key, n), params)[1]

    def call() -> object:
        nonlocal carried
        carried, rows = roll(*carried) if deliver == "rollout" else step(*carried, next(actions))
        return jax.tree.map(np.asarray, rows) if deliver == "host" else rows

    return call


def brax_loop(n: int, backend: str) -> Callable[[], object]:
    """Return a call that makes a step of brax's halfcheetah, and returns its rows on the host."""
    import jax
    from brax import envs

    env = envs.create("halfcheetah", backend=backend, batch_size=n)
    step, state = jax.jit(env.step), jax.jit(env.reset)(jax.random.PRNGKey(0))
    actions = cycle(np.random.default_rng(0).uniform(-1, 1, (TAPE, n, 6)).astype(np.float32))

    def call() -> object:
        nonlocal state
        state = step(state, next(actions))
        return jax.tree.map(np.asarray, (state.obs, state.reward, state.done, state.info["truncation"]))

    return call


def warp_loop(n: int, model_file: str) -> Callable[[], object]:
    """Return a call that makes five sub-steps of HalfCheetah's model, as MuJoCo Warp's README does."""
    import mujoco
    import mujoco_warp

    host_model = mujoco.MjModel.from_xml_path(model_file)
    model, data = mujoco_warp.put_model(host_model), mujoco_warp.make_data(host_model, nworld=n)
    actions = cycle(np.random.default_rng(0).uniform(-1, 1, (TAPE, n, 6)).astype(np.float32))

    def call() -> object:
        data.ctrl.assign(next(actions))
        for _ in range(5):
            mujoco_warp.step(model, data)
        return data.qpos.numpy(), data.qvel.numpy()

    return call


def vector_loop(n: int, which: str) -> Callable[[], object]:
    """Return a call that makes a step of a vector environment: Gymnasium's CartPole, or the walks in torch."""
    tape = np.random.default_rng(0).integers(0, 2, (TAPE, n))
    if which == "torch":
        import torch

        env: Any = TorchWalk(n)
        actions: Any = cycle(map(torch.from_numpy, tape))
    else:
        import gymnasium

        env, actions = gymnasium.make_vec("CartPole-v1", n, vectorization_mode="vector_entry_point"), cycle(tape)
    env.reset(seed=0)
    return lambda: env.step(next(actions))


class Loop(NamedTuple):
    """An own loop, the library whose Python it needs, and the cell of vebench that steps the same environments."""

    make: Callable[[int, str], Callable[[], object]]
    argument: str
    library: str
    env: str
    backend: str
    sizes: str


LOOPS = {
    "gymnax-host": Loop(gymnax_loop, "host", "gymnax", "gymnax:CartPole-v1", "jax", "1024,16384"),
    "gymnax-device": Loop(gymnax_loop, "device", "gymnax", "gymnax:CartPole-v1", "jax[deliver=device]", "1024,16384"),
    "gymnax-rollout": Loop(gymnax_loop, "rollout", "gymnax", "gymnax:CartPole-v1", "jax[rollout=128]", "1024,16384"),
    "brax": Loop(brax_loop, "spring", "brax", "brax:halfcheetah[backend=spring]", "jax", "64"),
    "warp": Loop(warp_loop, "half_cheetah.xml", "mujoco-warp", "mujoco_warp:HalfCheetah", "native", "16,64"),
    "gymnasium": Loop(vector_loop, "gymnasium", "", "CartPole-v1", "gym-vector", "16,1024"),
    "torch": Loop(vector_loop, "torch", "torch", "own_loops:TorchWalk", "native[deliver=device]", "1024,16384"),
}


def serve(name: str, n: str, argument: str, cpus: str) -> None:
    """For each line of standard input, step an own loop for so many seconds. Print rows per second."""
    os.sched_setaffinity(0, map(int, cpus.split(",")))
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    call, rolls = LOOPS[name].make(int(n), argument), argument == "rollout"
    wait = sys.modules["jax"].block_until_ready if "jax" in sys.modules else lambda _: None
    wait(call())  # compiles
    print("ready", file=answers)
    for line in sys.stdin:
        for seconds in (float(line) / 4, float(line)):  # the first is a warm-up
            begin, calls = time.perf_counter(), 0
            while time.perf_counter() - begin < seconds:
                result = call()
                calls += 1
                if rolls or calls % TAPE == 0:  # otherwise, the queue of a device grows
                    wait(result)
            wait(result)
            rate = calls * int(n) * (STEPS if rolls else 1) / (time.perf_counter() - begin)
        print(rate, file=answers)


def measured(python: str, loop: Loop, n: int, seconds: float) -> tuple[float, list[int]]:
    """Return vebench's rows per second of a cell in one pass, and the cell's CPUs."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.jsonl"
        words = ["-e", loop.env, "-b", loop.backend, "-w", "1", "--envs-per-worker", str(n), "--no-base", "-q"]
        words += ["--passes", "1", "--windows", "4", "--duration", f"{seconds / 4}s", "--proof", "off"]
        command = [python, "-m", "vebench", "run", *words, "--timeout", "10m", "-o", str(file)]
        done = subprocess.run(command, cwd=HERE, check=False, capture_output=True, text=True)
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    for line in lines:
        if line.get("status") == "ok":
            windows = line["windows"]
            return sum(one["rows"] for one in windows) * 1e9 / sum(one["ns"] for one in windows), line["cpus"]
    sys.exit(f"{' '.join(command)}: {done.stderr}{[line.get('reason') for line in lines]}")


def compared(python: str, own: Loop, name: str, n: int, asked: argparse.Namespace) -> list[tuple[float, float]]:
    """Return the rates of the own loop and of vebench in each pass."""
    with_vebench = python if own.library == "torch" else sys.executable
    _, cpus = measured(with_vebench, own, n, asked.seconds / 4)
    command = [python, __file__, "--serve", name, str(n), own.argument, ",".join(map(str, cpus))]
    pairs = []
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, bufsize=1, **pipes) as process:
        if process.stdout.readline() != "ready\n":
            sys.exit(f"{name} does not start: {' '.join(command)}")

        def own_rate() -> float:
            print(asked.seconds, file=process.stdin)
            return float(process.stdout.readline())

        for number in range(asked.passes):
            before = own_rate() if number % 2 else 0.0
            ours, _ = measured(with_vebench, own, n, asked.seconds)
            pairs.append((before or own_rate(), ours))
    return pairs


def main() -> None:
    """Measure, and print a row for each loop and size."""
    from gymnasium.envs import mujoco
    from scipy.stats import t

    from vebench.interpreters import python_of

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loops", nargs="*", metavar="LOOP", help=", ".join(LOOPS))
    parser.add_argument("--sizes", action="append", default=[])
    parser.add_argument("--python", action="append", default=[])
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    asked = parser.parse_args()
    sizes, pythons = (dict(each.split("=") for each in pairs) for pairs in (asked.sizes, asked.python))
    rows = []
    for name in asked.loops or LOOPS:
        loop = LOOPS[name]
        python = (pythons.get(loop.library) or python_of(loop.library)) if loop.library else sys.executable
        if python is None:
            print(f"{name} is left out: no Python with {loop.library}", file=sys.stderr)
            continue
        if name == "warp":
            loop = loop._replace(argument=str(Path(mujoco.__file__).parent / "assets" / loop.argument))
        for n in map(int, sizes.get(name, loop.sizes).split(",")):
            logs = np.log(compared(python, loop, name, n, asked))
            ratios = (logs[:, 1] - logs[:, 0]).tolist()
            half = t.ppf(0.975, len(ratios) - 1) * stdev(ratios) / math.sqrt(len(ratios))
            low, middle, high = (math.exp(fmean(ratios) + far) for far in (-half, 0, half))
            rows.append((name, n, f"{middle:.2f} ({low:.2f} to {high:.2f})"))
    print(table(("loop", "environments", "vebench's rate to the own loop's"), rows))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:])
    else:
        main()
