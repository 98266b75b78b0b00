"""Measure which vector-env backend is fastest on this machine, and how far to trust the figure.

In a clone, ``vebench.backends`` and ``vebench.reports`` are the folders ``backends`` and ``reports`` at the top.
docs/structure.md has a map.
"""

__version__ = "0.1.0"
