"""Processes share memory: the division of environments, the layout of memory, and waiting for each other."""

import subprocess
import sys
import threading
from contextlib import closing
from multiprocessing import Pipe
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.places import TOOLS

from vebench.backends.environments.making import ArraySpec
from vebench.backends.environments.suites import OTHER
from vebench.backends.interface import Setup, Task
from vebench.backends.shared_memory import worker
from vebench.backends.shared_memory.backend import ShmAsync
from vebench.backends.shared_memory.memory_layout import LINE, Division, Memory
from vebench.backends.shared_memory.worker import Waiter, ring

LEAVES = st.lists(
    st.builds(
        ArraySpec,
        st.lists(st.integers(0, 40), max_size=3).map(tuple),
        st.sampled_from(["u1", "f4", "f8", "i8", "?"]).map(np.dtype),
    ),
    max_size=3,
)


@given(st.integers(1, 20), st.integers(0, 5), st.booleans(), LEAVES, LEAVES)
def test_nothing_in_the_layout_overlaps(
    envs: int, workers: int, one_by_one: bool, observations: list[ArraySpec], actions: list[ArraySpec]
) -> None:
    memory = Memory(Division(envs, workers + 1, one_by_one=one_by_one), observations, actions)
    memory.close()  # of its file; it stays mapped
    base = np.frombuffer(memory.map, np.uint8).__array_interface__["data"][0]
    polled, rings = [memory.caller_asleep], [memory.message_length]
    for number in range(len(memory.division.shares)):
        request, done, sleeps, entries, remarks = memory.words(number)
        polled += [request, done, sleeps]
        rings += [entries, remarks]
    arrays = memory.arrays
    pieces = [np.asarray(view) for view in (*polled, *rings)]
    pieces += [*arrays.observations, *arrays.actions, arrays.rewards, arrays.terminated, arrays.truncated]
    taken = np.zeros(memory.size, np.int64)
    for piece in pieces:
        start = piece.__array_interface__["data"][0] - base
        assert start % piece.itemsize == 0
        taken[start : start + piece.nbytes] += 1
    assert taken.max() <= 1
    lines = [(np.asarray(view).__array_interface__["data"][0] - base) // LINE for view in polled]
    assert len(set(lines)) == len(lines)


@given(st.integers(1, 300), st.integers(1, 20), st.booleans())
def test_each_environment_has_one_process(envs: int, processes: int, caller_steps: bool) -> None:
    cpus = [number % 4 for number in range(20)]
    division = Division(envs, processes, caller_steps=caller_steps, cpus=cpus)
    assert division.processes == min(envs, processes) == len(division.shares) + caller_steps
    runs = [range(division.own), *(range(start, stop) for start, stop in division.shares)]
    assert [index for run in runs for index in run] == list(range(envs))
    sizes = [len(run) for run in runs[not caller_steps :]]
    assert max(sizes) - min(sizes) <= 1
    assert (division.spin_ns == 0) == (division.processes + (not caller_steps) > 4)


@pytest.mark.parametrize("fenced", [True, False], ids=["membarrier", "light fences"])
def test_a_sleeper_wakes_if_rung_and_gives_up_in_time(fenced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not fenced:
        monkeypatch.setattr(worker, "_membarrier", lambda _: False)
    flag, (pipe, writer) = memoryview(bytearray(8)).cast("q"), Pipe(duplex=False)
    waiter = Waiter(flag, pipe, spin_ns=0)
    done = threading.Event()
    assert not waiter.wait(done.is_set, 0.01)
    assert flag[0] == 0

    def wake() -> None:
        while not flag[0]:
            pass
        done.set()
        flag[0] = 0
        ring(writer)

    thread = threading.Thread(target=wake)
    thread.start()
    assert waiter.wait(done.is_set, 60.0)
    thread.join()
    assert flag[0] == 0
    assert waiter.sleeps >= 1


@pytest.mark.parametrize(
    "options", ["--workers 1,2,16", "--workers 1,3 --spin 1000", "--workers 2 --fences arm --spin 0"]
)
def test_no_row_is_torn_and_no_wake_up_lost_while_workers_are_stopped_at_random(options: str) -> None:
    command = [sys.executable, "-W", "ignore", str(TOOLS / "handshake.py"), "--handshakes", "1000", *options.split()]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "handshakes" in done.stdout


def test_after_the_timeout_those_rows_are_returned_that_are_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # environment 3 steps once there is a file ``go`` in it
    setup = Setup(Task("odd/Held-v0", OTHER.name, 1, module="odd"), 2, 2, (0, 1))
    with closing(ShmAsync(setup, ratio=1, recv_timeout=0.005, recv_min=1, caller_steps=False)) as backend:
        assert (backend.info.batch_size, backend.info.fewest_rows) == (4, 1)
        backend.reset(0)
        assert sorted(backend.recv().env_ids.tolist()) == [0, 1, 2, 3]
        backend.send(np.zeros(4, np.int64))
        for _ in range(5):
            rows = backend.recv()
            assert 3 not in rows.env_ids
            assert {len(column) for column in rows} == {len(rows.env_ids)}
            backend.send(np.zeros(len(rows.env_ids), np.int64))
        Path("go").touch()
        while 3 not in (rows := backend.recv()).env_ids:
            backend.send(np.zeros(len(rows.env_ids), np.int64))
        assert rows.observations[rows.env_ids == 3].tolist() == [1]
    with pytest.raises(ValueError, match="recv_min=2 needs a recv_timeout"):
        ShmAsync(setup, recv_min=2)
