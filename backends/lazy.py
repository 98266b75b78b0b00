"""NumPy, loaded at its first use.

Some adapters' modules also have entries of the registry, which must load without NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["np"]

if TYPE_CHECKING:
    import numpy as np
else:

    class _NumPy:
        def __getattr__(self, name: str) -> object:
            import numpy  # noqa: ICN001 - its purpose

            found = getattr(numpy, name)
            setattr(self, name, found)  # the next use finds it without this method
            return found

    np = _NumPy()
