"""The handshake of the shared-memory backends: where its words lie, how it waits, and that nothing is torn or lost."""

from __future__ import annotations

import mmap
import subprocess
import sys
import threading
from multiprocessing import Pipe

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.places import PEERS

from vebench.backends.shared_memory import handshake
from vebench.backends.shared_memory.division import divide
from vebench.backends.shared_memory.handshake import FutexBell, PipeBell, Waiter, light_fence
from vebench.backends.shared_memory.memory_layout import LINE, Leaf, MemoryLayout, share_out

SCRIPT = PEERS / "handshake.py"
LEAVES = st.lists(
    st.builds(
        Leaf,
        st.lists(st.integers(0, 40), max_size=3).map(tuple),
        st.sampled_from(["u1", "f4", "f8", "i8", "?"]).map(np.dtype),
    ),
    max_size=3,
).map(tuple)


@given(st.integers(0, 1000), st.integers(1, 64))
def test_environments_are_shared_out_in_runs_as_equal_as_can_be(count: int, processes: int) -> None:
    shares = share_out(count, processes)
    assert [index for start, stop in shares for index in range(start, stop)] == list(range(count))
    sizes = {stop - start for start, stop in shares}
    assert max(sizes) - min(sizes) <= 1
    assert len(shares) == processes


@given(st.integers(1, 9), st.integers(0, 5), st.integers(1, 20), LEAVES, LEAVES)
def test_nothing_in_the_layout_overlaps(
    envs: int, workers: int, ring: int, observations: tuple[Leaf, ...], actions: tuple[Leaf, ...]
) -> None:
    layout = MemoryLayout(envs, share_out(envs, workers + 1)[1:], observations, actions, ring)
    memory = mmap.mmap(-1, layout.size)
    base = np.frombuffer(memory, np.uint8).__array_interface__["data"][0]
    arrays = layout.arrays(memory)
    polled = [layout.caller_asleep(memory)]
    rings: list[memoryview] = []
    for worker in range(workers):
        words = layout.words(memory, worker)
        polled += [words.request, words.done, words.asleep]
        rings += [words.entries, words.remarks]
    pieces = [np.asarray(view) for view in (*polled, *rings)]
    pieces += [*arrays.observations, *arrays.actions, arrays.rewards, arrays.terminated, arrays.truncated]
    taken = np.zeros(layout.size, np.int64)
    for piece in pieces:
        start = piece.__array_interface__["data"][0] - base
        assert start % piece.itemsize == 0
        taken[start : start + piece.nbytes] += 1
    assert taken.max() <= 1
    lines = [(np.asarray(view).__array_interface__["data"][0] - base) // LINE for view in polled]
    assert len(set(lines)) == len(lines)


@given(st.integers(1, 300), st.integers(1, 20), st.booleans(), st.booleans())
def test_every_environment_is_the_callers_or_one_workers(
    envs: int, processes: int, caller_steps: bool, single: bool
) -> None:
    how = divide(envs, processes, caller_steps=caller_steps, single=single, available=4)
    assert how.processes == min(envs, processes) == len(how.shares) + caller_steps
    owned = [*range(how.own), *(index for start, stop in how.shares for index in range(start, stop))]
    assert owned == list(range(envs))
    assert (how.spin_ns == 0) == (how.processes + (not caller_steps) > 4)
    assert how.layout((), ()).ring >= (max((stop - start for start, stop in how.shares), default=1) if single else 1)


def test_workers_keep_to_the_cpus_after_the_callers() -> None:
    how = divide(8, cpus=[5, 6, 7])
    assert (how.processes, [how.cpu_of(worker) for worker in range(2)]) == (3, [6, 7])
    apart = divide(8, cpus=[5, 6], caller_steps=False)
    assert [apart.cpu_of(worker) for worker in range(2)] == [5, 6]


def bells(kind: str, memory: mmap.mmap, flag: memoryview) -> FutexBell | PipeBell:
    return FutexBell(memory, flag) if kind == "futex" else PipeBell(*Pipe(duplex=False))


@pytest.mark.parametrize("fenced", [True, False], ids=["membarrier", "naps"])
@pytest.mark.parametrize("kind", ["futex", "pipe"])
def test_a_sleeper_wakes_when_rung_and_gives_up_in_time(
    kind: str, fenced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not fenced:
        monkeypatch.setattr(handshake, "heavy_fence", lambda: False)
    memory = mmap.mmap(-1, 4096)
    flag = memoryview(memory)[:4].cast("i")
    bell = bells(kind, memory, flag)
    waiter = Waiter(flag, bell, spin_ns=0)
    done = threading.Event()
    assert not waiter.wait(done.is_set, 0.01)
    assert flag[0] == 0

    def wake() -> None:
        while not flag[0]:
            pass
        done.set()
        flag[0] = 0
        bell.ring()

    thread = threading.Thread(target=wake)
    thread.start()
    assert waiter.wait(done.is_set, 60.0)
    thread.join()
    assert flag[0] == 0
    assert waiter.sleeps >= 1


def test_what_has_changed_already_is_not_waited_for() -> None:
    memory = mmap.mmap(-1, 4096)
    flag = memoryview(memory)[:4].cast("i")
    waiter = Waiter(flag, bells("futex", memory, flag), spin_ns=0)
    assert waiter.wait(lambda: True, 60.0)
    assert waiter.sleeps == 0


def test_a_fence_is_there_where_the_processor_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "KEEPS_ORDER", False)
    fence = light_fence()
    assert fence is not None
    fence()
    fence()
    monkeypatch.setattr(handshake, "KEEPS_ORDER", True)
    assert light_fence() is None


@pytest.mark.parametrize(
    "options",
    [
        "--workers 1,2,16",
        "--workers 1,3 --spin 0",
        "--workers 1,3 --spin 1000",
        "--workers 2 --bell pipe",
        "--workers 2 --fences arm --spin 0",
    ],
)
def test_no_row_is_torn_and_no_wake_up_lost_while_workers_are_stopped_at_random(options: str) -> None:
    command = [sys.executable, "-W", "ignore", str(SCRIPT), "stress", "--handshakes", "6000", *options.split()]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "handshakes" in done.stdout
