"""Comparisons of several backends by one process, with a fake launch: nothing is started and nothing is timed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from vebench.backends.entry import Shape
from vebench.backends.interface import Task
from vebench.child.answers import Comparing, Failure, Proof
from vebench.engine.conversation import CellError
from vebench.engine.verifier import Printed, prove
from vebench.plan.cells import Cell
from vebench.plan.spec import BackendChoice

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vebench.child.answers import Answer

PONG, HOPPER = Task("ALE/Pong-v5", "atari", 4), Task("Hopper-v5", "mujoco", 4)
BEGINS, SAME = Comparing(0), Proof("identical", rows=9, ends=3)


def cell(name: str, task: Task = PONG, skip: str | None = None) -> Cell:
    return Cell(task, BackendChoice(name), "", 1, 1, Shape(1, 1, 1, 1), (0,), skip=skip)


class Process:
    """What one process answers; an exception in it is raised."""

    def __init__(self, answers: Sequence[Answer | Exception]) -> None:
        self._answers = answers

    def messages(self) -> Iterator[Answer]:
        for answer in self._answers:
            if isinstance(answer, Exception):
                raise answer
            yield answer

    def log(self) -> str:
        return "printed"


def proven(cells: Sequence[Cell], *processes: Sequence[Answer | Exception]) -> tuple[list[str], list[str]]:
    """Return what is found of each cell, and for each process that was started which backends it was to compare."""
    left, asked = list(processes), []

    @contextmanager
    def launch(first: Cell) -> Iterator[Process]:
        asked.append(" ".join(one.backend.name for one in (first, *first.then)))
        yield Process(left.pop(0))

    found = [
        f"{one.backend.name} {answer.verdict} {answer.reason or ''}".strip()
        for one, answer in prove(tuple(cells), launch)
        if not isinstance(answer, (Comparing, Printed))
    ]
    assert not left
    return found, asked


def test_backends_of_a_task_are_compared_by_one_process() -> None:
    cells = [cell("gym-sync"), cell("shm-sync"), cell("fast-sync", HOPPER)]
    found, asked = proven(cells, [BEGINS, SAME, BEGINS, Failure("it raised")], [BEGINS, SAME])
    assert found == ["gym-sync identical", "shm-sync unverified it raised", "fast-sync identical"]
    assert asked == ["gym-sync shm-sync", "fast-sync"]


def test_a_backend_that_takes_its_judge_along_costs_the_others_nothing() -> None:
    cells = [cell("gym-sync"), cell("shm-sync"), cell("fast-sync")]
    found, asked = proven(cells, [BEGINS, SAME, BEGINS, CellError("no end after 9 s")], [BEGINS, SAME])
    assert found == ["gym-sync identical", "shm-sync unverified no end after 9 s", "fast-sync identical"]
    assert asked == ["gym-sync shm-sync fast-sync", "fast-sync"]


def test_what_happens_between_two_backends_is_held_against_neither() -> None:
    cells = [cell("gym-sync"), cell("shm-sync"), cell("fast-sync")]
    found, asked = proven(cells, [BEGINS, SAME, CellError("ended by SIGKILL")], [CellError("again")], [BEGINS, SAME])
    assert found == ["gym-sync identical", "shm-sync unverified again", "fast-sync identical"]
    assert asked == ["gym-sync shm-sync fast-sync", "shm-sync fast-sync", "fast-sync"]


def test_a_process_that_stops_answering_in_good_order_is_followed_by_another() -> None:
    found, asked = proven([cell("gym-sync"), cell("shm-sync")], [SAME], [])
    assert found == ["gym-sync identical", "shm-sync unverified it gave no answer"]
    assert asked == ["gym-sync shm-sync", "shm-sync"]


def test_a_backend_that_cannot_run_here_is_told_in_its_place_and_starts_nothing() -> None:
    cells = [cell("gym-sync"), cell("shm-sync", skip="not installed"), cell("fast-sync")]
    found, asked = proven(cells, [BEGINS, SAME], [BEGINS, SAME])
    assert found == ["gym-sync identical", "shm-sync unverified not installed", "fast-sync identical"]
    assert asked == ["gym-sync", "fast-sync"]


def test_an_adapter_that_is_not_our_own_has_a_process_for_itself() -> None:
    cells = [cell("gym-sync"), cell("mine:One"), cell("mine:Two"), cell("shm-sync")]
    found, asked = proven(cells, [BEGINS, SAME], [CellError("it is gone")], [BEGINS, SAME], [BEGINS, SAME])
    assert found == ["gym-sync identical", "mine:One unverified it is gone", "mine:Two identical", "shm-sync identical"]
    assert asked == ["gym-sync", "mine:One", "mine:Two", "shm-sync"]
