"""Ctrl-C, SIGTERM and SIGHUP as something to wait for, instead of an exception at any point of the code."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import FrameType, TracebackType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Within the context, the first signal sets ``requested`` and makes ``fileno()`` readable.

    So the run can store what it has measured before it ends. A second signal raises KeyboardInterrupt, for a user who
    does not want to wait.
    """

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> Self:
        self._readable, self._writable = os.pipe()
        os.set_blocking(self._writable, False)
        # What the parent ignores on purpose stays ignored: nohup does SIGHUP, and a script's shell SIGINT for ``&``.
        handled = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        if threading.current_thread() is not threading.main_thread():  # where Python handles all signals
            handled = []
        self._before = {number: signal.signal(number, self._handle) for number in handled}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._readable)
        os.close(self._writable)

    def fileno(self) -> int:
        """Return a file descriptor that is readable after the first signal."""
        return self._readable

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        os.write(self._writable, b"!")
