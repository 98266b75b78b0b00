"""Interpreters of backends: named by the user, or made by ``vebench install``."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from vebench.backends import registry
from vebench.backends.environments.suites import SUITES
from vebench.backends.interface import Engine
from vebench.backends.packages import BASE, importable
from vebench.errors import UsageError, did_you_mean, shown
from vebench.files import contents
from vebench.interpreters import venvs
from vebench.interpreters.interpreter import packages_here
from vebench.interpreters.venvs import config_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vebench.plan.grammar import BackendChoice

_TABLE, _CONFIG = "pythons", "config.toml"


def table() -> dict[str, str]:
    """Return the Pythons in the user's configuration, by name. Raises UsageError if it cannot be read."""
    path = config_folder() / _CONFIG
    try:
        read = tomllib.loads(contents(path).decode())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    pythons = read.get(_TABLE, {})
    if not isinstance(pythons, dict) or not all(isinstance(python, str) for python in pythons.values()):
        raise UsageError(f"{path}: [{_TABLE}] must map names to paths of Pythons")
    return pythons


def path_of(choice: BackendChoice, pythons: Mapping[str, str]) -> str | None:
    """Return the path of the interpreter that a backend is to run in, None for vebench's own.

    ``pythons``: from the configuration. Raises UsageError if it has none of the name that the user gave.
    """
    name, installation = choice.python, choice.entry.library.installation
    if not name:
        there = installation is None or all(importable(package.module) for package in choice.entry.library.packages)
        return None if installation is None or there else venvs.python_of(installation.name)
    if os.sep in name or name in pythons:
        return str(Path(name if os.sep in name else pythons[name]).expanduser())
    known = [one.name for one in registry.INSTALLATIONS]
    if name in known:
        found = venvs.python_of(name)
        if found is None:
            raise UsageError(f"--backend {shown(choice.label)}: create this Python with vebench install {name}")
        return found
    near = did_you_mean(name, [*pythons, *known])
    raise UsageError(
        f"--backend {shown(choice.label)}: no Python is called {shown(name)}{near}: name one by a path with a slash, "
        f"such as ./venv/bin/python, or in [{_TABLE}] of {config_folder() / _CONFIG}"
    )


def engines_in(packages: Mapping[str, str], suite: str, label: str) -> tuple[Engine, ...]:
    """Return what makes the environments of a suite and is of other versions in a backend's own interpreter."""
    here, where = packages_here(), f"the Python of {label}"
    return tuple(
        Engine(package.title, packages[name], here[name], f"{name}=={here[name]}", where, elsewhere=True)
        for package in dict.fromkeys((*BASE, *SUITES[suite].packages))
        for name in package.deciding_names
        if name in packages
        and name in here
        and package.deciding_part(packages[name]) != package.deciding_part(here[name])
    )
