"""The replicas of a cell as one conversation: they start together, and count only while all of them run."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from vebench.child.answers import Answer, Done, Failure, Layout, Ready, ReplicaWindow, Warm
from vebench.child.window import Window, joined
from vebench.engine.cell_process import CellProcess
from vebench.engine.interface import CellError, Conversation, InterruptedCellError
from vebench.interpreters.process_guard import CHECK_S, wakeful

# Between the last replica's warm-up and the first window: each replica must read when that begins.
LOCAL_LEAD_NS = 50_000_000
FAR_LEAD_NS = 500_000_000  # over a network
_LEAST_COMMON = 0.5  # the share of the longest window in which all replicas must run

_T = TypeVar("_T")
_R = TypeVar("_R")


class Replicas(Conversation):
    """The replicas of a cell as one conversation. The processes may be anywhere: times are by the runner's clock.

    - ``windows``: the number of windows
    - ``names``: of the replicas, in reasons; by default numbers
    - ``lead_ns``: how long after the last replica is warm the first window begins
    """

    def __init__(
        self,
        replicas: Sequence[CellProcess],
        windows: int,
        clock: Callable[[], int] = time.perf_counter_ns,
        names: Sequence[str] = (),
        lead_ns: int = LOCAL_LEAD_NS,
    ) -> None:
        self._replicas = replicas
        self._windows = windows
        self._clock = clock
        self._names = names or [f"replica {number}" for number in range(len(replicas))]
        self._lead_ns = lead_ns
        self._arrived: list[deque[Answer]] = [deque() for _ in replicas]
        self._ended: set[int] = set()
        self._look_at_all = 0.0

    def messages(self) -> Iterator[Answer]:
        """Yield their joint answers up to ``Done``. Raises CellError if a replica has failed."""
        ready = self._each(Ready)
        slowest = max(ready, key=lambda one: one.startup_ns)
        yield Ready(slowest.startup_ns, joined_layout([one.layout for one in ready]), slowest.reset_ns)
        self._each(Warm)
        start = self._clock() + self._lead_ns
        for replica in self._replicas:
            replica.start(start)
        for _ in range(self._windows):
            yield common_window(self._each(ReplicaWindow))
        yield joined_end(self._each(Done))

    def _each(self, kind: type[_T]) -> list[_T]:
        """Return the next answer of each replica. Raises CellError for a failure, or an answer of another kind.

        It listens to all at once: a replica that hangs must not hide that another has died.
        """
        due: Sequence[int] = range(len(self._replicas))
        while not all(self._arrived):
            heard = [self._heard(number) for number in due if number not in self._ended]
            if not any(heard):
                due = self._with_news()
        answers: list[_T] = []
        for name, answer in zip(self._names, [each.popleft() for each in self._arrived], strict=True):
            if not isinstance(answer, kind):
                raise CellError(f"{name} answered {type(answer).__name__} instead of {kind.__name__}")
            answers.append(answer)
        return answers

    def _with_news(self) -> Sequence[int]:
        """Wait until some have news, and return their numbers, but all numbers every ``CHECK_S``: each has limits."""
        talking = [number for number in range(len(self._replicas)) if number not in self._ended]
        ready = wakeful.wait({descriptor for number in talking for descriptor in self._replicas[number].news})
        if not ready or wakeful() > self._look_at_all:
            self._look_at_all = wakeful() + CHECK_S
            return talking
        return [number for number in talking if not ready.isdisjoint(self._replicas[number].news)]

    def _heard(self, number: int) -> bool:
        try:
            answer = self._replicas[number].look()
        except InterruptedCellError:  # by the user: not this replica's fault
            raise
        except CellError as error:
            raise CellError(f"{self._names[number]}: {error}") from None
        if answer is None:
            return False
        if isinstance(answer, Failure):
            raise CellError(f"{self._names[number]}: {answer.reason}")
        if isinstance(answer, Done):
            self._ended.add(number)
        self._arrived[number].append(answer)
        return True

    @property
    def fault(self) -> str | None:
        """Why the clock of a replica cannot be trusted; see ``Conversation``."""
        faults = zip(self._names, [replica.fault for replica in self._replicas], strict=True)
        return next((f"{name}: {fault}" for name, fault in faults if fault), None)

    def tell_to_end(self) -> None:
        """Tell all of them to end, without waiting for one."""
        for replica in self._replicas:
            replica.tell_to_end()

    def log(self) -> str:
        """Return the end of each replica's log, under its name. Replicas that are not done are ended for that."""
        self.tell_to_end()
        texts = [replica.log() for replica in self._replicas]
        return "".join(f"{name}:\n{text}\n" for name, text in zip(self._names, texts, strict=True) if text)


def joined_layout(layouts: Sequence[Layout]) -> Layout:
    """Return the layout of all replicas together.

    It has all differences and engines, each once, and the first reason why memory is unbound. The memory policy is None
    if one of them is unknown.
    """
    policies = [layout.memory_policy for layout in layouts]
    return replace(
        layouts[0],
        num_envs=sum(layout.num_envs for layout in layouts),
        batch_size=sum(layout.batch_size for layout in layouts),
        processes=sum(layout.processes for layout in layouts),
        threads=max(layout.threads for layout in layouts),
        differences=tuple(dict.fromkeys(_chained(layout.differences for layout in layouts))),
        affinity=_joined([layout.affinity for layout in layouts], _chained),
        engines=tuple(dict.fromkeys(_chained(layout.engines for layout in layouts))),
        memory_policy=_joined(policies, lambda each: "; ".join(dict.fromkeys(each))),
        unbound=next((layout.unbound for layout in layouts if layout.unbound is not None), None),
    )


def common_window(windows: Sequence[ReplicaWindow]) -> Window:
    """Return the window in which all replicas ran. It sums the share that each replica did in it, at its own rate.

    Raises CellError if they hardly ran at the same time.
    """
    begin = max(one.start_ns for one in windows)
    end = min(one.start_ns + one.window.ns for one in windows)
    if end - begin < _LEAST_COMMON * max(one.window.ns for one in windows):
        raise CellError("replicas hardly ran at the same time: use a longer --duration")
    shares = [(end - begin) / one.window.ns for one in windows]
    return joined([one.window for one in windows], shares, end - begin)


def joined_end(ends: Sequence[Done]) -> Done:
    """Return the ends of all replicas as one: the longest warm-up, settled if each replica has settled."""

    def summed(counts: Sequence[dict[str, int]]) -> dict[str, int]:
        return {name: sum(one.get(name, 0) for one in counts) for name in sorted({*_chained(counts)})}

    return Done(
        peak_rss_bytes=_joined([one.peak_rss_bytes for one in ends], sum),
        seats=_joined([one.seats for one in ends], _chained),
        memory_by_node=_joined([one.memory_by_node for one in ends], summed),
        warmup_ns=_joined([one.warmup_ns for one in ends], max),
        settled=_joined([one.settled for one in ends], all),
        hosts=_joined([one.hosts for one in ends], _chained),
        priorities=tuple(dict.fromkeys(_chained(one.priorities for one in ends))),
    )


def _joined(values: Sequence[_T | None], join: Callable[[Sequence[_T]], _R]) -> _R | None:
    """Return the values as one; None if one of them is unknown."""
    known = [value for value in values if value is not None]
    return join(known) if len(known) == len(values) else None


def _chained(values: Iterable[Iterable[_T]]) -> tuple[_T, ...]:
    return tuple(item for value in values for item in value)
