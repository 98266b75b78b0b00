"""Starts the cells of a run, on this machine and other hosts, and ends all their processes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Self

from vebench.backends.interface import Setup
from vebench.backends.packages import TORCH
from vebench.backends.registry import REFERENCE, find
from vebench.child.process import CHECK_S, ChildProcess, ForkedProcess, Zygote, environment
from vebench.child.request import Judging, Recording, Replaying, Request, Settings, Timing, Updating, seeds_of
from vebench.engine.cell_process import CellProcess, FarCell, Limit, LocalCell, Replicas
from vebench.engine.runner import Conversation
from vebench.hosts import Site, reached
from vebench.machine import guardian, kernel
from vebench.plan.cells import Cell, Replica
from vebench.plan.spec import FORK, RunSpec
from vebench.plan.tasks import not_ours
from vebench.process_guard import Interrupts, ProcessGuard, python_path, wakeful


class Launcher:
    """Launches the cells of one run, in a ``ProcessGuard``. ``note`` is called with messages for the user.

    ``python``, with numpy and the simulators, runs cells whose backend has no interpreter of its own.
    """

    def __init__(
        self,
        spec: RunSpec,
        interrupts: Interrupts,
        python: str = sys.executable,
        note: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._spec, self._interrupts, self._python, self._note = spec, interrupts, python, note
        self._guard = ProcessGuard()
        self._token = self._guard.token
        self._started = count()
        self._home = kernel.allowed()
        self._sites: Mapping[str, Site] = {}
        self._zygotes: dict[tuple[str, ...], Zygote] = {}  # by the zygote's Python and modules
        self._unforkable: set[tuple[str, ...]] = set()
        self._pass = 0

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._guard)
            self._scratch = self._guard.scratch
            self._sites = stack.enter_context(reached(self._spec, self._guard, self._interrupts))
            stack.callback(lambda: self._end_zygotes(*self._zygotes))
            stack.callback(kernel.keep_off, (), self._home)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextlib.contextmanager
    def __call__(self, cell: Cell) -> Iterator[Conversation]:
        """Start all replicas of ``cell``, and yield its conversation."""
        here = not any(replica.host for replica in cell.replicas)
        # Cells that are not timed share all CPUs with this process.
        owned = cell.cpus if here and _is_timed(cell) and self._spec.pin.pins else ()
        keep_off = partial(kernel.keep_off, owned, self._home)
        keep_off()
        with contextlib.ExitStack() as stack:
            running: list[CellProcess] = []
            for replica in cell.all_replicas:
                running.append(self._start(cell, replica, keep_off))
                stack.callback(running[-1].end)
            if not cell.replicas or isinstance(cell.job, Replaying):
                yield running[0]
                return
            names = [one.host or f"replica {number}" for number, one in enumerate(cell.replicas)]
            yield Replicas(running, self._spec.windows, names, far=not here)

    def _start(self, cell: Cell, replica: Replica, keep_off: Callable[[], None]) -> CellProcess:
        request = self._request(cell, replica)
        times = len(cell.job.recordings) if isinstance(cell.job, Replaying) else 1
        timeout = seconds = times * self._spec.timeout
        if cell.patience is not None:
            seconds = min(timeout, times * cell.patience)
        option = "--timeout" if seconds == timeout else "--budget"
        # The deadline includes the import of modules by a zygote.
        measures = cell.job is None or isinstance(cell.job, Recording)
        limit = Limit(seconds, option, wakeful() + seconds, measures)
        if replica.host:
            return FarCell(self._sites[replica.host], request, self._interrupts, limit)
        number = next(self._started)
        mark = f"{self._token}.{number:06}"
        compares = isinstance(cell.job, Replaying | Judging)  # with the reference, in the task's own interpreter
        python = (cell.interpreter.home if compares else cell.interpreter.path) or self._python
        fork = partial(self._fork, cell, python, limit.deadline)
        child = ChildProcess(python, request.as_json(), self._scratch / str(number), self._env(mark), fork)
        self._guard.add(child.process.pid)
        return LocalCell(child, mark, self._interrupts, limit, self._guard, keep_off)

    def _env(self, mark: str) -> dict[str, str]:
        marks = {guardian.TOKEN_VARIABLE: self._token, guardian.CELL_VARIABLE: mark}
        return environment(python_path(self._scratch), marks)

    def _fork(self, cell: Cell, python: str, deadline: float, *start: Any) -> ForkedProcess | None:
        """Return the forked process of a cell, None if the cell needs a fresh interpreter. Gives up at the deadline.

        Each pass has its own zygotes. So addresses and the hashes of strings differ between passes as they do between
        fresh interpreters. That matters, because intervals come from these differences.
        """
        entry = find(REFERENCE) if isinstance(cell.job, Replaying | Judging) else cell.entry
        modules = entry.preloaded(cell.task)
        if modules is not None and self._spec.policy.is_network:
            modules = (*modules, TORCH.module)
        if self._spec.isolation != FORK or modules is None or not sys.platform.startswith("linux"):
            return None
        if cell.repeat != self._pass:
            self._end_zygotes(*self._zygotes)
            self._pass = cell.repeat
        key = (python, *modules)
        if key in self._unforkable:
            return None
        if (zygote := self._zygotes.get(key)) is None:
            folder, env = self._scratch / f"zygote-{next(self._started)}", self._env(f"{self._token}.------")
            zygote = self._zygotes[key] = Zygote(python, modules, folder, env, self._guard.lifeline)
            self._guard.add(zygote.pid)

        def wait(descriptor: int) -> None:
            news = (descriptor, self._interrupts.fileno())
            while wakeful() < deadline and not wakeful.wait(news, min(CHECK_S, deadline - wakeful())):
                pass

        forked = zygote.fork(wait, *start)
        if forked is None and not self._interrupts.requested:
            self._unforkable.add(key)
            self._end_zygotes(key)
            imported = ", ".join(modules) or "vebench"
            self._note(f"cells have fresh interpreters: a process that has imported {imported} cannot be forked")
        return forked

    def _end_zygotes(self, *keys: tuple[str, ...]) -> None:
        for key in keys:
            zygote = self._zygotes.pop(key)
            zygote.end()
            self._guard.discard(zygote.pid)

    def _request(self, cell: Cell, replica: Replica) -> Request:
        env = cell.task.id if cell.task.module is None else f"{cell.task.module}:{cell.task.id}"
        named = replace(self._spec, envs=(env,), backends=(cell.backend,))
        built, start, tape = (seed + replica.first_env for seed in seeds_of(self._spec.seed, cell.repeat))
        job = cell.job
        if isinstance(job, Recording) and cell.all_replicas[job.replica] != replica:
            job = None
        # The first plain loop of a run also times an environment. A tuning does so itself.
        first = cell.is_base and not (cell.repeat or job or cell.replicas or cell.interpreter.side)
        times = first and not (self._spec.policy.target or self._spec.only)
        return Request(
            setup=Setup(
                cell.task,
                replica.workers,
                cell.envs_per_worker,
                replica.cpus,
                start if cell.backend.is_ours else built,  # EnvPool can only be seeded when it is built
                self._spec.pin.pins and _is_timed(cell),
                cell.task.id in self._spec.waiting,
            ),
            backend=cell.backend.name,
            options=cell.backend.options,
            settings=settings_of(self._spec),
            folder=str(Path.cwd() if any(not_ours(named)) else self._scratch),
            start_seed=start,
            tape_seed=tape,
            nodes=replica.nodes,
            mode=cell.mode,
            lifeline=self._guard.lifeline,
            times=min(1.0, self._spec.cell_seconds) if times else 0.0,
            job=job,
        )


def settings_of(spec: RunSpec) -> Settings:
    """Return the part of a spec that children use."""
    alike = ("duration", "windows", "warmup", "longest_warmup", "timeout", "policy")
    return Settings(memory=spec.pin.memory, **{name: getattr(spec, name) for name in alike})


def _is_timed(cell: Cell) -> bool:
    return cell.job is None or isinstance(cell.job, Recording | Timing | Updating)
