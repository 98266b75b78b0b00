"""Batches of ``shm-async`` that are not waited for as a whole: rows, ids and actions stay together."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from vebench.backends.environments.suites import OTHER
from vebench.backends.interface import Setup, Task
from vebench.backends.shared_memory.backend import ShmAsync

HELD = Task("odd/Held-v0", OTHER.name, 1, module="odd")
CARTPOLE = Task("CartPole-v1", "classic", 1)


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ShmAsync]:
    """Return four environments in two processes, of which number 3 does not step until there is a file ``go``."""
    monkeypatch.chdir(tmp_path)
    given = {"recv_timeout": 0.005, "recv_min": 1, "caller_steps": False}
    with closing(ShmAsync(Setup(HELD, 2, 2, (0, 1)), ratio=1, **given)) as backend:
        yield backend
        Path("go").touch()


def test_after_the_timeout_those_are_returned_that_are_ready(backend: ShmAsync) -> None:
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


def test_a_least_number_without_a_timeout_means_nothing() -> None:
    with pytest.raises(ValueError, match="recv_min=2 needs a recv_timeout"):
        ShmAsync(Setup(CARTPOLE, 2, 1, (0, 1)), recv_min=2)
