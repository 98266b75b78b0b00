"""Adapters with a fault each that has to be caught by its name or its first row, and a few with none."""

import os
import signal
from dataclasses import replace
from types import MethodType
from typing import Any

import numpy as np
from altered import Altered, On, acting, altering, before, patching, reporting, row_zero, wrapper
from numpy.typing import NDArray

from vebench.backends.for_loop import ForLoop
from vebench.backends.interface import ActionSpace, Batch, Difference, Setup

ANY = On()
ENDS = [Difference("ends are told elsewhere", name, "end") for name in ("terminated", "truncated")]
EVERYWHERE = Difference("shows the upper 210 of the screen's 250 rows", "observations")
LONG_AFTER = Difference("the stack is padded with zeros", "observations", "start", count=1_000_000)


def no_flags(_: object, batch: Batch) -> Any:
    return np.zeros_like(batch.terminated)


def sticky(environment: Any) -> None:
    """Let a game repeat the last action with probability 0.25, which is ale-py's default."""
    game = environment.unwrapped
    game.ale.setFloat("repeat_action_probability", 0.25)
    game.load_game()


def shrinks_otherwise(environment: Any) -> None:
    """Let a screen shrink by the nearest pixels, which is cheaper than by area."""
    screen = wrapper(environment, "AtariScreen")

    def nearest(screen: Any) -> Any:
        import cv2

        np.maximum(screen.obs_buffer[0], screen.obs_buffer[1], out=screen.obs_buffer[0])
        return cv2.resize(screen.obs_buffer[0], screen.screen_size, interpolation=cv2.INTER_NEAREST)

    screen._get_obs = MethodType(nearest, screen)


class _Computed(np.ndarray[Any, Any]):
    """Rows that may be computed when somebody looks at them."""


