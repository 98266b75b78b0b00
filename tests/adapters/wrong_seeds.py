"""Adapters that seed their environments in another way than ``reset`` says: environment ``i`` with ``seed + i``."""

from typing import Any

from altered import Altered, On, patching, seeding

SEED = On("seed")
CHANCE = On("seed|random|chance")


def unseeded(it: Any, index: int) -> None:
    """Give an environment a generator that nothing has seeded. Returns that it has no seed."""
    it.environments[index].unwrapped._np_random = None


ConstructorsSeed = seeding(
    "Every reset begins with the constructor's seed: an argument that is not handed on.",
    SEED,
    lambda it, _, index: it.setup.seed + index,
)
SeededOnce = seeding(
    "From the second reset on the seed is ignored.",
    SEED,
    lambda it, seed, index: seed + index if it.resets == 1 else None,
)
SameSeed = seeding(
    "All environments begin alike: one seed for all.",
    On("same seed|alike|one seed|seed for all"),
    lambda _it, seed, _: seed,
)
FromOne = seeding("Environment i begins with seed + i + 1.", SEED, lambda _, seed, index: seed + index + 1)
NoSeed = seeding(
    "No environment is seeded at all.", CHANCE, lambda it, _, index: unseeded(it, index) if it.resets == 1 else None
)
ResetsTwice = seeding("Resets twice, the second time without a seed.", On("seed|reset"), lambda *_: None)
SeedOrNone = seeding(
    "An environment that gets seed 0 is not seeded.", SEED, lambda _, seed, index: seed + index or None
)
FifthOn = seeding(
    "Environments from the fifth on begin with the seed of their neighbour.",
    On("seed|environment"),
    lambda _, seed, index: seed + index + (index > 3),
)


class UnseededWhereDue(Altered):
    """An environment whose reset is due when all are reset is reset without the seed."""

    tried = On("reset|seed")

    def reset(self, seed: int) -> None:
        due = self.ended.copy()
        super().reset(seed)
        for index, environment in enumerate(self.environments):
            begin = None if due[index] else seed + index
            self._batch.observations[index], _ = environment.reset(seed=begin)


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


def again(it: Any, index: int, environment: Any) -> None:
    """Let each reset have the seed of the last that had one."""
    reset, seeds = environment.reset, [it.setup.seed + index]

    def seeded(*, seed: int | None = None) -> Any:
        seeds[:] = [seeds[0] if seed is None else seed]
        return reset(seed=seeds[0])

    environment.reset = seeded


SeedsAgain = patching("Each episode begins with the seed of the first.", On("reset|seed|start|episode"), again)


class RewardsKeptAtReset(Altered):
    """The row of a later reset has the rewards and flags of the step before: a buffer that only a step writes."""

    tried = On("rewards.* in the row of a reset")

    def reset(self, seed: int) -> None:
        rewards, terminated = self._batch.rewards.copy(), self._batch.terminated.copy()
        super().reset(seed)
        if self.resets > 1:
            self._batch.rewards[:], self._batch.terminated[:] = rewards, terminated
