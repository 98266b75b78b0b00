"""What it costs that each environment has a process of its own: the time of a step, in turns, the best of many.

python tools/isolation.py --envs 8 --turns 100
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from gymnasium.vector import AsyncVectorEnv

from vebench.backends.environments.making import make
from vebench.backends.interface import Task
from vebench.backends.shared_memory import SharedMemoryVectorEnv

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv

TASKS = (Task("CartPole-v1", "classic", 1), Task("HalfCheetah-v5", "mujoco", 5), Task("ALE/Pong-v5", "atari", 4))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    for task in TASKS:
        functions = [partial(make, task)] * options.envs
        vectors: dict[str, VectorEnv[Any, Any, Any]] = {
            "AsyncVectorEnv": AsyncVectorEnv(functions),
            "default": SharedMemoryVectorEnv(functions),
            "num_processes=2": SharedMemoryVectorEnv(functions, num_processes=2),
            "caller_steps=True": SharedMemoryVectorEnv(functions, caller_steps=True),
        }
        best = dict.fromkeys(vectors, float("inf"))
        for envs in vectors.values():
            envs.reset(seed=0)
        actions = vectors["default"].action_space.sample()
        for _ in range(options.turns):
            for name, envs in vectors.items():
                start = time.perf_counter()
                for _ in range(options.steps):
                    envs.step(actions)
                best[name] = min(best[name], (time.perf_counter() - start) / options.steps)
        for name, envs in vectors.items():
            print(
                f"{task.id:16} {name:18} {best[name] * 1e6:8.0f} us a step of {options.envs} environments", flush=True
            )
            envs.close()


if __name__ == "__main__":
    main()