class _Unseen:
    """Rows that are made when they are looked at, which is after the clock has been read."""

    def __init__(self, rows: NDArray[Any]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Any:
        return self._rows[index]


RowZero = altering(
    "Shows environment 0 for every environment, as EnvPool 0.8.4 did with NumPy 2 (sail-sg/envpool #312).",
    ANY,
    observations=lambda _, batch: row_zero(batch.observations),
    rewards=lambda _, batch: row_zero(batch.rewards),
)
Stale = altering("Shows the last observations.", ANY, observations=lambda it, batch: before(it, batch.observations))
Miscounts = altering("Counts rows twice.", ANY, env_ids=lambda _, batch: np.arange(2 * len(batch.env_ids)))
Deaf = acting("Takes one action whatever it is sent.", ANY, lambda _, sent: np.zeros_like(sent))
ClaimsFour = reporting("Says that a step takes four frames where the task has none.", ANY, frame_skip=4)
ReportsMoreLater = reporting("Says that a step has more frames once it was asked.", ANY, after=40, frame_skip=4)
Idle = reporting(
    "Says that there is one action only, which is then all that it is measured with.",
    ANY,
    action_space=lambda space: ActionSpace(space.low, space.low),
)
Subclassed = altering(
    "Observations are of a class of its own.", ANY, observations=lambda _, batch: batch.observations.view(_Computed)
)
Lazy = altering("Leaves rows to whoever looks.", ANY, observations=lambda _, batch: _Unseen(batch.observations))
WrongLast = altering(
    "Shows row 0 for all environments if it has more than six.",
    ANY,
    observations=lambda _, batch: row_zero(batch.observations) if len(batch.env_ids) > 6 else batch.observations,
)
ExcusesAll = altering(
    "Shows other rewards in all rows but those long after a reset, and declares it.",
    ANY,
    claims={"differences": (Difference("warms up", "rewards", "start", count=1000),)},
    rewards=lambda _, batch: batch.rewards + 1e-3,
)
Endless = altering("Does not say that an episode has ended.", ANY, terminated=no_flags, truncated=no_flags)
EndlessExcused = altering(
    "The same, and declares it.", ANY, claims={"differences": tuple(ENDS)}, terminated=no_flags, truncated=no_flags
)
Sticky = patching("Repeats the last action at times.", ANY, lambda _it, _index, environment: sticky(environment))
OtherResize = patching(
    "Shrinks the screen otherwise.", ANY, lambda _it, _index, environment: shrinks_otherwise(environment)
)
UpsideDownColumn = altering(
    "Turns one column of the screen upside down.",
    ANY,
    observations=lambda _, batch: np.concatenate(
        [batch.observations[:, :, :1][:, ::-1], batch.observations[:, :, 1:]], axis=2
    ),
)


class OtherResizeExcused(OtherResize):
    """Shows another picture in every row, and declares another fault than it has."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, differences=(EVERYWHERE, LONG_AFTER))


class StaleLater(Altered):
    """Shows the observations of the step before, but not in its first steps."""

    def alter(self, batch: Batch) -> Batch:
        last = before(self, batch.observations)
        return batch if self.batches < 70 else batch._replace(observations=last)


class ClaimsDoubleSilently(ForLoop):
    """Says that each step took twice the frames, and cannot be asked what its simulators do."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, frame_skip=2 * setup.task.frame_skip)

    def frames(self) -> None:
        return None


class Idles(ForLoop):
    """Has its simulator do half the work of a step, as it says itself when asked."""

    def frames(self) -> NDArray[np.int64] | None:
        frames = super().frames()
        return None if frames is None else frames // 2


class Collapses(ForLoop):
    """Shows another reward, and raises some steps later."""

    _steps = 0

    def recv(self) -> Batch:
        self._steps += 1
        if self._steps > 10:
            raise RuntimeError("collapsed")
        batch = super().recv()
        return batch._replace(rewards=batch.rewards + 0.25)


class ResetsAtOnce(Altered):
    """Shows the next episode's first observation in the row of the end, and does not say so."""

    def alter(self, batch: Batch) -> Batch:
        for index in np.flatnonzero(self.ended):
            batch.observations[index], _ = self.environments[index].reset()
        self._loop._ended = [False] * len(self.environments)
        self.ended = np.zeros_like(self.ended)
        return batch


class ResetsAtOnceAndSaysSo(ResetsAtOnce):
    """No liar: the other of the two ways to reset."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, autoreset="same_step")


class Starving(ForLoop):
    """Answers in batches of half its environments, and always with the same half."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, in_order=False, batch_size=setup.batch_size // 2)

    def send(self, actions: NDArray[np.generic]) -> None:
        super().send(np.resize(actions, len(self.environments)))

    def recv(self) -> Batch:
        return Batch._make(array[: self.info.batch_size] for array in super().recv())


class OddButPlain(Altered):
    """No fault: rows that are read-only, stored by columns or every second one, ids of 32 bits, two sets of buffers."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._buffers: list[Batch] = []  # two, written in turn

    def alter(self, batch: Batch) -> Batch:
        if not self._buffers:
            by_columns = np.asfortranarray(batch.observations)
            rewards, ids = np.repeat(batch.rewards, 2)[::2], batch.env_ids.astype(np.int32)
            odd = batch._replace(observations=by_columns, rewards=rewards, env_ids=ids)
            self._buffers = [odd, Batch._make(array.copy("K") for array in odd)]
        shown = self._buffers[self.batches % 2]
        for array, now in zip(shown, batch, strict=True):
            array.flags.writeable = True
            array[...] = now
            array.flags.writeable = False
        return shown


class Overwrites(Altered):
    """Writes into the rows of the batch before, and says that it does not."""

    def alter(self, batch: Batch) -> Batch:
        self._one = getattr(self, "_one", batch)
        self._one.observations[...] = batch.observations
        return batch._replace(observations=self._one.observations)


class OtherChance(Altered):
    """Takes other seeds where there is chance, and says that it has a generator of its own."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, chance="it draws by itself")

    def reset(self, seed: int) -> None:
        super().reset(seed + 12345)


class RaisesLater(Altered):
    """Raises in the thirty-first step after the second reset of one environment."""

    def reset(self, seed: int) -> None:
        self.batches = 0
        super().reset(seed)

    def recv(self) -> Batch:
        if (self.resets, self.batches, self.setup.batch_size) == (2, 31, 1):
            raise ValueError("lost")
        return super().recv()


class Dies(Altered):
    """Is killed after some steps."""

    def recv(self) -> Batch:
        if self.batches == 30:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().recv()


class RaisesInClose(Altered):
    """Raises while it is closed."""

    def close(self) -> None:
        super().close()
        raise ValueError("a worker has left no answer")
