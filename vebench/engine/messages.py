"""What a measuring child tells its parent: JSON lines, each an object with exactly one key."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from vebench.engine.events import Count, Layout, Proof, Window  # noqa: TC001 - msgspec reads the annotations


@dataclass(frozen=True)
class Ready:
    """The environments are built and reset, which took ``startup_ns`` from the interpreter's first line."""

    startup_ns: Count
    layout: Layout


@dataclass(frozen=True)
class Done:
    """All windows are measured; ``peak_rss_bytes`` is the memory of the whole process tree.

    ``settled`` is whether the rate had settled when warm-up ended, after ``warmup_ns``; None if nobody looked.
    """

    peak_rss_bytes: Count | None
    warmup_ns: Count | None = None
    settled: bool | None = None


@dataclass(frozen=True)
class Failure:
    """The backend raised; ``reason`` is the exception in one line."""

    reason: str


@dataclass(frozen=True)
class Message:
    """One line. Exactly one field is set."""

    ready: Ready | None = None
    window: Window | None = None
    done: Done | None = None
    proof: Proof | None = None
    error: Failure | None = None


_DECODER = msgspec.json.Decoder(Message)


def decode(line: bytes) -> Ready | Window | Done | Proof | Failure:
    """Return what a line tells. Raises ValueError if it is no message."""
    message = _DECODER.decode(line)
    for content in (message.ready, message.window, message.done, message.proof, message.error):
        if content is not None:
            return content
    raise ValueError("a message without content")
