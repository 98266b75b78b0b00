"""A worker as its caller sees it, and how one is started."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vebench.backends.shared_memory.handshake import FUTEX, FutexBell, PipeBell
from vebench.backends.shared_memory.worker import ALL, END, WorkerConfig, run_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from vebench.backends.shared_memory.division import Division
    from vebench.backends.shared_memory.handshake import Bell
    from vebench.backends.shared_memory.memory_layout import Arrays, Memory, MemoryLayout, Words
    from vebench.backends.shared_memory.worker import Share

GRACE_SECONDS = 2.0  # how long workers may take to end by themselves


class WorkerHandle:
    """A worker: its words, how many entries it was sent, and how many of its answers were read.

    ``stepping`` holds the environments that it was asked for one by one and that are not read yet, in that order.
    """

    def __init__(
        self, process: BaseProcess, channel: Connection, words: Words, bell: Bell, share: tuple[int, int]
    ) -> None:
        self.process, self.channel, self._bell = process, channel, bell
        self.request, self.done, self.asleep, self.entries, self.remarks = words
        self.start, self.stop = share
        self.sent = self.read = 0
        self.stepping: deque[int] = deque()
        self.entries[0] = ALL

    def is_done(self) -> bool:
        """Return whether everything asked for has been answered."""
        return self.done[0] == self.sent

    def wake(self) -> None:
        """Wake the worker, which is asleep or about to be."""
        self.asleep[0] = 0
        self._bell.ring()

    def notify(self, fence: Callable[[], None] | None) -> None:
        """Let the worker see what it was asked for."""
        if fence:
            fence()
        self.request[0] = self.sent
        if self.asleep[0]:
            self.wake()

    def ask_to_end(self) -> None:
        """Have the worker end before the next thing it would do."""
        for place in range(len(self.entries)):
            self.entries[place] = END
        self.sent += 1
        self.notify(None)
        self.wake()
        # Processes forked since then hold copies of this end: to close ours alone would tell the worker nothing.
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.channel.fileno())) as ours:
            ours.shutdown(socket.SHUT_RDWR)
        self.channel.close()

    def cause_of_death(self) -> str:
        """Return which environments died with the worker, and how."""
        self.process.join(GRACE_SECONDS)
        code = self.process.exitcode
        ended = signal.Signals(-code).name if code is not None and code < 0 else f"exit status {code}"
        return f"the worker of environments {self.start} to {self.stop - 1} died ({ended})"


@dataclass(frozen=True)
class Starter:
    """Starts the workers of one team, by the start method ``context`` (Python's default if None)."""

    division: Division
    layout: MemoryLayout
    memory: Memory
    make_share: Callable[[Arrays, int, int], Share]
    context: str | None
    daemon: bool
    name: str
    pipes: list[tuple[Connection, Connection]] = field(default_factory=list)

    def bell(self, flag: memoryview, number: int) -> Bell:
        """Return the bell of a worker, or of the caller, which is number -1. Each may be asked for once."""
        if FUTEX:
            return FutexBell(self.memory.map, flag)
        if not self.pipes:
            self.pipes.extend(multiprocessing.Pipe(duplex=False) for _ in range(len(self.division.shares) + 1))
        return PipeBell(*self.pipes[number])

    def start(self, number: int) -> WorkerHandle:
        """Start a worker; it builds its environments at the first request."""
        context = multiprocessing.get_context(self.context)
        method = context.get_start_method()
        words = self.layout.words(self.memory.map, number)
        member_bell = self.bell(words.asleep, number)
        ours, theirs = context.Pipe()
        start, stop = self.division.shares[number]
        post = WorkerConfig(
            number,
            start,
            stop,
            self.layout,
            self.memory,
            self.make_share,
            theirs,
            caller=os.getpid(),
            # One that is spawned may come to the call that binds it after the caller has gone.
            bound=threading.current_thread() is threading.main_thread() and method == "fork",
            forked=method == "fork",
            spin_ns=self.division.spin_ns,
            cpu=self.division.cpu_of(number),
            bells=(self.pipes[number], self.pipes[-1]) if self.pipes else None,
        )
        process: BaseProcess = context.Process(  # type: ignore[attr-defined]  # every context has one
            target=run_worker, args=(post,), name=f"{self.name}-{number}", daemon=self.daemon
        )
        with _interrupts_held() if method != "forkserver" else contextlib.nullcontext():
            process.start()
        theirs.close()
        return WorkerHandle(process, ours, words, member_bell, (start, stop))


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Keep Ctrl-C until the end, in the processes started too: they let it come once they ignore it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
