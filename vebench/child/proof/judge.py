"""Judges what a backend returned: computes it anew with the reference, and finds where the two first differ.

The judge is not in the process that steps the backend, and takes nothing from there but the records
(``recording.py``). What it knows of them is in ``bench.py``, the names of faults in ``faults.py``.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from vebench.child.answers import Proof
from vebench.child.proof.bench import MOST_SHARE, Bench, FailedError
from vebench.child.proof.faults import NAMING_S, name_fault
from vebench.child.proof.history import FaultError
from vebench.child.proof.recording import Began, CutOffError, Ended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vebench.child.proof.followed import References
    from vebench.child.proof.recording import Record
    from vebench.child.proof.trials import Guide

AFTER = 24  # steps after the first row that differs that are looked at to name the fault
NOT_REPEATABLE = (
    "the environment gives other results each time, or beside others, with the same seed and the same actions"
)


def judge(  # noqa: PLR0913 - what a recording lacks that comes while the backend is stepped
    records: Iterator[Record],
    references: References,
    *,
    announce: Callable[[Proof, Bench], Proof] = lambda proof, _: proof,
    guide: Callable[[int], Guide] | None = None,
    go_on: Callable[[], None] = lambda: None,
    report: Callable[[Bench], None] = lambda _: None,
    most_share: float = MOST_SHARE,
    of_steps: bool = False,
) -> Proof:
    """Compare everything that is recorded with the reference, and return the result.

    A difference goes to ``announce`` as soon as it is seen, without its name, which then is sought for ``NAMING_S`` at
    most. What ``guide`` has no need of, for so many environments, is not
    compared, and ``go_on`` called when it has enough of a history. ``report`` is called after each record.

    Declared differences may excuse ``most_share`` of the rows that are compared; ``of_steps``: they may apply to this
    share of all steps instead, since rows that are recorded are not drawn evenly.

    Raises CutOffError for records that break off before any difference is seen, FailedError if the backend did, and
    whatever the reference raises.
    """
    bench = Bench(references, guide)
    bench.most_share, bench.of_steps = most_share, of_steps
    try:
        for record in records:
            bench.take(record)
            report(bench)
            if bench.mismatch is not None:
                break
            if bench.has_enough():
                go_on()
    except FaultError as error:
        proof = replace(bench.proof(), verdict="different", fault=str(error))
        bench.give_back()
        return proof
    proof = bench.proof()
    if bench.mismatch is None:
        bench.give_back()
        return proof
    if not bench.repeatable():
        return Proof("unverified", reason=NOT_REPEATABLE)
    proof = announce(proof, bench)
    until = time.monotonic() + NAMING_S
    beyond = _Beyond(bench, records, until)
    beyond.look(AFTER)
    told = [
        name_fault(bench, until),
        f"then {beyond.broken}" if beyond.broken else None,
        f"its adapter says: {bench.about.chance}" if bench.about.chance is not None else None,
    ]
    bench.give_back()
    return replace(proof, fault="; ".join(filter(None, told)) or None)


class _Beyond:
    """What is recorded after a difference. ``broken``: how it broke off, empty if it did not."""

    def __init__(self, bench: Bench, records: Iterator[Record], until: float) -> None:
        self.broken = ""
        self._bench, self._records, self._until = bench, records, until
        self._over = False

    def look(self, steps: int) -> None:
        """Take records up to so many steps after the first row that differs, but no others than of its history."""
        mismatch = self._bench.mismatch
        try:
            while not self._over and mismatch is not None and time.monotonic() < self._until:
                if self._bench.followed[mismatch.env_id].step >= mismatch.step + steps:
                    return
                record = next(self._records, None)
                self._over = record is None or isinstance(record, (Began, Ended))
                if record is not None and not self._over:
                    self._bench.take(record)
        except CutOffError:
            self._over, self.broken = True, "it was cut off"
        except (FaultError, FailedError) as error:
            self._over, self.broken = True, f"it failed: {error}"
