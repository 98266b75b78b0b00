"""What backends and suites say of themselves before they are loaded."""

import ast
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from support.places import TESTS

from vebench.backends import registry
from vebench.backends.entry import BackendEntry
from vebench.backends.environments.suites import SUITES, load_target
from vebench.backends.fast.classes import VERSIONS
from vebench.backends.interface import Task
from vebench.backends.packages import ALE_PY, BASE, ENVPOOL, GYMNASIUM, IMAGEIO, OPENCV, Package, how_to_install

PROJECT = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["project"]


def names(requirements: list[str]) -> set[str]:
    return {Requirement(one).name for one in requirements}


@pytest.mark.parametrize("entry", registry.ENTRIES, ids=lambda entry: entry.name)
def test_an_entrys_adapter_is_there(entry: BackendEntry) -> None:
    module, _, name = entry.target.partition(":")
    only_elsewhere = [SUITES[suite].installation for suite in entry.scope.suites or ("classic",)]
    if entry.library.installation is None and not all(only_elsewhere):
        assert callable(load_target(entry.target))
    else:  # it imports its library, which is seldom here
        found = find_spec(module)
        assert found is not None
        tree = ast.parse(Path(str(found.origin)).read_text())
        bound = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
        bound |= {ast.unparse(node.targets[0]) for node in tree.body if isinstance(node, ast.Assign)}
        assert name in bound


OF_PEERS = {
    package
    for entry in registry.ENTRIES
    if entry.library.installation is not None
    for package in entry.library.packages
} | {package for suite in SUITES.values() if suite.installation for package in suite.packages if package not in BASE}
OWN = [package for package in registry.PACKAGES if package not in OF_PEERS]


@pytest.mark.parametrize("package", OWN, ids=lambda package: package.name)
def test_what_is_needed_is_installed_by_the_extra_that_the_remedy_names(package: Package) -> None:
    extras = PROJECT["optional-dependencies"]
    installed = PROJECT["dependencies"] if package.extra is None else extras[package.extra]
    assert package.name in names(installed)


def test_the_base_brings_no_simulator_and_all_brings_every_one_and_reports_to_look_at() -> None:
    assert names(PROJECT["dependencies"]) == {"click", "gymnasium", "msgspec", "numpy", "rich", "scipy"}
    (everything,) = map(Requirement, PROJECT["optional-dependencies"]["all"])
    assert everything.name == PROJECT["name"] == "vebench-rl"
    usual = {package for entry in registry.ENTRIES if entry.by_default for package in entry.library.packages}
    usual |= {package for suite in SUITES.values() if suite.usual for package in suite.packages}
    assert everything.extras == {"report", *(package.extra for package in usual if package.extra)}


def test_extras_install_no_newer_mujoco_than_own_classes_were_verified_with() -> None:
    extras = PROJECT["optional-dependencies"]
    asked = [one for one in map(Requirement, (*extras["mujoco"], *extras["envpool"])) if one.name == "mujoco"]
    newest = {bound.version for one in asked for bound in one.specifier if bound.operator != ">="}
    assert (len(asked), newest) == (3, {*VERSIONS["mujoco"]})


@pytest.mark.parametrize(
    ("missing", "command"),
    [
        ([ALE_PY], "in vebench's clone: pip install '.[atari]'"),
        ([ALE_PY, OPENCV, ENVPOOL], "in vebench's clone: pip install '.[atari,envpool]'"),
        ([GYMNASIUM], "pip install gymnasium"),
        ([GYMNASIUM, IMAGEIO], "in vebench's clone: pip install '.[mujoco]' gymnasium"),
    ],
)
def test_what_is_missing_is_installed_by_an_extra_or_else_by_its_name(missing: list[Package], command: str) -> None:
    assert how_to_install(missing) == command


def test_a_run_file_records_the_packages_that_decide_what_a_cell_does() -> None:
    of_peers = {name for package in OF_PEERS for name in package.deciding_names}
    assert tuple(name for name in registry.RECORDED if name not in of_peers) == (
        "ale-py", "dm-control", "envpool", "gymnasium", "minigrid", "mujoco", "numpy", "opencv-contrib-python",
        "opencv-contrib-python-headless", "opencv-python", "opencv-python-headless", "shimmy", "torch",
    )  # fmt: skip


def test_a_backend_that_is_not_in_the_table_is_treated_as_a_third_partys() -> None:
    entry = registry.find("a-backend-of-long-ago")
    assert (entry.reference_row, entry.steps_gymnasium, entry.steppers) == (False, False, "caller")
    assert registry.find("null").reference_row


@pytest.mark.parametrize(
    ("name", "task", "why"),
    [
        ("envpool-sync", "CartPole-v1[max_episode_steps=50]", "EnvPool has no CartPole-v1[max_episode_steps=50]"),
        ("ceiling", "HalfCheetah-v5[xml_file=a.xml]", "ceiling has no HalfCheetah-v5[xml_file=a.xml]"),
    ],
)
def test_what_cannot_take_arguments_has_no_task_with_them(name: str, task: str, why: str) -> None:
    suite = "mujoco" if task.startswith("Half") else "classic"
    refused = registry.BY_NAME[name].why_not(Task(task, suite, 5), lambda _module: True)
    assert refused is not None
    assert refused.startswith(why)


def test_the_tables_are_read_without_numpy_or_anything_heavy() -> None:
    script = (
        "import sys; import vebench.backends.registry, vebench.child.probe; "
        "print(*sorted({name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", script], check=True, capture_output=True, text=True)
    assert {name for name in done.stdout.split() if not name.startswith("_")} <= {"vebench", "sitecustomize"}
