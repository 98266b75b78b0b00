"""The table of other projects' vectorisers: what each needs, and the entries of its adapters.

Another one takes an adapter beside this module, and an entry here. The parent reads this: standard library only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vebench.backends.entry import BackendEntry

TORCH = "torch==2.13.0"


ENTRIES: tuple[BackendEntry, ...] = ()
