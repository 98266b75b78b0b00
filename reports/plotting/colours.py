"""The colours of figures, on light and on dark ground, and a marker for each series.

They were found by a search for colours that lie far apart for every reader: any two of them, also as they look without
one kind of cones, are at least 20 apart in CIELAB. Each has a contrast of 3 to 1 or more with its ground (WCAG 2.1,
1.4.11). Markers say the same without colour.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Colour:
    """One colour by its name in a style sheet, as it is on light and on dark ground. No two have the same ``light``."""

    name: str
    light: str
    dark: str


GROUND = Colour("ground", "#ffffff", "#0d1117")
INK = Colour("ink", "#1f2328", "#f0f6fc")
MUTED = Colour("muted", "#59636e", "#9198a1")
GRID = Colour("grid", "#d1d9e0", "#30363d")

SERIES = (
    Colour("blue", "#1643de", "#4480fc"),
    Colour("orange", "#b96f15", "#ff6439"),
    Colour("green", "#00804f", "#50d399"),
    Colour("purple", "#85559e", "#b563ba"),
    Colour("ochre", "#79480a", "#f3bd1f"),
    Colour("indigo", "#441599", "#d7b0ff"),
    Colour("sky", "#0099f0", "#b6e0e4"),
    Colour("umber", "#3f352b", "#ca6c5a"),
)
COLOURS = (GROUND, INK, MUTED, GRID, *SERIES)
# Nine of them, and eight colours: a pair repeats after seventy-two series.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "h")
