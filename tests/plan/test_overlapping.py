"""Which backends ``--overlap`` and ``--recv-timeout`` choose, and which they refuse."""

from __future__ import annotations

import pytest

from vebench.errors import UsageError
from vebench.plan.grammar import parse_backends
from vebench.plan.overlapping import overlapping
from vebench.plan.spec import RunSpec


def chosen(
    backends: str, overlap: str | None = None, timeout: float | None = None, fewest: str | None = None
) -> list[str]:
    spec = RunSpec(("Pong",), (1,), parse_backends([backends]) if backends else ())
    return [choice.label for choice in overlapping(spec, overlap, timeout, fewest).backends]


def test_without_a_name_those_are_measured_that_can() -> None:
    assert chosen("", "half") == ["shm-half", "fast-half"]
    assert chosen("", "any") == ["shm-async", "fast-async", "envpool-async"]
    assert {"for-loop", "gym-async", "envpool-sync"} < set(chosen("", "none"))
    assert "null" not in chosen("", "none")


def test_a_timeout_is_an_option_of_those_that_take_one() -> None:
    assert chosen("shm-async,for-loop", timeout=0.001, fewest="4") == [
        "shm-async[recv_timeout=0.001,recv_min=4]",
        "for-loop",
    ]
    assert chosen("shm-async[recv_timeout=0.1]", timeout=0.001) == ["shm-async[recv_timeout=0.1]"]
    assert chosen("", "any", 1.0) == ["shm-async[recv_timeout=1.0]", "fast-async[recv_timeout=1.0]", "envpool-async"]


def test_nothing_changes_unless_it_is_asked_for() -> None:
    assert chosen("shm-async") == ["shm-async"]
    assert chosen("") == []


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (("", "all"), "--overlap all: must be one of none, half, any"),
        (("shm-async", "half"), "--overlap half: shm-async does not; shm-half, fast-half do"),
        (("for-loop", None, 0.1), "--recv-timeout: none of the backends takes one; shm-async, fast-async, queue do"),
        (("shm-async", None, None, "2"), "--recv-min 2 needs --recv-timeout"),
        (("shm-async", None, 0.0), "recv_timeout must be a number of seconds above 0, such as 0.001"),
    ],
)
def test_what_cannot_be_is_refused(asked: tuple[str | float | None, ...], problem: str) -> None:
    with pytest.raises(UsageError) as raised:
        chosen(*asked)
    assert problem in str(raised.value)
