"""The machine that cells run on: which CPUs there are, which a cell owns, what disturbs it."""
