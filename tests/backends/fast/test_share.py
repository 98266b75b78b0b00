"""The share of a team, with made-up batches: who is stepped, and who is named where one must not be."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from vebench.backends.fast import classes
from vebench.backends.fast.backend import FastShare
from vebench.backends.shared_memory.memory_layout import Division, RowArrays

pytestmark = pytest.mark.skipif(classes.library() is None, reason=classes.NOT_BUILT)
COUNT = 3


class Batch:
    """Environments that count their steps in their observations; each episode has as many as its environment's id."""

    restarts = False
    context = 0

    def __init__(self, rows: RowArrays, *, infos: bool) -> None:
        self.current = 0
        (self._observations,), _, self._terminated, _, (self._lengths,) = rows
        self._begins: set[int] = set()
        self._work = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(self._step)
        self.work: Any = ctypes.cast(self._work, ctypes.c_void_p).value

    def _step(self, _: int, first: int, last: int) -> None:
        for index in range(first, last):
            self._observations[index] = 0 if index in self._begins else self._observations[index] + 1
            self._begins.discard(index)

    def begin(self, index: int, _seed: int | None) -> None:
        self.current = index
        self._begins.add(index)

    def finish(self, indices: Sequence[int] | None) -> None:
        for index in range(COUNT) if indices is None else indices:
            self._terminated[index] = self._observations[index] == self._lengths[index]

    def infos(self, _rows: object, *, first: bool) -> dict[str, Any]:
        return {}

    def frames(self, index: int) -> int:
        return int(self._observations[index])

    def close(self) -> None:
        pass


class Task:
    batch = Batch
    chunk = 1


@pytest.fixture(params=[1, 2, 7])
def made(request: Any) -> Any:
    def share(autoreset: Any) -> tuple[FastShare, RowArrays]:
        flags = np.zeros((2, COUNT), np.bool_)
        rows = RowArrays((np.zeros(COUNT, np.int64),), np.zeros(COUNT), flags[0], flags[1], (np.array([9, 1, 2]),))
        task: Any = Task
        built = FastShare(task, Division(COUNT, request.param), autoreset, rows)
        built.open()
        opened.append(built)
        built.answer("reset", 0)
        return built, rows

    opened: list[FastShare] = []
    yield share
    for each in opened:
        each.close()


def test_a_step_is_a_step_of_every_environment_with_the_remarks_of_all(made: Any) -> None:
    environments, rows = made("SameStep")
    remarks = []
    for _ in range(2):
        environments.start()
        remarks.append(environments.step())
    assert remarks == [
        [(1, {"final_obs": 1, "final_info": {}})],
        [(1, {"final_obs": 1, "final_info": {}}), (2, {"final_obs": 2, "final_info": {}})],
    ]
    assert rows.observations[0].tolist() == [2, 0, 0]
    assert rows.terminated.tolist() == [False, True, True]


def test_the_environment_is_named_whose_episode_is_over_until_it_begins_again(made: Any) -> None:
    environments, rows = made("Disabled")
    environments.start()
    environments.step()
    environments.start()
    with pytest.raises(AssertionError, match="the episode is over"):
        environments.step()
    assert environments.current == 1
    environments.answer("reset", ([None] * COUNT, [True] * COUNT, None))
    assert rows.observations[0].tolist() == [0, 0, 0]
    environments.start()
    environments.step()
    assert rows.observations[0].tolist() == [1, 1, 1]


def test_environments_that_are_asked_for_singly_come_back_once_each(made: Any) -> None:
    environments, rows = made("NextStep")
    for _ in range(50):
        for index in range(COUNT):
            environments.put([index])
        received: list[int] = []
        while len(received) < COUNT:
            done, _ = environments.get(1, None)
            received += done
        assert sorted(received) == [0, 1, 2]
    assert rows.observations[0].tolist() == [50 % 10, 50 % 2, 50 % 3]
    assert environments.get(0, 0.0) == ([], {})
