"""A cell on another host: its clock is compared with the runner's. Also what ends a replica there."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import replace
from math import inf
from typing import Any, cast

import pytest

from vebench.backends.interface import Setup, Task
from vebench.child.answers import Done
from vebench.child.request import Request, Settings
from vebench.engine.cell_process import FarCell, Limit
from vebench.engine.runner import CellError
from vebench.hosts import LostHostError, Said, Site
from vebench.process_guard import Interrupts

SECOND = 1_000_000_000
LIMIT = Limit(60.0, "--timeout", inf, measures=True)
REQUEST = Request(
    Setup(Task("CartPole-v1", "classic", 1), 1, 1, (0,), 0, True),
    "for-loop",
    {},
    Settings(1.0, 4, 0.1, 1.0, 60.0, "none"),
    "/",
    mode="in_step",
)


class NoInterrupts:
    requested = False

    def fileno(self) -> int:
        return 0


class Clock:
    """The time of the runner."""

    ns = 10**12


class Host:
    """A host whose clock is so many nanoseconds ahead of that which ``time`` is; its first answer takes ``trip_ns``.

    Others take twice as long, and all of that is on the way back.
    """

    name, cells, descriptor = "ada", 0, 0

    def __init__(self, clock: Clock, ahead_ns: int = 0, trip_ns: int = 2000) -> None:
        self._clock, self.ahead_ns, self._trip_ns, self._asked = clock, ahead_ns, trip_ns, 0
        self.lines: deque[tuple[int, Said]] = deque()  # with the time at which each comes
        self.told: list[object] = []
        self.lost = ""

    def tell(self, **what: Any) -> None:
        if "clock" not in what:
            self.told.append(what.get("say", next(iter(what))))
            return
        self._asked += 1
        there = self._clock.ns + self._trip_ns // 2 + self.ahead_ns
        self._clock.ns += self._trip_ns * min(self._asked, 2)
        self.says(clock=there)

    def heard(self) -> Said | None:
        if self.lost:
            raise LostHostError(self.lost)
        self._clock.ns, said = self.lines.popleft() if self.lines else (self._clock.ns, None)
        return said

    def says(self, **what: Any) -> None:
        self.lines.append((self._clock.ns, Said(cell=1, **what)))

    def answers(self, **answer: Any) -> None:
        self.says(line=json.dumps(answer))

    def has_measured(self, start_ns: int, ns: int = SECOND, **counted: int) -> None:
        window = {"ns": ns, "rows": 10, "resets": 0, **counted}
        self.answers(ReplicaWindow={"start_ns": start_ns, "window": window})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr("vebench.engine.cell_process.time.perf_counter_ns", lambda: found.ns)
    return found


def replica(host: Host, duration: float = 1.0) -> FarCell:
    """Return a replica that has been started, unless its clock is refused."""
    request = replace(REQUEST, settings=replace(REQUEST.settings, duration=duration))
    return FarCell(cast("Site", host), request, cast("Interrupts", NoInterrupts()), LIMIT)


def done(far: FarCell, host: Host) -> Done:
    host.answers(Done={})
    return next(answer for answer in far.messages() if isinstance(answer, Done))


@pytest.mark.parametrize("ahead", [-(10**15), 0, 5 * SECOND])
def test_an_offset_is_that_of_the_shortest_of_a_few_round_trips(clock: Clock, ahead: int) -> None:
    host = Host(clock, ahead_ns=ahead, trip_ns=1_000_000)
    far = replica(host)
    far.start(10**16)
    assert host.told == ["start", str(10**16 + ahead)]
    (share,) = done(far, host).hosts or ()
    assert (share.offset_ns, share.error_ns) == (ahead, 500_000)
    host.says(ended="its process exited with status 0", log="bye")
    far.end()
    assert (far.log(), len(host.told)) == ("bye", 2), "a cell that is done is not told to end"


def test_a_clock_that_is_known_too_badly_is_refused_before_anything_is_started(clock: Clock) -> None:
    host = Host(clock, trip_ns=SECOND // 25)
    with pytest.raises(CellError, match=r"known only to within 0\.02 s, over 1% of a window"):
        next(replica(host).messages())
    assert host.told == []
    assert replica(Host(clock, trip_ns=SECOND // 25), duration=3)


@pytest.mark.parametrize(("taken", "disturbed"), [(0, False), (SECOND // 10, True)])
def test_it_tells_what_the_host_did_and_what_others_took_of_its_own_cpus(
    clock: Clock, taken: int, disturbed: bool
) -> None:
    host = Host(clock)
    far = replica(host)
    for number in range(4):
        host.has_measured(number * SECOND, steal_ns=taken, others_ns=0)
    (share,) = done(far, host).hosts or ()
    assert (share.steps_per_second, share.taken_ns, share.disturbed) == (10.0, 4 * taken, disturbed)


@pytest.mark.parametrize(("lost", "log"), [("", "bye"), ("lost: it burns", "")])
def test_one_that_ends_or_is_lost_before_it_is_done_has_failed(clock: Clock, lost: str, log: str) -> None:
    host = Host(clock)
    far = replica(host)
    host.lost = lost
    host.says(ended="its process was ended by SIGSEGV", log="bye")
    with pytest.raises(CellError, match=lost or "its process was ended by SIGSEGV"):
        next(far.messages())
    far.end()
    assert (far.log(), host.told) == (log, ["start"])


def test_a_working_cell_is_told_to_end_once(clock: Clock) -> None:
    host = Host(clock)
    far = replica(host)
    host.says(ended="it ended", log="what it printed")
    far.end()
    far.end()
    assert (host.told, far.log()) == (["start", "end"], "what it printed")
