"""Whether a cell has done the same work: by what was known before, and by what was found in the cell itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from vebench.backends.registry import REFERENCE
from vebench.child.answers import CellProof
from vebench.plan.known_work import BEST_FIRST, SAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.child.answers import WorkVerdict
    from vebench.results.records import CellRecord

_NOT_COMPARED = CellProof("unverified", reason="the run ended before it was compared")
# A proof in the cell is a verdict where none was known if each environment has ended so often, or made so many steps.
_ENOUGH_ENDS, _ENOUGH_STEPS = 3, 5000


class Work(NamedTuple):
    """The verdict on a cell's work, and why it is not plainly ``identical``, or where it comes from."""

    verdict: WorkVerdict
    reason: str


def work_of(records: Sequence[CellRecord], proofs: Sequence[CellProof]) -> Work:
    """Return the verdict on the work of a cell, given all its repeats, and the proofs of those that have one.

    Work that was seen to differ in the cell is different, whatever was known before. Work of which nothing was known
    is what it was seen to be in the cell, if enough was seen. Otherwise, what was known before counts.
    """
    each = (Work(record.verdict or "unverified", record.verdict_reason) for record in records)
    known = max(each, key=lambda work: BEST_FIRST.index(work.verdict))
    if (proof := together(proofs)) is None:
        return known
    if proof.verdict == "different":
        return Work("different", f"in the measured cell: {difference(proof)}")
    # Each environment of one process was seen for long enough; those of another are others.
    enough = any(one.rows > 0 and (one.ends >= _ENOUGH_ENDS or one.steps >= _ENOUGH_STEPS) for one in proofs)
    if known.verdict == "unverified" and proof.verdict in SAME and enough:
        return Work(proof.verdict, f"seen in the measured cell: {steps(proof)}")
    return known


def proofs_of(records: Sequence[CellRecord], *, proves: bool) -> list[CellProof]:
    """Return the proofs of a cell's repeats, of those that have one, or need one if their run ``proves`` its cells."""
    return [
        record.proof or _NOT_COMPARED
        for record in records
        if record.proof is not None
        or (proves and record.status == "ok" and record.label != REFERENCE and not record.entry.reference_row)
    ]


def unproven(proof: CellProof) -> bool:
    """Return whether nothing was compared, though it could have been."""
    return proof.verdict == "unverified" and not proof.impossible


def steps(proof: CellProof) -> str:
    """Return in words how far a proof goes."""
    environments = f"{proof.environments} environment{'s' * (proof.environments != 1)}"
    if proof.environments < proof.num_envs:
        environments = f"{proof.environments} of {proof.num_envs} environments"
    whole = "all" if proof.steps >= proof.of_steps else f"{proof.steps:,} of"
    return f"{proof.rows:,} rows on the way of {environments} through {whole} {proof.of_steps:,} steps"


def difference(proof: CellProof) -> str:
    """Return in words how the work differs that a proof has found to be different."""
    where, found = "", proof.mismatch
    if found is not None:
        at = f"environment {found.env_id} after {found.step:,} steps"
        where = f"{found.place} of {at} are {found.found} instead of {found.expected}"
    return "; ".join(filter(None, (proof.fault, where))) or "rows differ"


def why_not_same(proof: CellProof) -> str | None:
    """Return in words why a proof does not say that the work is the same, None if it does."""
    return difference(proof) if proof.verdict == "different" else proof.reason


def together(proofs: Sequence[CellProof]) -> CellProof | None:
    """Return the proofs of several repeats as one, with the worst verdict; None if there is none."""
    if not proofs:
        return None
    # Each repeat takes other environments, as long as there are any.
    covered = sum(proof.environments for proof in proofs)
    worst = max(proofs, key=lambda proof: BEST_FIRST.index(proof.verdict))
    return replace(
        worst,
        rows=sum(proof.rows for proof in proofs),
        ends=sum(proof.ends for proof in proofs),
        environments=min(covered, max(proof.num_envs for proof in proofs) or covered),
        steps=sum(proof.steps for proof in proofs),
        of_steps=sum(proof.of_steps for proof in proofs),
        seconds=sum(proof.seconds for proof in proofs),
        invalid=next((proof.invalid for proof in proofs if proof.invalid), None),
    )
