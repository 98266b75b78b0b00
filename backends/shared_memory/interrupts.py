"""Exceptions of signal handlers, such as KeyboardInterrupt, and where they cannot be borne.

Python runs handlers in the main thread, between any two instructions. The steps of a team bear that: see ``team``. What
starts and ends processes does not, since a process or a descriptor is lost if its number is not stored. So the
handlers are run afterwards there.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def held_back() -> Iterator[list[int]]:
    """Run no signal handler of Python's until the end, and then those whose signals have come.

    Yields the list of these signals, which fills. No handler ever runs in another thread than the main one.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return

    def note(number: int, _frame: object) -> None:
        came.append(number)

    handlers: dict[int, Any] = {}
    try:
        for number in signal.valid_signals():
            if callable(handler := signal.getsignal(number)):
                handlers[number] = handler
                # From here on this one can raise nothing; if it has raised, it is still what it was.
                signal.signal(number, note)
        yield came
    finally:
        try:
            _restore(handlers)
        finally:
            _restore(handlers)  # a handler that was restored may have raised before the others were
    for each in dict.fromkeys(came):
        signal.raise_signal(each)


def _restore(handlers: dict[int, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


@contextmanager
def sigint_blocked() -> Iterator[None]:
    """Hold Ctrl-C back until the end, also in the processes started here, which unblock it by ``ignore_sigint``."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_sigint() -> None:
    """Let this process, a worker, leave Ctrl-C, which goes to all processes of a terminal, to its caller."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def leave_to_caller() -> None:
    """Let this process, a worker, do nothing at signals that its caller handles: it is told what to do about them.

    They go to all processes of a terminal or of a cluster's job. A handler, unlike ``SIG_IGN``, is not passed on to
    programs that an environment starts; only Ctrl-C is to be ignored by these, too.
    """
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, _nothing)
    ignore_sigint()


def _nothing(_number: int, _frame: object) -> None:
    pass
