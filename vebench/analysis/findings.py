"""Findings and their codes. ``rules`` has the table of all findings."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

NO_REASON = "no reason was recorded"  # why a cell failed


class Gravity(StrEnum):
    """The consequence of a finding for the results that it concerns. The gravest level comes first."""

    FAULT = "fault"  # the figure is missing or must not be used
    WARNING = "warning"  # the figure is uncertain, incomplete, or was measured in another way than requested
    NOTE = "note"  # the figure is valid; the finding explains it, or says how to get a higher figure


class Code(StrEnum):
    """The short name of a kind of finding, with its gravity. Users' scripts see the name, so it never changes.

    Reports list findings in this order. A test checks that it follows gravity. JSON and CSV use the order of the rules.
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
    ABOVE_CEILING = "above-ceiling", Gravity.FAULT  # significantly faster: this rate or the ceiling is wrong
    BELOW_SIMULATOR = "below-simulator", Gravity.FAULT  # too little CPU time: this time or the ceiling is wrong
    UNUSABLE = "unusable", Gravity.FAULT  # most cells were disturbed or throttled

    INCOMPLETE = "incomplete", Gravity.WARNING  # cells are missing, or lines of the file are damaged
    OTHER_PACKAGES = "other-packages", Gravity.WARNING  # versions differ; versions of MuJoCo simulate differently
    FALLBACK = "fallback", Gravity.WARNING  # the rate is right, but Gymnasium's class stepped, not vebench's own
    POLLING = "polling", Gravity.WARNING  # a backend that polls shares CPUs, or has fewer CPUs than processes
    THROTTLED = "throttled", Gravity.WARNING  # a CPU quota is, or was, less than the CPUs requested
    UNPINNED = "unpinned", Gravity.WARNING  # CPUs or memory are not bound as the user asked
    PRIORITY = "priority", Gravity.WARNING  # a changed priority gives a backend more or less CPU time than the others
    EXTRA_THREADS = "extra-threads", Gravity.WARNING
    DISTURBED = "disturbed", Gravity.WARNING
    IMPRECISE = "imprecise", Gravity.WARNING  # no interval, a wide one, or one wider than requested
    DRIFTING = "drifting", Gravity.WARNING  # the rate changed during measurement, or had not settled when warm-up ended
    AGEING = "ageing", Gravity.WARNING  # the rate depends on how many steps an environment has made
    LOOP_COST = "loop-cost", Gravity.WARNING  # the measuring loop lowers the rate, by a roughly known share
    SHORT_WINDOWS = "short-windows", Gravity.WARNING  # windows have few batches
    FEW_RESETS = "few-resets", Gravity.WARNING  # resets take much of the time, and windows hold few of them
    UNVERIFIED = "unverified", Gravity.WARNING  # a speedup means nothing if the work differs
    INVALID_VALUES = "invalid-values", Gravity.WARNING  # the environment returns them; the work may still be the same
    CLOCKS = "clocks", Gravity.WARNING
    MEMORY = "memory", Gravity.WARNING  # the machine has little shared memory

    OUTLIERS = "outliers", Gravity.NOTE  # outliers are kept, and the interval includes them
    SLOWER = "slower", Gravity.NOTE  # slower than the plain loop, or than with fewer workers; the rate is valid
    OVERSUBSCRIBED = "oversubscribed", Gravity.NOTE  # the user asked for it, and the rate is valid
    VIRTUAL_MACHINE = "virtual-machine", Gravity.NOTE  # cells that lost CPU time are reported as disturbed
    SKIPPED = "skipped", Gravity.NOTE  # the cell cannot run here; the finding says why, and what to install


@dataclass(frozen=True)
class Finding:
    """A reason not to trust a rate, or a hint. Cells can share it, because the message has no details of one cell."""

    code: Code
    message: str  # the problem
    remedy: str
