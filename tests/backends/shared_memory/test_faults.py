"""What goes wrong in a worker, in the caller, or between them: an error each time, and nothing left behind."""

import copy
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from support.leaks import are_gone, segments
from support.places import ENVIRONMENTS
from support.waiting import eventually, main_thread_is_in
from various import MuteError, Troubled, UnpicklableError

from vebench.backends.shared_memory import SharedMemoryVectorEnv, WorkerError

Build = Callable[..., SharedMemoryVectorEnv]

LONG = 20.0  # seconds after which a test that waits gives up
T = Troubled


@pytest.fixture
def build() -> Iterator[Build]:
    built: list[SharedMemoryVectorEnv] = []

    def build_one(**options: object) -> SharedMemoryVectorEnv:
        built.append(SharedMemoryVectorEnv([Troubled] * 4, **{"num_processes": 2, "caller_steps": True, **options}))
        built[-1].reset()
        return built[-1]

    yield build_one
    for vector in built:
        vector.close(terminate=True)
    assert multiprocessing.active_children() == []


def acts(env_id: int, action: int) -> NDArray[np.int64]:
    """Return actions for four environments, of which one is to do something."""
    actions = np.zeros(4, np.int64)
    actions[env_id] = action
    return actions


# With two processes the caller has environments 0 and 1, a worker 2 and 3.
@pytest.mark.parametrize(
    ("env_id", "action", "error", "text"),
    [
        (0, T.RAISE, ValueError, "ValueError: boom"),
        (3, T.RAISE, ValueError, "ValueError: boom"),
        (0, T.RAISE_MUTE, MuteError, "MuteError: "),
        (2, T.RAISE_MUTE, MuteError, "MuteError: "),
        (0, T.RAISE_ODD, UnpicklableError, "UnpicklableError: 1 and 2"),
        (2, T.RAISE_ODD, WorkerError, "UnpicklableError: 1 and 2"),  # it cannot be sent
        (2, T.EXIT, SystemExit, "SystemExit: 3"),
    ],
)
def test_an_exception_is_raised_unchanged_and_its_cause_says_where_it_comes_from(
    build: Build, env_id: int, action: int, error: type[BaseException], text: str
) -> None:
    ours = build()
    with pytest.raises(error) as caught:
        ours.step(acts(env_id, action))
    cause = caught.value if error is WorkerError else caught.value.__cause__
    assert isinstance(cause, WorkerError)
    assert str(cause).startswith(f"environment {env_id}: {text}")
    assert "in step\n" in str(cause)
    # It can go on, from a reset at the latest.
    ours.reset()
    assert ours.step(np.zeros(4, np.int64))[0].tolist() == [1, 1, 1, 1]


def test_an_exception_in_a_reset_or_a_call_names_the_environment_too(build: Build) -> None:
    ours = build(autoreset_mode="Disabled")
    for env_id in (1, 3):
        with pytest.raises(LookupError) as caught:
            ours.reset(options={"reset_mask": np.arange(4) == env_id, "raise": True})
        assert f"environment {env_id}" in str(caught.value.__cause__)
    with pytest.raises(TypeError):
        ours.call("add", "a")
    assert ours.step(np.zeros(4, np.int64))[0].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("env_id", [0, 3])
def test_an_exception_does_not_lose_other_environments_on_their_way(build: Build, env_id: int) -> None:
    ours = build(batch_size=2)
    ours.send(acts(env_id, T.RAISE))
    received: list[int] = []
    with pytest.raises(ValueError, match="boom") as caught:
        while True:
            received += ours.recv(min_batch=1).env_ids.tolist()
    assert f"environment {env_id}" in str(caught.value.__cause__)
    while len(received) < 3:
        received += ours.recv(min_batch=1).env_ids.tolist()
    assert sorted([*received, env_id]) == [0, 1, 2, 3]
    ours.send(np.zeros(4, np.int64), range(4))
    assert len(ours.recv().env_ids) == 2


