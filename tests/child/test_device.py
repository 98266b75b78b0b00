"""Rows that stay on a device: the clock is read once they are computed, and they are compared as any others are."""

from pathlib import Path

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
ROWS = 4
BRIEF = (*ONE_PASS[:-1], "full", "--duration", "0.04", "--warmup", "0.02", "--windows", "2", "-q", "-o", "run.jsonl")


class Dispatching:
    """A device that takes 1 ms of its clock to compute a batch, the first ``compiling``; ``recv`` returns at once."""

    def __init__(self, compiling: int = MS) -> None:
        space = ActionSpace.discrete(2)
        self.info = BackendInfo(ROWS, ROWS, space, 1, autoreset="same_step", in_order=True, on_device=True)
        self.now = self._busy_until = 0
        self._next = compiling

    def upload(self, actions: object) -> object:
        return "uploaded", actions

    def send(self, actions: object) -> None:
        assert actions == ("uploaded", 7)
        self.now += DISPATCH
        self._busy_until = max(self._busy_until, self.now) + self._next
        self._next = MS

    def recv(self) -> Batch:
        done = self._busy_until

        def wait() -> None:
            self.now = max(self.now, done)

        flags = Array(np.ones(ROWS, np.bool_), wait)  # every row is an end, and none is a reset
        return Batch(Array(np.zeros((ROWS, 3)), wait), Array(np.zeros(ROWS), wait), flags, flags, np.arange(ROWS))


def looped(backend: Dispatching) -> Loop:
    return Loop(backend, Tape(uploaded([7], backend)), lambda: backend.now)  # type: ignore[arg-type, list-item]


@pytest.mark.parametrize("batches_per_reading", [1, 10])
def test_a_device_that_returns_before_it_has_computed_is_no_faster(batches_per_reading: int) -> None:
    loop = looped(Dispatching())
    found = [loop.run_for(100 * MS, batches_per_reading) for _ in range(3)]
    assert [each.rows * MS / each.ns for each in found] == pytest.approx([ROWS] * 3, rel=2 * DISPATCH / MS)
    assert all(each.rows * MS <= each.ns * ROWS for each in found)
    assert {each.resets for each in found} == {0}


def test_the_first_step_is_timed_with_what_it_compiles() -> None:
    loop = looped(Dispatching(compiling=36_000 * MS))
    assert loop.first_step() == 36_000 * MS + DISPATCH
    assert loop.run_for(10 * MS, 1).rows == 10 * ROWS


@pytest.mark.parametrize(
    ("adapter", "status", "verdict"), [("Honest", 0, "identical"), ("Stale", 1, "different"), ("ResetRows", 1, None)]
)
def test_device_rows_are_compared_as_others_are(
    vebench: Command, adapter: str, status: int, verdict: str | None
) -> None:
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
