"""Times the steps and resets of one environment, one by one: how long they take, and how unevenly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vebench.backends import trees
from vebench.backends.environments.making import make, read_spaces, sample
from vebench.child.answers import Timed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vebench.backends.setup import Setup

_TAPE = 256  # actions, over and over
_FEWEST_STEPS, _MOST_STEPS = 20, 200_000
# Where steps end no episode in time, so many resets are made all the same.
FEWEST_RESETS = 5
# Where steps or resets are slow, so many times the time asked for is enough for either, however few there are.
_ENOUGH = 3


def time_steps(setup: Setup, seconds: float, clock: Callable[[], int]) -> Timed:
    """Return how long steps and resets of the task take, and making it: seen for ``seconds``. ``clock``: in ns.

    Slow ones are seen a few times all the same, but for no more than ``_ENOUGH`` times as long, and once at least.
    """
    began = clock()
    environment = make(setup.task)
    made = clock() - began
    span = seconds * 1e9
    try:
        spaces = read_spaces(setup.task, environment.observation_space, environment.action_space)
        drawn = sample(spaces.actions, np.random.default_rng(setup.seed), _TAPE)
        actions = [trees.part(drawn, number) for number in range(_TAPE)]
        steps: list[int] = []
        resets: list[int] = []
        began = clock()
        environment.reset(seed=setup.seed)
        resets.append(clock() - began)
        began = clock()
        while not steps or _goes_on(clock() - began, span, len(steps)):
            action = actions[len(steps) % _TAPE]
            last = clock()
            _, _, terminated, truncated, _ = environment.step(action)
            now = clock()
            steps.append(now - last)
            if terminated or truncated:
                environment.reset()
                resets.append(clock() - now)
        ends = len(resets) - 1
        began = clock()
        while len(resets) < FEWEST_RESETS and clock() - began < _ENOUGH * span:
            last = clock()
            environment.reset()
            resets.append(clock() - last)
    finally:
        environment.close()
    return Timed(len(steps), _share(steps, 0.5), _share(steps, 0.99), len(resets), _share(resets, 0.5), made, ends)


def _goes_on(spent: float, span: float, steps: int) -> bool:
    """Return whether another step is to be seen, after so many of them in ``spent`` nanoseconds."""
    return steps < _MOST_STEPS if spent < span else steps < _FEWEST_STEPS and spent < _ENOUGH * span


def _share(times: Sequence[int], share: float) -> int:
    """Return the time that this share of times is not above."""
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]
