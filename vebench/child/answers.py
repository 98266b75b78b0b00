"""The answers of a child: JSON lines, each an object with one key, the kind of the answer.

The parent reads them into the same classes and checks them (``vebench.engine.interface``).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import Enum
from typing import ClassVar, Literal, get_args

from vebench.backends.interface import Engine, OwnClasses
from vebench.child.window import Window, check_counts
from vebench.errors import message_of

WorkVerdict = Literal["identical", "equal", "equivalent", "same distribution", "unverified", "different"]

_CPU_LIST = re.compile(r"[0-9,-]*", re.ASCII)


class Cause(Enum):
    """Why a cell, or its comparison, has ended early, where code depends on it."""

    INTERRUPTED = "interrupted"  # by the user
    GIVEN_UP = "given up"

    @property
    def reason(self) -> str:
        """The cause as a sentence for people."""
        return "no time was left: use a larger --budget" if self is Cause.GIVEN_UP else "interrupted"


@dataclass(frozen=True)
class _Counted:
    """An answer whose integers are checked when it is made: from 0, or from 1 for ``positive`` fields."""

    positive: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        check_counts(self, type(self), self.positive)


@dataclass(frozen=True)
class Layout:
    """The backend that a cell's adapter has built, and where its process may run."""

    num_envs: int
    batch_size: int
    processes: int
    threads: int
    frame_skip: int
    autoreset: Literal["next_step", "same_step"] = "next_step"
    differences: tuple[str, ...] = ()
    affinity: tuple[int, ...] | None = None  # the CPUs of the measuring process, as read back
    engines: tuple[Engine, ...] = ()
    memory_policy: str | None = None  # of the measuring process, as read back
    unbound: str | None = None  # why that is not the requested policy, None if it is
    own_classes: OwnClasses | None = None  # as in ``BackendInfo``

    def __post_init__(self) -> None:
        check_counts(self, Layout, positive=("num_envs", "batch_size", "frame_skip"))


@dataclass(frozen=True)
class Ready(_Counted):
    """The environments are built and reset."""

    startup_ns: int  # since the interpreter's first line
    layout: Layout
    reset_ns: int = 0  # of ``startup_ns``


@dataclass(frozen=True)
class Warm:
    """A replica, or a cell that takes turns, is warm. It waits for the parent's signal to go on."""


@dataclass(frozen=True)
class Begins:
    """A window begins. The parent notes the time by its own clock."""


@dataclass(frozen=True)
class Ends(_Counted):
    """A window is over, and the counters are read."""

    reading_ns: int  # how long that took


@dataclass(frozen=True)
class ReplicaWindow(_Counted):
    """A window of a replica."""

    start_ns: int  # when it began, on the clock that all replicas share
    window: Window


@dataclass(frozen=True)
class HostShare:
    """The part of a cell that one host has done, over all its windows."""

    host: str
    steps_per_second: float  # by its own clock
    offset_ns: int  # how far its clock was found to be ahead of the runner's
    error_ns: int  # of ``offset_ns``
    taken_ns: int = 0  # the time that the hypervisor and others took of its CPUs
    disturbed: bool = False  # whether that was too much


@dataclass(frozen=True)
class Done:
    """All windows are measured. These are facts about the whole cell, each None if unknown."""

    peak_rss_bytes: int | None = None  # memory of the whole process tree
    # The CPUs that each thread of each process may use, as Linux lists: the measuring process first, last the processes
    # whose CPUs had changed after the last window.
    seats: tuple[tuple[str, ...], ...] | None = None
    memory_by_node: dict[str, int] | None = None  # bytes of the cell's own memory on each memory node
    warmup_ns: int | None = None
    settled: bool | None = None  # whether the rate had settled when warm-up ended; None if this was not checked
    hosts: tuple[HostShare, ...] | None = None  # of replicas on other hosts; the runner adds it
    priorities: tuple[str, ...] = ()  # of threads after the last window, without the priorities at the start

    def __post_init__(self) -> None:
        check_counts(self, Done)
        for cpus in (cpus for threads in self.seats or () for cpus in threads):
            if not _CPU_LIST.fullmatch(cpus):
                raise ValueError(f"seats hold {cpus!r}, which is not a list of CPUs")


