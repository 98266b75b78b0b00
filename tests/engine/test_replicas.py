"""Cells of several replicas: who gets which CPUs, and what they come to together."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.commands import ONE_PASS, Command

from vebench.backends.interface import Engine
from vebench.child.answers import Answer, Done, Layout, Ready, ReplicaWindow, Warm, Window
from vebench.engine.cell_process import Replicas, common_window, joined_facts
from vebench.engine.runner import CellError
from vebench.machine.host import Node, Placement, Topology, place
from vebench.plan.cells import Where, divided, expand
from vebench.plan.grammar import BackendChoice
from vebench.plan.spec import PER_NODE, RunSpec
from vebench.plan.tasks import TASKS
from vebench.process_guard import Wakeful

SECOND = 1_000_000_000
TWO_NODES = Topology(
    online=tuple(range(8)),
    cores=tuple((cpu,) for cpu in range(8)),
    packages={"0": tuple(range(8))},
    nodes=(Node(0, (0, 1, 2, 3), 1 << 30), Node(1, (4, 5, 6, 7), 1 << 30)),
    caches=(),
    kinds=(tuple(range(8)),),
)
EIGHT = place("compact", frozenset(range(8)), topology=TWO_NODES)


@given(
    workers=st.integers(1, 300),
    cpus=st.integers(1, 64),
    quota=st.one_of(st.none(), st.floats(0.5, 64)),
    wanted=st.one_of(st.just(PER_NODE), st.integers(1, 40)),
    halves=st.integers(0, 64),
)
def test_replicas_share_the_cells_cpus_and_workers_out_whatever_their_numbers(
    workers: int, cpus: int, quota: float | None, wanted: int | Literal["node"], halves: int
) -> None:
    homes = {cpu: (int(cpu >= halves),) for cpu in range(cpus)}
    placement = Placement(tuple(range(cpus)), max(1, min(cpus, int(quota or cpus))), homes=homes)
    replicas = divided(wanted, workers, placement)
    assert [cpu for _, owned in replicas for cpu in owned] == list(placement.owned(workers))
    assert sum(share for share, _ in replicas) == workers
    assert all(share >= 1 and owned for share, owned in replicas)
    assert all(abs(share - workers * len(owned) / len(placement.owned(workers))) < 1 for share, owned in replicas)
    if wanted != PER_NODE:
        assert len(replicas) == min(wanted, workers, len(placement.owned(workers)))


def test_a_cell_of_several_replicas_is_planned_as_their_sum() -> None:
    spec = RunSpec(("Pong",), (6,), (BackendChoice("envpool-async"),), replicas="node")
    (cell,) = expand(spec, (TASKS["Pong"],), Where(EIGHT)).cells
    assert [(replica.workers, replica.cpus, replica.nodes, replica.first_env) for replica in cell.replicas] == [
        (4, (0, 1, 2, 3), (0,), 0),
        (2, (4, 5), (1,), 12),
    ]
    assert (cell.shape.num_envs, cell.shape.batch_size, cell.shape.processes) == (18, 6, 2)
    assert (cell.cpus, cell.nodes) == ((0, 1, 2, 3, 4, 5), (0, 1))


def window_at(start: int, rows: int, ns: int = SECOND, **fields: int) -> ReplicaWindow:
    return ReplicaWindow(start, Window(ns=ns, rows=rows, resets=0, **fields))


def test_only_the_time_in_which_all_replicas_ran_is_counted() -> None:
    early = window_at(0, 1000, cpu_ns=SECOND, steal_ns=10, throttled_ns=7, throttles=1)
    late = window_at(SECOND // 10, 2000, cpu_ns=SECOND, steal_ns=20, throttled_ns=8, throttles=1)
    window = common_window([early, late])
    assert (window.ns, window.rows, window.cpu_ns) == (9 * SECOND // 10, 900 + 1800, 9 * SECOND // 5)
    assert (window.steal_ns, window.throttled_ns, window.throttles, window.others_ns) == (27, 8, 1, None)


class FakeReplica:
    """Has answered all that its script holds, and waits."""

    news = ()

    def __init__(self, *script: object) -> None:
        self._script = iter(script)
        self.started_at: int | None = None

    def take(self) -> Any:
        answer = next(self._script, None)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def start(self, at_ns: int) -> None:
        self.started_at = at_ns


READY = Ready(5, Layout(num_envs=2, batch_size=2, processes=1, threads=1, frame_skip=4, affinity=(0,)))
DONE = Done(100, (("0",),), 300, settled=True, priorities=("nice 1",))


def together(*replicas: FakeReplica, windows: int = 1) -> list[Answer]:
    return list(Replicas(replicas, windows, "ab", clock=lambda: 40).messages())


def test_replicas_are_started_together_and_followed_as_one() -> None:
    other = Ready(9, replace(READY.layout, affinity=(1,)))
    last = Done(50, (("1",),), 500, settled=False, priorities=("nice 1", "nice 2"))
    replicas = [
        FakeReplica(READY, Warm(), window_at(0, 10), window_at(SECOND, 11), DONE),
        FakeReplica(other, Warm(), window_at(0, 20), window_at(SECOND, 22), last),
    ]
    ready, *windows, done = together(*replicas, windows=2)
    assert [replica.started_at for replica in replicas] == [40 + SECOND // 20] * 2
    assert ready == Ready(9, replace(READY.layout, num_envs=4, batch_size=4, processes=2, affinity=(0, 1)))
    assert [window.rows for window in windows if isinstance(window, Window)] == [30, 33]
    joined = Done(150, (("0",), ("1",)), 500, settled=False, priorities=("nice 1", "nice 2"))
    assert done == joined


def test_what_is_true_of_any_replica_is_true_of_their_cell() -> None:
    engine, other = Engine("ALE", "0.11.2", "0.12.1", "ale-py==0.11.2"), Engine("MuJoCo", "3.6", "3.7", "mujoco==3.6")
    first = replace(READY.layout, differences=("a", "b"), engines=(engine,))
    second = replace(READY.layout, differences=("b", "c"), engines=(other, engine), unbound="not permitted")
    ready, _ = together(*(FakeReplica(Ready(5, layout), Warm(), DONE) for layout in (first, second)), windows=0)
    assert isinstance(ready, Ready)
    assert ready.layout.unbound == "not permitted"
    assert (ready.layout.differences, ready.layout.engines) == (("a", "b", "c"), (engine, other))
    assert joined_facts([first, replace(second, affinity=None)]).affinity is None


@pytest.mark.parametrize("ahead", [(), (READY, Warm())], ids=["at once", "after two"])
@pytest.mark.parametrize("end", [CellError("boom"), DONE])
@pytest.mark.parametrize("other", [(READY, Warm(), window_at(0, 1), DONE), ()], ids=["goes well", "hangs"])
def test_a_replica_that_fails_ends_the_cell(other: tuple[object, ...], ahead: tuple[object, ...], end: object) -> None:
    if end is DONE and not other:
        return
    with pytest.raises(CellError, match=r"b: boom|b answered Done instead of"):
        together(FakeReplica(*other), FakeReplica(*ahead, end))


def test_time_in_which_the_runner_was_stopped_does_not_count_towards_a_timeout() -> None:
    now = itertools.count(0, 100)  # each look at the clock comes 100 seconds later
    wakeful = Wakeful(lambda: float(next(now)))
    before = wakeful()
    wakeful.wait([], 0.0)
    assert wakeful() - before == 200  # three looks later; the wait took 100 seconds too long


@pytest.mark.whole_machine
def test_each_replica_stays_on_its_own_cpus_with_memory_bound_to_their_node(vebench: Command, tmp_path: Path) -> None:
    if json.loads(vebench("doctor", "-f", "json").out)["usable_cpus"] < 2:
        pytest.skip("needs two CPUs")
    sleeping = "timed:vebench/Sleep-1000us-v0"  # leaves the CPUs to other tests
    cells = ("-e", sleeping, "-w", "2", "-b", "shm-sync", "--no-base")
    # They must overlap, also on a busy machine.
    brief = ("--duration", "0.5", "--warmup", "0.05", "--windows", "2", *ONE_PASS)
    done = vebench("run", *cells, "--replicas", "2", "--pin", "compact[mem=bind]", *brief, "-q", "-o", "run.jsonl")
    assert (done.status, done.err) == (0, "")
    _, cell = map(json.loads, (tmp_path / "run.jsonl").read_text().splitlines())
    first, second = cell["replicas"]
    assert sorted(first + second) == sorted(cell["cpus"])
    assert (cell["num_envs"], len(cell["windows"])) == (2, 2)
    seats = {thread for process in cell["seats"] for thread in process}
    assert seats == {",".join(map(str, first)), ",".join(map(str, second))}
    assert cell["unbound"] in (None, "Operation not permitted")
