"""Environments for the shared-memory vector environment: any space, any fault, and uneven steps."""

import os
import signal
import time
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space
from gymnasium.spaces.utils import flatten

Value = Any  # what a space says


class Sampler(gymnasium.Env[Any, Any]):
    """Observes samples of its space, drawn from its seed; infos come and go; an episode has ``length`` steps.

    Its rewards add up what it was given last, and before that.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012 - as Gymnasium declares it
    render_mode = "rgb_array"

    def __init__(self, space: Space[Any], action: Space[Any] | None = None, length: int = 7) -> None:
        self.observation_space = deepcopy(space)  # each draws from its own
        self.action_space = space if action is None else action
        self.level = 1.0
        self._length = length
        self._step = 0
        self._last: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self._step = 0
        self._last = None
        info = {"options": options} if options else {"started": seed} if seed is not None else {}
        return self.observation_space.sample(), info

    def step(self, action: Value) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action in self.action_space
        self._step += 1
        before = 0.0 if self._last is None else float(np.sum(flatten(self.action_space, self._last)))
        self._last = action
        reward = 2.0 * before + float(np.sum(flatten(self.action_space, action)))
        info: dict[str, Any] = {}
        if self._step % 2:
            info = {"count": self._step, "array": np.arange(3) * self._step, "nested": {"text": str(self._step)}}
        return self.observation_space.sample(), reward, self._step == self._length, self._step % 11 == 0, info

    def render(self) -> Value:
        return np.full((2, 2, 3), self._step, np.uint8)

    def add(self, left: int, *, right: int = 0) -> int:
        return left + right


class UnpicklableError(Exception):
    """Cannot be sent to another process."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class MuteError(Exception):
    """Has no text: asked for it, it raises another error."""

    def __str__(self) -> str:
        raise LookupError("no words")


class Troubled(Sampler):
    """Observes how many steps it has made; does what its action says."""

    FINE, RAISE, RAISE_ODD, DIE, HANG, EXIT, SLEEP, RAISE_MUTE = range(8)

    def __init__(self) -> None:
        super().__init__(gymnasium.spaces.Discrete(100), gymnasium.spaces.Discrete(8), length=50)
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        if options == {"raise": True}:
            raise LookupError("no start")
        return 0, {}

    def step(self, action: Value) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        if action == self.RAISE:
            raise ValueError("boom")
        if action == self.RAISE_ODD:
            raise UnpicklableError(1, 2)
        if action == self.RAISE_MUTE:
            raise MuteError
        if action == self.DIE:
            os.kill(os.getpid(), signal.SIGKILL)
        if action == self.EXIT:
            raise SystemExit(3)
        if action in (self.HANG, self.SLEEP):
            time.sleep(600 if action == self.HANG else 0.2)
        return self._steps, 0.0, False, False, {}


gymnasium.register("various/Troubled-v0", "various:Troubled")
