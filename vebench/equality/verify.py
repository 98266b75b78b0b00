"""``vebench verify``: whether backends do the same work as the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vebench.backends import registry
from vebench.backends.entry import MAX_COUNT
from vebench.commands.planning import known
from vebench.commands.proving import drawn_seed, prove
from vebench.equality.verify_page import VerifyPage
from vebench.errors import InterruptedRunError, UsageError
from vebench.plan.spec import check_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.child.answers import Proof
    from vebench.commands.session import World
    from vebench.plan.cells import Cell
    from vebench.plan.spec import RunSpec

_DONE, _DIFFERENT, _INCONCLUSIVE = 0, 1, 3
MAX_STEPS = 10_000_000


def compared(asked: RunSpec, seed: int | None, world: World, *, num_envs: int, steps: int) -> VerifyPage:
    """Compare backends with the reference, and return the verdicts.

    Only the tasks, backends and timeout of ``asked`` are used. Without a ``seed``, one is drawn. Each backend steps
    ``num_envs`` environments, ``steps`` steps each, at least.
    """
    check_count("--steps", steps, 1, MAX_STEPS)
    check_count("--num-envs", num_envs, 1, MAX_COUNT)
    if asked.backends and all(choice.entry.reference_row for choice in asked.backends):
        rows = " and ".join(sorted({choice.name for choice in asked.backends}))
        raise UsageError(f"--backend: {rows} cannot be compared with {registry.REFERENCE}: name another backend")
    spec = replace(asked, workers=(num_envs,), seed=drawn_seed() if seed is None else seed)
    try:
        proofs = prove(spec, steps, known(), world, in_full=False)
    except KeyboardInterrupt:
        raise InterruptedRunError(f"interrupted: the same seed again: --seed {spec.seed}") from None
    return VerifyPage(tuple(proofs), steps, spec)


def status(proofs: Sequence[tuple[Cell, Proof]]) -> int:
    """Return the exit status: 1 if a backend does other work or failed, 3 if none could be compared."""
    verdicts = {proof.verdict for _, proof in proofs}
    crashed = any(proof.failed and cell.skip is None for cell, proof in proofs)
    if crashed or "different" in verdicts:
        return _DIFFERENT
    return _INCONCLUSIVE if verdicts <= {"unverified"} else _DONE
