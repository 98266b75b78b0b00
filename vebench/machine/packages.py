"""The packages that decide what a cell does and how fast, and the versions of those that are installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

NAMES = (
    "vebench",
    "ale-py",
    "envpool",
    "gymnasium",
    "mujoco",
    "numpy",
    "opencv-python",
    "opencv-python-headless",
    "torch",
)


def installed() -> dict[str, str]:
    """Return the versions of those that are installed, by name."""
    versions = {}
    for name in NAMES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions
