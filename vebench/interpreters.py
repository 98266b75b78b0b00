"""Other Pythons: their packages, and the virtual environments that vebench makes.

``child/probe.py`` looks the facts up in a separate process, so that this process imports no simulator.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import IO, Any, NotRequired, TypedDict

import msgspec

import vebench
from vebench.backends import bracketed
from vebench.backends.environments.suites import SUITES
from vebench.backends.packages import BASE, Installation
from vebench.backends.registry import ENTRIES, PACKAGES, RECORDED
from vebench.child import probe
from vebench.child.process import LONGEST_QUOTE, Log
from vebench.errors import StorageError, UsageError, one_line, shown
from vebench.process_guard import ProcessGuard, python_path

PLUGINS = tuple(suite.plugin for suite in SUITES.values() if suite.plugin)
_OLDEST = (3, 10)  # the oldest Python that the measuring child supports
_LOOK_UP_S = 120.0  # time limit to import a user's modules, and to make environments


class ProbeFacts(TypedDict):
    """The answer of ``child/probe.py``. Lists are in the order of the request."""

    version: tuple[int, int, int]
    packages: dict[str, str]
    modules: list[str]
    adapters: NotRequired[list[dict[str, Any]]]
    functions: NotRequired[list[dict[str, Any]]]
    envs: NotRequired[list[dict[str, Any]]]
    registered: NotRequired[list[str]]


@dataclass(frozen=True)
class Interpreter:
    """A Python: its path and version, the packages that affect a rate, and the modules that it can import."""

    path: str
    version: str
    packages: dict[str, str]
    modules: frozenset[str]

    def has(self, module: str) -> bool:
        """Return whether a module that a backend needs can be imported in this Python."""
        return module in self.modules


@cache
def packages_here() -> dict[str, str]:
    """Return the versions of the packages that affect a rate, by name, in the running interpreter."""
    return with_ours(probe.versions(RECORDED))


def with_ours(packages: dict[str, str]) -> dict[str, str]:
    """Return ``packages`` with vebench added. Its code runs in every interpreter, even where it is not installed."""
    return {"vebench": vebench.__version__, **packages}


def examine_python(option: str, path: str) -> Interpreter:
    """Return the facts about the Python at ``path``. Errors begin with ``option``, by which the user named it.

    Raises UsageError if this Python does not exist, is too old, or has no numpy.
    """
    # A relative path must become absolute, because cells run in another folder. A bare name is searched for in PATH.
    python = str(Path(path).absolute()) if os.sep in path else path
    about = f"{option} {shown(path)}"
    request: dict[str, object] = {"packages": RECORDED, "modules": [package.module for package in PACKAGES]}
    facts = ask(about, python, request, 60.0)
    if facts["version"] < _OLDEST:
        found, oldest = (".".join(map(str, version[:2])) for version in (facts["version"], _OLDEST))
        raise UsageError(f"{about}: Python {found} is too old; {oldest} or later is needed")
    if "numpy" not in facts["modules"]:
        raise UsageError(f"{about}: has no numpy, which every cell needs")
    version = ".".join(map(str, facts["version"]))
    return Interpreter(python, version, with_ours(facts["packages"]), frozenset(facts["modules"]))


def look_up(
    python: str,
    *,
    envs: Sequence[str] = (),
    adapters: Sequence[tuple[str, Sequence[str]]] = (),
    functions: Sequence[str] = (),
) -> ProbeFacts:
    """Return the facts of environments, adapters with options, and functions. Raises UsageError without an answer."""
    about = f"looking up {shown(', '.join([*envs, *(target for target, _ in adapters), *functions]))}"
    named = [bracketed.name_and_values(name) for name in envs]
    request: dict[str, object] = {"envs": named, "adapters": adapters, "functions": functions, "plugins": PLUGINS}
    return ask(about, python, request, _LOOK_UP_S)


def ask(about: str, python: str, request: dict[str, object], timeout: float) -> ProbeFacts:
    """Return the answer of ``child/probe.py``, run in ``python``. Raises UsageError, which begins with ``about``."""
    probe_script = str(Path(probe.__file__).absolute())
    with ProcessGuard() as guard:
        # Use files, because a pipe stays open until all processes that the interpreter started have closed it.
        asked, answered, printed = (guard.scratch / name for name in ("request.json", "answer.json", "log"))
        asked.write_text(json.dumps({**request, "scratch": str(guard.scratch)}), encoding="utf-8")
        env = {**os.environ, "PYTHONPATH": python_path(guard.scratch)}
        with asked.open("rb") as question, answered.open("w+b") as answer, printed.open("a+b") as log:
            try:
                with guard.process([python, probe_script], log, env=env, stdin=question, stdout=answer) as process:
                    if process.wait(timeout) is None:
                        raise UsageError(f"{about}: no answer within {timeout:g} s")
            except OSError as error:
                why = f"{shown(python)} does not start: {error.strerror}: name a Python, such as venv/bin/python"
                raise UsageError(f"{about}: {why}") from None
            how = process.how_it_ended()
        try:
            return msgspec.json.decode(answered.read_bytes(), type=ProbeFacts)
        except (ValueError, RecursionError):
            why = "" if ": " in how else ", without an answer"
            raise UsageError(f"{about}: Python {one_line(how)}{why}") from None


_MARK = "made-from"  # a file with the digest of the installation, written last. A folder without it is unfinished.


class NotHadError(Exception):
    """An interpreter could not be made. The text is one line with the reason."""


def folder_of(name: str) -> Path:
    """Return the folder of an installation's interpreter. It may not exist."""
    return cache_folder() / "peers" / name


