"""A verification from beginning to end: what is to be compared, the comparing, the verdicts, what is kept of them."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from vebench.backends import registry
from vebench.engine.interrupts import Interrupts
from vebench.engine.launcher import Launcher
from vebench.engine.verifier import verify as compare
from vebench.errors import UsageError, one_line
from vebench.machine.host import memory_available, read_host
from vebench.plan import verdicts
from vebench.plan.cells import Comparison, expand, placement_of
from vebench.plan.spec import RunSpec, check_count
from vebench.plan.tasks import resolve
from vebench.plan.verdicts import SAME, Knowledge, Known
from vebench.reports import as_markdown, as_terminal, console
from vebench.reports.figures import counted
from vebench.reports.verdicts import reason, verdict_document, verdict_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vebench.engine.events import Proof
    from vebench.plan.cells import Cell
    from vebench.plan.spec import BackendChoice

DONE, DIFFERENT, INCONCLUSIVE = 0, 1, 3
MAX_STEPS = 10_000_000
# A check before a run takes a backend seconds. On most tasks an episode ends within it, MuJoCo's after 1,000 steps, and
# the row of the reset is to be seen, too.
SHORT_STEPS, SHORT_ENVS, MOST_ENVS_PER_WORKER = 1100, 2, 4
# So long a comparison is believed even if no episode ends in it.
ENOUGH_STEPS = 5000


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
    if backends and all(registry.find(choice.name).reference for choice in backends):
        raise UsageError("--backend: reference rows are compared with nothing; name a backend of another kind")
    if frames is not None:
        _make(frames)
    spec = RunSpec(envs, (num_envs,), backends, seed=seed, timeout=timeout)
    knowledge = Knowledge.load()
    proofs = _prove(spec, steps, knowledge, frames)
    if form == "json":
        sys.stdout.write(verdict_json(proofs) + "\n")
    elif form == "markdown":
        sys.stdout.write(as_markdown.render_document(verdict_document(proofs, steps)))
    else:
        as_terminal.write_document(verdict_document(proofs, steps), console.for_data())
    return _status(proofs)


def learn(spec: RunSpec, knowledge: Knowledge) -> None:
    """Compare briefly whatever ``spec`` will measure, and add to ``knowledge`` what is found."""
    envs_per_worker = min(spec.envs_per_worker, MOST_ENVS_PER_WORKER)
    short = replace(spec, workers=(SHORT_ENVS,), envs_per_worker=envs_per_worker, repeats=1, replicas="1")
    _prove(short, SHORT_STEPS, knowledge, None)


def _prove(spec: RunSpec, steps: int, knowledge: Knowledge, frames: Path | None) -> list[tuple[Cell, Proof]]:
    """Compare every backend on every task; tell of each on standard error, and keep what is learned."""
    cells = _cells(spec, steps, frames)
    progress = console.for_progress()
    proofs = []
    envs = cells[0].workers if cells else 0
    progress.print(f"comparing {steps:,} steps of {counted(envs, 'environment')} for each backend", soft_wrap=True)
    for cell in cells:
        known = knowledge.of(cell.task, cell.backend)
        if known.verdict in ("unverified", "different") and known.reason:
            progress.print(one_line(f"known: {_words(cell, known)}"), markup=False, soft_wrap=True)
    with Interrupts() as interrupts, Launcher(spec, interrupts) as launch, closing(compare(cells, launch)) as answers:
        for count, (cell, proof) in enumerate(answers, start=1):
            proofs.append((cell, proof))
            found = concluded(proof, steps, cell.workers)
            progress.print(one_line(f"[{count}/{len(cells)}] {_words(cell, found)}"), markup=False, soft_wrap=True)
            if not proof.failed and knowledge.add(cell.task, cell.backend, found):
                _keep(cell, found)
    return proofs


def concluded(proof: Proof, steps: int, num_envs: int) -> Known:
    """Return what is known from now on.

    That rows agreed for a while proves little as long as no episode has ended: resets are where backends differ.
    """
    if proof.verdict in SAME and not proof.ends and steps < ENOUGH_STEPS:
        return Known("unverified", f"{proof.verdict} over {steps:,} steps, but no episode ended", steps, num_envs)
    return Known(proof.verdict, reason(proof), steps, num_envs)


def _words(cell: Cell, known: Known) -> str:
    why = f" ({known.reason})" if known.reason else ""
    return f"{cell.task.id}  {cell.backend.label}  {known.verdict}{why}"


def _keep(cell: Cell, found: Known) -> None:
    try:
        verdicts.keep(cell.task, cell.backend, found)
    except OSError as error:
        text = f"not kept for later: {verdicts.kept_file()}: {error.strerror}"
        console.for_progress().print(one_line(text), markup=False, soft_wrap=True)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--save-frames {folder}: {error.strerror}: name a folder that can be written") from None


def _cells(spec: RunSpec, steps: int, frames: Path | None) -> tuple[Cell, ...]:
    """Return a cell for each task and backend, in the order of tasks asked for and of the registry."""
    host = read_host()
    tasks = [replace(task, exact=True) for task in resolve(spec.envs, spec.backends)]
    plan = expand(spec, tasks, placement_of(spec, host), memory_available())
    contestants = [cell for cell in plan.cells if not registry.find(cell.backend.name).reference]
    names = [entry.name for entry in registry.ENTRIES]

    def place_of(cell: Cell) -> tuple[int, int]:
        rank = names.index(cell.backend.name) if cell.backend.name in names else len(names)
        return tasks.index(cell.task), rank

    folder = None if frames is None else str(frames.absolute())
    return tuple(replace(cell, comparison=Comparison(steps, folder)) for cell in sorted(contestants, key=place_of))


def _status(proofs: Sequence[tuple[Cell, Proof]]) -> int:
    verdicts = {proof.verdict for _, proof in proofs}
    crashed = any(proof.failed and cell.skip is None for cell, proof in proofs)
    if crashed or "different" in verdicts:
        return DIFFERENT
    return INCONCLUSIVE if verdicts <= {"unverified"} else DONE
