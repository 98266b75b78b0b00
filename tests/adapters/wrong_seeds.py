"""Adapters that seed their environments in another way than ``reset`` says: environment ``i`` with ``seed + i``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from altered import Altered, On

if TYPE_CHECKING:
    from vebench.backends.interface import Setup

SEED = "seed"


class _Seeded(Altered):
    """Resets each environment a second time, with the seed that ``seed_of`` returns, None for none."""

    tried = On(SEED)

    def reset(self, seed: int) -> None:
        super().reset(seed)
        for index, environment in enumerate(self.environments):
            self._batch.observations[index], _ = environment.reset(seed=self.seed_of(seed, index))

    def seed_of(self, seed: int, index: int) -> int | None:
        return seed + index


class ConstructorsSeed(_Seeded):
    """Every reset begins with the constructor's seed: an argument that is not handed on."""

    def seed_of(self, seed: int, index: int) -> int | None:
        return self.setup.seed + index


class SeededOnce(_Seeded):
    """From the second reset on the seed is ignored: episodes go on with the generators as they are."""

    def seed_of(self, seed: int, index: int) -> int | None:
        return seed + index if self.resets == 1 else None


class SameSeed(_Seeded):
    """All environments begin alike: one seed for all."""

    tried = On("same seed|alike|one seed|seed for all")

    def seed_of(self, seed: int, index: int) -> int | None:
        return seed


class TwiceTheIndex(_Seeded):
    """Environment i begins with seed + 2i: a stride that counts twice."""

    def seed_of(self, seed: int, index: int) -> int | None:
        return seed + 2 * index


class FromOne(_Seeded):
    """Environment i begins with seed + i + 1: environments counted from one."""

    def seed_of(self, seed: int, index: int) -> int | None:
        return seed + index + 1


class EightBits(_Seeded):
    """Of a seed eight bits are kept."""

    def seed_of(self, seed: int, index: int) -> int | None:
        return (seed + index) & 0xFF


class NoSeed(_Seeded):
    """No environment is seeded at all."""

    tried = On("seed|random|chance")

    def seed_of(self, seed: int, index: int) -> int | None:
        if self.resets == 1:
            unwrapped: Any = self.environments[index].unwrapped
            unwrapped._np_random = None
        return None


class LaterUnseeded(_Seeded):
    """Environments from 2 on are not seeded."""

    tried = On("seed|random|chance")

    def seed_of(self, seed: int, index: int) -> int | None:
        if index < 2:
            return seed + index
        unwrapped: Any = self.environments[index].unwrapped
        unwrapped._np_random = None
        return None


class ResetsTwice(_Seeded):
    """Resets twice, the second time without a seed: a wrapper that starts an episode when it is made."""

    tried = On("seed|reset")

    def seed_of(self, seed: int, index: int) -> int | None:
        return None


class KeepsRunning(Altered):
    """A second reset leaves alone the environments whose episode is not over: a reset only where one is due."""

    tried = On("reset|seed")

    def reset(self, seed: int) -> None:
        if not self.resets:
            super().reset(seed)
            return
        self.resets += 1
        for index, over in enumerate(self._loop._ended):
            if over:
                self._batch.observations[index], _ = self.environments[index].reset(seed=seed + index)
                self._loop._ended[index] = False
        for array in (self._batch.rewards, self._batch.terminated, self._batch.truncated):
            array.fill(0)
        self._actions, self._reset_done = None, True


class SeedsAgain(Altered):
    """Each episode begins with the seed of the first: an autoreset that calls reset with its arguments."""

    tried = On("reset|seed|start|episode")

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for index, environment in enumerate(self.environments):
            environment.reset = self._again(environment.reset, index)  # type: ignore[method-assign] # the fault
        self._seed = setup.seed

    def reset(self, seed: int) -> None:
        self._seed = seed
        super().reset(seed)

    def _again(self, reset: Any, index: int) -> Any:  # noqa: ANN401 - Gymnasium's
        def again(*, seed: int | None = None) -> Any:  # noqa: ANN401 - Gymnasium's
            return reset(seed=self._seed + index if seed is None else seed)

        return again


class UnseededWhereDue(_Seeded):
    """An environment whose reset is due when all are reset is reset without the seed."""

    tried = On("reset|seed")

    def reset(self, seed: int) -> None:
        self._due = self.ended.copy()
        super().reset(seed)

    def seed_of(self, seed: int, index: int) -> int | None:
        return None if self._due[index] else seed + index


class RewardsKeptAtReset(Altered):
    """The row of a later reset has the rewards and flags of the step before: a buffer that only a step writes."""

    tried = On("rewards.* in the row of a reset")

    def reset(self, seed: int) -> None:
        rewards, terminated = self._batch.rewards.copy(), self._batch.terminated.copy()
        super().reset(seed)
        if self.resets > 1:
            self._batch.rewards[:], self._batch.terminated[:] = rewards, terminated


class SharedGenerator(Altered):
    """Environments draw from one generator: all begin as they are reset one after another."""

    tried = On("seed|random|environment")

    def reset(self, seed: int) -> None:
        super().reset(seed)
        first: Any = self.environments[0].unwrapped
        for index, environment in enumerate(self.environments):
            unwrapped: Any = environment.unwrapped
            unwrapped._np_random = first.np_random
            self._batch.observations[index], _ = environment.reset()