def python_of(name: str) -> str | None:
    """Return the path of an installation's interpreter, None if it is unfinished."""
    python = _python_in(folder_of(name))
    return str(python) if (folder_of(name) / _MARK).exists() and python.exists() else None


def is_made(installation: Installation) -> bool:
    """Return whether the installation's interpreter exists, and would be made in the same way now."""
    try:
        return (folder_of(installation.name) / _MARK).read_text() == _planned(installation)[0]
    except (OSError, ValueError):
        return False


def _python_in(folder: Path) -> Path:
    return folder / "bin" / "python"


def _planned(installation: Installation) -> tuple[str, dict[str, str]]:
    """Return a digest of the installation's inputs, and the versions of simulators that its interpreter would get."""
    suites = [suite for suite in SUITES.values() if not suite.installation]
    packages = dict.fromkeys((*BASE, *(package for suite in suites for package in suite.packages)))
    names = tuple(name for package in packages for name in (package.name, *package.variants))
    versions = {name: version for name, version in probe.versions(names).items() if name not in installation.without}
    facts = {"installation": asdict(installation), "versions": versions}
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest(), versions


def set_up(installation: Installation, say: Callable[[str], None]) -> Path:
    """Make the interpreter of an installation anew, and return its path. ``say`` gets a line for each step.

    No started process outlives this call. Raises NotHadError, or StorageError if its folder cannot be written.
    """
    folder = folder_of(installation.name)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_suffix(".lock").open("w") as lock:
            with suppress(OSError):  # the file system has no locks
                fcntl.flock(lock, fcntl.LOCK_EX)  # wait while another vebench makes this interpreter
            shutil.rmtree(folder, ignore_errors=True)
            try:
                _install(installation, folder, say)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
    except OSError as error:
        raise StorageError(f"{folder}: {error.strerror or error}") from None
    return _python_in(folder)


