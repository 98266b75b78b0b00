"""Which settings of backends are worth trying on a machine: backends, their options, workers, environments for each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vebench.backends.entry import BackendEntry
    from vebench.plan.spec import BackendChoice

# Environments of a worker that are tried if no batch is asked for.
_USUAL_ENVS = (1, 4, 16)
# More environments in one process than that are slower to build than anybody waits for.
_MOST_ENVS = 1 << 12


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
    """Return the settings to try with ``cpus`` CPUs, those first that are the likeliest to be fast.

    With ``batch``, a batch of every setting has so many rows. ``cores``: how many cores these CPUs are of, where some
    are second threads: with as many workers, no core has two. Where the user gave options, no others are tried.
    """
    counts = _counts(cpus, cores)
    found = [setting for choice in choices for setting in _of(choice, counts, batch)]
    found += [setting for choice in choices for other in _others(choice) for setting in _of(other, counts[:1], batch)]
    # All CPUs first, then half of them: of each backend, so that no backend is left out for want of time. Other options
    # than the defaults change less than the rest does.
    given = {choice.label for choice in choices}
    return tuple(sorted(found, key=lambda one: (one.choice.label not in given, _rank(one, cpus))))


def _rank(one: Setting, cpus: int) -> int:
    entry = one.choice.entry
    alone = _in_caller(entry) or one.workers >= cpus
    return (0 if alone else 2) + (one.envs_per_worker == 1)


def _others(choice: BackendChoice) -> list[BackendChoice]:
    """Return the same backend with those options that may be faster, unless the user gave some."""
    if choice.options:
        return []
    return [replace(choice, options=dict(options)) for options in choice.entry.worth_trying]


def _of(choice: BackendChoice, counts: Sequence[int], batch: int | None) -> Iterator[Setting]:
    entry = choice.entry
    for workers in (1,) if _in_caller(entry) else counts:
        for envs in _USUAL_ENVS if batch is None else (batch // workers,):
            if envs and (batch is None or workers * envs == batch) and envs <= _MOST_ENVS:
                yield Setting(choice, workers, envs)


def _in_caller(entry: BackendEntry) -> bool:
    """Return whether more workers are of no use to a backend: all steps are made by the calling process."""
    shape = entry.shape_of(2, 1, 2, {})
    return shape.processes == 1 and shape.threads == 1


def _counts(cpus: int, cores: int | None) -> list[int]:
    """Return the numbers of workers to try: all CPUs, one for each core, and half of the CPUs, down to an eighth."""
    halved = [max(1, cpus >> halvings) for halvings in range(4)]
    each_core = [cores] if cores is not None and 0 < cores < cpus else []
    return sorted({*halved, *each_core}, reverse=True)


def asynchronous(choice: BackendChoice) -> bool:
    """Return whether rows of a batch may be of any environments that are ready, or of half of them."""
    return choice.entry.overlap != "none"
