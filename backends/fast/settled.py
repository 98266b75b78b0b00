"""Games that a reset of the console always starts in the same state, whatever was before it.

Only in the game's own mode and difficulty, and only with these versions of ale-py. ``python
tests/peers/settled_resets.py`` writes the list, and says how it finds out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SETTLED: Mapping[str, frozenset[str]] = {
    "0.12.1": frozenset(
        {
            "breakout",
            "pong",
        }
    ),
}
