"""What a measuring child tells its parent: JSON lines, each an object with exactly one key."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from vebench.engine.events import Layout, NonNegative, Proof, Seats, Window


@dataclass(frozen=True)
class Ready:
    """The environments are built and reset, which took ``startup_ns`` from the interpreter's first line."""

    startup_ns: NonNegative
    layout: Layout


@dataclass(frozen=True)
class Done:
    """All windows are measured; ``peak_rss_bytes`` is the memory of the whole process tree.

    ``seats``: where its processes and threads may run. ``memory_by_node``: bytes of their own by memory node.
    ``settled`` is whether the rate had settled when warm-up ended, after ``warmup_ns``; None if nobody looked.
    """

    peak_rss_bytes: NonNegative | None
    seats: Seats | None = None
    memory_by_node: dict[str, NonNegative] | None = None
    warmup_ns: NonNegative | None = None
    settled: bool | None = None


@dataclass(frozen=True)
class Warm:
    """The pool, one of several, or the cell, one that takes turns, is warm, and waits to be told when to go on."""


@dataclass(frozen=True)
class Lap:
    """A window of a pool that is one of several, and when it began by the clock that all of them share."""

    start_ns: NonNegative
    window: Window


@dataclass(frozen=True)
class Failure:
    """The backend raised; ``reason`` is the exception in one line."""

    reason: str


@dataclass(frozen=True)
class Line:
    """One line. Exactly one field is set."""

    ready: Ready | None = None
    warm: Warm | None = None
    lap: Lap | None = None
    window: Window | None = None
    done: Done | None = None
    proof: Proof | None = None
    error: Failure | None = None


Message = Ready | Warm | Lap | Window | Done | Proof | Failure
_DECODER = msgspec.json.Decoder(Line)


def decode(text: bytes) -> Message:
    """Return what a line tells. Raises ValueError if it is no message."""
    line = _DECODER.decode(text)
    for content in (line.ready, line.warm, line.lap, line.window, line.done, line.proof, line.error):
        if content is not None:
            return content
    raise ValueError("a message without content")
