"""Starts the cells of a run in fresh interpreters, here and on other hosts, and ends them with all that they started.

This is the interface to the operating system: the runner knows only ``interface.Launch``, and its tests pass a fake.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Self

from vebench.backends.setup import Setup
from vebench.child.request import Judging, Proving, Recording, Replaying, Request, Settings, Timing
from vebench.child.started import Started
from vebench.engine.replicas import FAR_LEAD_NS, LOCAL_LEAD_NS, Replicas
from vebench.engine.running import FarCell, LocalCell
from vebench.hosts.site import reached
from vebench.interpreters.guarded import Guarded, python_path, restore_scratch
from vebench.machine import guardian, pinning
from vebench.plan.tasks import not_ours

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

    from vebench.engine.interface import Conversation
    from vebench.engine.running import RunningCell
    from vebench.hosts.site import Site
    from vebench.interpreters.waiting import Interrupts
    from vebench.plan.cells import Cell, Replica
    from vebench.plan.spec import RunSpec


class Launcher:
    """Launches the cells of one run, with a scratch folder and a guardian that outlives the runner.

    ``python`` is the interpreter that cells run in, unless their backend has one of its own. It needs numpy and the
    simulators, but not vebench.
    """

    def __init__(self, spec: RunSpec, interrupts: Interrupts, python: str = sys.executable) -> None:
        self._spec = spec
        self._interrupts = interrupts
        self._python = python
        self._guarded = Guarded()
        self._token = self._guarded.token
        self._started = count()
        self._home = pinning.allowed()
        self._reached = contextlib.ExitStack()
        self._sites: Mapping[str, Site] = {}

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._guarded)
            self._scratch = self._guarded.scratch
            self._sites = stack.enter_context(reached(self._spec, self._guarded, self._interrupts))
            self._reached = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._keep_off(())
        self._reached.close()

    @contextlib.contextmanager
    def __call__(self, cell: Cell) -> Iterator[Conversation]:
        """Start all replicas of ``cell``, and return its conversation."""
        self._keep_off(_owned(cell))
        with contextlib.ExitStack() as stack:
            running: list[RunningCell] = []
            for replica in cell.all_replicas:
                running.append(self._start(cell, replica))
                stack.callback(running[-1].end)
            if not cell.replicas or isinstance(cell.job, Replaying):
                yield running[0]
                return
            names = [one.host or f"replica {number}" for number, one in enumerate(cell.replicas)]
            lead = FAR_LEAD_NS if any(one.host for one in cell.replicas) else LOCAL_LEAD_NS
            replicas = Replicas(running, self._spec.rounds, names=names, lead_ns=lead)
            stack.callback(replicas.tell_to_end)  # all are told before one is waited for
            yield replicas

    def _start(self, cell: Cell, replica: Replica) -> RunningCell:
        request = self._request(cell, replica)
        if replica.host:
            return FarCell(self._sites[replica.host], request, self._interrupts, self._spec.timeout)
        restore_scratch(self._scratch)
        number = next(self._started)
        mark = f"{self._token}.{number}"
        child = Started(
            self._python if isinstance(cell.job, Replaying | Judging) else cell.python or self._python,
            request.as_json(),
            self._scratch / str(number),
            python_path(self._scratch),
            {guardian.TOKEN_VARIABLE: self._token, guardian.CELL_VARIABLE: mark},
        )
        self._guarded.add(child.process.pid)
        return LocalCell(
            child,
            mark,
            self._interrupts,
            self._spec.timeout,
            keep_off=partial(self._keep_off, _owned(cell)),
            guarded=self._guarded,
            patience=cell.patience,
            tells_where=not isinstance(cell.job, Proving | Judging),
        )

    def _request(self, cell: Cell, replica: Replica) -> Request:
        env = cell.task.id if cell.task.module is None else f"{cell.task.module}:{cell.task.id}"
        named = replace(self._spec, envs=(env,), backends=(cell.backend,))
        job = cell.job
        if isinstance(job, Recording) and cell.all_replicas[job.replica] != replica:
            job = None
        return Request(
            setup=Setup(
                cell.task,
                replica.workers,
                cell.envs_per_worker,
                replica.cpus,
                self._spec.seed + replica.first_env,
                self._spec.pin.pins and _is_timed(cell),
            ),
            backend=cell.backend.name,
            target=cell.entry.target,
            options=cell.backend.options,
            settings=settings_of(self._spec),
            folder=str(Path.cwd() if any(not_ours(named)) else self._scratch),
            nodes=replica.nodes,
            mode=cell.mode,
            lifeline=self._guarded.lifeline,
            job=job,
        )

    def _keep_off(self, cpus: tuple[int, ...]) -> None:
        """Keep this process off the CPUs of the working cell, unless it would have none left."""
        if self._spec.pin.pins:
            pinning.keep_off(cpus, self._home)


def settings_of(spec: RunSpec) -> Settings:
    """Return the part of a spec that children use."""
    return Settings(
        duration=spec.duration,
        rounds=spec.rounds,
        warmup=spec.warmup,
        longest_warmup=spec.longest_warmup,
        timeout=spec.timeout,
        memory=spec.pin.memory,
        policy=spec.policy,
        deliver=spec.hosts is not None and spec.hosts.deliver,
    )


def _owned(cell: Cell) -> tuple[int, ...]:
    """Return the CPUs of this machine that a cell has for itself. What is not timed uses all that are free."""
    here = not any(one.host for one in cell.replicas)
    return cell.cpus if here and _is_timed(cell) else ()


def _is_timed(cell: Cell) -> bool:
    return cell.job is None or isinstance(cell.job, Recording | Timing)
