"""Waiting for what other processes do, without timing it."""

import sys
import threading
import time
from collections.abc import Callable
from traceback import walk_stack

PATIENCE_S = 20.0  # after which a test fails that would otherwise hang


def eventually(happened: Callable[[], bool]) -> bool:
    """Return True as soon as ``happened()``, False if it has not for a long time."""
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def main_thread_is_in(function: str) -> bool:
    """Return whether a function of this name is running in the main thread."""
    frame = sys._current_frames()[threading.main_thread().ident or 0]
    return function in {each.f_code.co_name for each, _ in walk_stack(frame)}
