"""Adapters whose episodes end or begin in another way: autoresets, flags, time limits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from altered import Altered, On, wrapper

if TYPE_CHECKING:
    from vebench.backends.interface import Batch, Setup


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


class RewardKept(Altered):
    """The row of a reset has the reward of the end: an array that is not cleared."""

    tried = On("reward|reset", "Pendulum")

    def alter(self, batch: Batch) -> Batch:
        last, self._last = getattr(self, "_last", batch.rewards), batch.rewards
        return batch._replace(rewards=np.where(self.began, last, batch.rewards))


class FlagKept(Altered):
    """The row of a reset has the flag of the end: every end is told twice."""

    tried = On("end|reset|flag|terminated")

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(terminated=batch.terminated | self.began)


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


class LostLives(Altered):
    """An episode ends where a life is lost: a setting for training that was left on."""

    tried = On("end|life|episode", "Breakout", envs=1)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for environment in self.environments:
            wrapper(environment, "AtariScreen").terminal_on_life_loss = True


class LimitTerminates(Altered):
    """A time limit is told as a termination: one flag for both, as before Gym 0.26."""

    tried = On("truncat|terminat|limit", "Pendulum")

    def alter(self, batch: Batch) -> Batch:
        none = np.zeros_like(batch.truncated)
        return batch._replace(terminated=batch.terminated | batch.truncated, truncated=none)


class LimitIsBoth(Altered):
    """A time limit sets both flags."""

    tried = On("truncat|terminat|limit", "Pendulum")

    def alter(self, batch: Batch) -> Batch:
        return batch._replace(terminated=batch.terminated | batch.truncated)


class EndTruncates(Altered):
    """A termination is told as a time limit."""

    tried = On("truncat|terminat|limit")

    def alter(self, batch: Batch) -> Batch:
        none = np.zeros_like(batch.truncated)
        return batch._replace(terminated=none, truncated=batch.terminated | batch.truncated)


class _Limited(Altered):
    """A time limit of its own."""

    tried = On("limit|end|truncat", "Pendulum")

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for environment in self.environments:
            limit = wrapper(environment, "TimeLimit")
            limit._max_episode_steps = self.limit_of(limit._max_episode_steps)

    def limit_of(self, steps: int) -> int:
        return steps


class LimitLate(_Limited):
    """Episodes are one step too long: > in place of >=."""

    def limit_of(self, steps: int) -> int:
        return steps + 1


class LimitEarly(_Limited):
    """Episodes are one step too short: the reset counts as a step."""

    def limit_of(self, steps: int) -> int:
        return steps - 1


class Limitless(_Limited):
    """Episodes have no time limit: the wrapper is missing."""

    def limit_of(self, steps: int) -> int:
        return 10**9


class LimitInFrames(_Limited):
    """The time limit counts frames."""

    tried = On("limit|end|truncat", "HalfCheetah", envs=2)

    def limit_of(self, steps: int) -> int:
        return steps // 5


class LimitlessLong(_Limited):
    """HalfCheetah without its limit of 1,000 steps."""

    tried = On("limit|end|truncat", "HalfCheetah", envs=2)

    def limit_of(self, steps: int) -> int:
        return 10**9


class LimitAcrossEpisodes(Altered):
    """The steps of a time limit are not set back where a game ends: 500 steps of all episodes together."""

    tried = On("limit|end|truncat")

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for environment in self.environments:
            limit = wrapper(environment, "TimeLimit")
            environment.reset = self._counting_on(limit, environment.reset)  # type: ignore[method-assign] # the fault

    @staticmethod
    def _counting_on(limit: Any, reset: Any) -> Any:  # noqa: ANN401 - Gymnasium's
        def counting_on(*, seed: int | None = None) -> Any:  # noqa: ANN401 - Gymnasium's
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
        self._loop._ended = [
            over and not bool(cut) for over, cut in zip(self._loop._ended, self._batch.truncated, strict=True)
        ]
        return super().recv()
