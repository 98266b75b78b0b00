"""How much memory a cell will take, by rule of thumb: enough to leave out those that would bring the machine down.

One process with one environment takes 61 MiB for Atari and MuJoCo, 37 MiB for classic control. What backends and
environments add stands in their own tables, with the measurements behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vebench.backends.environments.suites import KIB, MIB, SUITES

if TYPE_CHECKING:
    from vebench.backends.entry import BackendEntry, Options, Shape

GIB = 1 << 30

INTERPRETER = 96 * MIB
# A row without an environment behind it: itself, and its actions on a tape of some hundred batches.
ROW = 32 * KIB


def estimate(suite: str, entry: BackendEntry, shape: Shape, options: Options) -> int:
    """Return how many bytes a cell of this shape takes at most, as far as that is known before it is built."""
    environment = SUITES[suite].environment_bytes if entry.builds_environments else ROW
    workers = (shape.processes - 1) * entry.process_bytes(options)
    return INTERPRETER + entry.import_bytes + workers + shape.num_envs * environment


def too_much(needed: int, least: int, available: int | None) -> str | None:
    """Return why a cell that needs so many bytes cannot run with those ``available``, or None if it can.

    ``least`` is what the same cell would need with one worker and one environment; ``available`` is None if unknown.
    """
    if available is None or needed <= available:
        return None
    reason = f"needs about {format_bytes(needed)} of memory, {format_bytes(available)} are available"
    return f"{reason}; fewer workers or --envs-per-worker would fit" if least <= available else reason


def format_bytes(count: int) -> str:
    """Return the count in the binary unit that suits it: ``512 MiB``, ``1.8 GiB``, ``21 GiB``."""
    if count < GIB:
        return f"{count / MIB:.0f} MiB"
    return f"{count / GIB:.1f} GiB" if count < 10 * GIB else f"{count / GIB:.0f} GiB"