def _install(installation: Installation, folder: Path, say: Callable[[str], None]) -> None:
    digest, versions = _planned(installation)
    log_file = folder.with_suffix(".log")
    with ProcessGuard() as guard, log_file.open("w+b") as log:
        try:
            pip = _new_python(folder, guard, log)
            for name, text in installation.files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text, encoding="utf-8")
            base = [f"{name}=={version}" for name, version in versions.items()]
            for step in installation.steps:
                say(f"{installation.name}: installing {', '.join(step.requirements)}")
                variables = {name: value.format(folder=folder) for name, value in step.variables.items()}
                _call([*pip, *step.options, *base, *step.requirements], variables, guard, log)
                base = []  # later steps do not install the base packages again
        except NotHadError as error:
            raise NotHadError(f"{error}; full log: {log_file}") from None
    found = examine_python("its Python", str(_python_in(folder)))
    needed = [entry.library.packages for entry in ENTRIES if entry.library.installation == installation]
    needed += [suite.packages for suite in SUITES.values() if suite.installation == installation.name]
    if missing := sorted({package.name for package in chain(*needed) if not found.has(package.module)}):
        raise NotHadError(f"was installed, but lacks {', '.join(missing)}")
    (folder / _MARK).write_text(digest)
    log_file.unlink(missing_ok=True)


def new_venv(requirements: Sequence[str], folder: Path) -> str:
    """Make a virtual environment with these requirements in ``folder``, and return its Python. Raises NotHadError."""
    with ProcessGuard() as guard, (guard.scratch / "install.log").open("w+b") as log:
        _call([*_new_python(folder, guard, log), *requirements], {}, guard, log)
    return str(_python_in(folder))


def _new_python(folder: Path, guard: ProcessGuard, log: IO[bytes]) -> list[str]:
    """Make a virtual environment in ``folder``, and return the command that installs packages into it."""
    uv, mine = shutil.which("uv"), str(_python_in(folder))
    venv = [uv, "venv", "-q", "--python", sys.executable] if uv else [sys.executable, "-I", "-m", "venv"]
    _call([*venv, str(folder)], {}, guard, log)
    return [uv, "pip", "install", "--python", mine] if uv else [mine, "-I", "-m", "pip", "install"]


def _call(command: Sequence[str], variables: Mapping[str, str], guard: ProcessGuard, log: IO[bytes]) -> None:
    """Run a command to its end. If it fails, raises NotHadError with the last error in its log."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    settings = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "TMPDIR": str(guard.scratch)}
    with guard.process(command, log, env={**environment, **settings, **variables}) as process:
        if process.wait() == 0:
            return
        lines = [line.strip() for line in Log(log).end().splitlines()]
        errors = [line for line in lines if line.lower().startswith("error")]
        cause = errors[-1] if errors else f"{command[0]} {process.how_it_ended()}"
        raise NotHadError(one_line(cause)[:LONGEST_QUOTE])


def releases_of(package: str) -> list[str]:
    """Return the final releases that pip finds for this Python, oldest first. Raises UsageError if there is none."""
    # Not ``pip index versions``, which also lists yanked releases.
    options = ("--disable-pip-version-check", "--no-input", "--dry-run", "--no-deps")
    command = [sys.executable, "-I", "-m", "pip", "install", *options, f"{package}==0+none"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    found = re.search(r"\(from versions: ([^)]*)\)", done.stderr)
    # PEP 440: final releases and post-releases only.
    final = re.compile(r"\d+(\.\d+)*(\.post\d+)?")
    versions = [name for name in found[1].split(", ") if final.fullmatch(name)] if found else []
    if not versions:
        *_, why = done.stderr.splitlines() or ["pip found no release"]
        raise UsageError(f"--package {shown(package)}: {one_line(why)}")
    return versions


def cache_folder() -> Path:
    """Return the folder that vebench keeps between runs. The folder may not exist."""
    # XDG Base Directory Specification: a relative path must be ignored.
    asked = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (asked if asked.is_absolute() else Path("~/.cache").expanduser()) / "vebench"
    except RuntimeError:  # the user has no home, as in some containers
        return Path(os.devnull, "vebench")
