"""A replica on another host: whose clock its times are in, and what ends it."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import replace
from math import inf
from typing import Any, cast

import pytest

from vebench.backends.interface import Setup, Task
from vebench.child.answers import CellProof, Done, ReplicaWindow
from vebench.child.request import Replaying, Request, Settings
from vebench.engine.cell_process import FarCell, Limit
from vebench.engine.interface import CellError
from vebench.hosts import LostHostError, Said, Site
from vebench.interpreters.process_guard import Interrupts

SECOND = 1_000_000_000
LIMIT = Limit(60.0, "--timeout", inf)
REQUEST = Request(
    Setup(Task("CartPole-v1", "classic", 1), 1, 1, (0,), 0, True),
    "for-loop",
    "a:B",
    {},
    Settings(1.0, 4, 0.1, 1.0, 60.0, "none"),
    "/",
    mode="in_step",
)


class Told:
    """Whether the user wants to stop."""

    requested = False

    def fileno(self) -> int:
        return 0


class Host:
    """A host whose clock is so many nanoseconds ahead of that which ``time`` is; its first answer takes ``trip_ns``.

    Others take twice as long, and all of that is on the way back.
    """

    name, cells, descriptor = "ada", 0, 0

    def __init__(self, clock: Clock, ahead_ns: int = 0, trip_ns: int = 2000) -> None:
        self._clock, self.ahead_ns, self._trip_ns, self._asked = clock, ahead_ns, trip_ns, 0
        self.lines: deque[Said] = deque()
        self.told: list[object] = []
        self.lost = False

    def tell(self, **what: Any) -> None:
        if "clock" not in what:
            self.told.append(what.get("say", next(iter(what))))
            return
        self._asked += 1
        there = self._clock.ns + self._trip_ns // 2 + self.ahead_ns
        self._clock.ns += self._trip_ns * min(self._asked, 2)
        self.lines.append(Said(cell=1, clock=there))

    def heard(self) -> Said | None:
        if self.lost:
            raise LostHostError("lost: it burns")
        return self.lines.popleft() if self.lines else None

    def answers(self, **answer: Any) -> None:
        self.lines.append(Said(cell=1, line=json.dumps(answer)))

    def has_measured(self, start_ns: int, ns: int = SECOND, **counted: int) -> None:
        window = {"ns": ns, "rows": 10, "resets": 0, **counted}
        self.answers(ReplicaWindow={"start_ns": start_ns, "window": window})


class Clock:
    """The time of the runner."""

    ns = 10**12


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr("vebench.engine.cell_process.time.perf_counter_ns", lambda: found.ns)
    return found


def replica(host: Host, duration: float = 1.0) -> FarCell:
    """Return a replica that has been started, unless its clock is refused."""
    request = replace(REQUEST, settings=replace(REQUEST.settings, duration=duration))
    far = FarCell(cast("Site", host), request, cast("Interrupts", Told()), LIMIT, measures=True)
    assert far.look() is None
    return far


def done(far: FarCell, host: Host) -> Done:
    host.answers(Done={})
    answer = far.look()
    assert isinstance(answer, Done)
    return answer


def test_times_are_those_of_our_clock(clock: Clock) -> None:
    host = Host(clock, ahead_ns=5 * SECOND)
    far = replica(host)
    far.start(1000)
    assert host.told == ["start", str(5 * SECOND + 1000)]
    host.has_measured(5 * SECOND + 1500, 1)
    answer = far.look()
    assert isinstance(answer, ReplicaWindow)
    assert answer.start_ns == 1500


@pytest.mark.parametrize("ahead", [-(10**15), 0, 5 * SECOND])
def test_an_offset_is_that_of_the_shortest_of_a_few_round_trips(clock: Clock, ahead: int) -> None:
    host = Host(clock, ahead_ns=ahead, trip_ns=1_000_000)
    (share,) = done(replica(host), host).hosts or ()
    assert (share.offset_ns, share.error_ns) == (ahead, 500_000)


def test_a_clock_that_is_known_too_badly_is_refused_before_anything_is_started(clock: Clock) -> None:
    host = Host(clock, trip_ns=SECOND // 25)
    with pytest.raises(
        CellError, match=r"its clock is known only to within 0\.02 s, over 1% of a window: use a longer"
    ):
        replica(host)
    assert host.told == []
    assert replica(Host(clock, trip_ns=SECOND // 25), duration=3)


def test_it_tells_what_the_host_did_and_what_others_took_of_its_own_cpus(clock: Clock) -> None:
    """A twentieth is too much of one host, whatever others lost."""
    for taken, disturbed in ((0, False), (SECOND // 10, True)):
        host = Host(clock)
        far = replica(host)
        for number in range(4):
            clock.ns += SECOND
            host.has_measured(number * SECOND, steal_ns=taken, others_ns=0)
            far.look()
        (share,) = done(far, host).hosts or ()
        assert (share.steps_per_second, share.taken_ns, share.disturbed) == (10.0, 4 * taken, disturbed)


def test_one_that_ends_once_it_is_done_is_no_fault(clock: Clock) -> None:
    host = Host(clock)
    far = replica(host)
    host.answers(Done={})
    host.lines.append(Said(cell=1, ended="its process exited with status 0", log="bye"))
    assert isinstance(far.look(), Done)
    assert far.look() is None
    assert far.log() == "bye"


def test_one_that_ends_before_it_is_done_has_failed(clock: Clock) -> None:
    host = Host(clock)
    far = replica(host)
    host.lines.append(Said(cell=1, ended="its process was ended by SIGSEGV", log="bye"))
    with pytest.raises(CellError, match="its process was ended by SIGSEGV"):
        far.look()
    assert (far.log(), host.told) == ("bye", ["start"])


def test_a_working_cell_is_told_to_end_once_and_a_done_one_is_not(clock: Clock) -> None:
    working, closing = Host(clock), Host(clock)
    both = [replica(working), replica(closing)]
    done(both[1], closing)
    for host in (working, closing):
        host.lines.append(Said(cell=1, ended="it ended", log="what it printed"))
    for far in both:
        far.tell_to_end()
        far.end()
        far.end()
    assert (working.told, closing.told) == (["start", "end"], ["start"])
    assert both[0].log() == "what it printed"


def test_what_is_not_timed_is_started_at_once(clock: Clock) -> None:
    host = Host(clock)
    request = replace(REQUEST, mode="alone", job=Replaying(()))
    far = FarCell(cast("Site", host), request, cast("Interrupts", Told()), LIMIT, measures=False)
    assert host.told == ["start"]
    host.answers(CellProof={"verdict": "identical"})
    assert far.look() == CellProof("identical")
