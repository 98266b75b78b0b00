"""The measurement of one cell: build it, warm it up, measure its windows, read back where it ran.

``time_steps`` measures one environment without a backend.
"""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from math import inf, sqrt
from random import Random
from statistics import median, stdev
from types import FrameType
from typing import NamedTuple

import numpy as np

from vebench.backends import trees
from vebench.backends.environments.making import make, read_spaces, sample
from vebench.backends.interface import BackendInfo, Batch, Factory, Setup, VectorBackend
from vebench.child.actions import TAPE, Acting, Actions, Fitting, Tape, action_tape, make_policy
from vebench.child.answers import (
    MOST_TRIES,
    READINGS_PER_WINDOW,
    Answer,
    Begins,
    Done,
    Ends,
    Layout,
    Ready,
    ReplicaWindow,
    Timed,
    Warm,
    Watched,
    Window,
    difference,
    read_counters,
)
from vebench.child.equality import ids
from vebench.child.equality.recorder import FIRST, MOMENTS_PER_SECOND, Recorder
from vebench.child.equality.recording import BrokenInterfaceError, malformed
from vebench.child.loop import Loop, Stretch
from vebench.child.request import Recording, Request
from vebench.machine import kernel, pinning
from vebench.machine.kernel import control_groups, parse_list

_NANO = 1e9
_LONGEST_TO_END_NS = 1_000_000_000  # for an episode to end after all windows
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
    memory = kernel.proportional_memory(kernel.process_tree(os.getpid()))
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
    processes = kernel.process_tree(os.getpid())
    seats = kernel.cpus_by_thread(processes)
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
    processes = kernel.process_tree(os.getpid())
    known = {cpus for threads in seats for cpus in threads}
    seats += [threads for threads in kernel.cpus_by_thread(processes) if not known.issuperset(threads)]
    priorities = [each for each in kernel.priorities(processes) if each not in priorities]
    # Read only before and after all windows: a pause between windows would let environments run ahead.
    memory_now = kernel.proportional_memory(processes)
    if recorder is not None and memory_now is not None:
        memory_now = max(0, memory_now - recorder.nbytes)
    if recorder is not None and isinstance(job, Recording) and job.compared:
        patience = int(ids.PATIENCE_S * _NANO)
        # If --timeout leaves no time to wait, an environment may only be slow.
        if (silent := recorder.ids.silent()) and clock() - started + 2 * patience < settings.timeout * _NANO:
            recorder.waited(loop.wait_for(silent, patience), ids.PATIENCE_S)
        if job.reset_seed is not None:
            # A backend may confuse a reset that is due with one that has a seed, and may take seed 0 for no seed.
            loop.go_to_an_end(_LONGEST_TO_END_NS)
            for seed in (0, job.reset_seed):
                recorder.keep_reset(seed, actions, actions.receiving(backend.recv))
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


# In step with replicas:
_IDLE_NS = 2_000_000  # between two checks for the start
PAUSE_NS = 20_000_000  # between two windows, or a share of a window if that is longer
_PAUSE_SHARE = 20
_READING_NS = 2_000_000  # to read the counters before a window
# Uncounted steps before a window that had to wait for its turn, on average. Of Pong, HalfCheetah and CartPole on a
# virtual machine, the first 5 ms were up to 15 % slower, the next ones as fast as all later ones, within 1 %.
LEAD_NS = 10_000_000
_NANO = 1e9


