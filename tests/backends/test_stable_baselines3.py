"""What Stable-Baselines3's vectorisers do otherwise than the reference: tested where it is installed."""

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="needs Stable-Baselines3: make test-all")

from vebench.backends.interface import Setup, Task
from vebench.backends.peers.vectorisers import ONE_FLAG, SB3Dummy, SB3Subproc
from vebench.child.equality.judge import Reference

LIMIT = 9  # steps, about when a pole falls that is always pushed one way
LIMITED = Task(f"CartPole-v1[max_episode_steps={LIMIT}]", "classic", 1)


@pytest.mark.parametrize("vectoriser", [SB3Dummy, SB3Subproc])
def test_an_end_that_is_a_limit_on_time_too_is_told_as_a_termination(vectoriser: type[SB3Dummy | SB3Subproc]) -> None:
    backend = vectoriser(Setup(LIMITED, workers=2))
    references = [Reference(LIMITED, env_id, 0, same_step=True) for env_id in range(2)]
    backend.reset(0)
    backend.recv()
    kinds = set()
    for _ in range(300):
        backend.send(np.ones(2, np.int64))
        batch = backend.recv()
        for env_id, reference in enumerate(references):
            row = reference.step(np.array(1))
            kinds.add((row.terminated, row.truncated))
            told = bool(batch.terminated[env_id]), bool(batch.truncated[env_id])
            assert told == (row.terminated, row.truncated and not row.terminated)
    backend.close()
    assert (True, True) in kinds
    assert ONE_FLAG in backend.info.differences
