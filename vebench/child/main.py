"""The process of a cell: a fresh interpreter, or forked from a process that has imported the cells' modules.

``python -m vebench.child.main REQUEST ANSWERS`` does the job in the JSON file REQUEST, and writes to the descriptor
ANSWERS. ``... fork SOCKET LIFELINE MODULE ...`` imports modules, and forks a process for each message of ``Zygote``.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import fcntl
import importlib
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import groupby
from time import perf_counter_ns
from typing import Any

from vebench.child.request import Judging, Replaying, Request, Stepping, Timing, Updating
from vebench.machine import guardian, kernel

# Address and size of a part of this process's memory, and whether it belongs to a file.
_Part = tuple[int, int, bool]


def begin(request_file: str, answers: int, memory: Sequence[_Part] = (), **inherited: int) -> int:
    """Call ``main``. Exit at once if it succeeds, otherwise return its status."""
    # Programs that a backend starts must not inherit the pipe. Its forked processes end with the process group.
    os.set_inheritable(answers, False)
    status = main(request_file, answers, memory, **inherited)
    if not status:  # the backend is closed; a normal exit of the interpreter would take up to 0.2 s
        atexit._run_exitfuncs()  # noqa: SLF001 - os._exit does not run them
        with suppress(Exception):  # a library may have replaced ``stdout``
            sys.stdout.flush()
        os._exit(0)
    return status


def main(request_file: str, answers: int, memory: Sequence[_Part] = (), **inherited: int) -> int:
    """Do the job in ``request_file``, and return the exit status. A forked process has ``inherited`` descriptors."""
    # Bound before any adapter is imported, since an adapter might replace ``time.perf_counter_ns``.
    clock = perf_counter_ns
    started = clock()
    with open(request_file, encoding="utf-8") as file:
        request = replace(Request.read(file.read()), **inherited)  # type: ignore[arg-type] # names of descriptors
    os.set_inheritable(request.go_ahead, False)
    if request.lifeline >= 0:
        hold_lifeline(request.lifeline)
    setup = replace(request.setup, pinned=request.setup.pinned and kernel.SUPPORTED)
    request = replace(request, setup=setup)
    affinity = kernel.restrict(setup.cpus) if setup.pinned else kernel.allowed()
    unbound = kernel.bind_memory(request.nodes) if request.settings.memory == "bind" else None
    priorities = kernel.priorities([os.getpid()])
    _own(memory)
    # Last in the path: the user's folder must not shadow a library.
    sys.path.append(request.folder)
    # These imports load large libraries, so they come after pinning.
    from vebench.backends.environments.suites import load_target
    from vebench.child.answers import Failure, describe, send
    from vebench.child.cell import measure, time_steps, where

    answer, job = partial(send, answers), request.job
    try:
        if isinstance(job, (Replaying, Judging)):
            from vebench.child.equality.replay import compare_trials, replay

            if isinstance(job, Judging):
                answer(compare_trials(request, job))
            else:
                for proof in replay(request, job):
                    answer(proof)
        elif isinstance(job, Timing):
            answer(time_steps(request.setup, job.seconds, clock))
        elif isinstance(job, Updating):
            from vebench.child.learner import time_updates

            answer(time_updates(request.setup, job, request.settings.policy, clock))
        elif isinstance(job, Stepping):
            from vebench.child.answers import Done
            from vebench.child.equality.recorder import step_trials

            step_trials(request, job, load_target(request.entry.target))
            answer(Done())
        else:
            adapter = load_target(request.entry.target)
            measure(request, adapter, affinity, unbound, priorities, started, clock, answer).close()
    except BaseException as error:  # noqa: BLE001 - a library may raise anything
        with suppress(OSError, ValueError):  # so that the log is in order
            sys.stdout.flush()
        printed = _printed_last() if isinstance(error, (EOFError, ConnectionError)) else ""
        traceback.print_exc()
        place = where(traceback.walk_tb(error.__traceback__))
        answer(Failure(", ".join(filter(None, (printed or describe(error), place)))))
        return 1
    return 0


def _printed_last() -> str:
    """Return the error on the last line of the log, if any. A worker whose pipe broke has printed the cause there."""
    with suppress(OSError):
        end = os.pread(2, 500, max(0, os.fstat(2).st_size - 500)).decode(errors="replace")
        last = " ".join(end.rstrip().rpartition("\n")[2].split())
        return f"in a worker process: {last}" if last.partition(":")[0].endswith("Error") else ""
    return ""


def hold_lifeline(lifeline: int) -> None:
    """Let the kernel end this process and its group when the pipe ``lifeline`` hangs up. Linux only.

    A cell that is stopped cannot react by itself. So the kernel is asked to send SIGKILL to this process, and SIGCONT
    and SIGTERM to its group. Python's resource tracker ignores SIGTERM, unlinks the shared memory of the ended
    processes, and then exits. If the kernel refuses, it is asked to end at least this process (``prctl``).
    """
    if sys.platform.startswith("linux"):
        group = -os.getpgrp()
        try:
            for number, target in ((signal.SIGKILL, os.getpid()), (signal.SIGTERM, group), (signal.SIGCONT, group)):
                # Reopen the pipe: other cells share the open file, which has only one recipient: fcntl(2).
                held = os.open(f"/proc/self/fd/{lifeline}", os.O_RDONLY | os.O_NONBLOCK)
                fcntl.fcntl(held, fcntl.F_SETOWN, target)
                fcntl.fcntl(held, fcntl.F_SETSIG, number)
                fcntl.fcntl(held, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        except OSError:  # /proc is missing, or a sandbox forbids it
            kernel.die_with_parent()
        poll = select.poll()
        poll.register(lifeline, 0)  # a hang-up is reported in any case
        if poll.poll(0):  # the parent was already gone
            os._exit(1)
    os.close(lifeline)


def fork_cells(channel: int, lifeline: int, modules: list[str]) -> int:
    """Fork cells until the socket ``channel`` is closed. Return the exit status, in this process and in each cell.

    The garbage collector is not tuned: collections must take as long in a forked cell as in a fresh interpreter.
    """
    os.set_inheritable(channel, False)
    hold_lifeline(lifeline)
    # All cells need these two modules.
    from vebench.backends import registry  # noqa: F401
    from vebench.child import cell as _  # noqa: F401

    for module in modules:
        importlib.import_module(module)
    memory = _memory()
    if len(kernel.own_threads()) != 1 or not _own(memory):
        return 1  # a forked cell would lack threads, or share memory, so use fresh interpreters
    for place, size, of_file in memory:
        if of_file:  # release the code of libraries, so that it counts fully in each cell
            _advise(place, size, 4)  # MADV_DONTNEED
    if (order := _serve(channel)) is None:
        return 0
    cell, (log, answers, go_ahead, lifeline) = order
    # Give this forked process the state of a process started for a cell.
    kernel.die_with_parent()
    os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    kernel.restrict(cell["cpus"])
    os.chdir(cell["folder"])
    sys.path[0] = os.environ["TMPDIR"] = cell["folder"]
    if "tempfile" in sys.modules:
        sys.modules["tempfile"].tempdir = None  # type: ignore[attr-defined] # forget the zygote's folder
    # /proc/PID/environ shows the memory where a process first got its environment. So write the mark into this memory,
    # and into os.environ for processes that this process starts.
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    mark = cell["mark"].encode()
    ctypes.memmove(getenv(guardian.CELL_VARIABLE.encode()), mark, len(mark))
    os.environ[guardian.CELL_VARIABLE] = cell["mark"]
    return begin(str(cell["request"]), answers, memory, go_ahead=go_ahead, lifeline=lifeline)


def _serve(channel: int) -> tuple[dict[str, Any], list[int]] | None:
    """Fork cells, and report their exit statuses. Returns the message and its descriptors in each forked cell."""
    import socket  # fresh interpreters do not need it

    statuses: dict[int, int] = {}  # the pipe for each cell's status, by process id

    def report(*_: object) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pipe = statuses.pop(ended[0])
                with suppress(OSError):
                    os.write(pipe, b"%d\n" % os.waitstatus_to_exitcode(ended[1]))
                os.close(pipe)

    signal.signal(signal.SIGCHLD, report)
    with socket.socket(fileno=channel) as asked:
        while True:
            message, descriptors, _, _ = socket.recv_fds(asked, 1 << 16, 5)
            if not message:
                return None
            *given, status = descriptors
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # until the cell is in ``statuses``
            if not (pid := os.fork()):
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
                for descriptor in (status, *statuses.values()):
                    os.close(descriptor)
                return json.loads(message), given
            statuses[pid] = status
            os.write(status, b"%d\n" % pid)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            for descriptor in given:
                os.close(descriptor)


def _memory() -> list[_Part]:
    """Return the parts of this process's memory that are present, and belong to files or can be written."""
    found, page = [], os.sysconf("SC_PAGE_SIZE")
    with open("/proc/self/maps", encoding="utf-8") as maps, open("/proc/self/pagemap", "rb") as pagemap:
        for area, rights, *_, name in (line.split() for line in maps):
            if rights[3] != "p" or name.startswith("[v"):  # shared memory, or an area of the kernel
                continue
            first, stop = (int(place, 16) // page for place in area.split("-"))
            entries = memoryview(os.pread(pagemap.fileno(), 8 * (stop - first), 8 * first)).cast("Q")
            # Bit 63: the page is present. Bit 61: it belongs to a file.
            for kind, run in groupby(enumerate(entries, first), lambda each: each[1] >> 61 & 0b101):
                numbers = [number for number, _ in run]
                of_file = bool(kind & 1)
                if kind & 0b100 and (of_file or rights[1] == "w"):
                    found.append((numbers[0] * page, len(numbers) * page, of_file))
    return found


def _own(memory: Sequence[_Part]) -> bool:
    """Give this process its own copy of all writable memory. Return whether the system supports that (Linux 5.14).

    Without own copies, pages would be copied during windows, might be on another memory node, and would count in part.
    """
    for place, size, of_file in memory:
        failed = _advise(place, size, 22 if of_file else 23)  # MADV_POPULATE_READ, MADV_POPULATE_WRITE
        if failed and ctypes.get_errno() != errno.ENOMEM:  # ENOMEM: the allocator has since trimmed the heap
            return False
    return True


def _advise(place: int, size: int, advice: int) -> int:
    return int(kernel.libc().madvise(ctypes.c_void_p(place), ctypes.c_size_t(size), advice))


if __name__ == "__main__":
    if sys.argv[1] == "fork":
        sys.exit(fork_cells(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
    sys.exit(begin(sys.argv[1], int(sys.argv[2])))
