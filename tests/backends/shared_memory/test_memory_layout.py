"""How environments are divided among processes, and where everything lies in the memory that these share."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vebench.backends.environments.making import ArraySpec
from vebench.backends.shared_memory.memory_layout import LINE, Division, Memory

LEAVES = st.lists(
    st.builds(
        ArraySpec,
        st.lists(st.integers(0, 40), max_size=3).map(tuple),
        st.sampled_from(["u1", "f4", "f8", "i8", "?"]).map(np.dtype),
    ),
    max_size=3,
).map(tuple)


@given(st.integers(1, 20), st.integers(0, 5), st.booleans(), LEAVES, LEAVES)
def test_nothing_in_the_layout_overlaps(
    envs: int, workers: int, one_by_one: bool, observations: tuple[ArraySpec, ...], actions: tuple[ArraySpec, ...]
) -> None:
    memory = Memory(Division(envs, workers + 1, one_by_one=one_by_one), observations, actions)
    memory.close()  # of its file; it stays mapped
    base = np.frombuffer(memory.map, np.uint8).__array_interface__["data"][0]
    arrays = memory.arrays
    polled, rings = [memory.caller_asleep], [memory.message_length]
    for worker in range(len(memory.division.shares)):
        request, done, sleeps, entries, remarks = memory.words(worker)
        polled += [request, done, sleeps]
        rings += [entries, remarks]
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


@given(st.integers(1, 300), st.integers(1, 20), st.booleans(), st.booleans())
def test_each_environment_has_one_process(envs: int, processes: int, caller_steps: bool, one_by_one: bool) -> None:
    division = Division(envs, processes, caller_steps=caller_steps, one_by_one=one_by_one, available=4)
    assert division.processes == min(envs, processes) == len(division.shares) + caller_steps
    runs = [range(division.own), *(range(start, stop) for start, stop in division.shares)]
    assert [index for run in runs for index in run] == list(range(envs))
    sizes = [len(run) for run in runs[not caller_steps :]]
    assert max(sizes) - min(sizes) <= 1
    assert (division.spin_ns == 0) == (division.processes + (not caller_steps) > 4)
