"""A study as data: a question, the runs that are measured for it, and the function that concludes from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vebench.plan.grammar import parse_backends
from vebench.plan.spec import RunSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from vebench.analysis.cell import CellSummary
    from vebench.reports.conclusion import Conclusion

# How the runs of a study are measured unless they say otherwise. No ``workers``: one for each CPU that may be used.
PLAN = RunSpec(
    envs=(), workers=(), duration=0.5, warmup=0.5, rounds=2, repeats=3, interleave=True, proof="auto", base=False
)


@dataclass(frozen=True)
class Part:
    """One run of a study. ``name`` is that of its run file.

    ``spec`` is what is measured, without backends; those are named as users name them, options included. If
    ``keeps_envs``, a user's ``--env`` adds to its environments, and does not replace them.
    """

    name: str
    spec: RunSpec
    backends: tuple[str, ...]
    keeps_envs: bool = False

    def asked(self, changes: Mapping[str, Any], cpus: Callable[[RunSpec], int]) -> RunSpec:
        """Return what is measured with the user's ``changes``, fields of ``RunSpec`` by name.

        ``cpus`` returns how many CPUs the cells of a spec may use. Raises UsageError for a backend that there is not.
        """
        spec = replace(self.spec, **changes)
        if self.keeps_envs and "envs" in changes:
            spec = replace(spec, envs=tuple(dict.fromkeys((*self.spec.envs, *spec.envs))))
        spec = replace(spec, backends=parse_backends(self.backends))
        return spec if spec.workers else replace(spec, workers=(cpus(spec),))


@dataclass(frozen=True)
class Measured:
    """A part that was measured, all of it or not: what was asked for, and its cells with their findings."""

    part: str
    spec: RunSpec
    cells: tuple[CellSummary, ...]


@dataclass(frozen=True)
class Study:
    """A question, in one sentence, that the runs ``parts`` answer. ``conclude`` is a pure function of what they found.

    It is never given a run without cells.
    """

    name: str
    question: str
    parts: tuple[Part, ...]
    conclude: Callable[[Sequence[Measured]], Conclusion]