def test_an_environment_that_cannot_be_built_is_an_error_with_its_index() -> None:
    def fail() -> Troubled:
        if multiprocessing.parent_process() is None:
            return Troubled()
        raise OSError("no such ROM")

    with pytest.raises(OSError, match="no such ROM") as caught:
        SharedMemoryVectorEnv([Troubled, Troubled, Troubled, fail], num_processes=2, caller_steps=True)
    assert "environment 3" in str(caught.value.__cause__)
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("batch_size", [4, 1])
def test_a_worker_that_is_killed_is_an_error_and_not_a_hang(build: Build, batch_size: int) -> None:
    ours = build(batch_size=batch_size)
    with pytest.raises(WorkerError, match=r"environments 2 to 3 died \(SIGKILL\)"):
        if batch_size == 4:
            ours.step(acts(2, T.DIE))
        ours.send(acts(2, T.DIE))
        while True:  # those of the caller keep it busy
            ids = ours.recv().env_ids
            ours.send(np.zeros(1, np.int64), ids)
    for ask in (ours.reset, ours.render):
        with pytest.raises(WorkerError, match="SIGKILL"):
            ask()


@pytest.mark.parametrize("batch_size", [4, 3])
def test_a_step_that_hangs_is_a_timeout_and_close_ends_all_the_same(build: Build, batch_size: int) -> None:
    ours = build(batch_size=batch_size)
    if batch_size == 4:
        ours.step_async(acts(3, T.HANG))
    else:
        ours.send(acts(2, T.HANG))
    with pytest.raises(TimeoutError):
        ours.step_wait(timeout=0.1) if batch_size == 4 else ours.recv(timeout=0.1)
    with pytest.warns(UserWarning, match="pending call to `step`") if batch_size == 4 else nullcontext():
        ours.close(timeout=0.1)
    assert multiprocessing.active_children() == []


class ClosesSlowly(Troubled):
    """Takes so many seconds to close itself in a worker, and then leaves a file."""

    def __init__(self, seconds: float, folder: Path) -> None:
        super().__init__()
        self._seconds, self._folder = seconds, folder

    def close(self) -> None:
        if multiprocessing.parent_process() is not None:
            time.sleep(self._seconds)
            self._folder.joinpath(f"video-{os.getpid()}").touch()


def test_close_waits_for_environments_that_save_what_they_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vebench.backends.shared_memory.vector_env.END_WITHIN_SECONDS", 0.0)
    SharedMemoryVectorEnv([partial(ClosesSlowly, 0.3, tmp_path)] * 2).close()
    assert len(list(tmp_path.iterdir())) == 2
    SharedMemoryVectorEnv([partial(ClosesSlowly, 600, tmp_path)] * 2).close(timeout=0.1)
    assert multiprocessing.active_children() == []


def test_ctrl_c_ends_a_close_that_hangs(tmp_path: Path) -> None:
    ours = SharedMemoryVectorEnv([partial(ClosesSlowly, 600, tmp_path)] * 2)

    def interrupt() -> None:
        assert eventually(lambda: main_thread_is_in("has_ended"))
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        ours.close()
    assert multiprocessing.active_children() == []


closed_here: list[str] = []


class Closing(Troubled):
    def close(self) -> None:
        closed_here.append("closed")


@pytest.mark.parametrize("closed", [True, False])
def test_one_that_is_forgotten_is_ended(closed: bool) -> None:
    closed_here.clear()
    kept = [SharedMemoryVectorEnv([Closing] * 4, num_processes=3, caller_steps=True)]
    workers = [process.pid for process in kept[0].processes if process.pid is not None]
    if closed:
        kept[0].close()
    kept.clear()
    assert are_gone(workers)
    assert closed_here == ["closed"] * 2  # those that the caller has stepped itself
    assert multiprocessing.active_children() == []


FORKED = """
import os, sys, time
import gymnasium as gym
from vebench.backends.fast import make_vec
from vebench.backends.shared_memory import SharedMemoryVectorEnv, WorkerError

def step():
    try: envs.step(None)
    except WorkerError as told: sys.exit("belongs to process" not in str(told))

def fail():
    raise ValueError

envs = {make}, num_processes=2, caller_steps=False)
envs.reset(seed=7)
for end, status in (sys.exit, 0), (envs.close, 3), (step, 0), (fail, 1):
    if (child := os.fork()) == 0:
        end()
        sys.exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == status
for _ in range(20):
    envs.step(envs.action_space.sample())
    time.sleep(0.005)
envs.close()
print("unharmed")
"""


@pytest.mark.parametrize(
    "make", ["SharedMemoryVectorEnv([lambda: gym.make('CartPole-v1')] * 4", "make_vec('HalfCheetah-v5', 4"]
)
def test_a_forked_copy_of_the_caller_may_end_in_any_way(make: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKED.format(make=make)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "unharmed\n"), done.stderr


