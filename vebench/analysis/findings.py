"""Findings and their codes. ``rules`` has the table of all findings."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

NO_REASON = "no reason was recorded"  # why a cell failed


class Gravity(StrEnum):
    """The consequence of a finding for the results that it is about. The gravest level comes first."""

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


@dataclass(frozen=True)
class Finding:
    """A reason not to trust a rate, or a hint. The message omits details of single cells: many may share a finding."""

    code: Code
    message: str  # the problem
    remedy: str
