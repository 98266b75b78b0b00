"""Where everything lies in the memory that processes share."""

from __future__ import annotations

import mmap

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vebench.backends.shared_memory.memory_layout import LINE, Leaf, MemoryLayout, share_out

LEAVES = st.lists(
    st.builds(
        Leaf,
        st.lists(st.integers(0, 40), max_size=3).map(tuple),
        st.sampled_from(["u1", "f4", "f8", "i8", "?"]).map(np.dtype),
    ),
    max_size=3,
).map(tuple)


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
