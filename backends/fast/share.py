"""One process's share of environments of our own classes: the ends of episodes and what follows them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

from gymnasium.error import ResetNeeded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.backends.fast.building import Building
    from vebench.backends.fast.commons import Commons
    from vebench.backends.fast.task import FastBatch, FastTask
    from vebench.backends.shared_memory.division import Division
    from vebench.backends.shared_memory.memory_layout import Arrays
    from vebench.backends.shared_memory.share import MakeShare

Autoreset = Literal["NextStep", "SameStep", "Disabled"]
Remarks = list[tuple[int, dict[str, Any]]]


class MakeTask(Protocol):
    """Builds the task, in the process that steps it."""

    def __call__(self) -> FastTask:
        """Return the task."""


def make_share(make: Building, division: Division, autoreset: Autoreset) -> MakeShare:
    """Return what makes the share of each process of a team that divides its environments so.

    If all are stepped at once, a process that has stepped its own goes on with those of others, where it can.
    """
    alone = division.one_by_one or division.processes == 1
    commons = None if alone else make.example.commons(division.num_envs)
    return partial(FastShare, make, division.one_by_one, autoreset, commons=commons)


class FastShare:
    """The environments of one process, in one batch or, if they are asked for ``one_by_one``, in a batch each.

    Remarks, ``[(env_id, info), ...]``, are there for ``SameStep`` only: the last observation of an episode.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a share is given, after what all shares have in common
        self,
        make: MakeTask,
        one_by_one: bool,
        autoreset: Autoreset,
        arrays: Arrays,
        start: int,
        stop: int,
        commons: Commons | None = None,
    ) -> None:
        self._make = make
        self._area = None if commons is None else commons.area(start, stop)
        self._autoreset = autoreset
        self._start = start
        count = stop - start
        bounds = [(index, index + 1) for index in range(count)] if one_by_one else [(0, count)] if count else []
        self._rows = [arrays.rows(first, last) for first, last in bounds]
        self._first = [first for first, _ in bounds]
        self._batches: list[FastBatch] = []
        self._ended: list[Sequence[int]] = [()] * len(bounds)
        self._used = 0
        # Batch and index of the environments that have not been reset yet: there is nothing to be stepped.
        self._new = {(number, index) for number, (first, last) in enumerate(bounds) for index in range(last - first)}
        # The batch, and in it the environment that was to be stepped though its episode is over, or has not begun.
        self._over: tuple[int, int] | None = None

    @property
    def current(self) -> int:
        """Index within the share of the environment in use now, or last."""
        if not self._batches:
            return 0
        number, index = self._over or (-1, 0)
        return self._first[self._used] + (index if number == self._used else self._batches[self._used].current)

    def open(self) -> None:
        """Build every environment."""
        if not self._rows:
            return
        task = self._make()
        self._batches.extend(task.batch(rows, self._area) for rows in self._rows)
        if len(self._batches) == 1:
            # What is called again and again, without a detour.
            self.step = partial(self.step_one, 0)  # type: ignore[method-assign]

    def step(self) -> Remarks | None:
        """Step every environment."""
        remarks = [self.step_one(number) for number in range(len(self._batches))]
        return [remark for some in remarks for remark in some or ()] or None

    def step_one(self, number: int) -> Remarks | None:
        """Step the environments of one batch."""
        self._used = number
        if self._new:
            self._check_begun(number)
        batch, resting = self._batches[number], self._ended[number]
        if resting and self._autoreset == "Disabled":
            self._over = number, resting[0]
            raise AssertionError("the episode is over: reset(options={'reset_mask': ...}) comes before the next step")
        ended = batch.step(resting)
        if ended and self._autoreset == "SameStep":
            return [self._begin_after_end(number, index) for index in ended]
        self._ended[number] = ended
        return None

    def _check_begun(self, number: int) -> None:
        """Raise ResetNeeded if an environment of a batch has not been reset yet."""
        for other, index in sorted(self._new):
            if other == number:
                self._over = number, index
                raise ResetNeeded("Cannot call env.step() before calling env.reset()")

    def _begin(self, number: int, index: int, seed: int | None) -> None:
        """Start a new episode as asked: the row then reports the reset."""
        self._used, self._over = number, None
        self._batches[number].reset(index, seed)
        self._new.discard((number, index))
        rows = self._rows[number]
        rows.rewards[index] = 0.0
        rows.terminated[index] = rows.truncated[index] = False

    def _begin_after_end(self, number: int, index: int) -> tuple[int, dict[str, Any]]:
        """Start a new episode within the step that ended one; return the remark on that end."""
        rows = self._rows[number]
        (observations,) = rows.observations
        last = observations[index].copy()
        self._batches[number].reset(index, None)
        return self._start + self._first[number] + index, {"final_obs": last, "final_info": {}}

    def answer(self, name: str, argument: Any) -> list[int] | None:  # noqa: ANN401 - each request has its own
        """Reset environments, or return how many frames each has simulated.

        A reset is given as the seed of environment 0, from which the others count up; or as ``SharedMemoryVectorEnv``
        gives it: a seed for each, None for none, which of them are meant, None for all, and options, which mean nothing
        to the tasks that there are.
        """
        places = [(number, index) for number, rows in enumerate(self._rows) for index in range(len(rows.rewards))]
        if name == "frames":
            return [self._batches[number].frames(index) for number, index in places]
        seeds, mask, _ = (None, None, None) if isinstance(argument, int) else argument
        for number, index in places:
            env_id = self._start + self._first[number] + index
            if mask is None or mask[env_id]:
                self._begin(number, index, argument + env_id if seeds is None else seeds[env_id])
                self._ended[number] = [other for other in self._ended[number] if other != index]
        return None

    def close(self) -> None:
        """Free what the environments have."""
        # It refers to this share, which would otherwise keep the memory until the garbage collector comes by.
        vars(self).pop("step", None)
        while self._batches:
            self._batches.pop().close()
