"""The exceptions that a team of processes raises, and how an exception in an environment travels to the caller."""

from __future__ import annotations

import multiprocessing
import pickle
import traceback
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vebench.backends.shared_memory.share import Share


class OverdueError(TimeoutError, multiprocessing.TimeoutError):
    """Something was not done within the time given. It goes on, and can be waited for again."""

    def __init__(self, seconds: float | None) -> None:
        super().__init__(f"not done after {seconds} seconds")


class WorkerError(RuntimeError):
    """An environment raised an exception, described by ``failure``; or a process died, and ``failure`` is None.

    The text names the environments, and includes the traceback if there is one.
    """

    def __init__(self, text: str, failure: WorkerFailure | None) -> None:
        super().__init__(text)
        self.failure = failure


class BrokenOffError(WorkerError):
    """An interrupt has come within a step or a reset, so that some environments have made it and others have not.

    They need a reset before they can be stepped.
    """

    def __init__(self, env_ids: Iterable[int]) -> None:
        super().__init__(
            f"an interrupt has broken off a step or a reset of environments {[*env_ids]}: reset them", None
        )


class WorkerFailure(NamedTuple):
    """An exception in an environment: its id, the exception if it can be sent, its text, and the traceback.

    The id is None if the text names the environment already.
    """

    env_id: int | None
    error: BaseException | None
    text: str
    trace: str

    @classmethod
    def of(cls, error: BaseException, start: int, share: Share | None) -> WorkerFailure:
        """Describe an exception that is being handled, in the share whose first environment is ``start``."""
        text, trace = _text_of(error), _trace_of(error)
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


# Whatever an exception does when it is looked at, that must not hide it, nor end the process that reports it.


def _text_of(error: BaseException) -> str:
    try:
        return "".join((str(error), ""))  # a plain string, which can be sent
    except BaseException as other:  # noqa: BLE001 - as said above
        return f"<its text cannot be had: {type(other).__name__}>"


def _trace_of(error: BaseException) -> str:
    try:
        return traceback.format_exc()
    except BaseException as other:  # noqa: BLE001 - as said above
        return f"<its traceback cannot be had: {type(other).__name__}>\n{_places_of(error)}"


def _places_of(error: BaseException) -> str:
    return "".join(traceback.format_tb(error.__traceback__))
