"""Errors of a team of processes, and blocks of code that no signal handler may interrupt.

Python runs signal handlers in the main thread, between any two instructions. A handler may raise, as Ctrl-C's does.
After an interrupted call the team must be reset or closed: see ``team``. If an interrupt came before the number of
a new process or descriptor is stored, that process or descriptor would leak. So handlers are ``held_back`` while these
are opened or closed.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from vebench.errors import message_of


class OverdueError(TimeoutError, multiprocessing.TimeoutError):
    """A call did not finish within its timeout. The call goes on, and can be waited for again."""

    def __init__(self, seconds: float | None) -> None:
        super().__init__(f"timed out after {seconds} seconds")


class WorkerError(RuntimeError):
    """A process died, or an environment raised an exception. The text has the environment's number and traceback."""


class BrokenOffError(WorkerError):
    """Some environments may not have stepped, or been reset. Reset all of them, or close."""

    def __init__(self) -> None:
        super().__init__(
            "a call of another thread is running, or an interrupt has aborted a call: use one thread at a time; "
            "after an interrupt, only reset() of all environments and close() work"
        )


class WorkerFailure(NamedTuple):
    """An exception in an environment."""

    env_id: int | None  # None if the text names the environment already
    error: BaseException | None  # None if it cannot be sent to another process
    text: str
    trace: str

    @classmethod
    def of(cls, error: BaseException, env_id: int | None) -> WorkerFailure:
        """Describe an exception in an environment. ``env_id`` is None if the exception's text names the environment."""
        kind = "" if env_id is None else f"{type(error).__name__}: "
        return cls(env_id, error, f"{kind}{message_of(error)}", "".join(traceback.format_exception(error)))

    def raised(self) -> BaseException:
        """Return the exception that the caller raises: the environment's own, whose cause is a ``WorkerError``."""
        where = "" if self.env_id is None else f"environment {self.env_id}: "
        error = WorkerError(f"{where}{self.text}\n\n{self.trace}")
        if self.error is None:
            return error
        self.error.__cause__ = error
        return self.error

    def pickled(self) -> bytes:
        """Return the failure as bytes, without the exception if that cannot be pickled or unpickled."""
        try:
            data = pickle.dumps(self)
            pickle.loads(data)  # noqa: S301 - its own bytes
        except Exception:  # noqa: BLE001 - it may fail in any way
            return pickle.dumps(self._replace(error=None))
        return data


@contextmanager
def held_back() -> Iterator[list[int]]:
    """Run no signal handler until the end of the block. Then run the handlers of the signals that have come.

    Yields the list to which arriving signals are added. Outside the main thread, Python runs no handlers anyway.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    with ExitStack() as restoring:  # restores all handlers, even if a restored one raises
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if callable(handler):
                # Register the way back first: the handler may raise between these two lines.
                restoring.callback(signal.signal, number, handler)
                signal.signal(number, lambda signal_number, _frame: came.append(signal_number))
        yield came
    for signal_number in dict.fromkeys(came):
        signal.raise_signal(signal_number)


@contextmanager
def sigint_blocked() -> Iterator[None]:
    """Hold Ctrl-C back in the block. Processes started in it hold it back until they call ``ignore_sigint``."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_sigint() -> None:
    """Ignore Ctrl-C in this worker process. A terminal also sends it to the caller, which ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
