"""The structure itself: data goes one way, without circles, and the child's side of the wall stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import fields
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from support.places import NO_OLDEST_PYTHON, OLDEST_PYTHON

import vebench
import vebench.backends
import vebench.reports
from vebench.backends.environments.suites import SUITES
from vebench.backends.registry import BY_NAME
from vebench.interpreters.scratch import link_packages
from vebench.results.records import CellRecord

FOLDERS = {
    "vebench": Path(vebench.__path__[0]),
    "vebench.backends": Path(vebench.backends.__path__[0]),
    "vebench.reports": Path(vebench.reports.__path__[0]),
}
# The floors of the house: each may import from those before it, and from itself.
FLOORS = (
    "errors",
    "machine",
    "backends",
    "child",
    "interpreters",
    "plan",
    "engine",
    "results",
    "analysis",
    "reports",
    "commands",
    "options",
    "cli",
)
# What runs in the interpreter that steps environments: whole folders, and what they all may import.
CHILD_SIDE = ("vebench.child", "vebench.machine", "vebench.backends")
CHILD_MAY_IMPORT = ("vebench", "vebench.errors", *CHILD_SIDE)
COMMANDS = ("run", "report", "check", "compare", "verify", "list", "doctor")
HEAVY = {"numpy", "scipy", "gymnasium", "envpool", "mujoco", "ale_py", "cv2", "torch"}


def modules() -> dict[str, Path]:
    """Return every module of the project by the name that it installs as."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in folder.rglob("*.py"):
            name = ".".join((package, *path.relative_to(folder).with_suffix("").parts))
            found[name.removesuffix(".__init__")] = path
    return found


MODULES = modules()


def imports(path: Path) -> set[str]:
    """Return the project's modules that a file imports, wherever in it, for types alone or not."""
    named = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            named.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            deeper = {f"{node.module}.{alias.name}" for alias in node.names}
            named.update(deeper & MODULES.keys() or {f"{node.module}"})
    return named & MODULES.keys()


def floor(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "vebench" and len(parts) > 1 and parts[1] in FLOORS else None


def below(folder: str) -> list[str]:
    return sorted(name for name in MODULES if f"{name}.".startswith(f"{folder}."))


def loaded_by(script: str, python: str | Path = sys.executable) -> set[str]:
    """Return the packages and modules at the top level that an interpreter has loaded after this script."""
    shown = f"import sys; {script}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    return set(subprocess.run([python, "-c", shown], check=True, capture_output=True, text=True).stdout.split())


def test_every_module_is_on_a_floor() -> None:
    assert {name for name in MODULES if floor(name) is None} == {"vebench"}


@pytest.mark.parametrize("module", sorted(MODULES))
def test_no_import_goes_up(module: str) -> None:
    own = floor(module)
    if own is None:
        return
    higher = {
        other for other in imports(MODULES[module]) if (at := floor(other)) and FLOORS.index(at) > FLOORS.index(own)
    }
    assert higher == set()


def test_no_imports_go_in_a_circle_not_even_those_for_types() -> None:
    try:
        TopologicalSorter({name: imports(path) for name, path in MODULES.items()}).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize("command", [name for name in COMMANDS if f"vebench.commands.{name}" in MODULES])
def test_no_command_imports_another(command: str) -> None:
    others = {f"vebench.commands.{name}" for name in COMMANDS}
    assert imports(MODULES[f"vebench.commands.{command}"]) & others == set()


@pytest.mark.parametrize("module", sorted(name for name in MODULES if floor(name) != "backends"))
def test_only_backends_ask_for_a_backend_or_a_suite_by_name_or_prefix(module: str) -> None:
    names = (*BY_NAME, *SUITES)
    keys = {field.name for field in fields(CellRecord)}  # a backend may have the name of one, such as "threads"
    nodes = ast.walk(ast.parse(MODULES[module].read_text()))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    long_enough = [text for text in texts - keys if len(text) > len("gym")]
    assert [text for text in long_enough if any(name.startswith(text) for name in names)] == []


def test_only_backends_import_the_module_of_a_suite() -> None:
    targets = [value for suite in SUITES.values() for value in vars(suite).values() if ":" in str(value)]
    own = {target.partition(":")[0] for target in targets if isinstance(target, str)}
    assert len(own) > 2
    assert {name for name, path in MODULES.items() if floor(name) != "backends" and imports(path) & own} == set()


@pytest.mark.parametrize("module", [name for folder in CHILD_SIDE for name in below(folder)])
def test_the_childs_side_is_python_3_10_and_imports_nothing_from_the_parents(module: str) -> None:
    ast.parse(MODULES[module].read_text(), feature_version=(3, 10))
    allowed = {name for part in CHILD_MAY_IMPORT for name in ([part] if part == "vebench" else below(part))}
    assert imports(MODULES[module]) <= allowed


@pytest.mark.skipif(not OLDEST_PYTHON.exists(), reason=NO_OLDEST_PYTHON)
def test_the_childs_folder_imports_in_a_python_3_10_that_has_only_numpy(tmp_path: Path) -> None:
    link_packages(tmp_path)
    names = [name for folder in ("vebench.child", "vebench.machine") for name in below(folder)]
    script = f"sys.path.insert(0, {str(tmp_path)!r}); import {', '.join(names)}"
    assert loaded_by(script, OLDEST_PYTHON) & (HEAVY - {"numpy"} | {"typer", "rich", "msgspec"}) == set()


@pytest.mark.skipif(not OLDEST_PYTHON.exists(), reason=NO_OLDEST_PYTHON)
def test_adapters_import_there_as_far_as_their_libraries_do(tmp_path: Path) -> None:
    link_packages(tmp_path)
    script = (
        "import importlib, sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        f"for name in {below('vebench.backends')}:\n"
        "    try:\n"
        "        importlib.import_module(name)\n"
        "    except ModuleNotFoundError as error:\n"
        "        print(error.name.partition('.')[0])\n"
    )
    done = subprocess.run([OLDEST_PYTHON, "-c", script], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"gymnasium", "ale_py"}


def test_a_child_loads_the_standard_library_alone_until_it_is_pinned() -> None:
    script = "import vebench.child.main, vebench.child.request"
    assert loaded_by(script) & (HEAVY | {"typer", "rich", "msgspec"}) == set()


def test_a_child_that_measures_loads_numpy_and_nothing_else_by_itself() -> None:
    script = "import vebench.child.main, vebench.child.cell, vebench.backends.interface"
    assert loaded_by(script) & (HEAVY - {"numpy"} | {"typer", "rich", "msgspec"}) == set()


def test_the_command_line_is_imported_without_anything_heavy() -> None:
    assert loaded_by("import vebench.cli") & (HEAVY | {"msgspec"}) == set()
