"""The structure itself: data goes one way, without circles, and the child's side of the wall stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from support.places import NO_OLDEST_PYTHON, OLDEST_PYTHON

import vebench
import vebench.backends
import vebench.reports
from vebench.analysis import cell
from vebench.backends.registry import BY_NAME, ENTRIES, PACKAGES
from vebench.process_guard import link_packages

FOLDERS = {
    "vebench": Path(vebench.__path__[0]),
    "vebench.backends": Path(vebench.backends.__path__[0]),
    "vebench.reports": Path(vebench.reports.__path__[0]),
}
# The floors of the house: each may import from those before it, and from itself.
FLOORS = (
    "errors",
    "files",
    "machine",
    "backends",
    "child",
    "process_guard",
    "interpreters",
    "plan",
    "hosts",
    "engine",
    "results",
    "analysis",
    "reports",
    "commands",
    "gates",
    "equality",
    "tune",
    "share",
    "api",
    "pytest_plugin",
    "testing",
    "options",
    "cli",
    "__main__",
)
# Features: each has its commands, its analysis and its pages, and no other feature knows it. The core is below.
SLICES = ("gates", "equality", "tune", "share")
# What runs in the interpreter that steps environments: whole folders, and what they all may import.
CHILD_SIDE = ("vebench.child", "vebench.machine", "vebench.backends")
CHILD_MAY_IMPORT = ("vebench", "vebench.errors", *CHILD_SIDE)
# What it may import besides. Python 3.11 brought tomllib; 3.12 and 3.13 brought no module of the standard library.
STANDARD_LIBRARY = sys.stdlib_module_names - {"tomllib"}
MAY_IMPORT = {
    "vebench.child": {"numpy"},
    "vebench.machine": set[str](),
    "vebench.machine.devices": {"pynvml"},  # of GPUs, where it is installed
    "vebench.backends": {package.module for package in PACKAGES},
    "vebench.backends.batched.warp_env": {"warp"},
    "vebench.backends.shared_memory.sb3": {"stable_baselines3"},  # what it is an adapter for
    "vebench.backends.peers.rlpyt": {"rlpyt"},  # from a checkout, that no package installs
    "vebench.child.probe": {"gymnasium"},  # looks up environments for its parent
    "vebench.child.equality.subject": {"gymnasium", "numpy"},  # steps them by its name
    "vebench.child.learner": {"torch"},
    "vebench.child.actions": {"torch"},  # for policies that are networks
}
# What the rest may know of backends and suites: interfaces, tables, and what holds for the environments of any suite.
OPEN_TO_ALL = {
    "vebench.backends",
    "vebench.backends.batched.arrays",
    "vebench.backends.batched.libraries",
    "vebench.backends.bracketed",
    "vebench.backends.entry",
    "vebench.backends.interface",
    "vebench.backends.packages",
    "vebench.backends.registry",
    "vebench.backends.training",
    "vebench.backends.trees",
    "vebench.backends.environments.making",
    "vebench.backends.environments.suites",
}
# A proof steps the reference itself, with its own code.
OPEN_TO_PROOFS = {"vebench.child.equality.judge": {"vebench.backends.for_loop"}}
HEAVY = {"numpy", "scipy", "gymnasium", "envpool", "mujoco", "ale_py", "cv2", "torch"}

pytestmark = pytest.mark.xdist_group("structure")  # every module is parsed once


def modules() -> dict[str, Path]:
    """Return every module of the project by the name that it installs as."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in folder.rglob("*.py"):
            name = ".".join((package, *path.relative_to(folder).with_suffix("").parts))
            found[name.removesuffix(".__init__")] = path
    return found


MODULES = modules()


@cache
def parsed(path: Path) -> list[ast.AST]:
    """Return every node of a file's syntax tree."""
    return list(ast.walk(ast.parse(path.read_text())))


