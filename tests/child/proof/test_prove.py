"""What a comparison tells while it waits for a backend."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING, Any

from vebench.backends.setup import Setup, Task
from vebench.child.answers import Comparing
from vebench.child.proof import prove as module
from vebench.child.proof.prove import Here, prove
from vebench.child.proof.recording import CutOffError, Rows
from vebench.child.request import Proving, Request, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from vebench.child.answers import Answer
    from vebench.child.proof.recording import Record


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

    setup = Setup(Task("CartPole-v1", "classic", 1), workers=2)
    settings = Settings(1.0, 1, 0.0, 0.0, 300.0, "local")
    target = "vebench.backends.for_loop:ForLoop"
    request = Request(setup, "for-loop", target, {}, settings, "/", proving=Proving(50))
    found: Any = prove(request, Proving(50), Hangs, answer)
    assert told.is_set()
    assert found.reason.startswith("the backend's rows broke off, in step 20 after reset 1, with ")
