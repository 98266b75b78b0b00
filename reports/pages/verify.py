"""What comparing backends came to: from proofs to a neutral document, and to JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from vebench.errors import one_line
from vebench.plan.known_work import SAME
from vebench.reports import figures
from vebench.reports.pages.run import Document, Row, Table, Text, Tone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.child.answers import Proof
    from vebench.plan.cells import Cell

MEANINGS = (
    "identical: the same bytes. equal: the same but for rewards rounded to float32.",
    "equivalent: only differences that the adapter declares. different: not the same work.",
    "unverified: nothing could be compared.",
)


def verdict_document(proofs: Sequence[tuple[Cell, Proof]], steps: int) -> Document:
    """Return a table for each task, a row for each backend, with the verdict and what it rests on."""
    envs = dict.fromkeys(cell.task.id for cell, _ in proofs)
    return Document(
        title=f"Same work as for-loop, over {figures.counted(steps, 'step')} of each environment",
        facts=(),
        tables=tuple(_task(env, [pair for pair in proofs if pair[0].task.id == env]) for env in envs),
        legend=MEANINGS,
    )


def _task(env: str, proofs: Sequence[tuple[Cell, Proof]]) -> Table:
    return Table(
        title=one_line(env),
        corner="backend",
        columns=("verdict", "rows", "ends", "why"),
        rows=tuple(_row(cell, proof) for cell, proof in proofs),
        notes=tuple(_pictures(cell, proof) for cell, proof in proofs if proof.pictures),
        numbers=False,
    )


def _pictures(cell: Cell, proof: Proof) -> str:
    names = ", ".join(Path(path).name for path in proof.pictures)
    return one_line(f"{cell.backend.label}: see in {Path(proof.pictures[0]).parent} {names}")


def _row(cell: Cell, proof: Proof) -> Row:
    tone: Tone = "missing" if proof.verdict in ("different", "unverified") else "plain"
    why = Text(tuple(one_line(line) for line in (*_why(proof), *_notes(proof))) or ("",))
    return Row(
        one_line(cell.backend.label),
        (Text((proof.verdict,), tone), Text((f"{proof.rows:,}",)), Text((f"{proof.ends:,}",)), why),
    )


def reason(proof: Proof) -> str:
    """Return in one line why a verdict is not plainly ``identical``; empty if it is."""
    if proof.fault:
        return one_line(proof.fault)
    return one_line("; ".join(_why(proof)))


def _notes(proof: Proof) -> list[str]:
    """Return what is worth knowing whatever the verdict: frames that were counted, engines that others do not use."""
    lines = []
    if proof.simulated is not None and proof.claimed is not None:
        lines.append(f"frames simulated {proof.simulated:,} of {proof.claimed:,} claimed, by {proof.frames_from}")
    for engine in proof.engines:
        if engine.unlike and proof.verdict in SAME:
            lines.append(f"{engine.words}; the rows compared here were the same")
        elif engine.unlike:
            lines.append(f"{engine.words}: {engine.matching} is the same version")
    return lines


def _why(proof: Proof) -> list[str]:
    """Return what a reader needs to know beyond the verdict, in lines."""
    lines = [text for text in (proof.fault, proof.reason) if text]
    if proof.mismatch is not None:
        first = proof.mismatch
        size = "" if first.size is None else f" (off by {first.size:.3g})"
        place = f"environment {first.env_id}, step {first.step}"
        lines.append(f"first at {place}: {first.field} {first.found} instead of {first.expected}{size}")
    lines += [f"declared: {text}" for text in proof.allowed]
    if proof.verdict in SAME and not proof.ends:
        lines.append("no episode ended: --steps would have to be larger")
    return lines


def verdict_json(proofs: Sequence[tuple[Cell, Proof]]) -> str:
    """Return the proofs as a JSON list, one object for each task and backend."""
    return json.dumps(
        [
            {"env": cell.task.id, "backend": cell.backend.label, **_facts(proof), "summary": reason(proof)}
            for cell, proof in proofs
        ],
        indent=2,
    )


def _facts(proof: Proof) -> dict[str, object]:
    """Return the proof's fields; ``parting`` is the name by which other programs know the mismatch."""
    facts = asdict(proof)
    return {"parting" if name == "mismatch" else name: value for name, value in facts.items()}
