"""The exceptions that a team of processes raises, and how an exception in an environment travels to the caller."""

from __future__ import annotations

import multiprocessing
import pickle
import traceback
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
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
        if share is not None and share.current is None:
            return cls(None, error, str(error), traceback.format_exc())
        env_id = start + (0 if share is None else share.current or 0)
        return cls(env_id, error, f"{type(error).__name__}: {error}", traceback.format_exc())

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
        except Exception:  # noqa: BLE001 - an exception may be of any class, with any way to fail
            return pickle.dumps(self._replace(error=None))
        return data
