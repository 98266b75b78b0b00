"""What processes that a script starts do when it is killed: they end, too."""

from __future__ import annotations

import os
from multiprocessing import parent_process
from threading import Thread


def end_with_parent() -> None:
    """End this process, which multiprocessing started, as soon as the one that started it is gone."""
    Thread(target=_wait, daemon=True).start()


def _wait() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
