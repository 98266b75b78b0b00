"""The interpreters of ``vebench peers setup``: a virtual environment for each installation, in the user's cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vebench.backends.environments.suites import SUITES
from vebench.backends.packages import BASE
from vebench.backends.registry import ENTRIES
from vebench.child import probe
from vebench.errors import StorageError, one_line
from vebench.interpreters.guarded import Guarded
from vebench.interpreters.interpreter import LONGEST_QUOTE, examine
from vebench.machine import guardian

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from vebench.backends.packages import Installation

_MARK = "vebench.json"  # written last: a folder without it is unfinished
_LONGEST_MARK = 1 << 20
_PATIENCE_S = 10.0


class NotHadError(Exception):
    """An interpreter could not be made. The text says why, in one line."""


class Made(msgspec.Struct, frozen=True):
    """What an interpreter was made from: the digest of the installation and of the versions that it got of ours."""

    made_from: str
    versions: dict[str, str]


def folder_of(name: str) -> Path:
    """Return the folder of an installation's interpreter. It may not exist."""
    return cache_folder() / "peers" / name


def python_of(name: str) -> str | None:
    """Return the path of an installation's interpreter, None if it has not been made to the end."""
    folder = folder_of(name)
    return str(python_in(folder)) if mark_of(folder) is not None and python_in(folder).exists() else None


def python_in(folder: Path) -> Path:
    """Return where the Python of a virtual environment is."""
    return folder / "bin" / "python"


def mark_of(folder: Path) -> Made | None:
    """Return what an interpreter was made from, None if it has not been made to the end."""
    try:
        with (folder / _MARK).open("rb") as file:
            return msgspec.json.decode(file.read(_LONGEST_MARK), type=Made)
    except (OSError, ValueError):
        return None


def digest(installation: Installation, versions: Mapping[str, str]) -> str:
    """Return a digest of all that decides what an interpreter becomes."""
    facts: dict[str, Any] = {"installation": asdict(installation), "versions": dict(versions)}
    return sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()


def _versions_for(installation: Installation) -> dict[str, str]:
    """Return the versions of the simulators and their packages that an interpreter gets: those that are here."""
    packages = dict.fromkeys((*BASE, *(package for suite in SUITES.values() for package in suite.packages)))
    names = tuple(name for package in packages for name in (package.name, *package.variants))
    return {name: version for name, version in probe.versions(names).items() if name not in installation.without}


def is_made(installation: Installation) -> bool:
    """Return whether the interpreter is there, as it would be made now."""
    mark = mark_of(folder_of(installation.name))
    return mark is not None and mark.made_from == digest(installation, _versions_for(installation))


def make(installation: Installation, say: Callable[[str], None]) -> Path:
    """Make the interpreter of an installation, and return its path. What was there before is removed.

    ``python`` is the Python it is made with, by default the first on the search path that fits. ``say`` is told what is
    done. Nothing that is started outlives this call, and nothing unfinished is left unless vebench is killed. Raises
    NotHadError if it cannot be made, StorageError if there is no place for it.
    """
    chosen = _fitting(installation)
    versions = _versions_for(installation)
    folder = folder_of(installation.name)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            shutil.rmtree(folder, ignore_errors=True)
            try:
                _install(installation, chosen, versions, folder, say)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
    except OSError as error:
        raise StorageError(f"{folder}: {error.strerror or error}") from None
    return python_in(folder)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other vebench makes an interpreter in ``folder``."""
    with folder.with_suffix(".lock").open("w") as lock:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fitting(installation: Installation) -> str:
    """Return a Python that fits: this one if it does. Raises NotHadError if none is found."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not installation.pythons or here in installation.pythons:
        return sys.executable
    for version in installation.pythons:
        if (found := shutil.which(f"python{version}")) and _runs(found):
            return found
    needed = " or ".join(installation.pythons)
    raise NotHadError(f"needs Python {needed}, and none is on PATH")


def _runs(python: str) -> bool:
    """Return whether a Python on the search path is one, and not what tells that none was chosen."""
    try:
        return subprocess.run([python, "-c", ""], capture_output=True, timeout=_PATIENCE_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _install(
    installation: Installation, python: str, versions: Mapping[str, str], folder: Path, say: Callable[[str], None]
) -> None:
    base = tuple(f"{name}=={version}" for name, version in versions.items())
    uv = shutil.which("uv")
    with Guarded() as guarded, (folder.with_suffix(".log")).open("w+b") as log:

        def call(command: Sequence[str], variables: Mapping[str, str]) -> None:
            _call(command, variables, guarded, log.fileno())

        try:
            call([uv, "venv", "-q", "--python", python, str(folder)] if uv else [python, "-m", "venv", str(folder)], {})
            for name, text in installation.files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text, encoding="utf-8")
            mine = str(python_in(folder))
            pip = [uv, "pip", "install", "--python", mine] if uv else [mine, "-m", "pip", "install"]
            for number, step in enumerate(installation.steps):
                wanted = (*(base if number == 0 else ()), *step.requirements)
                say(f"{installation.name}: installing {', '.join(step.requirements)}")
                call(
                    [*pip, *step.options, *wanted],
                    {name: value.format(folder=folder) for name, value in step.variables.items()},
                )
            _check(installation, mine)
        except subprocess.CalledProcessError as error:
            raise NotHadError(f"{_cause(log.fileno()) or error}; all of it: {folder.with_suffix('.log')}") from None
        mark = Made(digest(installation, versions), dict(versions))
        (folder / f"new-{_MARK}").write_bytes(msgspec.json.encode(mark))
        (folder / f"new-{_MARK}").rename(folder / _MARK)
    folder.with_suffix(".log").unlink(missing_ok=True)


def _call(command: Sequence[str], variables: Mapping[str, str], guarded: Guarded, log: int) -> None:
    """Run a command to its end. Raises CalledProcessError if it fails; nothing of it is left, whatever is raised."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    settings = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", guardian.TOKEN_VARIABLE: guarded.token}
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env={**environment, **settings, "TMPDIR": str(guarded.scratch), **variables},
        start_new_session=True,
    )
    guarded.add(process.pid)
    try:
        status = process.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        guarded.discard(process.pid)
    if status:
        raise subprocess.CalledProcessError(status, command)


def _cause(log: int) -> str:
    """Return the line that says why an installation failed: the last that pip calls an error, or the last of all."""
    text = os.pread(log, 1 << 20, max(0, os.fstat(log).st_size - (1 << 20))).decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return one_line((errors or lines or [""])[-1])[:LONGEST_QUOTE]


def _check(installation: Installation, python: str) -> None:
    """Raise NotHadError unless the interpreter has what the backends need."""
    found = examine("its Python", python)
    needed = {package for entry in ENTRIES if entry.installation == installation for package in entry.packages}
    if missing := sorted(package.name for package in needed if not found.has(package.module)):
        raise NotHadError(f"was installed, but lacks {', '.join(missing)}")


def cache_folder() -> Path:
    """Return the folder of what vebench keeps for later runs. It may not exist."""
    return _folder("XDG_CACHE_HOME", "~/.cache")


def config_folder() -> Path:
    """Return the folder of the user's configuration of vebench. It may not exist."""
    return _folder("XDG_CONFIG_HOME", "~/.config")


def _folder(variable: str, otherwise: str) -> Path:
    # XDG Base Directory Specification: a path that is not absolute must be ignored.
    asked = Path(os.environ.get(variable, ""))
    try:
        folder = asked if asked.is_absolute() else Path(otherwise).expanduser()
    except RuntimeError:  # a user without a home, as in some containers
        folder = Path(os.devnull)
    return folder / "vebench"
