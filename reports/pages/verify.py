"""A verification as a page: whether each backend does the same work as the reference, and what that rests on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from vebench.backends.registry import REFERENCE
from vebench.errors import one_line
from vebench.plan.known_work import SAME
from vebench.reports import figures
from vebench.reports.document import Document, Table, TableRow, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.child.answers import Mismatch, Proof
    from vebench.plan.cells import Cell
    from vebench.reports.document import Tone
    from vebench.reports.page import Kind

ENOUGH_ENDS = 3  # of each environment, to say that what comes after one is the same, too
MEANINGS = (
    "identical: the same bytes. equal: the same but for rewards rounded to float32.",
    "equivalent: only differences that the adapter declares. different: not the same work.",
    "unverified: nothing could be compared.",
)


@dataclass(frozen=True)
class VerifyPage:
    """The proof of every backend on every task, over ``steps`` steps of each environment at least.

    ``seed``: what layouts, lengths and seeds were drawn from.
    """

    proofs: tuple[tuple[Cell, Proof], ...]
    steps: int
    seed: int = 0
    kind: ClassVar[Kind] = "verify"
    title: ClassVar[str] = ""

    @property
    def documents(self) -> tuple[Document, ...]:
        """One document: a table for each task, a row for each backend, with the verdict and what it rests on."""
        envs = dict.fromkeys(cell.task.id for cell, _ in self.proofs)
        document = Document(
            title=f"Same work as {REFERENCE}, over {figures.counted(self.steps, 'step')} of each environment or more,"
            f" drawn from --seed {self.seed}",
            facts=(),
            tables=tuple(_task(env, [pair for pair in self.proofs if pair[0].task.id == env]) for env in envs),
            legend=MEANINGS,
        )
        return (document,)

    @property
    def data(self) -> list[dict[str, object]]:
        """An object for each task and backend."""
        return [
            {
                "env": cell.task.id,
                "backend": cell.backend.label,
                **_facts(proof),
                "summary": reason(proof),
                "seed": self.seed,
            }
            for cell, proof in self.proofs
        ]


def reason(proof: Proof) -> str:
    """Return in one line why a verdict is not plainly ``identical``; empty if it is."""
    if proof.fault:
        return one_line(proof.fault)
    return one_line("; ".join(_why(proof)))


def _task(env: str, proofs: Sequence[tuple[Cell, Proof]]) -> Table:
    return Table(
        title=one_line(env),
        corner="backend",
        columns=("verdict", "rows", "ends", "why"),
        rows=tuple(_row(cell, proof) for cell, proof in proofs),
        notes=tuple(_pictures(cell, proof) for cell, proof in proofs if proof.pictures),
        numbers=False,
    )


def _row(cell: Cell, proof: Proof) -> TableRow:
    tone: Tone = "missing" if proof.verdict in ("different", "unverified") else "plain"
    lines = tuple(one_line(line) for line in (*_why(proof), *_notes(proof)))
    return TableRow(
        one_line(cell.backend.label),
        (
            Text((proof.verdict,), tone, proof.verdict),
            Text((f"{proof.rows:,}",), value=proof.rows),
            Text((f"{proof.ends:,}",), value=proof.ends),
            Text(lines or ("",)),
        ),
    )


def _pictures(cell: Cell, proof: Proof) -> str:
    names = ", ".join(Path(path).name for path in proof.pictures)
    return one_line(f"{cell.backend.label}: see in {Path(proof.pictures[0]).parent} {names}")


def _why(proof: Proof) -> list[str]:
    """Return what a reader needs to know beyond the verdict, in lines."""
    lines = [text for text in (proof.fault, proof.reason) if text]
    if proof.mismatch is not None:
        lines.append(_mismatch(proof.mismatch))
    share = f" in {proof.excused / proof.rows:.1%} of all rows" if proof.excused and proof.rows else ""
    lines += [f"declared{share}: {text}" for text in proof.allowed]
    if proof.verdict in SAME and not proof.ends:
        lines.append("no episode ended: --steps would have to be larger")
    return lines


def _facts(proof: Proof) -> dict[str, object]:
    """Return the proof's fields; ``parting`` is the name by which other programs know the mismatch."""
    facts = {"parting" if name == "mismatch" else name: value for name, value in asdict(proof).items()}
    del facts["unnamed"]  # a page has none
    return facts


def _mismatch(first: Mismatch) -> str:
    """Return where a backend's row first is not the reference's."""
    size = "" if first.size is None else f" (off by {first.size:.3g})"
    place = f"environment {first.env_id}, step {first.step}"
    return f"first at {place}: {first.field} {first.found} instead of {first.expected}{size}"


def _notes(proof: Proof) -> list[str]:
    """Return what is worth knowing whatever the verdict: which classes, frames counted, engines that others lack."""
    lines = [] if proof.own_classes is None else [proof.own_classes.words]
    if proof.verdict in SAME and proof.ends:
        fewest = "1 end" if proof.fewest_ends == 1 else f"{proof.fewest_ends} ends"
        few = f"{fewest} of some environment" + (": fewer than 3" if proof.fewest_ends < ENOUGH_ENDS else " at least")
        lines.append(f"ends by a limit on time: {proof.cut_off:,}; {few}")
    if proof.simulated is not None and proof.claimed is not None:
        lines.append(f"frames simulated {proof.simulated:,} of {proof.claimed:,} claimed, by {proof.frames_from}")
    for engine in proof.engines:
        if engine.unlike and proof.verdict in SAME:
            lines.append(f"{engine.words}; the rows compared here were the same")
        elif engine.unlike:
            lines.append(f"{engine.words}: {engine.matching} is the same version")
    return lines
