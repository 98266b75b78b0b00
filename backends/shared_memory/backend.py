"""The backends ``shm-sync`` and ``shm-async``: vebench's own processes.

Each process steps its share with the reference's own loop, which writes straight into the shared batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vebench.backends import trees
from vebench.backends.environments.making import ArraySpec, Spaces, as_counts, frames_of, make, spaces_of
from vebench.backends.for_loop import EnvironmentLoop
from vebench.backends.interface import Batch, Difference, OwnClasses, Setup, Task
from vebench.backends.shared_memory.memory_layout import Division, MakeShare, RowArrays
from vebench.backends.shared_memory.team import RUNNING, InFlight, OverdueError, State, Team
from vebench.backends.trees import Tree, as_rows
from vebench.machine import kernel


def _as_trees(spaces: Spaces, arrays: RowArrays, first: int = 0) -> tuple[Batch, Tree]:
    """Return the arrays in the form of these spaces: rows of environments from number ``first`` on, and actions."""
    observed = trees.filled(trees.form(spaces.observations), arrays.observations)
    env_ids = np.arange(first, first + len(arrays.rewards))
    rows = Batch(observed, arrays.rewards, arrays.terminated, arrays.truncated, env_ids)
    return rows, trees.filled(trees.form(spaces.actions), arrays.actions)


class LoopShare:
    """The environments of one process, stepped by the reference's loop. ``one_by_one``: each has its own loop."""

    current: int | None = None  # the loop's exceptions name their environment

    def __init__(
        self, task: Task, spares: int, spaces: Spaces, one_by_one: bool, arrays: RowArrays, start: int, stop: int
    ) -> None:
        self._task, self._spares = task, spares
        rows, actions = _as_trees(spaces, arrays, start)
        count = max(1, stop - start)
        size = 1 if one_by_one else count
        parts = [slice(first, first + size) for first in range(0, count, size)]
        self._rows = [rows.part(part) for part in parts]
        # Copy actions, since an environment may keep its action. Single numbers of an array are copies already.
        self._copies = any(leaf.ndim > 1 for leaf in arrays.actions)
        self._actions = [as_rows(trees.part(actions, part)) for part in parts]
        self._environments: list[Any] = []
        self.loops: list[EnvironmentLoop] = []

    def open(self) -> None:
        """Build every environment."""
        make_one: Callable[[], Any] = partial(make, self._task)
        if self._spares:
            from vebench.backends.shared_memory.spares import ResetAhead

            make_one = partial(ResetAhead, make_one, self._spares)
        for rows in self._rows:
            environments = [make_one() for _ in rows.env_ids]
            self._environments.extend(environments)
            self.loops.append(EnvironmentLoop(environments, rows))
        if not self._copies:
            # Let each step call the loop directly.
            self.step = partial(self.loops[0].step, self._actions[0])  # type: ignore[method-assign]

    def step(self) -> None:
        """Step every environment. All are in one loop."""
        self.step_one(0)

    def step_one(self, index: int) -> None:
        """Step the environments of the loop with this index."""
        actions = self._actions[index]
        self.loops[index].step(actions.copy() if self._copies else actions)

    def answer(self, name: str, argument: Any) -> list[int | None] | None:
        """Reset every environment from the given seed, or return the number of frames in each one's episode."""
        if name == "frames":
            return [frames_of(self._task, environment) for environment in self._environments]
        for loop in self.loops:
            loop.reset(argument)
        return None

    def close(self) -> None:
        """Close every environment."""
        while self._environments:
            self._environments.pop().close()


class Stepped(NamedTuple):
    """How the environments of a task are stepped."""

    spaces: Spaces
    # Takes the requested division. Returns the division of the team, in which the caller's threads may replace
    # processes, and the function that makes the shares.
    make_share: Callable[[Division], tuple[Division, MakeShare]]
    own_classes: OwnClasses | None = None
    differences: tuple[Difference, ...] = ()


def gymnasium_classes(task: Task, spares: int = 0) -> Stepped:
    """Return how environments of Gymnasium's classes are stepped. Each has ``spares``, which are reset ahead."""
    spaces = spaces_of(task)
    return Stepped(spaces, lambda division: (division, partial(LoopShare, task, spares, spaces, division.one_by_one)))


