"""Adapters with a fault each that has to be caught, most by doing other work than they claim, and a few with none."""

import os
import signal
from dataclasses import replace
from types import MethodType
from typing import Any

import numpy as np
from altered import Altered, On, acting, altering, before, reporting, row_zero
from numpy.typing import NDArray

from vebench.backends.for_loop import ForLoop
from vebench.backends.interface import ActionSpace, Batch, Difference, Setup

ANY = On()


class _Computed(np.ndarray[Any, Any]):
    """Rows that may be computed when somebody looks at them."""


RowZero = altering(
    "Shows environment 0 for every environment, as EnvPool 0.8.4 did with NumPy 2 (sail-sg/envpool #312).",
    ANY,
    observations=lambda _, batch: row_zero(batch.observations),
    rewards=lambda _, batch: row_zero(batch.rewards),
)
Stale = altering("Shows the last observations.", ANY, observations=lambda it, batch: before(it, batch.observations))
Clipped = altering("Gives the signs of rewards.", ANY, rewards=lambda _, batch: np.sign(batch.rewards))
Swapped = altering(
    "Confuses the first two environments.",
    ANY,
    env_ids=lambda _, batch: np.append(batch.env_ids[1::-1], batch.env_ids[2:]),
)
Miscounts = altering("Counts rows twice.", ANY, env_ids=lambda _, batch: np.arange(2 * len(batch.env_ids)))
Deaf = acting("Takes one action whatever it is sent.", ANY, lambda _, sent: np.zeros_like(sent))
ClaimsDouble = reporting(
    "Gives the right rows, and says that each took twice the frames.", ANY, frame_skip=lambda frames: 2 * frames
)
ClaimsFour = reporting(
    "Says that a step takes four frames where the task has none: its frames/s are four times as many.",
    ANY,
    frame_skip=4,
)
ResetsUncounted = reporting(
    "Gives resets rows of their own, and says that it does not: each counts as a step.", ANY, autoreset="same_step"
)
Idle = reporting(
    "Says that there is one action only, which is then all that it is measured with.",
    ANY,
    action_space=lambda space: ActionSpace(space.low, space.low),
)
Subclassed = altering(
    "Observations are of a class of its own.", ANY, observations=lambda _, batch: batch.observations.view(_Computed)
)
DeafLater = acting(
    "Takes one action whatever it is sent, but not in its first steps.",
    ANY,
    lambda it, sent: sent if it.batches < 70 else np.zeros_like(sent),
)
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
ReportsMoreLater = reporting("Says that a step has more frames once it was asked.", ANY, after=40, frame_skip=4)


class NoReset(ForLoop):
    """Steps on where an episode is over: a finished game costs nothing."""

    def recv(self) -> Batch:
        self._loop._ended = [False] * len(self.environments)
        return super().recv()


class FrameSkipFive(ForLoop):
    """Steps five frames, and says four."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(replace(setup, task=replace(setup.task, frame_skip=5)))
        self.info = replace(self.info, frame_skip=setup.task.frame_skip)


class ClaimsDoubleSilently(ClaimsDouble):
    """The same, and it cannot be asked what its simulators do."""

    def frames(self) -> None:
        return None


class Idles(ForLoop):
    """Has its simulator do half the work of a step, as it says itself when asked."""

    def frames(self) -> NDArray[np.int64] | None:
        frames = super().frames()
        return None if frames is None else frames // 2


class Endless(ForLoop):
    """Resets where an episode ends, and does not say that it ended."""

    def recv(self) -> Batch:
        batch = super().recv()
        none = np.zeros(len(batch.env_ids), np.bool_)
        return batch._replace(terminated=none, truncated=none)


class OtherResize(ForLoop):
    """Shrinks the screen by the nearest pixels, which is cheaper than by area."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for environment in self.environments:
            screen = environment.env
            screen._get_obs = MethodType(_nearest, screen)


def _nearest(screen: Any) -> NDArray[np.uint8]:
    import cv2

    np.maximum(screen.obs_buffer[0], screen.obs_buffer[1], out=screen.obs_buffer[0])
    return np.asarray(cv2.resize(screen.obs_buffer[0], screen.screen_size, interpolation=cv2.INTER_NEAREST), np.uint8)


