"""The measurement of one cell: build it, warm it up, measure its windows, read back where it ran.

``time_steps`` measures one environment without a backend.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from random import Random
from types import FrameType

import numpy as np

from vebench.backends import trees
from vebench.backends.environments.making import make, read_spaces, sample
from vebench.backends.interface import BackendInfo, Batch, Factory, Setup, VectorBackend
from vebench.child.actions import Acting, Actions, Fitting, Tape, action_tape, make_policy
from vebench.child.answers import Answer, Done, Layout, Ready, Timed
from vebench.child.equality import recording
from vebench.child.equality.recorder import MOMENTS_PER_SECOND, Recorder
from vebench.child.equality.recording import FIRST, BrokenInterfaceError, malformed
from vebench.child.loop import Loop
from vebench.child.policy import TAPE
from vebench.child.request import Recording, Request
from vebench.child.schedule import Windows, warm_up
from vebench.child.window import Watched
from vebench.machine import counters, pinning
from vebench.machine.sysfs import control_groups, parse_list

_NANO = 1e9
# Of ``time_steps``: the length of its tape, and the number of steps.
_TAPE, _FEWEST_STEPS, _MOST_STEPS = 256, 20, 200_000
FEWEST_RESETS = 5  # made even if no episode ends in time
_ENOUGH = 3  # slow steps, and slow resets, stop after this many times the time requested


def measure(
    request: Request,
    factory: Factory,
    affinity: tuple[int, ...] | None,
    unbound: str | None,
    priorities: list[str],
    started: int,
    clock: Callable[[], int],
    answer: Callable[[Answer], None],
) -> VectorBackend:
    """Build the backend, measure it and return it, still open. Each answer is sent as soon as it is known.

    - ``affinity``: the CPUs of the process, as read back
    - ``unbound``: why its memory is not bound as requested, None if it is
    - ``priorities``: of its threads when it began
    - ``started``: when that was, in nanoseconds of ``clock``
    """
    settings, job = request.settings, request.job
    backend, first, info, reset_ns = build(request, factory, clock)
    answer(Ready(clock() - started, _layout(backend.info, affinity, unbound), reset_ns))
    memory = counters.proportional_memory(counters.process_tree(os.getpid()))
    recorder = None
    if isinstance(job, Recording):
        recorder = Recorder(backend, first, (request.start_seed, request.tape_seed), job, info)
    actions, policy_cpus = _actions(request, backend, first, clock, recorder)
    loop = Loop(backend, actions, clock, recorder)
    moments = max(1, round(MOMENTS_PER_SECOND * min(1.0, settings.duration)))
    if recorder is not None:
        loop.keep_first(FIRST)
        recorder.expect(moments)  # for faults that begin after the first batches
    # All cells of a pass begin at the same share of an episode, so that ratios compare like with like.
    draw = Random(request.tape_seed)
    # An asynchronous backend may have rows ready before they are asked for.
    ahead = 2 * info.num_envs // info.batch_size if info.num_envs > info.batch_size else 0
    warmup = warm_up(
        loop,
        int(settings.warmup * _NANO),
        int(settings.longest_warmup * _NANO),
        int(settings.duration * _NANO),
        backend.info.batch_size,
        ahead,
        phase=draw.random(),
        longest_phase_ns=int(settings.windows * settings.duration * _NANO / 2),
    )
    processes = counters.process_tree(os.getpid())
    seats = counters.cpus_by_thread(processes)
    watched = Watched(processes, (*request.setup.cpus, *policy_cpus), control_groups())
    Windows(
        request,
        loop,
        recorder,
        watched,
        answer,
        clock,
        started,
        warmup=warmup,
        ahead=ahead,
        moments=moments,
        draw=draw.random,
    ).measure()
    processes = counters.process_tree(os.getpid())
    known = {cpus for threads in seats for cpus in threads}
    seats += [threads for threads in counters.cpus_by_thread(processes) if not known.issuperset(threads)]
    priorities = [each for each in counters.priorities(processes) if each not in priorities]
    # Read only before and after all windows: a pause between windows would let environments run ahead.
    memory_now = counters.proportional_memory(processes)
    if recorder is not None and memory_now is not None:
        memory_now = max(0, memory_now - recorder.nbytes)
    if recorder is not None and isinstance(job, Recording) and job.compared:
        patience = int(recording.PATIENCE_S * _NANO)
        # If --timeout leaves no time to wait, an environment may only be slow.
        if (silent := recorder.ids.silent()) and clock() - started + 2 * patience < settings.timeout * _NANO:
            recorder.waited(loop.wait_for(silent, patience), silent)
        with open(job.path, "wb") as file:
            recorder.write(file)
    nodes = pinning.bytes_by_node(processes)
    answer(
        Done(
            peak_rss_bytes=max(filter(None, (memory, memory_now)), default=None),
            seats=tuple(map(tuple, seats)),
            memory_by_node=None if nodes is None else {str(node): count for node, count in nodes.items()},
            warmup_ns=warmup.ns,
            settled=warmup.settled,
            priorities=tuple(priorities),
        )
    )
    return backend


def _actions(
    request: Request, backend: VectorBackend, first: Batch, clock: Callable[[], int], recorder: Recorder | None
) -> tuple[Actions, tuple[int, ...]]:
    """Return the actions of a cell, and the CPUs of its policy if it has its own.

    The policy has acted once by then, so that its code is loaded and compiled, and its threads run on its CPUs.
    """
    setup, info, chosen = request.setup, backend.info, request.settings.policy
    tape = action_tape(info.action_space, request.tape_seed, info.batch_size)
    actions: Actions = Tape(tape)
    cpus: tuple[int, ...] = ()
    # Reference rows have no observations for a policy.
    if chosen.kind != TAPE and not request.entry.reference_row:
        cpus = parse_list(chosen.cpus) if setup.pinned else ()
        home = setup.cpus if cpus else ()
        pinning.restrict(cpus)
        policy = make_policy(chosen, info.action_space, first.observations, request.tape_seed, tape)
        policy.download(policy.infer(policy.upload(first.observations)))
        pinning.restrict(home)
        note = None if recorder is None else recorder.note_actions
        actions = Acting(policy, first, info, clock, note, cpus=cpus, home=home)
    return actions if info.fewest_rows is None else Fitting(actions, len(first.env_ids)), cpus


def build(
    request: Request, factory: Factory, clock: Callable[[], int]
) -> tuple[VectorBackend, Batch, BackendInfo, int]:
    """Return the backend, its first batch, its info before the reset, and how long that took, in nanoseconds."""
    backend: VectorBackend = factory(request.setup, **request.options)
    info = backend.info
    began = clock()
    backend.reset(request.start_seed)
    first = backend.recv()
    reset_ns = clock() - began
    # Reference rows, such as the bare simulator, need not return anything that a learner could use.
    if not request.entry.reference_row:
        fault = malformed(first, info)
        if fault is not None:
            raise BrokenInterfaceError(fault)
    return backend, Batch(*first), info, reset_ns


def where(frames: Iterator[tuple[FrameType, int]]) -> str:
    """Return how far the cell with these stack frames is: ``in step 3``; empty if unknown."""
    for frame, _ in frames:
        local = frame.f_locals
        if frame.f_code is Loop._step.__code__:  # noqa: SLF001 - only the loop counts
            loop: Loop = local["self"]
            rows_of_a_batch = loop._info.batch_size  # noqa: SLF001 - only the loop counts
            return f"in step {loop.batches + local.get('rows', 0) // rows_of_a_batch + 1:,}"
        if frame.f_code is build.__code__:
            return "in reset" if "info" in local else "while it was built"
    return ""


def _layout(info: BackendInfo, affinity: tuple[int, ...] | None, unbound: str | None) -> Layout:
    return Layout(
        num_envs=info.num_envs,
        batch_size=info.batch_size,
        processes=info.processes,
        threads=info.threads,
        frame_skip=info.frame_skip,
        autoreset=info.autoreset,
        differences=tuple(difference.text for difference in info.differences),
        affinity=affinity,
        engines=info.engines,
        memory_policy=pinning.memory_policy(),
        unbound=unbound,
        own_classes=info.own_classes,
    )


def time_steps(setup: Setup, seconds: float, clock: Callable[[], int]) -> Timed:
    """Return how long it takes to make the task's environment, to step it and to reset it, timed for ``seconds``.

    Slow steps and resets are timed a few times anyway, but for at most ``_ENOUGH`` times as long. ``clock`` returns
    nanoseconds.
    """
    began = clock()
    environment = make(setup.task)
    made = clock() - began
    span = seconds * _NANO

    def goes_on(spent: int) -> bool:
        return len(steps) < (_MOST_STEPS if spent < span else _FEWEST_STEPS) and spent < _ENOUGH * span

    def quantile(times: Sequence[int], share: float) -> int:
        return sorted(times)[min(len(times) - 1, int(share * len(times)))]

    try:
        spaces = read_spaces(setup.task, environment.observation_space, environment.action_space)
        drawn = sample(spaces.actions, np.random.default_rng(setup.seed), _TAPE)
        actions = [trees.part(drawn, number) for number in range(_TAPE)]
        steps: list[int] = []
        resets: list[int] = []
        began = clock()
        environment.reset(seed=setup.seed)
        resets.append(clock() - began)
        began = clock()
        while not steps or goes_on(clock() - began):
            action = actions[len(steps) % _TAPE]
            last = clock()
            _, _, terminated, truncated, _ = environment.step(action)
            now = clock()
            steps.append(now - last)
            if terminated or truncated:
                environment.reset()
                resets.append(clock() - now)
        ends = len(resets) - 1
        began = clock()
        while len(resets) < FEWEST_RESETS and clock() - began < _ENOUGH * span:
            last = clock()
            environment.reset()
            resets.append(clock() - last)
    finally:
        environment.close()
    typical, late, reset = quantile(steps, 0.5), quantile(steps, 0.99), quantile(resets, 0.5)
    return Timed(len(steps), typical, late, len(resets), reset, made, ends)
