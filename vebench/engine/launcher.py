"""Starts the cells of a run, here and on other hosts, and ends them with all that they started.

This is the interface to the operating system: the runner knows only ``interface.Launch``, and its tests pass a fake.
The replicas of a cell are one conversation to it: they start together, and count only while all of them run. It does
not matter where their processes run: times are those of the runner's clock, into which a replica on another host
translates its own.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from vebench.backends.interface import Setup
from vebench.backends.registry import REFERENCE, find
from vebench.child.answers import Done, Failure, Layout, Ready, ReplicaWindow, Warm
from vebench.child.process import ChildProcess, Zygote, environment
from vebench.child.request import Judging, Proving, Recording, Replaying, Request, Settings, Timing, seeds_of
from vebench.child.window import Window, joined
from vebench.engine.cell_process import FarCell, LocalCell
from vebench.engine.interface import CellError, Conversation, InterruptedCellError
from vebench.hosts.site import reached
from vebench.interpreters.process_guard import ProcessGuard, python_path, restore_scratch
from vebench.interpreters.waiting import CHECK_S, wakeful
from vebench.machine import guardian, pinning
from vebench.plan.spec import FORK
from vebench.plan.tasks import not_ours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from vebench.child.answers import Answer
    from vebench.child.process import Forked
    from vebench.engine.cell_process import CellProcess
    from vebench.hosts.site import Site
    from vebench.interpreters.waiting import Interrupts
    from vebench.plan.cells import Cell, Replica
    from vebench.plan.spec import RunSpec

    Note = Callable[[str], object]

# The time between the last replica's warm-up and the first window, in which each replica reads when that begins.
LOCAL_LEAD_NS = 50_000_000
# The same where they are notified over a network.
FAR_LEAD_NS = 500_000_000
# The least share of the longest window in which all replicas must run.
_LEAST_COMMON = 0.5

_T = TypeVar("_T")
_R = TypeVar("_R")


class Launcher:
    """Launches the cells of one run, with a scratch folder and a guardian that outlives the runner.

    ``python`` is the interpreter that cells run in, unless their backend has one of its own. It needs numpy and the
    simulators, but not vebench. ``note`` is given what the user should know.
    """

    def __init__(
        self, spec: RunSpec, interrupts: Interrupts, python: str = sys.executable, note: Note = lambda _: None
    ) -> None:
        self._spec, self._interrupts, self._python, self._note = spec, interrupts, python, note
        self._guarded = ProcessGuard()
        self._token = self._guarded.token
        self._started = count()
        self._home = pinning.allowed()
        self._sites: Mapping[str, Site] = {}
        self._zygotes: dict[tuple[str, ...], Zygote] = {}
        self._unforkable: set[tuple[str, ...]] = set()
        self._pass = 0

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._guarded)
            self._scratch = self._guarded.scratch
            self._sites = stack.enter_context(reached(self._spec, self._guarded, self._interrupts))
            stack.callback(self._end_zygotes)
            stack.callback(self._keep_off, ())
            self._close: Callable[[], None] = stack.pop_all().close
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    @contextlib.contextmanager
    def __call__(self, cell: Cell) -> Iterator[Conversation]:
        """Start all replicas of ``cell``, and return its conversation."""
        self._keep_off(_owned(cell))
        with contextlib.ExitStack() as stack:
            running: list[CellProcess] = []
            for replica in cell.all_replicas:
                running.append(self._start(cell, replica))
                stack.callback(running[-1].end)
            if not cell.replicas or isinstance(cell.job, Replaying):
                yield running[0]
                return
            names = [one.host or f"replica {number}" for number, one in enumerate(cell.replicas)]
            lead = FAR_LEAD_NS if any(one.host for one in cell.replicas) else LOCAL_LEAD_NS
            replicas = Replicas(running, self._spec.windows, names=names, lead_ns=lead)
            stack.callback(replicas.tell_to_end)  # all are notified before one is waited for
            yield replicas

    def _start(self, cell: Cell, replica: Replica) -> CellProcess:
        request = self._request(cell, replica)
        times = len(cell.job.recordings) if isinstance(cell.job, Replaying) else 1
        timeout = times * self._spec.timeout
        if replica.host:
            return FarCell(self._sites[replica.host], request, self._interrupts, timeout)
        restore_scratch(self._scratch)
        number = next(self._started)
        mark = f"{self._token}.{number:06}"
        python = self._python if isinstance(cell.job, Replaying | Judging) else cell.python or self._python
        limit = timeout if cell.patience is None else min(timeout, times * cell.patience)
        deadline = wakeful() + limit  # what it is forked from may have to load its modules first
        fork = partial(self._fork, cell, python, deadline)
        child = ChildProcess(python, request.as_json(), self._scratch / str(number), self._env(mark), fork)
        self._guarded.add(child.process.pid)
        return LocalCell(
            child,
            mark,
            self._interrupts,
            limit,
            option="--timeout" if limit == timeout else "--budget",
            deadline=deadline,
            keep_off=partial(self._keep_off, _owned(cell)),
            guarded=self._guarded,
            tells_where=not isinstance(cell.job, Proving | Judging),
        )

    def _env(self, mark: str) -> dict[str, str]:
        marks = {guardian.TOKEN_VARIABLE: self._token, guardian.CELL_VARIABLE: mark}
        return environment(python_path(self._scratch), marks)

    def _fork(
        self, cell: Cell, python: str, deadline: float, *given: *tuple[Path, str, Sequence[int]]
    ) -> Forked | None:
        """Return the process of a cell that is forked by the deadline, None if the cell needs a fresh interpreter.

        Each pass forks from its own, so that where code and data lie, and how strings are hashed, differ between passes
        as between fresh interpreters: intervals are from the differences between passes.
        """
        entry = find(REFERENCE) if isinstance(cell.job, Replaying | Judging) else cell.entry
        modules = entry.preloaded(cell.task)
        if self._spec.isolation != FORK or modules is None or not sys.platform.startswith("linux"):
            return None
        if cell.repeat != self._pass:
            self._end_zygotes()
            self._pass = cell.repeat
        if (key := (python, *modules)) in self._unforkable:
            return None
        if (zygote := self._zygotes.get(key)) is None:
            folder, env = self._scratch / f"zygote-{next(self._started)}", self._env(f"{self._token}.------")
            zygote = self._zygotes[key] = Zygote(python, modules, folder, env, self._guarded.lifeline)
            self._guarded.add(zygote.process.pid)
        forked = zygote.fork(*given, partial(self._wait, deadline))
        if forked is None and not self._interrupts.requested:
            self._unforkable.add(key)
            what = ", ".join(modules) or "vebench"
            self._note(f"cells have fresh interpreters: none could be forked from a process that has imported {what}")
        return forked

    def _wait(self, deadline: float, descriptor: int) -> None:
        """Wait until something can be read, there is no time left, or the user interrupts."""
        news = (descriptor, self._interrupts.fileno())
        while wakeful() < deadline and not wakeful.wait(news, min(CHECK_S, deadline - wakeful())):
            pass

    def _end_zygotes(self) -> None:
        while self._zygotes:
            zygote = self._zygotes.popitem()[1]
            zygote.end()
            self._guarded.discard(zygote.process.pid)

    def _request(self, cell: Cell, replica: Replica) -> Request:
        env = cell.task.id if cell.task.module is None else f"{cell.task.module}:{cell.task.id}"
        named = replace(self._spec, envs=(env,), backends=(cell.backend,))
        job = cell.job
        built, start, tape = (seed + replica.first_env for seed in seeds_of(self._spec.seed, cell.repeat))
        if isinstance(job, Recording) and cell.all_replicas[job.replica] != replica:
            job = None
        return Request(
            setup=Setup(
                cell.task,
                replica.workers,
                cell.envs_per_worker,
                replica.cpus,
                start if cell.backend.is_ours else built,  # EnvPool can only be seeded when it is built
                self._spec.pin.pins and _is_timed(cell),
            ),
            backend=cell.backend.name,
            target=cell.entry.target,
            options=cell.backend.options,
            settings=settings_of(self._spec),
            folder=str(Path.cwd() if any(not_ours(named)) else self._scratch),
            start_seed=start,
            tape_seed=tape,
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
        windows=spec.windows,
        warmup=spec.warmup,
        longest_warmup=spec.longest_warmup,
        timeout=spec.timeout,
        memory=spec.pin.memory,
        policy=spec.policy,
    )


def _owned(cell: Cell) -> tuple[int, ...]:
    """Return the CPUs of this machine that a cell has for itself. What is not timed uses all that are free."""
    here = not any(one.host for one in cell.replicas)
    return cell.cpus if here and _is_timed(cell) else ()


def _is_timed(cell: Cell) -> bool:
    return cell.job is None or isinstance(cell.job, Recording | Timing)


class Replicas(Conversation):
    """The replicas of a cell as one conversation. ``windows`` is the number of windows.

    ``names`` are what people call the replicas, by default their numbers. The first window begins ``lead_ns`` after the
    last replica was warm.
    """

    def __init__(
        self,
        replicas: Sequence[CellProcess],
        windows: int,
        clock: Callable[[], int] = time.perf_counter_ns,
        names: Sequence[str] = (),
        lead_ns: int = LOCAL_LEAD_NS,
    ) -> None:
        self._replicas = replicas
        self._windows = windows
        self._clock = clock
        self._names = names or [f"replica {number}" for number in range(len(replicas))]
        self._lead_ns = lead_ns
        self._arrived: list[deque[Answer]] = [deque() for _ in replicas]
        self._ended: set[int] = set()
        self._look_at_all = 0.0

    def messages(self) -> Iterator[Answer]:
        """Yield their joint answers up to ``Done``. Raises CellError if a replica has failed."""
        ready = self._each(Ready)
        slowest = max(ready, key=lambda one: one.startup_ns)
        yield Ready(slowest.startup_ns, joined_layout([one.layout for one in ready]), slowest.reset_ns)
        self._each(Warm)
        start = self._clock() + self._lead_ns
        for replica in self._replicas:
            replica.start(start)
        for _ in range(self._windows):
            yield common_window(self._each(ReplicaWindow))
        yield joined_end(self._each(Done))

    def _each(self, kind: type[_T]) -> list[_T]:
        """Return the next answer of each replica. Raises CellError for a failure, or an answer of another kind.

        All are listened to at once: one that hangs must not hide that another has died.
        """
        due: Sequence[int] = range(len(self._replicas))
        while not all(self._arrived):
            heard = [self._heard(number) for number in due if number not in self._ended]
            if not any(heard):
                due = self._with_news()
        answers: list[_T] = []
        for name, answer in zip(self._names, [each.popleft() for each in self._arrived], strict=True):
            if not isinstance(answer, kind):
                raise CellError(f"{name} answered {type(answer).__name__} instead of {kind.__name__}")
            answers.append(answer)
        return answers

    def _with_news(self) -> Sequence[int]:
        """Wait until some have news, and return their numbers: of a thousand, few have some at a time.

        From time to time all are to be looked at, since each has limits.
        """
        talking = [number for number in range(len(self._replicas)) if number not in self._ended]
        ready = wakeful.wait({descriptor for number in talking for descriptor in self._replicas[number].news})
        if not ready or wakeful() > self._look_at_all:
            self._look_at_all = wakeful() + CHECK_S
            return talking
        return [number for number in talking if not ready.isdisjoint(self._replicas[number].news)]

    def _heard(self, number: int) -> bool:
        try:
            answer = self._replicas[number].look()
        except InterruptedCellError:  # by the user: not this replica's fault
            raise
        except CellError as error:
            raise CellError(f"{self._names[number]}: {error}") from None
        if answer is None:
            return False
        if isinstance(answer, Failure):
            raise CellError(f"{self._names[number]}: {answer.reason}")
        if isinstance(answer, Done):
            self._ended.add(number)
        self._arrived[number].append(answer)
        return True

    @property
    def fault(self) -> str | None:
        """In words what is wrong with the clock of one; see ``Conversation``."""
        faults = zip(self._names, [replica.fault for replica in self._replicas], strict=True)
        return next((f"{name}: {fault}" for name, fault in faults if fault), None)

    def tell_to_end(self) -> None:
        """Let all of them end, before one is waited for."""
        for replica in self._replicas:
            replica.tell_to_end()

    def log(self) -> str:
        """Return the end of what each replica printed, under its name. Those that are not done are ended for that."""
        self.tell_to_end()
        texts = [replica.log() for replica in self._replicas]
        return "".join(f"{name}:\n{text}\n" for name, text in zip(self._names, texts, strict=True) if text)


def joined_layout(layouts: Sequence[Layout]) -> Layout:
    """Return the layout of all replicas together.

    It has what is true of any of them: each difference and engine once, and the first reason why memory is unbound.
    The memory policy is None if that of one replica is unknown.
    """
    return replace(
        layouts[0],
        num_envs=sum(layout.num_envs for layout in layouts),
        batch_size=sum(layout.batch_size for layout in layouts),
        processes=sum(layout.processes for layout in layouts),
        threads=max(layout.threads for layout in layouts),
        differences=tuple(dict.fromkeys(_chained(layout.differences for layout in layouts))),
        affinity=_joined([layout.affinity for layout in layouts], _chained),
        engines=tuple(dict.fromkeys(_chained(layout.engines for layout in layouts))),
        memory_policy=_joined(
            [layout.memory_policy for layout in layouts], lambda each: "; ".join(dict.fromkeys(each))
        ),
        unbound=next((layout.unbound for layout in layouts if layout.unbound is not None), None),
    )


def common_window(windows: Sequence[ReplicaWindow]) -> Window:
    """Return the window in which all replicas ran, with the sum of what each did in it at its own rate.

    Raises CellError if they hardly ran at the same time.
    """
    begin = max(one.start_ns for one in windows)
    end = min(one.start_ns + one.window.ns for one in windows)
    if end - begin < _LEAST_COMMON * max(one.window.ns for one in windows):
        raise CellError("replicas hardly ran at the same time: use a longer --duration")
    shares = [(end - begin) / one.window.ns for one in windows]
    return joined([one.window for one in windows], shares, end - begin)


def joined_end(ends: Sequence[Done]) -> Done:
    """Return the ends of all replicas as one.

    The warm-up is the longest of all. The rate had settled if it had in each replica.
    """

    def summed(counts: Sequence[dict[str, int]]) -> dict[str, int]:
        return {name: sum(one.get(name, 0) for one in counts) for name in sorted({*_chained(counts)})}

    return Done(
        peak_rss_bytes=_joined([one.peak_rss_bytes for one in ends], sum),
        seats=_joined([one.seats for one in ends], _chained),
        memory_by_node=_joined([one.memory_by_node for one in ends], summed),
        warmup_ns=_joined([one.warmup_ns for one in ends], max),
        settled=_joined([one.settled for one in ends], all),
        hosts=_joined([one.hosts for one in ends], _chained),
        priorities=tuple(dict.fromkeys(_chained(one.priorities for one in ends))),
    )


def _joined(values: Sequence[_T | None], join: Callable[[Sequence[_T]], _R]) -> _R | None:
    """Return the values as one; None if one of them is unknown."""
    known = [value for value in values if value is not None]
    return join(known) if len(known) == len(values) else None


def _chained(values: Iterable[Iterable[_T]]) -> tuple[_T, ...]:
    return tuple(item for value in values for item in value)
