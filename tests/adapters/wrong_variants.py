"""Adapters that are right in the exact variant of a task, and not in the one that is measured."""

import numpy as np
from altered import Altered, On, reporting, seeding, setting, wrapper
from liars import OtherResize
from numpy.typing import NDArray

from vebench.backends.interface import Batch, Setup

NOOPS = On("no-op|reset|start|seed|frame|observation|picture", "Pong", envs=1, measured=True)
NOISE = On("noise|start|seed|reset|observation", "Hopper", envs=2, measured=True)

NoNoops = setting("Makes no more than one no-op at a reset where 30 are asked for.", NOOPS, "AtariScreen", noop_max=1)
FewerNoops = setting(
    "Makes up to 29 no-ops at a reset, not 30: a draw that leaves out its upper bound.",
    NOOPS,
    "AtariScreen",
    noop_max=lambda most: min(most, 29),
)
NoNoise = setting("Starts without noise where the task is measured.", NOISE, "unwrapped", _reset_noise_scale=0.0)
HalfTheNoise = setting("Starts with half of the noise.", NOISE, "unwrapped", _reset_noise_scale=lambda scale: scale / 2)
SkipsMoreMeasured = setting(
    "Steps 8 frames where the task is measured, and says 4.",
    On("frame", "Pong", envs=1, measured=True),
    "AtariScreen",
    if_exact=False,
    frame_skip=8,
)
SkipsLessMeasured = setting(
    "Steps 2 sub-steps where the task is measured, and says 4.",
    On("frame", "Hopper", envs=2, measured=True),
    "unwrapped",
    if_exact=False,
    frame_skip=2,
)
LimitlessMeasured = setting(
    "Has no time limit where the task is measured.",
    On("limit|end|truncat", "Pendulum", measured=True),
    "TimeLimit",
    if_exact=False,
    _max_episode_steps=10**9,
)
ClaimsMeasured = reporting(
    "Claims 8 frames in a step where the task is measured, and takes 4.",
    On("frame", "Hopper", envs=2, measured=True),
    if_exact=False,
    frame_skip=8,
)
ResetsUncountedMeasured = reporting(
    "Says same_step where the task is measured, so that its resets count as steps.",
    On("reset|autoreset", measured=True),
    if_exact=False,
    autoreset="same_step",
)
SeedsMeasured = seeding(
    "All environments begin alike where the task is measured.",
    On("seed", "Hopper", envs=4, measured=True),
    lambda _it, seed, _: seed,
)


class StickyMeasured(Altered):
    """Repeats the last action with probability 0.25 where the task is measured: ale-py's default."""

    tried = On("sticky|random|chance|action", "Pong", envs=1, measured=True)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for environment in self.environments if not setup.task.exact else ():
            game = environment.unwrapped
            game.ale.setFloat("repeat_action_probability", 0.25)  # type: ignore[attr-defined] # ale-py's
            game.load_game()  # type: ignore[attr-defined] # ale-py's


class CheaperMeasured(OtherResize):
    """Shrinks the screen by the nearest pixels where the task is measured."""

    tried = On("picture|observation", "Pong", envs=1, measured=True)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        if setup.task.exact:
            for environment in self.environments:
                del wrapper(environment, "AtariScreen")._get_obs


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
