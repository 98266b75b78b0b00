"""Steps what pasted lines have built, as a user of the library would: in the script that has them, without vebench.

A script of pasted lines ends with ``drive(envs)``, which prints what was counted as JSON.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

TAPE = 64  # batches of actions, over and over
WARM = 1.0  # seconds before any are counted, if a time is asked for


def script_of(lines: tuple[str, ...], asked: str) -> str:
    """Return a script that pastes the lines, and steps what they have built: ``asked`` are arguments of ``drive``."""
    step = 'if __name__ == "__main__":\n    from driving import drive\n\n'
    return "\n".join((*lines, "", "", f"{step}    drive(envs, {asked})", ""))


def write(folder: Path, lines: tuple[str, ...], asked: str) -> Path:
    """Write such a script into a folder, and return its path."""
    path = folder / "pasted.py"
    path.write_text(script_of(lines, asked))
    return path


def drive(envs: Any, **asked: Any) -> None:
    """Print what was counted."""
    sys.stdout.write(json.dumps(counted(envs, **asked)) + "\n")
    sys.stdout.flush()


def counted(envs: Any, batches: int = 0, seconds: float = 0.0, num_envs: int = 0) -> dict[str, Any]:
    """Step so many batches, or for so many seconds after a second of warm-up, close, and return what was counted.

    It goes on until rows of ``num_envs`` environments were seen: of those that are ready in any order, one may be late.

    ``num_envs``: environments whose rows were seen. ``batch_size``: rows of each batch, a list if they differ. Both are
    0 where time is measured. ``steps``: rows but those that only tell of a reset.
    """
    stepping = _way(envs)(envs)
    sizes, seen, steps = set(), set(), 0
    warm_until = time.perf_counter() + (WARM if seconds else 0.0)
    while time.perf_counter() < warm_until:
        next(stepping)
    began = time.perf_counter()
    done = 0
    while done < batches or len(seen) < num_envs or time.perf_counter() - began < seconds:
        ids, resets = next(stepping)
        if batches:  # where time is measured, nothing else is
            sizes.add(len(ids))
            seen.update(map(int, ids))
        steps += len(ids) - resets
        done += 1
    took = time.perf_counter() - began
    stepping.close()
    sizes_seen = sorted(sizes)
    return {
        "num_envs": len(seen),
        "batch_size": sizes_seen if len(sizes_seen) > 1 else sum(sizes_seen),
        "batches": done,
        "steps": steps,
        "seconds": took,
    }


# Each way yields the environments of a batch's rows, and how many of these rows only tell of a reset.


def _way(envs: Any) -> Callable[[Any], Iterator[tuple[Any, int]]]:
    """Return how these environments are stepped, by what they have."""
    if isinstance(envs, list):
        return _halves if hasattr(envs[0], "step_async") else _loop
    module = type(envs).__module__
    if module.startswith("stable_baselines3"):
        return _sb3
    if module.startswith("tianshou"):
        return _tianshou
    if hasattr(envs, "async_reset"):
        return _pool_ahead if envs.config["batch_size"] < envs.config["num_envs"] else _gymnasium
    if getattr(envs, "batch_size", envs.num_envs) < envs.num_envs:
        return _ahead
    return _gymnasium


def _tape(space: Any, rows: int) -> list[Any]:
    space.seed(0)
    return [np.stack([space.sample() for _ in range(rows)]) for _ in range(TAPE)]


def _resets(ended: set[int], ids: Any, ends: Any) -> int:
    """Return how many rows only tell of a reset, given those that had ended before; and note those that end now."""
    resets = sum(int(one) in ended for one in ids)
    ended.difference_update(map(int, ids))
    ended.update(int(one) for one, end in zip(ids, ends, strict=True) if end)
    return resets


def _loop(envs: list[Any]) -> Iterator[tuple[Any, int]]:
    tape = _tape(envs[0].action_space, len(envs))
    for number, env in enumerate(envs):
        env.reset(seed=number)
    ids = range(len(envs))
    try:
        for batch in range(sys.maxsize):
            for env, action in zip(envs, tape[batch % TAPE], strict=True):
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()
            yield ids, 0
    finally:
        for env in envs:
            env.close()


def _gymnasium(envs: Any) -> Iterator[tuple[Any, int]]:
    """Step a vector environment whose environments begin anew in the step after their end."""
    single = getattr(envs, "single_action_space", None) or envs.action_space
    tape = _tape(single, envs.num_envs if hasattr(envs, "num_envs") else envs.config["num_envs"])
    ids = range(len(tape[0]))
    envs.reset()
    resets = 0
    try:
        for batch in range(sys.maxsize):
            _, _, terminated, truncated, _ = envs.step(tape[batch % TAPE])
            yield ids, resets
            resets = int(np.count_nonzero(terminated | truncated))
    finally:
        envs.close()


def _ahead(envs: Any) -> Iterator[tuple[Any, int]]:
    """Step more environments than a batch takes, with ``send`` and ``recv``."""
    size = envs.batch_size
    tape = _tape(envs.single_action_space, size)
    ended: set[int] = set()
    envs.reset(seed=0)
    # What the reset of ale-py's returned is a batch already; of ours it is every environment.
    first = size if type(envs).__module__.startswith("ale_py") else envs.num_envs
    envs.send(_tape(envs.single_action_space, first)[0])
    try:
        for batch in range(sys.maxsize):
            received = envs.recv()
            infos = received[-1]
            ids = received.env_ids if hasattr(received, "env_ids") else infos["env_id"]
            _, _, terminated, truncated = received[:4]
            resets = _resets(ended, ids, terminated | truncated)
            envs.send(tape[batch % TAPE])
            yield ids, resets
    finally:
        envs.close()


def _pool_ahead(envs: Any) -> Iterator[tuple[Any, int]]:
    """Step more environments of EnvPool's than a batch takes."""
    tape = _tape(envs.action_space, envs.config["batch_size"])
    envs.async_reset()
    ended = set(range(envs.config["num_envs"]))  # the first rows are those of resets
    try:
        for batch in range(sys.maxsize):
            _, _, terminated, truncated, infos = envs.recv()
            ids = np.array(infos["env_id"])
            resets = _resets(ended, ids, terminated | truncated)
            envs.send(tape[batch % TAPE], ids)
            yield ids, resets
    finally:
        envs.close()


