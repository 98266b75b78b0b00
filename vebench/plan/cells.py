"""The plan: an explicit list of cells, each with the CPUs it owns or the reason why it cannot run here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from vebench.backends.interface import Task
    from vebench.backends.registry import Shape
    from vebench.plan.spec import BackendChoice, RunSpec


class CellKey(NamedTuple):
    """What tells one cell of a run from another."""

    env: str
    backend: str
    workers: int
    envs_per_worker: int
    repeat: int


@dataclass(frozen=True)
class Cell:
    """One measurement to be made. ``skip`` is why it will not be, None if it will.

    ``target`` is ``module:Class`` of the adapter; ``cpus`` are the CPUs owned, in the order of placement.
    """

    task: Task
    backend: BackendChoice
    target: str
    workers: int
    envs_per_worker: int
    shape: Shape
    cpus: tuple[int, ...]
    repeat: int = 0
    skip: str | None = None

    @property
    def key(self) -> CellKey:
        """The cell's identity within its run; the backend by its label, options included."""
        return CellKey(self.task.id, self.backend.label, self.workers, self.envs_per_worker, self.repeat)


@dataclass(frozen=True)
class Plan:
    """The cells of a run in the order in which they will be measured."""

    spec: RunSpec
    cells: tuple[Cell, ...]
