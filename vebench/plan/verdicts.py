"""Known verdicts on the work of backends, from the survey and from this user's own comparisons.

A verdict is valid for a task, a backend with its options, and the versions of the packages behind both. The survey
comes with vebench (``survey.json``). ``vebench verify`` and ``vebench run --verify`` add verdicts to a file in the
user's cache folder. Verdicts on third-party adapters and environments are not kept, because their code may change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import permutations
from pathlib import Path
from typing import get_args

import msgspec

import vebench
from vebench.backends import bracketed
from vebench.backends.environments.suites import SUITES, short_name
from vebench.backends.interface import OwnClasses, Task
from vebench.backends.packages import BASE, Package
from vebench.backends.registry import REFERENCE
from vebench.child.answers import Proof, WorkVerdict
from vebench.errors import one_line
from vebench.files import contents, decoded
from vebench.interpreters import cache_folder, packages_here
from vebench.plan.grammar import BackendChoice, parse_backends
from vebench.plan.tasks import TASKS

Versions = Mapping[str, str] | None
# A task, a backend, and the package versions that a verdict depends on, as ``name==version``.
VerdictKey = tuple[str, str, tuple[str, ...]]

BEST_FIRST: tuple[WorkVerdict, ...] = get_args(WorkVerdict)
SAME = BEST_FIRST[:4]  # verdicts with which the backend's throughput can be compared with other backends
ENOUGH_STEPS = 5000  # a comparison over this number of steps counts, even if no episode ends
DISTRIBUTION = SAME[-1]  # the backend draws its own starts, so its episodes were compared instead of its rows


@dataclass(frozen=True)
class KnownVerdict:
    """A verdict on the work of a backend, and its basis."""

    verdict: WorkVerdict
    reason: str = ""  # why the verdict is not ``identical``
    steps: int = 0  # the number of compared steps of each environment
    num_envs: int = 0

    def outweighs(self, other: KnownVerdict) -> bool:
        """Return whether this verdict replaces ``other``, which was found before.

        Any other verdict replaces ``unverified``, and ``different`` replaces any verdict. Otherwise a comparison
        replaces one that is not longer.
        """
        if "unverified" in (self.verdict, other.verdict) and self.verdict != other.verdict:
            return other.verdict == "unverified"
        return self.verdict == "different" or self.steps * self.num_envs >= other.steps * other.num_envs


UNKNOWN = KnownVerdict("unverified")


def lasts(task: Task, backend: BackendChoice) -> bool:
    """Return whether a verdict is kept. Verdicts on third-party code, or with texts as arguments, are not kept.

    Arguments of a library's own tasks name no code.
    """
    suite = SUITES[task.suite]
    names_something = not suite.installation and any(isinstance(value, str) for value in task.arguments.values())
    return backend.is_ours and suite.ours and not names_something


def key(task: Task, backend: BackendChoice, versions: Versions = None) -> VerdictKey:
    """Return the key of verdicts on this backend and task, for these package versions, by default those installed."""
    shared = (*BASE, *SUITES[task.suite].packages)
    versions = packages_here() if versions is None else versions
    counted = _deciding((*shared, *backend.entry.library.packages), versions)
    if "vebench" in versions:
        counted["vebench"] = versions["vebench"]
    if backend.python:  # the reference is stepped in this interpreter, so its versions decide, too
        of_reference = _deciding(shared, packages_here())
        counted |= {f"reference {name}": of for name, of in of_reference.items() if of != counted.get(name)}
    made_of = tuple(f"{name}=={version}" for name, version in sorted(counted.items()))
    return task.id, BackendChoice(backend.name, backend.options).label, made_of


def _deciding(packages: Iterable[Package], versions: Mapping[str, str]) -> dict[str, str]:
    decide = ((name, package) for package in packages for name in package.deciding_names if name in versions)
    return {name: package.deciding_part(versions[name]) for name, package in decide}


def as_stepped(task: Task, backend: BackendChoice, own: OwnClasses | None = None) -> BackendChoice:
    """Return the backend whose code steps a task. If its own class refuses the task, Gymnasium's class steps it."""
    entry = backend.entry
    own = None if entry.scope.own_classes is None else own or entry.scope.own_classes(task)
    if own is None or not own.refused:
        return backend
    return BackendChoice(entry.scope.without_own, backend.options)


def concluded(proof: Proof, steps: int, num_envs: int) -> KnownVerdict:
    """Return the verdict that a proof gives. It is ``unverified`` if the proof is short and no episode has ended."""
    # Backends differ most at resets.
    if proof.verdict in SAME and not proof.ends and steps < ENOUGH_STEPS:
        why = f"{proof.verdict} over {steps:,} steps, but no episode ended"
        return KnownVerdict("unverified", why, steps, num_envs)
    return KnownVerdict(proof.verdict, why_not_identical(proof), steps, num_envs)


def why_not_identical(proof: Proof) -> str:
    """Return one line with the reasons why a verdict is not plainly ``identical``; empty if there are none."""
    return one_line(proof.fault or "; ".join(reasons_of(proof)))


