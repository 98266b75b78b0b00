"""The machine that cells run on: its CPUs, the CPUs that a cell owns, and what disturbs a cell.

The measuring child loads these modules, too: they need only Python 3.10 and the standard library.
"""
