"""Simulators that step whole batches: honest ones of many kinds, and faulty ones whose single copies are sound.

A callable takes ``num_envs`` and a name. With one environment, no fault shows: that is the copy to compare with.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from faulty_vectors import ResetsAll, SeedsAllAlike, Sound
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

Rows = tuple[Any, ...]


class Springs:
    """Masses on springs, without Gymnasium's base class. A step that ends an episode resets.

    ``together``: one generator draws all starts.
    """

    single_observation_space: Any = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    single_action_space = spaces.Discrete(2)

    def __init__(self, num_envs: int, *, substeps: int = 4, together: bool = False, resets: bool = True) -> None:
        self.num_envs, self._substeps, self._together, self._resets = num_envs, substeps, together, resets
        self._generators: Sequence[np.random.Generator] = []

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[Any, dict[str, Any]]:
        self._seed(seed)
        return self._begin()

    def _seed(self, seed: int | None) -> None:
        if seed is not None or not self._generators:
            seeds = [seed] if self._together else [(seed or 0) + index for index in range(self.num_envs)]
            generators = [np.random.default_rng(each) for each in seeds]
            self._generators = generators * self.num_envs if self._together else generators

    def _begin(self) -> tuple[Any, dict[str, Any]]:
        self._state = np.array([generator.uniform(-1, 1, 2) for generator in self._generators])
        self._age = np.zeros(self.num_envs, np.int64)
        return self._seen(), {}

    def step(self, actions: NDArray[np.int64]) -> Rows:
        for _ in range(self._substeps):
            self._state[:, 1] += 0.1 * (3 * np.asarray(actions) - 1.5 - self._state[:, 0])
            self._state[:, 0] += 0.1 * self._state[:, 1]
        self._age += 1
        rewards = (2 * self._state[:, 0]).astype(np.float32)
        terminated = np.abs(self._state[:, 0]) > 1
        truncated = (self._age == 9) & ~terminated
        for index in np.flatnonzero(terminated | truncated) if self._resets else ():
            self._state[index], self._age[index] = self._generators[index].uniform(-1, 1, 2), 0
        return self._seen(), rewards, terminated, truncated, {}

    def _seen(self) -> Any:
        return self._state.astype(np.float32)

    def close(self) -> None:
        """Have nothing to close."""


class Dicts(Springs):
    single_observation_space = spaces.Dict({"at": Springs.single_observation_space, "ages": spaces.Discrete(10)})

    def _seen(self) -> Any:
        return {"at": super()._seen(), "ages": self._age.copy()}


class Noisy(Springs):
    """Starts at rest. One generator draws the noise of all environments."""

    def _begin(self) -> tuple[Any, dict[str, Any]]:
        super()._begin()
        self._state *= 0
        return self._seen(), {}

    def step(self, actions: NDArray[np.int64]) -> Rows:
        self._state[:, 1] += self._generators[0].normal(0, 0.2, self.num_envs)
        return super().step(actions)


class Constructed(Springs):
    """Takes its seed in the constructor alone."""

    def __init__(self, num_envs: int, seed: int) -> None:
        super().__init__(num_envs)
        self._seed(seed)

    def reset(self, *, options: object = None) -> tuple[Any, dict[str, Any]]:  # type: ignore[override]
        return self._begin()


class Tensor:
    """An array of a device that is read as torch's are, and awaited as JAX's are."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array

    def detach(self) -> "Tensor":
        return self

    cpu = block_until_ready = detach

    def numpy(self) -> NDArray[Any]:
        return self.array


class Altered:
    """Another vector environment, with other actions or rows. ``alter`` gets the rows before, and the rows."""

    def __init__(
        self,
        vector: Any,
        alter: Callable[[Rows, Rows], Rows] = lambda _, now: now,
        act: Callable[[Any], Any] = lambda actions: actions,
        start: Callable[[Any], Any] = lambda observations: observations,
    ) -> None:
        self._vector, self._alter, self._act, self._start = vector, alter, act, start

    def __getattr__(self, name: str) -> Any:
        return getattr(self._vector, name)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        observations, infos = self._vector.reset(seed=seed, options=options)
        flags = np.zeros(self._vector.num_envs, np.bool_)
        self._rows = observations, np.zeros(len(flags), np.float32), flags, flags, {}
        return self._start(observations), infos

    def step(self, actions: Any) -> Rows:
        before, self._rows = self._rows, self._vector.step(self._act(actions))
        return self._alter(before, self._rows)


