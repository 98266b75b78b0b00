"""A replica on another host: whose clock its times are in, and what ends it."""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any, cast

import pytest

from vebench.child.answers import Done, ReplicaWindow
from vebench.engine.conversation import CellError, InterruptedCellError
from vebench.engine.far import FarReplica, end_all
from vebench.engine.pace import OTHER_PACE
from vebench.hosts.clocks import Offset
from vebench.hosts.site import LostHostError

if TYPE_CHECKING:
    from vebench.hosts.site import Site
    from vebench.interpreters.interrupts import Interrupts

SECOND = 1_000_000_000


class Told:
    """Whether the user wants to stop."""

    requested = False

    def fileno(self) -> int:
        return 0


class Facts:
    def __init__(self, *, shares_our_clock: bool) -> None:
        self.shares_our_clock = shares_our_clock


class Host:
    """A host whose clock is found at ``offsets``, one after the other."""

    name, cell = "ada", 1

    def __init__(self, *offsets: Offset, ours: bool = False) -> None:
        self._offsets = iter(offsets or (Offset(0, 0),) * 2)
        self.facts = Facts(shares_our_clock=ours)
        self.lines: deque[dict[str, Any]] = deque()
        self.told: list[str] = []

    def fileno(self) -> int:
        return 0

    def offset(self) -> Offset:
        for offset in self._offsets:
            return offset
        raise LostHostError("lost: it burns")

    def tell(self, say: str) -> None:
        self.told.append(say)

    def tell_to_end(self) -> None:
        self.told.append("end")

    def log_at_end(self, seconds: float) -> str | None:
        return "what it printed" if seconds > 0 else None

    def heard(self) -> dict[str, Any] | None:
        return self.lines.popleft() if self.lines else None

    def answers(self, **answer: Any) -> None:  # noqa: ANN401 - JSON
        self.lines.append({"cell": 1, "line": json.dumps(answer)})

    def has_measured(self, start_ns: int, ns: int = SECOND) -> None:
        self.answers(replica_window={"start_ns": start_ns, "window": {"ns": ns, "rows": 10, "resets": 0}})


def replica(host: Host, duration_ns: int = SECOND, told: Told | None = None) -> FarReplica:
    return FarReplica(cast("Site", host), cast("Interrupts", told or Told()), duration_ns, 60.0)


def test_times_are_those_of_our_clock() -> None:
    host = Host(Offset(500, 10), Offset(500, 10))
    far = replica(host)
    far.start(1000)
    assert host.told == ["1500"]
    host.has_measured(1500, 1)
    answer = far.look()
    assert isinstance(answer, ReplicaWindow)
    assert answer.start_ns == 1000


def test_where_the_clock_is_ours_nothing_is_translated_and_no_error_matters() -> None:
    host = Host(Offset(500, SECOND), Offset(700, SECOND), ours=True)
    far = replica(host)
    far.start(1000)
    host.answers(done={})
    answer = far.look()
    assert isinstance(answer, Done)
    (share,) = answer.hosts or ()
    assert (host.told, share.same_clock, share.offset_ns) == (["1000"], True, 500)


def test_a_clock_that_is_known_too_badly_is_refused_before_anything_is_measured() -> None:
    with pytest.raises(CellError, match=r"its clock is known to 0\.02 s only, more than 1% of a window: give a longer"):
        replica(Host(Offset(0, SECOND // 50)))
    assert replica(Host(Offset(0, SECOND // 50)), 3 * SECOND)


def test_a_clock_that_has_moved_too_far_meanwhile_is_refused() -> None:
    host = Host(Offset(0, 1000), Offset(SECOND // 50, 1000))
    far = replica(host)
    host.answers(done={})
    with pytest.raises(CellError, match="its clock is known to"):
        far.look()


def test_a_host_that_claims_more_time_than_has_passed_is_refused() -> None:
    host = Host()
    far = replica(host)
    for number in range(3):
        host.has_measured(number * SECOND, 100 * SECOND)
        far.look()
    host.answers(done={})
    with pytest.raises(CellError, match=OTHER_PACE):
        far.look()


def test_a_host_that_is_lost_when_its_clock_is_asked_for_again_says_so() -> None:
    host = Host(Offset(0, 1))
    far = replica(host)
    host.answers(done={})
    with pytest.raises(CellError, match="lost: it burns"):
        far.look()


def test_the_user_can_interrupt_while_a_clock_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host()

    def interrupted() -> Offset:
        raise KeyboardInterrupt

    monkeypatch.setattr(host, "offset", interrupted)
    with pytest.raises(InterruptedCellError):
        replica(host)


def test_all_that_are_not_done_are_told_to_end_before_one_is_waited_for_and_only_once() -> None:
    working, done = Host(), Host()
    both = [replica(working), replica(done)]
    done.answers(done={})
    both[1].look()
    end_all(both)
    assert (working.told, done.told) == (["end"], [])
    for one in both:
        one.end()
    assert (working.told, done.told) == (["end"], [])  # which has closed by itself
    assert both[0].log() == "what it printed"


def test_one_that_is_done_has_no_time_to_close_if_the_user_wants_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    host, told = Host(), Told()
    far = replica(host, told=told)
    host.answers(done={})
    far.look()
    told.requested = True
    waited: list[list[str]] = []
    monkeypatch.setattr(host, "log_at_end", lambda _: waited.append([*host.told]))
    far.end()
    assert waited == [["end"]]
