"""Compares backends with the reference: each is stepped in a process of its own, and judged in this one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from dataclasses import replace
from functools import partial
from itertools import count, zip_longest
from threading import Event, Lock, Thread, Timer
from typing import TYPE_CHECKING, Protocol

from vebench.backends import registry, trees
from vebench.backends.environments.suites import SUITES
from vebench.child.answers import Comparing, Failure, Proof
from vebench.child.loading import load, one_line
from vebench.child.proof import judge as judging
from vebench.child.proof.bench import MOST_SHARE, FailedError
from vebench.child.proof.faults import NAMING_S
from vebench.child.proof.followed import References
from vebench.child.proof.recording import Closed, CutOffError, Failed, read
from vebench.child.proof.stepping import stepped
from vebench.child.proof.trials import Extent, Guide, Trial, draw
from vebench.machine import guardian

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from types import TracebackType
    from typing import Self

    from vebench.backends.interface import Task
    from vebench.child.answers import Answer, WorkVerdict
    from vebench.child.proof.bench import Bench
    from vebench.child.proof.recording import Record
    from vebench.child.request import Request

CLOSE_S = 10.0  # a backend may take this long to close before its process is killed
STEPPING = "vebench.child.proof.stepping"
BETWEEN_S = 0.25  # how often the comparison says how far it is
BACKEND_VARIABLE = "VEBENCH_BACKEND"  # in the environment of a backend's process and of those that it starts
WORST_LAST: tuple[WorkVerdict, ...] = ("identical", "equal", "equivalent", "unverified", "different")


class Stepping(Protocol):
    """A backend that is stepped through trials, one after another. A context manager: it begins and ends with it."""

    def __enter__(self) -> Self:
        """Let it begin with the first trial. Returns itself."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""

    def records(self) -> Iterator[Record]:
        """Return what the backend returns in the next trial."""

    def go_on(self) -> None:
        """Ask for the trial's next reset, or its end."""

    def cause(self) -> str:
        """Return why the records broke off."""


class Start(Protocol):
    """How the backend of a request is stepped through trials."""

    def __call__(self, request: Request, trials: Sequence[Trial]) -> Stepping:
        """Return the backend that is stepped, whose records are of one trial after another."""


class Apart:
    """A backend in a process of its own, of this process's group; what it prints goes to the cell's log."""

    _started = count()

    def __init__(self, request: Request, trials: Sequence[Trial]) -> None:
        self._mark = f"{os.environ.get(guardian.CELL_VARIABLE, '')}.{os.getpid()}.{next(self._started)}"
        records, theirs = os.pipe()
        self._records = os.fdopen(records, "rb", buffering=1 << 20)
        try:
            self._process = subprocess.Popen(
                [request.python or sys.executable, "-X", "faulthandler", "-m", STEPPING, str(theirs)],
                stdin=subprocess.PIPE,
                pass_fds=[theirs],
                bufsize=0,
                env={**os.environ, BACKEND_VARIABLE: self._mark},
            )
        finally:
            os.close(theirs)
        self._trials: Sequence[Trial] | None = trials
        self._order(replace(request, then=()).written().encode() + b"\n")

    def begin(self) -> None:
        """Let it begin with the first trial. It waits when the pipe for its records is full."""
        trials, self._trials = self._trials, None
        if trials is not None:
            self._order(json.dumps([trial.written() for trial in trials]).encode() + b"\n")

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, *error: object) -> None:
        """End the process: it closes the backend, unless that takes too long. What it has started ends with it."""
        self._records.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        guardian.end(self._mark, variable=BACKEND_VARIABLE)

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()

    def records(self) -> Iterator[Record]:
        """Return what the backend returns in the next trial."""
        return read(self._records, last=Closed)

    def go_on(self) -> None:
        """Ask for the trial's next reset, or its end."""
        self._order(b".")

    def _order(self, text: bytes) -> None:
        try:
            if self._process.stdin is not None:
                self._process.stdin.write(text)
        except BrokenPipeError:
            pass  # it has died, which is noticed when its records break off

    def cause(self) -> str:
        """Return why the records broke off."""
        try:
            status = self._process.wait(1)
        except subprocess.TimeoutExpired:
            return "the backend's process is still running, but has closed the pipe for its rows"
        if status >= 0:
            return f"the backend's process ended with status {status}"
        name = signal.Signals(-status).name
        return f"the backend's process was ended by {name}" + (
            " (out of memory, or killed from outside)" if name == "SIGKILL" else ""
        )


