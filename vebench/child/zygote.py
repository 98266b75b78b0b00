"""A process from which cells are forked: ``python -m vebench.child.zygote SOCKET LIFELINE MODULE ...``.

It imports the modules that cells need. It starts no threads, creates no environments, and sleeps except when forking.
Its garbage collector is left alone and nothing is frozen: collections must take as long in a forked cell as in a fresh
interpreter. ``Zygote`` in ``vebench.child.process`` writes its messages.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import json
import os
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from vebench.child.main import begin, die_with_parent, hold_lifeline
from vebench.machine import guardian, pinning

_MOST_BYTES = 1 << 16  # of a message
_PAGE = os.sysconf("SC_PAGE_SIZE")
# An entry of /proc/PID/pagemap, shifted: 4 if the page is present, and 1 more if it belongs to a file.
_PRESENT, _OWN, _OF_FILE = 61, 4, 5
# linux/mman.h: the latter two since 5.14.
_DONTNEED, _POPULATE_READ, _POPULATE_WRITE = 4, 22, 23


class _Order(NamedTuple):
    """A message: what to fork a cell for, with its descriptors."""

    cell: bytes  # JSON
    log: int
    answers: int
    go_ahead: int
    lifeline: int


class _Pages(NamedTuple):
    """A part of this process's memory."""

    address: int
    length: int
    of_file: bool


def main(channel: int, lifeline: int, modules: list[str]) -> int:
    """Fork cells until the socket ``channel`` is closed; each goes on here, and returns its exit status."""
    os.set_inheritable(channel, False)
    hold_lifeline(lifeline)
    # All cells need both.
    from vebench.backends import registry  # noqa: F401
    from vebench.child import cell as _  # noqa: F401

    for module in modules:
        importlib.import_module(module)
    memory = _memory()
    if len(pinning.own_threads()) != 1 or not _own(memory):
        return 1  # a forked cell would lack threads, or share memory: cells get fresh interpreters
    for pages in memory:
        if pages.of_file:  # so that only cells account for the code of libraries
            _advise(pages, _DONTNEED)
    with socket.socket(fileno=channel) as asked:
        order = _serve(asked)
    if order is None:
        return 0
    request = _become(json.loads(order.cell), order.log)
    own_memory = partial(_own, memory)
    return begin(request, order.answers, own_memory, go_ahead=order.go_ahead, lifeline=order.lifeline)


def _serve(asked: socket.socket) -> _Order | None:
    """Fork cells, and report their process ids and how they end. Returns its order in each cell, in the end None."""
    statuses: dict[int, int] = {}  # the pipe for each cell's status, by process id

    def report(*_: object) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pipe = statuses.pop(ended[0])
                with suppress(OSError):
                    os.write(pipe, b"%d\n" % os.waitstatus_to_exitcode(ended[1]))
                os.close(pipe)

    signal.signal(signal.SIGCHLD, report)
    while True:
        message, descriptors, _, _ = socket.recv_fds(asked, _MOST_BYTES, 5)
        if not message:
            return None
        *given, status = descriptors
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # until the cell is in ``statuses``
        if not (pid := os.fork()):
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            for descriptor in (status, *statuses.values()):
                os.close(descriptor)
            return _Order(message, *given)
        statuses[pid] = status
        os.write(status, b"%d\n" % pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        for descriptor in given:
            os.close(descriptor)


def _memory() -> list[_Pages]:
    """Return the present pages of this process that belong to files, or can be written."""
    found = []
    with open("/proc/self/maps", encoding="utf-8") as maps, open("/proc/self/pagemap", "rb") as pagemap:
        for area, rights, *_, name in (line.split() for line in maps):
            first, stop = (int(place, 16) // _PAGE for place in area.split("-"))
            if rights[3] != "p" or name.startswith("[v"):  # shared memory, or the kernel's
                continue
            entries = memoryview(os.pread(pagemap.fileno(), 8 * (stop - first), 8 * first)).cast("Q")
            for kind, run in groupby(enumerate(entries, first), lambda each: each[1] >> _PRESENT & 5):
                numbers = [number for number, _ in run]
                if kind == _OF_FILE or (kind == _OWN and rights[1] == "w"):
                    found.append(_Pages(numbers[0] * _PAGE, len(numbers) * _PAGE, kind == _OF_FILE))
    return found


def _own(memory: list[_Pages]) -> bool:
    """Give this process its own copy of all memory that can be written, as a fresh interpreter has it.

    Otherwise pages would be copied in the measured windows, might lie on another memory node than the cell's policy
    says, and would count only in part. Returns whether the system can do so.
    """
    for pages in memory:
        failed = _advise(pages, _POPULATE_READ if pages.of_file else _POPULATE_WRITE)
        if failed and ctypes.get_errno() != errno.ENOMEM:  # no memory there: the allocator has trimmed the heap
            return False
    return True


def _advise(pages: _Pages, advice: int) -> int:
    return int(pinning.libc().madvise(ctypes.c_void_p(pages.address), ctypes.c_size_t(pages.length), advice))


def _become(cell: dict[str, Any], log: int) -> str:
    """Make this forked process look as if it had been started for a cell. Returns the path of its request."""
    die_with_parent()
    os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    pinning.restrict(cell["cpus"])
    os.chdir(cell["folder"])
    sys.path[0] = os.environ["TMPDIR"] = cell["folder"]
    tempfile.tempdir = None
    # /proc/PID/environ shows the memory in which a process got its environment. So the mark is written there, and into
    # os.environ for processes that this one starts.
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    mark = cell["mark"].encode()
    ctypes.memmove(getenv(guardian.CELL_VARIABLE.encode()), mark, len(mark))
    os.environ[guardian.CELL_VARIABLE] = cell["mark"]
    return str(cell["request"])


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
