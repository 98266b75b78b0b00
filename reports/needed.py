"""The packages that some reports need, and the line that says how to install one that is missing."""

from __future__ import annotations

from vebench.backends.packages import Package, how_to_install, importable

MATPLOTLIB = Package("matplotlib", "matplotlib", "report")
JINJA2 = Package("jinja2", "jinja2", "report")


def missing(what: str, package: Package) -> str:
    """Return why there can be no ``what`` here and what to do, in a line; empty if ``package`` is installed."""
    return "" if importable(package.module) else f"{what} need {package.name}: {how_to_install([package])}"