@cache
def run_time(path: Path) -> list[ast.AST]:
    """Return them without what is there for types alone."""
    guarded = [node for node in parsed(path) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    for_types = {inner for node in guarded for line in node.body for inner in ast.walk(line)}
    return [node for node in parsed(path) if node not in for_types]


def imported_by(nodes: list[ast.AST]) -> set[str]:
    """Return the modules that these nodes of a file import."""
    named = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            named.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            deeper = {f"{node.module}.{alias.name}" for alias in node.names} & MODULES.keys()
            named.update(deeper if len(deeper) == len(node.names) else {*deeper, f"{node.module}"})
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            named.update(name.value for name in node.args[:1] if isinstance(name, ast.Constant))
    return named


@cache
def imports(path: Path) -> set[str]:
    """Return the project's modules that a file imports, wherever in it, for types alone or not."""
    return imported_by(parsed(path)) & MODULES.keys()


@cache
def texts(path: Path) -> set[str]:
    """Return the texts in a file, also the parts of f-strings, but no docstrings."""
    holders = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    first = [node.body[0] for node in parsed(path) if isinstance(node, holders) and node.body]
    docstrings = [line.value for line in first if isinstance(line, ast.Expr)]
    constants = [node for node in parsed(path) if isinstance(node, ast.Constant) and node not in docstrings]
    return {node.value for node in constants if isinstance(node.value, str)}


def floor(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "vebench" and len(parts) > 1 and parts[1] in FLOORS else None


@cache
def below(folder: str) -> list[str]:
    return sorted(name for name in MODULES if f"{name}.".startswith(f"{folder}."))


OUTSIDE_BACKENDS = sorted(name for name in MODULES if floor(name) != "backends")
ON_THE_CHILDS_SIDE = [name for folder in CHILD_SIDE for name in below(folder)]


def loaded_by(script: str, python: str | Path = sys.executable) -> set[str]:
    """Return the packages and modules at the top level that an interpreter has loaded after this script."""
    shown = f"import sys; {script}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    return set(subprocess.run([python, "-c", shown], check=True, capture_output=True, text=True).stdout.split())


def test_every_module_is_on_a_floor() -> None:
    assert {name for name in MODULES if floor(name) is None} == {"vebench"}


def test_the_page_on_the_structure_shows_every_floor() -> None:
    page = Path(__file__).parents[1] / "docs" / "reference" / "structure.md"
    _, picture, *_ = page.read_text(encoding="utf-8").split("```")
    assert {name for name in FLOORS if name not in picture.replace("/", " ").split()} == set()


def test_no_import_goes_up_or_from_a_slice_to_a_slice() -> None:
    wrong = set()
    for module, path in MODULES.items():
        for other in imports(path):
            own, at = floor(module), floor(other)
            higher = own and at and FLOORS.index(at) > FLOORS.index(own)
            if higher or (own in SLICES and at in SLICES and own != at):
                wrong.add((module, other))
    assert wrong == set()


def test_no_imports_go_in_a_circle_not_even_those_for_types() -> None:
    try:
        # But for the package, whose interface for Python is loaded on use.
        TopologicalSorter({name: imports(path) for name, path in MODULES.items() if name != "vebench"}).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_folders_and_the_modules_beside_them_import_each_other_in_no_circle() -> None:
    """A folder counts as one: none of its modules may import what imports another one of them."""
    for folder in {name.rpartition(".")[0] for name in MODULES} - {""}:
        inside, depth = set(below(folder)) - {folder}, folder.count(".") + 2
        graph: dict[str, set[str]] = {}
        for name in inside:
            node = ".".join(name.split(".")[:depth])
            others = {".".join(other.split(".")[:depth]) for other in imports(MODULES[name]) & inside}
            graph.setdefault(node, set()).update(others - {node})
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            pytest.fail(" -> ".join(error.args[1]))


def test_in_reports_the_model_knows_no_result_a_page_no_format_and_a_format_of_documents_no_page() -> None:
    def reached(*names: str) -> set[str]:
        return {other for name in names for other in imports(MODULES[f"vebench.reports.{name}"])}

    pages = ("run", "answer", "overview")
    of_documents = ("formats.terminal", "formats.markdown", "formats")
    allowed = {"vebench.analysis.cell", "vebench.analysis.statistics", "vebench.errors"}
    assert reached("document") <= allowed
    assert reached("charts") & {*below("vebench.reports")} <= {"vebench.reports.document", "vebench.reports.figures"}
    writing = {*below("vebench.reports.formats"), "vebench.reports.console"}
    assert reached("document", "columns", *pages) & writing == set()
    assert reached(*of_documents) & {f"vebench.reports.{name}" for name in pages} == set()


def test_only_backends_import_one_backend_or_one_suite() -> None:
    behind = {
        (module, other)
        for module in OUTSIDE_BACKENDS
        for other in imports(MODULES[module]) & set(below("vebench.backends"))
        if other not in OPEN_TO_ALL | OPEN_TO_PROOFS.get(module, set())
    }
    assert behind == set()
    named = {
        (module, text)
        for module in OUTSIDE_BACKENDS
        for text in texts(MODULES[module])
        if text.startswith("vebench.backends.")
    }
    assert named == set()


def test_only_backends_have_the_name_of_one_in_their_messages() -> None:
    names = {
        *(name for name in BY_NAME if "-" in name),
        *(entry.library.title for entry in ENTRIES if entry.library.title),
    }
    codes = {code.value for code in cell.Code}
    speaking = sorted({*OUTSIDE_BACKENDS} - {"vebench.cli"})  # its help has examples
    said = {(module, text) for module in speaking for text in texts(MODULES[module]) - codes}
    assert {(module, text) for module, text in said if any(name in text for name in names)} == set()


def test_the_childs_side_is_python_3_10_and_imports_nothing_from_the_parents() -> None:
    allowed = {name for part in CHILD_MAY_IMPORT for name in ([part] if part == "vebench" else below(part))}
    for module in ON_THE_CHILDS_SIDE:
        ast.parse(MODULES[module].read_text(), str(MODULES[module]), feature_version=(3, 10))
    assert {
        (module, other) for module in ON_THE_CHILDS_SIDE for other in imports(MODULES[module]) if other not in allowed
    } == set()


def test_the_childs_side_imports_the_standard_library_and_numpy_also_on_use() -> None:
    besides = {
        (module, root)
        for module in ON_THE_CHILDS_SIDE
        for root in {name.partition(".")[0] for name in imported_by(run_time(MODULES[module]))}
        if root not in STANDARD_LIBRARY | {"vebench"}
    }
    allowed = {
        (module, name)
        for folder, names in MAY_IMPORT.items()
        for module in ON_THE_CHILDS_SIDE
        if f"{module}.".startswith(f"{folder}.")
        for name in names
    }
    assert besides <= allowed


@pytest.mark.skipif(not OLDEST_PYTHON.exists(), reason=NO_OLDEST_PYTHON)
def test_the_childs_side_imports_in_a_python_3_10_as_far_as_libraries_do(tmp_path: Path) -> None:
    link_packages(tmp_path)
    ours = []
    for name in ON_THE_CHILDS_SIDE:
        nodes = [node for node in run_time(MODULES[name]) if isinstance(node, ast.ImportFrom)]
        ours += [node for node in nodes if f"{node.module}".partition(".")[0] in STANDARD_LIBRARY]
    on_use = {f"from {node.module} import {alias.name}" for node in ours for alias in node.names}
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        f"for line in {[*on_use, *(f'import {name}' for name in ON_THE_CHILDS_SIDE)]}:\n"
        "    try:\n"
        "        exec(line)\n"
        "    except ImportError as error:\n"
        "        print((error.name or line).partition('.')[0])\n"
    )
    done = subprocess.run([OLDEST_PYTHON, "-c", script], capture_output=True, text=True, check=True)
    # Each of their own libraries: nothing that is ours, and nothing of the standard library that is newer.
    assert set(done.stdout.split()) <= {package.module for package in PACKAGES}


@pytest.mark.parametrize(
    ("names", "heavy"),
    [
        ("vebench.child.main, vebench.child.request", HEAVY | {"click", "rich", "msgspec"}),  # before it is pinned
        ("vebench.child.cell, vebench.backends.interface", HEAVY - {"numpy"} | {"click", "rich", "msgspec"}),
        ("vebench.cli", HEAVY | {"msgspec"}),
    ],
)
def test_a_start_loads_nothing_heavy(names: str, heavy: set[str]) -> None:
    assert loaded_by(f"import {names}") & heavy == set()


def test_tests_of_a_group_run_in_one_process(request: pytest.FixtureRequest) -> None:
    grouped = getattr(request.config.option, "loadgroup", False)  # as pytest-xdist tells its processes
    assert not grouped or request.node.nodeid.endswith("@structure"), "groups are forgotten: see constraints.txt"
