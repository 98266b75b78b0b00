"""What was measured: immutable records, and the run files that contain them."""
