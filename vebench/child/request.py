"""The request to a child. The parent writes it to a JSON file. The child reads it before it loads large libraries."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Literal, get_args

from vebench.backends.bracketed import OptionValue
from vebench.backends.interface import Setup, Task
from vebench.child.actions import TAPED, PolicyChoice

if TYPE_CHECKING:
    from vebench.backends.entry import BackendEntry

Mode = Literal["alone", "in_turn", "in_step"]


def seeds_of(seed: int, number: int = 0) -> tuple[int, int, int]:
    """Return the seeds of the constructor, the first reset and the action tape. All cells of a pass have the same.

    No seed can be computed from another: an adapter that knew the tape could make its steps before the clock starts.
    """
    # Seeds are above 16 bits. A seed plus the number of an environment has at most 31 bits.
    built, start, tape = Random(f"{seed} work {number}").sample(range(1 << 17, 1 << 30), 3)
    return built, start, tape


@dataclass(frozen=True)
class Settings:
    """The part of a run's spec that a child uses. Times are in seconds."""

    duration: float
    windows: int
    warmup: float
    longest_warmup: float
    timeout: float
    memory: str  # the memory policy; see ``Pinning`` in ``vebench.plan.grammar``
    policy: PolicyChoice = TAPED


@dataclass(frozen=True)
class Stepping:
    """Step the backend in a few layouts, and record its rows in files ``PATH.0``, ``PATH.1`` ... for ``Judging``."""

    steps: int  # the least number of steps of each environment
    seed: int = 0  # the seed from which layouts, lengths and further seeds are chosen
    path: str = ""
    episodes: bool = False  # whether episodes are compared, because rows differ by chance


@dataclass(frozen=True)
class Recording:
    """Measure the backend, and record some batches in a file after the measurement. ``Replaying`` compares them."""

    path: str
    seed: int  # the seed of the random moments
    replica: int = 0  # the number of the replica that records
    chooser: int = 0  # the seed of the random choice of environments
    repeat: int = 0  # the number of the pass. Each pass records other environments.
    full: bool = False  # whether to record all environments that fit in memory
    compared: bool = True  # whether to write the file for a comparison
    resets: bool = False  # whether to reset the backend once more after its last window


@dataclass(frozen=True)
class Recorded:
    """A recording to compare with the reference."""

    name: str  # the file
    backend: str
    seconds: float = 0.0  # time limit for the comparison


@dataclass(frozen=True)
class Replaying:
    """Compare the recordings of one task with the reference."""

    recordings: tuple[Recorded, ...]
    path: str = ""  # the folder of their files


@dataclass(frozen=True)
class Judging:
    """Prove: compare the files of ``Stepping`` with the reference. This job steps no backend."""

    steps: int
    seed: int = 0
    path: str = ""
    failed: str = ""  # why the files are cut off, empty if they are complete
    episodes: bool = False  # whether ``PATH.reference.0`` has the reference's rows, whose episodes are compared


@dataclass(frozen=True)
class Timing:
    """Time steps of one environment, without a backend."""

    seconds: float


@dataclass(frozen=True)
class Updating:
    """Time the updates of an algorithm with 1, 2, 4 ... threads, for so many seconds each, until they get slower.

    The network is the policy of ``Settings``, or the usual network of the algorithm.
    """

    algorithm: str
    seconds: float  # 0: only ask whether the algorithm fits the task


# The purpose of a process, None for a measurement that records nothing.
Job = Recording | Stepping | Replaying | Judging | Timing | Updating
_JOBS: dict[str, type[Job]] = {kind.__name__: kind for kind in get_args(Job)}


@dataclass(frozen=True)
class Request:
    """One cell, or one replica of it."""

    setup: Setup
    backend: str  # the backend's name
    options: dict[str, OptionValue]  # the adapter's keyword arguments
    settings: Settings
    folder: str  # the folder from which the user's modules are imported
    start_seed: int = 0  # the seed of the first reset; see ``seeds_of``
    tape_seed: int = 0  # the seed of the actions
    nodes: tuple[int, ...] = ()  # the memory nodes of the cell's CPUs
    mode: Mode = "alone"  # ``in_turn`` with other cells, window by window; ``in_step`` with other replicas
    go_ahead: int = -1  # descriptor of the pipe to which the parent writes when the child may go on
    lifeline: int = -1  # descriptor for ``hold_lifeline`` in ``vebench.child.main``; negative if there is none
    times: float = 0.0  # seconds for which a plain loop times its first environment after the last window
    job: Job | None = None

    @property
    def entry(self) -> BackendEntry:
        """The backend's entry. Use it only in a pinned process, because it loads the table of backends."""
        from vebench.backends.registry import find

        return find(self.backend, self.options)

    def as_json(self) -> dict[str, Any]:
        """Return the request as a dictionary for JSON. ``read`` reverses this."""
        job = None if self.job is None else [type(self.job).__name__, asdict(self.job)]
        return asdict(self) | {"job": job}

    @classmethod
    def read(cls, text: str) -> Request:
        """Return the request from the JSON text of ``as_json``."""
        body: dict[str, Any] = json.loads(text)
        setup, settings = body["setup"], body["settings"]
        policy = settings["policy"]
        policy["sizes"] = tuple(policy["sizes"])
        settings["policy"] = PolicyChoice(**policy)
        job: Any = body["job"] or (None, {})
        kind, values = job
        if "recordings" in values:
            values["recordings"] = tuple(Recorded(**each) for each in values["recordings"])
        setup |= {"task": Task(**setup["task"]), "cpus": tuple(setup["cpus"])}
        body |= {
            "setup": Setup(**setup),
            "settings": Settings(**settings),
            "nodes": tuple(body["nodes"]),
            "job": None if kind is None else _JOBS[kind](**values),
        }
        return cls(**body)
