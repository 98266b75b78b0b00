"""Whether our class may stand for Gymnasium's here: only with versions and sources that it was verified with.

It reads files and imports nothing of theirs: standard library only.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from vebench.backends.fast.classes import class_of, unsupported
from vebench.backends.fast.verified import SOURCES, VERSIONS

if TYPE_CHECKING:
    from collections.abc import Collection

    from vebench.backends.packages import Package


def why_not(env_id: str, settings: Collection[str] = ()) -> str | None:
    """Return why Gymnasium's class is to step a task with these settings, or None if ours can."""
    ours = class_of(env_id)
    if ours is None:
        return f"there is no class of our own for {env_id}"
    if unknown := unsupported(env_id, settings):
        return f"our own class for {env_id} has no {', '.join(unknown)}"
    for package in ours.packages:
        if (problem := _unverified(package)) is not None:
            return problem
    for source in ours.sources:
        if digest(source) not in SOURCES[source]:
            return f"{source} is not the source that our own class stands for"
    return None


def _unverified(package: Package) -> str | None:
    found = {name: part for name in package.deciding_names if (part := _deciding_part(package, name)) is not None}
    verified = VERSIONS[package.name]
    if any(part in verified for part in found.values()):
        return None
    installed = ", ".join(f"{name} {_version(name)}" for name in found) or f"{package.name} is not installed"
    return f"our own class was verified with {package.name} {' and '.join(verified)} ({installed})"


def _deciding_part(package: Package, name: str) -> str | None:
    installed = _version(name)
    return None if installed is None else package.deciding_part(installed)


@cache
def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@cache
def digest(source: str) -> str | None:
    """Return the SHA-256 of a file below ``site-packages``, such as ``gymnasium/core.py``, None if it is not there."""
    package, _, path = source.partition("/")
    found = find_spec(package)
    if found is None or found.origin is None:
        return None
    try:
        return hashlib.sha256((Path(found.origin).parent / path).read_bytes()).hexdigest()
    except OSError:
        return None
