"""The measurement of one cell, and of the times of one environment."""

from __future__ import annotations

import importlib
import os
import select
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import cycle
from math import inf, sqrt
from operator import length_hint
from random import Random
from statistics import median, stdev
from types import FrameType
from typing import Any

import numpy as np

from vebench.backends import trees
from vebench.backends.batched import arrays, libraries
from vebench.backends.environments.making import make, read_spaces, sample
from vebench.backends.environments.suites import SUITES
from vebench.backends.interface import BackendInfo, Batch, Factory, Setup, VectorBackend
from vebench.child import answers
from vebench.child.actions import Acting, Actions, Fitting, Tape, action_tape, make_policy, uploaded
from vebench.child.equality import recording
from vebench.child.equality.recorder import MOMENTS_PER_SECOND, Recorder
from vebench.child.equality.recording import FIRST, BrokenInterfaceError, malformed
from vebench.child.loop import Loop, Stretch
from vebench.child.request import Recording, Request
from vebench.machine import kernel
from vebench.machine.kernel import control_groups, parse_list

_NANO = 1e9
# The shortest warm-up has this many slices. Later slices are this fraction of the warm-up so far, because a slow trend
# only shows over a longer time. The first half of the last _SLICES rates is compared with the second half.
_SLICES = 8
# Average time of uncounted steps before a window that had to wait for its turn. With Pong, HalfCheetah and CartPole on
# a virtual machine, the first 5 ms were up to 15 % slower. Later steps were equally fast within 1 %.
_LEAD_NS = 10_000_000


def measure(
    request: Request,
    factory: Factory,
    affinity: tuple[int, ...] | None,
    unbound: str | None,
    priorities: list[str],
    started: int,
    clock: Callable[[], int],
    answer: Callable[[answers.Answer], None],
) -> VectorBackend:
    """Build the backend, measure it, and return it without closing it. Each answer is sent as soon as it is known.

    ``affinity``: the CPUs that the process may use. ``unbound``: why its memory is not bound as requested.
    ``priorities``: the priorities of its threads at the start. ``started``: the time of its start, by ``clock``.
    """
    job = request.job
    backend, first, first_info, (imported, made, reset) = build(request, factory, clock)
    startup_ns, reset_ns, info = clock() - started, reset - made, backend.info
    alike = ("num_envs", "batch_size", "processes", "threads", "frame_skip", "autoreset", "engines", "own_classes")
    facts = {name: getattr(info, name) for name in alike}
    differences = tuple(difference.text for difference in info.differences)
    layout = answers.Layout(**facts, differences=differences, affinity=affinity, unbound=unbound)
    answer(answers.Ready(startup_ns, layout, reset_ns, imported - started, made - imported))
    memory = kernel.proportional_memory(kernel.process_tree(os.getpid()))
    recorder = None
    if isinstance(job, Recording):
        recorder = Recorder(backend, first, (request.start_seed, request.tape_seed), job, first_info)
    actions, policy_cpus = _actions(request, backend, first, clock, recorder)
    loop = Loop(backend, actions, clock, recorder)
    began = clock()
    batch = loop.step()
    first_step_ns = clock() - began
    compile_ns = libraries.compile_ns()
    if recorder is not None:
        recorder.keep_first(loop.batches, batch)
    schedule = Schedule(request, loop, recorder, answer, clock, started)
    warmup_ns, settled = schedule.warm_up()
    processes = kernel.process_tree(os.getpid())
    seats = kernel.cpus_by_thread(processes)
    schedule.measure(answers.Watched(processes, (*request.setup.cpus, *policy_cpus), control_groups()))
    processes = kernel.process_tree(os.getpid())
    known = {cpus for threads in seats for cpus in threads}
    seats += [threads for threads in kernel.cpus_by_thread(processes) if not known.issuperset(threads)]
    # Read only before and after all windows, because it takes milliseconds for each process.
    memory_now = kernel.proportional_memory(processes)
    if recorder is not None and memory_now is not None:
        memory_now = max(0, memory_now - recorder.nbytes)
    if recorder is not None and isinstance(job, Recording) and job.compared:
        patience = int(recording.PATIENCE_S * _NANO)
        # Without time to wait, do not call an environment silent: it may only be slow.
        in_time = clock() - started + 2 * patience < request.settings.timeout * _NANO
        if (silent := recorder.ids.silent()) and in_time:
            recorder.waited(loop.wait_for(silent, patience), silent)
        again = int(_NANO / 2)  # the time to wait for an end, and then to step. A slow backend is not reset again.
        if job.resets and in_time and reset_ns < again:
            # A backend may confuse this reset with one that is due after an end.
            loop.go_to_an_end(again)
            recorder.keep_reset(actions, clock, again)
        with open(job.path, "wb") as file:
            recorder.write(file)
    timed = None
    if request.times and clock() - started + 6 * request.times * _NANO < request.settings.timeout * _NANO:
        with suppress(Exception):  # the windows are measured, so a fault of the environment costs only these times
            timed = time_steps(request.setup, request.times, clock, backend)
    answer(
        answers.Done(
            peak_rss_bytes=max(filter(None, (memory, memory_now)), default=None),
            seats=tuple(map(tuple, seats)),
            warmup_ns=warmup_ns,
            settled=settled,
            priorities=tuple(each for each in kernel.priorities(processes) if each not in priorities),
            timed=timed,
            first_step_ns=first_step_ns,
            peak_gpu_bytes=libraries.peak_memory(),
            compile_ns=compile_ns,
        )
    )
    return backend


