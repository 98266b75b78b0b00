"""Adapters that are right in the exact variant of a task, and not in the one that is measured."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from altered import Altered, On, wrapper
from liars import OtherResize

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vebench.backends.interface import Batch, Setup


class NoNoops(Altered):
    """Makes no more than one no-op at a reset where 30 are asked for."""

    tried = On("no-op|reset|start|seed|frame|observation|picture", "Pong", envs=1, measured=True)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for environment in self.environments:
            wrapper(environment, "AtariScreen").noop_max = 1


class FewerNoops(NoNoops):
    """Makes up to 29 no-ops at a reset, not 30: a draw that leaves out its upper bound."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for environment in self.environments:
            wrapper(environment, "AtariScreen").noop_max = 1 if setup.task.exact else 29


class StickyMeasured(Altered):
    """Repeats the last action with probability 0.25 where the task is measured: ale-py's default."""

    tried = On("sticky|random|chance|action", "Pong", envs=1, measured=True)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for environment in self.environments if not setup.task.exact else ():
            game = environment.unwrapped
            game.ale.setFloat("repeat_action_probability", 0.25)  # type: ignore[attr-defined] # ale-py's
            game.load_game()  # type: ignore[attr-defined] # ale-py's


class NoNoise(Altered):
    """Starts without noise where the task is measured."""

    tried = On("noise|start|seed|reset|observation", "Hopper", envs=2, measured=True)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for environment in self.environments:
            environment.unwrapped._reset_noise_scale = 0.0  # type: ignore[attr-defined] # of MuJoCo's


class HalfTheNoise(Altered):
    """Starts with half of the noise."""

    tried = On("noise|start|seed|reset|observation", "Hopper", envs=2, measured=True)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for environment in self.environments:
            environment.unwrapped._reset_noise_scale /= 2  # type: ignore[attr-defined] # of MuJoCo's


class SkipsMoreMeasured(Altered):
    """Steps 8 frames where the task is measured, and says 4."""

    tried = On("frame", "Pong", envs=1, measured=True)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for environment in self.environments if not setup.task.exact else ():
            wrapper(environment, "AtariScreen").frame_skip = 8


class SkipsLessMeasured(Altered):
    """Steps 2 sub-steps where the task is measured, and says 4."""

    tried = On("frame", "Hopper", envs=2, measured=True)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for environment in self.environments if not setup.task.exact else ():
            environment.unwrapped.frame_skip = 2  # type: ignore[attr-defined] # of MuJoCo's


class CheaperMeasured(OtherResize):
    """Shrinks the screen by the nearest pixels where the task is measured."""

    tried = On("picture|observation", "Pong", envs=1, measured=True)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        if setup.task.exact:
            for environment in self.environments:
                del wrapper(environment, "AtariScreen")._get_obs


class LimitlessMeasured(Altered):
    """Has no time limit where the task is measured."""

    tried = On("limit|end|truncat", "Pendulum", measured=True)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for environment in self.environments if not setup.task.exact else ():
            wrapper(environment, "TimeLimit")._max_episode_steps = 10**9


class ClaimsMeasured(Altered):
    """Claims 8 frames in a step where the task is measured, and takes 4."""

    tried = On("frame", "Hopper", envs=2, measured=True)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        if not setup.task.exact:
            self.info = replace(self.info, frame_skip=8)


class ResetsUncountedMeasured(Altered):
    """Says same_step where the task is measured, so that its resets count as steps."""

    tried = On("reset|autoreset", measured=True)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        if not setup.task.exact:
            self.info = replace(self.info, autoreset="same_step")


class SeedsMeasured(Altered):
    """All environments begin alike where the task is measured."""

    tried = On("seed", "Hopper", envs=4, measured=True)

    def reset(self, seed: int) -> None:
        super().reset(seed)
        for index, environment in enumerate(self.environments):
            self._batch.observations[index], _ = environment.reset(seed=seed)


class IdlesMeasured(Altered):
    """Returns the same rows again where the task is measured."""

    tried = On("not step|same row|repeat|stale|stuck|action", "Hopper", envs=2, fraud=True, measured=True)

    def recv(self) -> Batch:
        if self.setup.task.exact or self._actions is None or self.batches < 2:
            self._kept = super().recv()
            return self._kept
        self._actions = None
        return self._kept


class EveryThirdMeasured(Altered):
    """Steps in one of three batches where the task is measured, and repeats its rows in between."""

    tried = On("not step|same row|repeat|stale|stuck|action", fraud=True, measured=True)

    def send(self, actions: NDArray[np.generic]) -> None:
        self._steps = getattr(self, "_steps", 0) + 1
        self._idle = bool(self._steps % 3) and not self.setup.task.exact
        if not self._idle:
            super().send(actions)

    def recv(self) -> Batch:
        if not getattr(self, "_idle", False):
            self._kept = super().recv()
        return self._kept
