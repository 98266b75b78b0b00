"""Our own processes: each owns a share of the environments and writes its rows straight into the shared batch.

The arrays lie in anonymous shared memory, mapped before the processes are forked: it has no name, so nothing is left of
it when the last process ends, however that ends. Requests and answers are messages on a socket pair for each worker.
Both sides notice at once when the other is gone, since its end of the socket is then closed.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import multiprocessing
import signal
import socket
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vebench.backends.environments import make, read_spaces
from vebench.backends.for_loop import Loop
from vebench.backends.interface import BackendInfo, Batch, NothingToReceiveError

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    import gymnasium
    from numpy.typing import DTypeLike, NDArray

    from vebench.backends.environments import Spaces
    from vebench.backends.interface import Setup, Task

STEP = b"step"  # any other request is a seed to reset with
DONE = b"done"  # any other answer is what went wrong, with the traceback
LONGEST_MESSAGE = 1 << 16
LOOK_SECONDS = 0.5  # how often a caller that waits looks whether the worker is still there
GRACE_SECONDS = 1.0  # how long workers may take to end by themselves


@dataclass(frozen=True)
class _Worker:
    """One process and the caller's end of its socket, for the environments from ``start`` up to ``stop``."""

    process: BaseProcess
    channel: socket.socket
    start: int
    stop: int

    def answer(self) -> bytes:
        """Wait for the answer to the last request. It is empty if the process has died."""
        dead = False
        while True:
            try:
                return self.channel.recv(LONGEST_MESSAGE)
            except TimeoutError:
                # A process that the environment started may still hold the worker's end of the socket open.
                if dead:
                    return b""
                dead = not self.process.is_alive()
            except ConnectionError:
                return b""

    def describe_failure(self, answer: bytes) -> str:
        """Return what happened, from an answer that is not ``DONE``."""
        if answer:
            return answer.decode(errors="replace")
        self.process.join(GRACE_SECONDS)
        code = self.process.exitcode
        ended = signal.Signals(-code).name if code is not None and code < 0 else f"exit status {code}"
        return f"the worker of environments {self.start} to {self.stop - 1} died ({ended})"


class ShmSync:
    """``min(workers, CPUs owned)`` processes that step all environments between them. Rewards are float64."""

    def __init__(self, setup: Setup) -> None:
        example = make(setup.task)
        spaces = read_spaces(setup.task, example.observation_space, example.action_space)
        example.close()
        count = setup.batch_size
        processes = min(setup.workers, len(setup.cpus))
        self._batch = _shared_rows(spaces, count)
        actions = spaces.actions
        self._actions = _shared_zeros((count, *actions.low.shape), actions.low.dtype)
        self._pending = False
        self._workers: list[_Worker] = []
        bounds = [index * count // processes for index in range(processes + 1)]
        try:
            for start, stop in zip(bounds, bounds[1:], strict=False):  # noqa: RUF007 - pairwise would be no clearer
                self._workers.append(self._start(setup.task, start, stop))
            self._collect()
        except BaseException:
            self.close()
            raise
        self.info = BackendInfo(
            num_envs=count,
            batch_size=count,
            action_space=actions,
            frame_skip=setup.task.frame_skip,
            processes=processes,
            reuses_buffers=True,
        )

    def _start(self, task: Task, start: int, stop: int) -> _Worker:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        rows = Batch._make(array[start:stop] for array in self._batch)
        not_theirs = [ours, *(worker.channel for worker in self._workers)]
        process = multiprocessing.get_context("fork").Process(
            target=_serve, args=(task, rows, self._actions[start:stop], theirs, not_theirs), daemon=True
        )
        process.start()
        theirs.close()
        ours.settimeout(LOOK_SECONDS)
        return _Worker(process, ours, start, stop)

    def reset(self, seed: int) -> None:
        """Start a new episode in every environment, environment ``i`` seeded with ``seed + i``."""
        if self._pending:
            self._pending = False
            self._collect()
        self._request(str(seed).encode())

    def send(self, actions: NDArray[np.generic]) -> None:
        """Write the actions into shared memory and wake the workers."""
        self._actions[...] = actions
        self._request(STEP)

    def _request(self, request: bytes) -> None:
        # A worker that is gone is told of by recv, which can say how it ended.
        with contextlib.suppress(ConnectionError):
            for worker in self._workers:
                worker.channel.send(request)
        self._pending = True

    def recv(self) -> Batch:
        """Wait for every worker and return all rows, in the order of ids.

        Raises RuntimeError with the worker's traceback if an environment raised, and if a worker died.
        """
        if not self._pending:
            raise NothingToReceiveError
        self._pending = False
        self._collect()
        return self._batch

    def _collect(self) -> None:
        for worker in self._workers:
            answer = worker.answer()
            if answer != DONE:
                raise RuntimeError(worker.describe_failure(answer))

    def close(self) -> None:
        """End every worker: of itself within a second, or else by force."""
        for worker in self._workers:
            # Processes forked since then hold copies of this end: to close ours alone would tell the worker nothing.
            with contextlib.suppress(OSError):
                worker.channel.shutdown(socket.SHUT_RDWR)
            worker.channel.close()
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in self._workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
        for worker in self._workers:
            worker.process.kill()
            worker.process.join()
            worker.process.close()
        self._workers = []
        self._pending = False


def _shared_zeros(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return zeros, on pages of their own, that processes forked from this one share."""
    size = math.prod(shape)
    pages = mmap.mmap(-1, max(1, size * np.dtype(dtype).itemsize))
    return np.frombuffer(pages, dtype, size).reshape(shape)


def _shared_rows(spaces: Spaces, count: int) -> Batch:
    *shared, env_ids = spaces.rows(count)
    return Batch._make((*(_shared_zeros(array.shape, array.dtype) for array in shared), env_ids))


def _serve(
    task: Task, rows: Batch, actions: NDArray[Any], channel: socket.socket, not_ours: list[socket.socket]
) -> None:
    """Step a share of the environments on request, until the caller closes its end of the socket or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group: it is the caller's to act on
    for inherited in not_ours:
        inherited.close()
    environments: list[gymnasium.Env[Any, Any]] = []
    try:
        environments.extend(make(task) for _ in rows.env_ids)
        loop = Loop(environments, rows)
        channel.send(DONE)
        while request := channel.recv(LONGEST_MESSAGE):
            if request == STEP:
                loop.step(actions)
            else:
                loop.reset(int(request))
            channel.send(DONE)
    except ConnectionError:
        pass  # the caller is gone
    except Exception as error:  # noqa: BLE001 - whatever it is, the caller raises it
        with contextlib.suppress(ConnectionError):
            channel.send(f"{error}\n\n{traceback.format_exc()}".encode()[:LONGEST_MESSAGE])
    finally:
        for environment in environments:
            environment.close()
