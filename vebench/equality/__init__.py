"""Whether backends, or any two implementations, do the same work: ``vebench verify``."""
