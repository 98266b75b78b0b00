"""A verification from beginning to end: what is to be compared, the comparing, the verdicts."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from vebench.backends import registry
from vebench.engine.interrupts import Interrupts
from vebench.engine.launcher import Launcher
from vebench.engine.verifier import verify as compare
from vebench.machine.host import memory_available, read_host
from vebench.machine.placement import place
from vebench.plan.cells import expand
from vebench.plan.spec import RunSpec, check_count
from vebench.plan.tasks import resolve
from vebench.reports import as_markdown, as_terminal, console
from vebench.reports.verdicts import verdict_document, verdict_json

if TYPE_CHECKING:
    from collections.abc import Sequence

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
) -> int:
    """Compare backends with the reference, and print the verdicts as ``form`` says. Returns the exit status."""
    check_count("--steps", steps, 1, MAX_STEPS)
    spec = RunSpec(envs, (num_envs,), backends, seed=seed, timeout=timeout)
    cells = _cells(spec, steps)
    progress = console.for_progress()
    proofs = []
    with (
        Interrupts() as interrupts,
        Launcher(spec, interrupts) as launch,
        closing(compare(cells, launch)) as answers,
    ):
        for count, (cell, proof) in enumerate(answers, start=1):
            proofs.append((cell, proof))
            progress.print(
                f"[{count}/{len(cells)}] {cell.task.id}  {cell.backend.label}  {proof.verdict}", markup=False
            )
    _print(proofs, steps, form)
    return _status(proofs)


def _cells(spec: RunSpec, steps: int) -> tuple[Cell, ...]:
    """Return a cell for each task and backend, in the order of tasks asked for and of the registry."""
    host = read_host()
    tasks = [replace(task, exact=True) for task in resolve(spec.envs, spec.backends)]
    plan = expand(spec, tasks, place(spec.pin, frozenset(host.cpus_allowed), host.quota_cpus), memory_available())
    contestants = [cell for cell in plan.cells if not registry.find(cell.backend.name).reference]
    names = [entry.name for entry in registry.ENTRIES]

    def place_of(cell: Cell) -> tuple[int, int]:
        rank = names.index(cell.backend.name) if cell.backend.name in names else len(names)
        return tasks.index(cell.task), rank

    return tuple(replace(cell, proof_steps=steps) for cell in sorted(contestants, key=place_of))


def _print(proofs: Sequence[tuple[Cell, Proof]], steps: int, form: str) -> None:
    if form == "json":
        sys.stdout.write(verdict_json(proofs) + "\n")
    elif form == "markdown":
        sys.stdout.write(as_markdown.render_document(verdict_document(proofs, steps)))
    else:
        as_terminal.write_document(verdict_document(proofs, steps), console.for_data())


def _status(proofs: Sequence[tuple[Cell, Proof]]) -> int:
    verdicts = {proof.verdict for _, proof in proofs}
    if "different" in verdicts:
        return DIFFERENT
    return INCONCLUSIVE if verdicts <= {"unverified"} else DONE
