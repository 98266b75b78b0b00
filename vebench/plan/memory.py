"""A rough estimate of a cell's memory, good enough to skip cells that would bring the machine down.

One process with one environment takes 61 MiB for Atari and MuJoCo, 37 MiB for classic control. The tables of backends
and suites contain what each of them adds, and the measurements behind these numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.backends.environments.suites import KIB, MIB, SUITES

if TYPE_CHECKING:
    from vebench.backends.entry import BackendEntry, Options, Shape

GIB = 1 << 30

_INTERPRETER = 96 * MIB
# A row without an environment: the row itself, and its actions on a tape of a few hundred batches.
_ROW = 32 * KIB


def estimate(suite: str, entry: BackendEntry, shape: Shape, options: Options) -> int:
    """Return the most memory that a cell of this shape should take, in bytes, estimated before it is built."""
    environment = SUITES[suite].environment_bytes if entry.builds_environments else _ROW
    workers = (shape.processes - 1) * entry.process_bytes(options)
    return _INTERPRETER + entry.import_bytes + workers + shape.num_envs * environment


def too_much(needed: int, least: int, available: int | None) -> str | None:
    """Return why a cell that needs ``needed`` bytes cannot run with ``available`` bytes, or None if it can.

    ``least`` is what the cell would need with one worker and one environment. ``available`` is None if unknown.
    """
    if available is None or needed <= available:
        return None
    reason = f"needs about {format_bytes(needed)} of memory, {format_bytes(available)} are available"
    return f"{reason}; fewer workers or --envs-per-worker would fit" if least <= available else reason


def above(needed: int, most: int | None) -> str | None:
    """Return why a cell that needs ``needed`` bytes is not wanted if it may have ``most``, None if it is."""
    if most is None or needed <= most:
        return None
    return f"needs about {format_bytes(needed)} of memory, more than the {format_bytes(most)} allowed"


def format_bytes(count: int) -> str:
    """Return a number of bytes in a suitable binary unit: ``512 MiB``, ``1.8 GiB``, ``21 GiB``."""
    if count < GIB:
        return f"{count / MIB:.0f} MiB"
    return f"{count / GIB:.1f} GiB" if count < 10 * GIB else f"{count / GIB:.0f} GiB"
