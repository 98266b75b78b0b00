"""Times the steps and resets of one environment, one by one: how long they take, and how unevenly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vebench.backends import trees
from vebench.backends.environments.making import make
from vebench.backends.environments.spaces import read_spaces
from vebench.backends.interface import sample
from vebench.child.answers import Timed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vebench.backends.setup import Setup

TAPE = 256  # actions, over and over
FEWEST_STEPS, MOST_STEPS = 20, 200_000
# Where steps end no episode in time, so many resets are made all the same.
FEWEST_RESETS = 5


def time_steps(setup: Setup, seconds: float, clock: Callable[[], int]) -> Timed:
    """Return how long steps and resets of the task take, seen for ``seconds`` or ``FEWEST_STEPS``. ``clock``: in ns."""
    environment = make(setup.task)
    try:
        spaces = read_spaces(setup.task, environment.observation_space, environment.action_space)
        drawn = sample(spaces.actions, np.random.default_rng(setup.seed), TAPE)
        actions = [trees.part(drawn, number) for number in range(TAPE)]
        steps: list[int] = []
        resets: list[int] = []
        began = last = clock()
        environment.reset(seed=setup.seed)
        while len(steps) < FEWEST_STEPS or (clock() - began < seconds * 1e9 and len(steps) < MOST_STEPS):
            action = actions[len(steps) % TAPE]
            last = clock()
            _, _, terminated, truncated, _ = environment.step(action)
            now = clock()
            steps.append(now - last)
            if terminated or truncated:
                environment.reset()
                resets.append(clock() - now)
        while len(resets) < FEWEST_RESETS:
            last = clock()
            environment.reset()
            resets.append(clock() - last)
    finally:
        environment.close()
    return Timed(len(steps), _share(steps, 0.5), _share(steps, 0.99), len(resets), _share(resets, 0.5))


def _share(times: Sequence[int], share: float) -> int:
    """Return the time that this share of times is not above."""
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]
