"""The machine that cells run on. The measuring child loads these modules, too: Python 3.10, standard library alone."""
