"""Which cells take turns with which."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from vebench.backends.entry import Shape
from vebench.backends.interface import Task
from vebench.plan.cells import MOST_PROCESSES, Cell, Plan, Replica, interleaved
from vebench.plan.spec import BackendChoice, RunSpec

GIB = 1 << 30
PONG, ANT = Task("ALE/Pong-v5", "atari", 4), Task("Ant-v5", "mujoco", 5)


def cell(workers: int = 1, repeat: int = 0, task: Task = PONG, processes: int = 1, skip: str | None = None) -> Cell:
    shape = Shape(workers, workers, processes, 1)
    return Cell(task, BackendChoice("gym-async"), workers, 1, shape, (0,), repeat=repeat, skip=skip)


def seats(*cells: Cell, memory: int | None = None) -> list[tuple[int, int | None]]:
    """Return each cell's number of workers and its group."""
    plan = interleaved(Plan(RunSpec(("Pong",), (1,)), cells), memory)
    return [(cell.workers, cell.group) for cell in plan.cells]


def test_the_cells_of_a_pass_on_one_task_sit_in_one_group() -> None:
    assert seats(cell(1), cell(2, task=ANT), cell(3), cell(4, repeat=1), cell(5, repeat=1)) == [
        (1, 0),
        (3, 0),
        (2, 1),
        (4, 2),
        (5, 2),
    ]


def test_a_group_has_room_for_what_memory_and_processes_allow() -> None:
    assert seats(cell(1), cell(2), memory=GIB) == [(1, 0), (2, 0)]
    assert seats(cell(1), cell(2), memory=GIB // 8) == [(1, 0), (2, 1)]
    half = MOST_PROCESSES // 2
    assert seats(cell(1, processes=half), cell(2, processes=half), cell(3)) == [(1, 0), (2, 0), (3, 1)]
    assert seats(cell(1), cell(2, processes=4 * half), cell(3)) == [(1, 0), (2, 1), (3, 2)]


def test_who_cannot_run_or_keeps_in_step_with_itself_sits_in_none() -> None:
    pools = replace(cell(3), replicas=(Replica(1, Shape(1, 1, 1, 1), (0,)),) * 2)
    assert seats(cell(1), cell(2, skip="no such game"), pools, cell(4)) == [(2, None), (3, None), (1, 0), (4, 0)]


CELLS = st.lists(
    st.builds(
        cell,
        st.integers(1, 9),
        st.integers(0, 2),
        st.sampled_from([PONG, ANT]),
        st.integers(1, MOST_PROCESSES + 9),
        st.sampled_from([None, "no"]),
    ),
    max_size=20,
)


@given(CELLS, st.one_of(st.none(), st.integers(1, GIB)))
def test_whatever_the_plan_every_cell_is_measured_once_and_groups_hang_together(
    cells: list[Cell], memory: int | None
) -> None:
    plan = interleaved(Plan(RunSpec(("Pong",), (1,)), tuple(cells)), memory)
    assert Counter(repr(replace(cell, group=None)) for cell in plan.cells) == Counter(map(repr, cells))
    groups = [
        list(members) for number, members in groupby(plan.cells, key=lambda cell: cell.group) if number is not None
    ]
    assert len({group[0].group for group in groups}) == len(groups)
    assert all(len({(cell.repeat, cell.task) for cell in group}) == 1 for group in groups)
