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
import weakref
from contextlib import contextmanager
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    """An interrupt ended a call early: not all environments may have stepped, or been reset. Reset or close all."""

    def __init__(self) -> None:
        super().__init__("an interrupt has aborted a call: only reset() of all environments and close() work now", None)


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
        """Describe an exception that is being handled, in the share whose first environment is ``start``.

        Whatever the exception does when it is looked at must not hide it, nor end the process that reports it.
        """
        try:
            text = "".join((str(error), ""))  # a plain string, which can be sent
        except BaseException as other:  # noqa: BLE001 - as said above
            text = f"<no text: {type(other).__name__}>"
        trace = traceback.format_exc()
        if share is not None and share.current is None:
            return cls(None, error, text, trace)
        env_id = start + (0 if share is None else share.current or 0)
        return cls(env_id, error, f"{type(error).__name__}: {text}", trace)

    @property
    def message(self) -> str:
        """The text of the error that the caller raises."""
        where = "" if self.env_id is None else f"environment {self.env_id}: "
        return f"{where}{self.text}\n\n{self.trace}"

    def pickled(self) -> bytes:
        """Return its bytes, without the exception itself if that cannot be sent or read back."""
        try:
            data = pickle.dumps(self)
            if isinstance(pickle.loads(data).error, BaseException):  # noqa: S301 - its own bytes
                return data
        except BaseException:  # noqa: BLE001, S110 - it may fail in any way
            pass
        return pickle.dumps(self._replace(error=None))


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
    """Let this worker process ignore signals that its caller handles: the caller instructs it.

    They go to all processes of a terminal or of a cluster's job. A handler, unlike ``SIG_IGN``, is not passed on to
    programs that an environment starts; only Ctrl-C is to be ignored by these, too.
    """
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, lambda _number, _frame: None)
    ignore_sigint()


# Python runs signal handlers in ``__del__`` and in a weak reference's callback, too. What that of Ctrl-C raises there
# ends the callback, is printed, and is forgotten. So no instruction of Python runs there: C calls C, and what needs
# Python is done by a thread of its own, in which no handler runs.

_Held = TypeVar("_Held")


class IfForgotten(weakref.ref[_Held], Generic[_Held]):
    """A weak reference that makes a call once its object is gone, unless the reference has gone before.

    ``call`` must be a function of C, such as one of ctypes or ``_thread.start_new_thread``, or a ``partial`` of it.
    """

    call: Callable[[], object]

    def __new__(cls, held: _Held, call: Callable[[], object]) -> IfForgotten[_Held]:
        """Make the reference to what is held."""
        made = super().__new__(cls, held, _CALL)
        made.call = call
        return made


_CALL: Any = methodcaller("call")  # itself a function of C: Python gives it the reference
