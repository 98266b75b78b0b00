"""A worker as its caller sees it: how it is started, asked, answered by, and ended."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import socket
import threading
from multiprocessing import connection
from typing import TYPE_CHECKING, Any

from vebench.backends.shared_memory.errors import WorkerError
from vebench.backends.shared_memory.handshake import FUTEX, light_fence
from vebench.backends.shared_memory.worker import (
    ALL,
    END,
    LOOK_SECONDS,
    MESSAGE,
    TeamConfig,
    WorkerConfig,
    make_bell,
    run_worker,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from vebench.backends.shared_memory.handshake import Bell
    from vebench.backends.shared_memory.memory_layout import Memory, Words
    from vebench.backends.shared_memory.worker import Pipe

END_WITHIN_SECONDS = 2.0  # how long a worker may take to end by itself
NOT_YET = object()  # stands for an answer that has not come


class WorkerHandle:
    """A worker process, and the caller's side of the ring of entries through which it is asked.

    An entry is put into the ring, and the worker sees it once it is notified. It answers entries in their order. What
    its share returned for an entry, the remark on it, follows on the channel unless it is None. A ring has a slot for
    each entry that may be on its way. The ring of a synchronous team has one slot, which asks for a step of all
    environments again and again. The worker has the environments ``start`` to ``stop - 1``.
    """

    def __init__(
        self, process: BaseProcess, channel: Connection, words: Words, bell: Bell, share: tuple[int, int]
    ) -> None:
        self.process, self._channel, self._bell = process, channel, bell
        self.start, self.stop = share
        self._request, self._done, self._asleep, self._entries, self._remarks = words
        self._fence = light_fence()
        self._ring = len(self._entries)
        self._sent = self._read = 0  # entries put into the ring, and answers read
        self._entries[0] = ALL

    # Asking.

    @staticmethod
    def step_all(workers: Sequence[WorkerHandle], entry: int, fence: Callable[[], None] | None) -> None:
        """Ask every worker to step all its environments, or to build them if it was not asked for anything before.

        ``entry`` counts what they were asked for, this included: to ask again with the same number changes nothing.
        This runs in every synchronous step, so it does by itself what ``notify`` does for one worker: without a call
        for each worker, and with one fence for all.
        """
        if fence:
            fence()
        for worker in workers:
            worker._sent = entry  # noqa: SLF001 - its own class
            worker._request[0] = entry  # noqa: SLF001 - likewise
            if worker._asleep[0]:  # noqa: SLF001 - likewise
                worker._wake()  # noqa: SLF001 - likewise

    @property
    def next_entry(self) -> int:
        """The number of the next entry."""
        return self._sent + 1

    def ask(self, entry: int) -> None:
        """Put an entry into the ring: the index of an environment in the share, which asks for a step of it."""
        self._entries[self._sent % self._ring] = entry
        self._sent += 1

    def ask_message(self, message: bytes) -> None:
        """Ask for what a message says, and notify the worker."""
        self.ask(MESSAGE)
        self.notify()
        # Only now, since it may be longer than the socket holds: the worker must be reading.
        with contextlib.suppress(OSError):  # if the worker is gone, waiting for its answer will say so
            self._channel.send_bytes(message)

    def ask_for_steps_again(self) -> None:
        """Let the first slot of the ring ask for a step of all environments again, after a message was answered."""
        self._entries[0] = ALL

    def ask_to_end(self) -> None:
        """Ask the worker to end before the next thing that it would do. It cannot be asked for anything else then."""
        for slot in range(self._ring):
            self._entries[slot] = END
        self._sent += 1
        # Without the fence: if an interrupt came within it, its lock may be free, and releasing that would raise.
        self._request[0] = self._sent
        self._wake()
        # Processes forked since then hold copies of this end, so closing ours alone would not reach the worker.
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._channel.fileno())) as ours:
            ours.shutdown(socket.SHUT_RDWR)
        self._channel.close()

    def notify(self) -> None:
        """Let the worker see the entries that were put into the ring since it was notified last, if any."""
        if self._request[0] == self._sent:
            return
        if self._fence:
            self._fence()
        self._request[0] = self._sent
        if self._asleep[0]:
            self._wake()

    def _wake(self) -> None:
        """Wake the worker, which is asleep or about to be."""
        self._asleep[0] = 0
        self._bell.ring()

    # Answers.

    def is_done(self) -> bool:
        """Return whether every entry has been answered."""
        return self._done[0] == self._sent

    def has_answers(self) -> bool:
        """Return whether an entry has been answered whose answer was not read yet."""
        return self._done[0] != self._read

    @property
    def unread(self) -> int:
        """How many entries there are whose answer was not read yet, answered or not."""
        return self._sent - self._read

    def answer(self) -> Any:  # noqa: ANN401 - whatever the share returned
        """Return the remark on what was asked for last, None mostly; ``NOT_YET`` if that has not been answered.

        Raises WorkerError if the worker dies before it has sent the remark.
        """
        if self._done[0] != self._sent:
            return NOT_YET
        if self._fence:
            self._fence()
        remark = self._receive() if self._remarks[self._read % self._ring] else None
        self._read = self._sent
        return remark

    def answers(self) -> Iterator[tuple[int, Any]]:
        """Read the answers that there are, one by one: the index of the environment and the remark, None mostly.

        Raises WorkerError as ``answer`` does.
        """
        done = self._done[0]
        if self._fence:
            self._fence()
        entries, remarks, ring = self._entries, self._remarks, self._ring
        while self._read != done:
            slot = self._read % ring
            remark = self._receive() if remarks[slot] else None
            self._read += 1
            yield entries[slot], remark

    def _receive(self) -> Any:  # noqa: ANN401 - whatever the share returned
        try:
            remark = self._next_message()
        except (EOFError, OSError):  # the latter if it breaks off within a message
            raise WorkerError(self.cause_of_death(), None) from None
        self._remarks[self._read % self._ring] = 0
        return pickle.loads(remark)  # noqa: S301 - from our own worker

    def _next_message(self) -> bytes:
        while not self._channel.poll(LOOK_SECONDS):
            if self.has_died():  # its own processes may keep its end of the channel open
                raise EOFError
        return self._channel.recv_bytes()

    # Its end.

    def has_died(self) -> bool:
        """Return whether the process has ended."""
        return bool(connection.wait([self.process.sentinel], 0))

    def cause_of_death(self) -> str:
        """Return which environments died with the worker, and how."""
        self.process.join(END_WITHIN_SECONDS)
        code = self.process.exitcode
        ended = signal.Signals(-code).name if code is not None and code < 0 else f"exit status {code}"
        return f"the worker of environments {self.start} to {self.stop - 1} died ({ended})"

    def kill(self) -> None:
        """End the process by force if it has not ended, and forget it."""
        self.process.kill()
        self.process.join()
        with contextlib.suppress(ValueError):  # somebody else has collected its exit status
            self.process.close()


def bell_pipes(count: int) -> list[Pipe | None]:
    """Return a pipe for each of ``count`` bells; None for each where there are futexes, which need no pipe."""
    return [None if FUTEX else multiprocessing.Pipe(duplex=False) for _ in range(count)]


def start_worker(
    team: TeamConfig, memory: Memory, number: int, pipe: Pipe | None, caller_pipe: Pipe | None
) -> WorkerHandle:
    """Start a worker, which builds its environments at the first entry. The pipes are for its bell and the caller's."""
    context = multiprocessing.get_context(team.context)
    method = context.get_start_method()
    words = team.layout.words(memory.map, number)
    bell = make_bell(memory, words.asleep, pipe)
    ours, theirs = context.Pipe()
    config = WorkerConfig(
        team,
        memory,
        number,
        theirs,
        caller=os.getpid(),
        forked=method == "fork",
        # A spawned worker may come to the call that binds it after the caller has gone.
        bound=threading.current_thread() is threading.main_thread() and method == "fork",
        pipe=pipe,
        caller_pipe=caller_pipe,
    )
    process: BaseProcess = context.Process(  # type: ignore[attr-defined]  # every context has one
        target=run_worker, args=(config,), name=f"{team.name}-{number}", daemon=team.daemon
    )
    with _interrupts_held() if method != "forkserver" else contextlib.nullcontext():
        process.start()
    theirs.close()
    return WorkerHandle(process, ours, words, bell, team.division.shares[number])


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back until the end, in the processes started too: they unblock it once they ignore it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
