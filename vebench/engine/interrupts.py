"""Ctrl-C, SIGTERM and SIGHUP as something to wait for, instead of an exception in the middle of anything."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import FrameType, TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """While entered, the first such signal makes ``requested`` true and ``fileno()`` readable; a second one raises.

    So what has been measured is stored whole before the run ends, and an impatient user still gets his way.
    """

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> Self:
        self._readable, self._writable = os.pipe()
        os.set_blocking(self._writable, False)
        # A hang-up that is ignored already is ignored on purpose: that is what nohup does.
        heeded = [number for number in SIGNALS if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._handle) for number in heeded}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._readable)
        os.close(self._writable)

    def fileno(self) -> int:
        """Return a descriptor that is readable once a signal has come."""
        return self._readable

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        os.write(self._writable, b"!")
