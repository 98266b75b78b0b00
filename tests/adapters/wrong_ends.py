"""Adapters whose episodes end or begin in another way: autoresets, flags, time limits."""

from dataclasses import replace
from typing import Any

import numpy as np
from altered import Altered, On, altering, before, setting, wrapper

from vebench.backends.interface import Batch, Setup

CONFUSED = On("truncat|terminat|limit", "Pendulum")
LIMIT = On("limit|end|truncat", "Pendulum")
LONG = On("limit|end|truncat", "HalfCheetah", envs=2)


def ends(batch: Batch) -> Any:
    """Return which rows are ends of either kind."""
    return batch.terminated | batch.truncated


def none(_: object, batch: Batch) -> Any:
    """Return flags that are not set."""
    return np.zeros_like(batch.terminated)


RewardKept = altering(
    "The row of a reset has the reward of the end: an array that is not cleared.",
    On("reward|reset", "Pendulum"),
    rewards=lambda it, batch: np.where(it.began, before(it, batch.rewards), batch.rewards),
)
FlagKept = altering(
    "The row of a reset has the flag of the end: every end is told twice.",
    On("end|reset|flag|terminated"),
    terminated=lambda it, batch: batch.terminated | it.began,
)
LimitTerminates = altering(
    "A time limit is told as a termination: one flag for both, as before Gym 0.26.",
    CONFUSED,
    terminated=lambda _, batch: ends(batch),
    truncated=none,
)
LimitIsBoth = altering("A time limit sets both flags.", CONFUSED, terminated=lambda _, batch: ends(batch))
EndTruncates = altering(
    "A termination is told as a time limit.",
    On("truncat|terminat|limit"),
    terminated=none,
    truncated=lambda _, batch: ends(batch),
)
LostLives = setting(
    "An episode ends where a life is lost: a setting for training that was left on.",
    On("end|life|episode", "Breakout", envs=1),
    "AtariScreen",
    terminal_on_life_loss=True,
)
LimitLate = setting(
    "Episodes are one step too long: > in place of >=.", LIMIT, "TimeLimit", _max_episode_steps=lambda steps: steps + 1
)
LimitEarly = setting(
    "Episodes are one step too short: the reset counts as a step.",
    LIMIT,
    "TimeLimit",
    _max_episode_steps=lambda steps: steps - 1,
)
Limitless = setting("Episodes have no time limit: no wrapper.", LIMIT, "TimeLimit", _max_episode_steps=10**9)
LimitInFrames = setting("The time limit counts frames.", LONG, "TimeLimit", _max_episode_steps=lambda steps: steps // 5)
LimitlessLong = setting("HalfCheetah without its limit of 1,000 steps.", LONG, "TimeLimit", _max_episode_steps=10**9)


class FinalShown(Altered):
    """Resets in the step of the end, as it says, and shows the final observation there."""

    tried = On("final|reset|autoreset|observation")

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, autoreset="same_step")

    def alter(self, batch: Batch) -> Batch:
        for index in np.flatnonzero(self.ended):
            self.environments[index].reset()
        self._loop._ended = [False] * len(self.environments)
        return batch


class ResetRowMissing(Altered):
    """Resets and steps in one: the row of the reset is left out, though it says next_step."""

    tried = On("reset")

    def recv(self) -> Batch:
        for index, over in enumerate(self._loop._ended):
            if over:
                self.environments[index].reset()
        self._loop._ended = [False] * len(self.environments)
        return super().recv()


class ResetsLate(Altered):
    """Resets one step late: the row after the end still is of the old episode."""

    tried = On("reset")

    def recv(self) -> Batch:
        was, held = list(self._loop._ended), getattr(self, "_held", [False] * len(self.environments))
        self._loop._ended = list(held)
        batch = super().recv()
        self._held = [over and not before for over, before in zip(was, held, strict=True)]
        self._loop._ended = [bool(over) and not late for over, late in zip(self._loop._ended, self._held, strict=True)]
        return batch


class ResetsAgain(Altered):
    """After a reset right after an end, the first step resets again: a flag that a reset does not clear."""

    tried = On("reset|environment .* step 1")

    def reset(self, seed: int) -> None:
        due = self._loop._ended
        super().reset(seed)
        self._loop._ended = due


class ShowsTheNextStart(Altered):
    """The row of an end has the first observation of the next episode, which the next row has, too."""

    tried = On("final|reset|observation")

    def alter(self, batch: Batch) -> Batch:
        for index in np.flatnonzero(self.ended):
            batch.observations[index], _ = self.environments[index].reset()
            self.environments[index].reset = self._once(index, batch.observations[index].copy())  # type: ignore[method-assign] # the fault
        return batch

    def _once(self, index: int, shown: Any) -> Any:
        def once(**seed: int) -> Any:
            del self.environments[index].reset
            return self.environments[index].reset(**seed) if seed else (shown, {})

        return once


class EndsTheNeighbour(Altered):
    """Where an environment ends, the one after it is reset, too: a mask that is off by one."""

    tried = On("reset|end|environment")

    def recv(self) -> Batch:
        over = self._loop._ended
        self._loop._ended = [here or before for here, before in zip(over, [False, *over], strict=False)]
        return super().recv()


class OneEndAtATime(Altered):
    """Where two environments end in one step, only the first is reset."""

    tried = On("reset|end")

    def recv(self) -> Batch:
        ended = self._loop._ended
        if any(ended):
            first = ended.index(True)
            self._loop._ended = [index == first for index in range(len(ended))]
        return super().recv()


class AllReset(Altered):
    """Where one environment ends, all are reset: one call for the whole vector."""

    tried = On("reset|end|episode")

    def recv(self) -> Batch:
        if any(self._loop._ended):
            self._loop._ended = [True] * len(self.environments)
        return super().recv()


class LimitAcrossEpisodes(Altered):
    """The steps of a time limit are not set back where a game ends: 500 steps of all episodes together."""

    tried = On("limit|end|truncat")

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for environment in self.environments:
            limit = wrapper(environment, "TimeLimit")
            environment.reset = self._counting_on(limit, environment.reset)  # type: ignore[method-assign] # the fault

    @staticmethod
    def _counting_on(limit: Any, reset: Any) -> Any:
        def counting_on(*, seed: int | None = None) -> Any:
            steps = limit._elapsed_steps or 0
            answer = reset(seed=seed)
            limit._elapsed_steps = steps % 500 if seed is None else 0
            return answer

        return counting_on


class EndsInFirst(Altered):
    """Ends are told of the first environment that ends in a step only; all are reset."""

    tried = On("end")

    def alter(self, batch: Batch) -> Batch:
        told = np.zeros_like(self.ended)
        told[np.flatnonzero(self.ended)[:1]] = True
        return batch._replace(terminated=batch.terminated & told, truncated=batch.truncated & told)


class LimitNotReset(Altered):
    """Episodes that end by time limit go on: only termination resets."""

    tried = On("reset|end|limit", "Pendulum")

    def recv(self) -> Batch:
        ends = zip(self._loop._ended, self._batch.truncated, strict=True)
        self._loop._ended = [over and not bool(cut) for over, cut in ends]
        return super().recv()
