"""Gymnasium's wrapper of the Atari screen with two gaps closed, so that every backend shows the same.

Import this module on use only, since it loads Gymnasium and ale-py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsFloat

from ale_py import Action
from gymnasium.utils import RecordConstructorArgs
from gymnasium.wrappers import AtariPreprocessing

if TYPE_CHECKING:
    import gymnasium


class AtariScreen(AtariPreprocessing):
    """``AtariPreprocessing`` with two changes: the last observation of an episode, and games without a NOOP.

    ``last_frames``: where an episode ends in the last two frames of a step, Gymnasium shows stale frames. This class
    shows the frames that the step ended with, as EnvPool does. ``any_noop``: where the minimal action set does not
    begin with NOOP (Backgammon, VideoCheckers), Gymnasium refuses no-ops, since its action 0 presses a button. This
    class gives the emulator its own NOOP.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        *,
        noop_max: int = 30,
        last_frames: bool = True,
        any_noop: bool = True,
        **settings: Any,
    ) -> None:
        # Record the arguments for ``spec``. Gymnasium keeps the first record.
        RecordConstructorArgs.__init__(self, noop_max=noop_max, last_frames=last_frames, any_noop=any_noop, **settings)
        other_noop = any_noop and env.get_wrapper_attr("get_action_meanings")()[0] != "NOOP"
        super().__init__(env, noop_max=0 if other_noop else noop_max, **settings)
        self._waits = noop_max if other_noop else 0
        self._last_frames = last_frames
        self._first_frame = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start a new episode with 1 to ``noop_max`` no-ops."""
        observation, info = super().reset(seed=seed, options=options)
        if self._waits:
            for _ in range(int(self.env.unwrapped.np_random.integers(1, self._waits + 1))):
                self.ale.act(Action.NOOP)
            self.lives = self.ale.lives()
            info |= self.env.unwrapped._get_info()  # type: ignore[attr-defined] # noqa: SLF001 - of ``AtariEnv``
            self._read_screen()
            self.obs_buffer[1].fill(0)
            observation = self._get_obs()  # type: ignore[no-untyped-call] # Gymnasium leaves it without types
        self._first_frame = self.ale.getEpisodeFrameNumber()
        return observation, info

    def _read_screen(self) -> None:
        read = self.ale.getScreenGrayscale if self.grayscale_obs else self.ale.getScreenRGB
        read(self.obs_buffer[0])

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Repeat ``action`` for ``frame_skip`` frames, or until the episode ends."""
        observation, reward, terminated, truncated, info = super().step(action)
        if self._last_frames and (terminated or truncated):
            frames = (self.ale.getEpisodeFrameNumber() - self._first_frame - 1) % self.frame_skip + 1
            if frames > self.frame_skip - 2:
                if frames < self.frame_skip:
                    # The step ended before its last frame, so there is no second frame to take the maximum of.
                    self.obs_buffer[1].fill(0)
                self._read_screen()
                observation = self._get_obs()  # type: ignore[no-untyped-call] # Gymnasium leaves it without types
        return observation, reward, terminated, truncated, info
