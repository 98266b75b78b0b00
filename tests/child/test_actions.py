"""A policy in the timed loop, with a fake clock: where the time goes, how long batches take, how old rows are."""

from itertools import count, cycle

import numpy as np
import pytest
from numpy.typing import NDArray

from vebench.backends.interface import ActionSpace, BackendInfo, Batch
from vebench.child.actions import Acting
from vebench.child.loop import Loop

UPLOAD, INFER, DOWNLOAD, STEP = 5, 200, 7, 1000


class Machine:
    """A backend and a policy that move one clock. Batch ``n`` shows ``n``; slow ones take ten times as long."""

    def __init__(self, ids: list[list[int]], num_envs: int, slow_every: int = 0) -> None:
        self.info = BackendInfo(num_envs, len(ids[0]), ActionSpace.discrete(2), 1)
        self.now = 0
        self.seen: list[float] = []
        self.sent: list[NDArray[np.generic]] = []
        self._ids, self._numbers, self._slow_every = cycle(ids), count(), slow_every

    def clock(self) -> int:
        return self.now

    def recv(self) -> Batch:
        number = next(self._numbers)
        self.now += STEP * (10 if self._slow_every and number % self._slow_every == 0 else 1)
        ids = np.array(next(self._ids))
        no = np.zeros(len(ids), np.bool_)
        return Batch(np.full((len(ids), 1), float(number)), np.zeros(len(ids)), no, no.copy(), ids)

    def send(self, actions: NDArray[np.generic]) -> None:
        self.sent.append(actions)

    def upload(self, observations: NDArray[np.generic]) -> NDArray[np.generic]:
        self.now += UPLOAD
        return observations

    def infer(self, there: NDArray[np.generic]) -> NDArray[np.generic]:
        self.now += INFER
        self.seen.append(float(there[0, 0]))
        return there[:, 0].astype(np.int64)

    def download(self, chosen: NDArray[np.generic]) -> NDArray[np.generic]:
        self.now += DOWNLOAD
        return chosen


def driven(machine: Machine, batches: int) -> tuple[Loop, dict[str, int], int]:
    """Return the loop after so many batches, what was counted, and how long they took."""
    loop = Loop(machine, Acting(machine, machine.recv(), machine.info, machine.clock), machine.clock)
    started = machine.now
    times = dict(loop.run_for(batches * STEP, batches).times)
    return loop, times, machine.now - started


def test_the_policy_sees_each_batch_and_its_actions_are_sent_for_it() -> None:
    machine = Machine([[0, 1]], 2)
    driven(machine, 5)
    assert machine.seen == [0, 1, 2, 3, 4]
    assert [actions.tolist() for actions in machine.sent] == [[number] * 2 for number in range(5)]


def test_waiting_choosing_and_copying_add_up_to_the_whole() -> None:
    _, times, whole = driven(Machine([[0, 1]], 2), 50)
    assert (times["waited_ns"], times["inferred_ns"]) == (50 * STEP, 50 * INFER)
    assert times["copied_ns"] == 50 * (UPLOAD + DOWNLOAD)
    assert times["waited_ns"] + times["inferred_ns"] + times["copied_ns"] == whole


def test_one_batch_in_twenty_is_late_and_the_median_does_not_show_it() -> None:
    _, times, _ = driven(Machine([[0, 1]], 2, slow_every=20), 100)
    assert (times["latency_p50_ns"], times["latency_p99_ns"]) == (STEP, 10 * STEP)


@pytest.mark.parametrize(
    ("ids", "num_envs", "age"),
    [
        ([[0, 1]], 2, 0),  # all rows answer the last actions
        ([[0, 1], [2, 3]], 4, 1),  # two halves take turns
        ([[0], [1], [2]], 3, 2),
        ([[0], [1], [0], [2]], 3, 2),  # 0 is back after one turn of others, 1 and 2 after three: (1 + 3 + 1 + 3) / 4
    ],
)
def test_a_row_is_as_old_as_the_policy_acted_for_others_since(ids: list[list[int]], num_envs: int, age: int) -> None:
    machine = Machine(ids, num_envs)
    loop, _, _ = driven(machine, 4 * len(ids))
    stretch = loop.run_for(8 * len(ids) * STEP, 8 * len(ids))
    assert stretch.times["aged"] == age * stretch.rows
