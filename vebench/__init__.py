"""Measure which vector-env backend is fastest on this machine, and how far to trust the figure."""

__version__ = "0.1.0"
