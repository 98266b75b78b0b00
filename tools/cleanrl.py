"""CleanRL's scripts with ``SharedMemoryVectorEnv`` in place of Gymnasium's classes: returns and times.

``python tools/cleanrl.py FOLDER [SCRIPT ...] [--steps N] [--set NAME=VALUE ...]``

``FOLDER`` is a checkout of https://github.com/vwxyzjn/cleanrl. Each script (by default ``ppo``, ``ppo_atari`` and
``ppo_continuous_action``) is run for ``N`` steps with each class, from the same seeds, each time in a process of its
own. Needs torch, and what the script needs; its command line and its logs are replaced, and what Gymnasium has called
otherwise since is patched in memory. ``--set`` gives our class an argument, as in ``--set num_processes=2``.

Prints whether the episodes' returns are the same, and the median time of a step and of what the script does between
two steps. Exit status: 1 if returns differ. The times are only as good as the machine is quiet.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import types
from functools import partial
from pathlib import Path
from typing import Any

from settings import setting

SCRIPTS = ("ppo", "ppo_atari", "ppo_continuous_action")
CLASSES = ("SharedMemoryVectorEnv", "AsyncVectorEnv", "SyncVectorEnv")
SETTINGS = {"ppo_continuous_action": {"num_envs": 4, "num_steps": 512}}
# What was called otherwise, or was told otherwise, before Gymnasium 1.0.
PATCHES = {
    "GrayScaleObservation": "GrayscaleObservation",
    "wrappers.FrameStack(": "wrappers.FrameStackObservation(",
    "np.clip(obs, -10, 10))": "np.clip(obs, -10, 10), None)",
    '"final_info" in infos': '"episode" in infos',
    'infos["final_info"]': "episodes(infos)",
    "import gymnasium as gym": "import gymnasium as gym; import ale_py; gym.register_envs(ale_py)",
}


def episodes(infos: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the infos of the episodes that have ended, as there was a list of them before."""
    told, ended = infos["episode"], infos["_episode"]
    return [{"episode": {key: told[key][index] for key in "rl"}} for index in range(len(ended)) if ended[index]]


def run_one(folder: Path, script: str, name: str, steps: int, settings: dict[str, Any]) -> None:
    """Run a script with one class; print the returns and the seconds in and between steps, as JSON."""
    import gymnasium

    from vebench.backends.shared_memory import SharedMemoryVectorEnv

    ours = name == "SharedMemoryVectorEnv"
    vector = partial(SharedMemoryVectorEnv, **settings) if ours else getattr(gymnasium.vector, name)
    inside: list[float] = []
    between: list[float] = []

    def build(functions: Any) -> Any:  # noqa: ANN401 - what the scripts pass
        envs = vector(functions)
        step = envs.step
        last = 0.0

        def timed(actions: Any) -> Any:  # noqa: ANN401 - likewise
            nonlocal last
            start = time.perf_counter()
            between.append(start - last)
            result = step(actions)
            last = time.perf_counter()
            inside.append(last - start)
            return result

        envs.step = timed
        return envs

    def read(arguments: Any) -> Any:  # noqa: ANN401 - likewise
        changed = {"total_timesteps": steps, "cuda": False, **SETTINGS.get(script, {})}
        return arguments(**changed)

    gymnasium.vector.SyncVectorEnv = build
    writer = type("SummaryWriter", (), {"__init__": lambda *_: None, "__getattr__": lambda *_: lambda *_: None})
    sys.modules["tyro"] = types.SimpleNamespace(cli=read)  # type: ignore[assignment]
    sys.modules["torch.utils.tensorboard"] = types.SimpleNamespace(SummaryWriter=writer)  # type: ignore[assignment]
    sys.path.insert(0, str(folder))
    path = folder / "cleanrl" / f"{script}.py"
    source = path.read_text()
    for old, new in PATCHES.items():
        source = source.replace(old, new)
    exec(compile(source, path, "exec"), {"__name__": "__main__", "__file__": str(path), "episodes": episodes})  # noqa: S102
    # Half of the times: those before are of processes that warm up.
    print(json.dumps({"inside": inside[len(inside) // 2 :], "between": between[len(between) // 2 :]}))


def run_with(folder: Path, script: str, name: str, steps: int, settings: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Run a script with one class in a process of its own; return what it says of episodes, and the seconds."""
    given = [part for setting in settings for part in ("--set", setting)]
    command = [sys.executable, __file__, str(folder), script, "--steps", str(steps), "--with", name, *given]
    # Threads of torch poll for work, and take the CPUs from the environments: with 2 of them on 2 CPUs under other load
    # a step of CartPole took from 0.3 to 6 ms with any class.
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        sys.exit(f"{script} with {name} has failed:\n{done.stderr[-3000:]}")
    lines = done.stdout.splitlines()
    return [line for line in lines if "episodic_return" in line], json.loads(lines[-1])


def main() -> int:
    """Run each script with each class and compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("scripts", nargs="*", default=SCRIPTS)
    parser.add_argument("--steps", type=int, default=16_384)
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="NAME=VALUE")
    parser.add_argument("--with", choices=CLASSES, dest="name", help="run one script with this class alone, for JSON")
    given = parser.parse_args()
    if given.name:
        run_one(given.folder, given.scripts[0], given.name, given.steps, dict(map(setting, given.settings)))
        return 0
    differ = False
    print(f"{'script':24}{'class':24}{'step':>10}{'between':>10}   episodes: the same as the first's?")
    for script in given.scripts:
        first = None
        for name in CLASSES:
            told, seconds = run_with(given.folder, script, name, given.steps, given.settings)
            first = told if first is None else first
            differ |= told != first
            inside, between = (statistics.median(seconds[key]) * 1e3 for key in ("inside", "between"))
            same = "yes" if told == first else "NO"
            print(f"{script:24}{name:24}{inside:7.2f} ms{between:7.2f} ms   {len(told)}: {same}", flush=True)
    return int(differ)


if __name__ == "__main__":
    sys.exit(main())
