"""Environments whose step takes a stated time: what they are called, that they work as long, and that they repeat."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import timed
from support.commands import ONE_PASS, Command
from support.in_this_process import world_here
from timed import TIMED_KINDS, env_id

from vebench.results import store


def made(kind: Any, microseconds: int) -> gymnasium.Env[Any, Any]:
    return gymnasium.make(env_id(kind, microseconds), disable_env_checker=True)


@pytest.mark.parametrize("kind", TIMED_KINDS)
def test_rows_follow_from_seed_and_actions_alone(kind: Any) -> None:
    one, other = made(kind, 1), made(kind, 2)
    first, _ = one.reset(seed=7)
    assert np.array_equal(first, other.reset(seed=7)[0])
    assert not np.array_equal(first, other.reset(seed=8)[0])
    other.reset(seed=7)
    for step in range(1, timed.EPISODE + 1):
        row, again = one.step(step % 4), other.step(step % 4)
        assert np.array_equal(row[0], again[0])
        assert row[1:4] == again[1:4] == (float(step % 4), step == timed.EPISODE, False)


def test_backends_step_them_as_the_loop_does(vebench: Command, tmp_path: Path) -> None:
    asked = (
        "-e",
        f"{timed.__name__}:{env_id('Busy', 5)}",
        "-b",
        "gym-sync,threads",
        "-w",
        "2",
        "--no-base",
        "-o",
        "run.jsonl",
        "-q",
    )
    brief = (*ONE_PASS[:-1], "full", "--duration", "0.05", "--warmup", "0.02", "--windows", "2")
    assert vebench("run", *asked, *brief, world=world_here()).status == 0
    for cell in store.read(tmp_path / "run.jsonl").cells:
        assert (cell.status, cell.proof and cell.proof.verdict) == ("ok", "identical")
