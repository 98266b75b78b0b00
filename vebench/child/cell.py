"""The measurement of one cell: build it, warm it up, measure its windows, read back where it ran."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vebench.child import schedule
from vebench.child.answers import Done, Layout, Ready, Warm
from vebench.child.loop import Loop, Stretch, action_tape
from vebench.child.warmup import warm_up
from vebench.child.window import Watched
from vebench.machine import cgroups, counters, memory_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vebench.backends.interface import BackendInfo, Batch, Factory, VectorBackend
    from vebench.child.answers import Answer, ReplicaWindow
    from vebench.child.request import Request, Settings
    from vebench.child.window import Window

NANO = 1e9


@dataclass(frozen=True)
class Binding:
    """The CPUs that the process is on, as read back, and why its memory is not bound as requested, None if it is."""

    affinity: tuple[int, ...] | None
    unbound: str | None


def measure(
    request: Request, factory: Factory, binding: Binding, started: int, answer: Callable[[Answer], None]
) -> VectorBackend:
    """Build the backend, measure it and return it, still open. Each answer is sent as soon as it is known.

    ``started`` is when the process began, in nanoseconds of ``time.perf_counter_ns``.
    """
    settings, clock = request.settings, time.perf_counter_ns
    backend = build(request, factory)
    tape = action_tape(backend.info.action_space, request.setup.seed, backend.info.batch_size)
    answer(Ready(clock() - started, layout(backend.info, binding)))
    memory = counters.proportional_memory(counters.process_tree(os.getpid()))
    loop = Loop(backend, tape, clock)
    warmup = warm_up(
        loop,
        int(settings.warmup * NANO),
        int(settings.longest_warmup * NANO),
        int(settings.duration * NANO),
        backend.info.batch_size,
    )
    processes = counters.process_tree(os.getpid())
    seats = counters.cpus_by_thread(processes)
    watched = Watched(processes, request.setup.cpus, cgroups.groups("cpu"))
    ahead = 2 * backend.info.num_envs // backend.info.batch_size
    to_measure = windows(request, loop, warmup.pace, ahead, watched, started)
    if request.mode != "alone":
        answer(Warm())
    for window in to_measure:
        answer(window)
    # Read only before and after all windows: a pause between windows would let environments run ahead.
    memory_now = counters.proportional_memory(counters.process_tree(os.getpid()))
    answer(
        Done(
            peak_rss_bytes=max(filter(None, (memory, memory_now)), default=None),
            seats=tuple(map(tuple, seats)),
            memory_by_node=_by_name(memory_policy.bytes_by_node(processes)),
            warmup_ns=warmup.ns,
            settled=warmup.settled,
        )
    )
    return backend


def build(request: Request, factory: Factory) -> VectorBackend:
    """Build the backend, reset it and receive its first batch. Returns it ready for the first ``send``."""
    backend = factory(request.setup, **request.options)
    backend.reset(request.setup.seed)
    check(backend.recv(), backend.info)
    return backend


def check(batch: Batch, info: BackendInfo) -> None:
    """Raise ValueError if a batch breaks the interface, before the timed loop uses one."""
    count = len(batch.env_ids)
    if {len(batch.observations), len(batch.rewards), len(batch.terminated), len(batch.truncated)} != {count}:
        raise ValueError(f"recv() returned arrays of unequal length: {[len(array) for array in batch]}")
    if batch.terminated.dtype != bool or batch.truncated.dtype != bool:
        raise ValueError(f"terminated and truncated must be bool, not {batch.terminated.dtype}")
    ids = set(batch.env_ids.tolist())
    if not ids <= set(range(info.num_envs)):
        raise ValueError(f"recv() returned env_ids {sorted(ids)}, which must be in 0..{info.num_envs - 1}")


def layout(info: BackendInfo, binding: Binding) -> Layout:
    """Return what the backend reports about itself, and where it runs."""
    return Layout(
        num_envs=info.num_envs,
        batch_size=info.batch_size,
        processes=info.processes,
        threads=info.threads,
        frame_skip=info.frame_skip,
        autoreset=info.autoreset,
        differences=tuple(difference.text for difference in info.differences),
        affinity=binding.affinity,
        engines=info.engines,
        memory_policy=memory_policy.read_back(),
        unbound=binding.unbound,
        own_classes=info.own_classes,
    )


def windows(  # noqa: PLR0913, PLR0917 - what a window depends on
    request: Request, loop: Loop, pace: int, ahead: int, watched: Watched, started: int
) -> Iterator[Window | ReplicaWindow]:
    """Return an iterator that measures the cell's windows one by one, in the request's mode.

    The clock is read once every ``pace`` batches. ``ahead`` batches contain all rows that were ready before a turn.
    """
    settings, clock, cpus = request.settings, time.perf_counter_ns, len(watched.cpus)
    duration = int(settings.duration * NANO)

    def step(span: int, batches: int = 1) -> Stretch:
        return loop.run_for(span, max(pace, batches))

    meter = schedule.Meter(step, watched)
    if request.mode == "in_step":
        start = schedule.number_on(request.go_ahead)
        return schedule.in_step(meter, settings.rounds, duration, start, clock)
    if request.mode == "alone":
        has_time = _has_time(settings, lambda: clock() - started)
        return schedule.valid(lambda: meter.measure(duration), settings.rounds, cpus, has_time)
    turns = schedule.Turns(request.go_ahead, step, clock)
    turns.leave()

    def measured() -> Window:
        turns.begin(duration, ahead)
        return meter.measure(duration)

    has_time = _has_time(settings, lambda: clock() - started - turns.waited_ns)
    return schedule.in_turn(schedule.valid(measured, settings.rounds, cpus, has_time), turns)


def _has_time(settings: Settings, spent_ns: Callable[[], int]) -> Callable[[], bool]:
    """Return a function that returns whether there is time to repeat one window and still measure all others."""
    needed = (settings.rounds + 1) * settings.duration * NANO
    return lambda: spent_ns() + needed < settings.timeout * NANO


def _by_name(nodes: dict[int, int] | None) -> dict[str, int] | None:
    return None if nodes is None else {str(node): count for node, count in nodes.items()}
