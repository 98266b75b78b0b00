"""The windows of a cell: each timed by the loop, with what the kernel counted meanwhile.

Loaded by the measuring child, also in interpreters that do not have vebench: standard library and Python 3.10 only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.machine import counters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from vebench.engine.measure import Count

    Reading = dict[str, int | None]

# A window that was held back is measured again, twice at most.
MOST_TRIES = 3


def measured(
    run: Callable[[], Count], read: Callable[[], Reading], rounds: int, may_repeat: Callable[[], bool]
) -> Iterator[Reading]:
    """Yield windows until ``rounds`` of them are valid, or have been tried ``MOST_TRIES`` times.

    A window in which a CPU quota held the cell back is no measurement of the backend. It is yielded, too: what to make
    of it is for its reader to say. Once a window was held back at every try, the quota does so always, and none after
    it is tried again; nor is any when ``may_repeat`` says that there is no time.
    """
    tries = MOST_TRIES
    for _ in range(rounds):
        for _ in range(tries):
            before = read()
            count = run()
            window = {**count._asdict(), **difference(before, read())}
            yield window
            if not (window["throttles"] or window["throttled_ns"]):
                break
            if not may_repeat():
                break
        else:
            tries = 1


def read_counters(processes: list[int], cpus: list[int], groups: tuple[Path, ...]) -> Reading:
    """Return what the kernel has counted so far of a cell's processes, of its CPUs, and of its control groups.

    ``others_ns`` is what its CPUs worked less what its processes did: only differences of it mean anything.
    """
    spent, busy, throttling = counters.cpu_time_ns(processes), counters.busy_ns(cpus), counters.throttling(groups)
    return {
        "cpu_ns": spent,
        "throttles": throttling[0] if throttling else None,
        "throttled_ns": throttling[1] if throttling else None,
        "steal_ns": counters.steal_ns(cpus),
        "others_ns": None if spent is None or busy is None else busy - spent,
        "switches": counters.involuntary_switches(processes),
        "migrations": counters.migrations(processes),
    }


def difference(before: Reading, after: Reading) -> Reading:
    """Return how far each counter has gone, None where it could not be read both times."""
    gone: Reading = {}
    for name, first in before.items():
        second = after[name]
        gone[name] = None if first is None or second is None else max(0, second - first)
    return gone
