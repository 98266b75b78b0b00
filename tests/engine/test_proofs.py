"""Comparisons of backends by two processes each, with a fake launch: nothing is started and nothing is timed."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from support.fakes import FakeCell, Script

from vebench.backends.entry import Shape
from vebench.backends.environments.suites import OTHER
from vebench.backends.interface import Task
from vebench.child.answers import Done, Failure, Proof
from vebench.child.request import Judging, Recording, Stepping
from vebench.engine.runner import CellError, CellFinished, Outcome, ProofDone, replayed, unproven, verified
from vebench.plan.cells import Cell, Replica
from vebench.plan.grammar import BackendChoice
from vebench.plan.spec import RunSpec

PONG, MINE = Task("ALE/Pong-v5", "atari", 4), Task("mine/Own-v0", OTHER.name, 1)
SAME = Proof("identical", rows=9, ends=3)
HANGS = CellError("timed out after 9 s (--timeout)")


def cell(name: str, task: Task = PONG, skip: str | None = None) -> Cell:
    return Cell(task, BackendChoice(name), 1, 1, Shape(1, 1, 1, 1), (0,), skip=skip, job=Stepping(50))


def proven(
    cells: Sequence[Cell], stepped: Mapping[str, Script], judged: Mapping[str, Script]
) -> tuple[list[str], list[str]]:
    """Return what is found of each cell, and which processes were started, given what these answer by backend."""
    asked = []

    @contextmanager
    def launch(cell: Cell) -> Iterator[FakeCell]:
        name = cell.backend.name
        if not isinstance(cell.job, Judging):
            asked.append(f"step {name}")
            yield FakeCell(stepped.get(name, [Done()]))
        else:
            asked.append(f"judge {name}{f' ({cell.job.failed})' if cell.job.failed else ''}")
            yield FakeCell(judged.get(name, [SAME]))

    found = [
        f"{one.backend.name} {answer.verdict} {answer.reason or ''}".strip()
        for one, answer, _ in verified(tuple(cells), launch)
    ]
    return found, asked


def test_one_process_steps_a_backend_and_another_compares() -> None:
    found, asked = proven([cell("gym-sync"), cell("shm-sync")], {"gym-sync": [Done()]}, {})
    assert found == ["gym-sync identical", "shm-sync identical"]
    assert asked == ["step gym-sync", "judge gym-sync", "step shm-sync", "judge shm-sync"]


def test_what_a_backend_returned_before_it_failed_is_compared_all_the_same() -> None:
    found, asked = proven(
        [cell("gym-sync"), cell("shm-sync")],
        {"gym-sync": [Failure("it raised")], "shm-sync": [HANGS]},
        {"gym-sync": [Proof("different", 3)], "shm-sync": [Proof("unverified", reason="it hung, in step 3")]},
    )
    assert found == ["gym-sync different", "shm-sync unverified it hung, in step 3"]
    assert asked[1] == "judge gym-sync (it raised)"


def test_a_judge_that_gives_no_proof_costs_the_other_backends_nothing() -> None:
    cells = [cell("gym-sync"), cell("shm-sync"), cell("fast-sync")]
    found, _ = proven(cells, {"gym-sync": [Failure("it raised")]}, {"gym-sync": [HANGS], "shm-sync": [HANGS]})
    assert found == ["gym-sync unverified it raised", f"shm-sync unverified {HANGS}", "fast-sync identical"]


def test_a_backend_that_cannot_run_starts_nothing() -> None:
    found, asked = proven([cell("gym-sync", skip="not installed")], {}, {})
    assert (found, asked) == (["gym-sync unverified not installed"], [])


def test_an_environment_that_hangs_is_waited_for_once_and_not_by_each_backend() -> None:
    cells = [cell("gym-sync", MINE), cell("shm-sync", MINE)]
    hung = [Proof("unverified", reason=f"{HANGS}, in reset 1, with 1 environment", failed=True)]
    found, asked = proven(cells, {"for-loop": [HANGS]}, {"for-loop": hung})
    why = f"not compared: for-loop cannot step mine/Own-v0: {hung[0].reason}"
    assert found == [f"gym-sync unverified {why}", f"shm-sync unverified {why}"]
    assert asked == ["step for-loop", f"judge for-loop ({HANGS})"]


def test_what_was_recorded_on_a_host_is_compared_there_and_a_reason_names_it() -> None:
    shape = Shape(1, 1, 1, 1)
    replicas = tuple(Replica(1, shape, (0,), host=host) for host in ("a", "b"))
    measured = replace(cell("gym-sync"), replicas=replicas, job=Recording("x.rows", 7, replica=1))
    asked: list[Cell] = []

    @contextmanager
    def launch(cell: Cell) -> Iterator[FakeCell]:
        asked.append(cell)
        yield FakeCell([CellError("lost: it burns")])

    spec = RunSpec(("Pong",), (1,), proof="auto")
    *_, done = replayed(unproven(CellFinished(measured, Outcome("ok")), spec), launch)
    assert isinstance(done, ProofDone)
    assert (done.proof.verdict, done.proof.reason, done.proof.seed) == ("unverified", "b: lost: it burns", 7)
    assert [one.replicas for one in asked] == [(replicas[1],)]