def reasons_of(proof: Proof) -> list[str]:
    """Return the reasons of a verdict, in lines."""
    lines = [text for text in (proof.fault, proof.reason) if text]
    if proof.mismatch is not None:
        lines.append(f"first at {proof.mismatch.words}")
    lines += excuses(proof)
    if proof.verdict in SAME and not proof.ends:
        lines.append("no episode ended: use a larger --steps")
    return lines


def excuses(proof: Proof) -> list[str]:
    """Return a line for each declared difference that occurred, with the share of excused rows."""
    share = f" in {proof.excused / proof.rows:.1%} of all rows" if proof.excused and proof.rows else ""
    return [f"declared{share}: {text}" for text in proof.allowed]


class Knowledge:
    """The known verdicts. ``damage`` is a line about damage of the user's file, empty if the file is intact."""

    def __init__(self, known: Iterable[tuple[VerdictKey, KnownVerdict]] = (), damage: str = "") -> None:
        self.damage = damage
        self._known: dict[VerdictKey, KnownVerdict] = {}
        for entry, verdict in known:
            self._add(entry, verdict)

    @classmethod
    def load(cls) -> Knowledge:
        """Return the verdicts of the survey and of the user's file, without damaged lines."""
        path, found, damaged = kept_file(), [*_surveyed()], 0
        try:
            lines = contents(path).split(b"\n")
        except (FileNotFoundError, NotADirectoryError):
            return cls(found)
        except OSError as error:
            return cls(found, f"{path}: {error.strerror}: its verdicts are not available")
        for line in filter(None, lines):
            try:
                found.append(decoded(line, tuple[VerdictKey, KnownVerdict]))
            except (ValueError, RecursionError):
                damaged += 1
        remedy = "to restore all verdicts, delete the file and run vebench verify"
        return cls(found, f"{path}: damaged lines are ignored ({damaged}); {remedy}" if damaged else "")

    def of(
        self, task: Task, backend: BackendChoice, versions: Versions = None, own: OwnClasses | None = None
    ) -> KnownVerdict:
        """Return the verdict on ``backend``, or ``unverified`` if none is known. For ``own``, see ``as_stepped``."""
        if backend.name == REFERENCE and not backend.python:
            return KnownVerdict("identical")
        entry = key(task, as_stepped(task, backend, own), versions)
        return self._known.get(entry, UNKNOWN)

    def between(self, pair: tuple[Task, Task], versions: Sequence[Versions]) -> WorkVerdict:
        """Return the worst known verdict on the episodes of two tasks, over all policies. See ``key_of_pair``."""
        keys = (key_of_pair(*pair, versions, policy) for policy in ("", "hold", "sweep"))
        known = [self._known[entry].verdict for entry in keys if entry in self._known]
        return max(known, key=BEST_FIRST.index, default="unverified")

    def add(self, task: Task, backend: BackendChoice, found: KnownVerdict, versions: Versions = None) -> bool:
        """Add a verdict on ``backend``, without ``as_stepped``. Return whether ``keep`` should store the verdict."""
        return self._add(key(task, backend, versions), found) and lasts(task, backend)

    def _add(self, entry: VerdictKey, found: KnownVerdict) -> bool:
        before = self._known.get(entry)
        if before is not None and (before == found or not found.outweighs(before)):
            return False
        self._known[entry] = found
        return True


def keep(entry: VerdictKey, found: KnownVerdict) -> None:
    """Add a verdict with this key to the user's file. Raises OSError if it cannot be written."""
    line = msgspec.json.encode((entry, found))
    path = kept_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(b"\n" + line + b"\n")  # the first newline ends a line that was cut off


def kept_file() -> Path:
    """Return the path of the user's file in the cache folder. The file may not exist yet."""
    return cache_folder() / "verdicts.jsonl"


def other_implementations(tasks: Iterable[Task]) -> Iterator[tuple[Task, Task]]:
    """Yield pairs of tasks with the same name: one whose environments are made one by one, and a batched one."""
    named = [(re.split("[/:]", short_name(bracketed.cut(task.id)[0]))[-1].casefold(), task) for task in tasks]
    for (name, one), (same, other) in permutations(named, 2):
        suites = SUITES[one.suite], SUITES[other.suite]
        batched = [bool(suite.make_vec) for suite in suites if suite.ours]
        if name == same and batched == [False, True]:
            yield one, other


def key_of_pair(one: Task, other: Task, versions: Iterable[Versions], policy: str = "") -> VerdictKey:
    """Return the key of verdicts on two tasks. ``versions``: the packages in the Python of each."""
    names = BackendChoice(f"{other.id} with --policy {policy or 'random'}"), BackendChoice(one.id)
    (env, name, first), (*_, second) = map(key, (one, other), names, versions)
    return env, name, (*first, *second)


@cache
def _surveyed() -> tuple[tuple[VerdictKey, KnownVerdict], ...]:
    """Return the verdicts of the survey that comes with vebench. They are valid for this version of vebench."""
    found = []
    for survey in json.loads(files("vebench.plan").joinpath("survey.json").read_bytes()):
        versions = {**survey["packages"], "vebench": vebench.__version__}
        for env, by_backend in survey["verdicts"].items():
            for name, (verdict, reason) in by_backend.items():
                (backend,) = parse_backends([name])
                entry = key(TASKS[env], backend, versions)
                found.append((entry, KnownVerdict(verdict, reason, survey["steps"], survey["num_envs"])))
    return tuple(found)
