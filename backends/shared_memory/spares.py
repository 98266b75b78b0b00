"""Environments that are reset ahead, so that the end of an episode need not wait for a slow reset."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import gymnasium

Environment = gymnasium.Env[Any, Any]
_First = tuple[Any, dict[str, Any]]  # the first observation of an episode, and its info


class ResetAhead(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment with ``spares``. A thread resets them while the environment steps.

    At the end of an episode, the next spare takes the place of the environment, which then becomes a spare. A reset
    ahead begins with the state in which the last reset left ``np_random``. So rows are the same as without spares if a
    reset depends on ``np_random`` alone, and steps do not draw from it. If a step drew, the next reset raises
    RuntimeError. docs/reference/vector-envs.md says which environments cannot have spares.
    """

    def __init__(self, make_env: Callable[[], Environment], spares: int = 1) -> None:
        super().__init__(make_env())
        self._environments = [self.env, *(make_env() for _ in range(spares))]
        self._thread = ThreadPoolExecutor(1, "resets")  # starts with the first reset ahead, after any fork
        self._ahead: deque[Future[tuple[Environment, _First]]] = deque()
        self._began: object = None  # the generator's state after the reset of this episode
        self._last: Any = None  # the generator's state after the last reset, ahead or not

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> _First:
        """Begin an episode: in a spare, or in the same environment if there is a seed or there are options."""
        if seed is None and options is None and self._ahead:
            ended = self.env
            if _generator(ended).state != self._began:
                raise RuntimeError("a step drew from np_random, so a reset ahead would differ: do without spares")
            self.env, first = self._ahead[0].result()
            self._ahead.popleft()
            self._began = _generator(self.env).state
            self._ahead.append(self._thread.submit(self._reset_ahead, ended))
            return first
        for future in self._ahead:
            future.cancel()
        wait(self._ahead)
        self._ahead.clear()
        first = self.env.reset(seed=seed, options=options)
        self._began = self._last = _generator(self.env).state
        for environment in self._environments:
            if environment is not self.env:
                self._ahead.append(self._thread.submit(self._reset_ahead, environment, seed))
        return first

    def _reset_ahead(self, environment: Environment, seed: int | None = None) -> tuple[Environment, _First]:
        if seed is not None:
            environment.reset(seed=seed)  # it may seed more than ``np_random``
        _generator(environment).state = self._last
        first = environment.reset()
        self._last = _generator(environment).state
        return environment, first

    def close(self) -> None:
        """End the thread, and close every environment. A second call does nothing."""
        self._thread.shutdown(cancel_futures=True)
        while self._environments:
            self._environments.pop().close()


def _generator(environment: Environment) -> Any:
    """Return the bit generator behind ``np_random``."""
    return environment.unwrapped.np_random.bit_generator