class _SharedMemoryBackend:
    """A team that steps environments of the task. The options are described in the table of backends."""

    stepped = staticmethod(gymnasium_classes)  # returns how the environments of a task are stepped

    def __init__(
        self,
        setup: Setup,
        num_envs: int,
        *,
        one_by_one: bool,
        spin: int | None = None,
        caller_steps: bool = True,
        context: str = "fork",
        spares: int = 0,
    ) -> None:
        spaces, make_share_for, own_classes, differences = self.stepped(setup.task, spares)
        self._before = os.sched_getaffinity(0) if setup.pinned else None
        cpus = [*islice(cycle(setup.cpus), max(len(setup.cpus), setup.at_once))] if setup.pinned else None
        asked = Division(num_envs, setup.at_once, caller_steps, cpus, spin, one_by_one)
        division, make_share = make_share_for(asked)
        actions = [ArraySpec(leaf.low.shape, leaf.low.dtype) for leaf in trees.leaves(spaces.actions)]
        self._team = Team(division, trees.leaves(spaces.observations), actions, make_share, context)
        if setup.pinned and caller_steps:
            kernel.restrict(setup.cpus[:1])
        self._batch, of_actions = _as_trees(spaces, self._team.arrays)
        self._actions = as_rows(of_actions)
        self.info = spaces.info(
            setup,
            num_envs=num_envs,
            processes=division.processes,
            threads=asked.processes // division.processes,
            in_order=not one_by_one,
            reuses_buffers=True,
            differences=differences,
            own_classes=own_classes,
        )

    def close(self) -> None:
        """End every worker, by force if it does not end by itself within two seconds."""
        self._team.close()
        if self._before is not None:
            kernel.restrict(sorted(self._before))
            self._before = None


class ShmSync(_SharedMemoryBackend):
    """``Setup.at_once`` processes that step all environments. Rewards are float64."""

    def __init__(self, setup: Setup, **options: Any) -> None:
        super().__init__(setup, setup.batch_size, one_by_one=False, **options)
        # Without workers, only the caller's own loop needs the actions, so it takes them without a copy.
        own = self._team.own
        self._loop = own.loops[0] if isinstance(own, LoopShare) and not self._team.workers else None
        self._given: Tree = None

    def reset(self, seed: int) -> None:
        """Start a new episode in every environment, environment ``i`` seeded with ``seed + i``."""
        self._team.ask("reset", seed, anew=True)

    def send(self, actions: Tree) -> None:
        """Write the actions into shared memory and let the workers step."""
        if self._loop is None:
            self._actions[:] = actions
            self._team.send()
        else:
            self._given = actions

    def recv(self) -> Batch:
        """Step the caller's own environments, wait for every worker and return all rows, in the order of ids."""
        if self._team.state is RUNNING:
            self._team.receive()
        elif self._loop is not None:
            self._loop.step(self._given)
        return self._batch

    def frames(self) -> NDArray[np.int64] | None:
        """Return the number of frames in each environment's episode, None if a simulator does not count them."""
        self._team.ask("frames", None)
        return as_counts([count for share in self._team.receive() for count in share])


class ShmAsync(_SharedMemoryBackend):
    """Processes as in ``ShmSync``, with ``ratio`` environments for each row of a batch.

    A batch has the environments that are ready first. With ``ratio=2``, processes step one half while the other half
    waits for actions. After ``recv_timeout`` seconds without a whole batch, ``recv`` returns the rows that are ready,
    at least ``recv_min``.
    """

    def __init__(
        self, setup: Setup, *, ratio: int = 2, recv_timeout: float | None = None, recv_min: int = 1, **options: Any
    ) -> None:
        if recv_timeout is None and recv_min > 1:
            raise ValueError(f"recv_min={recv_min} needs a recv_timeout: without one, recv waits for the whole batch")
        super().__init__(setup, ratio * setup.batch_size, one_by_one=True, **options)
        self._timeout, self._size = recv_timeout, setup.batch_size
        self._fewest = min(recv_min, self._size)
        if recv_timeout is not None:
            self.info = replace(self.info, fewest_rows=self._fewest)
        self._in_flight = InFlight(self._team)
        self._out = Batch._make(trees.mapped(np.copy, array) for array in self._batch.part(slice(self._size)))
        # Each array of all rows, and the array of a batch to which rows are copied.
        self._copied: list[tuple[NDArray[Any], NDArray[Any]]] = []
        for all_rows, of_batch in zip(self._batch[:4], self._out[:4], strict=True):
            self._copied += zip(trees.leaves(all_rows), trees.leaves(of_batch), strict=True)
        self._last = self._out.env_ids

    def reset(self, seed: int) -> None:
        """Start a new episode in every environment, environment ``i`` seeded with ``seed + i``."""
        self._team.ask("reset", seed, anew=True)
        self._team.state = State.RESET

    def send(self, actions: Tree) -> None:
        """Write the actions into shared memory and let the workers step the environments of the last batch."""
        ids = self._last
        self._actions[ids] = actions
        self._in_flight.send(ids.tolist())

    def recv(self) -> Batch:
        """Return the rows of the environments that were ready first, copied out of shared memory."""
        if self._team.state is State.RESET:
            self._team.state = RUNNING
            self._team.gather()
            self._in_flight.put_back(range(self.info.num_envs), ready=True)
            self._team.finish()
        try:
            ids = self._in_flight.recv(self._size, self._size, self._timeout)
        except OverdueError:  # take the rows that are ready, at least ``recv_min``
            ids = self._in_flight.recv(self._fewest, self._size)
        self._team.finish()
        few = len(ids) < self._size
        out = self._out.part(slice(len(ids))) if few else self._out
        self._last = env_ids = out.env_ids
        env_ids[:] = ids
        for rows, picked in self._copied:
            # The default mode, "raise", would copy twice, since it fills another buffer first.
            rows.take(env_ids, 0, picked[: len(ids)] if few else picked, "clip")
        return out
