"""How much memory a cell will take, by rule of thumb: enough to leave out those that would bring the machine down.

The figures are proportional set sizes, measured with Gymnasium 1.4, ale-py 0.12, EnvPool 1.2 and mujoco 3.6 on x86-64
Linux after some steps, then rounded up:

    one process, one environment      61 MiB Atari and MuJoCo, 37 MiB classic control; 150 MiB with EnvPool
    each environment more             1.3 MiB Atari, 1.2 MiB MuJoCo, 0.01 MiB classic control; EnvPool the same or less
    each process more, forked         7.2 MiB Atari and MuJoCo, 3.8 MiB classic control, its environment included
    each process more, not forked     30 MiB Atari and MuJoCo, 20 MiB classic control, its environment included

What an environment of another kind takes cannot be known before it is built; ``UNKNOWN_ENVIRONMENT`` stands in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vebench.backends.interface import OptionValue, Suite
    from vebench.backends.registry import Entry, Shape

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

INTERPRETER = 96 * MIB
POOL_LIBRARY = 96 * MIB
FORKED_PROCESS = 7 * MIB
FRESH_PROCESS = 40 * MIB
UNKNOWN_ENVIRONMENT = 8 * MIB
ENVIRONMENT: Mapping[Suite, int] = {
    "atari": 2 * MIB,
    "mujoco": 2 * MIB,
    "classic": 64 * KIB,
    "gymnasium": UNKNOWN_ENVIRONMENT,
}
# A row without an environment behind it: itself, and its actions on a tape of some hundred batches.
ROW = 32 * KIB


def estimate(suite: Suite, entry: Entry, shape: Shape, options: Mapping[str, OptionValue]) -> int:
    """Return how many bytes a cell of this shape takes at most, as far as can be told beforehand."""
    process = FORKED_PROCESS if options.get("context", "fork") == "fork" else FRESH_PROCESS
    environment = ENVIRONMENT[suite] if entry.builds_environments else ROW
    library = POOL_LIBRARY if "envpool" in entry.packages else 0
    return INTERPRETER + library + (shape.processes - 1) * process + shape.num_envs * environment


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
