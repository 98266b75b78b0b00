"""Which settings of backends are tried, the likeliest first. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from vebench.backends.entry import BackendEntry
from vebench.plan.grammar import BackendChoice

# Environments of a worker that are tried if no batch is asked for.
_USUAL_ENVS = (1, 4, 16)
_MOST_ENVS = 1 << 12  # more environments in one process take too long to build
_HALVINGS = 4  # workers on all CPUs, on half of them, down to an eighth


@dataclass(frozen=True)
class Constraints:
    """The limits of the recommended setting."""

    batch: int | None = None  # rows of a batch; None: any number
    asynchronous: bool = True  # batches may have the rows that are ready first
    tolerance: float = 0.05  # the share of the rate that may be given up for a simpler setup


class Setting(NamedTuple):
    """A backend with its size."""

    choice: BackendChoice
    workers: int
    envs_per_worker: int

    @property
    def place(self) -> str:
        """The setting as ``RunSpec.only`` has it."""
        return f"{self.choice.label}:{self.workers}x{self.envs_per_worker}"


def settings(
    choices: Sequence[BackendChoice], cpus: int, batch: int | None = None, cores: int | None = None
) -> tuple[Setting, ...]:
    """Return the settings to try with ``cpus`` CPUs of this number of ``cores``.

    With ``batch``, every setting has batches of this many rows. A worker for each core is tried, too: no core then has
    two. Other options are tried on all CPUs, unless the user gave some.
    """
    counts = {max(1, cpus >> halvings) for halvings in range(_HALVINGS)}
    if cores is not None and 0 < cores < cpus:
        counts.add(cores)
    found = [setting for choice in choices for setting in _sizes(choice, sorted(counts, reverse=True), batch)]
    for choice in choices:
        if not choice.options:
            for options in choice.entry.worth_trying:
                found += _sizes(replace(choice, options=dict(options)), [max(counts)], batch)
    given = {choice.label for choice in choices}

    def order(one: Setting) -> tuple[bool, bool, bool, int]:
        """Sort by backends' defaults, then all CPUs, then few environments, which start sooner.

        So every backend is tried even if time is short.
        """
        all_cpus = _steps_in_caller(one.choice.entry) or one.workers >= cpus
        return one.choice.label not in given, not all_cpus, one.envs_per_worker == 1, one.envs_per_worker

    return tuple(sorted(found, key=order))


def _sizes(choice: BackendChoice, counts: Sequence[int], batch: int | None) -> Iterator[Setting]:
    for workers in [1] if _steps_in_caller(choice.entry) else counts:
        if batch is None:
            for envs in _USUAL_ENVS:
                yield Setting(choice, workers, envs)
        elif batch % workers == 0 and batch // workers <= _MOST_ENVS:
            yield Setting(choice, workers, batch // workers)


def _steps_in_caller(entry: BackendEntry) -> bool:
    """Return whether the calling process makes all steps, so that more workers are of no use."""
    shape = entry.shape_of(2, 1, 2, {})
    return shape.processes == 1 and shape.threads == 1
