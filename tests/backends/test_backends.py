"""What only some backends do: workers that fail or lose their caller, the ceiling's counting, EnvPool's settings."""

import multiprocessing
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.leaks import are_gone, segments

from vebench.backends.environments.simulators import Physics
from vebench.backends.environments.suites import BURST
from vebench.backends.for_loop import ForLoop
from vebench.backends.interface import Factory, Setup, Task, VectorBackend
from vebench.backends.one_in_flight import GymAsync
from vebench.backends.pools import AleVectorSync, EnvPoolSync
from vebench.backends.reference_rows import Ceiling
from vebench.backends.shared_memory.backend import ShmAsync, ShmSync

PONG = Task("ALE/Pong-v5", "atari", 4)
CHEETAH = Task("HalfCheetah-v5", "mujoco", 5)
LONG = 20.0  # seconds after which a test that waits gives up


def faulty(fault: str) -> Setup:
    """Return five environments in two workers; the one with id 3 has the fault in its third step."""
    return Setup(Task(f"odd/Faulty-{fault}-v0", "gymnasium", 1, module="odd"), workers=5, cpus=(0, 1))


def until_third_step(backend: VectorBackend) -> None:
    """Leave the backend before the ``recv`` that meets the fault."""
    backend.reset(0)
    backend.recv()
    for step in range(3):
        backend.send(np.zeros(5, np.int64))
        if step < 2:
            backend.recv()


@pytest.mark.parametrize("backend_class", [ForLoop, ShmSync])
def test_an_exception_in_an_environment_reaches_the_caller_with_its_index(backend_class: Factory) -> None:
    backend = backend_class(faulty("raises"))
    until_third_step(backend)
    with pytest.raises(RuntimeError, match=r"^environment 3: ValueError: boom") as caught:
        backend.recv()
    assert backend_class is ForLoop or "in step\n" in str(caught.value.__cause__)
    backend.close()


@pytest.mark.parametrize(("fault", "text"), [("raises", "environment 3: ValueError: boom"), ("dies", "SIGKILL")])
def test_a_fault_in_an_asynchronous_backend_is_an_error_and_not_a_hang(fault: str, text: str) -> None:
    backend = ShmAsync(replace(faulty(fault), workers=3))
    backend.reset(0)
    with pytest.raises(RuntimeError, match=text):
        while True:
            backend.recv()
            backend.send(np.zeros(3, np.int64))
    backend.close()
    assert multiprocessing.active_children() == []


@pytest.mark.skipif(len(getattr(os, "sched_getaffinity", lambda _: ())(0)) < 2, reason="needs two CPUs and Linux")
def test_a_pinned_worker_keeps_to_its_cpu_and_the_caller_to_another() -> None:
    before = os.sched_getaffinity(0)
    cpus = tuple(sorted(before))[:2]
    backend = ShmSync(Setup(CHEETAH, workers=2, cpus=cpus, pinned=True))
    backend.reset(0)
    backend.recv()
    pids = [0, *(process.pid or 0 for process in multiprocessing.active_children())]
    assert [os.sched_getaffinity(pid) for pid in pids] == [{cpu} for cpu in cpus]
    backend.close()
    assert os.sched_getaffinity(0) == before


def test_a_process_of_gymnasium_that_is_killed_is_named_with_its_signal() -> None:
    backend = GymAsync(faulty("dies"))
    until_third_step(backend)
    with pytest.raises(RuntimeError, match=r"^the process of environment 3 died \(exit status -9\)"):
        backend.recv()
    backend.close()


@pytest.mark.filterwarnings("ignore::UserWarning:gymnasium")  # Gymnasium says in a warning too what it raises
@pytest.mark.parametrize("fault", ["hangs", "dies", "raises"])
def test_close_ends_whatever_the_processes_of_gymnasium_do(fault: str) -> None:
    backend = GymAsync(faulty(fault))
    until_third_step(backend)
    backend.close()
    assert multiprocessing.active_children() == []


CALLER = """
import multiprocessing, sys, time
from vebench.backends.interface import Setup, Task
from vebench.backends.reference_rows import Ceiling
if __name__ == "__main__":
    backend = Ceiling(Setup(Task("HalfCheetah-v5", "mujoco", 5), workers=3, cpus=(0, 1, 2)))
    backend.reset(0)
    backend.recv()
    print(*(process.pid for process in multiprocessing.active_children()), flush=True)
    time.sleep(600)
"""


def start_caller() -> tuple[subprocess.Popen[str], list[int]]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", CALLER]
    caller = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    assert caller.stdout is not None
    return caller, [int(pid) for pid in caller.stdout.readline().split()]


@pytest.mark.whole_machine
def test_no_simulator_outlives_a_caller_that_is_killed() -> None:
    before = segments()
    caller, workers = start_caller()
    assert len(workers) == 2
    caller.kill()
    caller.communicate()
    assert are_gone(workers)
    assert segments() <= before


def test_the_bare_physics_makes_as_many_substeps_in_each_step_as_the_environment() -> None:
    physics = Physics(CHEETAH)
    physics.burst()
    environment = ForLoop(Setup(CHEETAH, workers=1))
    timestep = environment.environments[0].get_wrapper_attr("model").opt.timestep
    assert physics.data.time / timestep == pytest.approx(BURST * CHEETAH.frame_skip)
    assert physics.data.ctrl.any()
    environment.close()


def test_a_simulator_that_died_is_an_error() -> None:
    backend = Ceiling(Setup(CHEETAH, workers=2, cpus=(0, 1)))
    backend.reset(0)
    backend.recv()
    (child,) = multiprocessing.active_children()
    child.kill()
    child.join()
    backend.send(np.zeros(1, np.int64))
    with pytest.raises(RuntimeError, match="died"):
        backend.recv()
    backend.close()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="pinning is Linux's")
@pytest.mark.parametrize(("pool", "task"), [(EnvPoolSync, CHEETAH), (AleVectorSync, PONG)])
def test_each_thread_of_a_pinned_pool_has_a_cpu_of_its_own(pool: Factory, task: Task) -> None:
    cpus = tuple(sorted(os.sched_getaffinity(0)))[:2]
    before = {int(thread.name) for thread in Path("/proc/self/task").iterdir()}
    backend = pool(Setup(task, workers=len(cpus), cpus=cpus, pinned=True))
    threads = {int(thread.name) for thread in Path("/proc/self/task").iterdir()} - before
    places = [os.sched_getaffinity(thread) for thread in sorted(threads)]
    assert places[-len(cpus) :] == [{cpu} for cpu in cpus]
    backend.close()
