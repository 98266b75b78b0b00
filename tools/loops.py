"""Each library's own use, written as its documentation shows, timed without vebench. Prints steps/s of each window.

``python tools/loops.py LIBRARY TASK WORKERS WINDOWS SECONDS``, for instance ``python loops.py gym-async Pong 2 5 1``.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import secrets
import shutil
import sys
import tempfile
import time
from functools import partial
from types import SimpleNamespace
from typing import NamedTuple

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


def wrapped(task: str):  # noqa: ANN201 - an environment of TorchRL's
    from torchrl.envs import GymWrapper

    return GymWrapper(make_one(task), categorical_action_encoding=True)


def torchrl_parallel_loop(task: str, workers: int):  # noqa: ANN201 - yields after each step
    from torchrl.envs import ParallelEnv

    envs = ParallelEnv(workers, partial(wrapped, task), mp_start_method="fork")
    root = envs.reset()
    actions = [envs.action_spec.rand() for _ in range(256)]
    for step in range(10**9):
        root["action"] = actions[step % 256]
        _, root = envs.step_and_maybe_reset(root)
        yield workers


def torchrl_async_loop(task: str, workers: int):  # noqa: ANN201 - yields after each step
    multiprocessing.set_start_method("fork")  # it starts all others anew, by default
    from torchrl.envs import AsyncEnvPool

    envs = AsyncEnvPool([partial(wrapped, task)] * (2 * workers), backend="multiprocessing", exchange="shm")
    root = envs.reset()
    actions = [envs.action_spec.rand() for _ in range(256)]
    root["action"] = actions[0]
    envs.async_step_and_maybe_reset_send(root)
    for step in range(10**9):
        _, root = envs.async_step_and_maybe_reset_recv(min_get=workers, max_get=workers)
        root["action"] = actions[step % 256][:workers]
        envs.async_step_and_maybe_reset_send(root)
        yield workers


class Simulator:
    """An actor with an environment, as Ray's documentation has them."""

    def __init__(self, task: str) -> None:
        self.env = make_one(task)
        self.env.reset()

    def step(self, action):  # noqa: ANN001, ANN201 - what Gymnasium takes and returns
        observation, reward, terminated, truncated, _ = self.env.step(action)
        if terminated or truncated:
            observation, _ = self.env.reset()
        return observation, reward, terminated, truncated


def ray_loop(task: str, workers: int):  # noqa: ANN201 - yields after each step
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # or it would write one into the home folder
    import ray

    folder = tempfile.mkdtemp(prefix="ray")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(ray.shutdown)  # first, as what was registered last
    ray.init("local", num_cpus=workers, include_dashboard=False, log_to_driver=False, _temp_dir=folder)
    actor = ray.remote(num_cpus=1)(Simulator)
    simulators = [actor.remote(task) for _ in range(workers)]
    space = make_one(task).action_space
    actions = [[space.sample() for _ in range(workers)] for _ in range(256)]
    for step in range(10**9):
        answers = [each.step.remote(action) for each, action in zip(simulators, actions[step % 256], strict=True)]
        [np.stack(field) for field in zip(*ray.get(answers), strict=True)]
        yield workers


def mjbatch_loop(task: str, workers: int):  # noqa: ANN201 - yields after each step
    from mjbatch import Batch

    env = make_one(task).unwrapped
    batch = Batch(env.model, num_sims=workers, num_threads=workers)
    position, velocity, control = batch.bind("qpos"), batch.bind("qvel"), batch.bind("ctrl")
    actions = [np.stack([env.action_space.sample() for _ in range(workers)]) for _ in range(256)]
    for step in range(10**9):
        if step % 1000 == 0:
            batch.reset()
            position += env.np_random.uniform(-0.1, 0.1, position.shape)
            velocity[:] = 0.1 * env.np_random.standard_normal(velocity.shape)
        before = position[:, 0].copy()
        control[:] = actions[step % 256]
        batch.step(nstep=env.frame_skip)
        np.concatenate([position[:, 1:], velocity], axis=1)
        (position[:, 0] - before) / env.dt - 0.1 * np.square(control).sum(axis=1)
        yield workers


class Told(NamedTuple):
    """What rlpyt's workers keep of an environment's information beside a step."""

    timeout: bool


class RlpytEnvironment:
    """An environment in the form that rlpyt's documentation asks for."""

    spaces = observation_space = None

    def __init__(self, task: str) -> None:
        self.env = make_one(task)
        sample = self.env.action_space.sample
        self.action_space = SimpleNamespace(sample=lambda: np.array(sample()), null_value=lambda: 0)

    def seed(self, seed: int) -> None:
        self.env.reset(seed=seed)

    def reset(self):  # noqa: ANN201 - what Gymnasium returns
        return self.env.reset()[0]

    def step(self, action):  # noqa: ANN001, ANN201 - as above
        observation, reward, terminated, truncated, _ = self.env.step(action)
        return observation, np.float32(reward), terminated or truncated, Told(truncated)

    def close(self) -> None:
        self.env.close()


