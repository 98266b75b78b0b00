"""Rows that stay on a device: the clock is read once they are computed, and they are compared as any others are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from on_device import Array
from support.commands import ONE_PASS, Command
from support.in_this_process import world_here

from vebench.backends.interface import ActionSpace, BackendInfo, Batch
from vebench.child.actions import Tape, uploaded
from vebench.child.loop import Loop
from vebench.results import store

MS, DISPATCH = 1_000_000, 1_000
BRIEF = (*ONE_PASS[:-1], "full", "--duration", "0.04", "--warmup", "0.02", "--windows", "2", "-q", "-o", "run.jsonl")


class Dispatching:
    """A device that takes 1 ms of its clock to compute a batch of four rows. ``recv`` returns at once."""

    info = BackendInfo(4, 4, ActionSpace.discrete(2), 1, autoreset="same_step", in_order=True, on_device=True)
    now = busy_until = 0

    def upload(self, actions: object) -> object:
        return "uploaded", actions

    def send(self, actions: object) -> None:
        assert actions == ("uploaded", 7)
        self.now += DISPATCH
        self.busy_until = max(self.busy_until, self.now) + MS

    def recv(self) -> Batch:
        done = self.busy_until

        def compute() -> None:
            self.now = max(self.now, done)

        every: Any = Array(np.ones(4, np.bool_), compute)  # every row is an end, and none is a reset
        return Batch(every, every, every, every, np.arange(4))


@pytest.mark.parametrize("batches_per_reading", [1, 10])
def test_a_device_that_returns_before_it_has_computed_is_no_faster(batches_per_reading: int) -> None:
    backend: Any = Dispatching()
    tape: Any = [7]
    loop = Loop(backend, Tape(uploaded(tape, backend)), lambda: backend.now)
    found = [loop.run_for(100 * MS, batches_per_reading) for _ in range(3)]
    rates = [each.rows * MS / each.ns for each in found]
    assert max(rates) <= 4
    assert min(rates) == pytest.approx(4, rel=2 * DISPATCH / MS)
    assert {each.resets for each in found} == {0}


@pytest.mark.parametrize(
    ("adapter", "status", "verdict"), [("Honest", 0, "identical"), ("Stale", 1, "different"), ("ResetRows", 1, None)]
)
def test_device_rows_are_compared(vebench: Command, adapter: str, status: int, verdict: str | None) -> None:
    asked = ("run", "-e", "CartPole", "-w", "2", "--no-base", "-b", f"on_device:{adapter}")
    assert vebench(*asked, *BRIEF, world=world_here()).status == status
    (cell,) = store.read(Path("run.jsonl")).cells
    assert (cell.proof and cell.proof.verdict) == verdict
    assert (cell.first_step_ns is None) == (cell.status == "failed")
    assert sum(window.resets for window in cell.windows) == 0


@pytest.mark.parametrize(("adapter", "verdict"), [("Honest", "identical"), ("Stale", "different")])
def test_device_rows_are_verified(vebench: Command, adapter: str, verdict: str) -> None:
    asked = ("verify", "-e", "CartPole", "-b", f"on_device:{adapter}", "-f", "json")
    assert f'"verdict": "{verdict}"' in vebench(*asked, world=world_here()).out


def test_no_policy_acts_on_rows_that_stay_on_a_device(vebench: Command) -> None:
    asked = ("run", "-e", "CartPole", "--policy", "sleep:1ms")
    assert vebench(*asked, "-b", "native[deliver=device]", world=world_here()).status == 2
    assert vebench(*asked, "-b", "on_device:Honest", *BRIEF, world=world_here()).status == 1
