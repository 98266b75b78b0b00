"""Cells of several pools: who gets which CPUs, how they keep in step, and what they come to together."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vebench.child.loop import Count
from vebench.child.windows import PAUSE_NS, Stretches
from vebench.engine.conversation import CellError, InterruptedCellError
from vebench.engine.events import Layout, Window
from vebench.engine.messages import Done, Failure, Lap, Ready, Warm
from vebench.engine.replicas import LEAD_NS, Ensemble, common
from vebench.errors import UsageError
from vebench.machine.placement import Placement, place
from vebench.machine.topology import Node, Topology
from vebench.plan.cells import expand
from vebench.plan.replicas import Slice, shared_out, slices
from vebench.plan.spec import BackendChoice, RunSpec, check
from vebench.plan.tasks import BY_NAME
from vebench.results.records import INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECOND = 1_000_000_000
TWO_NODES = Topology(
    online=tuple(range(8)),
    cores=tuple((cpu,) for cpu in range(8)),
    packages={"0": tuple(range(8))},
    nodes=(
        Node(0, (0, 1, 2, 3), 1 << 30, {0: 10, 1: 20, 2: 17}),
        Node(1, (4, 5, 6, 7), 0, {0: 20, 1: 10, 2: 15}),
        Node(2, (), 1 << 30, {0: 17, 1: 15, 2: 10}),
    ),
    caches=(),
    kinds=(tuple(range(8)),),
)
EIGHT = place("compact", frozenset(range(8)), topology=TWO_NODES)


def test_a_pool_for_each_node_has_the_nodes_cpus() -> None:
    assert slices("node", 8, EIGHT) == (Slice(4, (0, 1, 2, 3)), Slice(4, (4, 5, 6, 7)))
    assert slices("node", 6, EIGHT) == (Slice(4, (0, 1, 2, 3)), Slice(2, (4, 5)))
    assert slices("node", 3, EIGHT) == (Slice(3, (0, 1, 2)),)


def test_memory_comes_from_the_nearest_node_that_has_any() -> None:
    assert (EIGHT.nodes((0, 1)), EIGHT.nodes((5,)), EIGHT.nodes((0, 5))) == ((0,), (2,), (0, 2))
    only = place("compact", frozenset(range(8)), topology=TWO_NODES, nodes=(0,))
    assert only.nodes((5,)) == (0,)


@given(
    workers=st.integers(1, 300),
    cpus=st.integers(1, 64),
    quota=st.one_of(st.none(), st.floats(0.5, 64)),
    wanted=st.one_of(st.just("node"), st.integers(1, 40).map(str)),
    halves=st.integers(0, 64),
)
def test_pools_share_the_cells_cpus_and_workers_out_whatever_their_numbers(
    workers: int, cpus: int, quota: float | None, wanted: str, halves: int
) -> None:
    homes = {cpu: (int(cpu >= halves),) for cpu in range(cpus)}
    placement = Placement(tuple(range(cpus)), max(1, min(cpus, int(quota or cpus))), homes=homes)
    parts = slices(wanted, workers, placement)
    assert [cpu for part in parts for cpu in part.cpus] == list(placement.owned(workers))
    assert sum(part.workers for part in parts) == workers
    assert all(part.workers >= 1 and part.cpus for part in parts)
    if wanted != "node":
        assert len(parts) == min(int(wanted), workers, len(placement.owned(workers)))


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(0, 300))
def test_workers_are_shared_out_as_the_weights_to_within_one(weights: list[int], more: int) -> None:
    workers = sum(weights) + more
    shares = shared_out(workers, weights)
    ideal = [workers * weight / sum(weights) for weight in weights]
    assert sum(shares) == workers
    assert all(share >= weight for share, weight in zip(shares, weights, strict=True))
    assert all(abs(share - exact) < 1 for share, exact in zip(shares, ideal, strict=True))


def test_a_cell_of_several_pools_is_planned_as_their_sum() -> None:
    spec = RunSpec(("Pong",), (6,), (BackendChoice("envpool-async"),), replicas="node")
    (cell,) = expand(spec, (BY_NAME["Pong"],), EIGHT, None).cells
    assert [(pool.workers, pool.cpus, pool.nodes, pool.first_env) for pool in cell.replicas] == [
        (4, (0, 1, 2, 3), (0,), 0),
        (2, (4, 5), (2,), 12),
    ]
    assert (cell.shape.num_envs, cell.shape.batch_size, cell.shape.processes) == (18, 6, 2)
    assert (cell.cpus, cell.nodes) == ((0, 1, 2, 3, 4, 5), (0, 2))


@pytest.mark.parametrize("wanted", ["0", "-1", "1.5", "nodes", "", "9999", "²"])
def test_a_number_of_replicas_that_is_none_is_refused(wanted: str) -> None:
    with pytest.raises(UsageError, match=r"--replicas .*: must be a whole number from 1 to 1024, or node"):
        check(RunSpec(("Pong",), (1,), replicas=wanted))


def test_replicas_and_bound_memory_need_cpus_of_their_own() -> None:
    with pytest.raises(UsageError, match="--replicas 2: each has CPUs of its own"):
        check(RunSpec(("Pong",), (2,), replicas="2", pin="none"))
    with pytest.raises(UsageError, match="--membind bind: a cell without CPUs of its own"):
        check(RunSpec(("Pong",), (2,), membind="bind", pin="none"))


def lap(start: int, rows: int, ns: int = SECOND, **fields: int) -> Lap:
    return Lap(start, Window(ns=ns, rows=rows, resets=0, **fields))


def test_only_the_time_in_which_all_pools_ran_is_counted() -> None:
    window = common([lap(0, 1000, cpu_ns=SECOND), lap(SECOND // 10, 2000, cpu_ns=SECOND)])
    assert (window.ns, window.rows, window.cpu_ns) == (9 * SECOND // 10, 900 + 1800, 9 * SECOND // 5)


def test_what_each_pool_lost_is_added_up_but_a_quota_held_all_of_them_back_at_once() -> None:
    one, other = (
        lap(0, 10, steal_ns=5, throttled_ns=7, throttles=1),
        lap(0, 10, steal_ns=6, throttled_ns=8, throttles=1),
    )
    window = common([one, other])
    assert (window.steal_ns, window.throttled_ns, window.throttles, window.others_ns) == (11, 8, 1, None)


def test_pools_that_hardly_ran_at_the_same_time_give_no_window() -> None:
    with pytest.raises(CellError, match="hardly ran at the same time: a longer --duration"):
        common([lap(0, 1000), lap(6 * SECOND // 10, 1000)])


class FakePool:
    """Tells what its script holds."""

    def __init__(self, *script: object) -> None:
        self._script = script
        self.started_at: int | None = None

    def messages(self) -> Iterator[Any]:
        for message in self._script:
            if isinstance(message, Exception):
                raise message
            yield message

    def start(self, at_ns: int) -> None:
        self.started_at = at_ns

    def log(self) -> str:
        return "what it printed"


READY = Ready(5, Layout(num_envs=2, batch_size=2, processes=1, threads=1, frame_skip=4, affinity=(0,)))
DONE = Done(100, (("0",),), {"0": 7})


def test_pools_are_started_together_and_heard_as_one() -> None:
    other = Ready(9, replace(READY.layout, affinity=(1,)))
    pools = [
        FakePool(READY, Warm(), lap(0, 10), lap(SECOND, 11), DONE),
        FakePool(other, Warm(), lap(0, 20), lap(SECOND, 22), Done(50, (("1",),), {"0": 1, "1": 2})),
    ]
    ready, *windows, done = Ensemble(pools, 2, clock=lambda: 40).messages()
    assert [pool.started_at for pool in pools] == [40 + LEAD_NS] * 2
    assert ready == Ready(9, replace(READY.layout, num_envs=4, batch_size=4, processes=2, affinity=(0, 1)))
    assert [window.rows for window in windows] == [30, 33]
    assert done == Done(150, (("0",), ("1",)), {"0": 8, "1": 2})


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ((Failure("boom"),), "replica 1: boom"),
        ((READY, Warm(), Failure("boom")), "replica 1: boom"),
    ],
)
def test_a_pool_that_fails_ends_the_cell_with_its_reason(script: tuple[object, ...], reason: str) -> None:
    pools = [FakePool(READY, Warm(), lap(0, 10), DONE), FakePool(*script)]
    assert list(Ensemble(pools, 1).messages())[-1] == Failure(reason)


def test_a_pool_that_dies_ends_the_cell_and_is_named() -> None:
    pools = [FakePool(READY, Warm()), FakePool(READY, CellError("its process was ended by SIGKILL"))]
    with pytest.raises(CellError, match="replica 1: its process was ended by SIGKILL"):
        list(Ensemble(pools, 1).messages())


def test_a_user_who_ends_a_cell_of_several_pools_is_told_of_no_replica() -> None:
    pools = [FakePool(READY, Warm()), FakePool(READY, InterruptedCellError(INTERRUPTED))]
    with pytest.raises(InterruptedCellError) as ended:
        list(Ensemble(pools, 1).messages())
    assert str(ended.value) == INTERRUPTED


class FakeRun:
    """A loop whose every batch takes 7 microseconds of a clock of its own."""

    BATCH = 7_000

    def __init__(self) -> None:
        self.now = 0

    def run(self, span: int) -> Count:
        batches = max(0, -(-span // self.BATCH))
        self.now += batches * self.BATCH
        return Count(batches * self.BATCH, batches, 0)

    def clock(self) -> int:
        return self.now


def test_a_pool_steps_on_until_it_is_told_when_to_begin_and_keeps_to_the_times() -> None:
    loop, looks = FakeRun(), count()
    told = lambda: 90_000_000 if next(looks) == 3 else None  # noqa: E731 - the shortest way to say it
    stretches = Stretches(loop.run, dict, loop.clock)
    laps = list(stretches.in_step(3, 10_000_000, told))
    due = [90_000_000 + number * (10_000_000 + PAUSE_NS) for number in range(3)]
    assert [0 <= lap["start_ns"] - begin < 2 * FakeRun.BATCH for lap, begin in zip(laps, due, strict=True)] == [
        True
    ] * 3
    assert all(lap["window"]["ns"] >= 10_000_000 for lap in laps)
    assert loop.now >= laps[-1]["start_ns"] + laps[-1]["window"]["ns"] + PAUSE_NS


def test_each_pool_stays_on_its_own_cpus_with_memory_bound_to_their_node(tmp_path: Path) -> None:
    allowed = json.loads(subprocess.check_output([sys.executable, "-m", "vebench.cli", "doctor", "--json"]))
    if allowed["usable_cpus"] < 2:
        pytest.skip("needs two CPUs")
    command = [sys.executable, "-m", "vebench.cli", "run", "-e", "CartPole", "-w", "2", "--replicas", "2"]
    command += ["-b", "for-loop,shm-sync,gym-async", "--membind", "bind", "--duration", "0.1", "--rounds", "2"]
    done = subprocess.run(
        [*command, "-q", "-o", "run.jsonl"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    header, *cells = map(json.loads, (tmp_path / "run.jsonl").read_text().splitlines())
    assert header["spec"]["replicas"] == "2"
    for cell in cells:
        first, second = cell["replicas"]
        assert sorted(first + second) == sorted(cell["cpus"])
        assert (cell["num_envs"], len(cell["windows"])) == (2, 2)
        seats = {thread for process in cell["seats"] for thread in process}
        assert seats == {",".join(map(str, first)), ",".join(map(str, second))}
        assert cell["unbound"] is not None or cell["memory_policy"].startswith("bind:")