def carts(num_envs: int, mode: str = "next_step", kind: type[Sound] = Sound) -> Sound:
    """Return CartPole in one of Gymnasium's modes."""
    return kind([lambda: gymnasium.make("CartPole-v1")] * num_envs, autoreset_mode=AutoresetMode[mode.upper()])


def _misdeclared(num_envs: int) -> Sound:
    vector = carts(num_envs)
    vector.metadata = {**vector.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
    return vector


def _half(before: Rows, now: Rows) -> Rows:
    odd = np.arange(len(now[1])) % 2 == 1
    observations = np.where(odd[:, None], before[0], now[0])
    return observations, *(np.where(odd, *pair) for pair in zip(before[1:4], now[1:4], strict=True)), {}


def _rounded(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(np.float16).astype(np.float32)


def _on_device(rows: Rows) -> Rows:
    return (*map(Tensor, rows[:4]), {})


Make = Callable[[int], Any]


def _springs(alter: Callable[[Rows, Rows], Rows] = lambda _, now: now, **changes: Any) -> tuple[Make, Make]:
    return lambda num_envs: Altered(Springs(num_envs), alter, **changes), Springs


# A faulty batch, and the honest batch whose copy it is compared with.
FAULTY: dict[str, tuple[Make, Make]] = {
    "half": _springs(_half),
    "stale-device": _springs(lambda before, now: _on_device((before[0], *now[1:])), start=Tensor),
    "deaf": _springs(act=np.zeros_like),
    "endless": (partial(Springs, resets=False), Springs),
    "skips": (partial(Springs, substeps=2), Springs),
    "scaled": _springs(lambda _, now: (now[0], now[1] * 0.5, *now[2:])),
    "swapped": _springs(lambda _, now: (*now[:2], now[3], now[2], {})),
    "rolled": _springs(lambda _, now: (np.roll(now[0], 1, 0), *now[1:])),
    "half-precision": _springs(lambda _, now: (_rounded(now[0]), *now[1:]), start=_rounded),
    "misdeclared": (_misdeclared, partial(carts, mode="same_step")),
    "resets-all": (
        lambda num_envs: carts(num_envs, "disabled", ResetsAll),
        lambda num_envs: carts(num_envs, "disabled"),
    ),
    "one-seed": (partial(carts, kind=SeedsAllAlike), carts),
    "deaf-together": (lambda num_envs: Altered(Springs(num_envs, together=True), act=np.zeros_like), Springs),
}
HONEST: dict[str, Make] = {
    "next-step": carts,
    "same-step": partial(carts, mode="same_step"),
    "disabled": partial(carts, mode="disabled"),
    "bare": Springs,
    "dicts": Dicts,
    "tensors": lambda n: Altered(Springs(n), lambda _, now: _on_device(now), start=Tensor),
    "together": partial(Springs, together=True),
    "noisy": partial(Noisy, together=True),
}


def faulty(num_envs: int, fault: str) -> Any:
    """Return a batch with a fault, or the sound copy."""
    return FAULTY[fault][num_envs == 1](num_envs)


def honest(num_envs: int, kind: str) -> Any:
    return HONEST[kind](num_envs)


def seeded(num_envs: int, seed: int) -> Any:
    """Return a batch that cannot be seeded later."""
    return Constructed(num_envs, seed)


def miscounts(num_envs: int) -> Any:
    return Springs(num_envs + 1)


def lacks_spaces(num_envs: int) -> Any:
    return gymnasium.make("CartPole-v1", max_episode_steps=num_envs)


def without_num_envs() -> Any:
    return carts(2)
