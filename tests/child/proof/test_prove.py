"""What a comparison tells while it waits for a backend, and what comparisons of several share."""

from __future__ import annotations

from collections import Counter
from threading import Event
from typing import TYPE_CHECKING, Any

from vebench.backends.ale_vector import DIFFERENCES
from vebench.backends.registry import find
from vebench.backends.setup import Setup, Task
from vebench.child.answers import Comparing, Proof
from vebench.child.proof import prove as module
from vebench.child.proof.prove import Here, prove, prove_each
from vebench.child.proof.recording import CutOffError, Ended, Rows
from vebench.child.request import Proving, Request, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pytest

    from vebench.child.answers import Answer
    from vebench.child.proof.recording import Record
    from vebench.child.proof.trials import Trial


CARTPOLE = Task("CartPole-v1", "classic", 1)


def request_for(backend: str, task: Task = CARTPOLE) -> Request:
    setup = Setup(task, workers=2)
    settings = Settings(1.0, 1, 0.0, 0.0, 300.0, "local")
    return Request(setup, backend, find(backend).target, {}, settings, "/", proving=Proving(50))


def test_how_far_a_backend_is_that_hangs_is_told_while_it_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BETWEEN_S", 0.01)
    told = Event()

    class Hangs(Here):
        def records(self) -> Iterator[Record]:
            for record in super().records():
                yield record
                if isinstance(record, Rows) and record.number == 19:
                    told.wait(60)
                    raise CutOffError

    def answer(answer: Answer) -> None:
        if isinstance(answer, Comparing) and answer.place.startswith("in step 20 after reset 1, with "):
            told.set()

    found: Any = prove(request_for("for-loop"), Hangs, answer)
    assert told.is_set()
    assert found.reason.startswith("the backend's rows broke off, in step 20 after reset 1, with ")


def test_a_backend_whose_close_does_not_return_is_told_to_be_closed_and_not_to_be_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "BETWEEN_S", 0.01)
    told = Event()

    class HangsInClose(Here):
        def records(self) -> Iterator[Record]:
            for record in super().records():
                yield record
                if isinstance(record, Ended):
                    told.wait(60)
                    raise CutOffError

    def answer(answer: Answer) -> None:
        if isinstance(answer, Comparing) and answer.place.startswith("while it was closed, with "):
            told.set()

    found: Any = prove(request_for("for-loop"), HangsInClose, answer)
    assert told.is_set()
    assert found.reason.startswith("the backend's rows broke off, while it was closed, with ")


def test_every_backend_that_was_started_ahead_is_ended_and_one_that_cannot_be_compared_is_not_started() -> None:
    running: Counter[str] = Counter()
    most = 0

    class Noted(Here):
        def __init__(self, request: Request, trials: Sequence[Trial]) -> None:
            nonlocal most
            super().__init__(request, trials)
            self._name = request.backend
            running[self._name] += 1
            most = max(most, running.total())

        def __exit__(self, *error: object) -> None:
            super().__exit__(*error)
            running[self._name] -= 1

    answers: list[Answer] = []
    names = ("for-loop", "gym-sync", "envpool-sync", "gym-sync")
    prove_each([request_for(name) for name in names], Noted, answers.append)
    found = [answer.verdict for answer in answers if isinstance(answer, Proof)]
    assert found == ["identical", "identical", "unverified", "identical"]
    assert (set(running), running.total(), most) == ({"for-loop", "gym-sync"}, 0, 2)


def test_rows_that_are_remembered_are_as_good_as_rows_that_are_made_again() -> None:
    def proofs(*names: str) -> list[Answer]:
        answers: list[Answer] = []
        prove_each([request_for(name) for name in names], Here, answers.append)
        return [answer for answer in answers if isinstance(answer, Proof)]

    (alone,) = proofs("shm-sync")
    assert proofs("gym-sync", "shm-sync")[1] == alone
    assert (alone.verdict, alone.ends > 0) == ("identical", True)


def test_games_of_a_backend_that_cannot_make_exactly_one_no_op_at_a_reset_are_compared_without_any() -> None:
    found = prove(request_for("ale-vector-sync", Task("ALE/Pong-v5", "atari", 4)), Here)
    assert (found.verdict, found.allowed) == ("equivalent", (DIFFERENCES[0].text,))
