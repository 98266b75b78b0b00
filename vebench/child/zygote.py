"""A process from which cells are forked: ``python -m vebench.child.zygote SOCKET LIFELINE MODULE ...``.

It imports the modules, which cells need. It starts no thread and makes no environment, and sleeps but for the
moments in which it forks. Its collector is left as imports have left it, and nothing is frozen: collections must take
as long in a forked cell as in a fresh interpreter. How it is asked: ``Zygote`` in ``vebench.child.process``.
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
from typing import Any

from vebench.child.main import begin, die_with_parent, hold_lifeline
from vebench.machine import guardian, pinning

_LONGEST = 1 << 16  # bytes of a message
_PAGE = os.sysconf("SC_PAGE_SIZE")
# An entry of /proc/PID/pagemap shifted by this: 4 if the page is there, and 1 more if it is one of a file.
_PRESENT, _OWN, _OF_FILE = 61, 4, 5
# linux/mman.h: the latter two since 5.14.
_DONTNEED, _POPULATE_READ, _POPULATE_WRITE = 4, 22, 23


def main(channel: int, lifeline: int, modules: list[str]) -> int:
    """Fork cells until the socket ``channel`` is closed; each goes on here, and returns its exit status."""
    os.set_inheritable(channel, False)
    hold_lifeline(lifeline)
    from vebench.backends import registry  # noqa: F401, PLC0415 - all cells need both
    from vebench.child import cell as _  # noqa: F401, PLC0415 - same reason

    for module in modules:
        importlib.import_module(module)
    pages = _pages()
    if len(pinning.own_threads()) != 1 or not _own(pages):
        return 1  # a forked cell would lack threads, or share memory: cells get fresh interpreters
    for address, length, of_file in pages:
        if of_file:  # so that the code of libraries counts in cells alone
            _advise(address, length, _DONTNEED)
    with socket.socket(fileno=channel) as asked:
        cell = _serve(asked)
    if cell is None:
        return 0
    message, log, answers, go_ahead, lifeline = cell
    request = _become(json.loads(message), log)
    return begin(request, answers, partial(_own, pages), go_ahead=go_ahead, lifeline=lifeline)


def _serve(asked: socket.socket) -> tuple[bytes, int, int, int, int] | None:
    """Fork cells, and report their ids and how they end. Returns in each of them what it was asked, at the end None."""
    statuses: dict[int, int] = {}

    def report(*_: object) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                told = statuses.pop(ended[0])
                with suppress(OSError):
                    os.write(told, b"%d\n" % os.waitstatus_to_exitcode(ended[1]))
                os.close(told)

    signal.signal(signal.SIGCHLD, report)
    while True:
        message, received, _, _ = socket.recv_fds(asked, _LONGEST, 5)
        if not message:
            return None
        log, answers, go_ahead, lifeline, told = received
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # one that ends at once is reported, too
        if not (pid := os.fork()):
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            for descriptor in (told, *statuses.values()):
                os.close(descriptor)
            return message, log, answers, go_ahead, lifeline
        statuses[pid] = told
        os.write(told, b"%d\n" % pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        for descriptor in (log, answers, go_ahead, lifeline):
            os.close(descriptor)


def _pages() -> list[tuple[int, int, bool]]:
    """Return where the memory of this process lies: address and length of each part, and whether that is of a file."""
    found = []
    with open("/proc/self/maps", encoding="utf-8") as maps, open("/proc/self/pagemap", "rb") as pagemap:  # noqa: PTH123
        for area, rights, *_, name in (line.split() for line in maps):
            first, stop = (int(place, 16) // _PAGE for place in area.split("-"))
            if rights[3] == "p" and not name.startswith("[v"):  # neither shared memory nor the kernel's
                entries = memoryview(os.pread(pagemap.fileno(), 8 * (stop - first), 8 * first)).cast("Q")
                for kind, run in groupby(enumerate(entries, first), lambda each: each[1] >> _PRESENT & 5):
                    numbers = [number for number, _ in run]
                    if kind == _OF_FILE or (kind == _OWN and rights[1] == "w"):
                        found.append((numbers[0] * _PAGE, len(numbers) * _PAGE, kind == _OF_FILE))
    return found


def _own(pages: list[tuple[int, int, bool]]) -> bool:
    """Let this process share no memory that can be written, and have in it what a fresh interpreter would have.

    Otherwise pages would be copied one by one in the windows that are measured, would lie on another node than the
    policy of a cell says, and would count as a part of a page. Returns whether the system can do so.
    """
    return all(
        not _advise(address, length, _POPULATE_READ if of_file else _POPULATE_WRITE)
        or ctypes.get_errno() == errno.ENOMEM  # its end was given back since: the allocator trims the heap
        for address, length, of_file in pages
    )


def _advise(address: int, length: int, what: int) -> int:
    return int(pinning.libc().madvise(ctypes.c_void_p(address), ctypes.c_size_t(length), what))


def _become(cell: dict[str, Any], log: int) -> str:
    """Make this forked process look as if it had been started for a cell. Returns the file with its request."""
    die_with_parent()
    os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    pinning.restrict(cell["cpus"])
    os.chdir(cell["folder"])
    sys.path[0] = os.environ["TMPDIR"] = cell["folder"]
    tempfile.tempdir = None
    # The kernel shows the memory in which a process got its environment: the mark is written there, and then kept for
    # processes that this one starts.
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    mark = cell["mark"].encode()
    ctypes.memmove(getenv(guardian.CELL_VARIABLE.encode()), mark, len(mark))
    os.environ[guardian.CELL_VARIABLE] = cell["mark"]
    return str(cell["request"])


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
