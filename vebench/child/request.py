"""The request to a child: a JSON file, written by the parent, read before any large library is loaded."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from vebench.backends.interface import Setup, Task
from vebench.child.actions import TAPED, PolicyChoice

if TYPE_CHECKING:
    from vebench.backends.bracketed import OptionValue
    from vebench.backends.entry import BackendEntry

Mode = Literal["alone", "in_turn", "in_step"]
SEEDS = range(1 << 17, 1 << 30)  # more than 16 bits, and with the number of an environment at most 31


def seeds_of(seed: int, number: int = 0) -> tuple[int, int, int]:
    """Return the seeds of the constructor, the first reset and the action tape in pass ``number`` of a run.

    All cells of the pass have the same. None of them follows from another: an adapter that knew the tape beforehand
    could make its steps before the clock starts.
    """
    built, start, tape = Random(f"{seed} work {number}").sample(SEEDS, 3)
    return built, start, tape


@dataclass(frozen=True)
class Settings:
    """The part of a run's spec that a child uses. Times are in seconds."""

    duration: float
    windows: int
    warmup: float
    longest_warmup: float
    timeout: float
    memory: str  # the memory policy, as in ``Pinning`` of the spec
    policy: PolicyChoice = TAPED


@dataclass(frozen=True)
class Proving:
    """Step the backend in a few layouts, and record its rows in files ``PATH.0``, ``PATH.1`` ... ``Judging`` proves."""

    steps: int  # of each environment, at least
    seed: int = 0  # layouts, lengths and seeds are drawn from it
    path: str = ""


@dataclass(frozen=True)
class Recording:
    """Measure the backend, and record some batches in a file after the measurement. ``Replaying`` compares them."""

    path: str
    seed: int  # the moments are drawn from it
    replica: int = 0  # which one of a cell of replicas records
    chooser: int = 0  # the environments are drawn from it ...
    turn: int = 0  # ... others in each turn
    full: bool = False  # whether to keep rows of all environments that fit
    compared: bool = True  # without it, nothing is written


@dataclass(frozen=True)
class Recorded:
    """A recording to compare with the reference."""

    name: str  # the file
    backend: str
    seconds: float = 0.0  # the limit for the comparison


@dataclass(frozen=True)
class Replaying:
    """Compare the recordings of one task with the reference."""

    recordings: tuple[Recorded, ...]
    path: str = ""  # the folder of their files

    def __post_init__(self) -> None:
        given: Any = self.recordings  # JSON has dicts and lists
        read = (Recorded(**each) if isinstance(each, dict) else each for each in given)
        object.__setattr__(self, "recordings", tuple(read))


@dataclass(frozen=True)
class Judging:
    """Prove: compare the files of ``Proving`` with the reference. This job steps no backend."""

    steps: int
    seed: int = 0
    path: str = ""
    failed: str = ""  # why they are cut off, empty if they are whole


@dataclass(frozen=True)
class Timing:
    """Time steps of one environment, without a backend."""

    seconds: float


# The purpose of a process, None for a measurement that records nothing.
Job = Recording | Proving | Replaying | Judging | Timing
_JOBS: dict[str, type[Job]] = {kind.__name__: kind for kind in (Recording, Proving, Replaying, Judging, Timing)}


@dataclass(frozen=True)
class Request:
    """One cell, or one replica of it."""

    setup: Setup
    backend: str  # its name
    target: str  # the adapter's ``module:Class``
    options: dict[str, OptionValue]  # the adapter's keyword arguments
    settings: Settings
    folder: str  # has the user's own modules, if any is named
    start_seed: int = 0  # of the first reset; see ``seeds_of``
    tape_seed: int = 0  # the actions follow from it
    nodes: tuple[int, ...] = ()  # the memory nodes of the cell's CPUs
    mode: Mode = "alone"  # or taking turns with other cells, window by window, or in step with the other replicas
    go_ahead: int = -1  # a descriptor to which the parent writes when the child may go on
    lifeline: int = -1  # see ``hold_lifeline`` in ``vebench.child.main``; negative if there is none
    job: Job | None = None

    @property
    def entry(self) -> BackendEntry:
        """The backend's entry. It loads the table of backends: use it only once the process is pinned."""
        from vebench.backends.registry import find

        return find(self.backend)

    def as_json(self) -> dict[str, Any]:
        """Return the request as JSON can write it."""
        job = None if self.job is None else [type(self.job).__name__, asdict(self.job)]
        return asdict(self) | {"job": job}

    @classmethod
    def read(cls, text: str) -> Request:
        """Return the request from the JSON text of ``as_json``."""
        body: dict[str, Any] = json.loads(text)
        setup, settings = body["setup"], body["settings"]
        policy = settings["policy"]
        kind, values = body["job"] or (None, {})
        setup |= {"task": Task(**setup["task"]), "cpus": tuple(setup["cpus"])}
        body |= {
            "setup": Setup(**setup),
            "settings": Settings(**settings | {"policy": PolicyChoice(**policy | {"sizes": tuple(policy["sizes"])})}),
            "nodes": tuple(body["nodes"]),
            "job": None if kind is None else _JOBS[kind](**values),
        }
        return cls(**body)
