"""A world in which no process is started: cells answer at once, as a script or a table of rates says."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from vebench.backends.interface import Task
from vebench.child.answers import (
    Answer,
    CellProof,
    Done,
    Failure,
    Layout,
    Proof,
    Ready,
    Timed,
    UpdateTimes,
    Warm,
    Window,
)
from vebench.child.request import Judging, Replaying, Stepping, Timing, Updating
from vebench.commands.session import World
from vebench.engine.runner import CellError, Conversation
from vebench.interpreters import Interpreter
from vebench.plan.cells import Cell
from vebench.plan.grammar import BackendChoice
from vebench.plan.spec import RunSpec
from vebench.plan.tasks import resolve
from vebench.process_guard import Interrupts

Script = Sequence[Answer | BaseException]


SECOND = 1_000_000_000
IDENTICAL = CellProof("identical", rows=40, ends=5, environments=2, steps=900, of_steps=1000)


def steady(cell: Cell, spec: RunSpec, steps_per_second: float = 1000.0, stolen: float = 0.0) -> list[Answer]:
    """Return the answers of a cell that goes well, at this rate for each CPU owned, with 1 % of noise.

    ``stolen`` is the share of its CPUs' time that the hypervisor took.
    """
    if isinstance(cell.job, Timing):
        return [Timed(1000, 50_000, 90_000, 5, 400_000)]
    if isinstance(cell.job, Updating):
        return [UpdateTimes("mlp:64x64", ((10_000_000,) * 6, (6_000_000,) * 6, (7_000_000,) * 6))]
    if isinstance(cell.job, Stepping):
        return [Done()]
    if isinstance(cell.job, Judging):
        return [Proof("identical", rows=cell.job.steps * cell.workers, ends=3)]
    noise = Random(repr(cell.key))
    built = Layout(**vars(cell.shape), frame_skip=cell.task.frame_skip, affinity=cell.cpus)
    rate = steps_per_second * max(1, len(cell.cpus))
    rows = [round(spec.duration * rate * noise.gauss(1, 0.01)) for _ in range(spec.windows)]
    span = round(spec.duration * SECOND)
    windows = [Window(span, rows=count, resets=0, steal_ns=round(stolen * span * len(cell.cpus))) for count in rows]
    warm = [] if cell.mode == "alone" else [Warm()]
    return [Ready(SECOND // 2, built), *warm, *windows, Done(100 << 20, settled=True)]


def failing(reason: str) -> Callable[[Cell, RunSpec], Script]:
    """Return the script of a cell whose adapter raises."""
    return lambda _cell, _spec: [Failure(reason)]


def interrupted(_cell: Cell, _spec: RunSpec) -> Script:
    """Return the script of a cell before whose first window the user ends the run."""
    return [KeyboardInterrupt()]


@dataclass
class FakeStart:
    """Starts cells that answer by the script of their backend, others steadily.

    ``started`` are the cells that were started, each with the Python that it was started in; ``left`` is how many runs
    were left in good order. What a cell has recorded is compared as ``proofs`` has it for its backend, by default with
    the result that it is identical; ``replayed`` are the backends of which it was, those of each process in a list.
    """

    scripts: Mapping[str, Callable[[Cell, RunSpec], Script]] = field(default_factory=dict)
    started: list[tuple[Cell, str]] = field(default_factory=list)
    left: int = 0
    proofs: Mapping[str, Script] = field(default_factory=dict)
    replayed: list[list[str]] = field(default_factory=list)

    @contextmanager
    def __call__(
        self, spec: RunSpec, interrupts: Interrupts, python: str = sys.executable
    ) -> Iterator[Callable[[Cell], object]]:
        @contextmanager
        def launch(cell: Cell) -> Iterator[FakeCell]:
            if isinstance(cell.job, Replaying):
                self.replayed.append([each.backend for each in cell.job.recordings])
                yield FakeCell([one for name in self.replayed[-1] for one in self.proofs.get(name, [IDENTICAL])])
                return
            self.started.append((cell, python))
            yield FakeCell(self.scripts.get(cell.backend.name, steady)(cell, spec))

        assert not interrupts.requested
        yield launch
        self.left += 1


class FakeCell(Conversation):
    """A running cell that answers what its script holds; an exception in it is raised."""

    def __init__(self, script: Iterable[Answer | BaseException]) -> None:
        self._script = script

    def messages(self) -> Iterator[Answer]:
        for answer in self._script:
            if isinstance(answer, BaseException):
                raise answer
            if isinstance(answer, Failure):
                raise CellError(answer.reason)
            yield answer

    def log(self) -> str:
        return "a library printed this"


EVERYTHING = frozenset(
    {"numpy", "gymnasium", "ale_py", "cv2", "mujoco", "imageio", "packaging", "envpool", "jax", "gymnax"}
)


def fake_examine(option: str, path: str) -> Interpreter:
    """Return a Python that has all packages, whatever ``path`` names."""
    assert option.startswith(("Python", "--backend"))
    return Interpreter(path, "3.11.9", {"gymnasium": "1.4.0", "numpy": "2.4.0"}, EVERYTHING)


def fake_resolve(
    names: tuple[str, ...], _backends: tuple[BackendChoice, ...], *, python: str = sys.executable
) -> tuple[Task, ...]:
    """Return the tasks of these names, and take it that every adapter can be loaded."""
    return resolve(names, python=python)


@dataclass
class FakeClock:
    """Seconds, of which ``step`` pass with each look at it."""

    step: float = 1.0
    now: float = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def fake_world(start: FakeStart | None = None, **parts: object) -> World:
    """Return a world of fakes; ``parts`` replace some of them."""
    fakes = {"start": start or FakeStart(), "examine": fake_examine, "resolve": fake_resolve}
    return World(**{**fakes, **parts})  # type: ignore[arg-type]
