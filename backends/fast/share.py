"""How environments of our own classes are stepped by one process: the interface of a class, and its share of a team.

A ``FastTask`` is what all environments of one process share: constants, tables, a model. A ``FastBatch`` is some of
those environments, stepped together, which write straight into their rows of the shared arrays.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import gymnasium
from gymnasium.error import ResetNeeded
from gymnasium.wrappers import TimeLimit

from vebench.backends.environments.suites import load_target
from vebench.backends.fast import native
from vebench.backends.fast.classes import class_of
from vebench.backends.interface import OwnClasses

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from vebench.backends.fast.commons import Area, Commons
    from vebench.backends.interface import Task
    from vebench.backends.shared_memory.gymnasium_share import Autoreset, Remarks
    from vebench.backends.shared_memory.memory_layout import Division, MakeShare, RowArrays


class FastBatch(Protocol):
    """Some environments of one process. They end their episodes; what comes after an end is up to their user."""

    current: int
    """Index within the batch of the environment in use now, or last."""

    def reset(self, index: int, seed: int | None) -> None:
        """Start a new episode in one environment and write its first observation, and nothing else, into its row.

        Without a seed it draws on from where it is, or, before the first seed, from the system's entropy.
        """

    def step(self, resting: Sequence[int]) -> Sequence[int]:
        """Step the environments with their rows of the actions; return those that have ended their episodes, in order.

        Those that are ``resting``, in order, begin a new episode instead, drawing on from where they are. Their rows
        show its first observation and no reward.
        """

    def frames(self, index: int) -> int:
        """Return the frames that the simulator of one environment has made in its episode."""

    def close(self) -> None:
        """Free what the environments have."""


class FastTask(Protocol):
    """A task as the environments of one process share it. Building one takes about as long as one environment.

    ``how``: how it steps, in words, such as which parts are compiled. ``leaves_out``: what Gymnasium's class does and
    this one does not, in words. ``uncompiled``: why a compiled part that there could be is not used, though it was
    asked for, empty if it is used or there is none for these settings. ``fewest``: environments worth a process.
    ``refuses``: options of a reset that only Gymnasium's class takes; others mean nothing to either.
    """

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    how: str
    uncompiled: str
    leaves_out: tuple[str, ...]
    fewest: int
    refuses: frozenset[str]

    def __init__(self, env_id: str, settings: Mapping[str, Any], *, compiled: bool = True) -> None:
        """Build the task that Gymnasium calls ``env_id``, with these settings of Gymnasium's instead of its defaults.

        ``compiled``: whether compiled parts are used where there are any. Raises ValueError if it cannot step them.
        """

    @staticmethod
    def settings_of(task: Task) -> dict[str, Any]:
        """Return the settings with which a task is what every backend steps."""

    def commons(self, count: int) -> Commons | None:
        """Return memory for ``count`` environments in which each process can step those of others, None if none can.

        It is made before the other processes are forked.
        """

    def batch(self, rows: RowArrays, area: Area | None = None) -> FastBatch:
        """Build as many environments as there are rows, in this process's area of that memory if there is any."""


_OTHER_VERSIONS = "reinstall that package, or install another version, with pip install --force-reinstall"


def build_task(env_id: str, settings: Mapping[str, Any], *, compiled: bool) -> tuple[Building | None, OwnClasses]:
    """Return how each process builds a task that ours may step, None if it cannot be; and what steps, and why."""
    try:
        make = Building(env_id, settings, compiled=compiled)
    except ValueError as error:
        return None, OwnClasses(refused=f"our own class for {env_id}: {error}")
    missing = make.example.uncompiled
    remedy = native.REMEDY if missing == native.NOT_BUILT else _OTHER_VERSIONS if missing else ""
    return make, OwnClasses(make.example.how, uncompiled=bool(missing), remedy=remedy)