class Here:
    """A backend in this process, for a survey of many tasks."""

    def __init__(self, request: Request, trials: Sequence[Trial]) -> None:
        self._enough = False
        self._trials = iter(trials)
        self._request = request
        self._running: Generator[Record] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Close the backend."""
        if self._running is not None:
            self._running.close()

    def records(self) -> Iterator[Record]:
        """Return what the backend returns in the next trial."""
        self._running = self._stepped(next(self._trials))
        return self._running

    def _stepped(self, trial: Trial) -> Generator[Record]:
        try:
            yield from stepped(load(self._request.target), self._request, trial, self._was_enough)
        except Exception as error:  # noqa: BLE001 - a library may raise anything; it is the reason of the failure
            traceback.print_exc()
            yield Failed(one_line(error))

    def go_on(self) -> None:
        """Ask for the trial's next reset, or its end."""
        self._enough = True

    def _was_enough(self) -> bool:
        enough, self._enough = self._enough, False
        return enough

    @staticmethod
    def cause() -> str:
        """Return why the records broke off."""
        return "the backend's rows broke off"


def apart(request: Request, trials: Sequence[Trial]) -> Stepping:
    """Return the request's backend, stepped in a process of its own."""
    return Apart(request, trials)


def here(request: Request, trials: Sequence[Trial]) -> Stepping:
    """Return the request's backend, stepped in this process."""
    return Here(request, trials)


class Stock:
    """What comparisons of several backends share: references, what they have returned, and how far comparisons go."""

    def __init__(self, *, remembers: bool = False) -> None:
        self.extent = Extent()
        self._remembers = remembers
        self._references: dict[Task, References] = {}

    def references(self, task: Task) -> References:
        """Return the references of a task. What they return is remembered if all that they draw is their own."""
        if task not in self._references:
            self._references[task] = References(task, remembers=self._remembers and SUITES[task.suite].ours)
        return self._references[task]


class Ahead:
    """Starts backends, and one of our own ahead of its time: it takes seconds to import and to build.

    A context manager.
    """

    def __init__(self, start: Start) -> None:
        self._start = start
        self._ready: tuple[Request, Stepping] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """End what was not needed."""
        self._end()

    def _end(self) -> None:
        ready, self._ready = self._ready, None
        if ready is not None:
            ready[1].__exit__(None, None, None)

    def prepare(self, request: Request) -> None:
        """Start the request's backend, which is built beside another. One that is not our own might not bear that."""
        if request.backend not in registry.BY_NAME:
            return
        chance, trials = _planned(request)
        if chance is None:
            stepping = self._start(request, trials)
            if isinstance(stepping, Apart):
                stepping.begin()
            self._end()
            self._ready = request, stepping

    def __call__(self, request: Request, trials: Sequence[Trial]) -> Stepping:
        """Return the request's backend."""
        ready, self._ready = self._ready, None
        if ready is not None and ready[0] is request:
            return ready[1]
        self._ready = ready
        return self._start(request, trials)


def prove_each(requests: Sequence[Request], start: Start, answer: Callable[[Answer], None]) -> None:
    """Compare the backend of each request with the reference, one after another; the results go to ``answer``.

    Each begins with ``Comparing`` without a place, and ends with ``Proof`` or ``Failure``.
    """
    stock = Stock(remembers=len(requests) > 1)
    with Ahead(start) as ahead:
        for request, following in zip_longest(requests, requests[1:]):
            answer(Comparing(0))
            try:
                chance, trials = _planned(request)
                comparison = _Comparison(request, ahead, answer, stock)
                if following is not None:
                    comparison.halfway = partial(ahead.prepare, following)
                answer(Proof("unverified", reason=chance) if chance is not None else comparison.over(trials))
            except Exception as error:  # noqa: BLE001 - a library may raise anything; it is the reason of the failure
                traceback.print_exc()
                answer(Failure(one_line(error)))
                stock = Stock(remembers=True)  # nobody knows what state references are in