class OtherResizeExcused(OtherResize):
    """Shows another picture in every row, and declares another fault than it has."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        everywhere = Difference("shows the upper 210 of the screen's 250 rows", "observations")
        long_after = Difference("the stack is padded with zeros", "observations", "start", count=1_000_000)
        self.info = replace(self.info, differences=(everywhere, long_after))


class UpsideDownColumn(ForLoop):
    """Turns one column of the screen upside down."""

    def recv(self) -> Batch:
        batch = super().recv()
        shown = batch.observations.copy()
        shown[:, :, 0] = shown[:, ::-1, 0]
        return batch._replace(observations=shown)


class Sticky(ForLoop):
    """Repeats the last action with probability 0.25, which is ale-py's default."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for environment in self.environments:
            game = environment.unwrapped
            game.ale.setFloat("repeat_action_probability", 0.25)
            game.load_game()


class Twice(ForLoop):
    """Answers in batches of half its environments, and gives the first of them twice."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, in_order=False, batch_size=setup.batch_size // 2)

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


class ResetsAtOnce(ForLoop):
    """Shows the next episode's first observation in the row of the end, and does not say so."""

    def recv(self) -> Batch:
        batch = super().recv()
        ended = batch.terminated | batch.truncated
        if not ended.any():
            return batch
        shown = Batch._make(array.copy() for array in batch)
        for index in np.flatnonzero(ended):
            shown.observations[index], _ = self.environments[index].reset()
        self._loop._ended = [False] * len(self.environments)
        return shown


class ResetsAtOnceAndSaysSo(ResetsAtOnce):
    """No liar: the other of the two ways to reset."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, autoreset="same_step")


class _Unseen:
    """Rows that are made when they are looked at, which is after the clock has been read."""

    def __init__(self, rows: NDArray[Any]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Any:
        return self._rows[index]


class Lazy(ForLoop):
    """Leaves observations to be made by whoever looks at them."""

    def recv(self) -> Batch:
        batch = super().recv()
        return batch._replace(observations=_Unseen(batch.observations))  # type: ignore[arg-type] # the fault


class EndlessExcused(Endless):
    """The same, and declares it."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        declared = [Difference("ends are told elsewhere", name, "end") for name in ("terminated", "truncated")]
        self.info = replace(self.info, differences=tuple(declared))


class Starving(ForLoop):
    """Answers in batches of half its environments, and always with the same half."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, in_order=False, batch_size=setup.batch_size // 2)

    def send(self, actions: NDArray[np.generic]) -> None:
        super().send(np.resize(actions, len(self.environments)))

    def recv(self) -> Batch:
        return Batch._make(array[: self.info.batch_size] for array in super().recv())


class Infinite(ForLoop):
    """Shows what is no finite number."""

    def recv(self) -> Batch:
        batch = super().recv()
        observations = batch.observations.copy()
        observations[:, 0], observations[:, 1] = np.inf, np.nan
        return batch._replace(observations=observations)


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


class ResetsOnce(Altered):
    """Takes the seed of its first reset, and begins with that again."""

    _seed: int | None = None

    def reset(self, seed: int) -> None:
        self._seed = seed if self._seed is None else self._seed
        super().reset(self._seed)


class Overwrites(Altered):
    """Writes into the rows of the batch before, and says that it does not."""

    def alter(self, batch: Batch) -> Batch:
        self._one = getattr(self, "_one", batch)
        self._one.observations[...] = batch.observations
        return batch._replace(observations=self._one.observations)


class FewerLater(Altered):
    """Returns one row less from some batch on."""

    def alter(self, batch: Batch) -> Batch:
        return batch if self.batches < 40 else Batch._make(array[:-1] for array in batch)


class StaleLater(Altered):
    """Shows the observations of the step before, but not in its first steps."""

    def alter(self, batch: Batch) -> Batch:
        last = before(self, batch.observations)
        return batch if self.batches < 70 else batch._replace(observations=last)


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