class Building:
    """Builds a task in each process that steps it, and once before: ``example``, which shows what it is.

    The process that has built the example gets it as its first task: building one takes as long as loading a game.
    Any other process builds its own, however it was started: no state of the example comes along.

    Raises ValueError if our class cannot step these settings, and if it is not what Gymnasium has registered.
    """

    def __init__(self, env_id: str, settings: Mapping[str, Any], *, compiled: bool) -> None:
        self._arguments = env_id, dict(settings), compiled
        self._process = os.getpid()
        self.example: FastTask = self._build()
        self._unused: FastTask | None = self.example

    def __call__(self) -> FastTask:
        """Return the task."""
        given, self._unused = self._unused, None
        return self._build() if given is None or os.getpid() != self._process else given

    def _build(self) -> FastTask:
        env_id, settings, compiled = self._arguments
        ours = class_of(env_id)
        assert ours is not None  # noqa: S101 - callers have checked that there is one
        kind: type[FastTask] = load_target(ours.target)
        _check_registered(env_id)
        return kind(env_id, settings, compiled=compiled)

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs: not the example."""
        return {"_arguments": self._arguments, "_process": 0, "_unused": None}


def _check_registered(env_id: str) -> None:
    """Raise ValueError if Gymnasium would make something else by this id than the class that ours stands for.

    It can be registered anew, with another class, with wrappers or with other defaults. The module that registers it
    must be loaded.
    """
    ours, spec = class_of(env_id), gymnasium.spec(env_id)
    assert ours is not None  # noqa: S101 - see above
    if spec.entry_point != ours.entry_point:
        name = getattr(spec.entry_point, "__qualname__", str(spec.entry_point))
        raise ValueError(f"{env_id} is registered as {name}, not as {ours.entry_point}")
    if spec.additional_wrappers:
        names = ", ".join(wrapper.name for wrapper in spec.additional_wrappers)
        raise ValueError(f"{env_id} is registered with wrappers around it: {names}")
    if spec.max_episode_steps is not None and "max_episode_steps" in ours.unsupported:
        raise ValueError(f"{env_id} is registered with max_episode_steps={spec.max_episode_steps}")
    for name in sorted(spec.kwargs.keys() | ours.defaults.keys()):
        if name not in spec.kwargs or name not in ours.defaults:
            raise ValueError(f"{env_id} is registered {'with' if name in spec.kwargs else 'without'} {name}")
        given, expected = spec.kwargs[name], ours.defaults[name]
        if name not in ours.free and (type(given) is not type(expected) or given != expected):
            raise ValueError(f"{env_id} is registered with {name}={given!r}, not {expected!r}")


def episode_limit(environment: gymnasium.Env[Any, Any]) -> int | None:
    """Return the steps after which an episode is cut off, None if it is not."""
    while isinstance(environment, gymnasium.Wrapper):
        if isinstance(environment, TimeLimit) and environment.spec is not None:
            return environment.spec.max_episode_steps
        environment = environment.env
    return None


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
        make: Callable[[], FastTask],
        one_by_one: bool,
        autoreset: Autoreset,
        arrays: RowArrays,
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

    @property
    def current(self) -> int:
        """Index within the share of the environment in use now, or last."""
        return self._first[self._used] + self._batches[self._used].current if self._batches else 0

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
        batch, resting = self._batches[number], self._ended[number]
        if self._new and (new := sorted(index for other, index in self._new if other == number)):
            batch.current = new[0]
            raise ResetNeeded("Cannot call env.step() before calling env.reset()")
        if resting and self._autoreset == "Disabled":
            batch.current = resting[0]
            raise AssertionError("the episode is over: reset(options={'reset_mask': ...}) comes before the next step")
        ended = batch.step(resting)
        if ended and self._autoreset == "SameStep":
            return [self._begin_after_end(number, index) for index in ended]
        self._ended[number] = ended
        return None

    def _begin_after_end(self, number: int, index: int) -> tuple[int, dict[str, Any]]:
        """Start a new episode within the step that ended one; return the remark on that end."""
        (observations,) = self._rows[number].observations
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
        return None

    def _begin(self, number: int, index: int, seed: int | None) -> None:
        """Start a new episode as asked: the row then reports the reset."""
        self._used = number
        self._batches[number].reset(index, seed)
        self._new.discard((number, index))
        rows = self._rows[number]
        rows.rewards[index] = 0.0
        rows.terminated[index] = rows.truncated[index] = False
        self._ended[number] = [other for other in self._ended[number] if other != index]

    def close(self) -> None:
        """Free what the environments have."""
        # It refers to this share, which would otherwise keep the memory until the garbage collector comes by.
        vars(self).pop("step", None)
        while self._batches:
            self._batches.pop().close()
