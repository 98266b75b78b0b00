"""What is known of a backend's work before a run starts: the survey's verdicts, and those of this user's own checks.

A verdict holds for a task, a backend with its options, and the versions of the packages that both are made of. The
survey comes with vebench (``survey.json``); what ``vebench verify`` finds is added to a file in the cache folder.
Nothing is kept of adapters and environments from elsewhere, whose code may be another at any time.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vebench.backends.registry import BY_NAME
from vebench.child.answers import WorkVerdict  # noqa: TC001 - msgspec reads the annotations
from vebench.machine import packages
from vebench.plan.spec import BackendChoice
from vebench.plan.tasks import BY_NAME as TASKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from vebench.backends.interface import Task

BEST_FIRST: tuple[WorkVerdict, ...] = ("identical", "equal", "equivalent", "unverified", "different")
SAME = BEST_FIRST[:3]  # nothing stands in the way of a comparison

REFERENCE = "for-loop"
# Of these a change in a later place of the version is no reason to compare anew.
PLACES_THAT_COUNT = {"numpy": 1, "opencv-python": 2, "opencv-python-headless": 2}
EVERYWHERE = ("vebench", "gymnasium", "numpy")
OF_SUITE = {"atari": ("ale-py", "opencv-python", "opencv-python-headless"), "mujoco": ("mujoco",)}


class Key(NamedTuple):
    """What a verdict holds for. ``made_of`` are package versions, ``name==version``, as far as they count."""

    env: str
    backend: str
    made_of: tuple[str, ...]


@dataclass(frozen=True)
class Known:
    """A verdict, why it is not ``identical``, and on how much it stands: so many steps of so many environments."""

    verdict: WorkVerdict
    reason: str = ""
    steps: int = 0
    num_envs: int = 0

    def outweighs(self, other: Known) -> bool:
        """Return whether this verdict is to be believed where ``other`` was found before.

        What was seen counts more than that nothing could be, and a difference however soon it was seen. Otherwise the
        longer comparison counts, or the later of two.
        """
        if "unverified" in (self.verdict, other.verdict) and self.verdict != other.verdict:
            return other.verdict == "unverified"
        return self.verdict == "different" or self.steps * self.num_envs >= other.steps * other.num_envs


UNKNOWN = Known("unverified")


def lasts(task: Task, backend: BackendChoice) -> bool:
    """Return whether a verdict outlives its command: one on code from elsewhere does not, since that may change."""
    return backend.name in BY_NAME and task.suite != "gymnasium"


def key(task: Task, backend: BackendChoice, versions: Mapping[str, str]) -> Key:
    """Return what a verdict on this backend and task holds for."""
    own = BY_NAME[backend.name].packages if backend.name in BY_NAME else ()
    names = [*EVERYWHERE, *OF_SUITE.get(task.suite, ()), *own]
    made_of = tuple(f"{name}=={_counted(name, versions[name])}" for name in sorted(names) if name in versions)
    return Key(task.id, _canonical(backend).label, made_of)


def _canonical(backend: BackendChoice) -> BackendChoice:
    """Return the same choice with its options in order, without those that say what is so anyway."""
    known = BY_NAME[backend.name].options if backend.name in BY_NAME else {}
    defaults = {name: option.default for name, option in known.items()}
    told = {name: value for name, value in sorted(backend.options.items()) if defaults.get(name) != value}
    return BackendChoice(backend.name, told)


def _counted(name: str, version: str) -> str:
    return ".".join(version.split(".")[: PLACES_THAT_COUNT.get(name)])


class Knowledge:
    """Verdicts by what they hold for, on this machine's packages unless others are named."""

    def __init__(self, known: Iterable[tuple[Key, Known]] = ()) -> None:
        self._known: dict[Key, Known] = {}
        for entry, verdict in known:
            self._add(entry, verdict)

    @classmethod
    def load(cls) -> Knowledge:
        """Return what the survey found, and what this user has found since."""
        return cls([*_surveyed(), *_kept(kept_file())])

    def of(self, task: Task, backend: BackendChoice, versions: Mapping[str, str] | None = None) -> Known:
        """Return the verdict on ``backend``, which is ``unverified`` where nothing is known."""
        if backend.name == REFERENCE:
            return Known("identical")
        entry = key(task, backend, packages.installed() if versions is None else versions)
        return self._known.get(entry, UNKNOWN)

    def add(self, task: Task, backend: BackendChoice, found: Known) -> bool:
        """Learn a verdict. Returns whether it is new, and one to keep for later."""
        return self._add(key(task, backend, packages.installed()), found) and lasts(task, backend)

    def _add(self, entry: Key, found: Known) -> bool:
        before = self._known.get(entry)
        if before is not None and (before == found or not found.outweighs(before)):
            return False
        self._known[entry] = found
        return True


class _Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One kept verdict, a line of the file."""

    key: Key
    known: Known


class _Survey(msgspec.Struct, frozen=True):
    """What one survey found: with these packages, a verdict and its reason for each task and backend."""

    packages: dict[str, str]
    steps: int
    num_envs: int
    verdicts: dict[str, dict[str, tuple[WorkVerdict, str]]]


def keep(task: Task, backend: BackendChoice, found: Known) -> None:
    """Add a verdict to the user's file. Raises OSError if that cannot be done."""
    line = msgspec.json.encode(_Line(key(task, backend, packages.installed()), found))
    path = kept_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(line + b"\n")


def kept_file() -> Path:
    """Return the file in the user's cache folder, which need not be there."""
    # The XDG Base Directory Specification: a path that is not absolute is to be ignored.
    told = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (told if told.is_absolute() else Path("~/.cache").expanduser()) / "vebench" / "verdicts.jsonl"


def _kept(path: Path) -> list[tuple[Key, Known]]:
    """Return the lines of the user's file; one that cannot be read is no loss, as it can be found again."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            read = msgspec.json.decode(line, type=_Line)
        except msgspec.DecodeError:
            continue
        found.append((read.key, read.known))
    return found


def _surveyed() -> list[tuple[Key, Known]]:
    """Return what the survey that comes with vebench found: it holds for the version that it comes with."""
    text = files("vebench.plan").joinpath("survey.json").read_bytes()
    ours = packages.installed().get("vebench", "")
    found = []
    for survey in msgspec.json.decode(text, type=tuple[_Survey, ...]):
        versions = {**survey.packages, "vebench": ours}
        for env, by_backend in survey.verdicts.items():
            for name, (verdict, reason) in by_backend.items():
                entry = key(TASKS[env], BackendChoice(name), versions)
                found.append((entry, Known(verdict, reason, survey.steps, survey.num_envs)))
    return found
