"""``vebench verify``: compare backends with the reference, and print the verdicts on their work."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vebench.backends import registry
from vebench.backends.entry import MAX_COUNT
from vebench.commands import knowing, proving
from vebench.errors import InterruptedRunError, UsageError
from vebench.plan.spec import check_count
from vebench.reports.output import show
from vebench.reports.pages.verify import VerifyPage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vebench.child.answers import Proof
    from vebench.commands.world import World
    from vebench.plan.cells import Cell
    from vebench.plan.spec import RunSpec
    from vebench.reports.formats.registry import Format

_DONE, _DIFFERENT, _INCONCLUSIVE = 0, 1, 3
_MAX_STEPS = 10_000_000


def verify(asked: RunSpec, world: World, *, num_envs: int, steps: int, form: Format) -> int:
    """Compare backends with the reference, and print the verdicts in ``form``. Returns the exit status."""
    page = compared(asked, world, num_envs=num_envs, steps=steps)
    show(page, form)
    return status(page.proofs)


def compared(asked: RunSpec, world: World, *, num_envs: int, steps: int) -> VerifyPage:
    """Compare backends with the reference, and return the verdicts.

    Only the tasks, backends, seed and timeout of ``asked`` are used. Each backend steps ``num_envs`` environments,
    ``steps`` steps each, at least.
    """
    check_count("--steps", steps, 1, _MAX_STEPS)
    check_count("--num-envs", num_envs, 1, MAX_COUNT)
    if asked.backends and all(choice.entry.reference_row for choice in asked.backends):
        rows = " and ".join(sorted({choice.name for choice in asked.backends}))
        raise UsageError(f"--backend: {rows} cannot be compared with {registry.REFERENCE}: name another backend")
    spec = replace(asked, workers=(num_envs,))
    try:
        proofs = proving.prove(spec, steps, knowing.known(), world, in_full=False)
    except KeyboardInterrupt:
        raise InterruptedRunError(f"interrupted: the same seed again: --seed {spec.seed}") from None
    return VerifyPage(tuple(proofs), steps, spec)


def with_seed(asked: RunSpec, seed: int | None) -> RunSpec:
    """Return the spec with this seed, or with one that is drawn anew."""
    return replace(asked, seed=proving.drawn_seed() if seed is None else seed)


def status(proofs: Sequence[tuple[Cell, Proof]]) -> int:
    """Return the exit status: 1 if a backend does other work or failed, 3 if none could be compared."""
    verdicts = {proof.verdict for _, proof in proofs}
    crashed = any(proof.failed and cell.skip is None for cell, proof in proofs)
    if crashed or "different" in verdicts:
        return _DIFFERENT
    return _INCONCLUSIVE if verdicts <= {"unverified"} else _DONE
