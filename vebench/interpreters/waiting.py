"""Waiting for answers over pipes and for signals."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Self

CHECK_S = 0.5  # how often to check cells' processes and limits while waiting for an answer
_LATE_S = 1.0  # a wait that takes this much longer than asked for means that this process was stopped
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Wakeful:
    """A clock that counts seconds, without the time in which this process was stopped, as by Ctrl-Z.

    Cells may have written answers meanwhile, and must not be taken for hanging.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stopped = 0.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self._clock() - self._stopped

    def wait(self, descriptors: Iterable[int], seconds: float = CHECK_S) -> set[int]:
        """Return the descriptors that can be read or are closed, as soon as there is one, or after ``seconds``."""
        poll = select.poll()  # not select(), which knows only the first 1,024 descriptors
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        before = self._clock()
        found = {descriptor for descriptor, _ in poll.poll(max(0.0, seconds) * 1000)}
        late = self._clock() - before - seconds
        if late > _LATE_S:
            self._stopped += late
        return found


wakeful = Wakeful()


class Interrupts:
    """Within the context, the first signal only sets ``requested`` and makes ``fileno()`` readable.

    So the run can store its measurements before it ends. A second signal raises KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> Self:
        self._readable, self._writable = os.pipe()
        os.set_blocking(self._writable, False)
        # Signals that the parent ignores on purpose stay ignored: nohup's SIGHUP, and a shell's SIGINT for ``&``.
        handled = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        if threading.current_thread() is not threading.main_thread():  # where Python handles all signals
            handled = []
        self._before = {number: signal.signal(number, self._handle) for number in handled}
        return self

    def __exit__(self, *_: object) -> None:
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
