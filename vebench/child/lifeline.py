"""Ends a cell whose parent was killed together with all that would clean up after it. Linux only.

A cell may be stopped while others take their turns. Then it notices nothing by itself, so the kernel has to act: it
kills this process when its parent ends, and sends signals to its process group when nobody holds the other end of the
lifeline any more. SIGCONT wakes what was stopped, and SIGTERM ends it; Python's resource tracker ignores SIGTERM,
unlinks the shared memory of those that have ended, and then ends by itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import sys

PR_SET_PDEATHSIG = 1
# Most libraries close low descriptors only, if any.
HIGH = 200


def hold(lifeline: int, go_ahead: int) -> None:
    """Let this process and its group end when those who hold the other end of the pipe ``lifeline`` are gone.

    The other end of ``go_ahead`` is held by the parent alone. Call this in the first thread of the process: the kernel
    follows the thread of the parent that has started it, which waits there until the cell has ended.
    """
    if not sys.platform.startswith("linux"):
        os.close(lifeline)
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGCONT):
        _ask_for(number, lifeline)
    os.close(lifeline)
    if _hung_up(go_ahead):  # the parent ended before the kernel was asked
        os._exit(1)


def _ask_for(number: signal.Signals, lifeline: int) -> None:
    """Let the kernel send a signal to the process group when the pipe hangs up. Nothing is ever written to it."""
    with contextlib.suppress(OSError):  # no /proc, or a sandbox that does not know this: the guardians have to do
        # Opened anew, because whom to tell belongs to what is open, and other cells have the same pipe.
        held = os.open(f"/proc/self/fd/{lifeline}", os.O_RDONLY | os.O_NONBLOCK)
        with contextlib.suppress(OSError):  # so many may not be open
            low, held = held, fcntl.fcntl(held, fcntl.F_DUPFD_CLOEXEC, HIGH)
            os.close(low)
        # Processes that are forked have it, too. So it stays open when this one is killed.
        fcntl.fcntl(held, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(held, fcntl.F_SETSIG, number)
        fcntl.fcntl(held, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)


def _hung_up(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, 0)  # a hang-up is reported in any case
    return bool(poll.poll(0))
