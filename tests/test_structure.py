"""The structure itself: data goes one way, and what the measuring child loads stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import vebench
import vebench.backends
import vebench.reports
from vebench.backends.environments.suites import SUITES
from vebench.backends.registry import BY_NAME
from vebench.results.records import CellRecord

FOLDERS = {
    "vebench": Path(vebench.__path__[0]),
    "vebench.backends": Path(vebench.backends.__path__[0]),
    "vebench.reports": Path(vebench.reports.__path__[0]),
}
# Each may import those before it, and itself.
STAGES = (
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
HEAVY = {"numpy", "scipy", "gymnasium", "envpool", "mujoco", "ale_py", "cv2", "torch"}
CHILD_SIDE = ("vebench.child", "vebench.machine", "vebench.backends")  # folders


def modules() -> dict[str, Path]:
    """Return every module of the project by the name that it installs as."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in folder.rglob("*.py"):
            name = ".".join((package, *path.relative_to(folder).with_suffix("").parts))
            found[name.removesuffix(".__init__")] = path
    return found


def imports(path: Path) -> set[str]:
    """Return all modules that a file names in its imports, wherever they stand in it."""
    named = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            named.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            named.add(f"{node.module}")
            named.update(f"{node.module}.{alias.name}" for alias in node.names)
    return named


def stage(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "vebench" and len(parts) > 1 and parts[1] in STAGES else None


@pytest.mark.parametrize("module", sorted(modules()))
def test_a_stage_imports_earlier_stages_and_never_later_ones(module: str) -> None:
    own = stage(module)
    if own is None:
        return
    later = {
        other for other in imports(modules()[module]) if (at := stage(other)) and STAGES.index(at) > STAGES.index(own)
    }
    assert later == set()


def test_every_module_belongs_to_a_stage() -> None:
    assert {name for name in modules() if stage(name) is None} == {"vebench"}


@pytest.mark.parametrize("module", sorted(name for name in modules() if stage(name) != "backends"))
def test_only_backends_ask_for_a_backend_or_a_suite_by_name_or_prefix(module: str) -> None:
    names = (*BY_NAME, *SUITES)
    keys = CellRecord.__struct_fields__  # a backend may have the name of one, such as "threads"
    nodes = ast.walk(ast.parse(modules()[module].read_text()))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    long_enough = [text for text in texts.difference(keys) if len(text) > len("gym")]
    assert [text for text in long_enough if any(name.startswith(text) for name in names)] == []


def child_side() -> list[str]:
    """Return the modules that the measuring child may load: whole folders, errors, and the package itself."""
    below = [name for name in modules() if any(f"{name}.".startswith(f"{folder}.") for folder in CHILD_SIDE)]
    return sorted({"vebench", "vebench.errors", *below})


@pytest.mark.parametrize("module", child_side())
def test_what_the_child_loads_is_python_3_10(module: str) -> None:
    ast.parse(modules()[module].read_text(), feature_version=(3, 10))


@pytest.mark.parametrize("module", child_side())
def test_what_the_child_loads_needs_no_more_of_vebench_than_the_child_loads(module: str) -> None:
    ours = {name for name in imports(modules()[module]) if name in modules()}
    assert ours <= set(child_side())


def test_what_the_child_loads_first_is_the_standard_library_and_numpy() -> None:
    script = (
        "import sys; import vebench.child.main, vebench.child.loop, vebench.machine.counters, "
        "vebench.machine.pinning, vebench.backends.interface; "
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    loaded = set(
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    )
    assert not loaded & (HEAVY - {"numpy"} | {"typer", "rich", "msgspec"})


def test_the_command_line_is_imported_without_anything_heavy() -> None:
    script = "import sys; import vebench.cli; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = set(
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    )
    assert not loaded & (HEAVY | {"msgspec"})
