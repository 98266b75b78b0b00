"""The colours of figures, on light and on dark ground, and a marker for each series.

Hues are those of Okabe and Ito, which readers with any colour vision can tell apart, darkened or lightened until each
has a contrast of 3 to 1 or more with its ground (WCAG 2.1, 1.4.11). Markers say the same without colour.
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
    Colour("blue", "#0072b2", "#4da6e0"),
    Colour("vermillion", "#d55e00", "#f28e4b"),
    Colour("green", "#008a63", "#2fc79a"),
    Colour("purple", "#a63d80", "#e58fc4"),
    Colour("ochre", "#8f6f00", "#e0bd3f"),
    Colour("indigo", "#3b2f94", "#a79df2"),
    Colour("sky", "#2b93c2", "#93dcf5"),
    Colour("brown", "#6b3a1e", "#c99b7d"),
)
COLOURS = (GROUND, INK, MUTED, GRID, *SERIES)
# Nine of them, and eight colours: a pair repeats after seventy-two series.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "h")
