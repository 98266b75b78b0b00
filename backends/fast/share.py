"""How environments of our own classes are stepped: the interface of a class, and what a team has of it.

A ``FastTask`` is a task with its settings: constants, tables, a model. A ``FastBatch`` is its environments, which write
straight into their rows. They are stepped by compiled code, in the threads of a ``Pool``. Python runs in the caller
only, before and after.
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.wrappers import TimeLimit

from vebench.backends.environments.suites import load_target
from vebench.backends.fast.classes import class_of
from vebench.backends.fast.native import needed
from vebench.backends.interface import OwnClasses
from vebench.backends.shared_memory import errors
from vebench.backends.shared_memory.team import InFlight

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from vebench.backends.interface import Task
    from vebench.backends.shared_memory.gymnasium_share import Autoreset, Remarks
    from vebench.backends.shared_memory.memory_layout import Division, MakeShare, RowArrays


class FastBatch(Protocol):
    """Environments of one task. They end their episodes; what comes after an end is up to their user.

    ``work`` is the address of a function of C, ``void (*)(void *all, int64_t first, int64_t last)``, which steps the
    environments from ``first`` up to ``last`` with their rows of the actions. ``context`` is that of its first
    argument. Several threads call it at once, for different environments. ``restarts``: whether the work after an end
    begins a new episode without ``begin``; it then has no infos, and nothing to ``finish``. ``current``: the index of
    the environment in use now by other methods, or last.
    """

    work: int
    context: int
    restarts: bool
    current: int

    def begin(self, index: int, seed: int | None) -> None:
        """Let the next work on one environment begin an episode instead of a step, while others may be stepped.

        Its row then shows the first observation and no reward. Without a seed it draws on from where it is, or, before
        the first seed, from the system's entropy.
        """

    def finish(self, indices: Sequence[int] | None) -> None:
        """Finish the rows of these environments, None for all, after the work on them, which has set the ends."""

    def infos(self, rows: Sequence[int] | NDArray[np.int64] | None, *, first: bool) -> dict[str, NDArray[Any]]:
        """Return what infos tell of environments, None for all, after a step or of the ``first`` row of an episode.

        By names, a new array with a row for each, in which None is nothing. Others may be stepped meanwhile.
        """

    def frames(self, index: int) -> int:
        """Return the frames that the simulator of one environment has made in its episode."""

    def render(self, index: int) -> NDArray[np.uint8]:
        """Return a picture of one environment, ``(height, width, 3)``, if the task has ``render_mode="rgb_array"``."""

    def close(self) -> None:
        """Free what the environments have."""


class FastTask(Protocol):
    """A task with its settings, of which there is one batch. Building one takes about as long as one environment.

    ``how``: how it steps, in words. ``leaves_out``: what Gymnasium's class does and this one does not, in words.
    ``chunk``: how many environments take some 20 us to step. ``refuses``: options of a reset that only Gymnasium's
    class takes; others mean nothing to either.
    """

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    how: str
    leaves_out: tuple[str, ...]
    chunk: int
    refuses: frozenset[str]

    def __init__(self, env_id: str, settings: Mapping[str, Any]) -> None:
        """Build the task that Gymnasium calls ``env_id``, with these settings of Gymnasium's instead of its defaults.

        Raises ValueError if it cannot step them, or not here.
        """

    @staticmethod
    def settings_of(task: Task) -> dict[str, Any]:
        """Return the settings with which a task is what every backend steps."""

    def batch(self, rows: RowArrays, *, infos: bool = False) -> FastBatch:
        """Build as many environments as there are rows. Without ``infos`` they have none."""


def build_task(env_id: str, settings: Mapping[str, Any]) -> tuple[FastTask | None, OwnClasses]:
    """Return a task that ours may step, None if it cannot be built; and what steps, and why."""
    ours = class_of(env_id)
    assert ours is not None  # noqa: S101 - callers have checked that there is one
    kind: type[FastTask] = load_target(ours.target)
    try:
        _check_registered(env_id)
        task = kind(env_id, settings)
    except ValueError as error:
        return None, OwnClasses(refused=f"our own class for {env_id}: {error}")
    return task, OwnClasses(task.how)


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


def make_share(
    task: FastTask, division: Division, autoreset: Autoreset, *, infos: bool = False
) -> tuple[Division, MakeShare]:
    """Return how a team has all environments in this process, with threads for the processes of a division."""
    alone = replace(division, processes=1, caller_steps=True, cpus=())
    # It lacks ``step_one``, which only ``InFlight`` asks for, and ``FastInFlight`` does not.
    return alone, cast("MakeShare", partial(FastShare, task, division, autoreset, infos=infos))


_POLL_NS = 50_000  # for how long a thread with nothing to do polls at most


class Pool:
    """Threads that step a batch's environments: see ``pool.c``. The caller helps while it waits, if it is to step."""

    def __init__(self, batch: FastBatch, num_envs: int, chunk: int, division: Division) -> None:
        library = self._library = needed()
        library.vebench_pool_start.restype = ctypes.c_void_p
        library.vebench_pool_get.restype = library.vebench_pool_in.restype = ctypes.c_int64
        threads = min(division.processes, -(-num_envs // chunk)) - division.caller_steps
        cpus = np.array(division.cpus[division.caller_steps :], np.int32)
        started = library.vebench_pool_start(
            ctypes.c_void_p(batch.work),
            ctypes.c_void_p(batch.context),
            *map(ctypes.c_int64, (num_envs, chunk, threads, division.caller_steps, min(division.spin_ns, _POLL_NS))),
            ctypes.c_void_p(cpus.ctypes.data if len(cpus) else None),
        )
        if not started:
            where = f" on CPUs {cpus.tolist()}" if len(cpus) else ""
            raise RuntimeError(f"{threads} threads cannot be started{where}")
        self._pool = ctypes.c_void_p(started)
        self._received = np.zeros(num_envs, np.int64)
        self._all = ctypes.c_int64(num_envs)
        self._at = ctypes.c_void_p(self._received.ctypes.data)
        self._without_limit = ctypes.c_int64(-1)

    def put(self, indices: Sequence[int] | None) -> None:
        """Let the work on these environments begin, None for all. None of them may be in the pool."""
        if indices is None:
            self._library.vebench_pool_put_all(self._pool)
        else:
            given = np.array(indices, np.int64)
            self._library.vebench_pool_put(self._pool, ctypes.c_void_p(given.ctypes.data), ctypes.c_int64(len(given)))

    def get_all(self) -> None:
        """Wait until the work on all environments is done, each of which must be in the pool."""
        self._library.vebench_pool_get(self._pool, self._all, None, self._without_limit)

    def get(self, least: int, seconds: float | None = None) -> list[int]:
        """Return ``least`` environments or more, the first ones that are done; fewer after so many seconds."""
        most = self._without_limit if seconds is None else ctypes.c_int64(int(1e9 * seconds))
        count: int = self._library.vebench_pool_get(self._pool, ctypes.c_int64(least), self._at, most)
        return self._received[:count].tolist()  # type: ignore[no-any-return]

    def drain(self) -> None:
        """Wait until the pool is empty."""
        self.get(self._library.vebench_pool_in(self._pool))

    def stop(self) -> None:
        """End the threads, once they have done what they are at."""
        self._library.vebench_pool_stop(self._pool)


class FastShare:
    """The environments of a team: all of them are its caller's, whose threads step them.

    Remarks, ``[(env_id, info), ...]``, are there for ``SameStep`` only: the last observation of an episode.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a share is given, after what all shares have in common
        self,
        task: FastTask,
        division: Division,
        autoreset: Autoreset,
        arrays: RowArrays,
        start: int,
        stop: int,
        *,
        infos: bool = False,
    ) -> None:
        self._task, self._division, self._autoreset, self._rows = task, division, autoreset, arrays
        self._indices, self._infos = range(start, stop), infos
        self._began = np.zeros(len(self._indices), np.bool_)  # rather than stepped, by the last work on each
        self._over: set[int] = set()  # ended, and not begun since
        self._new = set(self._indices)  # not reset yet: there is nothing to be stepped
        self._problem: Exception | None = None  # why the step was not begun

    @property
    def current(self) -> int:
        """Index of the environment in use now, or last."""
        return self._batch.current if hasattr(self, "_batch") else 0

    def open(self) -> None:
        """Build every environment."""
        self._batch = batch = self._task.batch(self._rows, infos=self._infos)
        self._pool = Pool(batch, len(self._indices), self._task.chunk, self._division)
        self._work = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(batch.work)
        # Whether nobody need know which episodes have ended.
        self._unwatched = batch.restarts and self._autoreset == "NextStep"

    def start(self) -> None:
        """Begin a step of every environment, in other threads."""
        try:
            self.put(None)
            self._problem = None
        except (ResetNeeded, AssertionError) as problem:
            self._problem = problem

    def put(self, indices: Sequence[int] | None) -> None:
        """Begin a step of these environments, None for all. Those that have ended their episodes begin one instead.

        Raises ResetNeeded and AssertionError, as Gymnasium does, for those that must be reset first.
        """
        if self._infos:
            self._began[slice(None) if indices is None else indices] = False
        if not self._new and not self._over:
            self._pool.put(indices)
            return
        asked = self._indices if indices is None else indices
        if new := self._new.intersection(asked):
            self._batch.current = min(new)
            raise ResetNeeded("Cannot call env.step() before calling env.reset()")
        resting = self._over.intersection(asked)
        if resting and self._autoreset == "Disabled":
            self._batch.current = min(resting)
            raise AssertionError("the episode is over: reset(options={'reset_mask': ...}) comes before the next step")
        self._pool.put([index for index in asked if index not in resting])
        # Meanwhile the threads step the others.
        for index in resting:
            self._begin(index, None)
        self._pool.put([*resting])
        self._over -= resting

    def step(self) -> Remarks | None:
        """Finish a step of every environment."""
        if self._problem is not None:
            raise self._problem
        self._pool.get_all()
        return self.finish(None)

    def get(self, least: int, seconds: float | None) -> list[int]:
        """Return the environments whose step is done: so many or more, or as many as there are after the time."""
        return self._pool.get(least, seconds)

    def finish(self, indices: Sequence[int] | None) -> Remarks | None:
        """Finish the rows of environments whose step is done, None for all; return the remarks on them."""
        if self._unwatched:
            return None
        self._batch.finish(indices)
        over = np.logical_or(self._rows.terminated, self._rows.truncated)
        ended = over.nonzero()[0].tolist() if indices is None else [index for index in indices if over[index]]
        if self._autoreset == "SameStep":
            return [self._begin_after_end(index) for index in ended]
        self._over.update(ended)
        return None

    def _begin(self, index: int, seed: int | None) -> None:
        self._batch.begin(index, seed)
        self._began[index] = True

    def _begin_after_end(self, index: int) -> tuple[int, dict[str, Any]]:
        """Start a new episode within the step that ended one; return the remark on that end."""
        rows, ends = self._rows, (self._rows.terminated, self._rows.truncated)
        (observations,), reward, flags = rows.observations, rows.rewards[index], [end[index] for end in ends]
        last = observations[index].copy()
        infos = self._batch.infos([index], first=False) if self._infos else {}
        final = {name: values[0] for name, values in infos.items()}
        self._begin(index, None)
        self._work(self._batch.context, index, index + 1)
        self._batch.finish([index])
        rows.rewards[index] = reward
        for end, flag in zip(ends, flags, strict=True):
            end[index] = flag
        return index, {"final_obs": last, "final_info": final}

    def infos(self, rows: NDArray[np.int64] | None, reset: NDArray[np.bool_] | None = None) -> dict[str, NDArray[Any]]:
        """Return infos of the last step of environments, None for all, or, if given, of the reset of those in a mask.

        As in Gymnasium's vector environments there is an array for each name with a row for each of them, and a mask
        that says which of them have it.
        """
        began = reset if reset is not None else self._began if rows is None else self._began[rows]
        told: dict[str, NDArray[Any]] = {}
        if reset is None and not began.any():  # as in nearly all steps
            infos = self._batch.infos(rows, first=False)
            for name, mask in zip(infos, np.ones((len(infos), len(began)), np.bool_), strict=True):
                told[name], told[f"_{name}"] = infos[name], mask
            return told
        for first, have in ((True, began), (False, ~began & (reset is None))):
            for name, values in self._batch.infos(rows, first=first).items() if have.any() else ():
                mask = have
                if objects := values.dtype == np.object_:
                    mask = have & [one is not None for one in values]
                if mask.any():
                    told.setdefault(name, np.full_like(values, None if objects else 0))[mask] = values[mask]
                    told.setdefault(f"_{name}", np.zeros_like(have))[mask] = True
        return told

    def answer(self, name: str, argument: Any) -> list[Any] | None:  # noqa: ANN401 - each request has its own
        """Reset environments, or return how many frames each has simulated, or what each renders.

        A reset is given as the seed of environment 0, from which the others count up; or as ``SharedMemoryVectorEnv``
        gives it: a seed for each, None for none, which of them are meant, None for all, and options, which mean nothing
        to the tasks that there are.
        """
        if name == "frames":
            return [self._batch.frames(index) for index in self._indices]
        if name == "render":
            if self._new:
                raise ResetNeeded("Cannot call env.render() before calling env.reset()")
            return [self._batch.render(index) for index in self._indices]
        seeds, mask, _ = (
            ([argument + index for index in self._indices], None, None) if isinstance(argument, int) else argument
        )
        chosen = [index for index in self._indices if mask is None or mask[index]]
        if mask is None:
            self._pool.drain()  # of a step that was broken off
        for index in chosen:
            self._begin(index, seeds[index])
        self._pool.put(chosen)
        self._pool.drain()
        self._batch.finish(chosen)
        self._new.difference_update(chosen)
        self._over.difference_update(chosen)
        return None

    def close(self) -> None:
        """End the threads and free what the environments have. A second call does nothing."""
        with errors.held_back():  # what is freed must not be freed again
            if hasattr(self, "_pool"):
                self._pool.stop()
                del self._pool
                self._batch.close()


class FastInFlight(InFlight):
    """The environments of a team that are asked for one by one, and come back in the order in which they are done."""

    def send(self, env_ids: Sequence[int]) -> None:
        """Ask for the environments, none of which may be asked for or ready already."""
        team = self._team
        team.check_idle()
        share: Any = team.own
        team.busy = threading.get_ident()
        try:
            with team.inside:
                team.raise_if_lost()
                share.put(env_ids)
        except (ResetNeeded, AssertionError) as error:
            team.busy = 0
            failure = errors.WorkerFailure.of(error, 0, share)
            raise errors.WorkerError(failure.message, failure) from error
        for env_id in env_ids:
            self.away[env_id] = 1
        team.busy = 0

    def _collect(self, least: int, timeout: float | None) -> None:
        """Go on until as many environments are ready, and leave the team busy."""
        team = self._team
        share: Any = team.own
        team.check_idle()
        team.busy = threading.get_ident()
        with team.inside:
            team.raise_if_lost()
            if (missing := least - len(self._ready)) > 0:
                self._keep_all(share.get(missing, timeout), share)
        if self._failed:
            team.busy = 0
            self._raise_failure()
        if len(self._ready) < least:
            team.busy = 0
            raise errors.OverdueError(timeout)

    def _keep_all(self, env_ids: Sequence[int], share: Any) -> None:  # noqa: ANN401 - a FastShare
        """Let environments be ready whose steps are done."""
        remarks: dict[int, Any] = {}
        rest = env_ids
        while rest:
            try:
                remarks |= {env_id: [(env_id, info)] for env_id, info in share.finish(rest) or ()}
                break
            except Exception as error:  # noqa: BLE001 - described as those of workers are
                failed = share.current if share.current in rest else rest[0]
                remarks[failed] = errors.WorkerFailure.of(error, 0, share)
                rest = [env_id for env_id in rest if env_id not in remarks]
        if remarks or self._remarks:
            for env_id in env_ids:
                self._keep(env_id, remarks.get(env_id))
        self._ready.extend(env_ids)