def build(
    request: Request, factory: Factory, clock: Callable[[], int]
) -> tuple[VectorBackend, Batch, BackendInfo, tuple[int, int, int]]:
    """Return the backend, its first batch, its info before the reset, and when imports, making and reset were over."""
    if request.entry.builds_environments:
        task = request.setup.task
        own = task.module or task.name.rpartition(":")[0]  # registers the environment, or has the function to call
        if (suite := SUITES[task.suite]).installation:
            own = suite.packages[-1].module
        for module in filter(None, (*(request.entry.preloaded(task) or ()), own)):
            importlib.import_module(module)
    libraries.compiled()  # counts from now on
    imported = clock()
    backend: VectorBackend = factory(request.setup, **request.options)
    info = backend.info
    made = clock()
    if info.on_device and info.autoreset == "next_step":
        raise ValueError("rows on a device need autoreset in the same step: the loop cannot count rows of resets there")
    backend.reset(request.start_seed)
    first = backend.recv()
    if info.on_device:
        arrays.wait(tuple(first))
    reset = clock()
    # Reference rows, such as the bare simulator, need not return anything that a learner could use.
    if not request.entry.reference_row and (fault := malformed(first, info)) is not None:
        raise BrokenInterfaceError(f"recv() breaks the interface: {fault}")
    return backend, Batch(*first), info, (imported, made, reset)


def where(frames: Iterator[tuple[FrameType, int]]) -> str:
    """Return how far the cell with these stack frames is: ``in step 3``; empty if unknown."""
    for frame, _ in frames:
        local = frame.f_locals
        if frame.f_code in (Loop._step.__code__, Loop._step_on_device.__code__):  # noqa: SLF001 - these count batches
            made = local["batches"] - length_hint(local["ticks"]) if "ticks" in local else 1
            return f"in step {local['self'].batches + made:,}"
        if frame.f_code is build.__code__:
            return "in reset" if "info" in local else "while it was built"
    return ""


def _actions(
    request: Request, backend: VectorBackend, first: Batch, clock: Callable[[], int], recorder: Recorder | None
) -> tuple[Actions, tuple[int, ...]]:
    """Return the actions of a cell, and its policy's own CPUs, if any. The policy acts once, to load its code."""
    setup, info, chosen = request.setup, backend.info, request.settings.policy
    if request.entry.role == "rollout":  # it draws its own actions
        nothing: Any = None
        return Tape([nothing]), ()
    tape = action_tape(info.action_space, request.tape_seed, info.batch_size)
    actions: Actions = Tape(uploaded(tape, backend))
    cpus: tuple[int, ...] = ()
    # Reference rows have no observations for a policy.
    if chosen.kind != "tape" and not request.entry.reference_row:
        cpus = parse_list(chosen.cpus) if setup.pinned else ()
        home = setup.cpus if cpus else ()
        kernel.restrict(cpus)
        policy = make_policy(chosen, info.action_space, first.observations, request.tape_seed, tape)
        policy.download(policy.infer(policy.upload(first.observations)))
        kernel.restrict(home)
        note = None if recorder is None else recorder.note_actions
        actions = Acting(policy, first, info, clock, note, cpus=cpus, home=home)
    return actions if info.fewest_rows is None else Fitting(actions, len(first.env_ids)), cpus