class Windows:
    """Measures the windows of a cell in the mode of its request, and answers each.

    Windows sample the time that the cell spends stepping, without regard to its episodes. Each window is due at a time
    of that clock, with drawn pauses between windows. It begins with the first batch after it is due, and ends with the
    first batch after the next pause is due. So a slow reset counts for its share of the time. See docs/method.md.

    The parent has its own clock. It is told right before a window, and when the kernel's counters are read after it,
    which takes long for many processes.

    - ``started``: when the cell began, in nanoseconds of ``clock``
    - ``ahead``: batches that contain all rows that were ready before
    - ``moments``: about how many a window has
    - ``draw``: returns random numbers from 0 to 1
    """

    def __init__(  # noqa: PLR0913
        self,
        request: Request,
        loop: Loop,
        recorder: Recorder | None,
        watched: Watched,
        answer: Callable[[Answer], None],
        clock: Callable[[], int],
        started: int,
        *,
        warmup: Warmup,
        ahead: int,
        moments: int,
        draw: Callable[[], float] = lambda: 0.5,
    ) -> None:
        self._request, self._settings = request, request.settings
        self._loop, self._recorder, self._watched = loop, recorder, watched
        self._answer, self._clock, self._started = answer, clock, started
        self._warmup, self._ahead, self._moments = warmup, ahead, moments
        self._duration = int(request.settings.duration * _NANO)
        self._began = 0  # when the last window began
        self._left = 0  # when the last turn was over
        self._waited_ns = 0  # for turns
        self._owed: dict[str, int] = {}  # by counters, to the next window
        self._late = warmup.late_ns  # nanoseconds that the cell has stepped since its next window was due
        self._draw = draw

    def measure(self) -> None:
        """Measure all of them. Raises EOFError if the parent has exited."""
        mode = self._request.mode
        self._between()
        self._left = self._clock()
        if mode != "alone":
            self._answer(Warm())
        if mode == "in_step":
            self._measure_in_step()
            return
        measured: Callable[[], Window] = self._in_turn if mode == "in_turn" else self._window
        for window in valid(measured, self._settings.windows, len(self._watched.cpus), self._has_time):
            self._finish(window)
        if mode == "in_turn":
            self._take_turn()  # the answers that follow, and close(), would otherwise disturb other cells

    def _finish(self, window: Window | ReplicaWindow) -> None:
        self._left = self._clock()  # noted first: the process may be stopped before it begins to wait for its next turn
        self._answer(window)
        self._between()

    def _between(self) -> None:
        """Expect no moments until the next window, and record one batch with the frames that were simulated so far.

        If a slow reset made the window so long that the next one is due, the batch belongs to that one. It is not
        timed: the process may be stopped meanwhile.
        """
        if self._recorder is None:
            return
        self._recorder.ended(self._loop.batches)
        if self._late < LEAD_NS // 2:
            self._recorder.keep_last(self._loop.batches + 1, self._loop.step())
            if self._ahead:  # in the pause for this, asynchronous environments have run ahead
                self._loop.step(self._ahead)

    def _run(self, span: int) -> Stretch:
        return self._loop.run_for(span, self._warmup.pace)

    def _window(self, begin: int | None = None) -> Window:
        """Return a window that begins when the counters are read, or later, at the time ``begin``."""
        while begin is None and not 0 <= self._late < self._duration:
            if self._late < 0:
                self._late += self._run(-self._late).ns
            else:  # one batch took longer than a window
                self._late -= self._duration + self._pause()
        before = read_counters(self._watched)
        if begin is not None:
            self._run(begin - self._clock())
            self._late = min(self._clock() - begin, self._duration - 1)
        if self._recorder is not None:
            self._recorder.begins(self._loop.batches, self._moments)
        begun = self._loop.batches
        self._answer(Begins())
        self._began = self._clock()
        left = self._duration - self._late
        stretch = self._run(left)
        self._late = stretch.ns - left
        self._answer(Ends())
        counts = difference(before, read_counters(self._watched), self._owed)
        return Window(stretch.ns, stretch.rows, stretch.resets, **counts, **stretch.times, steps_before=begun)

    def _has_time(self) -> bool:
        """Return whether there is time to repeat one window and still measure all others."""
        spent = self._clock() - self._started - self._waited_ns
        return spent + (self._settings.windows + 1) * self._duration < self._settings.timeout * _NANO

    def _in_turn(self) -> Window:
        """Wait for the next turn, step uncounted, and return a window.

        The uncounted steps use up rows that were ready before, raise CPU clocks, and warm the caches.
        """
        self._take_turn()
        if self._ahead:
            began = self._clock()
            self._loop.step(self._ahead)
            self._late += self._clock() - began
        self._late -= self._pause()
        return self._window()

    def _pause(self) -> int:
        """Draw how long the cell steps uncounted between two windows, in nanoseconds."""
        return round(LEAD_NS * (0.5 + self._draw()))

    def _take_turn(self) -> None:
        if not os.read(self._request.go_ahead, 1):
            raise EOFError("the parent exited before the next turn")
        self._waited_ns += self._clock() - self._left

    def _measure_in_step(self) -> None:
        """Measure windows at times that all replicas share.

        Before the first, whose time the parent says, and between windows, the replica steps uncounted. So every window
        of a replica is measured while all others step, too.
        """
        while not select.select([self._request.go_ahead], [], [], 0)[0]:
            self._run(_IDLE_NS)
        line = os.read(self._request.go_ahead, 64)
        if not line:
            raise EOFError("the parent exited before the first window")
        pause = max(PAUSE_NS, self._duration // _PAUSE_SHARE)
        for number in range(self._settings.windows):
            begin = int(line) + number * (self._duration + pause)
            self._run(begin - _READING_NS - self._clock())
            window = self._window(begin)
            self._finish(ReplicaWindow(self._began, window))
        self._run(pause)


def valid(measure: Callable[[], Window], windows: int, cpus: int, may_repeat: Callable[[], bool]) -> Iterator[Window]:
    """Yield windows until each of ``windows`` windows is valid or has been tried ``MOST_TRIES`` times.

    A window is not valid if a CPU quota throttled the cell, or others took its ``cpus`` CPUs: it does not measure the
    backend. It is yielded, too: the reader decides how to use it. After a window that was invalid at every try, no
    later one is repeated. ``may_repeat`` returns whether there is time for another try.
    """
    tries = MOST_TRIES
    for _ in range(windows):
        for _ in range(tries):
            window = measure()
            yield window
            if window.undisturbed(cpus) or not may_repeat():
                break
        else:
            tries = 1


# The shortest warm-up has this many slices, and each slice is this share of the warm-up so far: a slow trend only shows
# over a longer time. The rates of the last SLICES slices are compared, one half with the other.
SLICES = 8
# The rate has settled if the medians of both halves differ by at most this share, or by no more than the noise.
_TOLERANCE = 0.02
_NOISE = 2.0  # standard errors of the difference between the medians of both halves
# Standard errors above this share of the rate hide a trend: then a warm-up lasts this many times the least.
_HIDES, _LONGER = 0.04, 2


class Warmup(NamedTuple):
    """A warm-up that is over."""

    ns: int
    settled: bool | None  # whether the rate had settled when it ended; None if not checked
    pace: int  # how many batches fit between two clock readings in a window
    late_ns: int = 0  # by how much the last batch overran the end of the warm-up


def warm_up(
    loop: Loop,
    least_ns: int,
    most_ns: int,
    window_ns: int,
    batch_size: int,
    ahead: int = 0,
    *,
    phase: float = 0.0,
    longest_phase_ns: int = 0,
) -> Warmup:
    """Step for at least ``least_ns`` and ``ahead`` batches, until the rate has settled or ``most_ns`` have passed.

    Then step for the share ``phase`` of an episode, or of ``longest_phase_ns`` if episodes take longer or none ended.
    Windows of all passes would otherwise begin at the same step of an episode.
    """
    slice_ns = least_ns // SLICES
    if not slice_ns:
        return Warmup(0, None, loop.warm_up(least_ns, window_ns))
    ahead += loop.batches
    pace = loop.warm_up(slice_ns, window_ns)
    stretches: deque[Stretch] = deque(maxlen=SLICES)
    spent = slice_ns
    while True:
        slice_ns = min(max(slice_ns, spent // SLICES), max(1, most_ns - spent))
        stretches.append(loop.run_for(slice_ns, max(1, pace * slice_ns // window_ns)))
        spent += stretches[-1].ns
        rows, ns = sum(stretch.rows for stretch in stretches), max(1, sum(stretch.ns for stretch in stretches))
        pace = max(1, rows // batch_size * window_ns // (READINGS_PER_WINDOW * ns))
        rates = [stretch.rows / max(1, stretch.ns) for stretch in stretches]
        is_enough = spent >= least_ns and loop.batches >= ahead
        if spent >= most_ns or (is_enough and settled(rates, _HIDES if spent < _LONGER * least_ns else inf)):
            episode_ns = spent * loop.num_envs / loop.ends if loop.ends else inf
            asked = int(phase * min(episode_ns, longest_phase_ns))
            further = loop.run_for(asked, pace).ns
            return Warmup(spent + further, settled(rates), pace, further - asked)


def settled(rates: Sequence[float], most_noise: float = inf) -> bool:
    """Return whether the last ``SLICES`` rates have no trend: the medians of their two halves agree.

    Not if the standard error of their difference is above the share ``most_noise`` of the rate.
    """
    if len(rates) < SLICES:
        return False
    half = SLICES // 2
    before, after = rates[-SLICES:-half], rates[-half:]
    level = median(rates[-SLICES:])
    gap = abs(median(after) - median(before))
    noise = sqrt((stdev(before) ** 2 + stdev(after) ** 2) / half)
    return noise <= most_noise * level and gap <= max(_TOLERANCE * level, _NOISE * noise)
