"""What may break off a team's work: exceptions in its environments, its processes' deaths, and signal handlers.

Python runs signal handlers in the main thread, between any two instructions, and a handler may raise, as that of Ctrl-C
does. A call that is broken off leaves the team to be reset or closed: see ``team``. What starts and ends processes must
not be broken off, since a process or descriptor is lost if its number is not stored: handlers are ``held_back`` there.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import threading
import traceback
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from vebench.errors import message_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vebench.backends.shared_memory.memory_layout import ProcessShare


class OverdueError(TimeoutError, multiprocessing.TimeoutError):
    """A call did not finish within its timeout. It goes on, and can be waited for again."""

    def __init__(self, seconds: float | None) -> None:
        super().__init__(f"timed out after {seconds} seconds")


class WorkerError(RuntimeError):
    """An environment raised an exception, described by ``failure``, or a process died (``failure`` is None).

    The text names the environments, and includes the traceback if there is one.
    """

    def __init__(self, text: str, failure: WorkerFailure | None) -> None:
        super().__init__(text)
        self.failure = failure


class BrokenOffError(WorkerError):
    """A call has not ended: not all environments may have stepped, or been reset. Reset or close all.

    ``here``: an interrupt aborted a call of this thread.
    """

    def __init__(self, *, here: bool) -> None:
        why = "an interrupt has aborted a call" if here else "a call of another thread is not over, or was interrupted"
        only = "" if here else "use it from one thread at a time; after an interrupt, "
        super().__init__(f"{why}: {only}only reset() of all environments and close() work now", None)


class WorkerFailure(NamedTuple):
    """An exception in an environment: its id, the exception if it can be sent, its text, and the traceback.

    The id is None if the text names the environment already.
    """

    env_id: int | None
    error: BaseException | None
    text: str
    trace: str

    @classmethod
    def of(cls, error: BaseException, start: int, share: ProcessShare | None) -> WorkerFailure:
        """Describe an exception that is being handled, in the share whose first environment is ``start``."""
        trace = traceback.format_exc()
        if share is not None and share.current is None:
            return cls(None, error, message_of(error), trace)
        env_id = start + (0 if share is None else share.current or 0)
        return cls(env_id, error, f"{type(error).__name__}: {message_of(error)}", trace)

    @property
    def message(self) -> str:
        """The text of the error that the caller raises."""
        where = "" if self.env_id is None else f"environment {self.env_id}: "
        return f"{where}{self.text}\n\n{self.trace}"

    def pickled(self) -> bytes:
        """Return its bytes, without the exception itself if that cannot be sent or read back."""
        try:
            data = pickle.dumps(self)
            pickle.loads(data)  # noqa: S301 - its own bytes
        except Exception:  # noqa: BLE001 - it may fail in any way
            return pickle.dumps(self._replace(error=None))
        return data


# Signal handlers.


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

    with ExitStack() as restoring:  # the others, too, if a handler that was restored has raised
        for number in signal.valid_signals():
            if callable(handler := signal.getsignal(number)):
                restoring.callback(signal.signal, number, handler)
                # From here on this one can raise nothing; if it has raised, it is still what it was.
                signal.signal(number, note)
        yield came
    for each in dict.fromkeys(came):
        signal.raise_signal(each)


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
    """Let this worker process ignore signals that its caller handles: the caller instructs it.

    They go to all processes of a terminal or of a cluster's job. A handler, unlike ``SIG_IGN``, is not passed on to
    programs that an environment starts; only Ctrl-C is to be ignored by these, too.
    """
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, lambda _number, _frame: None)
    ignore_sigint()
