"""The request to a child: a JSON file, written by the parent, read before any large library is loaded."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from vebench.backends.interface import Setup, Task
from vebench.child.policy import TAPED, PolicyChoice

if TYPE_CHECKING:
    from vebench.backends.bracketed import OptionValue
    from vebench.backends.entry import BackendEntry

Mode = Literal["alone", "in_turn", "in_step"]
SEEDS = range(1 << 17, 1 << 30)  # more than 16 bits, and with the number of an environment at most 31


def seeds_of(seed: int, number: int = 0) -> tuple[int, int, int]:
    """Return three of ``SEEDS``, the same for all cells of pass ``number`` in runs with this ``seed``.

    They are those of a third party's constructor, of the first reset, and of the action tape. None of them follows from
    another: an adapter that knew the tape beforehand could make its steps before the clock starts.
    """
    built, start, tape = Random(f"{seed} work {number}").sample(SEEDS, 3)  # noqa: S311 - it is to be repeated
    return built, start, tape


@dataclass(frozen=True)
class Settings:
    """The part of a run's spec that a child uses. Times are in seconds.

    ``memory`` says which nodes the cell's memory comes from, as ``Pinning`` in the spec has it.
    """

    duration: float
    windows: int
    warmup: float
    longest_warmup: float
    timeout: float
    memory: str
    policy: PolicyChoice = TAPED


@dataclass(frozen=True)
class Proving:
    """Step the backend in a few layouts, and write what it returns to files.

    Each environment makes ``steps`` at least. Layouts, lengths and seeds are drawn from ``seed``. What is returned
    in the first layout goes to the file ``PATH.0``, and so on.
    """

    steps: int
    seed: int = 0
    path: str = ""


@dataclass(frozen=True)
class Recording:
    """Measure, keep some batches, and write them to the file ``path`` when the measurement is over.

    At which moments is drawn from ``seed``, and of which environments from ``chooser``: with every ``turn`` of the same
    chooser the next ones. In a cell of replicas, number ``replica`` does so. When all is measured, the backend is reset
    once more, with the seed ``reset_seed``, unless that is None. With ``full``, rows of as many environments
    are kept as can be. What is not to be ``compared`` is not written.
    """

    path: str
    seed: int
    replica: int = 0
    chooser: int = 0
    turn: int = 0
    reset_seed: int | None = None
    full: bool = False
    compared: bool = True


@dataclass(frozen=True)
class Recorded:
    """What a measurement of ``backend`` has recorded in the file ``name``. It is compared for ``seconds`` at most.

    ``rows``: those that each of its windows has claimed, empty if that is not known.
    """

    name: str
    backend: str
    seconds: float = 0.0
    rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class Replaying:
    """Compare what measurements on one task have recorded with the reference. The files are in the folder ``path``."""

    recordings: tuple[Recorded, ...]
    path: str = ""

    def __post_init__(self) -> None:
        given: Any = self.recordings  # JSON has dicts and lists
        read = (Recorded(**{**each, "rows": tuple(each["rows"])}) if isinstance(each, dict) else each for each in given)
        object.__setattr__(self, "recordings", tuple(read))


@dataclass(frozen=True)
class Judging:
    """Compare what ``Proving`` has written with the reference. ``failed``: why it is cut off, empty if it is whole."""

    steps: int
    seed: int = 0
    path: str = ""
    failed: str = ""


@dataclass(frozen=True)
class Timing:
    """Time steps of one environment for ``seconds`` seconds, without a backend."""

    seconds: float


# What a cell is started for, None for a measurement that records nothing.
Job = Recording | Proving | Replaying | Judging | Timing
_JOBS: dict[str, type[Job]] = {kind.__name__: kind for kind in (Recording, Proving, Replaying, Judging, Timing)}


@dataclass(frozen=True)
class Request:
    """One cell, or one replica of it.

    ``backend`` is the backend's name, ``target`` the adapter's ``module:Class``, ``options`` its keyword arguments.
    Its first reset has the seed ``start_seed``, its actions follow from ``tape_seed``; see ``seeds_of``.
    ``nodes`` are the memory nodes of the cell's CPUs. ``folder`` has the user's own modules, if any is named. ``mode``
    is ``alone``, ``in_turn`` (takes turns with other cells, window by window) or ``in_step`` (with the other replicas
    of its cell).
    The parent writes to the descriptor ``go_ahead`` when the child may go on. ``lifeline`` is that of
    ``hold_lifeline`` in ``vebench.child.main``, negative if there is none.
    """

    setup: Setup
    backend: str
    target: str
    options: dict[str, OptionValue]
    settings: Settings
    folder: str
    start_seed: int = 0
    tape_seed: int = 0
    nodes: tuple[int, ...] = ()
    mode: Mode = "alone"
    go_ahead: int = -1
    lifeline: int = -1
    job: Job | None = None

    @property
    def entry(self) -> BackendEntry:
        """What is known of the backend. It loads the table of backends: only once the process is pinned."""
        from vebench.backends.registry import find  # noqa: PLC0415 - see above

        return find(self.backend)

    def as_json(self) -> dict[str, Any]:
        """Return the request as what JSON can write."""
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
