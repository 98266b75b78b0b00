"""The user's folders for caches and for configuration."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder of what vebench keeps for later runs. It may not exist."""
    return _folder("XDG_CACHE_HOME", "~/.cache")


def config_folder() -> Path:
    """Return the folder of the user's configuration of vebench. It may not exist."""
    return _folder("XDG_CONFIG_HOME", "~/.config")


def _folder(variable: str, otherwise: str) -> Path:
    # XDG Base Directory Specification: a path that is not absolute must be ignored.
    asked = Path(os.environ.get(variable, ""))
    try:
        folder = asked if asked.is_absolute() else Path(otherwise).expanduser()
    except RuntimeError:  # a user without a home, as in some containers
        folder = Path(os.devnull)
    return folder / "vebench"
