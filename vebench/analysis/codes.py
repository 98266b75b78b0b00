"""The closed table of what vebench warns of: every code that a finding can have, with its gravity.

A code that is not here cannot be found, and one that no rule finds fails a test. Reports list findings of cells in the
order of this table, the gravest first.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Gravity(StrEnum):
    """What a finding means for the figure beside which it stands. The gravest level is the first."""

    FAULT = "fault"  # there is no figure, or one not to be used
    WARNING = "warning"  # the figure says less than it seems to, or something that was asked for is missing
    NOTE = "note"  # the figure stands as it is: this helps to understand it, or to do better


class Code(StrEnum):
    """A short fixed name, as users' scripts see it, and its gravity."""

    gravity: Gravity

    def __new__(cls, text: str, gravity: Gravity) -> Self:
        """Return the member whose value is ``text``."""
        code = str.__new__(cls, text)
        code._value_ = text
        code.gravity = gravity
        return code

    # Of a cell, the gravest first.
    FAILED = "failed", Gravity.FAULT
    INTERRUPTED = "interrupted", Gravity.FAULT  # the user's own doing, but the figure is missing all the same
    DIFFERENT_WORK = "different-work", Gravity.FAULT
    ABOVE_CEILING = "above-ceiling", Gravity.FAULT  # no backend can be so fast: the figure is wrong, or the ceiling's
    UNLIKE_ENGINES = "unlike-engines", Gravity.WARNING  # the rate is right, but it is that of another simulation
    THROTTLED = "throttled", Gravity.WARNING  # windows that were held back count only where there are no others
    UNPINNED = "unpinned", Gravity.WARNING  # rates of few workers are too high beside those of many
    MEMORY_UNBOUND = "memory-unbound", Gravity.WARNING  # not measured as it was asked for
    EXTRA_THREADS = "extra-threads", Gravity.WARNING
    DISTURBED = "disturbed", Gravity.WARNING
    UNSTABLE = "unstable", Gravity.WARNING
    IMPRECISE = "imprecise", Gravity.WARNING
    DRIFTING = "drifting", Gravity.WARNING
    UNSETTLED = "unsettled", Gravity.WARNING
    LOOP_COST = "loop-cost", Gravity.WARNING  # the rate is too low by a share that is known only roughly
    SHORT_WINDOWS = "short-windows", Gravity.WARNING
    TOO_FEW_WINDOWS = "too-few-windows", Gravity.WARNING  # without an interval a figure cannot be compared
    TOO_FEW_REPEATS = "too-few-repeats", Gravity.WARNING
    UNVERIFIED = "unverified", Gravity.WARNING  # a speedup over the reference means nothing if the work is another
    OUTLIERS = "outliers", Gravity.NOTE  # they are kept, and the interval allows for them
    RESET_BURSTS = "reset-bursts", Gravity.NOTE  # the interval allows for them
    SLOWER_THAN_FOR_LOOP = "slower-than-for-loop", Gravity.NOTE  # a result, and the table shows it
    RETROGRADE = "retrograde", Gravity.NOTE  # likewise
    OVERSUBSCRIBED = "oversubscribed", Gravity.NOTE  # true to what was asked for, and often meant
    SKIPPED = "skipped", Gravity.WARNING  # only this says why the table has a gap, and what to install

    # Of a run and its file.
    INCOMPLETE = "incomplete", Gravity.WARNING  # what there is of the run stands
    FILE = "file", Gravity.WARNING  # a line is lost, the others stand

    # Of the machine.
    QUOTA = "quota", Gravity.WARNING
    OTHER_LOAD = "other-load", Gravity.WARNING
    LITTLE_SHM = "little-shm", Gravity.WARNING  # a cell that needs more fails, and says so
    GOVERNOR = "governor", Gravity.WARNING
    MEMORY_NODES = "memory-nodes", Gravity.WARNING
    BOOST = "boost", Gravity.NOTE  # users have it on, too
    SMT = "smt", Gravity.NOTE
    VIRTUAL_MACHINE = "virtual-machine", Gravity.NOTE  # time that was taken from a cell is counted, and reported there
    MISSING_PACKAGES = "missing-packages", Gravity.NOTE  # nobody needs all of them; a skipped cell names its own
