"""The codes of findings, and the findings on machines: what a reader should know before trusting a figure.

``rules`` has the findings on cells and runs. Each finding has a remedy. Unknown facts cause no warning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from vebench.backends.packages import how_to_install
from vebench.machine.host import MEBIBYTE
from vebench.machine.sysfs import parse_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vebench.backends.packages import Package
    from vebench.backends.registry import Standing
    from vebench.results.records import HostRecord

# A container's /dev/shm is 64 MiB unless it was given more.
_LITTLE_SHARED_MEMORY = 128 * MEBIBYTE
# The share of the allowed CPUs' time that other processes may use before figures are in doubt.
_OTHERS_SHARE = 0.05
NO_REASON = "no reason was recorded"  # why a cell failed
# Patterns in the reason of a failure, each with its remedy; the first match counts. {spawned} is the backend with
# processes that are spawned, not forked. Remedies with it are for backends that have the option.
_WAYS_OUT = (
    (r"Too many open files", "allow more open files (ulimit -n 65536), or measure fewer environments"),
    (r"daemonic processes", "choose a backend without workers, or let the environment start its process by subprocess"),
    (r"in one process|per process", "choose a backend with a process for each environment"),
    (r"timed out .*(while it was built|in reset)", "if a thread or lock was lost in a fork, use -b '{spawned}'"),
    (r"(Assertion|Index|Key|Value)Error.*, in step", "if only some actions are legal, give --policy MODULE:FUNCTION"),
)
# Governors that keep the clock up under load at once.
_STEADY_GOVERNORS = frozenset({"performance"})


class Gravity(StrEnum):
    """What a finding means for the figures that it is about. The gravest level comes first."""

    FAULT = "fault"  # the figure is missing or must not be used
    WARNING = "warning"  # the figure is less certain than it looks, not what was requested, or not complete yet
    NOTE = "note"  # the figure is valid: the finding explains the table, or how to get a higher figure


class Code(StrEnum):
    """A short fixed name, which users' scripts see, with its gravity.

    Reports list findings in this order, which a test keeps by gravity. JSON and CSV keep the order of the rules.
    """

    gravity: Gravity

    def __new__(cls, text: str, gravity: Gravity) -> Self:
        """Return the member whose value is ``text``."""
        code = str.__new__(cls, text)
        code._value_ = text
        code.gravity = gravity
        return code

    FAILED = "failed", Gravity.FAULT
    DIFFERENT_WORK = "different-work", Gravity.FAULT
    ABOVE_CEILING = "above-ceiling", Gravity.FAULT  # significantly faster: this figure is wrong, or the ceiling's
    BELOW_SIMULATOR = "below-simulator", Gravity.FAULT  # too little CPU time: this figure is wrong, or the ceiling's
    UNUSABLE = "unusable", Gravity.FAULT  # most cells were disturbed or throttled

    INCOMPLETE = "incomplete", Gravity.WARNING  # cells are missing, or lines of the file are damaged
    OTHER_PACKAGES = "other-packages", Gravity.WARNING  # versions differ: with MuJoCo, so does the simulation
    FALLBACK = "fallback", Gravity.WARNING  # the rate is right, but Gymnasium's class stepped
    POLLING = "polling", Gravity.WARNING  # a backend that polls has fewer CPUs than processes, or shares them
    THROTTLED = "throttled", Gravity.WARNING  # a CPU quota is, or was, less than the CPUs requested
    UNPINNED = "unpinned", Gravity.WARNING  # neither CPUs nor memory are bound as the user asked
    PRIORITY = "priority", Gravity.WARNING  # it takes or leaves time of the CPUs that others do not
    EXTRA_THREADS = "extra-threads", Gravity.WARNING
    DISTURBED = "disturbed", Gravity.WARNING
    IMPRECISE = "imprecise", Gravity.WARNING  # no interval, a wide one, or one wider than requested
    DRIFTING = "drifting", Gravity.WARNING  # the rate changed while it was measured, or when warm-up ended
    AGEING = "ageing", Gravity.WARNING  # the rate depends on how many steps an environment has made
    LOOP_COST = "loop-cost", Gravity.WARNING  # the rate is too low, by a share that is known only roughly
    SHORT_WINDOWS = "short-windows", Gravity.WARNING  # windows have few batches
    FEW_RESETS = "few-resets", Gravity.WARNING  # resets take much of the time, and windows hold few of them
    UNVERIFIED = "unverified", Gravity.WARNING  # a speedup means nothing if the work differs
    INVALID_VALUES = "invalid-values", Gravity.WARNING  # the environment's fault: the work may still be the same
    CLOCKS = "clocks", Gravity.WARNING
    MEMORY = "memory", Gravity.WARNING  # of the machine: little shared memory, or nodes without it

    OUTLIERS = "outliers", Gravity.NOTE  # they are kept, and the interval includes them
    SLOWER = "slower", Gravity.NOTE  # slower than the loop, or than with fewer workers: a valid result
    OVERSUBSCRIBED = "oversubscribed", Gravity.NOTE  # the user asked for it, and the rate is valid
    VIRTUAL_MACHINE = "virtual-machine", Gravity.NOTE  # cells that lost CPU time are reported as disturbed
    SKIPPED = "skipped", Gravity.NOTE  # the cell cannot run here: says why the table has a gap, and what to install


GRAVEST_FIRST = tuple(Code)


@dataclass(frozen=True)
class Finding:
    """A finding: its ``code``, a ``message`` that describes the problem, and a ``remedy`` that says how to fix it.

    A message omits details of single cells, so that reports can show a finding of many cells once.
    """

    code: Code
    message: str
    remedy: str


@dataclass(frozen=True)
class Surroundings:
    """The current state of the machine, None if unknown: CPU time that other processes use, free bytes of /dev/shm.

    ``missing``: packages that some backends need. ``standings``: backends with environment classes of their own.
    """

    others_share: float | None = None
    shared_memory_bytes: int | None = None
    missing: tuple[Package, ...] | None = None
    standings: tuple[Standing, ...] = ()


def way_out(reason: str, spawned: str = "") -> str:
    """Return the remedy for this reason of a failure, followed by ``; ``. Empty if none is known."""
    known = (way for pattern, way in _WAYS_OUT if re.search(pattern, reason) and (spawned or "{spawned}" not in way))
    return next((f"{way.format(spawned=spawned)}; " for way in known), "")


def of_host(host: HostRecord, now: Surroundings) -> Iterator[Finding]:
    """Yield the findings on a machine, the most costly first."""
    yield from quota(host)
    if now.others_share is not None and now.others_share > _OTHERS_SHARE:
        message = f"other processes use {now.others_share:.0%} of the allowed CPUs' time"
        yield Finding(Code.DISTURBED, message, "end them, or wait until they finish")
    if now.shared_memory_bytes is not None and now.shared_memory_bytes < _LITTLE_SHARED_MEMORY:
        message = f"only {now.shared_memory_bytes // MEBIBYTE} MiB of /dev/shm are free for shared memory"
        remedy = "give the container more (--shm-size 1g), or free some"
        yield Finding(Code.MEMORY, message, remedy)
    if host.governor is not None and not set(host.governor.split(", ")) <= _STEADY_GOVERNORS:
        message = f"the frequency governor is {host.governor}: clock speeds, and so the rates, follow the load"
        remedy = "as root: cpupower frequency-set -g performance"
        yield Finding(Code.CLOCKS, message, remedy)
    if host.boost:
        yield Finding(
            Code.CLOCKS,
            "boost is on: cores run faster when few are busy, so efficiency falls with workers even without contention",
            "leave it on to measure what users get; to compare machines or versions, turn it off (firmware or sysfs)",
        )
    if host.topology.threads_per_core > 1 and host.smt is not False:
        message = f"each core runs {host.topology.threads_per_core} threads: workers beyond the cores share them"
        remedy = "measure up to the number of cores, or with --pin 'compact[smt=off]'"
        yield Finding(Code.OVERSUBSCRIBED, message, remedy)
    # In a poorly configured container, this process may use the CPUs of a node but not its memory.
    usable = host.nodes_allowed
    near = [
        node
        for node, cpus in host.topology.nodes.items()
        if usable is not None and int(node) not in usable and set(host.cpus_allowed).intersection(parse_list(cpus))
    ]
    if near:
        message = f"this process may use the CPUs of node {', '.join(near)}, but not its memory"
        remedy = "allow the memory nodes of the allowed CPUs (--cpuset-mems)"
        yield Finding(Code.MEMORY, message, remedy)
    if host.virtual:
        message = "this is a virtual machine: other machines may use its CPUs and change the rates"
        remedy = "use more --passes, compare only within one run, and check the stolen time"
        yield Finding(Code.VIRTUAL_MACHINE, message, remedy)
    if now.missing:
        names = ", ".join(package.name for package in now.missing)
        yield Finding(Code.SKIPPED, f"not installed: {names}", how_to_install(now.missing))
    yield from own_classes(now.standings)


def quota(host: HostRecord) -> Iterator[Finding]:
    """Yield a finding if the quota is less than the allowed CPUs: workers are then throttled at times."""
    if host.quota_cpus is None or host.quota_cpus >= len(host.cpus_allowed):
        return
    where = f" ({host.quota_source})" if host.quota_source else ""
    limit = f"a quota of {host.quota_cpus:g} CPU{'' if host.quota_cpus == 1 else 's'}{where}"
    if host.quota_cpus < 1:
        message = f"{limit} is less than one CPU: every cell will be throttled"
        yield Finding(Code.THROTTLED, message, "give the container a whole CPU or more (--cpus)")
        return
    yield Finding(
        Code.THROTTLED,
        f"{limit} allows {host.usable_cpus} worker{'s' * (host.usable_cpus != 1)} at a time, "
        f"although {len(host.cpus_allowed)} CPUs are allowed",
        f"measure with --workers up to {host.usable_cpus}, or give the container CPUs of its own (--cpuset-cpus)",
    )


def own_classes(standings: Iterable[Standing]) -> Iterator[Finding]:
    """Yield findings on own classes that cannot be used here, each once."""
    found: dict[Finding, None] = {}
    for backends, _, _, own in standings:
        names = ", ".join(backends)
        if own.refused:
            message = f"{names} will use Gymnasium's class: {own.refused}"
            found[Finding(Code.FALLBACK, message, own.remedy or "leave them out with -b")] = None
    yield from found
