"""The closed table of codes that a finding can have, each with its gravity.

A finding with another code cannot be made, and a code that no rule uses fails a test. Tables and texts list the
findings of cells by gravity, and those of equal gravity in the order of this table; JSON and CSV keep the order of the
rules. A test keeps the table in that order, too.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Gravity(StrEnum):
    """What a finding means for the figures that it is about. The gravest level comes first."""

    FAULT = "fault"  # there is no figure, or it must not be used
    WARNING = "warning"  # a figure is less certain than it looks, not what was asked for, or not there yet
    NOTE = "note"  # no figure is in doubt: this helps to understand the table, or to get a higher figure


class Code(StrEnum):
    """A short fixed name, which users' scripts see, with its gravity. A comment gives a reason that is not obvious."""

    gravity: Gravity

    def __new__(cls, text: str, gravity: Gravity) -> Self:
        """Return the member whose value is ``text``."""
        code = str.__new__(cls, text)
        code._value_ = text
        code.gravity = gravity
        return code

    # Faults about a cell.
    FAILED = "failed", Gravity.FAULT
    INTERRUPTED = "interrupted", Gravity.FAULT  # the user ended it, but its figure is missing all the same
    DIFFERENT_WORK = "different-work", Gravity.FAULT
    ABOVE_CEILING = "above-ceiling", Gravity.FAULT  # no backend can be so fast: this figure is wrong, or the ceiling's

    # Faults about a run.
    UNUSABLE = "unusable", Gravity.FAULT  # others, or a quota, had most of its cells' CPUs: no figure is the backend's

    # Warnings about a cell.
    UNLIKE_ENGINES = "unlike-engines", Gravity.WARNING  # the rate is right, but it is that of another simulation
    FALLBACK = "fallback", Gravity.WARNING  # the rate is right, but it is that of shm-sync or shm-async
    CONTESTED = "contested", Gravity.WARNING  # a backend that polls has no rate where others have its CPUs, too
    POLLING = "polling", Gravity.WARNING  # a true rate, but the worst of a backend that wants a CPU for each process
    THROTTLED = "throttled", Gravity.WARNING  # windows that were held back count only where there are no others
    UNPINNED = "unpinned", Gravity.WARNING  # cells of few workers may have used more CPUs than they count
    MEMORY_UNBOUND = "memory-unbound", Gravity.WARNING  # it was not measured as the user asked
    EXTRA_THREADS = "extra-threads", Gravity.WARNING
    DISTURBED = "disturbed", Gravity.WARNING
    UNSTABLE = "unstable", Gravity.WARNING
    IMPRECISE = "imprecise", Gravity.WARNING
    DRIFTING = "drifting", Gravity.WARNING
    UNSETTLED = "unsettled", Gravity.WARNING
    LOOP_COST = "loop-cost", Gravity.WARNING  # the rate is too low, by a share that is only roughly known
    SHORT_WINDOWS = "short-windows", Gravity.WARNING
    TOO_FEW_WINDOWS = "too-few-windows", Gravity.WARNING  # without an interval a figure cannot be compared
    TOO_FEW_REPEATS = "too-few-repeats", Gravity.WARNING
    UNVERIFIED = "unverified", Gravity.WARNING  # a speedup means nothing if the work is not the same
    UNPROVEN = "unproven", Gravity.WARNING  # verify vouches for other processes than this one
    INVALID_VALUES = "invalid-values", Gravity.WARNING  # the environment's fault: the work may still be the same

    # Warnings about a run and its file.
    INCOMPLETE = "incomplete", Gravity.WARNING  # the cells that are there are good
    FILE = "file", Gravity.WARNING  # one line is lost or damaged, the others are good

    # Warnings about the machine.
    QUOTA = "quota", Gravity.WARNING
    OTHER_LOAD = "other-load", Gravity.WARNING
    LITTLE_SHM = "little-shm", Gravity.WARNING  # a cell that needs more fails, and reports that itself
    GOVERNOR = "governor", Gravity.WARNING
    MEMORY_NODES = "memory-nodes", Gravity.WARNING

    # Notes about a cell.
    OTHER_PACKAGES = "other-packages", Gravity.NOTE  # its verdict tells whether they make a difference
    OUTLIERS = "outliers", Gravity.NOTE  # they are kept, and the interval allows for them
    RESET_BURSTS = "reset-bursts", Gravity.NOTE  # the interval allows for them
    SLOWER_THAN_FOR_LOOP = "slower-than-for-loop", Gravity.NOTE  # a result, and the table shows it
    RETROGRADE = "retrograde", Gravity.NOTE  # a result, and the table shows it
    NOT_COMPILED = "not-compiled", Gravity.NOTE  # the rate is that of the backend as it is installed here
    OVERSUBSCRIBED = "oversubscribed", Gravity.NOTE  # the user asked for it, and the rate is true
    SKIPPED = "skipped", Gravity.NOTE  # it cannot run here: this says why the table has a gap, and what to install

    # Notes about the machine.
    BOOST = "boost", Gravity.NOTE  # users have it on as well
    SMT = "smt", Gravity.NOTE
    VIRTUAL_MACHINE = "virtual-machine", Gravity.NOTE  # a cell whose time was taken is reported as disturbed
    MISSING_PACKAGES = "missing-packages", Gravity.NOTE  # nobody needs all of them; a skipped cell names its own


# As reports list findings: gravity decides, then the place in the table.
GRAVEST_FIRST: tuple[Code, ...] = tuple(sorted(Code, key=lambda code: list(Gravity).index(code.gravity)))
