"""Environments whose step takes a stated time: what they are called, that they work as long, and that they repeat."""

import sys
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import timed
from support.commands import ONE_PASS, Command
from support.in_this_process import world_here
from timed import MICROSECONDS, TIMED_KINDS, env_id

from vebench.results import store

MILLISECOND = 1_000_000


def made(kind: Any, microseconds: int) -> gymnasium.Env[Any, Any]:
    return gymnasium.make(env_id(kind, microseconds), disable_env_checker=True)


@pytest.mark.parametrize("kind", TIMED_KINDS)
def test_each_is_registered_under_the_name_that_tells_its_time(kind: Any) -> None:
    for microseconds in MICROSECONDS:
        assert env_id(kind, microseconds) in gymnasium.registry


@pytest.mark.parametrize("kind", ["Busy", "Native"])
def test_work_takes_the_stated_time_of_a_cpu_and_no_less(kind: Any) -> None:
    environment = made(kind, 2000)
    environment.reset(seed=0)
    began = time.thread_time_ns()
    environment.step(1)
    assert time.thread_time_ns() - began >= 2 * MILLISECOND


def test_waiting_takes_the_stated_time_and_next_to_no_cpu() -> None:
    environment = made("Sleep", 50_000)
    environment.reset(seed=0)
    began, worked = time.monotonic_ns(), time.thread_time_ns()
    environment.step(1)
    assert time.monotonic_ns() - began >= 50 * MILLISECOND
    assert time.thread_time_ns() - worked < 25 * MILLISECOND


def test_time_in_which_another_thread_has_the_lock_is_no_work() -> None:
    """With the lock kept from it at every turn, a step still works for its time."""
    environment = made("Busy", 20_000)
    environment.reset(seed=0)
    over, before = threading.Event(), sys.getswitchinterval()

    def keep_the_lock() -> None:
        while not over.is_set():
            sum(range(1000))

    other = threading.Thread(target=keep_the_lock)
    other.start()
    try:
        sys.setswitchinterval(0.0001)
        began = time.thread_time_ns()
        environment.step(1)
        assert time.thread_time_ns() - began >= 20 * MILLISECOND
    finally:
        sys.setswitchinterval(before)
        over.set()
        other.join()


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
