"""One cell, in an interpreter of its own: ``python -m vebench.child.main REQUEST ANSWERS``.

REQUEST is a JSON file (``vebench.child.request``), ANSWERS the file descriptor to which answers are written
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
# Libraries that close descriptors which they do not know close low ones.
_HIGH = 200


def begin(request_file: str, answers: int, own_memory: Callable[[], object] = bool, **inherited: int) -> int:
    """Do as ``main`` does, in a process that is there for this alone."""
    # Not inherited by processes that a backend starts by exec; forked ones are ended with the process group.
    os.set_inheritable(answers, False)
    signal.signal(signal.SIGUSR2, partial(_tell_where, answers))
    status = main(request_file, answers, own_memory, **inherited)
    if not status:  # all is closed: taking down modules and their threads would take up to 0.2 s more
        atexit._run_exitfuncs()  # noqa: SLF001 - there is no other way to do so before os._exit
        with suppress(Exception):  # of a library that has replaced it
            sys.stdout.flush()
        os._exit(0)
    return status


def main(request_file: str, answers: int, own_memory: Callable[[], object] = bool, **inherited: int) -> int:
    """Measure a cell, or compare what it returns or has recorded, as ``request_file`` asks. Returns the exit status.

    A forked process has its ``inherited`` descriptors instead of those in the request, and ``own_memory`` lets it share
    no memory of others.
    """
    # Taken before any code of an adapter is imported, which might replace it.
    clock = perf_counter_ns
    started = clock()
    with open(request_file, encoding="utf-8") as file:  # noqa: PTH123 - nothing else here needs pathlib
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
    # Last in the path, because the user's folder must not shadow a library.
    sys.path.append(request.folder)
    # These imports load large libraries, so the process must be pinned before.
    from vebench.child.answers import Failure, describe, writer  # noqa: PLC0415
    from vebench.child.cell import measure, time_steps, where  # noqa: PLC0415

    answer, job = writer(answers), request.job
    try:
        if isinstance(job, (Replaying, Judging)):
            from vebench.child.equality.replay import prove, replay  # noqa: PLC0415 - it needs more than numpy, no adapter

            for proof in [prove(request, job)] if isinstance(job, Judging) else replay(request, job, clock):
                answer(proof)
            return 0
        if isinstance(job, Timing):
            answer(time_steps(request.setup, job.seconds, clock))
            return 0
        factory = load(request.target)
        if isinstance(job, Proving):
            from vebench.child.equality.stepping import step_trials  # noqa: PLC0415 - not for what is timed

            step_trials(request, job, factory, answer)
            return 0
        backend = measure(request, factory, affinity, unbound, priorities, started, clock, answer)
    except BaseException as error:  # noqa: BLE001 - a library may raise anything; it is the reason of the failure
        with suppress(OSError, ValueError):  # what was printed before comes first in the log, and may be long
            sys.stdout.flush()
        printed = _printed_last() if isinstance(error, (EOFError, ConnectionError)) else ""
        traceback.print_exc()
        told = isinstance(job, (Proving, Judging))  # the judge says where
        place = "" if told else where(traceback.walk_tb(error.__traceback__))
        answer(Failure(", ".join(filter(None, (printed or describe(error), place)))))
        return 1
    backend.close()
    return 0


def _printed_last() -> str:
    """Return the error that was printed last to the log: a worker knows why its pipe broke. Empty if none was."""
    with suppress(OSError):
        end = os.pread(2, _MOST_PRINTED, max(0, os.fstat(2).st_size - _MOST_PRINTED)).decode(errors="replace")
        last = " ".join(end.rstrip().rpartition("\n")[2].split())
        return f"in a worker process: {last}" if last.partition(":")[0].endswith("Error") else ""
    return ""


def hold_lifeline(lifeline: int) -> None:
    """Let the kernel end this process and its group when the pipe ``lifeline`` hangs up. Linux only.

    A cell may be stopped while others take their turns. Then it notices nothing by itself. So it holds the reading end
    of a pipe that the parent alone can write to, and asks the kernel for signals when that end hangs up, whatever is
    alive then: SIGKILL for itself, SIGCONT and SIGTERM for its process group. SIGCONT wakes what was stopped, and
    SIGTERM ends it. Python's resource tracker ignores SIGTERM: it unlinks the shared memory of the others, and then
    ends by itself. A parent-death signal (``prctl``) would reach this process alone. It is for systems that do not know
    the rest.
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
        if poll.poll(0):  # the parent was gone before the kernel was asked
            os._exit(1)
    os.close(lifeline)


def die_with_parent() -> None:
    """Let the kernel end this process with the one that started it. Linux only."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _ask_for(number: signal.Signals, target: int, lifeline: int) -> None:
    """Let the kernel send a signal to a process, or to the group ``-target``, when the pipe hangs up: fcntl(2)."""
    # Reopened, because the recipient belongs to the open file, and other cells have the same pipe.
    held = os.open(f"/proc/self/fd/{lifeline}", os.O_RDONLY | os.O_NONBLOCK)
    with suppress(OSError):  # too many open files
        low, held = held, fcntl.fcntl(held, fcntl.F_DUPFD_CLOEXEC, _HIGH)
        os.close(low)
    fcntl.fcntl(held, fcntl.F_SETOWN, target)
    fcntl.fcntl(held, fcntl.F_SETSIG, number)
    fcntl.fcntl(held, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)


def _tell_where(answers: int, _number: int, frame: FrameType | None) -> None:
    """Answer how far the cell is: the parent sends a signal to one that hangs."""
    from vebench.child.answers import Failure, writer  # noqa: PLC0415 - see above
    from vebench.child.cell import where  # noqa: PLC0415 - see above

    writer(answers)(Failure(where(traceback.walk_stack(frame))))


def load(target: str) -> Factory:
    """Return the adapter ``module:Class``. Raises whatever its import raises."""
    module, _, name = target.partition(":")
    factory: Factory = getattr(importlib.import_module(module), name)
    return factory


if __name__ == "__main__":
    sys.exit(begin(sys.argv[1], int(sys.argv[2])))