@dataclass(frozen=True)
class Mismatch(_Counted):
    """The first row that differs from the reference's: environment, its step (0 is the reset), field, both values.

    ``size`` is the largest absolute difference, None if unknown. ``leaf`` is the name of the array where observations
    are a dict or tuple of arrays.
    """

    env_id: int
    step: int
    field: str
    expected: str
    found: str
    size: float | None = None
    leaf: str = ""

    @property
    def place(self) -> str:
        """The field, with its leaf: ``observations/camera``."""
        return f"{self.field}/{self.leaf}" if self.leaf else self.field


@dataclass(frozen=True)
class _Compared(_Counted):
    """The result of a comparison with the reference.

    ``rows``: rows compared. ``allowed``: declared differences that occurred. ``mismatch`` and ``fault``: where the
    backend differs, and the known fault that explains it. ``reason``: why there is no verdict. ``invalid``: the first
    value of the environment itself that is no reward, or that its space does not allow, with its step.
    """

    verdict: WorkVerdict
    rows: int = 0
    ends: int = 0
    allowed: tuple[str, ...] = ()
    mismatch: Mismatch | None = None
    fault: str | None = None
    reason: str | None = None
    invalid: str | None = None


@dataclass(frozen=True)
class Proof(_Compared):
    """The result of comparing one backend with the reference.

    ``ends``: ends of episodes among the rows; ``cut_off`` of these by a time limit. ``fewest_ends``: how often each
    environment has ended at least. Differences were declared for ``excused`` rows. ``failed``: the backend could not be
    run. ``engines``: simulators of which the backend has its own copy. ``simulated``: frames simulated during the
    comparison, counted by ``frames_from``; ``claimed``: frames that the backend claims; all three are None if frames
    were not counted. ``log``: the file in which the parent keeps what the backend printed.
    """

    failed: bool = False
    engines: tuple[Engine, ...] = ()
    own_classes: OwnClasses | None = None
    simulated: int | None = None
    claimed: int | None = None
    frames_from: str | None = None
    fewest_ends: int = 0
    cut_off: int = 0
    excused: int = 0
    log: str | None = None


@dataclass(frozen=True)
class CellProof(_Compared):
    """A sample of a measured cell's rows, compared with the reference. The cell cannot foresee the moments.

    ``environments``: how many of ``num_envs`` were replayed, each for ``steps`` of its ``of_steps``, with a number of
    ``ends`` of episodes at least; the rows compared are some of those on the way. ``seed``: what the moments and the
    environments were drawn from. ``seconds``: how long it took. ``impossible``: our own table of backends says, as
    ``reason``, why nothing can be compared.
    """

    environments: int = 0
    steps: int = 0
    of_steps: int = 0
    seed: int = 0
    seconds: float = 0.0
    impossible: bool = False
    num_envs: int = 0
    cause: Cause | None = None

    @property
    def followed_share(self) -> float:
        """The share of its environments that were stepped again."""
        return min(1.0, self.environments / max(1, self.num_envs))


@dataclass(frozen=True)
class Comparing(_Counted):
    """A comparison goes on: the backend has returned ``rows`` so far."""

    rows: int


@dataclass(frozen=True)
class Failure:
    """The backend raised an exception. ``reason`` describes it in one line."""

    reason: str


@dataclass(frozen=True)
class Timed(_Counted):
    """How long an environment's steps and resets take, in nanoseconds: the median, and what 99 of 100 do not exceed.

    ``make_ns``: how long it took to make it. ``ends``: episodes that ended in these steps; other resets were forced.
    """

    positive = ("steps", "resets")

    steps: int
    step_p50_ns: int
    step_p99_ns: int
    resets: int
    reset_p50_ns: int
    make_ns: int = 0
    ends: int = 0


Answer = Ready | Warm | Begins | Ends | ReplicaWindow | Window | Done | Comparing | Proof | CellProof | Timed | Failure
KINDS: dict[str, type[Answer]] = {kind.__name__: kind for kind in get_args(Answer)}


def describe(error: BaseException) -> str:
    """Return the error's type and the first line of its text, at most 500 characters; the log has the rest."""
    text = " ".join(message_of(error).strip().partition("\n")[0].split())
    name = type(error).__name__
    return f"{name}: {text}"[:500] if text else name


def writer(descriptor: int) -> Callable[[Answer], None]:
    """Return the function that sends an answer to ``descriptor``, the end of a pipe."""

    def write(answer: Answer) -> None:
        os.write(descriptor, json.dumps({type(answer).__name__: asdict(answer)}).encode() + b"\n")

    return write
