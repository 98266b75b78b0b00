"""Lets the kernel end a cell when its parent is killed. Linux only.

A cell may be stopped while others take their turns. Then it notices nothing by itself. So it holds the reading end of a
pipe that the parent alone can write to, and asks the kernel for signals when that end hangs up, whoever is alive then:
SIGKILL for itself, SIGCONT and SIGTERM for its process group. SIGCONT wakes what was stopped, and SIGTERM ends it.
Python's resource tracker ignores SIGTERM: it unlinks the shared memory of the others, and then ends by itself.

A parent-death signal (``prctl``) would reach this process alone. It is for systems that do not know the rest.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import sys
from contextlib import suppress

_PR_SET_PDEATHSIG = 1
# Libraries that close descriptors which they do not know close low ones.
_HIGH = 200


def hold(lifeline: int) -> None:
    """Let this process and its group end when the pipe ``lifeline``, to which nothing is written, hangs up."""
    if sys.platform.startswith("linux"):
        try:
            _ask_for(signal.SIGKILL, os.getpid(), lifeline)
            _ask_for(signal.SIGTERM, -os.getpgrp(), lifeline)
            _ask_for(signal.SIGCONT, -os.getpgrp(), lifeline)
        except OSError:  # no /proc, or a sandbox
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        poll = select.poll()
        poll.register(lifeline, 0)  # a hang-up is reported in any case
        if poll.poll(0):  # the parent was gone before the kernel was asked
            os._exit(1)
    os.close(lifeline)


def _ask_for(number: signal.Signals, whom: int, lifeline: int) -> None:
    """Let the kernel send a signal to a process, or to the group ``-whom``, when the pipe hangs up: fcntl(2)."""
    # Opened anew, because whom to tell belongs to what is open, and other cells have the same pipe.
    held = os.open(f"/proc/self/fd/{lifeline}", os.O_RDONLY | os.O_NONBLOCK)
    with suppress(OSError):  # so many may not be open
        low, held = held, fcntl.fcntl(held, fcntl.F_DUPFD_CLOEXEC, _HIGH)
        os.close(low)
    fcntl.fcntl(held, fcntl.F_SETOWN, whom)
    fcntl.fcntl(held, fcntl.F_SETSIG, number)
    fcntl.fcntl(held, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