class RlpytAgent:
    """An agent with actions drawn before."""

    def __init__(self, actions) -> None:  # noqa: ANN001 - arrays
        import torch

        self.actions, self.told, self.count = torch.from_numpy(np.array(actions)), Told(torch.zeros(())), 0

    def step(self, observation, action, reward):  # noqa: ANN001, ANN201, ARG002 - rlpyt's interface
        self.count += 1
        actions = self.actions[self.count % 256]
        return (actions if np.ndim(reward) else actions[0]), self.told  # asked for an example at first

    def initialize(self, *_: object, **__: object) -> None:
        """Need nothing."""

    reset = reset_one = sample_mode = initialize


def rlpyt_loop(task: str, workers: int):  # noqa: ANN201 - yields after each batch
    sys.path.append(os.environ["RLPYT"])
    from rlpyt.samplers.parallel.gpu.sampler import GpuSampler

    space = make_one(task).action_space
    sampler = GpuSampler(RlpytEnvironment, {"task": task}, batch_T=64, batch_B=workers, max_decorrelation_steps=0)
    agent = RlpytAgent([[space.sample() for _ in range(workers)] for _ in range(256)])
    with contextlib.redirect_stdout(sys.stderr):  # of its workers, too
        sampler.initialize(agent, {"workers_cpus": range(workers), "set_affinity": False}, seed=0)
    atexit.register(lambda: [worker.kill() for worker in sampler.workers])
    for batch in range(10**9):
        sampler.obtain_samples(batch)
        yield 64 * workers


def made_for_sample_factory(task: str, *_: object):  # noqa: ANN201 - a Gymnasium environment
    return make_one(task)


def sample_factory_loop(task: str, workers: int):  # noqa: ANN201 - yields after each step
    from sample_factory.algo.sampling.sampler import EventLoop, ParallelSampler
    from sample_factory.algo.utils.env_info import extract_env_info
    from sample_factory.algo.utils.make_env import make_env_func_non_batched
    from sample_factory.algo.utils.shared_buffers import BufferMgr
    from sample_factory.cfg.arguments import parse_sf_args
    from sample_factory.envs.env_utils import register_env

    register_env("task", partial(made_for_sample_factory, task))
    one_each = [f"--num_workers={workers}", "--num_envs_per_worker=1", "--worker_num_splits=1"]
    alone = ["--policy_workers_per_policy=0", "--use_rnn=False", "--device=cpu", "--env_gpu_observations=False"]
    quiet = ["--log_to_file=False", "--set_workers_cpu_affinity=False"]
    cfg = parse_sf_args(["--env=task", *one_each, *alone, *quiet])[1]
    env = make_env_func_non_batched(cfg, None)
    env_info = extract_env_info(env, cfg)
    loop, buffers = EventLoop("own"), BufferMgr(cfg, env_info)
    sampler = ParallelSampler(loop, buffers, {}, cfg, env_info)
    for index, worker in enumerate(sampler.rollout_workers):
        sampler.connect("begin", worker.init)
        sampler.connect(f"advance{index}", worker.advance_rollouts)
    sampler.connect_on_new_trajectories(0, loop.broadcast)
    sampler.init()
    atexit.register(lambda: [process.kill() for process in sampler.processes])
    sampler.emit("begin")
    observations = buffers.traj_tensors_torch["cpu"]["obs"]["obs"].numpy()
    actions = [np.array([env.action_space.sample() for _ in range(workers)]) for _ in range(256)]
    actions = [one.reshape(workers, 1, 1, 1, -1) for one in actions]
    answers = buffers.policy_output_tensors_torch["cpu"].numpy()[..., : actions[0].shape[-1]]
    for step in range(10**9):
        requests = []
        while len(requests) < workers:
            requests += sampler.inference_queues[0].get_many()
        places = np.array([place[2:] for _, _, asked, _ in requests for place in asked])
        observations[tuple(places.T)]
        if step and step % cfg.rollout == 0:  # what its batcher does
            for _, _, (full, _) in loop.signal_queue.get_many():
                buffers.traj_buffer_queues["cpu"].put_many([one["traj_buffer_idx"] for one in full])
        answers[:] = actions[step % 256]
        for index in range(workers):
            sampler.emit_many(f"advance{index}", [(0, 0)])
        yield workers


LIBRARIES = {
    "rlpyt": rlpyt_loop,
    "sample-factory": sample_factory_loop,
    "torchrl-parallel": torchrl_parallel_loop,
    "torchrl-async": torchrl_async_loop,
    "ray": ray_loop,
    "mjbatch": mjbatch_loop,
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
    for process in multiprocessing.active_children():  # TorchRL's would otherwise be waited for
        process.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
