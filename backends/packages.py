"""The packages that backends and suites need: how each is imported and installed, and how much of its version counts.

The parent reads this before anything is loaded: standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec


@dataclass(frozen=True)
class Package:
    """One package."""

    name: str  # on the package index
    module: str  # what Python imports
    extra: str | None = None  # of vebench, that installs it
    variants: tuple[str, ...] = ()  # other packages that hold the same module
    # How many numbers of the version must stay the same for a verdict on a backend's work to stay valid: 2 for X.Y of
    # X.Y.Z, None for all of them, 0 if the package has no part in the work.
    places: int | None = None
    simulator: str = ""  # what the engine in it is called

    @property
    def title(self) -> str:
        """Its name for people."""
        return self.simulator or self.name

    @property
    def deciding_names(self) -> tuple[str, ...]:
        """The names whose versions decide whether a verdict still holds, none if the version does not matter."""
        return () if self.places == 0 else (self.name, *self.variants)

    def deciding_part(self, version: str) -> str:
        """Return the places of a version that decide whether a verdict still holds: ``2`` of NumPy's ``2.4.6``."""
        return ".".join(version.split(".")[: self.places])


@dataclass(frozen=True)
class Step:
    """One call of ``pip install``."""

    requirements: tuple[str, ...]
    options: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)  # ``{folder}`` in a value: the interpreter's folder


@dataclass(frozen=True)
class Installation:
    """How an interpreter is made that has a library. Backends of the same library share one."""

    name: str  # what ``vebench install`` and ``-b BACKEND@NAME`` call it
    title: str  # what people do
    # The first is done together with the simulators and their packages in the versions of vebench's own interpreter, so
    # that both step the same, but for those in ``without``, which the library wants in versions of its own.
    steps: tuple[Step, ...]
    without: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)  # written into the interpreter's folder before, by name
    note: str = ""  # what a user must know or do


NUMPY = Package("numpy", "numpy", places=1)
GYMNASIUM = Package("gymnasium", "gymnasium")
ALE_PY = Package("ale-py", "ale_py", "atari", simulator="ALE")
_OTHER_OPENCVS = ("opencv-python", "opencv-contrib-python-headless", "opencv-contrib-python")
# AtariPreprocessing resizes with it.
OPENCV = Package("opencv-python-headless", "cv2", "atari", variants=_OTHER_OPENCVS, places=2)
MUJOCO = Package("mujoco", "mujoco", "mujoco", simulator="MuJoCo")
# Gymnasium imports its renderer with any MuJoCo task, and these two with it.
IMAGEIO = Package("imageio", "imageio", "mujoco", places=0)
PACKAGING = Package("packaging", "packaging", "mujoco", places=0)
ENVPOOL = Package("envpool", "envpool", "envpool")
DM_CONTROL = Package("dm-control", "dm_control", "dm-control")
SHIMMY = Package("shimmy", "shimmy", "dm-control")  # takes the DeepMind Control suite to Gymnasium
MINIGRID = Package("minigrid", "minigrid", "minigrid")
RAY = Package("ray", "ray", "ray", places=2)
TORCH = Package("torch", "torch", "torch", places=0)
MATPLOTLIB = Package("matplotlib", "matplotlib", "report")
JINJA2 = Package("jinja2", "jinja2", "report")

# The packages of the reference, and so of every comparison.
BASE = (NUMPY, GYMNASIUM)
# Policies need it, as environments and adapters of users may, and it decides how fast those are.
RECORDED_BESIDES = (TORCH.name,)


def importable(module: str) -> bool:
    """Return whether a module is installed in this interpreter. It is not imported."""
    return find_spec(module) is not None


def how_to_install(missing: Iterable[Package], *, beside_vebench: bool = True) -> str:
    """Return the command that installs the packages, and where to run it: ``pip install '.[atari]'``.

    ``beside_vebench``: into vebench's own environment, where its extras bring versions that fit each other.
    """
    missing = list(missing)
    extras = dict.fromkeys(package.extra for package in missing if package.extra and beside_vebench)
    names = [package.name for package in missing if not (package.extra and beside_vebench)]
    if not extras:
        return f"pip install {' '.join(names)}"
    # vebench itself is on no package index: pip installs its extras from the folder that it was cloned to.
    return " ".join(("in vebench's clone: pip install", f"'.[{','.join(map(str, extras))}]'", *names))
