"""Records the rows of a backend and compares them with the reference, in the interpreter that steps environments."""
