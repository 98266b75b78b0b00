"""IMPALA on Pong or HalfCheetah: environments step while the policy acts, and a learner runs beside both.

    python docs/examples/impala.py ALE/Pong-v5
    python docs/examples/impala.py HalfCheetah-v5 --envs 64

The actor takes rows from whichever environments are ready, by ``recv``. The learner corrects for the actions of older
policies: V-trace of Espeholt et al. (2018), "IMPALA: Scalable Distributed Deep-RL". The network is in ppo.py.
It needs torch, and vebench's extras ``atari`` and ``mujoco``.
"""

from __future__ import annotations

import argparse
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from ppo import Agent
from torch import Tensor, nn

from vebench.backends.fast import make_vec

if TYPE_CHECKING:
    from collections.abc import Callable

    Unrolls = queue.Queue[list[Tensor]]

UNROLL, UNROLLS = 16, 16  # steps of an environment in an unroll, unrolls in an update
GAMMA, LEARNING_RATE, VALUE_WEIGHT, ENTROPY_WEIGHT, MOST_GRADIENT = 0.99, 1e-3, 0.5, 0.01, 0.5


def act(agent: Agent, envs: Any, deliver: Callable[[list[Tensor]], bool]) -> None:
    """Step environments, and deliver each unroll when its environment has finished it, until nobody takes one."""
    space, actions, count = envs.single_observation_space, envs.single_action_space, envs.num_envs
    seen = torch.as_tensor(np.zeros((UNROLL + 1, count, *space.shape), space.dtype))
    taken = torch.zeros((UNROLL + 1, count, *actions.shape), dtype=torch.int64 if agent.discrete else torch.float32)
    likelihoods, rewards = torch.zeros(2, UNROLL + 1, count)
    over = torch.zeros(UNROLL + 1, count, dtype=torch.bool)  # whether the step into this row ended an episode
    at = torch.zeros(count, dtype=torch.int64)  # the row of the unroll that each environment has reached
    observations, infos = envs.reset(seed=1)
    env_ids = infos.get("env_id", np.arange(count))  # EnvPool's reset returns a batch
    reward, terminated, truncated = np.zeros((3, len(env_ids)))
    while True:
        observed, ids = torch.as_tensor(observations), torch.as_tensor(env_ids, dtype=torch.int64)
        row = at[ids]
        seen[row, ids] = observed
        rewards[row, ids] = torch.as_tensor(reward, dtype=torch.float32)
        over[row, ids] = torch.as_tensor(np.logical_or(terminated, truncated))
        for env_id in ids[row == UNROLL]:
            if not deliver([column[:, env_id].clone() for column in (seen, taken, likelihoods, rewards, over)]):
                return
            seen[0, env_id], over[0, env_id] = seen[UNROLL, env_id], over[UNROLL, env_id]
            at[env_id] = 0
        with torch.no_grad():
            choice = agent(observed)[0]
            action = choice.sample()
            taken[at[ids], ids], likelihoods[at[ids], ids] = action, choice.log_prob(action)
        at[ids] += 1
        envs.send(action.numpy() if agent.discrete else action.numpy().clip(actions.low, actions.high), env_ids)
        observations, reward, terminated, truncated, *_, env_ids = envs.recv()
        if isinstance(env_ids, dict):  # EnvPool's infos
            env_ids = env_ids["env_id"]


def update(agent: Agent, optimizer: torch.optim.Optimizer, unrolls: list[list[Tensor]]) -> None:
    """Improve the agent on unrolls that older agents have made."""
    seen, taken, likelihoods, rewards, over = (torch.stack(column, 1) for column in zip(*unrolls, strict=True))
    choice, values = agent(seen.flatten(0, 1))
    values = values.view(UNROLL + 1, -1)
    now = choice.log_prob(taken.flatten(0, 1)).view(UNROLL + 1, -1)[:-1]
    with torch.no_grad():
        weight, discount = (now - likelihoods[:-1]).exp().clamp(max=1), GAMMA * ~over[1:]
        surprise = weight * (rewards[1:] + discount * values[1:] - values[:-1])
        targets, later = values.clone(), torch.zeros_like(values[0])
        for step in reversed(range(UNROLL)):
            later = surprise[step] + discount[step] * weight[step] * later
            targets[step] += later
        advantage = weight * (rewards[1:] + discount * targets[1:] - values[:-1])
    # The step after an end only begins a new episode (AutoresetMode.NEXT_STEP): there is nothing to learn.
    real = ~over[:-1]
    error = (targets - values)[:-1][real].square().mean()
    optimizer.zero_grad()
    (VALUE_WEIGHT * error - (advantage * now)[real].mean() - ENTROPY_WEIGHT * choice.entropy().mean()).backward()
    nn.utils.clip_grad_norm_(agent.parameters(), MOST_GRADIENT)
    optimizer.step()


def next_unrolls(finished: Unrolls) -> list[list[Tensor]]:
    """Wait for the unrolls of an update."""
    return [finished.get(timeout=60) for _ in range(UNROLLS)]


def train(envs: Any, total: int, seed: int) -> float:
    """Train for ``total`` steps of all environments together, or some more. Return the steps learned per second."""
    torch.manual_seed(seed)
    agent = Agent(envs)
    agent(torch.as_tensor(np.zeros((1, *envs.single_observation_space.shape), envs.single_observation_space.dtype)))
    optimizer = torch.optim.Adam(agent.parameters(), LEARNING_RATE)
    finished: Unrolls = queue.Queue(2 * UNROLLS)  # a slow learner makes the actor wait
    learning = True

    def deliver(unroll: list[Tensor]) -> bool:
        while learning:
            try:
                finished.put(unroll, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    actor = threading.Thread(target=act, args=(agent, envs, deliver))
    actor.start()
    updates, start = -(-total // (UNROLL * UNROLLS)), time.perf_counter()
    try:
        for _ in range(updates):
            update(agent, optimizer, next_unrolls(finished))
        return updates * UNROLL * UNROLLS / (time.perf_counter() - start)
    finally:
        learning = False
        actor.join()
        envs.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", help="ALE/Pong-v5 or HalfCheetah-v5")
    parser.add_argument("--envs", type=int, default=8, help="twice as many as there are rows in a batch")
    parser.add_argument("--steps", type=int, default=100_000, help="of all environments together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="of torch: more take CPUs from the environments")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    vector_env = make_vec(given.task, given.envs, batch_size=given.envs // 2, caller_steps=False)
    print(f"{train(vector_env, given.steps, given.seed):.0f} steps a second, learning included")
