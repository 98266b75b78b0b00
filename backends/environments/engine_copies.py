"""The simulator that a backend carries inside it, and whether it is the one that every other backend uses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True)
class Engine:
    """A simulator of which a backend has its own copy.

    ``inside`` is the version of the copy, ``installed`` the version of the package that the other backends use, and
    ``matching`` what pip would have to install to make the two equal. ``within`` names what has the copy: a library, or
    ``elsewhere`` the backend's own interpreter.
    """

    name: str
    inside: str
    installed: str
    matching: str
    within: str = "EnvPool"
    elsewhere: bool = False

    @property
    def unlike(self) -> bool:
        """Whether the two are of different versions."""
        return self.inside != self.installed

    @property
    def words(self) -> str:
        """Both versions in words: ``ALE 0.11.2 inside EnvPool, 0.12.1 in ale-py``."""
        package = self.matching.partition("==")[0]
        return f"{self.name} {self.inside} inside {self.within}, {self.installed} in {package}"


@dataclass(frozen=True)
class _Source:
    """Where the version of a copy is found. MuJoCo's is the only string of three numbers in EnvPool's library."""

    name: str
    package: str
    library: str
    pattern: re.Pattern[bytes]


_SOURCES = {
    "mujoco": _Source("MuJoCo", "mujoco", "mujoco/mujoco_gym_envpool.so", re.compile(rb"\0(\d+\.\d+\.\d+)\0")),
    "dm_control": _Source("MuJoCo", "mujoco", "mujoco/mujoco_dmc_envpool.so", re.compile(rb"\0(\d+\.\d+\.\d+)\0")),
    # ALE prints "(version X+COMMIT)" at its start: one string, or two in a row, depending on the compiler.
    "atari": _Source("ALE", "ale-py", "atari/atari_envpool.so", re.compile(rb"\(version \0?(\d+\.\d+\.\d+)\0?\+")),
}


def inside_envpool(suite: str) -> tuple[Engine, ...]:
    """Return the engine inside EnvPool that steps a suite's tasks, or none if one of the versions is unknown."""
    source, envpool = _SOURCES.get(suite), find_spec("envpool")
    if source is None or envpool is None or envpool.origin is None:
        return ()
    try:
        library = (Path(envpool.origin).parent / source.library).read_bytes()
        inside, installed = version_inside(library, source.pattern), version(source.package)
    except (OSError, PackageNotFoundError):
        return ()
    return () if inside is None else (Engine(source.name, inside, installed, f"{source.package}=={inside}"),)


def version_inside(library: bytes, pattern: re.Pattern[bytes]) -> str | None:
    """Return the version that a library contains, None if it contains none or several."""
    found = set(pattern.findall(library))
    return found.pop().decode() if len(found) == 1 else None
