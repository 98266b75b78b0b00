"""Adapters whose episodes end or begin in another way: autoresets, flags, time limits."""

from typing import Any

import numpy as np
from altered import Altered, On, altering, before, ending, patching, setting, wrapper

from vebench.backends.interface import Batch

CONFUSED = On("truncat|terminat|limit", "Pendulum")
LIMIT = On("limit|end|truncat", "Pendulum")
RESET = On("reset|end|environment|episode|observation")


def ends(batch: Batch) -> Any:
    """Return which rows are ends of either kind."""
    return batch.terminated | batch.truncated


def none(_: object, batch: Batch) -> Any:
    """Return flags that are not set."""
    return np.zeros_like(batch.terminated)


RewardKept = altering(
    "The row of a reset has the reward of the end.",
    On("reward|reset", "Pendulum"),
    rewards=lambda it, batch: np.where(it.began, before(it, batch.rewards), batch.rewards),
)
LimitTerminates = altering(
    "A time limit is told as a termination.", CONFUSED, terminated=lambda _, batch: ends(batch), truncated=none
)
LostLives = setting(
    "An episode ends where a life is lost.",
    On("end|life|episode", "Breakout", envs=1),
    "AtariScreen",
    terminal_on_life_loss=True,
)
LimitLate = setting("Episodes are one step too long.", LIMIT, "TimeLimit", _max_episode_steps=lambda steps: steps + 1)
Limitless = setting("Episodes have no time limit: no wrapper.", LIMIT, "TimeLimit", _max_episode_steps=10**9)
EndsTheNeighbour = ending(
    "Where an environment ends, the one after it is reset, too.",
    RESET,
    lambda _, over: [here or last for here, last in zip(over, [False, *over], strict=False)],
)
LimitNotReset = ending(
    "Episodes that end by time limit go on.",
    On("reset|end|limit", "Pendulum"),
    lambda it, over: [here and not cut for here, cut in zip(over, it._batch.truncated, strict=True)],
)


def reset_before(it: Any, over: list[bool]) -> list[bool]:
    """Reset environments whose episode is over, so that the next step is one."""
    for index in np.flatnonzero(over):
        it.environments[index].reset()
    return [False] * len(over)


ResetRowMissing = ending("Resets and steps in one, though it says next_step.", RESET, reset_before)


def final_shown(it: Any, batch: Batch) -> Batch:
    """Reset environments in the step of their end, and show the final observation."""
    it._loop._ended = reset_before(it, it.ended)
    return batch


FinalShown = altering(
    "Resets in the step of the end, as it says, and shows the final observation there.",
    RESET,
    final_shown,
    claims={"autoreset": "same_step"},
)


def late(it: Any, over: list[bool]) -> list[bool]:
    """Return the episodes that were over one step before."""
    held, it._held = getattr(it, "_held", [False] * len(over)), over
    it._held = [here and not last for here, last in zip(over, held, strict=True)]
    return held


class ResetsLate(Altered):
    """Resets one step late: the row after the end still is of the old episode."""

    tried = RESET

    def recv(self) -> Batch:
        self._loop._ended = late(self, list(self._loop._ended))
        batch = super().recv()
        self._loop._ended = [bool(over) and not held for over, held in zip(self._loop._ended, self._held, strict=True)]
        return batch


class ResetsAgain(Altered):
    """After a reset right after an end, the first step resets again: a flag that a reset does not clear."""

    tried = On("reset|environment .* step 1")

    def reset(self, seed: int) -> None:
        due = self._loop._ended
        super().reset(seed)
        self._loop._ended = due


def once(environment: Any, shown: Any) -> Any:
    """Return a function that takes the place of an environment's reset once."""

    def reset(**seed: int) -> Any:
        del environment.reset
        return environment.reset(**seed) if seed else (shown, {})

    return reset


def counting_on(_it: Any, _index: int, environment: Any) -> None:
    """Let the steps of a limit go on through resets."""
    limit, reset = wrapper(environment, "TimeLimit"), environment.reset

    def counting(*, seed: int | None = None) -> Any:
        steps = limit._elapsed_steps or 0
        answer = reset(seed=seed)
        limit._elapsed_steps = steps % 500 if seed is None else 0
        return answer

    environment.reset = counting


LimitAcrossEpisodes = patching(
    "The steps of a time limit are not set back where a game ends.", On("limit|end|truncat"), counting_on
)
