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
    # All CPUs, one worker for each core, and half of the CPUs, down to an eighth.
    each_core = {cores} if cores is not None and 0 < cores < cpus else set()
    counts = sorted({max(1, cpus >> halvings) for halvings in range(4)} | each_core, reverse=True)
    found = [setting for choice in choices for setting in _of(choice, counts, batch)]
    plain = [choice for choice in choices if not choice.options]
    others = [replace(choice, options=dict(options)) for choice in plain for options in choice.entry.worth_trying]
    found += [setting for choice in others for setting in _of(choice, counts[:1], batch)]
    # All CPUs first, then half of them: of each backend, so that no backend is left out for want of time. Other options
    # than the defaults change less than the rest does.
    given = {choice.label for choice in choices}

    def rank(one: Setting) -> tuple[bool, bool, bool]:
        whole = _in_caller(one.choice.entry) or one.workers >= cpus
        return one.choice.label not in given, not whole, one.envs_per_worker == 1

    return tuple(sorted(found, key=rank))


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
