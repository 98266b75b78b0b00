"""An adapter whose module makes the clock slower when it is imported."""

import time

from altered import Altered, On

_true = time.perf_counter_ns
time.perf_counter_ns = lambda: _true() // 2


class ClockOnImport(Altered):
    """The clock of the process runs at half its rate: a library for simulations that replaces ``time``."""

    tried = On("clock|time", fraud=True, harmless=True)
