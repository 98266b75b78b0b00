"""How vebench's own classes are stepped: their interface, the threads, the share of a team, and the backends.

A ``FastTask`` is a task with its settings: constants, tables, a model. A ``FastBatch`` has the task's environments,
which write straight into their rows. Compiled code steps them in the threads of a ``Pool``. Python code runs only in
the caller, before and after these steps.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded

from vebench.backends.environments.making import read_spaces
from vebench.backends.environments.suites import fast_settings, load_target
from vebench.backends.fast.classes import class_of, needed, refusal
from vebench.backends.interface import Difference, OwnClasses, Task
from vebench.backends.shared_memory.backend import ShmAsync, ShmSync, Stepped, gymnasium_classes
from vebench.backends.shared_memory.gymnasium_share import Autoreset, Remarks
from vebench.backends.shared_memory.memory_layout import Division, MakeShare, RowArrays
from vebench.backends.shared_memory.team import held_back
from vebench.backends.shared_memory.worker import WorkerFailure

NO_LIMIT = 1 << 62  # the number of steps of an episode without a limit


class FastBatch:
    """Environments of one task. They end their own episodes. The caller decides when to reset them."""

    # The address of a C function, ``void (*)(void *context, int64_t first, int64_t last)``. It steps the environments
    # from ``first`` up to ``last`` with their rows of the actions. Several threads call it at once, for different
    # environments.
    work: int
    context: int  # the address to pass as its first argument
    # Whether the work after an end begins a new episode without ``begin``. Such a batch has nothing to ``finish``.
    restarts: bool = False
    current: int = 0  # the index of the environment that a method uses now, or used last

    def begin(self, index: int, seed: int | None) -> None:
        """Let the next work on one environment begin an episode instead of a step. Others may step meanwhile.

        Without a seed, the environment continues its random numbers. A new one takes a seed from the system's entropy.
        """
        raise NotImplementedError

    def finish(self, indices: Sequence[int] | None) -> None:
        """Finish the rows of environments, None for all, after the work on them. The work has already set the ends."""

    def frames(self, index: int) -> int:  # noqa: ARG002 - no simulator
        """Return the number of frames in one environment's episode, 0 if there is no simulator to count them."""
        return 0

    def close(self) -> None:
        """Free the environments."""


class FastTask:
    """A task with its settings. It builds one batch. Building a task takes about as long as building an environment."""

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    how: str  # how the task steps, in words
    leaves_out: tuple[str, ...] = ("no infos",)  # features of Gymnasium's class that this class lacks, in words
    chunk: int = 1  # the number of environments that take about 20 us to step
    refuses: frozenset[str] = frozenset()  # options of a reset that only Gymnasium's class takes

    def __init__(self, env_id: str, settings: Mapping[str, Any]) -> None:
        """Build a task of Gymnasium's with these settings. Raises ValueError if the class cannot step it here."""

    def batch(self, rows: RowArrays) -> FastBatch:
        """Build an environment for each row."""
        raise NotImplementedError


def build_task(env_id: str, settings: Mapping[str, Any]) -> tuple[FastTask | None, OwnClasses]:
    """Return a task of the own class, None if Gymnasium's class must step it, and the class in use with the reason."""
    refused = refusal(env_id, settings)
    ours = class_of(env_id)
    if refused is not None or ours is None:
        return None, refused or OwnClasses()
    kind: type[FastTask] = load_target(ours.target)  # this registers the simulator's environments, too
    spec = gymnasium.spec(env_id)
    kwargs = {name: value for name, value in spec.kwargs.items() if name not in ("game", "frameskip")}
    limited = spec.max_episode_steps is not None and "max_episode_steps" in ours.unsupported
    replaced = fnmatchcase(str(spec.entry_point), ours.entry_point)
    if not replaced or spec.additional_wrappers or limited or kwargs != ours.registered:
        return None, OwnClasses(refused=f"{env_id} is not registered as by Gymnasium: its class, settings or wrappers")
    try:
        task = kind(env_id, settings)
    except ValueError as error:
        return None, OwnClasses(refused=f"our own class for {env_id}: {error}")
    return task, OwnClasses(task.how)


