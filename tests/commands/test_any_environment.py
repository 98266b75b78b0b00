"""Environments of users: with arguments, and made by callables of their own."""

from __future__ import annotations

import json
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from support.commands import ONE_PASS
from support.fakes import fake_world
from support.in_this_process import world_here

from vebench.results import store

if TYPE_CHECKING:
    from pathlib import Path

    from support.commands import Command

BRIEF = (*ONE_PASS[:-1], "full", "--duration", "0.05", "--warmup", "0.02", "--rounds", "2", "-w", "1")
MODULE = """
    import gymnasium

    def make_env(steps=5, scale=1.0):
        env = gymnasium.make("Pendulum-v1", max_episode_steps=steps)
        return gymnasium.wrappers.TransformReward(env, lambda reward: scale * reward)
"""


@pytest.fixture(autouse=True)
def _beside_a_module(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(dedent(MODULE))


def test_what_a_callable_returns_is_measured_proven_and_reported_by_its_name(vebench: Command, tmp_path: Path) -> None:
    name = "mine:make_env[scale=0.5,steps=7]"
    run = ("run", "-e", name, "-b", "gym-sync,shm-sync", *BRIEF)
    done = vebench(*run, "-q", "-o", "run.jsonl", world=world_here())
    assert done.status == 0, done.err
    assert {cell.env for cell in store.read(tmp_path / "run.jsonl").cells} == {name}
    rows = json.loads(vebench("report", "run.jsonl", "-f", "json").out)
    proofs = {row["backend"]: row["proof"] for row in rows}
    assert proofs == {"for-loop": None, "gym-sync": "identical", "shm-sync": "identical"}
    assert name in vebench("report", "run.jsonl", "-f", "markdown").out


def test_arguments_make_another_task_with_rows_of_its_own(vebench: Command, tmp_path: Path) -> None:
    envs = "CartPole,CartPole[max_episode_steps=4]"
    done = vebench("run", "-e", envs, "-b", "gym-sync", *BRIEF, "-q", "-o", "run.jsonl", world=world_here())
    assert done.status == 0, done.err
    short = [
        cell for cell in store.read(tmp_path / "run.jsonl").cells if cell.env == "CartPole-v1[max_episode_steps=4]"
    ]
    assert len(short) == 2
    for cell in short:  # of every five rows one reports a reset
        assert sum(window.resets for window in cell.windows) > sum(window.rows for window in cell.windows) // 6
    plan = vebench("run", "-e", envs, "-b", "envpool-sync,gym-sync", "--dry-run", "-w", "1", world=fake_world()).out
    assert "EnvPool has no CartPole-v1[max_episode_steps=4]: it has CartPole-v1 without arguments only" in " ".join(
        plan.split()
    )
