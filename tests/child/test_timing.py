"""How long steps and resets of one environment take, and how many episodes ended in them."""

from itertools import count

import pytest

from vebench.backends.interface import Setup, Task
from vebench.child.cell import FEWEST_RESETS, time_steps


@pytest.mark.parametrize("limit", [7, 500])
def test_ends_of_episodes_are_counted_apart_from_resets_that_were_made_on_purpose(limit: int) -> None:
    clock = count(0, 1_000_000)
    task = Task(f"CartPole-v1[max_episode_steps={limit}]", "classic", 1)
    found = time_steps(Setup(task, workers=1, envs_per_worker=1, cpus=(0,), pinned=False), 0.06, lambda: next(clock))
    assert found.resets == max(found.ends + 1, FEWEST_RESETS)
    assert (found.ends >= found.steps // 7) == (limit == 7)
    assert (found.step_p50_ns, found.reset_p50_ns) == (1_000_000, 1_000_000)
