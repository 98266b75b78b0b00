"""The runner's logic, with a fake launch: nothing is started and nothing is timed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import pytest

from vebench.backends.entry import Shape
from vebench.backends.interface import Task
from vebench.child.answers import Cause, Done, Failure, Layout, Ready, Warm, Window
from vebench.engine.runner import CellError, CellFinished, CellStarted, Conversation, WindowDone, run
from vebench.plan.cells import Cell, Plan
from vebench.plan.grammar import BackendChoice
from vebench.plan.spec import RunSpec

READY = Ready(5, Layout(num_envs=2, batch_size=2, processes=1, threads=1, frame_skip=4))
WINDOW = Window(ns=100, rows=20, resets=1)
WHOLE = (READY, WINDOW, WINDOW, Done(1 << 20))


def cell(workers: int, skip: str | None = None) -> Cell:
    task, shape = Task("CartPole-v1", "classic", 1), Shape(workers, workers, 1, 1)
    return Cell(task, BackendChoice("for-loop"), workers, 1, shape, (0,), skip=skip)


class Table:
    """Cells by their number of workers, alone or in turn: each goes on when it may, as its script holds."""

    def __init__(self, **scripts: tuple[object, ...]) -> None:
        self._scripts = {int(name[1:]): script for name, script in scripts.items()}
        self.running: set[int] = set()
        self.awake: set[int] = set()
        self.turns: list[int] = []

    @contextmanager
    def __call__(self, cell: Cell) -> Iterator[Place]:
        script = self._scripts[cell.workers]
        if isinstance(script[0], OSError):
            raise script[0]
        self.running.add(cell.workers)
        self.awake.add(cell.workers)
        try:
            yield Place(self, cell.workers, script)
        finally:
            self.running.remove(cell.workers)
            self.awake.discard(cell.workers)


class Place(Conversation):
    """One cell at the table; an exception in its script is raised."""

    def __init__(self, table: Table, workers: int, script: tuple[object, ...]) -> None:
        self._table, self._workers, self._script = table, workers, script

    def take_turn(self) -> None:
        assert self._workers in self._table.running
        self._table.turns.append(self._workers)
        self._table.awake.add(self._workers)

    def rest(self) -> None:
        self._table.awake.remove(self._workers)

    def messages(self) -> Iterator[Any]:
        for message in self._script:
            assert self._table.awake == {self._workers}, "it is another's turn"
            if isinstance(message, BaseException):
                raise message
            if isinstance(message, Failure):
                raise CellError(message.reason)
            yield message

    def log(self) -> str:
        return f"what {self._workers} printed"


def plan_of(*cells: Cell) -> Plan:
    return Plan(RunSpec(("CartPole",), (1,)), cells)


def taken(table: Table, *cells: Cell, interrupted: bool = False) -> list[object]:
    """Return the events of a run of these cells, until the user interrupts it, if he does."""
    events: list[object] = []
    with pytest.raises(KeyboardInterrupt) if interrupted else nullcontext():
        for event in run(plan_of(*cells), table):
            if isinstance(event, CellFinished) and not interrupted:
                assert event.cell.workers not in table.running, "reported when nothing of it runs any more"
                assert table.awake <= {event.cell.workers}, "nothing of the others runs meanwhile"
            events.append(event)
    assert not table.running
    return events


def finished(events: list[object]) -> list[CellFinished]:
    return [event for event in events if isinstance(event, CellFinished)]


@pytest.mark.parametrize("fault", [CellError("timed out after 5 s"), Failure("timed out after 5 s")])
def test_a_failed_cell_keeps_its_windows_and_its_reason_and_the_run_goes_on(fault: object) -> None:
    first, second = finished(taken(Table(w1=(READY, WINDOW, fault), w2=WHOLE), cell(1), cell(2)))
    assert (first.outcome.status, first.outcome.reason) == ("failed", "timed out after 5 s")
    assert first.outcome.windows == (WINDOW,)
    assert first.outcome.log == "what 1 printed"
    assert second.outcome.status == "ok"


@pytest.mark.parametrize("group", [None, 0])
@pytest.mark.parametrize("fault", [CellError("timed out after 5 s, in reset"), Failure("boom, in step 3")])
def test_a_task_that_the_plain_loop_cannot_step_is_over_and_other_tasks_go_on(fault: object, group: int | None) -> None:
    other = replace(cell(4, None), task=Task("Acrobot-v1", "classic", 1))
    plan = [replace(each, group=group) for each in (cell(1), cell(2), replace(cell(1), repeat=1))]
    started = {"w1": (fault,), "w2": (AssertionError("started"),), "w4": WHOLE}
    first, second, third, last = finished(taken(Table(**started), *plan, other))
    why = getattr(fault, "reason", str(fault))
    assert first.outcome.reason == why
    for skipped in (second, third):
        assert skipped.outcome.status == "failed"
        assert str(skipped.outcome.reason).endswith(f"with one worker cannot step CartPole-v1: {why}")
    assert last.outcome.status == "ok"


@pytest.mark.parametrize(("envs", "builds"), [(1, False), (2, True)])
def test_several_environments_in_one_process_may_fail_where_others_do_not(envs: int, builds: bool) -> None:
    base = replace(cell(1), envs_per_worker=envs, shape=Shape(envs, envs, 1, 1))
    first, second = finished(taken(Table(w1=(Failure("one in each process"),), w2=WHOLE), base, cell(2)))
    assert (first.outcome.status, second.outcome.status == "ok") == ("failed", builds)


IN_TURN = (READY, Warm(), WINDOW, WINDOW, Done(1 << 20))


def seated(*workers: int) -> list[Cell]:
    return [replace(cell(count), group=0) for count in workers]


def test_cells_of_a_group_are_started_first_and_then_go_on_in_turn_there_and_back() -> None:
    table = Table(w1=IN_TURN, w2=IN_TURN, w3=IN_TURN)
    events = taken(table, *seated(1, 2, 3))
    assert table.turns == [1, 2, 3, 3, 2, 1, 1, 2, 3]  # two windows each, and the turn in which each ends
    kinds = [type(event) for event in events]
    assert kinds == [*[CellStarted] * 3, *[WindowDone] * 6, *[CellFinished] * 3]
    assert [event.cell.workers for event in events if isinstance(event, WindowDone)] == [1, 2, 3, 3, 2, 1]
    for event in finished(events):
        assert (event.outcome.status, event.outcome.windows) == ("ok", (WINDOW, WINDOW))


def test_a_cell_of_a_group_that_fails_leaves_at_once_and_the_others_go_on() -> None:
    fails = (READY, Warm(), WINDOW, CellError("timed out after 5 s"))
    table = Table(w1=IN_TURN, w2=fails, w3=(Failure("no such game"),), w4=(OSError("too many processes"),))
    ended = {event.cell.workers: event.outcome for event in finished(taken(table, *seated(1, 2, 3, 4)))}
    assert list(ended) == [3, 4, 2, 1]
    assert table.turns == [1, 2, 2, 1, 1]
    assert (ended[1].status, len(ended[1].windows)) == ("ok", 2)
    assert (ended[2].reason, ended[2].windows) == ("timed out after 5 s", (WINDOW,))
    assert ended[2].log == "what 2 printed"
    assert (ended[3].status, ended[3].reason) == ("failed", "no such game")
    assert "too many processes" in str(ended[4].reason)


def test_out_of_time_no_cell_starts_and_those_that_lack_windows_are_given_up() -> None:
    table = Table(w1=IN_TURN, w2=IN_TURN, w3=IN_TURN)
    looks = iter([False] * 6)  # two before starts, two in the first round, and the third of three cells is not started
    told = list(run(plan_of(*seated(1, 2, 3)), table, out_of_time=lambda: next(looks, True) or len(table.turns) > 2))
    ended = {event.cell.workers: event.outcome for event in finished(told)}
    assert not table.running
    assert all((one.status, one.cause) == ("failed", Cause.GIVEN_UP) for one in ended.values() if len(one.windows) < 2)
    assert any(len(one.windows) < 2 for one in ended.values())
    alone = run(plan_of(cell(1), cell(2, skip="no")), Table(), out_of_time=lambda: True)
    assert [(event.cell.workers, event.outcome.status) for event in finished(list(alone))] == [(2, "skipped")]


def test_an_interrupted_group_is_told_with_the_windows_that_it_has() -> None:
    stops = (READY, Warm(), WINDOW, KeyboardInterrupt())
    table = Table(w1=(READY, Warm(), WINDOW, Done(None)), w2=stops, w3=(READY, Warm(), *[WINDOW] * 3))
    told = [(event.cell.workers, event.outcome) for event in finished(taken(table, *seated(1, 2, 3), interrupted=True))]
    assert [(workers, outcome.cause) for workers, outcome in told] == [(n, Cause.INTERRUPTED) for n in (1, 2, 3)]
    assert [len(outcome.windows) for _, outcome in told] == [1, 1, 2]
