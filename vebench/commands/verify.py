"""A verification from beginning to end: what is to be compared, the comparing, the verdicts, what is kept of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from vebench.backends import registry
from vebench.commands import proving
from vebench.errors import UsageError
from vebench.plan.known_work import Knowledge
from vebench.plan.spec import RunSpec, check_count
from vebench.reports import console
from vebench.reports.formats import markdown, terminal
from vebench.reports.pages.verify import verdict_document, verdict_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vebench.engine.events import Proof
    from vebench.plan.cells import Cell
    from vebench.plan.spec import BackendChoice

DONE, DIFFERENT, INCONCLUSIVE = 0, 1, 3
MAX_STEPS = 10_000_000


def verify(  # noqa: PLR0913 - what the command line asks
    envs: tuple[str, ...],
    backends: tuple[BackendChoice, ...],
    *,
    steps: int,
    num_envs: int,
    seed: int,
    timeout: float,
    form: str,
    frames: Path | None = None,
) -> int:
    """Compare backends with the reference, and print the verdicts as ``form`` says. Returns the exit status.

    Pictures that differ are written to the folder ``frames``.
    """
    check_count("--steps", steps, 1, MAX_STEPS)
    check_count("--num-envs", num_envs, 1, registry.MAX_COUNT)
    if backends and all(registry.find(choice.name).reference_row for choice in backends):
        raise UsageError("--backend: reference rows are compared with nothing; name a backend of another kind")
    if frames is not None:
        _make(frames)
    spec = RunSpec(envs, (num_envs,), backends, seed=seed, timeout=timeout)
    knowledge = Knowledge.load()
    proofs = proving.prove(spec, steps, knowledge, frames)
    if form == "json":
        sys.stdout.write(verdict_json(proofs) + "\n")
    elif form == "markdown":
        sys.stdout.write(markdown.render_document(verdict_document(proofs, steps)))
    else:
        terminal.write_document(verdict_document(proofs, steps), console.for_data())
    return _status(proofs)


def _status(proofs: Sequence[tuple[Cell, Proof]]) -> int:
    verdicts = {proof.verdict for _, proof in proofs}
    crashed = any(proof.failed and cell.skip is None for cell, proof in proofs)
    if crashed or "different" in verdicts:
        return DIFFERENT
    return INCONCLUSIVE if verdicts <= {"unverified"} else DONE


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--save-frames {folder}: {error.strerror}: name a folder that can be written") from None
