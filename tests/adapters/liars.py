"""Adapters that do other work than they claim, each in one way: every one of them has to be caught, by name."""

from __future__ import annotations

from dataclasses import replace
from types import MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends.environments import make
from vebench.backends.for_loop import ForLoop, Loop
from vebench.backends.interface import Difference

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vebench.backends.interface import Batch, Setup


class NoReset(ForLoop):
    """Steps on where an episode is over: a finished game costs nothing."""

    def recv(self) -> Batch:
        self._loop._ended = [False] * len(self.environments)  # noqa: SLF001 - the fault
        return super().recv()


class RowZero(ForLoop):
    """Shows environment 0 for every environment, as EnvPool 0.8.4 did with NumPy 2 (sail-sg/envpool #312)."""

    def recv(self) -> Batch:
        batch = super().recv()
        first = np.zeros(len(batch.env_ids), np.intp)
        return batch._replace(observations=batch.observations[first], rewards=batch.rewards[first])


class FrameSkipFive(ForLoop):
    """Steps five frames, and says four."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(replace(setup, task=replace(setup.task, frame_skip=5)))
        self.info = replace(self.info, frame_skip=setup.task.frame_skip)


class ClaimsDouble(ForLoop):
    """Gives the right rows, and says that each took twice the frames."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, frame_skip=2 * setup.task.frame_skip)


class ClaimsDoubleSilently(ClaimsDouble):
    """The same, and it cannot be asked what its simulators do."""

    def frames(self) -> None:
        return None


class Idles(ForLoop):
    """Has its simulator do half the work of a step, as it says itself when asked."""

    def frames(self) -> NDArray[np.int64] | None:
        frames = super().frames()
        return None if frames is None else frames // 2


class Stale(ForLoop):
    """Shows the observations of the step before."""

    _last: NDArray[Any] | None = None

    def recv(self) -> Batch:
        batch = super().recv()
        now = batch.observations.copy()
        shown, self._last = (now if self._last is None else self._last), now
        return batch._replace(observations=shown)


class Deaf(ForLoop):
    """Takes one action whatever it is sent."""

    def send(self, actions: NDArray[np.generic]) -> None:
        super().send(np.zeros_like(actions))


class Clipped(ForLoop):
    """Gives the signs of rewards."""

    def recv(self) -> Batch:
        batch = super().recv()
        return batch._replace(rewards=np.sign(batch.rewards))


class Endless(ForLoop):
    """Resets where an episode ends, and does not say that it ended."""

    def recv(self) -> Batch:
        batch = super().recv()
        none = np.zeros(len(batch.env_ids), np.bool_)
        return batch._replace(terminated=none, truncated=none)


class Swapped(ForLoop):
    """Confuses the first two environments."""

    def recv(self) -> Batch:
        batch = super().recv()
        ids = batch.env_ids.copy()
        ids[:2] = ids[1::-1]
        return batch._replace(env_ids=ids)


class OtherResize(ForLoop):
    """Shrinks the screen by the nearest pixels, which is cheaper than by area."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for environment in self.environments:
            screen = environment.env
            screen._get_obs = MethodType(_nearest, screen)  # noqa: SLF001 - the fault


def _nearest(screen: Any) -> NDArray[np.uint8]:  # noqa: ANN401 - Gymnasium's wrapper
    import cv2  # noqa: PLC0415 - imported on use

    np.maximum(screen.obs_buffer[0], screen.obs_buffer[1], out=screen.obs_buffer[0])
    return np.asarray(cv2.resize(screen.obs_buffer[0], screen.screen_size, interpolation=cv2.INTER_NEAREST), np.uint8)


class OtherResizeExcused(OtherResize):
    """Shows another picture in every row, and declares another fault than it has."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        everywhere = Difference("shows the upper 210 of the screen's 250 rows", "observations")
        long_after = Difference("the stack is padded with zeros", "observations", "start", count=1_000_000)
        self.info = replace(self.info, differences=(everywhere, long_after))


class Cropped(ForLoop):
    """Shows the upper 210 rows of the screen only, and does not say so."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.environments = [make(setup.task, upper_rows=210) for _ in self.environments]
        self._loop = Loop(self.environments, self._batch)


class Sticky(ForLoop):
    """Repeats the last action with probability 0.25, which is ale-py's default."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for environment in self.environments:
            game = environment.unwrapped
            game.ale.setFloat("repeat_action_probability", 0.25)
            game.load_game()


class Miscounts(ForLoop):
    """Counts more rows than it returns."""

    def recv(self) -> Batch:
        batch = super().recv()
        return batch._replace(env_ids=np.arange(2 * len(batch.env_ids)))


class Twice(ForLoop):
    """Answers in batches of half its environments, and gives the first of them twice."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, batch_size=setup.batch_size // 2)

    def recv(self) -> Batch:
        batch = super().recv()
        half = np.zeros(self.info.batch_size, np.intp)
        return type(batch)._make(array[half] for array in batch)


class Collapses(ForLoop):
    """Shows another reward, and raises some steps later."""

    _steps = 0

    def recv(self) -> Batch:
        self._steps += 1
        if self._steps > 10:
            raise RuntimeError("collapsed")
        batch = super().recv()
        return batch._replace(rewards=batch.rewards + 0.25)
