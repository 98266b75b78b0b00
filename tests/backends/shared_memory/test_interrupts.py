"""Ctrl-C between any two instructions: whatever is called afterwards works or says why not, and nothing is left."""

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.utils.env_checker import data_equivalence
from numpy.typing import NDArray
from support.interrupting import Interrupt
from support.waiting import eventually, main_thread_is_in
from various import Sampler

from vebench.backends.interface import Setup, Task
from vebench.backends.shared_memory import BrokenOffError, SharedMemoryVectorEnv
from vebench.backends.shared_memory.backend import ShmAsync, ShmSync

ACTIONS = np.array([0, 1, 2, 1])
LONG = 120  # seconds; what hangs ends the test by SIGALRM


def make(**options: Any) -> SharedMemoryVectorEnv:
    functions = [partial(Sampler, spaces.Box(0, 1, (3,), np.float32), spaces.Discrete(3))] * 4
    return SharedMemoryVectorEnv(functions, **{"num_processes": 2, "caller_steps": True, **options})


@pytest.fixture(autouse=True)
def _limit() -> Iterator[None]:
    def give_up(_number: int, _frame: object) -> None:
        pytest.fail(f"not done within {LONG} seconds")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LONG)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    assert multiprocessing.active_children() == []


def rows_of(envs: SharedMemoryVectorEnv) -> list[Any]:
    """Return the observations of a reset and some steps."""
    rows = [envs.reset(seed=7)[0]]
    for _ in range(2):
        if envs.batch_size == envs.num_envs:
            rows.append(envs.step(ACTIONS)[0])
            continue
        envs.send(ACTIONS, range(4))
        rows.append(np.zeros((4, 3), np.float32))
        left = 4
        while left:
            received = envs.recv(min_batch=1)
            rows[-1][received.env_ids] = received.observations
            left -= len(received.env_ids)
    return rows


