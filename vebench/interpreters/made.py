"""Interpreters that ``vebench peers setup`` has made, in the user's cache: one for each installation."""

from __future__ import annotations

from dataclasses import asdict
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from vebench.interpreters.user_folders import cache_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from vebench.backends.peers.installation import Installation

MARK = "vebench.json"  # written last: a folder without it is unfinished
_LONGEST_MARK = 1 << 20


class Made(msgspec.Struct, frozen=True):
    """What an interpreter was made from: the digest of the installation and of the versions that it got of ours."""

    made_from: str
    versions: dict[str, str]


def folder_of(name: str) -> Path:
    """Return the folder of an installation's interpreter. It may not exist."""
    return cache_folder() / "peers" / name


def python_of(name: str) -> str | None:
    """Return the path of an installation's interpreter, None if it has not been made to the end."""
    folder = folder_of(name)
    return str(python_in(folder)) if mark_of(folder) is not None and python_in(folder).exists() else None


def python_in(folder: Path) -> Path:
    """Return where the Python of a virtual environment is."""
    return folder / "bin" / "python"


def mark_of(folder: Path) -> Made | None:
    """Return what an interpreter was made from, None if it has not been made to the end."""
    try:
        with (folder / MARK).open("rb") as file:
            return msgspec.json.decode(file.read(_LONGEST_MARK), type=Made)
    except (OSError, ValueError):
        return None


def digest(installation: Installation, versions: Mapping[str, str]) -> str:
    """Return a digest of all that decides what an interpreter becomes."""
    facts: dict[str, Any] = {"installation": asdict(installation), "versions": dict(versions)}
    return sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()
