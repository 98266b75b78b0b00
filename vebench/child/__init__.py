"""The code of the interpreter that steps environments: Python 3.10, numpy and the standard library."""
