"""The time of a run by purpose: starts, warm-ups, windows, proofs and the rest; as measured, and as planned."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vebench.backends.environments.suites import SUITES
from vebench.engine.runner import LEAST_STEPPED, MOST_STEPPED
from vebench.plan.cells import is_proven
from vebench.plan.spec import FORK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vebench.plan.cells import Cell
    from vebench.plan.spec import RunSpec
    from vebench.results.records import CellRecord

_NANO = 1e9
# Seconds, as in runs of Pong and CartPole on two idle CPUs: to load what cells are forked from, to fork one, and to end
# it; to step before a window and read counters; and a warm-up as a multiple of the least, as noise makes it longer.
_PHASE = 1 / 8  # of the time of all windows: until the first begins, from nothing to a quarter as episodes are longer
LOAD_S, FORK_S, END_S, AROUND_S, _WARMUPS = 1.0, 0.05, 0.05, 0.02, 1.6
_PROOF = 0.2  # of what counts of the time that a cell steps, where the reference's steps are shared


class Spent(NamedTuple):
    """Seconds by what they were spent on.

    ``rest``: loading what cells are forked from, uncounted steps before windows, reading counters, ends of cells.
    """

    starts: float = 0.0
    warm_up: float = 0.0
    windows: float = 0.0
    proofs: float = 0.0
    rest: float = 0.0


def spent(cells: Iterable[CellRecord]) -> Spent | None:
    """Return the time that cells took of their run, None if the time of one is unknown."""
    of_each = []
    for cell in cells:
        if cell.took_ns is None:
            return None
        known = [cell.startup_ns or 0, cell.warmup_ns or 0, sum(window.ns for window in cell.windows)]
        proof = (cell.proof.seconds or 0.0) if cell.proof else 0.0
        starts, warm_up, windows = (ns / _NANO for ns in known)
        of_each.append((starts, warm_up, windows, proof, max(0, cell.took_ns - sum(known)) / _NANO))
    return Spent(*map(sum, zip(*of_each, strict=True))) if of_each else None


def planned(cells: Iterable[Cell], spec: RunSpec) -> list[Spent]:
    """Return what each cell is expected to take: loading libraries in ``starts``, its end in ``rest``.

    Those that take turns share a proof.
    """
    loaded: set[object] = set()
    found = []
    for cell in cells:
        shape, modules = cell.shape, cell.entry.preloaded(cell.task) if spec.isolation == FORK else None
        libraries = cell.repeat, cell.python, modules
        begin = LOAD_S if modules is None or libraries not in loaded else FORK_S
        loaded.add(libraries)
        at_once = max(1, min(shape.processes * shape.threads, len(cell.cpus)))
        start = begin + SUITES[cell.task.suite].environment_seconds * shape.num_envs / at_once
        proof = _PROOF * min(max(LEAST_STEPPED, spec.cell_seconds), MOST_STEPPED)
        found.append(
            Spent(
                starts=start,
                warm_up=_WARMUPS * spec.warmup + _PHASE * spec.windows * spec.duration,
                windows=spec.windows * (spec.duration + AROUND_S),
                proofs=(proof if spec.takes_turns else start + proof) if is_proven(cell, spec) else 0.0,
                rest=END_S,
            )
        )
    return found
