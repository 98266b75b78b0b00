"""Adapters that do the same work in ways of their own: none of them may be accused of anything."""

import os
import random
import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from altered import Altered, On, acting, altering, elsewhere, reporting
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from liars import ResetsAtOnceAndSaysSo
from numpy.typing import NDArray

from vebench.backends.environments.making import make, read_spaces
from vebench.backends.for_loop import EnvironmentLoop, ForLoop
from vebench.backends.interface import BackendInfo, Batch, Difference, Setup

HOPPER, PONG = On(task="Hopper", envs=2), On(task="Pong", envs=2)


class Reuses(ForLoop):
    """Overwrites its arrays with each batch, and says so."""

    tried = On()


class Copies(Altered):
    """Returns new arrays each time."""


ReusesOnPong = elsewhere("on Atari.", PONG, Reuses)
CopiesOnBreakout = elsewhere("on Atari, where episodes end soon.", On(task="Breakout", envs=2), Copies)
SinglePrecisionRewards = altering(
    "Rewards are float32.", On(task="Pendulum"), rewards=lambda _, batch: batch.rewards.astype(np.float32)
)
ShortIds = altering("Ids are int32.", On(), env_ids=lambda _, batch: batch.env_ids.astype(np.int32))
ColumnByColumn = altering(
    "Arrays are in Fortran's order.", PONG, observations=lambda _, batch: np.asfortranarray(batch.observations)
)
NotRepeatable = altering("Steps a task that gives other results each time.", On(task="odd:odd/Chancy-v0"))
SharesAGenerator = altering("Steps environments that draw from one generator.", On(task="odd:odd/In-common-v0"))
OwnsActions = acting("Takes a copy of the actions that it was sent.", On(task="Pendulum"), lambda _, sent: sent.copy())
ClaimsChance = reporting(
    "Does what it must, and says that chance may make it differ.", On(), chance="sticky actions cannot be turned off"
)


class OverwritesWhenSent(Reuses):
    """Overwrites its arrays once actions are sent, and says that it reuses them."""

    def send(self, actions: NDArray[np.generic]) -> None:
        self._loop.step(actions)
        self._sent = True

    def recv(self) -> Batch:
        if getattr(self, "_sent", False):
            self._sent = False
            return self._batch
        return super().recv()


SameStep = elsewhere("on CartPole.", On(), ResetsAtOnceAndSaysSo)


class _Pool:
    """Twice as many environments as a batch has rows: those answer whose turn it is."""

    tried = On()

    def __init__(self, setup: Setup) -> None:
        self._task = setup.task
        self._count, self._size = 2 * setup.batch_size, setup.batch_size
        self.environments = [make(setup.task) for _ in range(self._count)]
        spaces = read_spaces(setup.task, self.environments[0].observation_space, self.environments[0].action_space)
        self._rows = [spaces.rows(1)._replace(env_ids=np.array([index])) for index in range(self._count)]
        self._loops = [
            EnvironmentLoop([environment], rows)
            for environment, rows in zip(self.environments, self._rows, strict=True)
        ]
        self._ready: list[int] = []
        self._sent: list[int] = []
        self._random = random.Random(os.getpid())
        self.info = BackendInfo(
            num_envs=self._count, batch_size=self._size, action_space=spaces.actions, frame_skip=setup.task.frame_skip
        )

    def reset(self, seed: int) -> None:
        for loop in self._loops:
            loop.reset(seed)
        self._ready = list(range(self._count))

    def send(self, actions: NDArray[np.generic]) -> None:
        for index, action in zip(self._sent, actions, strict=True):
            self._loops[index].step(action[None])
        self._ready += self._sent

    def recv(self) -> Batch:
        self._sent = self.chosen()
        self._ready = [index for index in self._ready if index not in self._sent]
        return Batch(*map(np.concatenate, zip(*(self._rows[index] for index in self._sent), strict=True)))

    def chosen(self) -> list[int]:
        """Return those that have waited longest."""
        return self._ready[: self._size]

    def close(self) -> None:
        while self.environments:
            self.environments.pop().close()


class Halves(_Pool):
    """Has twice as many environments as a batch has rows; its halves answer in turn."""


class Shuffled(_Pool):
    """Has twice as many environments as a batch has rows; which answer, and in which order, is chance."""

    def chosen(self) -> list[int]:
        return self._random.sample(self._ready, self._size)


class Loads(_Pool):
    """Has twice as many environments as a batch has rows; one of them loads for 3 s after its 50th batch."""

    until: float | None = None
    batches = 0

    def chosen(self) -> list[int]:
        self.batches += 1
        if self.until is None and self.batches >= 50:
            self.until = time.monotonic() + 3
        loads = self.until is not None and time.monotonic() < self.until
        return ([*filter(None, self._ready)] if loads else self._ready)[: self._size]


class Uneven(_Pool):
    """Returns whoever is ready, one row to a full batch, and says so."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, fewest_rows=1)

    def chosen(self) -> list[int]:
        return self._random.sample(self._ready, self._random.randint(1, min(self._size, len(self._ready))))


class Backwards(Altered):
    """Returns all rows, in the order of falling ids."""

    def alter(self, batch: Batch) -> Batch:
        return Batch._make(array[::-1].copy() for array in batch)

    def send(self, actions: NDArray[np.generic]) -> None:
        super().send(actions[::-1])


class InAnyOrder(Altered):
    """Returns all rows: those of the reset in the order of ids, all others in the order in which they were done."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._random = np.random.default_rng(os.getpid())
        self._order = np.arange(setup.batch_size)

    def alter(self, batch: Batch) -> Batch:
        if self.batches > 1:
            self._order = self._random.permutation(len(self._order))
        return Batch._make(array[self._order] for array in batch)

    def send(self, actions: NDArray[np.generic]) -> None:
        by_id = np.empty_like(actions)
        by_id[self._order] = actions
        super().send(by_id)


