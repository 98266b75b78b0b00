"""Steps the vector environment that pasted lines have built, without vebench, as a user of the library would."""

from collections.abc import Callable
from typing import Any

import numpy as np

TAPE = 64  # batches of actions, over and over
# A function that steps batch number N, and returns the ids of its rows and of its ends. A function that closes.
# The environments whose next row only tells of a reset.
Way = tuple[Callable[[int], tuple[Any, Any]], Callable[[], object], set[int]]


def counted(envs: Any, batches: int, num_envs: int) -> dict[str, Any]:
    """Step so many batches, close, and return what was counted: ``steps`` are rows but those that tell of a reset.

    It goes on until rows of ``num_envs`` environments were seen: of those that are ready in any order, one may be late.
    """
    step, close, ended = _way(envs)
    sizes, seen, steps, done = set[int](), set[int](), 0, 0
    while done < batches or len(seen) < num_envs:
        found, ends = step(done)
        ids = [int(one) for one in found]
        sizes.add(len(ids))
        seen.update(ids)
        steps += sum(one not in ended for one in ids)
        ended.difference_update(ids)
        ended.update(one for one, end in zip(ids, ends, strict=False) if end)
        done += 1
    close()
    size = sizes.pop() if len(sizes) == 1 else sorted(sizes)
    return {"num_envs": len(seen), "batch_size": size, "batches": done, "steps": steps}


def _tape(space: Any, rows: int) -> list[Any]:
    space.seed(0)
    return [np.stack([space.sample() for _ in range(rows)]) for _ in range(TAPE)]


def _way(envs: Any) -> Way:
    """Return how these environments are stepped, by what they have."""
    if isinstance(envs, list):
        return _loop(envs)
    module = type(envs).__module__
    if module.startswith("tianshou"):
        return _tianshou(envs)
    if hasattr(envs, "async_reset") and envs.config["batch_size"] < envs.config["num_envs"]:
        return _pool_ahead(envs)
    if hasattr(envs, "num_envs") and getattr(envs, "batch_size", envs.num_envs) < envs.num_envs:
        return _ahead(envs, resets_batches=module.startswith("ale_py"))
    count = envs.num_envs if hasattr(envs, "num_envs") else envs.config["num_envs"]
    tape = _tape(getattr(envs, "single_action_space", None) or envs.action_space, count)
    envs.reset()

    def step(batch: int) -> tuple[Any, Any]:
        _, _, *ends = envs.step(tape[batch % TAPE])
        # Of Stable-Baselines3 an environment begins anew in the step that ends its episode.
        return range(count), () if module.startswith("stable_baselines3") else ends[0] | ends[1]

    return step, envs.close, set()


def _loop(envs: list[Any]) -> Way:
    tape = _tape(envs[0].action_space, len(envs))
    for number, env in enumerate(envs):
        env.reset(seed=number)

    def step(batch: int) -> tuple[Any, Any]:
        for env, action in zip(envs, tape[batch % TAPE], strict=True):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return range(len(envs)), ()

    return step, lambda: [env.close() for env in envs], set()


def _ahead(envs: Any, *, resets_batches: bool) -> Way:
    """Step more environments than a batch takes, with ``send`` and ``recv``."""
    tape = _tape(envs.single_action_space, envs.batch_size)
    envs.reset(seed=0)
    # What the reset of ale-py's returned is a batch already; of ours it is every environment.
    envs.send(_tape(envs.single_action_space, envs.batch_size if resets_batches else envs.num_envs)[0])

    def step(batch: int) -> tuple[Any, Any]:
        received = envs.recv()
        ids = received.env_ids if hasattr(received, "env_ids") else received[-1]["env_id"]
        envs.send(tape[batch % TAPE])
        return ids, received[2] | received[3]

    return step, envs.close, set()


def _pool_ahead(envs: Any) -> Way:
    """Step more environments of EnvPool's than a batch takes."""
    tape = _tape(envs.action_space, envs.config["batch_size"])
    envs.async_reset()

    def step(batch: int) -> tuple[Any, Any]:
        _, _, terminated, truncated, infos = envs.recv()
        ids = np.array(infos["env_id"])
        envs.send(tape[batch % TAPE], ids)
        return ids, terminated | truncated

    return step, envs.close, set(range(envs.config["num_envs"]))  # the first rows report resets


def _tianshou(envs: Any) -> Way:
    tape = _tape(envs.action_space[0], len(envs))
    envs.reset()

    def step(batch: int) -> tuple[Any, Any]:
        _, _, terminated, truncated, _ = envs.step(tape[batch % TAPE])
        (ended,) = np.nonzero(terminated | truncated)
        if len(ended):
            envs.reset(ended)
        return range(len(envs)), ()

    return step, envs.close, set()
