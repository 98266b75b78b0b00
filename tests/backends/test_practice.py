"""Backends as people write them: threads, queues, semaphores, and loops that exchange nothing."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import NoReturn

import numpy as np
import pytest
from support.waiting import PATIENCE_S

from vebench.backends.environments.suites import OTHER
from vebench.backends.interface import Setup, Task
from vebench.backends.workers import QueueBackend, Threads, _Queues, _Semaphores

CARTPOLE = Task("CartPole-v1", "classic", 1)
VERBOSE = Task("odd/Verbose-v0", OTHER.name, 1, module="odd")


def test_a_worker_that_dies_is_named_by_its_environments() -> None:
    with closing(QueueBackend(Setup(CARTPOLE, 2, 2, (0, 1)))) as backend:
        backend.reset(0)
        backend.recv()
        victim = backend._processes[1]
        os.kill(victim.pid or 0, signal.SIGKILL)
        victim.join()
        backend.send(np.zeros(4, np.int64))
        with pytest.raises(RuntimeError, match=r"the process of environments 2 to 3 died \(exit status -9\)"):
            backend.recv()


@pytest.fixture
def patience() -> Iterator[None]:
    """Give up a test that hangs."""

    def give_up(*_: object) -> NoReturn:
        raise TimeoutError(f"this has hung for {PATIENCE_S} seconds")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(int(PATIENCE_S))
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def until_all_fail(backend: QueueBackend) -> None:
    """Leave three workers, one environment each, when all of them fail in the next ``recv``."""
    backend.reset(0)
    backend.recv()
    for _ in range(2):
        backend.send(np.zeros(3, np.int64))
        backend.recv()
    backend.send(np.zeros(3, np.int64))


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("signals", [_Queues, _Semaphores])
def test_each_worker_that_fails_is_heard_however_much_they_say_at_once(signals: type[_Queues]) -> None:
    kind = type("Kind", (QueueBackend,), {"signals": signals})
    with closing(kind(Setup(VERBOSE, 3, 1, (0, 1, 2)))) as backend:
        for _ in range(2):  # a reset begins anew
            until_all_fail(backend)
            failures = []
            for _ in range(3):
                with pytest.raises(RuntimeError) as caught:
                    backend.recv()
                failures.append(str(caught.value).partition("boomboom")[0])
            assert sorted(failures) == [f"environment {number}: ValueError: " for number in range(3)]
        until_all_fail(backend)
    assert multiprocessing.active_children() == []


def test_each_thread_steps_a_share_of_its_own() -> None:
    before = threading.active_count()
    with closing(Threads(Setup(CARTPOLE, 3, 2, (0, 1)))) as backend:
        assert (backend.info.threads, backend.info.processes) == (2, 1)
        backend.reset(0)
        backend.recv()
        backend.send(np.zeros(6, np.int64))
        assert backend.recv().env_ids.tolist() == [*range(6)]
    assert threading.active_count() == before