def prove(request: Request, start: Start, answer: Callable[[Answer], None] = lambda _: None) -> Proof:
    """Compare the request's backend with the reference, and return the result.

    How far the comparison is goes to ``answer``, and a difference as soon as it is seen, before its name is sought.
    """
    chance, trials = _planned(request)
    return (
        Proof("unverified", reason=chance) if chance is not None else _Comparison(request, start, answer).over(trials)
    )


def _planned(request: Request) -> tuple[str | None, tuple[Trial, ...]]:
    """Return why the request's backend cannot be compared, None if it can, and its trials."""
    task, entry = request.setup.task, registry.find(request.backend)
    setup, proving = request.setup, request.proving
    if proving is None:
        raise ValueError("the request asks for no comparison")
    shape = entry.shape_of(setup.workers, setup.envs_per_worker, len(setup.cpus), request.options)
    trials = draw(
        setup,
        proving,
        chance=entry.chance(replace(task, exact=False)) is None,
        alive=shape.num_envs // shape.batch_size,
        no_ops=entry.no_ops,
    )
    return entry.chance(replace(task, exact=True)), trials


class _Comparison:
    """One comparison, over several trials. ``halfway`` is called after the first."""

    def __init__(
        self, request: Request, start: Start, answer: Callable[[Answer], None], stock: Stock | None = None
    ) -> None:
        self._request, self._start, self._answer = request, start, answer
        self._stock = stock or Stock()
        self.halfway: Callable[[], None] = lambda: None
        self._trial: Trial | None = None
        self._bench: Bench | None = None
        self._answering, self._over = Lock(), Event()
        self._so_far: Proof | None = None

    def over(self, trials: Sequence[Trial]) -> Proof:
        """Compare the backend in each trial, up to the first in which it is not the same."""
        # A thread of its own says how far it is: the backend may hang, and this one waits for it.
        teller = Thread(target=self._tell, daemon=True)
        teller.start()
        try:
            return self._over_all(trials)
        finally:
            self._over.set()
            teller.join()

    def _over_all(self, trials: Sequence[Trial]) -> Proof:
        with self._start(self._request, trials) as stepping:
            for trial in trials:
                self._references(trial).make(trial.followed)  # while the backend is built
                try:
                    self._so_far = self._with(self._judged(trial, stepping))
                except (CutOffError, FailedError) as error:
                    why = stepping.cause() if isinstance(error, CutOffError) else str(error)
                    reason = f"{why}, {self._place()}"
                    return self._with(Proof("unverified", reason=reason, failed=True))
                if self._so_far.verdict in ("different", "unverified"):
                    break
                if trial is trials[0]:
                    self.halfway()
        return _capped(self._so_far or Proof("unverified"))

    def _references(self, trial: Trial) -> References:
        return self._stock.references(trial.setup(self._request.setup).task)

    def _judged(self, trial: Trial, stepping: Stepping) -> Proof:
        first = self._so_far is None
        self._trial, self._bench = trial, None

        def announce(proof: Proof, bench: Bench) -> Proof:
            """Tell of a difference at once, with its pictures, and see to it that the search for its name ends."""
            found = replace(proof, pictures=self._pictures(bench))
            with self._answering:
                self._answer(replace(self._with(found), unnamed=True))
            if isinstance(stepping, Apart):
                timer = Timer(NAMING_S, stepping.kill)
                timer.daemon = True
                timer.start()
            return found

        def report(bench: Bench) -> None:
            self._bench = bench

        proof = judging.judge(
            stepping.records(),
            self._references(trial),
            announce=announce,
            guide=lambda num_envs: Guide(trial, num_envs, self._stock.extent),
            go_on=stepping.go_on,
            report=report,
            most_share=1.0,  # a trial may have few steps after each reset: see over()
        )
        if proof.verdict == "different" and proof.fault and not first:
            proof = replace(proof, fault=f"{proof.fault} ({self._layout()})")
        return proof

    def _with(self, proof: Proof) -> Proof:
        return proof if self._so_far is None else merged(self._so_far, proof)

    def _tell(self) -> None:
        """Say how far the comparison is, until it is over."""
        while not self._over.wait(BETWEEN_S):
            rows = self._so_far.rows if self._so_far else 0
            with self._answering:
                self._answer(Comparing(rows + (self._bench.compared if self._bench else 0), self._place()))

    def _layout(self) -> str:
        """Return the layout that is compared, in words."""
        trial, bench = self._trial, self._bench
        if trial is None:
            return "before it was built"
        count = trial.workers * trial.envs_per_worker if bench is None else bench.about.num_envs
        envs = "1 environment" if count == 1 else f"{count} environments"
        return f"with {envs}" if trial.exact else f"with {envs}, chance included"

    def _place(self) -> str:
        """Return how far the backend is, in words: ``in step 3 after reset 1, with 2 environments``."""
        bench, layout = self._bench, self._layout()
        if self._trial is None:
            return layout
        if bench is None:
            return f"while it was built {layout}"
        resets, batch = len(bench.seeds), bench.batch
        if bench.over:
            return f"while it was closed, {layout}"
        if not resets:
            return f"before its first reset, {layout}"
        where = f"in reset {resets}" if batch < 0 else f"in step {batch + 1} after reset {resets}"
        return f"{where}, {layout}"

    def _pictures(self, bench: Bench) -> tuple[str, ...]:
        """Write the observations that differ, if the request asks for it. Returns the paths of the files."""
        mismatch, request = bench.mismatch, self._request
        frames = request.proving.frames if request.proving is not None else None
        if frames is None or mismatch is None or mismatch.field != "observations" or bench.rows is None:
            return ()
        from vebench.child.proof import pictures  # noqa: PLC0415 - on use only

        options = "".join(f" {key}={value}" for key, value in request.options.items())
        name = f"{request.setup.task.id} {request.backend}{options} env{mismatch.env_id} step{mismatch.step}"
        expected, found = bench.rows
        if trees.form(expected.observation) != trees.form(found.observation):
            return ()
        shown = (trees.leaf_of(row.observation, mismatch.leaf) for row in (expected, found))
        return pictures.save(frames, name, *shown)


