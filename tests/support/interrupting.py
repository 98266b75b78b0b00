"""Ctrl-C at a chosen moment: before the n-th instruction of our own code that a call runs."""

import linecache
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

Result = TypeVar("Result")
OURS = f"{os.sep}backends{os.sep}"


class Interrupt:
    """Sends SIGINT to this process before the instruction ``at`` of a call; ``came`` says whether it has as many.

    ``line`` is the line of code that has that instruction.
    """

    def __init__(self, at: int) -> None:
        self._at = at
        self.count = 0
        self.came = False
        self.line = ""

    def into(self, call: Callable[[], Result]) -> Result:
        """Make the call, with the interrupt in it, and return its result. Processes forked within are left alone."""
        process = os.getpid()

        def each(frame: FrameType, event: str, _argument: object) -> Any:
            if event == "opcode" and not self.came and os.getpid() == process:
                self.count += 1
                if self.count == self._at:
                    self.came = True
                    self.line = linecache.getline(frame.f_code.co_filename, frame.f_lineno or 0).strip()
                    signal.raise_signal(signal.SIGINT)
            return each

        def entered(frame: FrameType, _event: str, _argument: object) -> Any:
            if self.came or OURS not in frame.f_code.co_filename:
                return None
            frame.f_trace = each  # first: Python 3.13 ignores f_trace_opcodes of a frame that has no trace function
            frame.f_trace_opcodes = True
            return each

        before = sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # Python 3.12 looks for it only when settrace is called
        sys.settrace(entered)
        try:
            return call()
        finally:
            sys.settrace(before)
