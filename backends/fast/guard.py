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

from vebench.backends.environments.suites import known_as
from vebench.backends.fast import native
from vebench.backends.fast.classes import class_of, unsupported
from vebench.backends.fast.verified import SOURCES, VERSIONS
from vebench.backends.setup import OwnClasses

if TYPE_CHECKING:
    from collections.abc import Collection

    from vebench.backends.packages import Package
    from vebench.backends.setup import Task


def name_of(task: Task) -> str | None:
    """Return the id of a task for which there is a class of our own, None if there is none."""
    return None if class_of(task.id) is None else task.id


def own_classes(task: Task) -> OwnClasses | None:
    """Return what a task would be stepped with here, as far as it is known before it is; None without a class."""
    if class_of(task.id) is None:
        return None
    if (refused := refusal(task.id)) is not None:
        return refused
    if native.library() is None:
        return OwnClasses(f"without compiled parts ({native.NOT_BUILT})", uncompiled=True, remedy=native.REMEDY)
    return OwnClasses("with compiled parts")


def refusal(env_id: str, settings: Collection[str] = ()) -> OwnClasses | None:
    """Return why Gymnasium's class is to step a task with these settings, and the remedy, or None if ours can."""
    ours = class_of(env_id)
    if ours is None:
        other = known_as(env_id)
        only = "" if other is None or class_of(other) is None else f", only for {other}"
        return OwnClasses(refused=f"there is no class of our own for {env_id}{only}")
    if unknown := unsupported(env_id, settings):
        return OwnClasses(
            refused=f"our own class for {env_id} has no {', '.join(unknown)}", remedy="leave these settings out"
        )
    for package in ours.packages:
        if (refused := _unverified(package)) is not None:
            return refused
    for source in ours.sources:
        if digest(source) not in SOURCES.get(source, ()):
            return OwnClasses(
                refused=f"{source} is not the source that our own class stands for",
                remedy="install its package anew, with pip install --force-reinstall --no-deps, if it was changed by "
                "mistake",
            )
    return None


def _unverified(package: Package) -> OwnClasses | None:
    found = {name: part for name in package.deciding_names if (part := _deciding_part(package, name)) is not None}
    verified = VERSIONS[package.name]
    if any(part in verified for part in found.values()):
        return None
    installed = ", ".join(f"{name} {_version(name)}" for name in found) or f"{package.name} is not installed"
    places = "" if package.places is None else ".*"
    # All of them: which one fits depends on this Python, and on what else is installed.
    wanted = " or ".join(f"'{package.name}=={part}{places}'" for part in verified)
    return OwnClasses(
        refused=f"our own class was verified with {package.name} {' and '.join(verified)} ({installed})",
        remedy=f"pip install {wanted}",
    )


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
