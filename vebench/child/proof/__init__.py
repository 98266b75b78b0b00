"""Checks whether a backend does the same work as the reference, row by row."""
