"""One cell, in an interpreter of its own: ``python -m vebench.child.main REQUEST ANSWERS``.

REQUEST is a JSON file (``vebench.child.request``). ANSWERS is the file descriptor for answers
(``vebench.child.answers``). Libraries may print to standard output and error. The interpreter needs neither vebench
nor its dependencies: the launcher puts this folder, and the folders that it may import from, on its path.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import importlib
import os
import select
import signal
import sys
import traceback
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING

from vebench.child.request import Judging, Proving, Replaying, Request, Timing
from vebench.machine import counters, pinning

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from vebench.backends.interface import Factory

_PR_SET_PDEATHSIG = 1
_MOST_PRINTED = 500
# Some libraries close descriptors that they do not know, but only low ones.
_HIGH = 200


def begin(request_file: str, answers: int, own_memory: Callable[[], object] = bool, **inherited: int) -> int:
    """Call ``main`` in a process of its own, and exit."""
    # A backend's processes must not inherit the pipe; forked ones are ended with the process group.
    os.set_inheritable(answers, False)
    signal.signal(signal.SIGUSR2, partial(_tell_where, answers))
    status = main(request_file, answers, own_memory, **inherited)
    if not status:  # everything is closed: taking down modules and their threads would take up to 0.2 s more
        atexit._run_exitfuncs()  # noqa: SLF001 - os._exit does not run them
        with suppress(Exception):  # a library may have replaced it
            sys.stdout.flush()
        os._exit(0)
    return status


def main(request_file: str, answers: int, own_memory: Callable[[], object] = bool, **inherited: int) -> int:
    """Do the job in ``request_file``, and return the exit status.

    A forked process uses its ``inherited`` descriptors instead of the request's. ``own_memory`` gives it memory of its
    own.
    """
    # Taken before any code of an adapter is imported, which might replace it.
    clock = perf_counter_ns
    started = clock()
    with open(request_file, encoding="utf-8") as file:
        request = replace(Request.read(file.read()), **inherited)  # type: ignore[arg-type] # names of descriptors
    os.set_inheritable(request.go_ahead, False)
    if request.lifeline >= 0:
        hold_lifeline(request.lifeline)
    setup = replace(request.setup, pinned=request.setup.pinned and pinning.SUPPORTED)
    request = replace(request, setup=setup)
    affinity = pinning.restrict(setup.cpus) if setup.pinned else pinning.allowed()
    unbound = pinning.set_memory_policy(request.settings.memory, request.nodes)
    priorities = counters.priorities([os.getpid()])
    own_memory()
    # Last in the path: the user's folder must not shadow a library.
    sys.path.append(request.folder)
    # These imports load large libraries: the process is pinned before.
    from vebench.child.answers import Failure, describe, writer
    from vebench.child.cell import measure, time_steps, where

    answer, job = writer(answers), request.job
    try:
        if isinstance(job, (Replaying, Judging)):
            from vebench.child.equality.replay import prove, replay

            for proof in [prove(request, job)] if isinstance(job, Judging) else replay(request, job):
                answer(proof)
            return 0
        if isinstance(job, Timing):
            answer(time_steps(request.setup, job.seconds, clock))
            return 0
        factory = load(request.target)
        if isinstance(job, Proving):
            from vebench.child.equality.stepping import step_trials

            step_trials(request, job, factory, answer)
            return 0
        backend = measure(request, factory, affinity, unbound, priorities, started, clock, answer)
    except BaseException as error:  # noqa: BLE001 - a library may raise anything; it is the reason of the failure
        with suppress(OSError, ValueError):  # so that the log is in order
            sys.stdout.flush()
        printed = _printed_last() if isinstance(error, (EOFError, ConnectionError)) else ""
        traceback.print_exc()
        judged = isinstance(job, (Proving, Judging))  # the judge says where
        place = "" if judged else where(traceback.walk_tb(error.__traceback__))
        answer(Failure(", ".join(filter(None, (printed or describe(error), place)))))
        return 1
    backend.close()
    return 0


def _printed_last() -> str:
    """Return the error on the last line of the log, empty if there is none: a worker knows why its pipe broke."""
    with suppress(OSError):
        end = os.pread(2, _MOST_PRINTED, max(0, os.fstat(2).st_size - _MOST_PRINTED)).decode(errors="replace")
        last = " ".join(end.rstrip().rpartition("\n")[2].split())
        return f"in a worker process: {last}" if last.partition(":")[0].endswith("Error") else ""
    return ""


def hold_lifeline(lifeline: int) -> None:
    """Let the kernel end this process and its group when the pipe ``lifeline`` hangs up. Linux only.

    A cell that is stopped during others' turns notices nothing by itself. So it asks the kernel for signals when the
    other end of the pipe, which only the parent has, is closed: SIGKILL for itself, SIGCONT and SIGTERM for its process
    group. SIGCONT wakes stopped processes, and SIGTERM ends them. Python's resource tracker ignores SIGTERM, unlinks
    the shared memory of the others, and then exits. Where the kernel cannot do so, ``prctl`` ends this process alone.
    """
    if sys.platform.startswith("linux"):
        try:
            _ask_for(signal.SIGKILL, os.getpid(), lifeline)
            _ask_for(signal.SIGTERM, -os.getpgrp(), lifeline)
            _ask_for(signal.SIGCONT, -os.getpgrp(), lifeline)
        except OSError:  # no /proc, or a sandbox
            die_with_parent()
        poll = select.poll()
        poll.register(lifeline, 0)  # a hang-up is reported in any case
        if poll.poll(0):  # the parent was already gone
            os._exit(1)
    os.close(lifeline)


def die_with_parent() -> None:
    """Let the kernel end this process with the one that started it. Linux only."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _ask_for(number: signal.Signals, target: int, lifeline: int) -> None:
    """Let the kernel send a signal to a process, or to the group ``-target``, when the pipe hangs up: fcntl(2)."""
    # Reopened: a recipient belongs to the open file, which other cells share.
    held = os.open(f"/proc/self/fd/{lifeline}", os.O_RDONLY | os.O_NONBLOCK)
    with suppress(OSError):  # too many open files
        low, held = held, fcntl.fcntl(held, fcntl.F_DUPFD_CLOEXEC, _HIGH)
        os.close(low)
    fcntl.fcntl(held, fcntl.F_SETOWN, target)
    fcntl.fcntl(held, fcntl.F_SETSIG, number)
    fcntl.fcntl(held, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)


def _tell_where(answers: int, _number: int, frame: FrameType | None) -> None:
    """Answer how far the cell is: the parent sends a signal to a cell that hangs."""
    from vebench.child.answers import Failure, writer
    from vebench.child.cell import where

    writer(answers)(Failure(where(traceback.walk_stack(frame))))


def load(target: str) -> Factory:
    """Return the adapter ``module:Class``. Its import may raise anything."""
    module, _, name = target.partition(":")
    factory: Factory = getattr(importlib.import_module(module), name)
    return factory


if __name__ == "__main__":
    sys.exit(begin(sys.argv[1], int(sys.argv[2])))
