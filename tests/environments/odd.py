"""Environments that register themselves on import: odd spaces, and one fault each, for the tests of the backends."""

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


class Counter(gymnasium.Env[Any, Any]):
    """Observes the number of its step; an episode lasts ``length`` steps. Rewards the sum of its action."""

    def __init__(self, observation: str = "discrete", action: str = "discrete", length: int = 5) -> None:
        self.observation_space = _SPACES[observation]
        self.action_space = _SPACES[action]
        self._length = length
        self._seed = self._step = self._seeds = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        if seed is not None:
            self._seed = seed
            self._seeds += 1
        self._step = 0
        return self._observe(), {}

    def step(self, action: NDArray[np.generic]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action in self.action_space
        self._happens()
        self._step += 1
        return self._observe(), self._reward(action), False, self._step == self._length, {}

    def _happens(self) -> None:
        """Begin a step."""

    def _reward(self, action: NDArray[np.generic]) -> float:
        return float(np.sum(action))

    def _observe(self) -> int | NDArray[np.generic]:
        space = self.observation_space
        return self._step if isinstance(space, spaces.Discrete) else np.full(space.shape or (), self._step, space.dtype)


class Faulty(Counter):
    """Does what ``fault`` says in its third step, if it was seeded with 3."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self._fault = fault

    def _happens(self) -> None:
        if (self._seed, self._step) == (3, 2):
            if self._fault == "raises":
                raise ValueError("boom")
            if self._fault == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(600)


class Verbose(Counter):
    """Raises an error with a text of 100 kB in its third step, whatever it was seeded with."""

    def _happens(self) -> None:
        if self._step == 2:
            raise ValueError("boom" * 25_000)


class Held(Counter):
    """Does not step until there is a file ``go``, if it was seeded with 3."""

    def _happens(self) -> None:
        while self._seed == 3 and not Path("go").exists():
            time.sleep(0.001)


class Chancy(Counter):
    """Rewards what nobody can seed."""

    def _reward(self, action: NDArray[np.generic]) -> float:
        return float(int.from_bytes(os.urandom(4), "big"))


_in_common = random.Random()


class InCommon(Counter):
    """Rewards what a generator says that all environments of a process have in common."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            _in_common.seed(seed)
        return super().reset(seed=seed, options=options)

    def _reward(self, action: NDArray[np.generic]) -> float:
        return _in_common.random()


class Worn(Counter):
    """Rewards how often it was reset with a seed: a reset does not make it as good as new."""

    def _reward(self, action: NDArray[np.generic]) -> float:
        return float(self._seeds)


class NoNumber(Counter):
    """Rewards what is no number."""

    def _reward(self, action: NDArray[np.generic]) -> float:
        return float("nan")


def normalised() -> gymnasium.Env[Any, Any]:
    """Return CartPole with a wrapper whose statistics survive resets."""
    return gymnasium.wrappers.NormalizeObservation(gymnasium.make("CartPole-v1"))


class Nested(gymnasium.Env[Any, Any]):
    """Observes and takes dicts and tuples, one in the other; each array shows its step, and what it was given.

    ``pair``: the outer ones are tuples. Its seed decides when an episode ends, after 3 to 6 steps, and what it draws.
    """

    def __init__(self, pair: bool = False) -> None:
        seen = {
            "camera": spaces.Box(0, 255, (4, 4), np.uint8),
            "arm": spaces.Tuple((spaces.Box(-np.inf, np.inf, (3,), np.float64), spaces.Discrete(1000))),
        }
        taken = {
            "grip": spaces.Discrete(3),
            "move": spaces.Box(-1.0, 1.0, (2,), np.float32),
            "dials": spaces.Tuple((spaces.MultiDiscrete([2, 5]), spaces.MultiBinary(2))),
        }
        self._pair = pair
        self.observation_space = spaces.Tuple(tuple(seen.values())) if pair else spaces.Dict(seen)
        self.action_space = spaces.Tuple(tuple(taken.values())) if pair else spaces.Dict(taken)
        self._step = self._length = 0
        self._grip, self._drawn = 0, 0.0
        self._move = self._dials = np.zeros(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._step, self._length = 0, int(self.np_random.integers(3, 7))
        self._grip, self._move, self._dials = 0, np.zeros(2), np.zeros(2)
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action in self.action_space
        grip, move, dials = action if self._pair else (action["grip"], action["move"], action["dials"])
        self._step += 1
        self._grip, self._move, self._dials = int(grip), move, dials[0] * dials[1]
        over = self._step == self._length
        return self._observe(), float(np.sum(dials[0])), over and self._length % 2 == 0, over, {}

    def _observe(self) -> Any:
        self._drawn = float(self.np_random.random())
        camera = np.full((4, 4), 10 * self._step + self._grip, np.uint8)
        arm = (np.array([*self._move, self._drawn]), 10 * self._step + int(np.sum(self._dials)))
        return (camera, arm) if self._pair else {"camera": camera, "arm": arm}


_SPACES: dict[str, Any] = {
    "discrete": spaces.Discrete(7),
    "from-two": spaces.Discrete(3, start=2),
    "box": spaces.Box(-1.0, 2.0, (2, 3), np.float32),
    "whole-box": spaces.Box(-3, 4, (2,), np.int32),
    "multi-discrete": spaces.MultiDiscrete([2, 5]),
    "multi-binary": spaces.MultiBinary(4),
    "text": spaces.Text(5),
    "dict-with-text": spaces.Dict({"arm": spaces.Tuple((spaces.Discrete(2), spaces.Text(5))), "b": spaces.Discrete(2)}),
    "sequence": spaces.Sequence(spaces.Discrete(2)),
    "graph": spaces.Graph(spaces.Discrete(2), None),
}

for name in _SPACES:
    gymnasium.register(f"odd/Observes-{name}-v0", "odd:Counter", kwargs={"observation": name})
    gymnasium.register(f"odd/Acts-{name}-v0", "odd:Counter", kwargs={"action": name})
for fault in ("raises", "dies", "hangs"):
    gymnasium.register(f"odd/Faulty-{fault}-v0", "odd:Faulty", kwargs={"fault": fault})
for kind in ("Chancy", "Held", "Nested", "Verbose", "Worn"):
    gymnasium.register(f"odd/{kind}-v0", f"odd:{kind}")
gymnasium.register("odd/In-common-v0", "odd:InCommon")
gymnasium.register("odd/No-number-v0", "odd:NoNumber")
gymnasium.register("odd/Pair-v0", "odd:Nested", kwargs={"pair": True})