def test_workers_outlive_the_thread_that_started_them(build: Build) -> None:
    built: list[SharedMemoryVectorEnv] = []
    thread = threading.Thread(target=lambda: built.append(build()))
    thread.start()
    thread.join()
    for _ in range(3):
        built[0].step(np.zeros(4, np.int64))
        time.sleep(0.05)


class Unreadable:
    """Can be sent, and not be read back."""

    def __init__(self, _: object) -> None:
        """Take the place of a function that is applied."""

    def __reduce__(self) -> tuple[type[int], tuple[str]]:
        return int, ("no number",)


def test_a_result_that_cannot_be_read_is_an_error_each_time(build: Build) -> None:
    ours = build()
    for _ in range(2):
        with pytest.raises(ValueError, match="no number"):
            ours.apply(Unreadable, range(4))
    assert ours.step(np.zeros(4, np.int64))[0].tolist() == [1, 1, 1, 1]


def test_what_cannot_be_copied_says_so(build: Build) -> None:
    ours = build()
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            make(ours)


CALLER = """
import multiprocessing, os, sys, threading, time
import numpy as np
sys.path.append({folder!r})
from various import Troubled as T
from vebench.backends.shared_memory import SharedMemoryVectorEnv

def main():
    vector = SharedMemoryVectorEnv([T] * 3, num_processes=3, caller_steps=True, context={context!r})
    vector.reset()
    print(*(process.pid for process in multiprocessing.active_children()), flush=True)
    {then}

if __name__ == "__main__":
    {main}
"""
IDLE, FINE, HANGING = (
    # A signal that comes between Python's look for it and the system call would not end one long sleep.
    "[time.sleep(0.1) for _ in range(6000)]",
    "vector.step(np.zeros(3, int)); globals().update(kept=vector)",
    "vector.step_async(np.array([0, 4, 0])); time.sleep(600)",
)
HANGING_ON = HANGING.replace("600", "0")


def start(then: str, context: str = "fork", main: str = "main()") -> tuple[subprocess.Popen[str], list[int]]:
    script = CALLER.format(folder=str(ENVIRONMENTS), then=then, context=context, main=main)
    pipe = subprocess.PIPE
    caller = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script], stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )
    assert caller.stdout is not None
    workers = [int(pid) for pid in caller.stdout.readline().split()]
    assert len(workers) == 2
    return caller, workers


@pytest.mark.whole_machine
@pytest.mark.parametrize(
    ("then", "context", "main"),
    [
        (IDLE, "fork", "main()"),
        (HANGING, "fork", "main()"),
        (HANGING, "forkserver", "main()"),
        (IDLE, "spawn", "main()"),
        (HANGING, "fork", "threading.Thread(target=main).start()"),
    ],
    ids=range(5),
)
def test_no_worker_and_no_memory_outlives_a_caller_that_is_killed(then: str, context: str, main: str) -> None:
    before = segments()
    caller, workers = start(then, context, main)
    caller.kill()
    caller.communicate()
    assert are_gone(workers)
    assert segments() <= before


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_an_interrupt_from_the_terminal_prints_one_traceback(context: str) -> None:
    caller, workers = start(IDLE, context)
    os.killpg(caller.pid, signal.SIGINT)
    _, errors = caller.communicate(timeout=LONG)
    assert errors.count("Traceback") == errors.count("KeyboardInterrupt") == 1
    assert are_gone(workers)


@pytest.mark.parametrize(
    ("then", "context"),
    [(FINE, "fork"), (HANGING_ON, "fork"), (FINE, "forkserver"), (HANGING_ON, "spawn")],
    ids=range(4),
)
def test_the_interpreter_ends_quietly_without_close(then: str, context: str) -> None:
    caller, workers = start(f"{then}; globals().update(kept=vector)", context)
    _, errors = caller.communicate(timeout=LONG)
    assert (caller.returncode, errors) == (0, "")
    assert are_gone(workers)


def test_closing_ends_every_worker_though_another_collects_their_exit_statuses() -> None:
    script = (
        "import signal, gymnasium\n"
        "from vebench.backends.shared_memory import SharedMemoryVectorEnv\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "SharedMemoryVectorEnv([lambda: gymnasium.make('CartPole-v1')] * 3, num_processes=3).close()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
