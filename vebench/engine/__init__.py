"""Measuring: one cell at a time, each in a fresh, pinned interpreter."""