def _halves(envs: list[Any]) -> Iterator[tuple[Any, int]]:
    """Step two vector environments in turn: one steps while the other gets its actions."""
    tape = _tape(envs[0].single_action_space, envs[0].num_envs)
    resets = [0] * len(envs)
    for number, half in enumerate(envs):
        half.reset(seed=number * half.num_envs)
        half.step_async(tape[number])
    try:
        for batch in range(sys.maxsize):
            number = batch % len(envs)
            half, first = envs[number], sum(one.num_envs for one in envs[:number])
            _, _, terminated, truncated, _ = half.step_wait()
            half.step_async(tape[batch % TAPE])
            yield range(first, first + half.num_envs), resets[number]
            resets[number] = int(np.count_nonzero(terminated | truncated))
    finally:
        for half in envs:
            half.step_wait()
            half.close()


def _sb3(envs: Any) -> Iterator[tuple[Any, int]]:
    tape = _tape(envs.action_space, envs.num_envs)
    ids = range(envs.num_envs)
    envs.reset()
    try:
        for batch in range(sys.maxsize):
            envs.step(tape[batch % TAPE])
            yield ids, 0
    finally:
        envs.close()


def _tianshou(envs: Any) -> Iterator[tuple[Any, int]]:
    tape = _tape(envs.action_space[0], len(envs))
    ids = range(len(envs))
    envs.reset()
    try:
        for batch in range(sys.maxsize):
            _, _, terminated, truncated, _ = envs.step(tape[batch % TAPE])
            (ended,) = np.nonzero(terminated | truncated)
            if len(ended):
                envs.reset(ended)
            yield ids, 0
    finally:
        envs.close()
