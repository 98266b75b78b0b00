"""PPO on Pong or HalfCheetah, with vebench's vector environment or with Gymnasium's: the same returns from both.

    python docs/examples/ppo.py ALE/Pong-v5
    python docs/examples/ppo.py ALE/Pong-v5 --gymnasium

The algorithm is that of Schulman et al. (2017), "Proximal Policy Optimization Algorithms", and as short as it can be.
It needs torch, and vebench's extras ``atari`` and ``mujoco``.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

import ale_py
import gymnasium
import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from gymnasium.wrappers.vector import NormalizeObservation, RecordEpisodeStatistics
from torch import Tensor, nn
from torch.distributions import Categorical, Independent, Normal

from vebench.backends.fast import make_vec

if TYPE_CHECKING:
    from collections.abc import Sequence

STEPS, EPOCHS, MINIBATCHES = 128, 4, 4  # steps of each environment before an update
GAMMA, LAMBDA, CLIP = 0.99, 0.95, 0.2
LEARNING_RATE, VALUE_WEIGHT, ENTROPY_WEIGHT, MOST_GRADIENT = 3e-4, 0.5, 0.01, 0.5

gymnasium.register_envs(ale_py)


def make_env(task: str) -> gymnasium.Env:
    """Return one environment of Gymnasium's own, as ``make_vec`` makes them by default."""
    if not task.startswith("ALE/"):
        return gymnasium.make(task)
    return FrameStackObservation(AtariPreprocessing(gymnasium.make(task, frameskip=1)), 4)


def make_envs(task: str, count: int, *, with_gymnasium: bool) -> gymnasium.vector.VectorEnv:
    envs = AsyncVectorEnv([lambda: make_env(task)] * count) if with_gymnasium else make_vec(task, count)
    return wrapped(envs)


def wrapped(envs: gymnasium.vector.VectorEnv) -> gymnasium.vector.VectorEnv:
    """Return what ``train`` trains on, from any vector environment with ``AutoresetMode.NEXT_STEP``."""
    envs = RecordEpisodeStatistics(envs)
    # The network scales pixels; positions and velocities each have a size of their own.
    return envs if envs.single_observation_space.dtype == np.uint8 else NormalizeObservation(envs)