def _capped(proof: Proof) -> Proof:
    """Return the proof, ``different`` if declared differences excuse more of all rows than they may."""
    if proof.verdict != "equivalent" or proof.excused <= MOST_SHARE * proof.rows:
        return proof
    share = f"{proof.excused / proof.rows:.0%}"
    fault = f"declares differences in {share} of all rows, of which they may excuse {MOST_SHARE:.0%}"
    return replace(proof, verdict="different", fault=fault)


def merged(one: Proof, other: Proof) -> Proof:
    """Return the result of two comparisons of one backend, the later of which is ``other``."""
    frames = [proof for proof in (one, other) if proof.simulated is not None and proof.claimed is not None]
    return replace(
        other,
        verdict=max(one.verdict, other.verdict, key=WORST_LAST.index),
        rows=one.rows + other.rows,
        ends=one.ends + other.ends,
        cut_off=one.cut_off + other.cut_off,
        excused=one.excused + other.excused,
        fewest_ends=one.fewest_ends,
        allowed=tuple(dict.fromkeys((*one.allowed, *other.allowed))),
        engines=one.engines or other.engines,
        own_classes=one.own_classes or other.own_classes,
        simulated=sum(proof.simulated or 0 for proof in frames) if frames else None,
        claimed=sum(proof.claimed or 0 for proof in frames) if frames else None,
        frames_from=frames[0].frames_from if frames else None,
        invalid=one.invalid or other.invalid,
    )
