"""The share of one process, with made-up batches: who is stepped, and who is named where one must not be."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from vebench.backends.fast.share import FastShare
from vebench.backends.shared_memory.memory_layout import RowArrays

COUNT = 3


class Batch:
    """Environments that count their steps in their observations; each episode has as many as its environment's id."""

    def __init__(self, rows: RowArrays, _area: None) -> None:
        self.current = 0
        (self._observations,), _, self._terminated, _, (self._lengths,) = rows

    def reset(self, index: int, _seed: int | None) -> None:
        self.current = index
        self._observations[index] = 0

    def step(self, _resting: Sequence[int]) -> Sequence[int]:
        self.current = len(self._lengths) - 1
        self._observations += 1
        self._terminated[:] = self._observations == self._lengths
        return np.flatnonzero(self._terminated).tolist()

    def frames(self, index: int) -> int:
        return int(self._observations[index])

    def close(self) -> None:
        pass


class Task:
    batch = Batch


def share(autoreset: Any, *, one_by_one: bool) -> tuple[FastShare, RowArrays]:  # noqa: ANN401 - a name of three
    flags = np.zeros((2, COUNT), np.bool_)
    lengths = np.array([9, 1, 2])
    rows = RowArrays((np.zeros(COUNT, np.int64),), np.zeros(COUNT), flags[0], flags[1], (lengths,))
    made: Any = Task
    built = FastShare(lambda: made, one_by_one, autoreset, rows, 0, COUNT)
    built.open()
    built.answer("reset", 0)
    return built, rows


@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_step_is_a_step_of_every_batch_with_the_remarks_of_all(one_by_one: bool) -> None:
    environments, rows = share("SameStep", one_by_one=one_by_one)
    assert [environments.step() for _ in range(2)] == [
        [(1, {"final_obs": 1, "final_info": {}})],
        [(1, {"final_obs": 1, "final_info": {}}), (2, {"final_obs": 2, "final_info": {}})],
    ]
    assert rows.observations[0].tolist() == [2, 0, 0]


@pytest.mark.parametrize("one_by_one", [False, True])
def test_the_environment_is_named_whose_episode_is_over_until_it_begins_again(one_by_one: bool) -> None:
    environments, rows = share("Disabled", one_by_one=one_by_one)
    environments.step()
    with pytest.raises(AssertionError, match="the episode is over"):
        environments.step()
    assert environments.current == 1
    environments.answer("reset", ([None] * COUNT, [True] * COUNT, None))
    assert rows.observations[0].tolist() == [0, 0, 0]
    environments.step()
    assert environments.current == COUNT - 1
