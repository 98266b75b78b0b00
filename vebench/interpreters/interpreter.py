"""Another Python, in which cells may run: its version, and what is installed in it."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vebench.backends.registry import MODULES
from vebench.errors import UsageError, one_line, shown
from vebench.machine import packages

OLDEST = (3, 10)  # what the measuring child runs on
TIMEOUT_S = 60.0
ASKED = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
request = json.load(sys.stdin)
versions = {}
for name in request["packages"]:
    try:
        versions[name] = version(name)
    except PackageNotFoundError:
        pass
modules = [name for name in request["modules"] if find_spec(name) is not None]
print(json.dumps({"version": sys.version_info[:3], "packages": versions, "modules": modules}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python by its path: its version, the packages that decide a figure, the modules that can be imported."""

    path: str
    version: str
    packages: dict[str, str]
    modules: frozenset[str]

    def has(self, module: str) -> bool:
        """Return whether a module that backends need can be imported there."""
        return module in self.modules


def examine(option: str, path: str) -> Interpreter:
    """Return what can be said of the Python at ``path``, which ``option`` named.

    Raises UsageError if there is none, if it is too old, or if it lacks numpy, which every cell needs.
    """
    # A path is one from here, though neither this nor a cell runs here; a bare name is looked for as a shell does.
    python = str(Path(path).absolute()) if os.sep in path else path
    request = json.dumps({"packages": packages.NAMES, "modules": [*MODULES, "numpy"]})
    try:
        # Not from this folder: a file in it must not stand in for a package.
        done = subprocess.run(
            [python, "-c", ASKED],
            input=request,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            cwd="/",
        )
        facts: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    except OSError as error:
        raise UsageError(f"{option} {shown(path)}: {error.strerror}: name a Python, such as venv/bin/python") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"{option} {shown(path)}: gave no answer in {TIMEOUT_S:g} s") from None
    except ValueError:
        last = one_line(done.stderr.strip().rpartition("\n")[2])[:200]
        raise UsageError(f"{option} {shown(path)}: is no Python that runs: {last or 'no answer'}") from None
    if tuple(facts["version"]) < OLDEST:
        raise UsageError(
            f"{option} {shown(path)}: Python {facts['version'][0]}.{facts['version'][1]} is too old; 3.10 is the oldest"
        )
    if "numpy" not in facts["modules"]:
        raise UsageError(f"{option} {shown(path)}: has no numpy, which every cell needs")
    version = ".".join(map(str, facts["version"]))
    return Interpreter(python, version, facts["packages"], frozenset(facts["modules"]))
