"""Each library's own use, written as its documentation shows, timed without vebench. Prints steps/s of each window.

``python loops.py LIBRARY TASK WORKERS WINDOWS SECONDS``, for instance ``python loops.py gym-async Pong 2 5 1``.
"""

from __future__ import annotations

import sys
import time
from functools import partial

import numpy as np

ATARI = {"Pong": "ALE/Pong-v5"}


def make_one(task: str):  # noqa: ANN201 - a Gymnasium environment
    import gymnasium

    if task not in ATARI:
        return gymnasium.make(task, disable_env_checker=True)
    import ale_py

    gymnasium.register_envs(ale_py)
    env = gymnasium.make(
        ATARI[task],
        frameskip=1,
        repeat_action_probability=0.0,
        max_num_frames_per_episode=108_000,
        disable_env_checker=True,
    )
    env = gymnasium.wrappers.AtariPreprocessing(env, noop_max=30, frame_skip=4)
    return gymnasium.wrappers.FrameStackObservation(env, 4)


def gymnasium_loop(task: str, workers: int, vector: str):  # noqa: ANN201 - yields after each step
    import gymnasium

    envs = getattr(gymnasium.vector, vector)([lambda: make_one(task) for _ in range(workers)], copy=False)
    envs.reset(seed=0)
    actions = [envs.action_space.sample() for _ in range(256)]
    for step in range(10**9):
        envs.step(actions[step % 256])
        yield workers


def envpool_loop(task: str, workers: int, ratio: int):  # noqa: ANN201 - yields after each step
    import envpool

    atari = {
        "noop_max": 30,
        "use_fire_reset": False,
        "use_inter_area_resize": True,
        "max_episode_steps": 27_000,
    }
    name = f"{task}-v5" if task in ATARI else task
    envs = envpool.make(
        name,
        env_type="gymnasium",
        num_envs=ratio * workers,
        batch_size=workers,
        num_threads=workers,
        thread_affinity_offset=0,
        **(atari if task in ATARI else {}),
    )
    actions = [np.stack([envs.action_space.sample() for _ in range(workers)]) for _ in range(256)]
    if ratio == 1:
        envs.reset()
        for step in range(10**9):
            envs.step(actions[step % 256])
            yield workers
    envs.async_reset()
    for step in range(10**9):
        _, _, _, _, info = envs.recv()
        envs.send(actions[step % 256], info["env_id"])
        yield workers


def sb3_loop(task: str, workers: int, vector: str):  # noqa: ANN201 - yields after each step
    from stable_baselines3.common import vec_env

    envs = getattr(vec_env, vector)([partial(make_one, task) for _ in range(workers)])
    envs.seed(0)
    envs.reset()
    actions = [np.stack([envs.action_space.sample() for _ in range(workers)]) for _ in range(256)]
    for step in range(10**9):
        envs.step(actions[step % 256])
        yield workers


def tianshou_loop(task: str, workers: int, vector: str):  # noqa: ANN201 - yields after each step
    import tianshou.env

    envs = getattr(tianshou.env, vector)([partial(make_one, task) for _ in range(workers)])
    envs.reset()
    spaces = envs.action_space
    actions = [np.stack([space.sample() for space in spaces]) for _ in range(256)]
    for step in range(10**9):
        _, _, terminated, truncated, _ = envs.step(actions[step % 256])
        if (ended := np.where(terminated | truncated)[0]).size:  # as its Collector does
            envs.reset(ended)
        yield workers


def ale_loop(task: str, workers: int, ratio: int):  # noqa: ANN201 - yields after each step
    from ale_py.vector_env import AtariVectorEnv

    envs = AtariVectorEnv(
        task.lower(),
        num_envs=ratio * workers,
        batch_size=workers,
        num_threads=workers,
        use_fire_reset=False,
        reward_clipping=False,
    )
    actions = [envs.action_space.sample() for _ in range(256)]
    envs.reset(seed=0)
    for step in range(10**9):
        envs.send(actions[step % 256])
        envs.recv()
        yield workers


def pufferlib_loop(task: str, workers: int):  # noqa: ANN201 - yields after each step
    import pufferlib.emulation
    import pufferlib.vector

    envs = pufferlib.vector.make(
        lambda buf=None, seed=0: pufferlib.emulation.GymnasiumPufferEnv(env=make_one(task), buf=buf, seed=seed),
        backend=pufferlib.vector.Multiprocessing,
        num_envs=workers,
        num_workers=workers,
        overwork=True,
    )
    envs.reset(seed=0)
    actions = [envs.action_space.sample() for _ in range(256)]
    for step in range(10**9):
        envs.step(actions[step % 256])
        yield workers


LIBRARIES = {
    "gym-sync": lambda task, workers: gymnasium_loop(task, workers, "SyncVectorEnv"),
    "gym-async": lambda task, workers: gymnasium_loop(task, workers, "AsyncVectorEnv"),
    "envpool-sync": lambda task, workers: envpool_loop(task, workers, 1),
    "envpool-async": lambda task, workers: envpool_loop(task, workers, 3),
    "ale-vector-sync": lambda task, workers: ale_loop(task, workers, 1),
    "ale-vector-async": lambda task, workers: ale_loop(task, workers, 3),
    "sb3-dummy": lambda task, workers: sb3_loop(task, workers, "DummyVecEnv"),
    "sb3-subproc": lambda task, workers: sb3_loop(task, workers, "SubprocVecEnv"),
    "tianshou-dummy": lambda task, workers: tianshou_loop(task, workers, "DummyVectorEnv"),
    "tianshou-subproc": lambda task, workers: tianshou_loop(task, workers, "SubprocVectorEnv"),
    "tianshou-shmem": lambda task, workers: tianshou_loop(task, workers, "ShmemVectorEnv"),
    "pufferlib": pufferlib_loop,
    "pufferlib-core": pufferlib_loop,
    "tianshou-ray": lambda task, workers: tianshou_loop(task, workers, "RayVectorEnv"),
}


def main(library: str, task: str, workers: str, windows: str, seconds: str) -> None:
    """Warm up for as long as a window, then print the rate of each window."""
    steps = LIBRARIES[library](task, int(workers))
    for window in range(int(windows) + 1):
        count, start = 0, time.perf_counter()
        while (took := time.perf_counter() - start) < float(seconds):
            count += next(steps)
        if window:
            print(count / took)
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
