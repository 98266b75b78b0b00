"""Waiting for what other processes do, without timing it."""

import time
from collections.abc import Callable

PATIENCE_S = 20.0  # after which a test fails that would otherwise hang


def eventually(happened: Callable[[], bool]) -> bool:
    """Return True as soon as ``happened()``, False if it has not for a long time."""
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
