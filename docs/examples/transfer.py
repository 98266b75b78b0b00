"""Plays a policy that was trained on one environment on another that is meant to be the same.

    python docs/examples/transfer.py CartPole-v1 mymodule:make
    python docs/examples/transfer.py CartPole-v1 mymodule:make --steps 60000 --episodes 200

PPO (Schulman et al., 2017) with a linear policy, in numpy alone, is trained on the first; both are then played with the
same seeds. For discrete actions and observations that are a few numbers. What ``vebench verify A B`` finds in rows,
this prices in returns; where rows differ by rounding, it tells whether that matters.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import warnings
from pathlib import Path

import gymnasium
import numpy as np
from scipy.stats import ttest_rel

STEPS, EPOCHS, MINIBATCHES = 2048, 10, 8  # before an update
GAMMA, LAMBDA, CLIP, RATE = 0.99, 0.95, 0.2, 0.1


def make(name: str) -> gymnasium.Env:
    """Return an environment by its id, or from ``module:callable``."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)() if function else gymnasium.make(name)


def features(observation: np.ndarray) -> np.ndarray:
    """Return what the policy is linear in: a constant, the numbers, and their products, of moderate size."""
    numbers = np.append(np.tanh(np.ravel(observation)), 1.0)
    return np.outer(numbers, numbers)[np.triu_indices(len(numbers))]


def chances(weights: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Return the probabilities of actions, ``(rows, actions)``."""
    logits = seen @ weights
    odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return odds / odds.sum(axis=-1, keepdims=True)


def train(env: gymnasium.Env, total: int, seed: int) -> np.ndarray:
    """Train for so many steps, and return the weights of the policy."""
    random = np.random.default_rng(seed)
    observation = env.reset(seed=seed)[0]
    weights = np.zeros((len(features(observation)), int(env.action_space.n)))
    value = np.zeros(len(weights))
    for _ in range(-(-total // STEPS)):
        seen, actions, rewards, ends, following = [], [], [], [], []
        for _ in range(STEPS):
            seen.append(features(observation))
            actions.append(random.choice(weights.shape[1], p=chances(weights, seen[-1])))
            observation, reward, terminated, truncated, _ = env.step(actions[-1])
            rewards.append(float(reward))
            ends.append(terminated or truncated)
            following.append(np.zeros_like(value) if terminated else features(observation))
            observation = env.reset()[0] if ends[-1] else observation
        rows, taken = np.array(seen), np.array(actions)
        surprise = np.array(rewards) + GAMMA * np.array(following) @ value - rows @ value
        better, later = np.zeros(STEPS), 0.0
        for step in reversed(range(STEPS)):
            better[step] = later = surprise[step] + GAMMA * LAMBDA * later * (not ends[step])
        value = np.linalg.lstsq(rows, better + rows @ value, rcond=1e-6)[0]
        before = chances(weights, rows)[np.arange(STEPS), taken]
        better = (better - better.mean()) / (better.std() + 1e-8)
        for _ in range(EPOCHS):
            for chosen in np.array_split(random.permutation(STEPS), MINIBATCHES):
                now = chances(weights, rows[chosen])
                ratio = now[np.arange(len(chosen)), taken[chosen]] / before[chosen]
                clipped = np.where(better[chosen] > 0, ratio > 1 + CLIP, ratio < 1 - CLIP)
                push = np.eye(weights.shape[1])[taken[chosen]] - now
                weights += RATE * rows[chosen].T @ (push * (ratio * better[chosen] * ~clipped)[:, None]) / len(chosen)
    return weights


def play(env: gymnasium.Env, weights: np.ndarray, episodes: int) -> np.ndarray:
    """Return the returns of the likeliest actions, over episodes with the seeds 0, 1, ..."""
    returns = np.zeros(episodes)
    for episode in range(episodes):
        observation, over = env.reset(seed=episode)[0], False
        while not over:
            action = int(np.argmax(features(observation) @ weights))
            observation, reward, terminated, truncated, _ = env.step(action)
            returns[episode], over = returns[episode] + float(reward), terminated or truncated
    return returns


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trained_on")
    parser.add_argument("other")
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    sys.path.append(str(Path.cwd()))
    if not isinstance(make(given.trained_on).action_space, gymnasium.spaces.Discrete):
        parser.error("the actions must be discrete")
    policy = train(make(given.trained_on), given.steps, given.seed)
    here, there = (play(make(name), policy, given.episodes) for name in (given.trained_on, given.other))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of differences that are all the same
        low, high = np.nan_to_num(ttest_rel(there, here).confidence_interval())  # NaN if no episode differs
    print(f"{given.trained_on}: {here.mean():.1f}; {given.other}: {there.mean():.1f}")
    print(f"difference {there.mean() - here.mean():.1f}, 95 % interval {low:.1f} to {high:.1f}")
