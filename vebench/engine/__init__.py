"""Measures the cells of a plan, each in a fresh, pinned interpreter. Only one cell works at a time."""
