"""Backends by what they let step while a policy acts, and by how long they wait for a batch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from vebench.backends.entry import Overlap
from vebench.backends.registry import ENTRIES, find
from vebench.errors import UsageError, shown
from vebench.plan.grammar import parse_backends
from vebench.plan.spec import BackendChoice

if TYPE_CHECKING:
    from vebench.plan.spec import RunSpec

OVERLAPS: tuple[Overlap, ...] = get_args(Overlap)
TIMEOUT, FEWEST = "recv_timeout", "recv_min"


def overlapping(spec: RunSpec, overlap: str | None, timeout: float | None, fewest: str | None) -> RunSpec:
    """Return ``spec`` with the backends that let ``overlap`` step, and that wait ``timeout`` for ``fewest`` rows.

    None changes nothing. If ``spec`` names no backend, it gets those that can. Raises UsageError for a backend that
    was named and cannot, and for values that are none.
    """
    if overlap is not None:
        spec = replace(spec, backends=_that_overlap(spec.backends, overlap))
    if timeout is None and fewest is not None:
        raise UsageError(f"--recv-min {shown(fewest)} needs --recv-timeout: without one, a whole batch is waited for")
    if timeout is not None:
        options = f"{TIMEOUT}={timeout}" + (f",{FEWEST}={fewest}" if fewest is not None else "")
        spec = replace(spec, backends=_that_wait(spec.backends, options))
    return spec


def _that_overlap(choices: tuple[BackendChoice, ...], overlap: str) -> tuple[BackendChoice, ...]:
    if overlap not in OVERLAPS:
        raise UsageError(f"--overlap {shown(overlap)}: must be one of {', '.join(OVERLAPS)}")
    can = [entry.name for entry in ENTRIES if entry.overlap == overlap and not entry.reference_row]
    for choice in choices:
        entry = find(choice.name)
        if ":" not in choice.name and not entry.reference_row and entry.overlap != overlap:
            raise UsageError(f"--overlap {overlap}: {choice.label} does not; {', '.join(can)} do")
    usual = [name for name in can if find(name).by_default]
    return choices or tuple(map(BackendChoice, usual or can))


def _that_wait(choices: tuple[BackendChoice, ...], options: str) -> tuple[BackendChoice, ...]:
    can = [entry.name for entry in ENTRIES if TIMEOUT in entry.options]
    asked = choices or tuple(BackendChoice(name) for name in can if find(name).by_default)
    if not any(choice.name in can for choice in asked):
        raise UsageError(f"--recv-timeout: none of the backends takes one; {', '.join(can)} do")
    (waiting,) = parse_backends([f"{can[0]}[{options}]"])
    return tuple(
        replace(choice, options={**waiting.options, **choice.options}) if choice.name in can else choice
        for choice in asked
    )