def moments(call: Callable[[], object]) -> list[int]:
    """Return 24 moments all over a call, in pairs of successive instructions. tools/interrupts.py tries others."""
    whole = Interrupt(0)
    whole.into(call)
    return [at + more for at in range(1, whole.count, max(1, whole.count // 12)) for more in (0, 1)]


def level_of(environment: Sampler) -> float:
    return environment.level


CALLS: dict[str, Callable[[SharedMemoryVectorEnv], object]] = {
    "step": lambda envs: envs.step(ACTIONS),
    "step with a list": lambda envs: envs.step(ACTIONS.tolist()),
    "send": lambda envs: envs.send(ACTIONS, range(4)),
    "recv": lambda envs: envs.recv(min_batch=1),
    "reset": lambda envs: envs.reset(seed=3),
    "call": lambda envs: envs.get_attr("level"),
    "apply": lambda envs: envs.apply(level_of, range(4)),
}
SAID = (AlreadyPendingCallError, NoAsyncCallError, BrokenOffError, ValueError, RuntimeError)


@pytest.mark.parametrize("caller_steps", [True, False], ids=["caller-steps", "workers-step"])
@pytest.mark.parametrize(
    ("name", "batch_size"),
    [
        *((name, 4) for name in ("step", "step with a list", "reset", "call", "apply")),
        *((name, 2) for name in ("send", "recv")),
    ],
)
def test_after_an_interrupt_every_call_works_or_says_why_not_and_a_reset_begins_anew(
    name: str, batch_size: int, caller_steps: bool
) -> None:
    envs = make(batch_size=batch_size, caller_steps=caller_steps)
    expected = rows_of(envs)
    interrupted = partial(CALLS[name], envs)
    sent = partial(envs.send, ACTIONS, range(4))
    envs.reset()
    if name == "recv":
        sent()
    after = [envs.step_wait, partial(envs.step, ACTIONS), partial(envs.call, "add", 1), lambda: None]
    if batch_size < 4:
        after[0], after[1] = partial(envs.recv, min_batch=1), partial(envs.send, ACTIONS)
    for number, moment in enumerate(moments(interrupted)):
        envs.reset()
        if name == "recv":
            sent()
        with suppress(KeyboardInterrupt):
            Interrupt(moment).into(interrupted)
        with suppress(*SAID):
            after[number % len(after)]()
        assert data_equivalence(rows_of(envs), expected)
    envs.close()


def test_a_recv_that_was_broken_off_loses_no_rows_in_silence() -> None:
    envs = make(batch_size=2, caller_steps=False)
    lines, in_time = [""], 0
    for at in count(1):
        envs.reset()
        envs.send(ACTIONS, range(4))
        envs.get_attr("level")  # which waits for them: so recv has about as many instructions each time
        interrupt = Interrupt(at)
        received: list[int] = []
        with suppress(KeyboardInterrupt):
            received += interrupt.into(envs.recv).env_ids.tolist()
        in_time = 0 if interrupt.came else in_time + 1
        if in_time == 5:
            break
        lines.append(interrupt.line)
        if lines[-1] == "return received":  # where Python runs no handler
            continue
        with suppress(BrokenOffError):
            while len(received) < 4:
                received += envs.recv().env_ids.tolist()
            assert sorted(received) == [0, 1, 2, 3], lines[-1]
    assert "return received" in lines
    envs.close()


@pytest.mark.parametrize("kind", [ShmSync, ShmAsync])
def test_a_backend_whose_reset_was_broken_off_refuses_a_step_and_can_be_reset(kind: type[ShmSync | ShmAsync]) -> None:
    setup = Setup(Task("CartPole-v1", "classic", 1), workers=2, cpus=(0, 1), pinned=False)
    backend = kind(setup)

    def reset() -> NDArray[Any]:
        backend.reset(7)
        return backend.recv().observations.copy()

    expected = reset()
    for moment in moments(reset)[::2]:
        with suppress(KeyboardInterrupt):
            Interrupt(moment).into(reset)
        with suppress(RuntimeError):
            backend.send(np.array([0, 1]))
        np.testing.assert_array_equal(reset(), expected)
    backend.close()


class Interrupted(Sampler):
    """Is interrupted in the middle of its step if told to."""

    def step(self, action: int) -> Any:
        if action == 2:
            raise KeyboardInterrupt
        return super().step(action)


@pytest.mark.parametrize(("batch_size", "given_as"), [(4, np.array), (4, list), (2, np.array)])
def test_after_an_interrupt_in_a_step_only_reset_and_close_work(
    batch_size: int, given_as: Callable[[list[int]], Any]
) -> None:
    functions = [partial(Interrupted, spaces.Discrete(9), spaces.Discrete(3))] * 4
    envs = SharedMemoryVectorEnv(functions, num_processes=2, caller_steps=True, batch_size=batch_size)
    envs.reset(seed=1)
    steps: tuple[Callable[[], object], ...]
    if batch_size == 4:
        steps = partial(envs.step, ACTIONS * 0), envs.step_wait
        with pytest.raises(KeyboardInterrupt):
            envs.step(given_as([0, 2, 0, 0]))
    else:
        steps = partial(envs.send, np.zeros(1, np.int64), [3]), partial(envs.recv, min_batch=1)
        envs.send(np.array([0, 2, 0, 0]))
        with pytest.raises(KeyboardInterrupt):
            while True:
                envs.recv(min_batch=1)
    of_some = partial(envs.reset, options={"reset_mask": np.array([False, False, True, True])})
    for call in (*steps, of_some, partial(envs.get_attr, "level"), envs.reset_wait):
        with pytest.raises(BrokenOffError):
            call()
    envs.reset()
    envs.send(ACTIONS * 0) if batch_size == 2 else envs.step(ACTIONS * 0)
    envs.close()


def descriptors() -> int:
    gc.collect()  # objects of earlier tests must not be closed in between
    return len(list(Path("/proc/self/fd").iterdir()))


in_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no /proc to count descriptors in")


@in_proc
def test_an_interrupt_in_the_constructor_leaves_no_process_and_no_descriptor() -> None:
    built: list[SharedMemoryVectorEnv] = []
    chosen = moments(lambda: built.append(make()))
    built.pop().close()
    before = descriptors()
    for moment in chosen[::5]:
        with suppress(KeyboardInterrupt):
            Interrupt(moment).into(lambda: built.append(make()))
        if built:  # it was built before that moment
            built.pop().close()
        # One that was built and never given out is ended by a thread.
        assert eventually(lambda: multiprocessing.active_children() == [] and descriptors() <= before), moment


@in_proc
def test_an_interrupt_in_close_does_not_keep_close_from_ending_all() -> None:
    envs = make()
    chosen = moments(envs.close)
    before = descriptors()  # with that of memory which is mapped until its user is forgotten
    for moment in chosen[::4]:
        envs = make()
        with suppress(KeyboardInterrupt):
            Interrupt(moment).into(envs.close)
        envs.close()
        assert multiprocessing.active_children() == []
        assert descriptors() <= before, moment
        with pytest.raises(ClosedEnvironmentError):
            envs.reset()


def hanging(**options: Any) -> tuple[SharedMemoryVectorEnv, Any]:
    """Return environments whose steps never end, and an event that is set once one has begun."""

    class Hangs(Sampler):
        def step(self, action: int) -> Any:
            stepping.set()
            threading.Event().wait()

    stepping = multiprocessing.get_context("fork").Event()
    functions = [partial(Hangs, spaces.Discrete(9), spaces.Discrete(3))] * 2
    envs = SharedMemoryVectorEnv(functions, num_processes=2, caller_steps=False, context="fork", **options)
    envs.reset()
    return envs, stepping


@pytest.mark.filterwarnings("ignore:.*pending call to `step`")  # where the interrupt comes before the wait
@pytest.mark.parametrize("batch_size", [2, 1])
def test_close_ends_a_hanging_step_that_was_interrupted(batch_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vebench.backends.shared_memory.vector_env.END_WITHIN_SECONDS", 0.1)
    envs, stepping = hanging(batch_size=batch_size)

    def interrupt() -> None:
        stepping.wait(LONG)
        os.kill(os.getpid(), signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        if batch_size == 2:
            envs.step(ACTIONS[:2])
        envs.send(ACTIONS[:2])
        envs.recv()
    interrupter.join()
    envs.close()  # or SIGALRM ends the test, whose fixture looks for processes that are left


def test_a_second_thread_in_a_call_is_told_that_it_is_one() -> None:
    envs, _ = hanging()
    told: list[BaseException] = []

    def use() -> None:
        assert eventually(lambda: main_thread_is_in("wait_for"))  # not between the two halves of the step
        for call in (partial(envs.step, ACTIONS[:2]), envs.reset, envs.render):
            try:
                call()
            except BrokenOffError as error:
                told.append(error)
        envs.close(timeout=0)

    second = threading.Thread(target=use)
    second.start()
    with pytest.raises(ClosedEnvironmentError):
        envs.step(ACTIONS[:2])
    second.join()
    assert len(told) == 3
    assert all("another thread" in str(error) for error in told)


def test_workers_do_nothing_at_a_signal_that_the_caller_handles() -> None:
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    try:
        envs = make(context="fork")
        envs.reset(seed=7)
        for worker in multiprocessing.active_children():
            os.kill(worker.pid or 0, signal.SIGUSR1)
        envs.step(ACTIONS)
        envs.close()
    finally:
        signal.signal(signal.SIGUSR1, before)
