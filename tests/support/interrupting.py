"""Ctrl-C at a chosen moment: before the n-th instruction of our own code that a call runs."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

OURS = f"{os.sep}backends{os.sep}"


class Interrupt:
    """Sends SIGINT to this process before the instruction ``at`` of a call; ``came`` says whether it has as many."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.count = 0
        self.came = False

    def into(self, call: Callable[[], object]) -> None:
        """Make the call, with the interrupt in it. Other processes, forked within, are left alone."""
        process = os.getpid()

        def each(_frame: FrameType, event: str, _argument: object) -> Any:  # noqa: ANN401 - as sys.settrace has it
            if event == "opcode" and not self.came and os.getpid() == process:
                self.count += 1
                if self.count == self._at:
                    self.came = True
                    signal.raise_signal(signal.SIGINT)
            return each

        def entered(frame: FrameType, _event: str, _argument: object) -> Any:  # noqa: ANN401 - likewise
            if self.came or OURS not in frame.f_code.co_filename:
                return None
            frame.f_trace_opcodes = True
            return each

        before = sys.gettrace()
        sys.settrace(entered)
        try:
            call()
        finally:
            sys.settrace(before)
