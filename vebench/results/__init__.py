"""Measurements: immutable records, and the run files that contain them."""