class Schedule:
    """Warms a cell up, and measures its windows: alone, interleaved with other cells, or in step with replicas.

    Windows sample the time that the cell spends stepping, without regard to its episodes. The pauses between windows
    are random, and only time spent stepping counts. A window begins with the first batch after it is due, and ends
    with the first batch after the next pause is due. So a slow reset counts for its share of the time. See
    docs/concepts/measurement.md.

    ``started`` is when the cell started, by ``clock``.
    """

    def __init__(
        self,
        request: Request,
        loop: Loop,
        recorder: Recorder | None,
        answer: Callable[[answers.Answer], None],
        clock: Callable[[], int],
        started: int,
    ) -> None:
        self._request, self._settings = request, request.settings
        self._loop, self._recorder = loop, recorder
        self._answer, self._clock, self._started = answer, clock, started
        self._duration = int(request.settings.duration * _NANO)
        self._moments = max(1, round(MOMENTS_PER_SECOND * min(1.0, request.settings.duration)))
        # An asynchronous backend may have rows ready before ``recv`` asks for them. This many batches contain them all.
        self._ahead = 2 * loop.num_envs // loop.batch_size if loop.num_envs > loop.batch_size else 0
        # All cells of a pass begin at the same share of an episode, so that ratios compare like with like.
        self._draw = Random(request.tape_seed).random
        self._pace = 1  # batches between two clock readings in a window
        self._left = self._waited_ns = 0  # when the last window was over, and the total time spent waiting for turns
        self._owed: dict[str, int] = {}  # by how much counters fell in a window; the next window adds it
        self._late = 0  # nanoseconds that the cell has stepped since its next window was due; negative before that
        self._resident: int | None = None  # the last reading of ``resident_bytes``

    def warm_up(self) -> tuple[int, bool | None]:
        """Step until the rate has settled, within bounds. Return the nanoseconds, and whether it did so, if known.

        Then step for a random share of an episode, or of half of all windows if that is shorter: otherwise all passes
        would begin at the same step of an episode.
        """
        loop, settings = self._loop, self._settings
        loop.keep_first(FIRST)
        least, most = int(settings.warmup * _NANO), int(settings.longest_warmup * _NANO)
        phase, longest_ns = self._draw(), settings.windows * self._duration // 2
        span = least // _SLICES
        ahead = loop.batches + self._ahead
        self._find_pace([loop.run_for(max(1, span), 1)])
        if not span:
            return 0, None
        if self._recorder is not None:
            self._recorder.expect(self._moments)  # some faults begin after the first batches
        slices: deque[Stretch] = deque(maxlen=_SLICES)
        spent = span
        while True:
            span = min(max(span, spent // _SLICES), max(1, most - spent))
            slices.append(loop.run_for(span, max(1, self._pace * span // self._duration)))
            spent += slices[-1].ns
            self._find_pace(slices)
            rates = [each.rows / max(1, each.ns) for each in slices]
            is_enough = spent >= least and loop.batches >= ahead
            # Noise may hide a trend: then the warm-up lasts twice as long as the shortest one.
            if spent >= most or (is_enough and _settled(rates, 0.04 if spent < 2 * least else inf)):
                break
        episode_ns = spent * loop.num_envs / loop.ends if loop.ends else inf
        asked = int(phase * min(episode_ns, longest_ns))
        further = self._run(asked).ns
        self._late = further - asked
        return spent + further, _settled(rates)

    def _find_pace(self, slices: Iterable[Stretch]) -> None:
        """Compute the number of batches between two clock readings of a window."""
        rows, ns = sum(each.rows for each in slices), max(1, sum(each.ns for each in slices))
        self._pace = max(1, rows // self._loop.batch_size * self._duration // (answers.READINGS_PER_WINDOW * ns))

    def measure(self, watched: answers.Watched) -> None:
        """Measure all windows, and send each. Raises EOFError if the parent has exited.

        A window is disturbed if a CPU quota throttled the cell, or other processes took its CPUs. A disturbed window is
        repeated, up to ``MOST_TRIES`` tries. All tries are sent. If all tries of a window were disturbed, later windows
        are not repeated.
        """
        mode, windows, timeout = self._request.mode, self._settings.windows, self._settings.timeout * _NANO
        self._between(watched)
        self._left = self._clock()
        if mode != "alone":
            self._answer(answers.Warm())
        if mode == "in_step":
            self._measure_in_step(watched)
            return
        tries = answers.MOST_TRIES
        for _ in range(windows):
            for _ in range(tries):
                if mode == "in_turn":
                    self._take_turn()
                    # Step uncounted, to use up rows that were ready before, raise CPU clocks, and warm the caches.
                    if self._ahead:
                        began = self._clock()
                        self._loop.step(self._ahead)
                        self._late += self._clock() - began
                    self._late -= self._pause()
                window = self._window(watched)
                spent = self._clock() - self._started - self._waited_ns
                has_time = spent + (windows + 1) * self._duration < timeout  # for a repetition and all other windows
                if window.undisturbed(len(watched.cpus)) or not has_time:
                    break
            else:
                tries = 1
        if mode == "in_turn":
            self._take_turn()  # wait, so that further answers and close() do not disturb other cells

    def _between(self, watched: answers.Watched) -> None:
        """Read the resident memory. Record nothing until the next window but one batch, with its number of frames.

        No batch is recorded if the next window is almost due, because a slow reset has made the last window long.
        """
        self._resident = kernel.resident_memory(watched.processes)
        if self._recorder is None:
            return
        if self._resident is not None:
            self._resident = max(0, self._resident - self._recorder.nbytes)
        self._recorder.expect(0)
        if self._late < _LEAD_NS // 2:
            self._recorder.keep_last(self._loop.batches + 1, self._loop.step())
            if self._ahead:  # asynchronous environments have run ahead during the recording
                self._loop.step(self._ahead)

    def _run(self, span: int) -> Stretch:
        return self._loop.run_for(span, self._pace)

    def _window(self, watched: answers.Watched, begin: int | None = None) -> answers.Window:
        """Measure and send a window that begins now, or a replica's window that begins at the time ``begin``."""
        while begin is None and not 0 <= self._late < self._duration:
            if self._late < 0:
                self._late += self._run(-self._late).ns
            else:  # one batch took longer than a window: skip the window that it covers
                self._late -= self._duration + self._pause()
        before = answers.read_counters(watched)
        if begin is not None:
            self._run(begin - self._clock())
            self._late = min(self._clock() - begin, self._duration - 1)
        if self._recorder is not None:
            self._recorder.expect(self._moments)
        begun = self._loop.batches
        began = self._clock()
        left = self._duration - self._late
        ns, rows, resets, times = self._run(left)
        self._late = ns - left
        counts = answers.difference(before, answers.read_counters(watched), self._owed)
        window = answers.Window(ns, rows, resets, **counts, **times, steps_before=begun, resident_bytes=self._resident)
        self._left = self._clock()  # read before the answer is sent: the parent may stop this process right after it
        self._answer(window if begin is None else answers.ReplicaWindow(began, window))
        self._between(watched)
        return window

    def _take_turn(self) -> None:
        if not os.read(self._request.go_ahead, 1):
            raise EOFError("the parent exited before the next turn")
        self._waited_ns += self._clock() - self._left

    def _pause(self) -> int:
        """Return a random time to step uncounted between two windows, in nanoseconds."""
        return round(_LEAD_NS * (0.5 + self._draw()))

    def _measure_in_step(self, watched: answers.Watched) -> None:
        """Measure windows at times that all replicas share. Between them, step uncounted, as the others do."""
        while not select.select([self._request.go_ahead], [], [], 0)[0]:
            self._run(2_000_000)
        line = os.read(self._request.go_ahead, 64)
        if not line:
            raise EOFError("the parent exited before the first window")
        pause = max(20_000_000, self._duration // 20)
        for number in range(self._settings.windows):
            begin = int(line) + number * (self._duration + pause)
            self._run(begin - 2_000_000 - self._clock())  # the counters are read in the rest of the time
            self._window(watched, begin)
        self._run(pause)


def _settled(rates: Sequence[float], most_noise: float = inf) -> bool:
    """Return whether the last ``_SLICES`` rates have no trend: the medians of their two halves agree.

    They may differ by 2 % of the rate, or by two standard errors. False if a standard error is above the share
    ``most_noise`` of the rate.
    """
    if len(rates) < _SLICES:
        return False
    half = _SLICES // 2
    before, after = rates[-_SLICES:-half], rates[-half:]
    level = median(rates[-_SLICES:])
    gap = abs(median(after) - median(before))
    noise = sqrt((stdev(before) ** 2 + stdev(after) ** 2) / half)
    return noise <= most_noise * level and gap <= max(0.02 * level, 2 * noise)


def time_steps(setup: Setup, seconds: float, clock: Callable[[], int], loop: Any = None) -> answers.Timed:
    """Return how long the task's environment takes to be made, to step and to reset, timed for ``seconds``.

    At least 20 steps, 5 resets and 10 episodes, if any ends, are timed even if they are slow, up to three times
    ``seconds``. ``clock`` returns nanoseconds. If a plain ``loop`` is given, its first environment is timed.
    """
    steps: list[int] = []
    resets: list[int] = []
    ends: list[int] = []  # the number of steps made when an episode ended

    def reset(seed: int | None = None) -> None:
        began = clock()
        environment.reset(seed=seed)
        resets.append(clock() - began)

    began = clock()
    environment = make(setup.task) if loop is None else loop.environments[0]
    made, span = clock() - began, seconds * _NANO
    try:
        spaces = read_spaces(setup.task, environment.observation_space, environment.action_space)
        drawn = sample(spaces.actions, setup.seed, 256)
        tape = cycle([trees.part(drawn, number) for number in range(256)])
        reset(seed=setup.seed)
        processes = kernel.process_tree(os.getpid())
        before = kernel.demand_ns(processes)
        spent, began = 0, clock()
        fewest_steps, most_steps, fewest_resets, fewest_ends = 20, 200_000, 5, 10
        most_ns = span
        while spent < most_ns and len(steps) < most_steps:
            action = next(tape)
            last = clock()
            _, _, terminated, truncated, _ = environment.step(action)
            steps.append(clock() - last)
            if terminated or truncated:
                reset()
                ends.append(len(steps))
            spent = clock() - began
            most_ns = 3 * span if len(steps) < fewest_steps or 0 < len(ends) < fewest_ends else span
        after = kernel.demand_ns(processes)
        began = clock()
        while len(resets) < fewest_resets and clock() - began < 3 * span:
            reset()
    finally:
        if loop is None:
            environment.close()
    idle = 0 if before is None or after is None else max(0, spent - (after - before))
    (step, late_step), (typical, late_reset) = (np.percentile(times, (50, 99)) for times in (steps, resets))
    return answers.Timed(
        steps=len(steps),
        step_p50_ns=round(step),
        step_p99_ns=round(late_step),
        resets=len(resets),
        reset_p50_ns=round(typical),
        make_ns=made,
        ends=len(ends),
        mean_ns=spent // len(steps),
        idle_ns=idle // len(steps),
        reset_p99_ns=round(late_reset),
        step_ns=_distribution(steps),
        reset_ns=_distribution(resets),
        lengths=_distribution(np.diff([0, *ends])),
    )


def _distribution(values: Any) -> tuple[int, ...]:
    """Return the means of at most 100 parts of the values, in ascending order."""
    parts = np.array_split(np.sort(values), max(1, min(100, len(values))))
    return tuple(round(part.mean()) for part in parts if len(part))
