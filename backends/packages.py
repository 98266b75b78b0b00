"""The packages that backends and suites need: how to import and install each, and which versions count as equal.

The parent reads this before it loads any package: standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec


@dataclass(frozen=True)
class Package:
    """One package."""

    name: str  # the name on the package index
    module: str  # the module to import
    extra: str | None = None  # vebench's extra that installs it
    variants: tuple[str, ...] = ()  # other packages that hold the same module
    # How many leading numbers of the version decide whether an earlier verdict on a backend still holds. 2: X.Y of
    # X.Y.Z. None: all numbers. 0: the package has no part in the work.
    places: int | None = None
    simulator: str = ""  # the name of the engine in the package

    @property
    def title(self) -> str:
        """The name that users see: the engine's, or else the package's."""
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

    requirements: Sequence[str]
    options: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)  # ``{folder}`` in a value: the interpreter's folder


@dataclass(frozen=True)
class Installation:
    """How to make an interpreter that has a library. Backends of the same library share the interpreter."""

    name: str  # the name in ``vebench install`` and ``-b BACKEND@NAME``
    title: str  # the library in words
    # The first step also installs the simulators and their packages, in the versions of vebench's own interpreter. Both
    # interpreters then step the same environments.
    steps: tuple[Step, ...]
    without: Sequence[str] = ()  # packages that the first step leaves out: the library needs other versions of them
    files: Mapping[str, str] = field(default_factory=dict)  # texts of files in the interpreter's folder, written first
    note: str = ""  # advice to the user


NUMPY = Package("numpy", "numpy", places=1)
GYMNASIUM = Package("gymnasium", "gymnasium")
ALE_PY = Package("ale-py", "ale_py", "atari", simulator="ALE")
OPENCV = Package(  # AtariPreprocessing resizes with it
    "opencv-python-headless",
    "cv2",
    "atari",
    variants=("opencv-python", "opencv-contrib-python-headless", "opencv-contrib-python"),
    places=2,
)
MUJOCO = Package("mujoco", "mujoco", "mujoco", simulator="MuJoCo")
# Gymnasium imports its renderer with any MuJoCo task. The renderer imports these two packages.
IMAGEIO = Package("imageio", "imageio", "mujoco", places=0)
PACKAGING = Package("packaging", "packaging", "mujoco", places=0)
ENVPOOL = Package("envpool", "envpool", "envpool")
DM_CONTROL = Package("dm-control", "dm_control", "dm-control")
SHIMMY = Package("shimmy", "shimmy", "dm-control")  # registers the DeepMind Control suite with Gymnasium
MINIGRID = Package("minigrid", "minigrid", "minigrid")
RAY = Package("ray", "ray", "ray", places=2)
TORCH = Package("torch", "torch", "torch", places=0)
JAX = Package("jax", "jax")
GYMNAX = Package("gymnax", "gymnax")
BRAX = Package("brax", "brax")
JAXTARI = Package("JAXtari", "jaxtari")
PLAYGROUND = Package("playground", "mujoco_playground")
MUJOCO_WARP = Package("mujoco-warp", "mujoco_warp")
MATPLOTLIB = Package("matplotlib", "matplotlib", "report")
JINJA2 = Package("jinja2", "jinja2", "report")

# The packages of the reference, and so of every comparison.
BASE = (NUMPY, GYMNASIUM)


def importable(module: str) -> bool:
    """Return whether a module is installed in this interpreter, without importing it."""
    return find_spec(module) is not None


def how_to_install(missing: Iterable[Package], *, beside_vebench: bool = True) -> str:
    """Return the command that installs the packages, and where to run it: ``pip install '.[atari]'``.

    ``beside_vebench``: install into vebench's own environment, by its extras, whose versions fit each other.
    """
    missing = list(missing)
    extras = dict.fromkeys(package.extra for package in missing if package.extra and beside_vebench)
    names = [package.name for package in missing if not (package.extra and beside_vebench)]
    if not extras:
        return f"pip install {' '.join(names)}"
    # vebench is on no package index, so pip installs its extras from the clone.
    return " ".join(("in vebench's clone: pip install", f"'.[{','.join(map(str, extras))}]'", *names))