class Agent(nn.Module):
    """A policy and an estimate of the return, from a stack of pictures or from a few numbers."""

    def __init__(self, envs: gymnasium.vector.VectorEnv) -> None:
        super().__init__()
        shape, actions = envs.single_observation_space.shape, envs.single_action_space
        pictures = envs.single_observation_space.dtype == np.uint8
        self.discrete = isinstance(actions, gymnasium.spaces.Discrete)
        outputs = int(actions.n) if self.discrete else actions.shape[0]
        self.scale = 255.0 if pictures else 1.0
        if pictures:
            layers = [nn.Conv2d(shape[0], 16, 8, 4), nn.ReLU(), nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.Flatten()]
            self.body = nn.Sequential(*layers, nn.LazyLinear(256), nn.ReLU())
        else:
            self.body = nn.Sequential(nn.Linear(shape[0], 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.policy, self.value = nn.LazyLinear(outputs), nn.LazyLinear(1)
        self.log_deviation = nn.Parameter(torch.zeros(outputs))

    def forward(self, observations: Tensor) -> tuple[Categorical | Independent, Tensor]:
        """Return the distribution of actions, and the return to be expected."""
        seen = self.body(observations.float() / self.scale)
        output, value = self.policy(seen), self.value(seen).squeeze(-1)
        if self.discrete:
            return Categorical(logits=output), value
        return Independent(Normal(output, self.log_deviation.exp()), 1), value


def advantages(rewards: Tensor, values: Tensor, following: Tensor, terminated: Tensor, over: Tensor) -> Tensor:
    """Return how much better each action did than expected, by generalised advantage estimation; ``(steps, envs)``."""
    surprise = rewards + GAMMA * following * ~terminated - values
    summed = torch.zeros_like(surprise)
    later = torch.zeros_like(surprise[0])
    for step in reversed(range(len(surprise))):
        summed[step] = later = surprise[step] + GAMMA * LAMBDA * later * ~over[step]
    return summed


def learn(agent: Agent, optimizer: torch.optim.Optimizer, data: Sequence[Tensor], random: np.random.Generator) -> None:
    """Improve the agent on observations, actions, their likelihoods, advantages and returns; ``(rows, ...)`` each."""
    for _ in range(EPOCHS):
        for chosen in np.array_split(random.permutation(len(data[0])), MINIBATCHES):
            observations, actions, likelihoods, advantage, returns = (
                column[torch.as_tensor(chosen)] for column in data
            )
            choice, value = agent(observations)
            ratio = (choice.log_prob(actions) - likelihoods).exp()
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            gain = torch.min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
            error = (value - returns).square().mean()
            optimizer.zero_grad()
            (VALUE_WEIGHT * error - gain - ENTROPY_WEIGHT * choice.entropy().mean()).backward()
            nn.utils.clip_grad_norm_(agent.parameters(), MOST_GRADIENT)
            optimizer.step()


def train(envs: gymnasium.vector.VectorEnv, total: int, seed: int) -> tuple[list[float], float]:
    """Train for ``total`` steps of all environments together, or some more.

    Returns the returns of the episodes that have ended, and the steps per second, learning included.
    """
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    random = np.random.default_rng(seed)
    num_envs, space = envs.num_envs, envs.single_action_space
    seen = torch.as_tensor(envs.reset(seed=seed)[0])
    agent = Agent(envs)
    agent(seen)  # creates the lazy layers
    optimizer = torch.optim.Adam(agent.parameters(), LEARNING_RATE, eps=1e-5)
    begins = torch.zeros(num_envs, dtype=torch.bool)
    returns: list[float] = []
    updates, start = -(-total // (STEPS * num_envs)), time.perf_counter()
    for _ in range(updates):
        rows = []
        for _ in range(STEPS):
            with torch.no_grad():
                choice, value = agent(seen)
                action = choice.sample()
            taken = action.numpy() if agent.discrete else action.numpy().clip(space.low, space.high)
            after, reward, *ends, infos = envs.step(taken)
            if "episode" in infos:
                returns.extend(infos["episode"]["r"][infos["_episode"]].tolist())
            terminated, truncated = map(torch.as_tensor, ends)
            over = terminated | truncated
            reward = torch.as_tensor(reward, dtype=torch.float32)
            rows.append((seen, action, choice.log_prob(action), value, reward, terminated, over, ~begins))
            # The step after an end only begins a new episode (AutoresetMode.NEXT_STEP): there is nothing to learn.
            seen, begins = torch.as_tensor(after), over
        observations, actions, likelihoods, values, rewards, terminated, over, real = map(
            torch.stack, zip(*rows, strict=True)
        )
        with torch.no_grad():
            following = torch.cat([values[1:], agent(seen)[1][None]])
        better = advantages(rewards, values, following, terminated, over)
        data = (observations, actions, likelihoods, better, better + values)
        learn(agent, optimizer, [column[real] for column in data], random)
        last = f", of the last 20 a mean return of {np.mean(returns[-20:]):.6f}" if returns else ""
        print(f"reward {rewards.sum():.6f} in this batch; {len(returns)} episodes{last}")
    rate = updates * STEPS * num_envs / (time.perf_counter() - start)
    envs.close()
    return returns, rate


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", help="ALE/Pong-v5 or HalfCheetah-v5")
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=100_000, help="of all environments together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gymnasium", action="store_true", help="step Gymnasium's environments in its AsyncVectorEnv")
    parser.add_argument("--threads", type=int, default=1, help="of torch: more take CPUs from the environments")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    trained = train(make_envs(given.task, given.envs, with_gymnasium=given.gymnasium), given.steps, given.seed)
    print(f"{trained[1]:.0f} steps a second, learning included")
