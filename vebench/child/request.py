"""What a child is asked to do: a JSON file, written by the parent, read before anything heavy is loaded."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from vebench.backends.setup import OptionValue, Setup, Task

Mode = Literal["alone", "in_turn", "in_step"]


@dataclass(frozen=True)
class Settings:
    """The part of a run's spec that a child acts on. Each field has its name there; times are in seconds."""

    duration: float
    rounds: int
    warmup: float
    longest_warmup: float
    timeout: float
    membind: str


@dataclass(frozen=True)
class Proving:
    """A comparison with the reference over ``steps`` steps of each environment, in place of a measurement.

    Pictures of the first observation that differs are written to the folder ``frames``, None for none.
    """

    steps: int
    frames: str | None = None


@dataclass(frozen=True)
class Request:
    """One cell, or one replica of it.

    ``backend`` is its name, ``target`` the adapter's ``module:Class``, ``options`` its keyword arguments. ``nodes`` are
    the memory nodes of its CPUs, ``folder`` is where the user's own modules lie. ``mode``: ``alone``; ``in_turn``,
    window by window with other cells; ``in_step`` with the other replicas of its cell. ``words`` is the descriptor on
    which the parent says when to go on. With ``proving`` nothing is timed.
    """

    setup: Setup
    backend: str
    target: str
    options: dict[str, OptionValue]
    settings: Settings
    folder: str
    nodes: tuple[int, ...] = ()
    mode: Mode = "alone"
    words: int = -1
    proving: Proving | None = None

    def written(self) -> str:
        """Return the request as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Request:
        """Return the request that ``written`` has written."""
        body: dict[str, Any] = json.loads(text)
        setup, proving = body["setup"], body["proving"]
        setup |= {"task": Task(**setup["task"]), "cpus": tuple(setup["cpus"])}
        body |= {
            "setup": Setup(**setup),
            "settings": Settings(**body["settings"]),
            "nodes": tuple(body["nodes"]),
            "proving": None if proving is None else Proving(**proving),
        }
        return cls(**body)
