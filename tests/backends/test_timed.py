"""Environments whose step takes a stated time: what they are called, that they work as long, and that they repeat."""

from pathlib import Path
from typing import Any

import gymnasium
import timed
from support.commands import ONE_PASS, Command
from support.in_this_process import world_here
from timed import env_id

from vebench.results import store


def made(kind: Any, microseconds: int) -> gymnasium.Env[Any, Any]:
    return gymnasium.make(env_id(kind, microseconds), disable_env_checker=True)


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
