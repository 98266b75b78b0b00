"""Backends as people write them: threads, queues and semaphores."""

import multiprocessing
import os
import signal
from contextlib import closing

import numpy as np
import pytest

from vebench.backends.environments.suites import OTHER, load_target
from vebench.backends.interface import Setup, Task
from vebench.backends.registry import find
from vebench.backends.workers import QueueBackend, TorchMultiprocessing

CARTPOLE = Task("CartPole-v1", "classic", 1)
FAULTY = Task("odd/Faulty-raises-v0", OTHER.name, 1, module="odd")
BY_SEMAPHORES = type("BySemaphores", (QueueBackend,), {"semaphore": TorchMultiprocessing.semaphore})


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


@pytest.mark.parametrize("kind", [QueueBackend, BY_SEMAPHORES])
def test_a_worker_that_fails_says_why(kind: type[QueueBackend]) -> None:
    with closing(kind(Setup(FAULTY, 5, 1, (0, 1)))) as backend:
        backend.reset(0)
        backend.recv()
        with pytest.raises(RuntimeError, match=r"^environment 3: ValueError: boom"):
            for _ in range(3):
                backend.send(np.zeros(5, np.int64))
                backend.recv()
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("name", ["shm-sync", "shm-async", "threads", "queue"])
@pytest.mark.parametrize("waits", [True, False])
def test_each_worker_is_a_process_or_thread_if_steps_wait(name: str, waits: bool) -> None:
    task = Task("vebench/Sleep-1000us-v0", OTHER.name, 1, module="timed")
    cpus = tuple(sorted(os.sched_getaffinity(0)))[:1]
    with closing(load_target(find(name).target)(Setup(task, 3, cpus=cpus, pinned=True, waits=waits))) as backend:
        backend.reset(0)
        batch = backend.recv()
        backend.send(np.zeros(len(batch.rewards), np.int64))
        assert backend.recv().rewards.shape == (3,)
        planned = find(name).shape_of(3, 1, 1, {}, waits)
        assert (backend.info.processes, backend.info.threads) == (planned.processes, planned.threads)
        assert planned.processes * planned.threads == (3 if waits else 1)