class SeldomOutOfOrder(InAnyOrder):
    """Returns all rows, in the order of ids but in one of 3,000 batches."""

    def alter(self, batch: Batch) -> Batch:
        if self.batches % 3000 and self.batches % 3000 != 1:
            return batch
        self._order = np.arange(len(batch.env_ids))[:: -1 if self.batches % 3000 == 0 else 1]
        return Batch._make(array[self._order] for array in batch)


class Packed(Altered):
    """Arrays are fields of packed records: neither contiguous nor aligned."""

    tried = On(task="Hopper", envs=3)

    def alter(self, batch: Batch) -> Batch:
        kinds: list[Any] = [(name, array.dtype, array.shape[1:]) for name, array in batch._asdict().items()]
        kinds.insert(1, ("gap", np.uint8))
        records = np.empty(len(batch.env_ids), kinds)
        for name, array in zip(batch._fields, batch, strict=True):
            records[name] = array
        return Batch._make(records[name] for name in batch._fields)


class InTurn(Altered):
    """Has three sets of arrays in turn, and says that it reuses them."""

    SETS, SAYS_SO = 3, True

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.info = replace(self.info, reuses_buffers=self.SAYS_SO)
        self._sets = [Batch._make(array.copy() for array in self._batch) for _ in range(self.SETS)]

    def alter(self, batch: Batch) -> Batch:
        mine = self._sets[self.batches % self.SETS]
        for array, now in zip(mine, batch, strict=True):
            np.copyto(array, now)
        return mine


class SlowSteps(Altered):
    """Takes 0.1 seconds for each of its first 30 batches: as many as a short cell measures, of few to a window."""

    def alter(self, batch: Batch) -> Batch:
        time.sleep(0.1 if self.batches <= 30 else 0.0)
        return batch


class Uncounted(Altered):
    """Cannot say how many frames its simulators make."""

    tried = On(task="Hopper", envs=2)

    def frames(self) -> None:
        return None


class StepsWhenSent(Altered):
    """Steps in send, and returns the rows in recv."""

    def send(self, actions: NDArray[np.generic]) -> None:
        super().send(actions)
        self._early = super().recv()

    def recv(self) -> Batch:
        if hasattr(self, "_early"):
            early = self._early
            del self._early
            return early
        return super().recv()

    def reset(self, seed: int) -> None:
        if hasattr(self, "_early"):
            del self._early
        super().reset(seed)


class ZeroPaddedAndSaysSo(Altered):
    """A stack begins with frames of zeros, which it declares for the rows in question."""

    tried = On(task="Breakout", envs=1)

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        for environment in self.environments:
            environment.padding_type = "zero"  # type: ignore[attr-defined] # of the stack's wrapper
        padded = Difference("the stack is padded with zeros", "observations", "start", count=3)
        self.info = replace(self.info, differences=(padded,))


class TellsAnew(Altered):
    """Makes its report anew each time that it is read: it is equal, and another object."""

    @property
    def info(self) -> BackendInfo:  # type: ignore[override] # it is read elsewhere
        return replace(self._info)

    @info.setter
    def info(self, info: BackendInfo) -> None:
        self._info = info


class ClosesTwice(Altered):
    """Closes itself when it is asked to reset for the last time, and stays usable: environments are made again."""

    def reset(self, seed: int) -> None:
        if self.resets:
            count = len(self.environments)
            while self.environments:
                self.environments.pop().close()
            self.environments += [make(self.setup.task) for _ in range(count)]
        super().reset(seed)


class _Vector:
    """A vectoriser of Gymnasium's, in its own autoreset mode, with all that it puts into infos."""

    tried = On()
    mode: AutoresetMode = AutoresetMode.NEXT_STEP

    def __init__(self, setup: Setup) -> None:
        spare = make(setup.task)
        self._spaces = read_spaces(setup.task, spare.observation_space, spare.action_space)
        spare.close()
        made = [partial(make, setup.task)] * setup.batch_size
        self._vector = SyncVectorEnv(made, autoreset_mode=self.mode)
        self._answer: Any = None
        form = "same_step" if self.mode is AutoresetMode.SAME_STEP else "next_step"
        self.info = self._spaces.info(setup, autoreset=form)

    def reset(self, seed: int) -> None:
        count = self._vector.num_envs
        observations, _ = self._vector.reset(seed=[seed + index for index in range(count)])
        self._answer = (observations, np.zeros(count), np.zeros(count, np.bool_), np.zeros(count, np.bool_))

    def send(self, actions: NDArray[np.generic]) -> None:
        self._answer = self._vector.step(actions)[:4]

    def recv(self) -> Batch:
        return Batch(*(np.copy(array) for array in self._answer), np.arange(self._vector.num_envs))

    def close(self) -> None:
        self._vector.close()


class OfGymnasium(_Vector):
    """Gymnasium's vectoriser in one process."""


class OfGymnasiumSameStep(_Vector):
    """Gymnasium's vectoriser, which resets in the step of the end."""

    mode = AutoresetMode.SAME_STEP


WORN, NORMALISED = On(task="odd:odd/Worn-v0", envs=3), On(task="odd:normalised", envs=3)
CopiesOfWorn = elsewhere("environments that a reset does not make as good as new.", WORN, Copies)
ShuffledNormalised = elsewhere("environments whose statistics survive resets, in any order.", NORMALISED, Shuffled)
VectorNormalised = elsewhere("environments whose statistics survive resets.", NORMALISED, OfGymnasium)
AnewNormalised = elsewhere("environments with statistics, made anew for each reset.", NORMALISED, ClosesTwice)