def make_share(task: FastTask, division: Division, autoreset: Autoreset) -> tuple[Division, MakeShare]:
    """Return a team's division, with threads in place of processes, and the function that makes its only share."""
    # The share needs no ``step_one``, which teams only call on shares without threads.
    make = cast("MakeShare", partial(FastShare, task, division, autoreset))
    return replace(division, processes=1, caller_steps=True, cpus=None), make


class Pool:
    """The native threads that step one batch: see ``pool.c``. With ``caller_steps``, a waiting caller steps, too."""

    def __init__(self, batch: FastBatch, chunk: int, division: Division) -> None:
        library = self._library = needed()
        library.vebench_pool_start.restype = ctypes.c_void_p
        library.vebench_pool_get.restype = library.vebench_pool_in.restype = ctypes.c_int64
        count = division.num_envs
        threads = min(division.processes, -(-count // chunk)) - division.caller_steps
        cpus = np.array((division.cpus or ())[division.caller_steps :], np.int32)
        poll_ns = min(division.spin_ns, 50_000)  # the longest time for which an idle thread polls
        numbers = (count, chunk, threads, division.caller_steps, poll_ns)
        started = library.vebench_pool_start(
            ctypes.c_void_p(batch.work),
            ctypes.c_void_p(batch.context),
            *map(ctypes.c_int64, numbers),
            ctypes.c_void_p(cpus.ctypes.data if len(cpus) else None),
        )
        if not started:
            raise RuntimeError(f"{threads} threads cannot be started on {cpus.tolist() or 'any CPU'}")
        self._pool = ctypes.c_void_p(started)
        self._received = np.zeros(count, np.int64)
        # Arguments in C types, made once, since each step needs them.
        self._all = ctypes.c_int64(count)
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
        """Wait until the work on all environments is done. All must be in the pool."""
        self._library.vebench_pool_get(self._pool, self._all, None, self._without_limit)

    def get(self, least: int, seconds: float | None = None) -> list[int]:
        """Return environments whose work is done. Waits for ``least`` of them, but at most ``seconds``."""
        limit = self._without_limit if seconds is None else ctypes.c_int64(int(1e9 * seconds))
        count: int = self._library.vebench_pool_get(self._pool, ctypes.c_int64(least), self._at, limit)
        return self._received[:count].tolist()  # type: ignore[no-any-return]

    def drain(self) -> None:
        """Wait until the pool is empty."""
        self.get(self._library.vebench_pool_in(self._pool))

    def stop(self) -> None:
        """End the threads, once they have finished their work."""
        self._library.vebench_pool_stop(self._pool)


class FastShare:
    """All environments of a team, in the caller's process. Only ``SameStep`` has remarks: last observations."""

    def __init__(
        self, task: FastTask, division: Division, autoreset: Autoreset, rows: RowArrays, start: int, stop: int
    ) -> None:
        self._task, self._division, self._autoreset, self._rows = task, division, autoreset, rows
        self._indices = range(start, stop)
        self._over: set[int] = set()  # environments whose episode has ended, and that have not begun another
        self._new = set(self._indices)  # environments that were never reset, and cannot step
        self._refused: Exception | None = None  # why ``start`` has begun no step

    @property
    def current(self) -> int:
        """The index of the environment in use now, or used last."""
        return self._batch.current if hasattr(self, "_batch") else 0

    def open(self) -> None:
        """Build every environment."""
        self._batch = batch = self._task.batch(self._rows)
        self._pool = Pool(batch, self._task.chunk, self._division)
        self._work = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(batch.work)
        # Skip looking for ended episodes: the C code restarts them itself.
        self._unwatched = batch.restarts and self._autoreset == "NextStep"

    def start(self) -> None:
        """Begin a step of every environment, in other threads."""
        self._refused = self.put(None)

    def put(self, indices: Sequence[int] | None) -> Exception | None:
        """Begin a step of these environments, None for all, or a new episode where the last one has ended.

        If some must be reset first, nothing begins. Returns the exception that Gymnasium raises for them.
        """
        if not self._new and not self._over:
            self._pool.put(indices)
            return None
        asked = self._indices if indices is None else indices
        new, resting = self._new.intersection(asked), self._over.intersection(asked)
        if new:
            self._batch.current = min(new)
            return ResetNeeded("Cannot call env.step() before calling env.reset()")
        if resting and self._autoreset == "Disabled":
            self._batch.current = min(resting)
            return AssertionError("the episode is over: reset it, with options={'reset_mask': ...}")
        self._pool.put([index for index in asked if index not in resting])
        for index in resting:  # while threads step the others
            self._batch.begin(index, None)
        self._pool.put([*resting])
        self._over -= resting
        return None

    def step(self) -> Remarks | None:
        """Finish a step of every environment."""
        if self._refused is not None:
            raise self._refused
        self._pool.get_all()
        return self._finish(None)

    def get(self, least: int, seconds: float | None) -> tuple[Sequence[int], Mapping[int, object]]:
        """Return ``least`` or more stepped environments, or fewer after ``seconds``, and the remarks on them."""
        done = rest = self._pool.get(least, seconds)
        remarks: dict[int, object] = {}
        while rest:
            try:
                for index, info in self._finish(rest) or ():
                    remarks[index] = [(index, info)]
                break
            except Exception as error:  # noqa: BLE001 - InFlight raises it
                failed = self.current if self.current in rest else rest[0]
                remarks[failed] = WorkerFailure.of(error, failed)
                rest = [index for index in rest if index not in remarks]
        return done, remarks

    def _finish(self, indices: Sequence[int] | None) -> Remarks | None:
        """Finish the rows of environments whose step is done, None for all. Return the remarks on them."""
        if self._unwatched:
            return None
        self._batch.finish(indices)
        over = np.logical_or(self._rows.terminated, self._rows.truncated)
        ended = over.nonzero()[0].tolist() if indices is None else [index for index in indices if over[index]]
        if self._autoreset == "SameStep":
            return [(index, self._begin_after_end(index)) for index in ended]
        self._over.update(ended)
        return None

    def _begin_after_end(self, index: int) -> dict[str, Any]:
        """Start a new episode within the step that ended the last one. Return the info about that end."""
        rows, results = self._rows, self._rows[1:4]
        last, kept = rows.observations[0][index].copy(), [result[index] for result in results]
        self._batch.begin(index, None)
        self._work(self._batch.context, index, index + 1)
        self._batch.finish([index])
        for result, value in zip(results, kept, strict=True):
            result[index] = value
        return {"final_obs": last, "final_info": {}}

    def answer(self, name: str, argument: Any) -> list[int] | None:
        """Reset environments, or return the number of ``frames`` in each one's episode.

        A reset takes the seed of environment 0, from which the others count up, or a tuple: a list of seeds (None: no
        seed), a mask of environments (None: all), and options, which no task reads.
        """
        if name == "frames":
            return [self._batch.frames(index) for index in self._indices]
        if isinstance(argument, int):
            argument = [argument + index for index in self._indices], None, None
        seeds, mask, _ = argument
        chosen = [index for index in self._indices if mask is None or mask[index]]
        if mask is None:
            self._pool.drain()  # wait for an aborted step
        for index in chosen:
            self._batch.begin(index, seeds[index])
        self._pool.put(chosen)
        self._pool.drain()
        self._batch.finish(chosen)
        self._new.difference_update(chosen)
        self._over.difference_update(chosen)
        return None

    def close(self) -> None:
        """End the threads and free the environments. A second call does nothing."""
        with held_back():  # nothing may be freed twice
            if hasattr(self, "_pool"):
                self._pool.stop()
                del self._pool
                self._batch.close()


def _own_classes(task: Task, spares: int = 0) -> Stepped:
    """Return how our own class steps a task's environments, or Gymnasium's class if ours cannot be used."""
    fast, own = build_task(task.id, fast_settings(task))
    if fast is None:
        return gymnasium_classes(task, spares)._replace(own_classes=own)
    return Stepped(
        read_spaces(task, fast.observation_space, fast.action_space),
        lambda division: make_share(fast, division, "NextStep"),
        own,
        tuple(Difference(text) for text in fast.leaves_out),
    )


class FastSync(ShmSync):
    """``ShmSync`` with our own classes for the environments, and threads in place of its processes."""

    stepped = staticmethod(_own_classes)


class FastAsync(ShmAsync):
    """``ShmAsync`` with our own classes for the environments, and threads in place of its processes."""

    stepped = staticmethod(_own_classes)
